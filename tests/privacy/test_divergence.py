"""Hockey-stick divergence: upper bounds in floating point, cut tails added."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import DiscretePair, hockey_stick

curves = st.lists(st.integers(0, 1000), min_size=2, max_size=8).filter(lambda weights: sum(weights) > 0)


def normalised(weights):
    return [weight / sum(weights) for weight in weights]


@settings(max_examples=200)
@given(first=curves, second=curves, epsilon=st.floats(0, 3))
def test_it_bounds_the_exact_divergence(first, second, epsilon):
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    if sum(first) == 0 or sum(second) == 0:
        return
    p, q = normalised(first), normalised(second)
    growth = Fraction(math.exp(epsilon))
    exact = sum(max(Fraction(a) - growth * Fraction(b), Fraction(0)) for a, b in zip(p, q, strict=True))
    bound = hockey_stick(p, q, epsilon)
    assert min(exact, Fraction(1)) <= Fraction(bound)
    assert bound <= float(exact) * (1 + 1e-8) + 1e-12


@settings(max_examples=100)
@given(first=curves, second=curves, epsilon=st.floats(0, 3))
def test_the_twin_is_the_product(first, second, epsilon):
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    if sum(first) == 0 or sum(second) == 0:
        return
    p, q = np.array(normalised(first)), np.array(normalised(second))
    pair = DiscretePair.of(p, q)
    product = hockey_stick(np.outer(p, q).ravel(), np.outer(q, p).ravel(), epsilon)
    assert pair.delta_with_reversed_twin(epsilon) == pytest.approx(product, rel=1e-7, abs=1e-13)


def test_a_cut_tail_counts_in_full():
    whole = hockey_stick([0.5, 0.5], [0.5, 0.5], 1.0)
    cut = hockey_stick([0.5, 0.4999], [0.5, 0.5], 1.0)
    assert whole < 1e-300
    assert cut == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_a_meaningless_epsilon_is_refused(epsilon):
    with pytest.raises(ParameterError):
        hockey_stick([0.5, 0.5], [0.1, 0.9], epsilon)
    with pytest.raises(ParameterError):
        DiscretePair.of([0.5, 0.5], [0.1, 0.9]).delta_with_reversed_twin(epsilon)


def test_epsilon_beyond_floats_is_no_surprise():
    assert hockey_stick([0.25, 0.75], [0.0, 1.0], 1e9) == pytest.approx(0.25, rel=1e-8)


@pytest.mark.parametrize(
    ("p", "q"),
    [([], []), ([1.0], [0.5, 0.5]), ([-0.1, 1.1], [0.5, 0.5]), ([0.9, 0.9], [0.5, 0.5]), ([math.nan, 1], [0.5, 0.5])],
)
def test_what_is_no_pair_of_distributions_is_refused(p, q):
    with pytest.raises(ParameterError):
        hockey_stick(p, q, 1.0)
