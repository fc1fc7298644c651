"""Protocols of an augmented shuffler: reference numbers, dummies, errors and intervals, plans, refusals."""

import math

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.shuffler_noise import SummedLaplace, TruncatedLaplace
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.histogram.shuffler_geometric import ShufflerGeometricHistogram
from shuffledp.protocols.histogram.shuffler_laplace import ShufflerLaplaceHistogram, truncated_laplace
from shuffledp.randomness import SYSTEM, Dyadic, bernoulli, discrete_laplace
from shuffledp.testing.statistics import ALPHA, p_value

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def test_nearly_the_central_error_for_little_more_than_one_message():
    protocol = ShufflerLaplaceHistogram.calibrate(users=10**6, domain_size=1000, **TARGET)
    error, cost = protocol.expected_error(), protocol.cost
    assert error.rmse <= 2.80
    assert cost.messages_per_user == 1
    assert cost.messages_per_user + cost.dummies_per_user == pytest.approx(1.025, abs=1e-4)
    assert protocol.moved_by_report(1) == 1
    assert (protocol.guarantee.trust, protocol.guarantee.honest_users) == ("augmented", 1)
    assert math.isinf(protocol.guarantee.local_epsilon)
    assert "exact counts" in protocol.guarantee.sentence()


def test_a_count_has_the_central_error():
    protocol = sdp.find("count", "shuffler-laplace").calibrate(users=10**6, **TARGET)
    assert protocol.expected_error().rmse == pytest.approx(1.357, abs=1e-3)
    assert protocol.cost.dummies_per_user == 28 / 10**6
    estimate = protocol.run([1] * 300 + [0] * (10**6 - 300), route="counts")
    assert abs(estimate.value - 300) <= 14
    with pytest.raises(ParameterError, match="10 users and 28 dummies make 38 messages, not 39"):
        sdp.find("count", "shuffler-laplace").calibrate(users=10, **TARGET).estimate(
            Tally(np.array([20, 19]), 10, released=True)
        )


def test_the_error_of_sampled_reports_is_the_published_one():
    protocol = ShufflerGeometricHistogram.calibrate(users=1000, domain_size=3, **TARGET)
    keep, ratio = -math.expm1(-0.5), 1 / (1 + math.exp(0.5))
    for count in (0, 10, 990):
        variance = (count * keep * (1 - keep) + ratio / (1 - ratio) ** 2) / keep**2
        counts = np.array([count, count, count])
        assert protocol.expected_error(counts=counts).rmse ** 2 == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize(("ratio", "shift"), [(0.5, 2), (0.75, 4)])
def test_dummies_have_their_distribution(ratio, shift):
    """200,000 numbers against the whole table, alpha = 1e-7; a ratio off by 3 % and clipped noise are rejected."""
    drawn = truncated_laplace(Dyadic.of(ratio), shift, 200_000, SYSTEM)
    last = 40
    seen = np.bincount(np.minimum(drawn, last), minlength=last + 1)

    def table(ratio):
        masses = ratio ** np.abs(np.arange(last + 1.0) - shift)
        masses[-1] /= 1 - ratio
        return masses / masses.sum()

    assert p_value(seen, table(ratio)) > ALPHA
    assert p_value(seen, table(0.97 * ratio)) <= ALPHA
    clipped = np.clip(discrete_laplace(ratio, 200_000) + shift, 0, last)
    assert p_value(np.bincount(clipped, minlength=last + 1), table(ratio)) <= ALPHA


