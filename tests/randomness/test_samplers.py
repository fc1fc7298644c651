"""Exact samplers against their distributions: whole tables, and the faults they must catch."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.randomness import SYSTEM, Dyadic, discrete_laplace, draw_bytes, geometric, integers
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.usefixtures("path")

SIZE = 1_000_000


@given(value=st.fractions(0, 1), bits=st.integers(1, 200))
def test_dyadic_rounds_up_by_less_than_a_float_can_tell(value, bits):
    rounded = Dyadic.at_least(value, bits=bits)
    assert value <= rounded.fraction <= max(value + Fraction(1, 1 << bits), value * (1 + Fraction(1, 1 << 52)))
    assert Fraction(float(rounded)) == rounded.fraction
    assert rounded.fraction + rounded.complement.fraction == 1


@given(value=st.floats(0, 1))
def test_a_float_is_a_dyadic_exactly(value):
    assert Dyadic.of(value).fraction == Fraction(value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_what_is_no_probability_is_refused(value):
    for make in (Dyadic.at_least, Dyadic.of):
        with pytest.raises(ParameterError, match="is not a probability between 0 and 1"):
            make(value)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 255, 256, 257])
def test_integers_are_uniform(bound):
    drawn = integers(bound, SIZE).astype(np.int64)
    assert p_value(np.bincount(drawn, minlength=bound), np.full(bound, 1 / bound)) > ALPHA


def test_integers_have_no_modulo_bias():
    """At three quarters of the range the remainder alone would favour the lower third twofold."""
    bound = 3 << 62
    distribution = np.full(3, 1 / 3)
    thirds = (integers(bound, 200_000) >> np.uint64(62)).astype(np.int64)
    assert p_value(np.bincount(thirds, minlength=3), distribution) > ALPHA
    biased = draw_bytes(8 * 200_000, SYSTEM).view(np.uint64) % np.uint64(bound)
    assert p_value(np.bincount((biased >> np.uint64(62)).astype(np.int64), minlength=3), distribution) < ALPHA


def test_integers_reject_what_lies_beyond_a_multiple_of_the_bound(words_source):
    bound = (1 << 63) + 1
    largest = (1 << 64) - 1
    assert integers(bound, 1, words_source(largest, bound, bound - 1)).tolist() == [bound - 1]
    assert integers(1 << 64, 1, words_source(largest)).tolist() == [largest]


@pytest.mark.parametrize("bound", [0, -1, (1 << 64) + 1])
def test_impossible_bounds_are_refused(bound):
    with pytest.raises(ParameterError):
        integers(bound, 1)


def geometric_pmf(ratio: float, length: int) -> np.ndarray:
    pmf = (1 - ratio) * ratio ** np.arange(length)
    return np.append(pmf, ratio**length)


@pytest.mark.parametrize("ratio", [Dyadic(0, 4), Dyadic(1, 4), Dyadic(1, 1), Dyadic(14, 4), Dyadic.at_least(0.99)])
def test_geometric_has_its_distribution(ratio):
    """Every value up to where little is left; a ratio off by ten per cent must be rejected."""
    length = max(1, int(np.ceil(np.log(1e-4) / np.log(max(float(ratio), 1e-9)))))
    drawn = geometric(ratio, 500_000)
    table = np.bincount(np.minimum(drawn, length), minlength=length + 1)
    assert p_value(table, geometric_pmf(float(ratio), length)) > ALPHA
    if ratio.numerator:
        assert p_value(table, geometric_pmf(float(ratio) * 0.9, length)) < ALPHA


def test_geometric_beyond_its_table_goes_on():
    """Values past the table are as likely as the distribution says; a cut tail must be rejected."""
    ratio = Dyadic.at_least(0.999)
    drawn = geometric(ratio, 300_000)
    edges = np.array([0, 500, 1000, 2000, 4000, 6000, 8000])
    distribution = np.diff(np.append(1 - float(ratio) ** edges, 1.0))
    table = np.bincount(np.searchsorted(edges, drawn, side="right") - 1, minlength=len(edges))
    assert p_value(table, distribution) > ALPHA
    cut = np.minimum(drawn, 4096)
    assert (
        p_value(np.bincount(np.searchsorted(edges, cut, side="right") - 1, minlength=len(edges)), distribution) < ALPHA
    )


def test_geometric_refuses_certainty():
    with pytest.raises(ParameterError):
        geometric(Dyadic(1, 0), 1)


@pytest.mark.parametrize("ratio", [Dyadic(1, 2), Dyadic.at_least(0.9)])
def test_discrete_laplace_has_its_distribution(ratio):
    """The whole two-sided table; a doubled zero (a sign error in disguise) must be rejected."""
    reach = int(np.ceil(np.log(1e-4) / np.log(float(ratio))))
    values = np.arange(-reach, reach + 1)
    pmf = (1 - float(ratio)) / (1 + float(ratio)) * float(ratio) ** np.abs(values)
    pmf = np.append(pmf, 1 - pmf.sum())
    drawn = discrete_laplace(ratio, 500_000)
    inside = np.abs(drawn) <= reach
    table = np.append(np.bincount(drawn[inside] + reach, minlength=len(values)), (~inside).sum())
    assert p_value(table, pmf) > ALPHA
    absolute = np.abs(drawn)
    folded = np.append(np.bincount(absolute[inside] + reach, minlength=len(values)), (~inside).sum())
    assert p_value(folded, pmf) < ALPHA
