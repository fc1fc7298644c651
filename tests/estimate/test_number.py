"""A released sum and the mean that is the same release."""

import csv
import io
import json
import math

import numpy as np
import pyarrow.csv
import pytest

import shuffledp as sdp
from shuffledp.errors import OutputError, ParameterError
from shuffledp.estimate import SumEstimate
from shuffledp.protocols.target import Target
from shuffledp.testing import check_protocol

GUARANTEE = Target(200, 1.0, 0.0).local_guarantee(1.0, theorem="exact ratio")


def estimate(value=-500.0, *, secure=True, **more) -> SumEstimate:
    return SumEstimate(
        protocol="duchi",
        estimator="unbiased",
        users=200,
        guarantee=GUARANTEE,
        intervals=lambda confidence: np.array([[value - 100 * confidence, value + 300 * confidence]]),
        secure=secure,
        value=value,
        standard_error=40.0,
        **more,
    )


def test_the_mean_is_everything_divided_by_the_users():
    total, mean = estimate(), estimate().mean
    assert (mean.statistic, mean.value, mean.standard_error) == ("mean", -2.5, 0.2)
    for confidence in (0.5, 0.95):
        assert mean.interval(confidence) == pytest.approx(np.array(total.interval(confidence)) / 200)
    assert (total.value, total.statistic) == (-500.0, "sum")
    assert mean.guarantee is total.guarantee
    assert mean.users == 200


def test_the_sum_is_reachable_from_the_mean():
    total, back = estimate(), estimate().mean.sum
    assert (back.statistic, back.value, back.standard_error) == ("sum", total.value, pytest.approx(40.0))
    assert back.interval(0.5) == pytest.approx(total.interval(0.5))
    assert total.sum is total


MINUTES = np.linspace(20, 60, 2_000)
"""Their mean is 40, far from their sum of 80,000."""


@pytest.mark.parametrize("name", sdp.PROTOCOLS["sum"])
def test_a_protocol_that_answers_a_mean_shows_a_mean_everywhere(name, tmp_path):
    question = sdp.Mean(users=2_000, lower=0, upper=100)
    total = sdp.find("sum", name).calibrate(**question.settings(), epsilon=1.0, delta=1e-6)
    protocol = question.answered_by(total)
    mean = protocol.run(MINUTES)
    low, high = mean.interval(1 - 1e-9)
    assert low <= 40 <= high
    assert low <= mean.value <= high
    assert high - low < 100  # of the sum it is 2,000 times as wide
    assert f"mean {mean.shown()[0].text}, " in repr(mean)
    document = mean.to_json(0.9)
    assert (document["value"], document["statistic"]) == (mean.value, "mean")
    assert document["interval"] == list(mean.interval(0.9))
    assert mean.to_frame(0.9).iloc[0].to_dict() == mean.to_table(0.9).to_pylist()[0]
    assert mean.to_table(0.9).to_pylist()[0]["value"] == mean.value
    assert "Private mean" in mean.figure(".svg").decode()
    assert mean.sum.value == pytest.approx(2_000 * mean.value)
    # the same protocol in every other respect
    assert sdp.to_document(protocol) == sdp.to_document(total)
    assert protocol.parameters() == total.parameters()
    errors = protocol.expected_error(), total.expected_error()
    assert errors[0].rmse * 2_000 == pytest.approx(errors[1].rmse)
    assert errors[0].max_error * 2_000 == pytest.approx(errors[1].max_error)
    assert mean.standard_error < errors[1].rmse / 100


def test_what_was_asked_of_a_plan_is_what_its_best_protocol_answers():
    asked = {"users": 2_000, "lower": 0, "upper": 100}
    mean = sdp.plan(sdp.Mean(**asked), epsilon=1.0, delta=1e-6)
    total = sdp.plan(sdp.Sum(**asked), epsilon=1.0, delta=1e-6)
    assert mean.best.run(MINUTES).value == pytest.approx(40, abs=20 * mean.plans[0].expected.rmse)
    assert total.best.run(MINUTES).value == pytest.approx(80_000, abs=20 * total.plans[0].expected.rmse)
    assert mean.plans[0].expected == mean.best.expected_error()
    assert [each.protocol.name for each in mean.plans] == [each.protocol.name for each in total.plans]
    more = mean.best.run(np.concatenate([MINUTES, MINUTES]))  # a round may have more users than were planned for
    assert more.value == pytest.approx(40, abs=20 * mean.plans[0].expected.rmse)


def test_a_protocol_that_answers_a_mean_passes_the_conformance_kit():
    protocol = sdp.find("sum", "duchi").calibrate(users=3, domain=sdp.Interval(-1, 3), epsilon=1.0, delta=1e-6)
    check_protocol(protocol.answering("mean"), samples=8_000)


def test_a_question_that_a_sum_does_not_answer_is_refused():
    protocol = sdp.find("sum", "duchi").calibrate(users=20, domain=sdp.Interval(0, 1), epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match="median"):
        protocol.answering("median")


def test_the_mean_of_a_mean_is_itself():
    mean = estimate().mean
    assert mean.mean is mean


def test_a_mean_keeps_what_is_to_be_said():
    mean = estimate(secure=False, caveats=("Beware.",)).mean
    assert not mean.secure
    assert mean.caveats == ("Beware.",)
    assert mean.to_json()["guarantee"] is None
    assert "NOT PRIVATE" in mean.guarantee_sentence()


def test_json_and_table():
    result = json.loads(json.dumps(estimate().to_json(0.5), allow_nan=False))
    assert set(result) == {
        "protocol",
        "estimator",
        "guarantee",
        "secure",
        "caveats",
        "users",
        "value",
        "standard_error",
        "interval",
        "confidence",
        "statistic",
    }
    assert result["statistic"] == "sum"
    assert result["interval"] == [-550.0, -350.0]
    table = estimate().mean.to_table(0.5)
    assert table.to_pylist() == [{"value": -2.5, "standard_error": 0.2, "lower": -2.75, "upper": -1.75, "secure": True}]
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    assert len(list(csv.DictReader(io.StringIO(sink.getvalue().decode())))) == 1


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 2, math.nan, math.inf])
def test_confidences_that_mean_nothing(confidence):
    for each in (estimate(), estimate().mean):
        with pytest.raises(ParameterError):
            each.interval(confidence)


@pytest.mark.parametrize("value", [-500.0, 0.0, 500.0])
def test_sums_below_zero_are_drawn_as_they_are(value):
    drawing = estimate(value).figure(".svg").decode()
    assert "Private sum" in drawing
    shown = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.4g}"
    assert shown.replace("-", "\u2212") in drawing or shown in drawing


def test_what_is_not_private_says_so_in_the_figure():
    drawing = estimate(secure=False).mean.figure(".svg").decode()
    assert "NOT PRIVATE mean" in drawing
    assert "Differentially private" not in drawing


def test_plots_are_refused_early(tmp_path):
    with pytest.raises(OutputError):
        estimate().plot(tmp_path / "figure.pdf")
    estimate().mean.plot(tmp_path / "figure.svg", title="Of <b>mine</b>")
    assert "Of &lt;b&gt;mine" in (tmp_path / "figure.svg").read_text()
