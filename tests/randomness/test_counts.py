"""Exact counts (binomial, Poisson, logarithmic, negative binomial, uniform) and rounding, against their pmfs."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import ParameterError
from shuffledp.randomness import (
    SYSTEM,
    Dyadic,
    binomial,
    binomials,
    logarithmic,
    negative_binomial,
    poisson,
    scattered_negative_binomial,
    uniform_counts,
)
from shuffledp.randomness.computable import NegativeLogarithm
from shuffledp.randomness.inversion import InversionTable
from shuffledp.randomness.logarithmic import _draw_from
from shuffledp.randomness.negative_binomial import _cdf_bounds
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

SIZE = 400_000


def binomial_pmf(trials: int, probability: float) -> np.ndarray:
    p = mpmath.mpf(probability)
    return np.array([float(mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k)) for k in range(trials + 1)])


def negative_binomial_pmf(shape: Fraction, ratio: float, length: int) -> np.ndarray:
    """Probabilities of 0 .. length - 1 and of all beyond, from the gamma function."""
    with mpmath.workdps(50):
        s, r = mpmath.mpf(shape.numerator) / shape.denominator, mpmath.mpf(ratio)
        term, pmf = (1 - r) ** s, []
        for k in range(length):
            pmf.append(term)
            term *= (k + s) / (k + 1) * r
        assert mpmath.almosteq(term, (1 - r) ** s * mpmath.rf(s, length) / mpmath.factorial(length) * r**length)
        return np.array([float(value) for value in [*pmf, 1 - sum(pmf)]])


def count_up_to(drawn: np.ndarray, length: int) -> np.ndarray:
    return np.bincount(np.minimum(drawn, length), minlength=length + 1)


# --- binomial with varying trials


@pytest.mark.parametrize("probability", [Dyadic(1, 1), Dyadic(1, 5), Dyadic.at_least(0.9)])
def test_binomials_have_their_distributions(probability):
    """Trials 0 .. 40 side by side, whole tables; a probability off by a fifth must be rejected."""
    trials = np.tile(np.arange(41), 20_000)
    drawn = binomials(trials, probability).reshape(-1, 41)
    for number in (0, 1, 2, 3, 7, 8, 31, 40):
        table = np.bincount(drawn[:, number], minlength=number + 1)
        assert len(table) == number + 1
        assert p_value(table, binomial_pmf(number, float(probability))) > ALPHA
    wrong = float(probability) * 0.8
    assert p_value(np.bincount(drawn[:, 40], minlength=41), binomial_pmf(40, wrong)) < ALPHA


def test_binomials_of_many_trials_are_those_of_binomial():
    trials, probability = 3 * 10**8 + 12345, Dyadic.at_least(0.3)
    first, second = binomials(np.full(25_000, trials), probability), binomial(trials, probability, 25_000)
    edges = trials * 0.3 + np.sqrt(trials * 0.21) * np.linspace(-3, 3, 25)

    def table(drawn):
        return np.bincount(np.searchsorted(edges, drawn), minlength=26)

    assert same_distribution(table(first), table(second)) > ALPHA
    assert same_distribution(table(first - 1000), table(second)) < ALPHA


def test_binomials_of_one_call_are_independent():
    """Pairs of neighbours; one draw used for both must be rejected."""
    drawn = binomials(np.full(400_000, 3), Dyadic(1, 1)).reshape(-1, 2)
    pmf = np.outer(binomial_pmf(3, 0.5), binomial_pmf(3, 0.5)).ravel()
    assert p_value(np.bincount(drawn @ [4, 1], minlength=16), pmf) > ALPHA
    assert p_value(np.bincount(drawn[:, 0] * 5, minlength=16), pmf) < ALPHA


def test_binomials_at_the_edges():
    trials = np.array([[0, 5], [10**12, 1]])
    assert binomials(trials, Dyadic(0, 3)).tolist() == [[0, 0], [0, 0]]
    assert binomials(trials, Dyadic(8, 3)).tolist() == trials.tolist()
    drawn = binomials(trials, Dyadic(1, 1))
    assert drawn.shape == (2, 2)
    assert drawn[0, 0] == 0
    assert abs(drawn[1, 0] - 5 * 10**11) < 6 * 500_000
    assert len(binomials(np.zeros(0, dtype=np.int64), Dyadic(1, 1))) == 0
    with pytest.raises(ParameterError):
        binomials(np.array([3, -1]), Dyadic(1, 1))
    with pytest.raises(ParameterError):
        binomials(np.array([1 << 60]), Dyadic(1, 1))
    assert binomials(np.array([1 << 60]), Dyadic(1, 100))[0] == 0


# --- balls in cells


@pytest.mark.parametrize("balls", [3, 100])
def test_uniform_counts_have_their_distribution(balls):
    """The count of one cell is binomial, and two cells together are too; a skew cell must be rejected."""
    counts = np.array([uniform_counts(balls, 5) for _ in range(20_000)])
    assert (counts.sum(axis=1) == balls).all()
    for part, share in ((counts[:, 0], 0.2), (counts[:, 4], 0.2), (counts[:, 1] + counts[:, 2], 0.4)):
        table = np.bincount(part, minlength=balls + 1)
        assert p_value(table, binomial_pmf(balls, share)) > ALPHA
        assert p_value(table, binomial_pmf(balls, share * 0.9)) < ALPHA


@pytest.mark.parametrize("cells", [1, 2, 3, 64, 1000, 3000])
def test_many_balls_are_uniform(cells):
    """Past the point where balls are halved; a fifth moved between cells and even counts must be rejected."""
    balls = 100_000_000
    counts = uniform_counts(balls, cells)
    assert len(counts) == cells
    assert counts.sum() == balls
    distribution = np.full(cells, 1 / cells)
    assert p_value(counts, distribution) > ALPHA
    if cells >= 64:
        even = balls // cells + np.arange(cells) % 2
        for table, plausible in ((counts, True), (even, False)):
            statistic = ((table - balls / cells) ** 2).sum() / (balls / cells)
            assert (stats.chi2.cdf(statistic, cells - 1) > ALPHA) == plausible
    if cells > 1:
        counts[0] += balls // cells // 5
        counts[1] -= balls // cells // 5
        assert p_value(counts, distribution) < ALPHA


def test_uniform_counts_at_the_edges():
    assert uniform_counts(0, 3).tolist() == [0, 0, 0]
    assert uniform_counts(7, 1).tolist() == [7]
    for balls, cells in ((-1, 3), (3, 0), (1 << 41, 2)):
        with pytest.raises(ParameterError):
            uniform_counts(balls, cells)


# --- Poisson and logarithmic


@pytest.mark.parametrize(
    ("rate", "mean"),
    [
        (Fraction(1, 1000), 0.001),
        (Fraction(10, 3), 10 / 3),
        (NegativeLogarithm(Fraction(3), Dyadic.at_least(0.95)), 3 * np.log(20)),
        (Fraction(500), 500.0),
    ],
)
def test_poisson_has_its_distribution(rate, mean):
    """Every value; a rate off by a tenth must be rejected."""
    drawn = poisson(rate, 12_000_000 if mean < 0.01 else SIZE)
    length = int(mean + 12 * np.sqrt(mean)) + 4

    def pmf(value):
        inside = [float(mpmath.exp(-value) * mpmath.mpf(value) ** k / mpmath.factorial(k)) for k in range(length)]
        return np.append(inside, max(0.0, 1 - sum(inside)))

    table = count_up_to(drawn, length)
    assert p_value(table, pmf(mean)) > ALPHA
    assert p_value(table, pmf(mean * 0.9)) < ALPHA


def test_large_rates_are_drawn_in_parts():
    """Mean and spread past one table; a part too few, or one part used for all, must be rejected."""
    rate, size = 10**8, 4000
    z = (poisson(Fraction(rate), size) - rate) / np.sqrt(rate)
    assert abs(z.mean()) * np.sqrt(size) < 5.5
    assert abs((z**2).mean() - 1) * np.sqrt(size / 2) < 6
    assert abs((z - np.sqrt(rate) / 96).mean()) * np.sqrt(size) > 5.5
    repeated = z * np.sqrt(96)
    assert abs((repeated**2).mean() - 1) * np.sqrt(size / 2) > 6


@pytest.mark.parametrize("ratio", [Dyadic(1, 10), Dyadic(1, 1), Dyadic.at_least(0.95)])
def test_logarithmic_has_its_distribution(ratio):
    """Every value; a ratio off by five per cent must be rejected."""
    drawn = logarithmic(ratio, 4_000_000 if float(ratio) < 0.1 else SIZE)
    assert drawn.min() == 1
    length = 200

    def pmf(r):
        inside = -(r ** np.arange(1, length)) / np.arange(1, length) / np.log1p(-r)
        return np.concatenate(([0.0], inside, [max(0.0, 1 - inside.sum())]))

    table = count_up_to(drawn, length)
    assert p_value(table, pmf(float(ratio))) > ALPHA
    assert p_value(table, pmf(float(ratio) * (0.5 if float(ratio) < 0.1 else 0.95))) < ALPHA


def test_logarithmic_beyond_its_table_goes_on():
    """Octaves of sizes for a ratio whose table is cut early; a missing tail must be rejected."""
    ratio = Dyadic((1 << 14) - 1, 14)
    drawn = logarithmic(ratio, 100_000)
    r, edges = float(ratio), 2 ** np.arange(17)
    sums = np.cumsum(np.exp(np.arange(1, 1 << 16) * np.log(r)) / np.arange(1, 1 << 16)) / -np.log1p(-r)
    below = np.append([0.0, *(sums[edge - 2] for edge in edges[1:])], 1.0)

    def table(values):
        return np.bincount(np.searchsorted(edges, values, side="right") - 1, minlength=len(edges))

    assert p_value(table(drawn), np.diff(below)) > ALPHA
    assert p_value(table(np.minimum(drawn, 8193)), np.diff(below)) < ALPHA


@pytest.mark.parametrize("least", [1, 2, 5])
def test_the_rest_of_the_logarithmic_distribution_is_its_own(least):
    """The slower route from ``least`` on; from one on it is the whole pmf. One value more kept must be rejected."""
    r, values = 0.75, np.arange(least, least + 60)
    drawn = np.minimum(_draw_from(least, Dyadic.of(r), 200_000, SYSTEM) - least, 59)
    pmf = r**values / values
    pmf[-1] /= 1 - r
    assert p_value(np.bincount(drawn, minlength=60), pmf / pmf.sum()) > ALPHA
    kept = np.minimum(1.0, (least + 1) / values) * r**values
    assert p_value(np.bincount(drawn, minlength=60), kept / kept.sum()) < ALPHA


# --- negative binomial


@pytest.mark.parametrize(
    ("shape", "ratio", "size", "length"),
    [
        (Fraction(16, 10**6), 0.95, 60_000_000, 120),
        (Fraction(1, 10**5), 0.6, 60_000_000, 12),
        (Fraction(1, 100), 0.95, 4_000_000, 150),
        (Fraction(1, 3), 0.5, SIZE, 30),
        (Fraction(1), 0.75, SIZE, 60),
        (Fraction(7, 2), 0.9, SIZE, 200),
        (Fraction(50), 0.99, SIZE, 9000),
        pytest.param(Fraction(2), 0.9995, SIZE, 20_000, marks=pytest.mark.slow),
    ],
)
def test_negative_binomial_has_its_distribution(shape, ratio, size, length):
    """Every value; a ratio or a shape off must be rejected, and so must a missing tail."""
    exact = Dyadic.of(ratio)
    table = np.zeros(length + 1, dtype=np.int64)
    for start in range(0, size, 1 << 22):
        table += count_up_to(negative_binomial(shape, exact, min(1 << 22, size - start)), length)
    pmf = negative_binomial_pmf(shape, ratio, length)
    assert p_value(table, pmf) > ALPHA
    few = table[1:].sum() < 20_000  # too few draws are not zero to see five per cent
    wrong = ratio * (0.7 if few else 0.95)
    assert p_value(table, negative_binomial_pmf(shape, wrong, length)) < ALPHA
    if not few:
        assert p_value(table, negative_binomial_pmf(shape * Fraction(21, 20), ratio, length)) < ALPHA
    cut = int(np.searchsorted(np.cumsum(pmf), 1 - pmf[1:].sum() / 10))
    missing = table.copy()
    missing[cut] += missing[cut + 1 :].sum()
    missing[cut + 1 :] = 0
    assert p_value(missing, pmf) < ALPHA


def test_large_shapes_are_drawn_in_parts():
    """A mean of 10^5 past one table: mean and spread; a part too few must be rejected."""
    shape, ratio, size = Fraction(1010), Dyadic.of(0.99), 20_000
    mean, deviation = float(shape) * 99, np.sqrt(float(shape) * 0.99) * 100
    z = (negative_binomial(shape, ratio, size) - mean) / deviation
    assert abs(z.mean()) * np.sqrt(size) < 5.5
    assert abs((z**2).mean() - 1) * np.sqrt(size / 2) < 6
    assert abs((z - mean / 10 / deviation).mean()) * np.sqrt(size) > 5.5


def test_words_past_the_table_are_decided(words_source):
    """All-one bits: the value lies where less than 2^-192 of the mass is left, past any 64-bit table."""
    shape, ratio = Fraction(1, 1000), Dyadic(1, 1)
    table = InversionTable(lambda precision: _cdf_bounds(shape, ratio, precision))
    top = (1 << 64) - 1
    first = int(table.draw(1, words_source(top, 0))[0])
    later = int(table.draw(1, words_source(top, top, top, 0))[0])
    assert 40 < first < 64
    assert 160 < later < 192
    assert table.draw(1, words_source(0, 0)).tolist() == [0]


def test_scattered_draws_have_the_distribution_of_dense_ones():
    """The table of values over all cells, and of cells over eighths; a halved shape must be rejected."""
    shape, ratio, cells = Fraction(1, 50), Dyadic.of(0.9), 2_000_000
    hit, copies = scattered_negative_binomial(shape, ratio, cells)
    assert (np.diff(hit) > 0).all()
    assert copies.min() >= 1
    assert hit.min() >= 0
    assert hit.max() < cells
    length = 60

    def table(values):
        counted = count_up_to(values, length)
        counted[0] += cells - len(values)
        return counted

    dense = negative_binomial(shape, ratio, cells)
    assert same_distribution(table(copies), count_up_to(dense, length)) > ALPHA
    assert p_value(table(copies), negative_binomial_pmf(shape, 0.9, length)) > ALPHA
    assert p_value(np.bincount(hit * 8 // cells, minlength=8), np.full(8, 1 / 8)) > ALPHA
    half = scattered_negative_binomial(shape / 2, ratio, cells)[1]
    assert same_distribution(table(half), count_up_to(dense, length)) < ALPHA


def test_scattered_draws_merge_what_falls_into_one_cell():
    """Few cells with many clusters each; unmerged clusters must be rejected."""
    shape, ratio, cells = Fraction(5, 2), Dyadic.of(0.5), 100_000
    hit, copies = scattered_negative_binomial(shape, ratio, cells)
    values = np.zeros(cells, dtype=np.int64)
    values[hit] = copies
    pmf = negative_binomial_pmf(shape, 0.5, 40)
    assert p_value(count_up_to(values, 40), pmf) > ALPHA
    values[hit] = 1
    assert p_value(count_up_to(values, 40), pmf) < ALPHA


def test_scattered_draws_over_very_many_cells():
    hit, copies = scattered_negative_binomial(Fraction(1, 10**12), Dyadic.of(0.95), 10**15)
    rate = 1000 * np.log(20)
    assert abs(len(hit) - rate) < 6 * np.sqrt(rate)
    assert hit.dtype == copies.dtype == np.int64
    assert (np.diff(hit) > 0).all()


def test_counts_at_the_edges():
    tiny = Fraction(1, 10**60)
    assert not negative_binomial(tiny, Dyadic(1, 1), 1000).any()
    assert not negative_binomial(Fraction(3), Dyadic(0, 1), 10).any()
    assert len(negative_binomial(Fraction(3), Dyadic(1, 1), 0)) == 0
    assert not poisson(Fraction(0), 10).any()
    assert len(poisson(Fraction(3), 0)) == 0
    assert len(logarithmic(Dyadic(1, 1), 0)) == 0
    for shape, ratio, cells in ((tiny, Dyadic(1, 1), 10**9), (1, Dyadic(0, 1), 10), (1, Dyadic(1, 1), 0)):
        hit, copies = scattered_negative_binomial(Fraction(shape), ratio, cells)
        assert len(hit) == len(copies) == 0


@pytest.mark.parametrize(
    "draw",
    [
        lambda: negative_binomial(Fraction(0), Dyadic(1, 1), 1),
        lambda: negative_binomial(Fraction(-1), Dyadic(1, 1), 1),
        lambda: negative_binomial(0.5, Dyadic(1, 1), 1),
        lambda: negative_binomial(Fraction(1), Dyadic(1, 0), 1),
        lambda: negative_binomial(Fraction(1 << 41), Dyadic(1, 1), 1),
        lambda: negative_binomial(Fraction(1), Dyadic(1, 1), -1),
        lambda: scattered_negative_binomial(Fraction(1), Dyadic(1, 0), 5),
        lambda: scattered_negative_binomial(Fraction(1), Dyadic(1, 1), -1),
        lambda: scattered_negative_binomial(Fraction(1), Dyadic(1, 1), 1 << 63),
        lambda: poisson(Fraction(-1), 1),
        lambda: poisson(Fraction(1 << 41), 1),
        lambda: poisson(Fraction(1), -1),
        lambda: logarithmic(Dyadic(0, 1), 1),
        lambda: logarithmic(Dyadic(1, 0), 1),
        lambda: logarithmic(Dyadic(1, 1), -1),
    ],
)
def test_impossible_parameters_are_refused(draw):
    with pytest.raises(ParameterError):
        draw()


# --- rounding
