"""The stated error of estimators that withhold small counts is their error, by the exact distribution of the noise."""

import math

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.parts.postprocessing import SurplusAnalysis
from shuffledp.randomness import Dyadic

NOISE = Binomial(891, Dyadic(1, 4))  # mean 55.7, deviation 7.2: as for the Titanic's decks at epsilon 1, delta 1e-8
WITHHOLDING = ("threshold", "relaxed-threshold")


def outcomes(analysis, count):
    """What a true count is estimated as and with which stated error, and the probability of each outcome."""
    noise = np.arange(NOISE.trials + 1)
    surplus = count - noise
    return analysis.estimate(surplus), analysis.standard_errors(surplus), NOISE.pmf(noise)


def test_a_count_that_always_reads_zero_has_an_error_of_at_least_itself():
    """The reproduction: 33 of 891 users always reads 0, and the standard error was stated as 7."""
    analysis = SurplusAnalysis(NOISE, 9, "threshold")
    estimates, errors, probability = outcomes(analysis, 33)
    assert float(probability @ (estimates == 0)) > 0.998
    assert errors[estimates == 0].min() >= 33
    assert NOISE.deviation < 7.3


@pytest.mark.parametrize("estimator", WITHHOLDING)
@pytest.mark.parametrize("count", [0, 1, 10, 25, 33, 40, 48, 55, 60, 66, 75, 90, 200, 891])
def test_the_mean_of_the_stated_squares_is_at_least_the_mean_squared_error(estimator, count):
    """For every truth. A deviation of the noise in its place, as it was stated before, is caught."""
    analysis = SurplusAnalysis(NOISE, 9, estimator)
    estimates, errors, probability = outcomes(analysis, count)
    true = float(probability @ (estimates - count) ** 2)
    assert true == pytest.approx(analysis.mean_squared_error(count), rel=1e-9, abs=1e-9)
    assert (
        float(probability @ errors**2) >= 0.9 * true
    )  # a stated error is that of the estimated count, not of the true one
    if 10 <= count <= 48 and estimator == "threshold":
        assert NOISE.variance < 0.85 * true


@pytest.mark.parametrize("estimator", WITHHOLDING)
def test_the_squared_errors_are_those_of_the_definition(estimator):
    analysis = SurplusAnalysis(NOISE, 9, estimator)
    counts = np.arange(0, 200)
    summed = [analysis.mean_squared_error(count) for count in counts.tolist()]
    assert analysis._squared_errors(counts) == pytest.approx(summed, rel=1e-9, abs=1e-12)
    (withheld,) = analysis.standard_errors(np.array([-100]))
    assert withheld == pytest.approx(math.sqrt(max(summed)), rel=1e-9)


def test_a_count_that_stands_clear_has_the_deviation_of_the_noise():
    for estimator in (*WITHHOLDING, "unbiased", "clipped"):
        errors = SurplusAnalysis(NOISE, 9, estimator).standard_errors(np.array([400]))
        assert errors.tolist() == pytest.approx([NOISE.deviation], rel=1e-6)


def test_the_midpoint_states_its_bias():
    analysis = SurplusAnalysis(NOISE, 1000, "midpoint")
    (stated,) = analysis.standard_errors(np.array([400]))
    assert stated == pytest.approx(math.sqrt(analysis.mean_squared_error(450)), rel=1e-6)
    assert stated > 1.001 * NOISE.deviation


@pytest.mark.parametrize("estimator", WITHHOLDING)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_threshold_that_is_shown_is_the_least_count_that_is_withheld_rarely(estimator, confidence):
    analysis = SurplusAnalysis(NOISE, 9, estimator)
    limit = analysis.withheld_below(confidence)
    for count, is_rare in ((limit, True), (limit - 1, False)):
        estimates, _, probability = outcomes(analysis, count)
        assert (float(probability @ (estimates == 0)) <= (1 - confidence) / 2) is is_rare
    withheld = np.arange(-150, 1)
    withheld = withheld[analysis.estimate(withheld) == 0]
    intervals = analysis.intervals(withheld)(confidence)
    assert intervals[:, 0].max() == 0
    assert intervals[:, 1].max() == limit - 1


def test_estimators_that_withhold_nothing_say_so():
    for estimator in ("unbiased", "clipped", "midpoint"):
        assert SurplusAnalysis(NOISE, 9, estimator).withheld_below(0.95) is None


def test_more_noise_than_users_withholds_every_count():
    analysis = SurplusAnalysis(Binomial(20, Dyadic(15, 4)), 3, "threshold")
    assert analysis.withheld_below(0.95) == 21
    assert np.isfinite(analysis.standard_errors(np.array([-5, 0, 1]))).all()


@pytest.mark.parametrize("name", ["stability", "sample-and-threshold"])
def test_thresholds_of_a_trusted_party(name):
    """The exact error at a withheld count: the largest there is below the threshold, and no other is larger."""
    protocol = sdp.find("histogram", name).calibrate(users=2000, domain_size=3, epsilon=1.0, delta=1e-6)
    analysis = protocol.analysis(2000)
    limit = analysis.withheld_below(0.95)
    squares = analysis.withholding.squared_errors(np.arange(limit))
    withheld, clear = analysis.standard_errors(np.array([0, 1500]))
    assert withheld == pytest.approx(math.sqrt(squares.max()), rel=1e-9)
    assert clear == pytest.approx(
        math.sqrt(
            float(
                analysis.withholding.squared_errors(np.rint(analysis.estimate(np.array([1500]), "")).astype(np.int64))[
                    0
                ]
            )
        ),
        rel=1e-6,
    )
    assert analysis.intervals(np.array([0]))(0.95).tolist() == [[0.0, limit - 1]]
    near = analysis.standard_errors(np.array([protocol.threshold]))
    assert near[0] > 1.2 * math.sqrt(
        float(analysis.error.variance(analysis.estimate(np.array([protocol.threshold]), ""))[0])
    )


@pytest.mark.parametrize("question", ["count", "histogram"])
def test_a_withheld_count_is_shown_as_such_everywhere(question):
    sizes = {"categories": ["yes", "no"]} if question == "histogram" else {}
    protocol = sdp.find(question, "balcer-cheu").calibrate(users=900, epsilon=1.0, delta=1e-8, **sizes)
    values = ["yes"] * 5 + ["no"] * 895 if question == "histogram" else [1] * 5 + [0] * 895
    estimate = protocol.run(values)
    limit = estimate.withheld_below()
    assert 40 < limit < 100
    number = estimate.shown()[0]
    assert (number.text, number.value) == (f"< {limit}", 0.0)
    assert f"< {limit}" in repr(estimate)
    assert float(number.error) > 30
    document = estimate.to_json()
    assert document["withheld_below"] == limit
    assert document["withheld"] == ([True, False] if question == "histogram" else True)
    assert estimate.to_frame()["withheld"].tolist() == [True, False][: len(estimate.shown())]
    drawing = estimate.figure(".svg").decode()
    assert f"&lt; {limit}" in drawing
    assert "withheld" in drawing
    unbiased = protocol.run(values, estimator="unbiased")
    assert unbiased.withheld_below() is None
    assert unbiased.withheld_sentence() == ""
    assert "withheld" not in unbiased.figure(".svg").decode()
