"""A shuffled count without delta: exact distributions, the printed settings, and pure privacy by brute force."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import BelowMinimumError, InfeasibleError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.pure_sum import PureSum, falling_weights
from shuffledp.protocols.count.pure_sum import PureSumCount
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value

ONE = 1 << 64
EVEN = (ONE // 4,) * 4
HALF = Dyadic(1, 1)


def calibrated(users=100, epsilon=1.0, **more) -> PureSumCount:
    return PureSumCount.calibrate(users=users, epsilon=epsilon, delta=1e-6, **more)


def by_hand(users=3, mix=HALF, epsilon=9.0) -> PureSumCount:
    return PureSumCount(Target(users, epsilon, 0.0), EVEN, mix, certified_users=users)


def test_the_distribution_by_hand():
    """Three bits: 1 + x ones, or every second time 0 to 3 ones with a quarter each."""
    assert by_hand().report_pmf(0) == {
        (3, 0): Fraction(1, 8),
        (2, 1): Fraction(5, 8),
        (1, 2): Fraction(1, 8),
        (0, 3): Fraction(1, 8),
    }
    assert by_hand().report_pmf(1)[1, 2] == Fraction(5, 8)


@pytest.mark.parametrize(("epsilon", "central", "printed"), [(0.5, 2.80, 6.3), (1.0, 1.36, 2.98), (2.0, 0.60, 1.46)])
def test_not_worse_than_the_printed_settings(epsilon, central, printed):
    """Reference values at 100 users: the least error that is found lies between the central and the printed one."""
    protocol = calibrated(epsilon=epsilon)
    assert central < protocol.expected_error().rmse <= printed
    guarantee = protocol.guarantee
    assert (guarantee.delta, guarantee.epsilon) == (0.0, epsilon)
    assert guarantee.delta_at(epsilon) == 0.0


def test_better_than_the_local_model():
    for users in (50, 1000, 10_000):
        local = math.sqrt(users * math.e) / (math.e - 1)
        assert calibrated(users).expected_error().rmse < local


def ones_pmf(protocol, ones, zeros):
    pmf = [Fraction(1)]
    for bit, count in ((1, ones), (0, zeros)):
        report = [protocol.report_pmf(bit)[protocol.size - k, k] for k in range(protocol.size + 1)]
        for _ in range(count):
            longer = [Fraction(0)] * (len(pmf) + protocol.size)
            for i, a in enumerate(pmf):
                for j, b in enumerate(report):
                    longer[i + j] += a * b
            pmf = longer
    return pmf


@pytest.mark.parametrize("users", [3, 4, 6])
def test_pure_privacy_by_brute_force(users):
    """For every number of ones of the others, no count of ones is more than e^epsilon times likelier."""
    protocol = calibrated(users, 2.0)
    worst = 0.0
    for others in range(users):
        without = ones_pmf(protocol, others, users - others)
        with_one = ones_pmf(protocol, others + 1, users - 1 - others)
        worst = max(worst, *(abs(math.log(a / b)) for a, b in zip(with_one, without, strict=True)))
    assert worst <= PureSum(users, protocol.weights, protocol.mix).certified_epsilon * (1 + 1e-9)
    assert worst <= 2.0


@pytest.mark.parametrize("bit", [0, 1])
def test_reports_have_their_distribution(bit):
    """50,000 reports; a mix off by a tenth is caught."""
    weights = falling_weights(5, 0.6)

    def seen(mix):
        protocol = PureSumCount(Target(3, 9.0, 0.0), weights, mix, certified_users=3)
        messages = protocol.randomize_all(np.full(50_000, bit))
        assert np.array_equal(np.diff(messages.offsets), np.full(50_000, 5))
        return protocol, np.bincount(messages.values.reshape(-1, 5).sum(axis=1), minlength=6)

    protocol, right = seen(Dyadic.at_least(0.5))
    pmf = [float(protocol.report_pmf(bit)[5 - ones, ones]) for ones in range(6)]
    assert p_value(right, pmf) > ALPHA
    assert p_value(seen(Dyadic.at_least(0.56))[1], pmf) < ALPHA


def test_the_estimate_is_unbiased_and_its_error_exact():
    """By the exact distribution of three users' ones, for every true count."""
    protocol = by_hand()
    estimates = protocol.analysis(3).estimate(np.arange(10), "unbiased")
    for truth in range(4):
        pmf = np.array([float(mass) for mass in ones_pmf(protocol, truth, 3 - truth)])
        assert pmf @ estimates == pytest.approx(truth, abs=1e-9)
        assert math.sqrt(pmf @ (estimates - truth) ** 2) == pytest.approx(protocol.expected_error().rmse)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_intervals_hold_their_confidence(confidence):
    protocol = by_hand(8, Dyadic(1, 3))
    ends = protocol.analysis(8).intervals(np.arange(25))(confidence)
    for truth in range(9):
        pmf = np.array([float(mass) for mass in ones_pmf(protocol, truth, 8 - truth)])
        assert pmf[(ends[:, 0] <= truth + 1e-9) & (ends[:, 1] >= truth - 1e-9)].sum() >= confidence


def test_the_error_does_not_grow_with_the_number_of_users():
    """At a million users it was 173, and is 1.96; the central one is 1.36."""
    protocol = calibrated(10**6)
    assert protocol.certified_users == 10**6
    assert protocol.guarantee.users == 10**6
    assert protocol.expected_error().rmse < 2.0
    assert protocol.expected_error().max_error < 11


def test_a_run_of_thousands():
    """The interval at 1 - 1e-7 has the truth; with noise of ten times the probability, often not (alpha 1e-6)."""
    protocol = calibrated(5000)
    low, high = protocol.run([1] * 2000 + [0] * 3000).interval(1 - 1e-7)
    assert low <= 2000 <= high < 2000 + 60


def test_a_document_of_fewer_certified_users_still_holds():
    """Documents from before: certified for 250 users at most, with more users the same noise."""
    fewer = PureSumCount(Target(5000, 1.0, 0.0), falling_weights(17, 0.75), Dyadic.at_least(3.2 / 250), 250)
    assert fewer.guarantee.users == 5000


def test_honest_users_are_what_counts():
    assert calibrated(200, honest_fraction=0.5).weights == calibrated(100).weights


def test_refusals():
    with pytest.raises(ParameterError, match="does not hold for fewer"):
        PureSumCount(Target(3, 9.0, 0.0), EVEN, Dyadic(1, 1), certified_users=4)
    with pytest.raises(ParameterError):
        by_hand(epsilon=0.01).guarantee  # noqa: B018
    with pytest.raises(InfeasibleError):
        calibrated(100, 1e-3)
    with pytest.raises(ParameterError, match="bits"):
        by_hand().estimate(Tally(np.array([4, 4]), 3))
    with pytest.raises(BelowMinimumError):
        by_hand().run([1, 0])


@pytest.mark.parametrize("weights", [(1, 1), (ONE // 4, ONE // 2, ONE // 4), (ONE // 2, ONE // 4, ONE // 8, ONE // 8)])
def test_weights_that_are_no_distribution_have_no_guarantee(weights):
    with pytest.raises(ParameterError):
        PureSumCount(Target(3, 9.0, 0.0), weights, Dyadic(1, 1), certified_users=3).guarantee  # noqa: B018
