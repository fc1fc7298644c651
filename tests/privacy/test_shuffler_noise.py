"""Dummies of an augmented shuffler: reference values, enumeration, pure privacy, composition, bad input."""

import math

import numpy as np
import pytest
from scipy.stats import binom, nbinom

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.composition import compose
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.privacy.shuffler_noise import (
    SampledGeometric,
    ShufflerLaplaceCurve,
    TruncatedLaplace,
    least_sampling,
    least_shift,
    most_geometric,
)
from shuffledp.randomness import Dyadic

SHIFTS = {(1, 1e-6): 25, (1, 1e-8): 35, (0.5, 1e-8): 66, (2, 1e-6): 14, (0.25, 1e-9): 144}


@pytest.mark.parametrize(("target", "shift"), SHIFTS.items())
def test_reference_numbers_of_dummies(target, shift):
    epsilon, delta = target
    ratio, least = least_shift(epsilon, delta)
    assert least == shift
    assert ShufflerLaplaceCurve(ratio, shift).delta_at(epsilon) <= delta
    assert ShufflerLaplaceCurve(ratio, shift - 1).delta_at(epsilon) > delta


def test_reference_delta_and_errors():
    curve = ShufflerLaplaceCurve(least_ratio(1.0, coordinates=2), 25)
    assert curve.delta_at(1.0) == pytest.approx(9.127e-7, rel=1e-4)
    deviations = [math.sqrt(TruncatedLaplace(*least_shift(epsilon, 1e-8)).variance) for epsilon in (1.0, 0.5, 2.0)]
    assert deviations == pytest.approx([2.799, 5.642, 1.357], abs=5e-4)


def exact_delta(first, second, epsilon):
    """Of two joint distributions, in both directions."""
    growth = math.exp(epsilon)
    return max(np.maximum(p - growth * q, 0).sum() for p, q in ((first, second), (second, first)))


GRID = [(0.4, 1), (0.55, 4), (0.7, 9), (0.85, 30), (0.05, 2)]


@pytest.mark.parametrize(("ratio", "shift"), GRID)
def test_both_changed_categories_by_enumeration(ratio, shift):
    """Never below the exact delta, and within a relative 1e-9, at every epsilon."""
    noise = TruncatedLaplace(Dyadic.of(ratio), shift)
    pmf = noise.masses(shift + math.ceil(40 / -math.log(ratio)))
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    here, there = np.append(pmf, 0.0), np.append(0.0, pmf)  # without the user, and with
    curve = ShufflerLaplaceCurve(Dyadic.of(ratio), shift)
    for epsilon in (0.0, 0.05, 0.3, 1.0, 2.0, -2 * math.log(ratio), 5.0, 20.0):
        exact = exact_delta(np.outer(there, here), np.outer(here, there), epsilon)
        assert exact * (1 - 1e-12) <= curve.delta_at(epsilon) <= exact * (1 + 1e-9) + 1e-15
        pair, twin = curve.directions(0.0)[0]
        assert pair.delta_with_reversed_twin(epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-12)
        assert np.array_equal(twin.p, pair.q)


@pytest.mark.parametrize(("ratio", "shift"), GRID)
def test_a_count_with_a_fixed_number_of_dummies_by_enumeration(ratio, shift):
    noise = TruncatedLaplace(Dyadic.of(ratio), shift, bounded=True)
    pmf = noise.masses(10**6)
    assert len(pmf) == 2 * shift + 1
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    here, there = np.append(pmf, 0.0), np.append(0.0, pmf)
    curve = ShufflerLaplaceCurve(Dyadic.of(ratio), shift, coordinates=1)
    for epsilon in (0.0, 0.05, 0.3, 1.0, -math.log(ratio), 5.0):
        exact = exact_delta(there, here, epsilon)
        assert exact * (1 - 1e-12) <= curve.delta_at(epsilon) <= exact * (1 + 1e-9) + 1e-15
        assert curve.directions(0.0)[0][0].delta(epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(("ratio", "shift"), GRID)
def test_moments_and_tails(ratio, shift, bounded):
    noise = TruncatedLaplace(Dyadic.of(ratio), shift, bounded=bounded)
    pmf = noise.masses(shift + math.ceil(45 / -math.log(ratio)))
    k = np.arange(len(pmf))
    assert noise.mean == pytest.approx(k @ pmf, rel=1e-12)
    assert noise.variance == pytest.approx((k - noise.mean) ** 2 @ pmf, rel=1e-9)
    for value in (-1, 0, 1, shift - 1, shift, shift + 1, 2 * shift, 2 * shift + 1):
        assert noise.upper_tail(value) == pytest.approx(pmf[max(value, 0) :].sum(), rel=1e-9, abs=1e-14)
        assert noise.lower_tail(value) == pytest.approx(pmf[: max(value + 1, 0)].sum(), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 2.5, 8.0])
