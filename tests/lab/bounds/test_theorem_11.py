"""The probability that the error of Theorem 11 (ii) is exceeded, computed and enumerated."""

import math

import pytest
from scipy.stats import binom

from shuffledp.lab.bounds.theorem_11 import error_exceeds, theorem_11_failure


@pytest.mark.parametrize(
    ("users", "absence", "radius"), [(9, 0.3, 2.5), (20, 0.45, 9.2), (30, 0.1, 1.0), (6, 0.5, 5.9)]
)
def test_the_worst_count_by_enumeration(users, absence, radius):
    mean, worst = users * absence, 0.0
    for count in range(users + 1):
        errors = [abs(mean - missing) if missing < count else count for missing in range(users + 1)]
        worst = max(worst, sum(binom.pmf(k, users, absence) for k, error in enumerate(errors) if error > radius))
    assert error_exceeds(users, absence, radius) == pytest.approx(worst, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.5), (1.0, 1e-6), (0.2, 1e-3), (0.05, 1e-10)])
def test_theorem_11_ii_holds_down_to_its_smallest_beta(epsilon, delta):
    users = math.ceil(100 / epsilon**2 * math.log(2 / delta))
    for more in (1, 3, 100):
        for beta in (0.5, 0.05, delta**25):
            assert theorem_11_failure(more * users, epsilon, delta, beta) <= beta


def test_the_first_term_is_needed():
    """Without the noise's mean the bound would be broken: a count just below it is estimated as 0."""
    users, epsilon, delta, beta = 10_000, 1.0, 1e-6, 0.05
    absence = 50 * math.log(2 / delta) / (epsilon**2 * users)
    spread = math.sqrt(200 * math.log(2 / delta) * math.log(2 / beta)) / epsilon
    assert error_exceeds(users, absence, spread) > 0.4
