"""Rows of a sketch: against brute force of few users, the printed numbers, and a planted fault."""

import math
from fractions import Fraction
from itertools import product
from math import comb

import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialHistogram
from shuffledp.privacy.composition import compose
from shuffledp.privacy.count_min import SketchRows, least_gamma, paper_gamma
from shuffledp.randomness import Dyadic


def exact_delta(users, gamma, rows, epsilon):
    """All cells that move, two per row, of counts with Bin(users, gamma) on top."""
    noise = [comb(users, j) * gamma**j * (1 - gamma) ** (users - j) for j in range(users + 1)]
    up, down = [Fraction(0), *noise], [*noise, Fraction(0)]
    cells = [(up[a] * down[b], down[a] * up[b]) for a, b in product(range(users + 2), repeat=2)]
    growth = Fraction(math.exp(epsilon))
    total = Fraction(0)
    for outcome in product(cells, repeat=rows):
        p, q = math.prod(c[0] for c in outcome), math.prod(c[1] for c in outcome)
        total += max(p - growth * q, Fraction(0))
    return float(total)


@pytest.mark.parametrize(("users", "rows"), [(1, 1), (3, 1), (2, 2), (3, 2), (1, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_bound_is_above_the_truth(users, rows, epsilon):
    curve = SketchRows(users, Dyadic.of(0.3125), rows)
    exact = exact_delta(users, Fraction(5, 16), rows, epsilon)
    assert exact <= curve.delta_at(epsilon) <= exact * 1.02 + 1e-9


def test_one_row_is_the_histogram():
    curve = SketchRows(10_000, Dyadic.of(0.0043), 1)
    assert curve.delta_at(1.0) == BinomialHistogram(Binomial(10_000, Dyadic.of(0.0043))).delta_at(1.0)


def test_presence_and_absence_of_noise_are_mirror_images():
    present, absent = (SketchRows(1000, rate, 3).delta_at(1.0) for rate in (Dyadic.of(0.25), Dyadic.of(0.75)))
    assert present == pytest.approx(absent, rel=1e-6)


def test_calibration_as_printed():
    """Reference values: gamma n = 789 for 22 rows at (1, 1e-6) on a coarser grid; the paper's constant is 766,643."""
    gamma = least_gamma(10**6, 22, 1.0, 1e-6)
    assert 780 < 10**6 * float(gamma) <= 789
    assert SketchRows(10**6, gamma, 22).delta_at(1.0) <= 1e-6
    assert SketchRows(10**6, Dyadic.at_least(0.995 * float(gamma)), 22).delta_at(1.0) > 1e-6
    assert 10**7 * float(paper_gamma(10**7, 22, 1.0, 1e-6)) == pytest.approx(766_643, abs=1)


def test_accounting_for_one_row_only_would_show():
    """The planted fault: noise for one row does far from suffice for 22."""
    gamma = least_gamma(10**6, 1, 1.0, 1e-6)
    assert SketchRows(10**6, gamma, 22).delta_at(1.0) > 1e-2


def test_several_releases_are_so_many_rows():
    curve = SketchRows(2000, Dyadic.of(0.25), 3)
    twice, six = compose(curve, 2), SketchRows(2000, Dyadic.of(0.25), 6)
    for epsilon in (0.3, 0.8):
        assert twice.delta_at(epsilon) == pytest.approx(six.delta_at(epsilon), rel=0.02)


def test_conditions():
    with pytest.raises(InfeasibleError, match="fewer rows"):
        least_gamma(1000, 22, 1.0, 1e-6)
    with pytest.raises(InfeasibleError, match="certified for delta >="):
        least_gamma(10**6, 22, 1.0, 1e-41)
    with pytest.raises(ConditionError, match="users"):
        paper_gamma(10_000, 22, 1.0, 1e-6)
    for wrong in (
        lambda: SketchRows(10, Dyadic.of(0.25), 0),
        lambda: SketchRows(10, Dyadic.of(0.25), 2).delta_at(-1.0),
        lambda: SketchRows(10, Dyadic.of(0.25), 2).delta_at(math.nan),
    ):
        with pytest.raises(ParameterError):
            wrong()