@pytest.mark.parametrize("name", ["shuffler-laplace", "shuffler-geometric"])
def test_the_part_of_the_shuffler_is_that_of_the_release(name):
    """Dropping reports and adding ``draw_dummies`` has the distribution of ``release``: two samples, alpha = 1e-7."""
    protocol = sdp.find("histogram", name).calibrate(users=40, domain_size=2, epsilon=3.0, delta=0.01)
    values = np.repeat([0, 1], [15, 25])
    literal, fast = [], []
    for _ in range(6000):
        kept = values[bernoulli(protocol.shuffler_keeps, len(values))]
        messages = np.concatenate((kept, protocol.draw_dummies()))
        literal.append(int(np.count_nonzero(messages == 0)))
        fast.append(int(protocol.sample_tally(np.array([15, 25])).counts[0]))
    table = [np.bincount(np.minimum(sample, 40), minlength=41) for sample in (literal, fast)]
    rare = table[0] + table[1] < 20
    merged = [np.append(counts[~rare], counts[rare].sum()) for counts in table]
    assert chi2_contingency([merged[0] + 1, merged[1] + 1]).pvalue > 1e-7


@pytest.mark.parametrize("name", ["shuffler-laplace", "shuffler-geometric"])
def test_intervals_cover_every_count(name):
    """3,000 rounds: the coverage of 90 % intervals within the binomial bound at alpha = 1e-6."""
    protocol = sdp.find("histogram", name).calibrate(users=1000, domain_size=3, **TARGET)
    counts, rounds = np.array([0, 200, 800]), 3000
    covered = np.zeros(3)
    for _ in range(rounds):
        low, high = protocol.estimate(protocol.sample_tally(counts)).interval(0.9).T
        covered += (low <= counts) & (counts <= high)
    assert covered.min() >= binom.ppf(1e-6 / 3, rounds, 0.9)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.4875, 0.75, 0.99])
def test_geometric_dummies_satisfy_bernsteins_condition(ratio):
    """ln E exp(s (Z - E Z)) <= s^2 Var / (2 (1 - b |s|)) for both signs of s, below 1/b."""
    bound = (1 + ratio) / (2 * (1 - ratio))
    mean, variance = ratio / (1 - ratio), ratio / (1 - ratio) ** 2
    for share in np.linspace(-0.999, 0.999, 401):
        s = share / bound
        cumulant = math.log((1 - ratio) / (1 - ratio * math.exp(s))) - s * mean
        assert cumulant <= s**2 * variance / (2 * (1 - abs(share))) + 1e-12


def test_plans_never_mix_it_with_the_shuffled_model():
    question = sdp.Histogram(users=10_000, domain_size=5)
    shuffled = sdp.plan(question, **TARGET)
    assert {plan.protocol.trust for plan in shuffled if not plan.reference} == {"shuffled"}
    assert shuffled["shuffler-laplace"].reference
    augmented = sdp.plan(question, **TARGET, trust="augmented")
    assert {plan.protocol.name for plan in augmented if not plan.reference} == {
        "shuffler-laplace",
        "shuffler-geometric",
    }
    assert augmented.best.name == "shuffler-laplace"
    assert augmented["correlated-noise"].reference
    assert augmented.plans[0].to_json()["cost"]["dummies_per_user"] == pytest.approx(25 * 5 / 10_000, rel=1e-4)
    assert augmented.plans[0].to_json()["model"] == "augmented"


def test_documents():
    for question, name in (("histogram", "shuffler-laplace"), ("histogram", "shuffler-geometric")):
        protocol = sdp.find(question, name).calibrate(users=100, domain_size=4, **TARGET)
        again = from_document(to_document(protocol))
        assert again == protocol
        assert again.guarantee.delta_at(1.0) == protocol.guarantee.delta_at(1.0)
    count = sdp.find("count", "shuffler-laplace").calibrate(users=100, **TARGET)
    assert from_document(to_document(count)) == count


def test_large_domains_are_refused():
    with pytest.raises(InfeasibleError, match="at most 100,000,000 are possible"):
        ShufflerLaplaceHistogram.calibrate(users=10**6, domain_size=10**7, **TARGET)


def test_values_without_dummies_are_refused():
    protocol = ShufflerLaplaceHistogram.calibrate(users=3, domain_size=2, **TARGET)
    tally = protocol.tally(protocol.randomize_all(np.array([0, 1, 1])))
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(tally)
    with pytest.raises(ParameterError, match="already released"):
        protocol.release(protocol.release(tally))
    with pytest.raises(ParameterError, match="below 0"):
        protocol.estimate(Tally(np.array([-1, 60]), 3, released=True))


