"""Fake rows: against brute force over all reports of few users, the printed numbers, and planted faults."""

import math
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.composition import compose
from shuffledp.privacy.fake_users import FakeRows, least_row_flip, paper_row_flip
from shuffledp.randomness import Dyadic


def row_pmf(row, f):
    """The distribution of one row of bits after the flips."""
    return {
        seen: math.prod(f if a != b else 1 - f for a, b in zip(row, seen, strict=True))
        for seen in product((0, 1), repeat=len(row))
    }


def multiset_pmf(rows, f):
    """The distribution of the multiset of all rows, which is what is seen."""
    curve = {(): Fraction(1)}
    for row in rows:
        new = {}
        for seen, mass in curve.items():
            for one, chance in row_pmf(row, f).items():
                key = tuple(sorted((*seen, one)))
                new[key] = new.get(key, Fraction(0)) + mass * chance
        curve = new
    return curve


def divergence(p, q, epsilon):
    growth = Fraction(math.exp(epsilon))
    return float(sum(max(mass - growth * q.get(seen, 0), Fraction(0)) for seen, mass in p.items()))


def one_hot(index, size):
    return tuple(int(i == index) for i in range(size))


@pytest.mark.parametrize("flip", [Fraction(1, 16), Fraction(1, 4), Fraction(7, 16)])
@pytest.mark.parametrize("fakes", [1, 2])
def test_bound_holds_for_all_data(flip, fakes):
    """Two users, two categories: the multiset of whole rows, which says more than the counts of ones."""
    users, size = 2, 2
    curve = FakeRows(users * fakes, Dyadic.of(float(flip)))
    for other in range(size):
        noise = [(0,) * size] * (users * fakes)
        p, q = (multiset_pmf([one_hot(mine, size), one_hot(other, size), *noise], flip) for mine in (0, 1))
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            assert divergence(p, q, epsilon) <= curve.delta_at(epsilon) + 1e-15


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_delta_is_the_exact_product(rows, epsilon):
    f = Fraction(3, 16)
    noise = [comb(rows, j) * f**j * (1 - f) ** (rows - j) for j in range(rows + 1)]
    stay, shifted = [*noise, Fraction(0)], [Fraction(0), *noise]
    with_bit = [f * a + (1 - f) * b for a, b in zip(stay, shifted, strict=True)]
    without = [(1 - f) * a + f * b for a, b in zip(stay, shifted, strict=True)]
    growth = Fraction(math.exp(epsilon))
    exact = sum(
        max(with_bit[a] * without[b] - growth * without[a] * with_bit[b], Fraction(0))
        for a, b in product(range(rows + 2), repeat=2)
    )
    assert float(exact) <= FakeRows(rows, Dyadic.of(3 / 16)).delta_at(epsilon) <= float(exact) * (1 + 1e-7) + 1e-15


def test_golden_value():
    """Reference values, computed independently."""
    assert FakeRows(10_000, Dyadic.of(0.0042)).delta_at(1.0) == pytest.approx(1.02528409128e-06, rel=1e-8)


def test_calibration_as_printed():
    """Reference values: rows times q is 42.65 at (1, 1e-6), 470 with the paper's constant."""
    flip = least_row_flip(10**6, 1.0, 1e-6)
    assert 10**6 * float(flip) == pytest.approx(42.65, abs=0.01)
    assert FakeRows(10**6, flip).delta_at(1.0) <= 1e-6
    paper = paper_row_flip(10**6, 1.0, 1e-6)
    assert 10**6 * float(paper) == pytest.approx(470, abs=0.5)
    assert FakeRows(10**6, paper).delta_at(1.0) < 1e-6


@pytest.mark.parametrize("rows", [10, 50, 1000, 10**12])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_calibration_is_least(rows, epsilon):
    flip = least_row_flip(rows, epsilon, 1e-6)
    assert FakeRows(rows, flip).delta_at(epsilon) <= 1e-6
    assert FakeRows(rows, Dyadic.at_least(0.999 * float(flip))).delta_at(epsilon) > 1e-6


def test_conditions():
    with pytest.raises(ConditionError, match="1,880"):
        paper_row_flip(100, 1.0, 1e-6)
    with pytest.raises(InfeasibleError, match="more fake rows"):
        least_row_flip(5, 1e-5, 1e-9)
    for wrong in (
        lambda: FakeRows(0, Dyadic.of(0.1)),
        lambda: FakeRows(5, Dyadic.of(0.6)),
        lambda: FakeRows(5, Dyadic.of(0.1)).delta_at(-1.0),
        lambda: FakeRows(5, Dyadic.of(0.1)).delta_at(math.nan),
    ):
        with pytest.raises(ParameterError):
            wrong()


def test_tail_mass_that_is_left_out_shows():
    """The planted fault: a window of three deviations whose outside is forgotten lies below the truth."""
    curve = FakeRows(10_000, Dyadic.of(0.0042))
    noise = Binomial(10_000, curve.flip)
    k = np.arange(int(noise.mean - 3 * noise.deviation), int(noise.mean + 3 * noise.deviation))
    f = float(curve.flip)
    stay, shifted = noise.pmf(k), noise.pmf(k - 1)
    p, q = f * stay + (1 - f) * shifted, (1 - f) * stay + f * shifted
    fault = np.maximum(np.outer(p, q) - math.e * np.outer(q, p), 0).sum()
    assert fault < 0.5 * curve.delta_at(1.0)


def test_delta_ends_at_the_local_epsilon_and_composes():
    curve = FakeRows(30, Dyadic.of(0.25))
    assert curve.delta_at(curve.local_epsilon * 1.0001) == 0
    assert curve.delta_at(0.5) < compose(curve, 2).delta_at(0.5) <= 1
