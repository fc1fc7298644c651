"""Joint accounting of the levels of a tree: exact products, reference numbers, and pairs of clones."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.amplification.clones import ClonesCurve
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.quantile_trees import (
    blanket_tree_curve,
    laplace_tree_curve,
    least_tree_blankets,
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