def test_other_protocols_have_no_dummies():
    protocol = sdp.BalcerCheuHistogram.calibrate(users=100, domain_size=3, epsilon=1.0, delta=1e-3)
    assert len(protocol.draw_dummies()) == 0
    assert float(protocol.shuffler_keeps) == 1


def test_sessions_name_the_trust():
    session = sdp.Session(users=100, epsilon=1.0, delta=1e-6, trust="augmented")
    session.histogram(["a"] * 60 + ["b"] * 40, categories=["a", "b"], share=0.5)
    assert "augmented" in str(session.report())
    shuffled = sdp.Session(users=100, epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match="augmented"):
        shuffled.histogram(["a"] * 60 + ["b"] * 40, categories=["a", "b"], protocol="shuffler-laplace", share=0.5)


@pytest.mark.parametrize(("question", "settings"), [("histogram", {"domain_size": 3}), ("count", {})])
def test_each_shuffler_of_a_chain_adds_all_dummies(question, settings):
    """The variance times the number of shufflers, unbiased, and intervals that cover; the guarantee is that of one."""
    one = sdp.find(question, "shuffler-laplace").calibrate(users=100, epsilon=2.0, delta=1e-3, **settings)
    two = one.with_shufflers(2)
    assert (one.shufflers, two.shufflers, one == two) == (1, 2, False)
    assert to_document(one) == to_document(two)
    assert two.guarantee.delta_at(2.0) == one.guarantee.delta_at(2.0)
    assert two.expected_error().rmse == pytest.approx(math.sqrt(2) * one.expected_error().rmse, rel=1e-3)
    counts = np.array([10, 20, 70] if question == "histogram" else [30, 70])
    rounds, covered, values = 3000, 0, []
    for _ in range(rounds):
        estimate = two.estimate(two.sample_tally(counts))
        low, high = estimate.interval(0.9)[0] if question == "histogram" else estimate.interval(0.9)
        value, truth = (estimate.counts[0], 10) if question == "histogram" else (estimate.value, 70)
        values.append(value - truth)
        covered += low <= truth <= high
    deviation = two.expected_error().rmse
    assert abs(np.mean(values)) < 5.5 * deviation / math.sqrt(rounds)
    assert np.var(values) == pytest.approx(deviation**2, rel=0.2)
    assert covered >= binom.ppf(1e-7, rounds, 0.9)
    if question == "count":
        with pytest.raises(ParameterError, match="dummies make"):  # planted: the tally of one shuffler
            two.estimate(one.sample_tally(counts))


@pytest.mark.parametrize(
    ("ratio", "shift", "bounded"), [(0.5, 2, False), (0.75, 4, False), (0.6, 3, True), (0.99, 300, False)]
)
def test_the_sum_of_draws_has_its_distribution(ratio, shift, bounded):
    """Tails against a direct convolution, never below it."""
    noise = TruncatedLaplace(Dyadic.of(ratio), shift, bounded=bounded)
    total = SummedLaplace(noise, 3)
    one = noise.masses(2 * shift if bounded else shift + math.ceil(60 / (1 - ratio)))
    expected = np.convolve(np.convolve(one, one), one)
    assert total.mean == pytest.approx(float(expected @ np.arange(len(expected))), rel=1e-9)
    for k in (0, 1, shift, 3 * shift - 1, 3 * shift, 3 * shift + 5, 4 * shift):
        upper, lower = math.fsum(expected[k:]), math.fsum(expected[: k + 1])
        assert upper - 1e-13 <= total.upper_tail(k) <= upper + 1e-11
        assert lower - 1e-13 <= total.lower_tail(k) <= lower + 1e-11


def test_sampling_is_not_possible_in_a_chain():
    protocol = sdp.find("histogram", "shuffler-geometric").calibrate(users=10, domain_size=2, **TARGET)
    assert protocol.with_shufflers(1) == protocol
    with pytest.raises(ParameterError, match="samples reports"):
        protocol.with_shufflers(2)
