"""Accountants that used to waste noise: never below an exact value, and within one per cent of it.

The exact values are those of ``exact_references.py``, which does not use the package. A calibrated parameter is
compared with the one at which a single data set meets the target: what suffices for all data is at least that much.
"""

import importlib.util
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import shuffledp.privacy.amplification.privacy_blanket as privacy_blanket
from shuffledp.privacy.amplification import BlanketCurve, RandomizedResponseCurve, least_blanket
from shuffledp.privacy.cheu import FlippedHistogram, FlippedSum, least_count_flip, least_histogram_flip
from shuffledp.privacy.cheu.ratio_grid import RatioGrid
from shuffledp.randomness import Dyadic

spec = importlib.util.spec_from_file_location("exact_references", Path(__file__).parent / "exact_references.py")
exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exact)


def worst_count(users, flip, epsilon):
    return max(max(exact.flipped_count(users, flip, epsilon, ones)) for ones in range((users - 1) // 2 + 1))


@pytest.mark.parametrize(("users", "flip", "epsilon"), list(product((203, 260), (0.04, 0.13, 0.31), (0.02, 0.4, 1.6))))
def test_two_values_are_flipped_bits(users, flip, epsilon):
    """All data of more than 200 users, by convolution; the planted fault compares with nobody else holding a 1."""
    truth = worst_count(users, flip, epsilon)
    bound = RandomizedResponseCurve(users, Dyadic.of(2 * flip), 2).delta_at(epsilon)
    assert truth * (1 - 1e-9) <= bound
    assert bound <= truth * 1.0101 or bound < 1e-250


def test_comparing_with_one_data_set_alone_would_show():
    """The planted fault: only K = (N - 1)/2 lies below the truth."""
    users, flip, epsilon = 260, 0.13, 0.4
    middle = max(exact.flipped_count(users, flip, epsilon, (users - 1) // 2))
    assert middle < worst_count(users, flip, epsilon) * 0.999


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [(777, 0.6, 1e-5), (20_000, 0.2, 1e-7), (300_000, 1.4, 1e-9), (50_000, 3.1, 1e-31), (100_000, 2.3, 1e-36)],
)
def test_count_and_two_values_need_what_one_data_set_needs(users, epsilon, delta):
    flip = float(least_count_flip(users, epsilon, delta))
    assert float(least_blanket(users, 2, epsilon, delta)) == 2 * flip

    def delta_of(point):  # everybody else holds the same value
        return max(exact.flipped_count(users, point, epsilon, users - 1))

    assert delta_of(flip) <= delta * (1 + 1e-9)
    assert delta_of(flip * 0.99) > delta


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [(350, 0.8, 1e-4), (4_000, 0.35, 1e-6), (70_000, 1.7, 1e-9), (9_000, 4.2, 1e-11), (40_000, 2.7, 1e-31),
     (100_000, 2.3, 1e-33)],
)  # fmt: skip
def test_histogram_needs_what_one_data_set_needs(users, epsilon, delta):
    flip = float(least_histogram_flip(users, epsilon, delta))

    def delta_of(point):  # all others hold the old category
        return exact.flipped_histogram(users, point, epsilon, users - 1, 0)

    assert delta_of(flip) <= delta * (1 + 1e-9)
    assert delta_of(flip * 0.99) > delta


@pytest.mark.parametrize(("users", "flip", "epsilon"), list(product((9, 33), (0.06, 0.2, 0.45), (0.05, 0.7, 2.2))))
def test_histogram_over_all_data(users, flip, epsilon):
    flip = float(Dyadic.of(flip))
    pairs = [(old, new) for old in range(users) for new in range(users - old)]
    truth = max(exact.flipped_histogram(users, flip, epsilon, *pair) for pair in pairs)
    bound = FlippedHistogram(users, Dyadic.of(flip)).delta_at(epsilon)
    assert truth * (1 - 1e-9) <= bound <= truth * 1.0101 + 1e-290


def test_ratios_are_spread_and_never_gathered(monkeypatch):
    """The planted fault moves every mass to the nearest smaller ratio, and lies below the exact value."""
    users, flip, epsilon = 33, Dyadic.of(0.2), 0.7
    truth = exact.flipped_histogram(users, 0.2, epsilon, users - 1, 0)
    assert FlippedHistogram(users, flip).delta_at(epsilon) >= truth * (1 - 1e-9)

    def gathered(self, p, q):
        below = np.clip(np.searchsorted(self._ratios, p / q), 0, len(self._ratios) - 2)
        return below, q, np.zeros(len(q))

    monkeypatch.setattr(RatioGrid, "_split", gathered)
    assert FlippedHistogram(users, flip).delta_at(epsilon) < truth


@pytest.mark.parametrize(
    ("users", "values", "mean", "epsilon"),
    [(900, 5, 3.0, 4.0), (10_000, 12, 17.5, 5.0), (10_000, 12, 21.0, 5.0), (20_000, 3, 40.0, 5.5),
     (1_500, 40, 6.0, 2.0), (9_000, 4, 30.0, 4.5)],
)  # fmt: skip
def test_lemma_of_the_blanket_at_tiny_deltas(users, values, mean, epsilon):
    """``mean`` is the number of uniform reports on a value; deltas from 1e-4 to 1e-34."""
    blanket = Dyadic.at_least(mean * values / users)
    truth = exact.blanket_lemma(users, float(blanket), values, epsilon)
    bound = BlanketCurve(users, blanket, values).delta_at(epsilon)
    assert 0 < truth * (1 - 1e-9) <= bound <= truth * 1.001


def test_an_absolute_allowance_for_rounding_would_show(monkeypatch):
    """The planted fault is what the bound was before: rounding of the height, whatever its probability."""
    users, values, epsilon, blanket = 10_000, 12, 5.0, Dyadic.at_least(21.0 * 12 / 10_000)
    before = BlanketCurve(users, blanket, values).delta_at(epsilon)
    original = privacy_blanket._ResponseSums._above_others

    def with_allowance(self, height, pairs):
        return original(self, height, pairs) + 1e-14 * self.reward * self.growth * pairs

    monkeypatch.setattr(privacy_blanket._ResponseSums, "_above_others", with_allowance)
    assert BlanketCurve(users, blanket, values).delta_at(epsilon) > 100 * before


@pytest.mark.parametrize("delta", [1e-20, 1e-25, 1e-30])
def test_response_needs_what_the_lemma_needs(delta):
    users, values, epsilon = 8_000, 9, 5.0
    blanket = float(least_blanket(users, values, epsilon, delta))
    assert exact.blanket_lemma(users, blanket, values, epsilon) <= delta
    assert exact.blanket_lemma(users, blanket * 0.999, values, epsilon) > delta


def test_sums_of_several_bits_keep_their_bound():
    users, bits, flip, epsilon = 7, 3, 0.2, 0.5
    others = (users - 1) * bits
    truth = 0.0
    for ones in range(others + 1):
        p = np.convolve(exact.window(ones + bits, 1 - flip), exact.window(others - ones, flip))
        q = np.convolve(exact.window(ones, 1 - flip), exact.window(others - ones + bits, flip))
        truth = max(truth, exact.one_sided(p, q, epsilon))
    assert truth * (1 - 1e-9) <= FlippedSum(users, Dyadic.of(flip), bits).delta_at(epsilon) <= truth * 1.0101
