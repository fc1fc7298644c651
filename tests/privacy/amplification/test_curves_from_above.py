"""Amplification by shuffling: each distribution against its own exact sum."""

import math
from fractions import Fraction
from itertools import pairwise
from math import comb

import numpy as np
import pytest

from shuffledp.privacy.amplification import (
    BlanketCurve,
    ClonesCurve,
)
from shuffledp.privacy.amplification.privacy_blanket import _ResponseSums, bennett_expectation
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import Dyadic


def exact_clones_delta(parts, sure, alpha, growth):
    """The distribution as a sum of fractions."""
    counts = {sure: Fraction(1)}
    for trials, rate in parts:
        following = {}
        for count, mass in counts.items():
            for k in range(trials + 1):
                term = mass * comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
                following[count + k] = following.get(count + k, Fraction(0)) + term
        counts = following
    total = Fraction(0)
    for count, mass in counts.items():
        fair = [Fraction(comb(count, a), 2**count) for a in range(count + 1)]
        for a in range(count + 2):
            here, less = (fair[a] if a <= count else 0), (fair[a - 1] if a else 0)
            total += mass * max(alpha * less + (1 - alpha) * here - growth * ((1 - alpha) * less + alpha * here), 0)
    return total


CLONE_CASES = [
    ([], 0),
    ([], 7),
    ([(1, 5)], 0),
    ([(2, 15)], 1),
    ([(12, 3)], 0),
    ([(9, 8), (5, 2)], 0),
    ([(20, 1)], 3),
]


def clone_pmf_of(parts, sure, alpha):
    return ClonesCurve(tuple(Binomial(trials, Dyadic(rate, 4)) for trials, rate in parts), Dyadic(alpha, 6), sure=sure)


@pytest.mark.parametrize(("parts", "sure"), CLONE_CASES)
def test_clones_are_the_truth_from_above(parts, sure):
    for alpha in (64, 60, 40, 33, 32):
        for epsilon in (0.0, 1e-9, 0.1, 0.5, 1.0, 3.0, 30.0, 699.0):
            growth = Fraction(math.exp(epsilon))
            rates = [(trials, Fraction(rate, 16)) for trials, rate in parts]
            exact = exact_clones_delta(rates, sure, Fraction(alpha, 64), growth)
            bound = clone_pmf_of(parts, sure, alpha).delta_at(epsilon)
            assert Fraction(bound) >= exact, (alpha, epsilon)
            assert bound <= float(exact) * (1 + 1e-8) + 1e-14, (alpha, epsilon)


def test_dropping_what_is_left_out_would_be_caught(monkeypatch):
    """A window that forgets the mass of few clones falls below the truth."""
    import shuffledp.privacy.amplification.clones as clones

    curve = ClonesCurve((Binomial(40, Dyadic(8, 4)),), 1.0)
    exact = exact_clones_delta([(40, Fraction(1, 2))], 0, Fraction(1), Fraction(math.exp(8.0)))
    assert Fraction(curve.delta_at(8.0)) >= exact
    monkeypatch.setattr(clones, "_CUTS", (1e-2,))
    clones.clone_counts.cache_clear()
    assert Fraction(curve.delta_at(8.0)) >= exact  # coarse, and still above
    blocks = clones._blocks
    monkeypatch.setattr(clones, "_blocks", lambda *given: (*blocks(*given)[:2], 0.0))
    clones.clone_counts.cache_clear()
    assert Fraction(curve.delta_at(8.0)) < exact
    clones.clone_counts.cache_clear()


def test_fewer_clones_are_worse():
    for alpha in (1.0, 0.8):
        for epsilon in (0.05, 0.7):
            deltas = [ClonesCurve((), alpha, sure=count).delta_at(epsilon) for count in range(60)]
            assert all(later <= earlier * (1 + 1e-10) for earlier, later in pairwise(deltas))


def test_blocks_of_clones_only_overestimate(monkeypatch):
    import shuffledp.privacy.amplification.clones as clones

    curves = [
        ClonesCurve((Binomial(3_000_000, Dyadic.of(0.1)),), 0.95),
        ClonesCurve((Binomial(300_000, Dyadic.of(0.5)), Binomial(400_000, Dyadic.of(0.375)))),
    ]
    for curve, epsilon in zip(curves, (0.02, 0.015), strict=True):
        fine = curve.delta_at(epsilon)
        clones.clone_counts.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(clones, "_COARSENESS", 1e-4)
            coarse = curve.delta_at(epsilon)
            clones.clone_counts.cache_clear()
            patch.setattr(clones, "_LONGEST_SUM", 0)
            by_tails = curve.delta_at(epsilon)
            clones.clone_counts.cache_clear()
        assert fine * (1 - 1e-9) <= coarse <= fine * 1.02
        assert by_tails == pytest.approx(coarse, rel=1e-6)


