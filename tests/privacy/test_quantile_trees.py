"""Joint accounting of the levels of a tree: exact products, reference numbers, and pairs of clones."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import nbinom

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.amplification.clones import ClonesCurve, fair_mass, fair_masses_near_half
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve, least_flooding
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.mirrored_composition import IndependentComposition
from shuffledp.privacy.quantile_trees import (
    blanket_tree_curve,
    correlated_tree_curve,
    laplace_tree_curve,
    least_tree_blankets,
    least_tree_flooding,
    least_tree_ratio,
)
from shuffledp.randomness import Dyadic


def clone_pair(trials, rate, sure=0):
    """Exact masses of (clones, messages of the first type) with the target of the first or the second type."""
    first, second = {}, {}
    for clones in range(trials + 1):
        mass = math.comb(trials, clones) * rate**clones * (1 - rate) ** (trials - clones)
        total = clones + sure
        for heads in range(total + 1):
            share = mass * Fraction(math.comb(total, heads), 2**total)
            first[total, heads + 1] = first.get((total, heads + 1), 0) + share
            second[total, heads] = second.get((total, heads), 0) + share
    return first, second


def hockey_stick_of_product(pairs, epsilon):
    """Exactly but for e^epsilon, over all outcomes of all levels."""
    growth = Fraction(math.exp(epsilon))
    total = Fraction(0)
    for outcome in itertools.product(*(set(p) | set(q) for p, q in pairs)):
        p = math.prod(pair[0].get(o, 0) for pair, o in zip(pairs, outcome, strict=True))
        q = math.prod(pair[1].get(o, 0) for pair, o in zip(pairs, outcome, strict=True))
        total += max(Fraction(0), p - growth * q)
    return float(total)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_two_levels_against_the_exact_product(epsilon):
    """Six users add one message with probability 1/2 on 2 cells, and on 4 cells: hits with 1/2 and 1/4."""
    blankets = (Slots(0, Dyadic(1, 1)), Slots(0, Dyadic(1, 1)))
    exact = hockey_stick_of_product([clone_pair(6, Fraction(1, 2)), clone_pair(6, Fraction(1, 4))], epsilon)
    computed = blanket_tree_curve(blankets, 6, (2, 4)).delta_at(epsilon)
    assert exact <= computed <= exact * 1.002 + 1e-12


def test_a_value_in_the_same_cell_of_a_level_is_hidden_better():
    exact = [hockey_stick_of_product([clone_pair(6, Fraction(1, 2))] * levels, 0.5) for levels in (1, 2)]
    assert exact[0] < exact[1]


@pytest.mark.parametrize(
    "curve",
    [
        ClonesCurve((Binomial(1000, Dyadic.at_least(0.05)),)),
        ClonesCurve((Binomial(40, Dyadic.at_least(0.3)), Binomial(7, Dyadic(1, 1))), sure=3),
        ClonesCurve((), sure=12),
        ClonesCurve((Binomial(500, Dyadic.at_least(0.2)),), alpha=0.8, weight=0.6),
    ],
)
def test_the_pair_of_clones_has_their_privacy_curve(curve):
    ((pair,),) = curve.directions(1e-16)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 1.3):
        for direction in (pair, pair.reversed):
            assert curve.delta_at(epsilon) * (1 - 1e-9) - 1e-12 <= direction.delta(epsilon)
            assert direction.delta(epsilon) <= curve.delta_at(epsilon) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("mean", [5, 300, 40_000, 3e6, 1e9])
def test_pairs_of_bounded_size_are_upper_bounds(mean):
    """Blocks of clone counts cost less than a thousandth of the noise; only beyond 2^24 clones more is given away."""
    users = 10**12
    curve = Slots.at_least(mean * 32 / users).curve(users, 64)
    pair = curve.pair_of_about(1 << 16, 1e-17)
    assert len(pair.p) < 3 * 10**6
    less = Slots.at_least(0.999 * min(mean, 2**24) * 32 / users).curve(users, 64)
    for multiple in (0.0, 1.0, 3.0):
        epsilon = multiple / math.sqrt(mean)
        assert curve.delta_at(epsilon) * (1 - 1e-9) <= pair.delta(epsilon) <= less.delta_at(epsilon) * 1.01 + 1e-12


def test_levels_that_differ_compose_as_different_releases():
    random = np.random.default_rng()
    sizes = (4, 16, 64)
    blankets = tuple(Slots.at_least(float(random.uniform(30, 300)) * size / 5000) for size in sizes)
    ours = blanket_tree_curve(blankets, 5000, sizes)
    levels = [blanket.curve(5000, size) for blanket, size in zip(blankets, sizes, strict=True)]
    theirs = compose_all(levels)
    for epsilon in (0.0, 0.5, 1.0, 1.5):
        assert ours.delta_at(epsilon) == pytest.approx(theirs.delta_at(epsilon), rel=2e-3, abs=1e-12)
    assert compose_all([ours]).delta_at(1.0) == pytest.approx(ours.delta_at(1.0), rel=2e-3)


def test_so_many_clones_that_outcomes_cannot_be_listed():
    assert ClonesCurve((Binomial(10**12, Dyadic(1, 1)),)).directions(1e-16) == ()


@pytest.mark.parametrize(("levels", "mean"), [(1, 42.7), (2, 75.6), (4, 146.1), (8, 287.6), (16, 573.0)])
def test_noise_for_equal_levels(levels, mean):
    """Reference numbers at (1, 1e-6), the mean noise per cell, were found by slightly looser composition."""
    users, size = 10**6, 1024
    blankets = least_tree_blankets(users, (size,) * levels, 1.0, 1e-6)
    assert 0.99 * mean < blankets[0].mean * users / size < 1.0005 * mean
    curve = blanket_tree_curve(blankets, users, (size,) * levels)
    assert 0.99e-6 < curve.delta_at(1.0) <= 1e-6 * (1 - 9e-7 * (levels > 1))  # another machine may find a little more
    fewer = tuple(Slots.at_least(0.99 * blanket.mean) for blanket in blankets)
    assert blanket_tree_curve(fewer, users, (size,) * levels).delta_at(1.0) > 1e-6


@pytest.mark.parametrize("sizes", [(4, 16, 64, 256, 1024), (32, 1024)])
def test_no_more_noise_than_another_composition_needs(sizes):
    """One per cent less noise does not meet the target by the composition of another library, and the noise does."""
    users = 10**6
    blankets = least_tree_blankets(users, sizes, 1.0, 1e-6)
    fewer = tuple(Slots.at_least(blanket.mean / 1.01) for blanket in blankets)
    deltas = [
        compose_all(blanket.curve(users, size) for blanket, size in zip(chosen, sizes, strict=True)).delta_at(1.0)
        for chosen in (blankets, fewer)
    ]
    assert deltas[0] <= 1e-6 * 1.002 < deltas[1]


def cell_tables(ratio, flood_shape, flood_ratio, reach):
    """Masses of the numbers of "+1" and "-1" of a cell by convolution: with a user's own "+1", and without."""
    k = np.arange(reach)
    staying, flooding = nbinom.pmf(k, 1, 1 - float(ratio)), nbinom.pmf(k, float(flood_shape), 1 - float(flood_ratio))
    table = np.zeros((reach + 1, reach))
    for pairs in range(reach):
        table[pairs:reach, pairs:] += flooding[pairs] * np.outer(staying, staying)[: reach - pairs, : reach - pairs]
    return np.roll(table, 1, axis=0).ravel(), table.ravel()


