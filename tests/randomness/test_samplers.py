"""Exact samplers against their laws: whole tables, and the faults they must catch."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.randomness import SYSTEM, Dyadic, bernoulli, discrete_laplace, draw_bytes, geometric, integers
from shuffledp.testing.statistics import ALPHA, p_value

SIZE = 1_000_000


class Scripted:
    """A source that hands out given bytes, then zeros."""

    secure = False

    def __init__(self, script: bytes):
        self.script = script

    def fill(self, out):
        head = self.script[: len(out)]
        out[: len(head)] = np.frombuffer(head, dtype=np.uint8)
        out[len(head) :] = 0
        self.script = self.script[len(out) :]


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
        with pytest.raises((ParameterError, ValueError, OverflowError)):
            make(value)


@pytest.mark.parametrize(
    "probability",
    [Dyadic(1, 1), Dyadic(3, 2), Dyadic(5, 3), Dyadic(77, 8), Dyadic(1000, 13), Dyadic.at_least(0.003), Dyadic(3, 11)],
)
def test_bernoulli_has_its_law(probability):
    """Enough bits for sixty thousand of the rarer kind; a probability off by five per cent must be rejected."""
    share = float(probability)
    size = int(60_000 / min(share, 1 - share))
    ones = int(bernoulli(probability, size).sum())
    assert p_value([size - ones, ones], [1 - share, share]) > ALPHA
    wrong = share * 1.05 if share < 0.5 else share * 0.95
    assert p_value([size - ones, ones], [1 - wrong, wrong]) < ALPHA


def test_bernoulli_at_the_ends():
    assert not bernoulli(Dyadic(0, 64), 1000).any()
    assert bernoulli(Dyadic(1 << 64, 64), 1000).all()
    assert bernoulli(Dyadic(0, 0), 3).tolist() == [False] * 3
    assert bernoulli(Dyadic(1, 0), 3).tolist() == [True] * 3
    assert len(bernoulli(Dyadic(1, 1), 0)) == 0


@given(numerator=st.integers(0, (1 << 20) - 1), drawn=st.integers(0, (1 << 24) - 1))
def test_bernoulli_compares_every_bit(numerator, drawn):
    """The bit is exactly 'the drawn number is below the probability', however many bits that takes."""
    source = Scripted(drawn.to_bytes(3, "big"))
    assert bernoulli(Dyadic(numerator, 20), 1, source)[0] == (Fraction(drawn, 1 << 24) < Fraction(numerator, 1 << 20))


def test_bernoulli_bits_are_independent_across_chunks():
    """Pairs of neighbours over several chunks; reusing a chunk's randomness must be rejected."""
    bits = bernoulli(Dyadic(1, 2), 1 << 21).astype(int)
    law = np.outer([0.75, 0.25], [0.75, 0.25]).ravel()
    assert p_value(np.bincount(2 * bits[::2] + bits[1::2], minlength=4), law) > ALPHA
    lag = 1 << 18
    assert p_value(np.bincount(2 * bits[:-lag:7] + bits[lag::7], minlength=4), law) > ALPHA
    reused = np.tile(bits[:lag], 2)
    assert p_value(np.bincount(2 * reused[:-lag:7] + reused[lag::7], minlength=4), law) < ALPHA


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 255, 256, 257])
def test_integers_are_uniform(bound):
    drawn = integers(bound, SIZE).astype(np.int64)
    assert p_value(np.bincount(drawn, minlength=bound), np.full(bound, 1 / bound)) > ALPHA


def test_integers_have_no_modulo_bias():
    """At three quarters of the range the remainder alone would favour the lower third twofold."""
    bound = 3 << 62
    law = np.full(3, 1 / 3)
    thirds = (integers(bound, 200_000) >> np.uint64(62)).astype(np.int64)
    assert p_value(np.bincount(thirds, minlength=3), law) > ALPHA
    biased = draw_bytes(8 * 200_000, SYSTEM).view(np.uint64) % np.uint64(bound)
    assert p_value(np.bincount((biased >> np.uint64(62)).astype(np.int64), minlength=3), law) < ALPHA


def test_integers_reject_what_lies_beyond_a_multiple_of_the_bound():
    bound = (1 << 63) + 1
    words = [(1 << 64) - 1, bound, bound - 1]
    source = Scripted(b"".join(word.to_bytes(8, "little") for word in words))
    assert integers(bound, 1, source).tolist() == [bound - 1]
    assert integers(1 << 64, 1, Scripted(b"\xff" * 8)).tolist() == [(1 << 64) - 1]


@pytest.mark.parametrize("bound", [0, -1, (1 << 64) + 1])
def test_impossible_bounds_are_refused(bound):
    with pytest.raises(ParameterError):
        integers(bound, 1)


def geometric_law(ratio: float, length: int) -> np.ndarray:
    law = (1 - ratio) * ratio ** np.arange(length)
    return np.append(law, ratio**length)


@pytest.mark.parametrize("ratio", [Dyadic(0, 4), Dyadic(1, 4), Dyadic(1, 1), Dyadic(14, 4), Dyadic.at_least(0.99)])
def test_geometric_has_its_law(ratio):
    """Every value up to where little is left; a ratio off by five per cent must be rejected."""
    length = max(1, int(np.ceil(np.log(1e-4) / np.log(max(float(ratio), 1e-9)))))
    drawn = geometric(ratio, 500_000)
    table = np.bincount(np.minimum(drawn, length), minlength=length + 1)
    assert p_value(table, geometric_law(float(ratio), length)) > ALPHA
    if ratio.numerator:
        assert p_value(table, geometric_law(float(ratio) * 0.95, length)) < ALPHA


def test_geometric_beyond_its_table_goes_on():
    """Values past the table are as likely as the law says; a cut tail must be rejected."""
    ratio = Dyadic.at_least(0.999)
    drawn = geometric(ratio, 300_000)
    edges = np.array([0, 500, 1000, 2000, 4000, 6000, 8000])
    law = np.diff(np.append(1 - float(ratio) ** edges, 1.0))
    table = np.bincount(np.searchsorted(edges, drawn, side="right") - 1, minlength=len(edges))
    assert p_value(table, law) > ALPHA
    cut = np.minimum(drawn, 4096)
    assert p_value(np.bincount(np.searchsorted(edges, cut, side="right") - 1, minlength=len(edges)), law) < ALPHA


def test_geometric_refuses_certainty():
    with pytest.raises(ParameterError):
        geometric(Dyadic(1, 0), 1)


@pytest.mark.parametrize("ratio", [Dyadic(1, 2), Dyadic.at_least(0.9)])
def test_discrete_laplace_has_its_law(ratio):
    """The whole two-sided table; a doubled zero (a sign error in disguise) must be rejected."""
    reach = int(np.ceil(np.log(1e-4) / np.log(float(ratio))))
    values = np.arange(-reach, reach + 1)
    law = (1 - float(ratio)) / (1 + float(ratio)) * float(ratio) ** np.abs(values)
    law = np.append(law, 1 - law.sum())
    drawn = discrete_laplace(ratio, 500_000)
    inside = np.abs(drawn) <= reach
    table = np.append(np.bincount(drawn[inside] + reach, minlength=len(values)), (~inside).sum())
    assert p_value(table, law) > ALPHA
    absolute = np.abs(drawn)
    folded = np.append(np.bincount(absolute[inside] + reach, minlength=len(values)), (~inside).sum())
    assert p_value(folded, law) < ALPHA