def exact_blanket_delta(users, blanket, values, growth):
    """Lemma 5.3 for randomized response in fractions."""
    each = blanket / values
    ratio = 1 + (1 - blanket) / each
    total = Fraction(0)
    for a in range(users + 1):
        for b in range(users + 1 - a):
            for c in range(users + 1 - a - b if values > 2 else 1):
                height = a * (ratio - growth) + b * (1 - growth * ratio) + c * (1 - growth)
                if height > 0:
                    ways = comb(users, a) * comb(users - a, b) * comb(users - a - b, c)
                    chance = each ** (a + b) * (blanket - 2 * each) ** c * (1 - blanket) ** (users - a - b - c)
                    total += ways * chance * height
    return total / users


@pytest.mark.parametrize("values", [2, 3, 10])
def test_the_blanket_is_summed_from_above(values):
    for users in (1, 2, 6, 11):
        for numerator in (1, 7, 15):
            for epsilon in (0.0, 0.02, 0.3, 1.0, 2.5):
                exact = exact_blanket_delta(users, Fraction(numerator, 16), values, Fraction(math.exp(epsilon)))
                curve = BlanketCurve(users, Dyadic(numerator, 4), values)
                bound = curve.delta_at(epsilon)
                assert Fraction(bound) >= min(exact, 1), (users, numerator, epsilon)
                assert bound <= min(1.0, float(exact) * (1 + 1e-7) + 1e-12), (users, numerator, epsilon)


@pytest.mark.parametrize(
    ("users", "local_epsilon", "values", "epsilon"),
    [
        (1000, 1.0, 3, 0.05),
        (1000, 3.0, 10, 0.5),
        (10_000, 4.0, 1000, 0.1),
        (10_000, 5.0, 100, 0.5),
        (500, 0.3, 2, 0.02),
    ],
)
def test_the_grid_only_overestimates(users, local_epsilon, values, epsilon):
    """The Fourier transform against the direct sum, also on a coarse grid and with c decoupled."""
    blanket = Dyadic.of(values / (math.exp(local_epsilon) + values - 1))
    sums = _ResponseSums(BlanketCurve(users, blanket, values), math.expm1(epsilon))
    direct = sums.direct()
    assert direct * (1 - 1e-9) <= sums.on_grid() <= direct * (1 + 5e-4)
    assert direct * (1 - 1e-9) <= sums.on_grid(1 << 10)
    if values > 2:
        shifted = np.array([sums.reward - sums.gap, -sums.growth * sums.reward - sums.gap])
        decoupled = sums._decoupled(shifted + sums.gap * float(sums.other_rate), abs(sums.reward) / 50)
        assert direct * (1 - 1e-9) <= decoupled <= direct * 1.5


def bennett_holds(count, values, blanket, growth, *, printed):
    """Against the exact expectation for randomized response."""
    each = Fraction(1, values)
    ratio = 1 + values * (1 - blanket) / blanket
    sizes = [blanket * (ratio - growth), blanket * (1 - growth * ratio), blanket * (1 - growth)]
    chances = [each, each, 1 - 2 * each]
    exact = Fraction(0)
    for a in range(count + 1):
        for b in range(count + 1 - a):
            c = count - a - b
            value = a * sizes[0] + b * sizes[1] + c * sizes[2]
            ways = comb(count, a) * comb(count - a, b)
            exact += max(value, 0) * ways * chances[0] ** a * chances[1] ** b * chances[2] ** c
    second = float(sum(p * v * v for p, v in zip(chances, sizes, strict=True)))
    gap = float(growth - 1)
    bound = bennett_expectation(count, gap=gap, largest=float(max(sizes)), second_moment=second)
    return float(exact) <= (bound / (gap * count) if printed else bound) * (1 + 1e-9)


def test_bennett_is_corrected():
    """The corrected lemma holds on a grid; the printed one, by the same check, does not."""
    cases = [
        (count, values, Fraction(blanket, 10), Fraction(growth, 100))
        for count in (2, 5, 15)
        for values in (3, 5)
        for blanket in (2, 5)
        for growth in (105, 120, 200)
    ]
    assert all(bennett_holds(*case, printed=False) for case in cases)
    assert not all(bennett_holds(*case, printed=True) for case in cases)


# conditions, edges, calibration