def divergence_of_two_levels(own, other, epsilon):
    """Of all four cells, two per level, exactly: the outcomes of a level are sorted by their likelihood ratio."""
    p, q = np.outer(own, other).ravel(), np.outer(other, own).ravel()
    p, q = p[(p > 1e-18) | (q > 1e-18)], q[(p > 1e-18) | (q > 1e-18)]
    with np.errstate(divide="ignore"):
        loss = np.log(p) - np.log(q)
    order = np.argsort(loss)
    above = [np.append(np.cumsum(masses[order][::-1])[::-1], 0.0) for masses in (p, q)]
    first = np.searchsorted(loss[order], epsilon - loss, side="right")
    return float(np.maximum(p * above[0][first] - math.exp(epsilon) * q * above[1][first], 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_correlated_noise_of_two_levels_against_the_exact_product(epsilon):
    noise = Dyadic(1, 2), Fraction(3, 2), Dyadic(1, 2)
    exact = divergence_of_two_levels(*cell_tables(*noise, 26), epsilon)
    computed = correlated_tree_curve(*noise, 2).delta_at(epsilon)
    assert exact <= computed <= exact * 1.002 + 1e-9
    # planted: only one of the two cells of a level is accounted for
    ((pair, _),) = CorrelatedNoiseCurve(*noise, "histogram").directions(1e-17)
    assert IndependentComposition(((pair, 2),)).delta_at(epsilon) < exact


@pytest.mark.parametrize(("levels", "epsilon", "delta"), [(2, 1.0, 1e-6), (5, 1.0, 1e-8), (3, 4.0, 1e-11)])
def test_correlated_noise_is_the_least_by_another_composition(levels, epsilon, delta):
    ratio, shape, flood_ratio = least_tree_flooding(levels, epsilon, delta, 0.9)
    curve = correlated_tree_curve(ratio, shape, flood_ratio, levels)
    assert 0.99 * delta < curve.delta_at(epsilon) < delta
    other = compose(CorrelatedNoiseCurve(ratio, shape, flood_ratio, "histogram"), levels)
    for point in (0.0, epsilon / 2, epsilon, 1.2 * epsilon):
        assert 0.998 * other.delta_at(point) <= curve.delta_at(point) <= 1.01 * other.delta_at(point) + 5e-13
    less = compose(CorrelatedNoiseCurve(ratio, shape / Fraction("1.01"), flood_ratio, "histogram"), levels)
    assert less.delta_at(epsilon) > 1.002 * delta
    twice = compose(curve, 2).delta_at(2 * epsilon)
    assert twice == pytest.approx(compose(other, 2).delta_at(2 * epsilon), rel=2e-3, abs=5e-13)


def test_one_level_of_correlated_noise_is_a_histogram():
    assert least_tree_flooding(1, 1.0, 1e-6, 0.9) == least_flooding(1.0, 1e-6, 0.9, "histogram")
    noise = least_flooding(1.0, 1e-30, 0.9, "histogram")
    assert correlated_tree_curve(*noise, 1).delta_at(1.0) <= 1e-30  # no composition, so no resolution of one


@pytest.mark.parametrize("levels", [2, 3, 10])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 0.999])
def test_laplace_noise_of_several_levels_is_exact(levels, ratio):
    curve = laplace_tree_curve(Dyadic.of(ratio), levels)
    exact = Fraction(0)
    growth, odds = Fraction(math.exp(0.3)), Dyadic.of(ratio).fraction
    for k in range(2 * levels + 1):
        weight = math.comb(2 * levels, k) / (1 + odds) ** (2 * levels)
        exact += weight * max(Fraction(0), odds ** (2 * levels - k) - growth * odds**k)
    assert float(exact) <= curve.delta_at(0.3) <= float(exact) * (1 + 1e-9) + 1e-12
    if 0.3 < curve.pure_epsilon < 50:
        other = compose(DiscreteLaplaceCurve(Dyadic.of(ratio), coordinates=2), levels)
        assert curve.delta_at(0.3) == pytest.approx(other.delta_at(0.3), rel=1e-3, abs=1e-12)
    assert curve.delta_at(curve.pure_epsilon) == 0