def test_sampled_reports_are_purely_private(epsilon):
    keep, ratio = least_sampling(epsilon)
    assert float(keep) == pytest.approx(-math.expm1(-epsilon / 2), rel=1e-9)
    assert float(ratio) == pytest.approx(1 / (1 + math.exp(epsilon / 2)), rel=1e-9)
    curve = SampledGeometric(keep, ratio)
    assert epsilon * (1 - 1e-9) <= curve.pure_epsilon <= epsilon
    assert curve.delta_at(epsilon) == 0 < curve.delta_at(0.999 * epsilon)


@pytest.mark.parametrize(("keep", "ratio"), [(0.5, 0.375), (0.25, 0.5), (0.75, 0.1), (0.4, 0.35)])
def test_sampled_reports_by_enumeration(keep, ratio):
    """All numbers of other holders; the claim is attained where there are none."""
    curve = SampledGeometric(Dyadic.of(keep), Dyadic.of(ratio))
    dummies = (1 - ratio) * ratio ** np.arange(math.ceil(32 / -math.log(ratio)))
    alone = dict.fromkeys((0.0, 0.1, 0.5, 1.0), 0.0)
    for others in ((0, 0), (0, 2), (1, 0), (3, 1)):
        sides = []
        for held in others:
            with_user, without = (
                np.convolve(binom.pmf(range(held + 2), held + more, keep), dummies) for more in (1, 0)
            )
            sides.append((with_user, without))
        (one, one_less), (two, two_less) = sides
        for epsilon in alone:
            exact = exact_delta(np.outer(one, two_less), np.outer(one_less, two), epsilon)
            assert exact <= curve.delta_at(epsilon) + 1e-12
            if others == (0, 0):
                assert curve.delta_at(epsilon) == pytest.approx(exact, rel=1e-6)
    largest = np.log(one[1:5] / one_less[1:5]).max() + np.log(two_less[0] / two[0])
    assert largest <= curve.pure_epsilon + 1e-12


def test_releases_compose():
    laplace = ShufflerLaplaceCurve(*least_shift(0.2, 1e-8))
    assert compose(laplace, 4).delta_at(0.8) + 0.3 > 0.2
    assert 4 * laplace.delta_at(0.2) * 0.5 <= compose(laplace, 4).delta_at(0.8) <= 4.1 * laplace.delta_at(0.2)
    sampled = SampledGeometric(*least_sampling(0.2))
    assert compose(sampled, 3).delta_at(0.6) <= 1e-9 < compose(sampled, 3).delta_at(0.3)


def test_bad_input():
    for shift in (0, -1, 1 << 25):
        with pytest.raises(ParameterError, match="number of dummies"):
            ShufflerLaplaceCurve(Dyadic.of(0.5), shift)
    with pytest.raises(ParameterError, match="coordinates"):
        ShufflerLaplaceCurve(Dyadic.of(0.5), 3, 3)
    for keep in (0.0, 1.0):
        with pytest.raises(ParameterError, match="strictly between"):
            SampledGeometric(Dyadic.of(keep), Dyadic.of(0.5))
    with pytest.raises(InfeasibleError, match="dummies per category"):
        least_shift(1e-9, 1e-6)


@pytest.mark.parametrize("ratio", [1e-9, 0.05, 0.4, 0.61, 0.95, 0.999])
@pytest.mark.parametrize("draws", [1, 4, 100, 100_000])
def test_most_dummies(ratio, draws):
    """The sum is negative binomial: above the bound with at most 2^-80, and not above less than half its distance."""
    most, sums = most_geometric(Dyadic.of(ratio), draws), nbinom(draws, 1 - ratio)
    assert sums.sf(most) <= 2.0**-80
    assert sums.sf(math.floor(sums.mean() + 0.45 * (most - sums.mean())) - 1) > 2.0**-80


@pytest.mark.parametrize(("ratio", "shift"), GRID)
def test_dummies_above_the_shift_are_at_most_geometric(ratio, shift):
    noise = TruncatedLaplace(Dyadic.of(ratio), shift)
    for above in range(60):
        assert noise.upper_tail(shift + above) <= ratio**above * (1 + 1e-12)
