"""Reports of bounded length: the chance to exceed a cap from above and close, and what it adds to delta."""

import itertools
import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy import capping
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.capping import CappedCurve, Share, chance_of_more
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.incomplete_beta import betainc
from shuffledp.privacy.pure import PureCurve
from shuffledp.randomness import Dyadic


def masses_of(share: Share, last: int) -> np.ndarray:
    """Pr[weight N = m] up to the last, by the ratio of successive masses."""
    masses = np.zeros(last + 1)
    mass = (1 - share.ratio) ** share.shape
    for k in range(last // share.weight + 1):
        masses[share.weight * k] = mass
        mass *= (k + share.shape) / (k + 1) * share.ratio
    return masses


def exact_chances(shares: list[Share], last: int) -> np.ndarray:
    """Pr[more than m] for each m, but for what is beyond the last, by convolving."""
    total = np.ones(1)
    for share in shares:
        total = np.convolve(total, masses_of(share, last))[: last + 1]
    return np.cumsum(total[::-1])[::-1][1:]


SHARES = {
    "one": [Share(1.0, 0.5)],
    "a small part of one": [Share(1e-6, 0.6)],
    "correlated noise": [Share(2e-4, 0.64), Share(2.6e-3, 0.948, 2)],
    "many bins": [Share(20.0, 0.64), Share(26.0, 0.9, 2)],
    "heavy ones": [Share(0.01, 0.3, 7), Share(0.5, 0.2, 3), Share(0.5, 0.2, 3), Share(3.0, 0.1)],
}


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("by", ["sums", "Chernoff"])
def test_the_chance_is_never_understated(name, by):
    shares = SHARES[name]
    exact = exact_chances(shares, 4000)
    worst = 0.0
    for most in range(0, 1200, 7):
        bound = chance_of_more(shares, most) if by == "sums" else capping._rough_chance(tuple(shares), most)
        assert bound >= exact[most] * (1 - 1e-10)
        if exact[most] > 1e-30:
            worst = max(worst, bound / exact[most])
    assert worst < (1 + 2e-9 if by == "sums" else 2000)


def test_the_test_sees_a_chance_that_is_too_small():
    shares = SHARES["correlated noise"]
    exact = exact_chances(shares, 4000)
    assert chance_of_more(shares, 101) < exact[100] * (1 - 1e-10)  # off by one message
    assert chance_of_more([Share(2e-4, 0.64), Share(2.6e-3 * 0.999, 0.948, 2)], 100) < exact[100] * (1 - 1e-10)


@settings(max_examples=30)
@given(shape=st.floats(1e-7, 50), ratio=st.floats(0.01, 0.97), most=st.integers(0, 500))
def test_one_share_is_the_incomplete_beta_function(shape, ratio, most):
    bound = chance_of_more([Share(shape, ratio)], most)
    with mpmath.workdps(60):
        exact = mpmath.betainc(most + 1, shape, 0, ratio, regularized=True)
        assert bound >= exact * (1 - mpmath.mpf(10) ** -11)
        assert bound <= exact * (1 + 2e-9) + 1.1e-40


def test_without_a_list_of_masses_the_chance_is_still_bounded():
    late = [Share(0.5, 1 - 1e-7)]  # too many masses
    assert capping._tails(tuple(late))[0] == []
    heavy = [Share(1e5, 0.5)]  # Pr[nothing] is no float
    assert capping._tails(tuple(heavy))[0] == []
    for shares, most in ((late, 10**8), (heavy, 101_500)):
        exact = betainc(most + 1, shares[0].shape, shares[0].ratio)
        assert exact <= chance_of_more(shares, most) <= 60 * exact


def test_edges_of_the_chance():
    assert chance_of_more([], 0) == 0.0
    assert chance_of_more([Share(1.0, 0.5)], -1) == 1.0
    assert chance_of_more([Share(1.0, 0.5)], 0) == pytest.approx(0.5, rel=2e-9)
    assert 0 < chance_of_more([Share(1.0, 0.5)], 10**6) < 1e-299  # no float is as small as it
    for wrong in ((0.0, 0.5, 1), (1.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 0.5, 0), (math.nan, 0.5, 1), (math.inf, 0.5, 1)):
        with pytest.raises(ParameterError):
            Share(*wrong)


# A round of few users that can be listed: who holds a 1 sends one message more, and all send some as noise.

NOISE = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01])


def round_pmf(bits: tuple[int, ...], cap: int | None) -> np.ndarray:
    """The distribution of the number of messages, if no report holds more than the cap."""
    total = np.ones(1)
    for bit in bits:
        report = np.concatenate((np.zeros(bit), NOISE, np.zeros(1 - bit)))
        if cap is not None:
            report = np.where(np.arange(len(report)) <= cap, report, 0.0)
            report = report / report.sum()
        total = np.convolve(total, report)
    return total


