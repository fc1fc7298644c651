"""What every sampler takes for a probability and for a source of randomness, and what it refuses."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.randomness import (
    SYSTEM,
    Dyadic,
    InsecureSeededRandomness,
    SystemRandomness,
    bernoulli,
    bernoulli_bits,
    bernoulli_indices,
    binomial,
    binomials,
    discrete_laplace,
    draw_bytes,
    draw_words,
    geometric,
    integers,
    logarithmic,
    negative_binomial,
    poisson,
    round_randomly,
    scattered_negative_binomial,
    uniform_counts,
)

pytestmark = pytest.mark.usefixtures("path")

MANY = 10_000  # past what is drawn without the kernels

WITH_A_PROBABILITY = {
    "bernoulli": lambda value, source=SYSTEM: bernoulli(value, 100, source),
    "many bernoulli": lambda value, source=SYSTEM: bernoulli(value, MANY, source),
    "bernoulli_bits": lambda value, source=SYSTEM: bernoulli_bits(value, 100, source),
    "many bernoulli_bits": lambda value, source=SYSTEM: bernoulli_bits(value, MANY, source),
    "bernoulli_indices": lambda value, source=SYSTEM: bernoulli_indices(value, 100, source),
    "many bernoulli_indices": lambda value, source=SYSTEM: bernoulli_indices(value, MANY, source),
    "binomial": lambda value, source=SYSTEM: binomial(10, value, 100, source),
    "binomials": lambda value, source=SYSTEM: binomials(np.arange(1, 100), value, source),
    "geometric": lambda value, source=SYSTEM: geometric(value, 100, source),
    "discrete_laplace": lambda value, source=SYSTEM: discrete_laplace(value, 100, source),
    "logarithmic": lambda value, source=SYSTEM: logarithmic(value, 100, source),
    "negative_binomial": lambda value, source=SYSTEM: negative_binomial(Fraction(5, 2), value, 100, source),
    "scattered_negative_binomial": lambda value, source=SYSTEM: scattered_negative_binomial(
        Fraction(5, 2), value, 100, source
    )[1],
}
WITH_A_SOURCE = {name: lambda source, draw=draw: draw(0.25, source) for name, draw in WITH_A_PROBABILITY.items()} | {
    "draw_bytes": lambda source: draw_bytes(8, source),
    "draw_words": lambda source: draw_words(8, np.uint64, source),
    "integers": lambda source: integers(6, 100, source),
    "many integers": lambda source: integers(6, MANY, source),
    "poisson": lambda source: poisson(Fraction(1, 2), 100, source),
    "round_randomly": lambda source: round_randomly(np.array([0.5]), source),
    "uniform_counts": lambda source: uniform_counts(100, 7, source),
}


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0.3, Dyadic(0x13333333333333, 54)),
        (Fraction(3, 8), Dyadic(3, 3)),
        (np.float64(0.75), Dyadic(3, 2)),
        (np.float32(0.1), Dyadic(0xCCCCCD, 27)),
    ],
)
def test_a_plain_number_is_drawn_with_exactly(value, exact):
    for name, draw in WITH_A_PROBABILITY.items():
        first, second = (draw(each, InsecureSeededRandomness(3)) for each in (value, exact))
        assert np.array_equal(first, second), name


def test_certain_outcomes():
    for never in (0, 0.0, -0.0, Fraction(0), np.int64(0)):
        assert not bernoulli(never, 100).any()
        assert binomial(10, never, 2).tolist() == [0, 0]
    for always in (1, 1.0, Fraction(1), np.int64(1)):
        assert bernoulli(always, 100).all()
        assert binomial(10, always, 2).tolist() == [10, 10]


@given(numerator=st.integers(0, 1 << 300), bits=st.integers(0, 300))
@example(numerator=(1 << 200) + 1, bits=201)
def test_a_fraction_over_a_power_of_two_is_taken_exactly(numerator, bits):
    """Also where no float is that number."""
    value = Fraction(numerator, 1 << max(bits, numerator.bit_length()))
    assert Dyadic.of(value).fraction == value


@given(value=st.fractions(0, 1))
def test_any_other_fraction_is_refused_and_never_rounded(value):
    if value.denominator.bit_count() == 1:
        assert Dyadic.of(value).fraction == value
    else:
        with pytest.raises(ParameterError, match="not an integer over a power of two"):
            Dyadic.of(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "nan is not a probability between 0 and 1"),
        (float("inf"), "inf is not a probability between 0 and 1"),
        (float("-inf"), "-inf is not a probability between 0 and 1"),
        (np.float32("nan"), "nan is not a probability between 0 and 1"),
        (-0.1, "-0.1 is not a probability between 0 and 1"),
        (1.5, "1.5 is not a probability between 0 and 1"),
        (2, "2 is not a probability between 0 and 1"),
        (Fraction(-1, 2), "-1/2 is not a probability between 0 and 1"),
        (Fraction(1, 3), "A fraction near 0.333333 is not an integer over a power of two"),
        (Fraction(1, 1 << 70_000), "power of two up to 2^65536"),
        (Fraction((1 << 70_000) - 1, 1 << 70_000), "power of two up to 2^65536"),
        ("0.5", "not an object of type str"),
        (b"1", "not an object of type bytes"),
        (None, "not an object of type NoneType"),
        ([0.5], "not an object of type list"),
        (np.full(1000, 0.5), "not an object of type ndarray"),
        (0.5j, "not an object of type complex"),
        (Decimal("0.5"), "not an object of type Decimal"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_probability_is_refused_in_one_line(value, words):
    for name, draw in WITH_A_PROBABILITY.items():
        with pytest.raises(ParameterError) as raised:
            draw(value)
        message = str(raised.value)
        assert words in message, name
        assert "\n" not in message, name
        assert len(message) < 150, name


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (5, "an object of type int"),
        (None, "an object of type NoneType"),
        ("SYSTEM", "an object of type str"),
        (np.random.default_rng(), "an object of type Generator"),
        (SystemRandomness, "the class SystemRandomness"),
    ],
    ids=["int", "None", "str", "Generator", "class"],
)
def test_what_is_no_source_is_refused_in_one_line(source, words):
    expected = f"Random bits cannot come from {words}; give SYSTEM, or InsecureSeededRandomness(seed) in tests."
    for name, draw in WITH_A_SOURCE.items():
        with pytest.raises(ParameterError) as raised:
            draw(source)
        assert str(raised.value) == expected, name


@pytest.mark.parametrize("bound", [2.5, 2.0, "6", None, 0, -1, (1 << 64) + 1])
@pytest.mark.parametrize("size", [4, MANY])
def test_the_bound_of_integers_is_a_whole_number(bound, size):
    with pytest.raises(ParameterError, match="must be an integer between 1 and 2"):
        integers(bound, size)


def test_a_bound_may_be_of_numpy():
    assert integers(np.int32(1), 5).tolist() == [0] * 5


@pytest.mark.parametrize(("numerator", "bits"), [(0.5, 64), (1, 64.0), ("1", 64)])
def test_a_dyadic_number_is_made_of_whole_numbers(numerator, bits):
    with pytest.raises(ParameterError, match=r"Dyadic\.of converts other exact numbers"):
        Dyadic(numerator, bits)


@pytest.mark.parametrize("seed", [1.5, "x", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ParameterError, match="seed must be an integer"):
        InsecureSeededRandomness(seed)
