"""Pure privacy: its worst curve, logarithms rounded up, and several releases against exact sums."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy.cheu import FlippedCount
from shuffledp.privacy.composition import ComposedCurve, compose
from shuffledp.privacy.guarantee import Guarantee, least_epsilon
from shuffledp.privacy.pure import PureCurve, log_ratio_above
from shuffledp.randomness import Dyadic


def worst(pure, releases, epsilon):
    """The exact delta of several randomized responses, each with this pure epsilon."""
    with mpmath.workdps(60):
        truth = mpmath.exp(pure) / (1 + mpmath.exp(pure))
        growth = mpmath.exp(epsilon)
        masses = [mpmath.binomial(releases, k) * truth**k * (1 - truth) ** (releases - k) for k in range(releases + 1)]
        return mpmath.fsum(max(a - growth * b, 0) for a, b in zip(masses, reversed(masses), strict=True))


@pytest.mark.parametrize("pure", [1e-9, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("part", [0.0, 1e-6, 0.5, 1 - 1e-9])
def test_the_curve_is_that_of_randomized_response(pure, part):
    bound, exact = PureCurve(pure).delta_at(part * pure), worst(pure, 1, part * pure)
    assert exact <= bound <= min(1.0, float(exact) * (1 + 1e-9) + 1e-24) * (1 + 1e-11)


@pytest.mark.parametrize("pure", [0.0, 1e-300, 0.7, 50.0])
def test_nothing_is_left_from_the_pure_epsilon_on(pure):
    assert PureCurve(pure).delta_at(pure) == 0.0
    assert PureCurve(pure).delta_at(math.inf) == 0.0


@pytest.mark.parametrize("epsilon", [-1e-9, -math.inf, math.nan])
def test_epsilons_that_mean_nothing(epsilon):
    with pytest.raises(ParameterError):
        PureCurve(1.0).delta_at(epsilon)


@pytest.mark.parametrize("pure", [40.0, 100.0, math.inf])
def test_a_delta_is_at_most_one(pure):
    assert PureCurve(pure).delta_at(0.0) <= 1.0


@pytest.mark.parametrize("pure", [math.nan, -1.0])
def test_pure_epsilons_that_mean_nothing(pure):
    with pytest.raises(ParameterError):
        PureCurve(pure)


@given(st.integers(1, 1 << 64), st.integers(0, 1 << 88))
def test_logarithms_are_rounded_up(denominator, excess):
    numerator = denominator + excess
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.mpf(numerator) / denominator)
        bound = log_ratio_above(numerator, denominator)
        assert exact <= bound <= exact * (1 + 3e-14) + 2e-14


def test_logarithms_of_very_long_numbers_are_rounded_up():
    """Such as Dyadic.of(1e-300) makes: probabilities with a thousand bits."""
    with mpmath.workdps(400):
        for extra in range(200):
            denominator = (1 << 1050) // 3 + 12345 * extra * (1 << 1000)
            numerator = denominator * (41 + extra) // 10
            assert log_ratio_above(numerator, denominator) >= mpmath.log(mpmath.mpf(numerator) / denominator)


@pytest.mark.parametrize("pure", [1e-3, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("releases", [2, 5, 50])
def test_several_releases_of_a_curve_against_exact_sums(pure, releases):
    """A pmf of which only the curve is known: never below, and within two per cent where the curve has no step."""
    composed = compose(PureCurve(pure), releases)
    assert isinstance(composed, ComposedCurve)
    for part in (0.0, 0.05, 0.2, 0.5, 0.9, 0.99, 1.0, 1.01, 2.0):
        epsilon = part * releases * pure
        exact, bound = float(worst(pure, releases, epsilon)), composed.delta_at(epsilon)
        assert exact - 1e-50 <= bound <= 1.0  # the sums have 60 digits
        if part < 0.95:
            assert bound <= exact * 1.02 + 1e-11


def test_a_planted_fault_shows():
    """A curve that is a twentieth too low is found out by the same sums."""

    class TooLow:
        def delta_at(self, epsilon: float) -> float:
            return 0.95 * PureCurve(1.0).delta_at(epsilon)

    exact = float(worst(1.0, 5, 1.0))
    assert compose(TooLow(), 5).delta_at(1.0) < exact


@pytest.mark.parametrize("releases", [2, 8])
def test_a_curve_without_its_distributions_gives_about_the_same(releases):
    """A distribution with distributions, once with them and once by its curve alone."""

    class Curve:
        def __init__(self, curve):
            self.delta_at = curve.delta_at

    curve = PureLawWithPair(0.8)
    for epsilon in (0.2, 1.0, 2.0):
        known, by_curve = (compose(each, releases).delta_at(epsilon) for each in (curve, Curve(curve)))
        assert by_curve == pytest.approx(known, rel=0.02)
        assert by_curve >= float(worst(0.8, releases, epsilon))


class PureLawWithPair(PureCurve):
    def directions(self, cut: float):
        from shuffledp.privacy.divergence import DiscretePair

        truth = 1 / (1 + math.exp(-self.epsilon))
        return ((DiscretePair.of([truth, 1 - truth], [1 - truth, truth]),),)


@pytest.mark.slow
def test_flipped_counts_compose():
    curve = FlippedCount(300, Dyadic.at_least(0.1))
    once, five = least_epsilon(curve, 1e-6), least_epsilon(compose(curve, 5), 1e-6)
    assert once < five < 5 * once


def test_several_releases_of_nearly_nothing_hidden():
    assert compose(PureCurve(100.0), 2).delta_at(1.0) == pytest.approx(1.0)


def guarantee(delta) -> Guarantee:
    return Guarantee(1.0, delta, 100, 100, PureCurve(1.0), "exact", local_epsilon=2.0)


def test_without_delta_epsilons_add_up():
    total = guarantee(0.0).after(5)
    assert (total.epsilon, total.delta, total.local_epsilon, total.releases) == (5.0, 0.0, 10.0, 5)
    assert total.delta_at(5.0) == 0.0
    assert total.delta_at(4.0) >= float(worst(1.0, 5, 4.0))
    assert total.after(2).epsilon == 10.0
    assert guarantee(0.0).after(1).curve == PureCurve(1.0)
    with pytest.raises(ParameterError):
        guarantee(0.0).after(0)


def test_what_is_left_adds_up_with_a_delta_too():
    assert guarantee(1e-6).after(5).local_epsilon == pytest.approx(10.0)