@dataclass(frozen=True)
class ListedRound:
    """The exact distribution of such a round, with or without a cap."""

    users: int
    cap: int | None = None
    releases: int = 1

    def delta_at(self, epsilon: float) -> float:
        worst = 0.0
        for others in range(self.users):
            bits = (1,) * others + (0,) * (self.users - 1 - others)
            pair = [round_pmf((*bits, bit), self.cap) for bit in (0, 1)]
            for first, second in (pair, pair[::-1]):
                for _ in range(self.releases - 1):
                    first, second = np.outer(first, pair_of(first, pair)), np.outer(second, pair_of(second, pair))
                worst = max(worst, float(np.maximum(first - math.exp(epsilon) * second, 0).sum()))
        return worst


def pair_of(curve: np.ndarray, pair: list[np.ndarray]) -> np.ndarray:
    return pair[0] if curve is pair[0] else pair[1]


@pytest.mark.parametrize("users", [2, 3, 5])
@pytest.mark.parametrize("cap", [2, 3, 4, 5])
def test_a_cap_adds_no_more_than_claimed(users, cap):
    chance = float(NOISE[cap:].sum())  # of a report that holds a 1, the longest ones
    curve = CappedCurve(ListedRound(users), users, chance)
    capped = ListedRound(users, cap)
    for epsilon in np.linspace(0, 3, 31):
        assert curve.delta_at(epsilon) >= capped.delta_at(epsilon) * (1 - 1e-12)


def test_a_cap_is_not_free():
    """The distribution without the cap would be wrong: the test above can fail."""
    planned, capped = ListedRound(3), ListedRound(3, 4)
    understated = [e for e in np.linspace(0, 3, 31) if capped.delta_at(e) > planned.delta_at(e) * (1 + 1e-9)]
    assert understated


@pytest.mark.parametrize("cap", [3, 5])
def test_releases_with_a_cap_compose(cap):
    users, chance = 3, float(NOISE[cap:].sum())
    curve = CappedCurve(ListedRound(users), users, chance)
    exact = ListedRound(users, cap, releases=2)
    together = (compose(curve, 2), compose_all([curve, curve]))
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        truth = exact.delta_at(epsilon)
        assert truth > ListedRound(users, cap).delta_at(epsilon)
        for each in together:
            assert each.delta_at(epsilon) >= truth * (1 - 1e-12)


def test_composing_takes_the_losses_behind_the_cap():
    """Two releases cost less than two epsilons, and the caps only their own part."""
    plain = BinomialCount(Binomial(10_000, Dyadic.at_least(0.05)))
    capped = CappedCurve(plain, 10_000, 1e-16)
    delta = 1e-6
    once, twice = least_epsilon(capped, delta), least_epsilon(compose(capped, 2), delta)
    assert once < twice < 2 * once
    assert twice == pytest.approx(least_epsilon(compose(plain, 2), delta), rel=1e-3)
    assert twice > least_epsilon(compose(plain, 2), delta)


def test_delta_never_rises():
    curve = CappedCurve(BinomialCount(Binomial(10_000, Dyadic.at_least(0.05))), 10_000, 1e-14)
    deltas = [curve.delta_at(epsilon) for epsilon in np.linspace(0, 30, 200)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(deltas))
    assert deltas[-1] < 1e-7
    assert curve._bound(30) > 1e-3  # without the least value so far it would rise
    epsilon = least_epsilon(curve, 1e-8)
    assert curve.delta_at(epsilon) <= 1e-8
    for small in (0.0, 0.1, 0.3):
        direct = curve.curve.delta_at(small) + (1 + math.exp(small)) * 1e-10
        assert curve.delta_at(small) == pytest.approx(direct, rel=1e-12)


def test_a_distribution_without_chance_is_the_distribution():
    curve = CappedCurve(PureCurve(1.0), 100, 0.0)
    assert curve.delta_at(1.0) == PureCurve(1.0).delta_at(1.0) == 0.0
    assert CappedCurve(PureCurve(1.0), 100, 1.0).delta_at(1.0) == 1.0
    assert CappedCurve(PureCurve(1.0), 100, 1e-9).delta_at(math.inf) < 1e-5


@pytest.mark.parametrize(("users", "chance"), [(0, 0.1), (5, -1e-9), (5, 1.1), (5, math.nan)])
def test_nonsense_is_refused(users, chance):
    with pytest.raises(ParameterError):
        CappedCurve(PureCurve(1.0), users, chance)


@pytest.mark.parametrize("epsilon", [-1e-9, math.nan])
def test_a_negative_epsilon_is_refused(epsilon):
    with pytest.raises(ParameterError):
        CappedCurve(PureCurve(1.0), 5, 1e-6).delta_at(epsilon)