def test_laplace_noise_is_the_least():
    for levels in (1, 3, 10):
        ratio = least_tree_ratio(levels, 1.0, 1e-6)
        assert laplace_tree_curve(ratio, levels).delta_at(1.0) <= 1e-6
        less = Dyadic.at_least(float(ratio) ** 1.01)
        assert laplace_tree_curve(less, levels).delta_at(1.0) > 1e-6
    assert least_tree_ratio(1, 1.0, 1e-6) == least_tree_ratio(1, 1.0, 1e-300)


def test_what_composition_cannot_prove_is_refused():
    with pytest.raises(InfeasibleError, match="1e-12"):
        least_tree_blankets(10**6, (32, 1024), 1.0, 1e-15)
    with pytest.raises(InfeasibleError, match="blanket messages per cell"):
        least_tree_blankets(10**6, (32, 1024), 1e-7, 1e-6)
    with pytest.raises(InfeasibleError, match="1e-12"):
        least_tree_flooding(2, 1.0, 1e-15, 0.9)
    for split in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError):
            least_tree_flooding(2, 1.0, 1e-6, split)
    assert np.isfinite(float(least_tree_ratio(3, 1.0, 1e-15)))  # pure noise always exists


@pytest.mark.parametrize(("users", "epsilon", "delta"), [(10**6, 1.0, 1e-8), (300, 1.0, 1e-6), (2_000, 8.0, 1e-11)])
def test_levels_convolved_by_numpy_agree_with_any_other_composition(users, epsilon, delta):
    sizes = (4, 16, 64)
    blankets = least_tree_blankets(users, sizes, epsilon, delta)
    curve = blanket_tree_curve(blankets, users, sizes)
    other = compose_all(blanket.curve(users, size) for blanket, size in zip(blankets, sizes, strict=True))
    for point in (0.0, epsilon / 2, epsilon, 1.5 * epsilon):
        assert curve.delta_at(point) == pytest.approx(other.delta_at(point), rel=2e-3, abs=1e-12)
    assert compose(curve, 2).delta_at(2 * epsilon) == pytest.approx(compose(other, 2).delta_at(2 * epsilon), rel=2e-3)


def worst_error_of_masses(masses_of, trials, reach):
    """Of rows of masses near half the trials: the largest relative error, or mass where there is none."""
    trials = np.asarray(trials)
    k = trials[:, None] // 2 + np.arange(-reach - 1, reach + 1)
    inside = (k >= 0) & (k <= trials[:, None])
    if trials.max() < 100:
        pairs = zip(np.broadcast_to(trials[:, None], k.shape).ravel().tolist(), k.ravel().tolist(), strict=True)
        exact = np.reshape([math.comb(n, j) / 2**n if j >= 0 else 0.0 for n, j in pairs], k.shape)
    else:
        exact = np.where(inside, fair_mass(np.clip(k, 0, trials[:, None]), trials[:, None]), 0.0)
    masses = masses_of(trials, reach)
    return max(np.abs(masses[inside] / exact[inside] - 1).max(), masses[~inside].max(initial=0.0))


@pytest.mark.parametrize(
    ("trials", "reach"), [(range(60), 70), ([10_001, 10_004, 10_009], 700), ([10**7 + 1, 10**7 + 2], 20_000)]
)
def test_masses_near_half_by_their_quotients(trials, reach):
    """Against binomial coefficients and the saddle point; rows of odd numbers taken as even ones are a fault."""
    assert worst_error_of_masses(fair_masses_near_half, trials, reach) < 2**-52 * (reach + 100) * 10

    def without_parity(trials, reach):
        return fair_masses_near_half(trials // 2 * 2, reach)

    assert worst_error_of_masses(without_parity, trials, reach) > 1e-8
