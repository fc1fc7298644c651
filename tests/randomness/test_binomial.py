"""Exact binomial draws: bounds that are bounds, ties that are decided, and the distribution."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shuffledp.randomness import Dyadic, binomial
from shuffledp.randomness.binomial import _cdf_bounds
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.usefixtures("path")


def exact_cdf(trials: int, probability: Dyadic) -> list[Fraction]:
    p = probability.fraction
    total, cdf = Fraction(0), []
    for k in range(trials + 1):
        total += comb(trials, k) * p**k * (1 - p) ** (trials - k)
        cdf.append(total)
    return cdf


@settings(max_examples=60)
@given(trials=st.integers(1, 60), numerator=st.integers(1, (1 << 12) - 1), precision=st.sampled_from([96, 128, 192]))
def test_the_bounds_enclose_the_exact_distribution_function(trials, numerator, precision):
    probability = Dyadic(numerator, 12)
    bounds = _cdf_bounds(trials, probability, precision)
    exact = exact_cdf(trials, probability)
    scale = 1 << precision
    for place, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
        truth = exact[bounds.first + place] * scale
        assert lower <= truth <= upper
        assert upper - lower <= 4


@pytest.mark.parametrize(("trials", "rate"), [(10**6, 0.3), (10**9, 43e-9), (10**7, 0.999)])
def test_the_bounds_agree_with_scipy_for_many_trials(trials, rate):
    bounds = _cdf_bounds(trials, Dyadic.at_least(rate), 96)
    mean = trials * rate
    place = int(mean) - bounds.first
    assert bounds.lower[place] / 2**96 == pytest.approx(stats.binom.cdf(int(mean), trials, rate), rel=1e-7)


@pytest.mark.parametrize(
    ("trials", "probability"),
    [
        (1, Dyadic(1, 2)),
        (2, Dyadic(1, 1)),
        (5, Dyadic(3, 3)),
        (40, Dyadic(1, 4)),
        (100, Dyadic(255, 8)),
        (10_000, Dyadic.at_least(0.0043)),
        (10**9, Dyadic.at_least(40e-9)),
    ],
)
def test_binomial_has_its_distribution(trials, probability):
    """Every value; a probability off by five per cent must be rejected."""
    size = 300_000
    drawn = binomial(trials, probability, size)
    first, last = int(drawn.min()), int(drawn.max())
    points = np.arange(first, last + 1)

    def pmf(rate: float) -> np.ndarray:
        inside = stats.binom.pmf(points, trials, rate)
        return np.append(inside, max(0.0, 1 - inside.sum()))

    table = np.append(np.bincount(drawn - first, minlength=len(points)), 0)
    rate = float(probability)
    assert p_value(table, pmf(rate) / pmf(rate).sum()) > ALPHA
    wrong = rate * 0.95
    assert p_value(table, pmf(wrong) / pmf(wrong).sum()) < ALPHA


def test_many_trials_are_drawn_in_parts():
    """A variance beyond one table: mean and spread of the sum; a part too few must be rejected."""
    trials, size = 10**12, 100
    drawn = binomial(trials, Dyadic(1, 1), size)
    z = (drawn - trials / 2) / np.sqrt(trials / 4)
    assert abs(z.mean()) * np.sqrt(size) < 5.5
    assert stats.chi2.sf((z**2).sum(), size) > ALPHA
    assert stats.chi2.cdf((z**2).sum(), size) > ALPHA
    missing_part = drawn - trials // 2000
    assert abs(((missing_part - trials / 2) / np.sqrt(trials / 4)).mean()) * np.sqrt(size) > 5.5


@pytest.mark.parametrize(
    ("trials", "probability", "value"), [(0, Dyadic(1, 1), 0), (9, Dyadic(0, 3), 0), (9, Dyadic(8, 3), 9)]
)
def test_certain_outcomes(trials, probability, value):
    assert binomial(trials, probability, 5).tolist() == [value] * 5


def thirds(precision: int) -> CdfBounds:
    """A distribution with boundaries at 1/3 and 2/3, whose leading bits alone never decide."""
    scaled = [Fraction(k, 3) * (1 << precision) for k in (1, 2, 3)]
    return CdfBounds(0, [int(value) for value in scaled], [-int(-value // 1) for value in scaled])


def test_every_tie_is_decided_by_further_bits(words_source):
    table = InversionTable(thirds)
    tie = (1 << 64) // 3
    assert table.draw(1, words_source(tie - 1)).tolist() == [0]
    assert table.draw(1, words_source(tie + 1)).tolist() == [1]
    assert table.draw(1, words_source(tie, tie - 1)).tolist() == [0]
    assert table.draw(1, words_source(tie, tie + 1)).tolist() == [1]
    assert table.draw(1, words_source(tie, tie, tie, tie + 1)).tolist() == [1]
    assert table.draw(1, words_source(0, 0)).tolist() == [0]
    assert table.draw(1, words_source((1 << 64) - 1, (1 << 64) - 1)).tolist() == [2]


@pytest.mark.parametrize(
    ("further", "value"),
    [
        ([b"\x54\x55\x55\x55"], 0),
        ([b"\x56\x55\x55\x55"], 1),
        ([b"\x55\x55\x55\x55", b"\x54" + b"\x55" * 7], 0),
        ([b"\x55\x55\x55\x55", b"\x56" + b"\x55" * 7], 1),
        ([b"\x55\x55\x55\x55", b"\x55" * 8, b"\x56" + b"\x55" * 7], 1),
    ],
)
def test_ties_of_many_draws_are_decided_by_further_bits(further, value, path):
    """All begin with the 32 leading bits of 1/3, or 64 in numpy, and go on with the same further ones."""
    calls = []

    class Source:
        secure = False

        def fill(self, out):
            if len(out) > 8:
                out.fill(0x55)
                calls.clear()
            else:
                out[:] = np.frombuffer(further[len(calls) % len(further)], dtype=np.uint8)
                calls.append(len(out))

    if path == "numpy":
        further = [part for part in further if len(part) == 8]
        if not further:
            pytest.skip("64 bits are drawn at once")
    table = InversionTable(thirds)
    assert (table.draw(3000, Source()) == value).all()
    sums = np.full(3000, 7, dtype=np.int64)
    table.add_to(sums, Source())
    assert (sums == value + 7).all()


def test_the_extreme_words_reach_the_tails(words_source):
    """All-zero bits lead to the least value, all-one bits to the largest, past any 64-bit table."""
    trials, probability = 60, Dyadic(1, 2)
    zeros, ones = [0] * 40, [(1 << 64) - 1] * 40
    table = InversionTable(lambda precision: _cdf_bounds(trials, probability, precision))
    assert table.draw(1, words_source(*zeros)).tolist() == [0]
    assert table.draw(1, words_source(*ones)).tolist() == [trials]
