"""Noise of total 0: complete tables against the exact distribution, planted faults, large sizes, bad input."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.randomness import Dyadic, InsecureSeededRandomness, conditioned_laplace, discrete_laplace
from shuffledp.randomness.conditioned import uniform_composition, uniform_subset
from shuffledp.testing.statistics import ALPHA, p_value

pytestmark = pytest.mark.kernels


def exact_table(ratio, size, reach):
    """All vectors of total 0 with numbers up to ``reach``, and their probabilities among these."""
    vectors = [(*x, -sum(x)) for x in product(range(-reach, reach + 1), repeat=size - 1) if abs(sum(x)) <= reach]
    weights = [ratio ** sum(map(abs, vector)) for vector in vectors]
    return vectors, np.array(weights) / math.fsum(weights)


def p_of(vectors, masses, drawn):
    seen = Counter(drawn)
    counts = np.array([seen.get(vector, 0) for vector in vectors])
    return p_value(counts, masses)


@pytest.mark.parametrize(("size", "ratio"), [(2, 0.5), (3, 0.375), (4, 0.25)])
def test_the_whole_table_is_exact(size, ratio):
    """40,000 vectors against the whole table, alpha = 1e-7; noise of another ratio and independent noise that is only
    projected to total 0 are rejected."""
    draws = 40_000
    vectors, masses = exact_table(ratio, size, 12)
    drawn = [tuple(conditioned_laplace(ratio, size).tolist()) for _ in range(draws)]
    assert all(sum(vector) == 0 for vector in drawn)
    assert p_of(vectors, masses, [vector for vector in drawn if max(map(abs, vector)) <= 12]) > ALPHA
    less = [tuple(conditioned_laplace(Dyadic.of(0.9375 * ratio), size).tolist()) for _ in range(draws)]
    assert p_of(vectors, masses, [vector for vector in less if max(map(abs, vector)) <= 12]) <= ALPHA
    free = discrete_laplace(ratio, draws * (size - 1)).reshape(draws, size - 1)
    moved = [(*row, -sum(row)) for row in free.tolist()]
    assert p_of(vectors, masses, [vector for vector in moved if max(map(abs, vector)) <= 12]) <= ALPHA


@pytest.mark.parametrize(("total", "parts"), [(3, 3), (1, 5), (6, 2), (0, 4), (5, 1)])
def test_compositions_are_uniform(total, parts):
    """20,000 compositions against the whole table, alpha = 1e-7."""
    every = [x for x in product(range(total + 1), repeat=parts) if sum(x) == total]
    drawn = [tuple(uniform_composition(total, parts).tolist()) for _ in range(20_000)]
    assert len(every) == math.comb(total + parts - 1, parts - 1)
    assert p_of(every, np.full(len(every), 1 / len(every)), drawn) > ALPHA
    if len(every) > 4:  # sorted draws are compositions too, but not uniform ones
        sloppy = [tuple(sorted(composition)) for composition in drawn]
        assert p_of(every, np.full(len(every), 1 / len(every)), sloppy) <= ALPHA


def test_subsets_of_a_large_population_are_distinct_and_sorted():
    for population, size in ((1 << 30, 5_000), (10_000, 9_000), (10, 0), (10, 10), (1, 1)):
        subset = uniform_subset(population, size)
        assert len(subset) == size == len(np.unique(subset))
        assert np.all(np.diff(subset) > 0)
        assert size == 0 or 0 <= subset[0] <= subset[-1] < population


def test_a_million_numbers_take_linear_time():
    """Their mean square is within six deviations of that of independent noise; the total is exactly 0."""
    ratio = Dyadic.of(0.625)
    drawn = conditioned_laplace(ratio, 10**6)
    assert drawn.sum() == 0
    variance = 2 * 0.625 / 0.375**2
    assert np.mean(drawn.astype(float) ** 2) == pytest.approx(variance, rel=0.02)


def test_few_numbers_and_seeds():
    assert conditioned_laplace(0.5, 0).tolist() == []
    assert conditioned_laplace(0.5, 1).tolist() == [0]
    twice = [conditioned_laplace(0.5, 50, InsecureSeededRandomness(7)).tolist() for _ in range(2)]
    assert twice[0] == twice[1]


def test_bad_input():
    for ratio in (0.0, 1.0):
        with pytest.raises(ParameterError, match="strictly between 0 and 1"):
            conditioned_laplace(ratio, 3)
    with pytest.raises(ParameterError, match="too many likely values"):
        conditioned_laplace(1 - 2.0**-20, 1000)
    with pytest.raises(ParameterError, match="parts must be at least 1"):
        uniform_composition(3, 0)
