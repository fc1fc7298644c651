"""Several releases: bounds from above, never the sum of epsilons, and a floor that is stated."""

import itertools
import math

import mpmath
import pytest

from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, compose
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.randomness import Dyadic


@pytest.mark.parametrize("curve", [BinomialCount, BinomialHistogram])
@pytest.mark.parametrize(("users", "rate"), [(10_000, 0.0043), (1000, 0.3), (10**9, 1e-4)])
def test_one_release_on_the_grid_is_just_above_the_closed_form(curve, users, rate, monkeypatch):
    once = curve(Binomial(users, Dyadic.of(rate)))
    gridded = type(compose(once, 2))(once, 1)
    target = least_epsilon(once, 1e-6)
    for factor in (0.3, 1.0, 1.2):
        exact, bound = once.delta_at(factor * target), gridded.delta_at(factor * target)
        assert exact <= bound <= exact * 1.01 + 1e-12


@pytest.mark.parametrize("curve", [BinomialCount, BinomialHistogram])
def test_releases_add_up_like_their_square_root(curve):
    once = curve(Binomial(100_000, Dyadic.at_least(500 / 100_000)))
    singles = least_epsilon(once, 1e-6)
    assert least_epsilon(compose(once, 1), 1e-6) == singles
    previous = singles
    for releases in (2, 4, 16, 64):
        epsilon = least_epsilon(compose(once, releases), 1e-6)
        assert previous < epsilon < releases * singles
        assert epsilon < 1.6 * math.sqrt(releases) * singles
        previous = epsilon


def test_more_releases_at_once_or_in_two_steps():
    once = BinomialCount(Binomial(1000, Dyadic.of(0.2)))
    direct = compose(once, 6)
    nested = compose(compose(once, 2), 3)
    for epsilon in (0.5, 1.0, 2.0):
        assert nested.delta_at(epsilon) == direct.delta_at(epsilon)


class FlippedCoin:
    """A bit told truly with probability 1/2 + lead: k releases have an exact pmf, that of the number of true ones."""

    def __init__(self, lead: float) -> None:
        self.truth = 0.5 + lead

    def delta_at(self, epsilon: float) -> float:
        return max(0.0, self.truth - math.exp(epsilon) * (1 - self.truth))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        del cut
        pair = DiscretePair.of([self.truth, 1 - self.truth], [1 - self.truth, self.truth])
        return ((pair,),)

    def exact(self, releases: int, epsilon: float) -> mpmath.mpf:
        with mpmath.workdps(50):
            p = mpmath.mpf(self.truth)
            growth = mpmath.exp(epsilon)
            masses = [mpmath.binomial(releases, k) * p**k * (1 - p) ** (releases - k) for k in range(releases + 1)]
            return mpmath.fsum(max(a - growth * b, 0) for a, b in zip(masses, reversed(masses), strict=True))


@pytest.mark.parametrize("releases", [3, 50, 500])
def test_many_releases_against_the_exact_sum(releases):
    """Never below, down to where the resolution ends; and close above it."""
    curve = FlippedCoin(0.05)
    composed = compose(curve, releases)
    spread = 0.2 * math.sqrt(releases)
    for step in range(0, 16, 1 if releases < 500 else 3):
        epsilon = 0.02 * releases + spread * step / 2
        exact, bound = float(curve.exact(releases, epsilon)), composed.delta_at(epsilon)
        assert bound >= exact
        assert bound <= exact * 1.02


def test_small_deltas_have_an_epsilon():
    curve = compose(BinomialCount(Binomial(10**6, Dyadic(1, 2))), 3)
    assert 0 < curve.delta_at(50.0) < CERTIFIED_DOWN_TO
    epsilons = [least_epsilon(curve, delta) for delta in (1e-10, 1e-12, 1e-15, 1e-20, 1e-30)]
    assert all(0.01 < small < large < 0.1 for small, large in itertools.pairwise(epsilons))


def test_the_floor_of_nobody_leaving_out_a_token_composes():
    noise = Binomial(1000, Dyadic.at_least(0.01))
    once = (1 - float(noise.probability)) ** 1000
    curve = compose(BinomialCount(noise), 5)
    assert curve.delta_at(600.0) >= 1 - (1 - once) ** 5


def test_a_distribution_without_spread_composes_too():
    curve = compose(BinomialCount(Binomial(1, Dyadic.at_least(0.25))), 2)
    assert curve.delta_at(0.0) == pytest.approx(1 - 0.25**2, rel=0.1)


@pytest.mark.parametrize("releases", [0, -1, 10**9])
def test_no_release_is_refused(releases):
    with pytest.raises(ParameterError):
        compose(BinomialCount(Binomial(10, Dyadic(1, 1))), releases)
