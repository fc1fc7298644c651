"""Dummies of a fixed total: the delta that docs/augmented.md states, by enumeration, and the numbers of its table."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

import shuffledp as sdp

PAGE = Path(__file__).parents[2] / "docs" / "augmented.md"
ROWS = re.findall(
    r"^\| (\d+) \| ([\d,]+) \| ([\d.]+) \| ([\d,]+) \| ([\d.]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


def conditioned(ratio, shift, categories, total):
    """Pr[z_1 = k | sum = total] for k = 0 ... total."""
    weights = ratio ** np.abs(np.arange(total + 1.0) - shift)
    others = np.array([1.0])
    for _ in range(categories - 1):
        others = np.convolve(others, weights)[: total + 1]
    masses = weights * others[::-1]
    return masses / masses.sum()


def enumerated(epsilon, ratio, shift, categories, total):
    """The largest divergence of a round and one in which a user moved from one category to another."""
    outcomes = [z for z in itertools.product(range(total + 1), repeat=categories) if sum(z) == total]
    masses = {z: ratio ** sum(abs(count - shift) for count in z) for z in outcomes}
    whole = math.fsum(masses.values())

    def divergence(lost, gained):
        moved = {z: tuple(n - (i == lost) + (i == gained) for i, n in enumerate(z)) for z in outcomes}
        return math.fsum(
            max(0.0, mass - math.exp(epsilon) * masses.get(moved[z], 0.0)) / whole for z, mass in masses.items()
        )

    return max(divergence(*pair) for pair in itertools.permutations(range(categories), 2))


@pytest.mark.parametrize(
    ("epsilon", "shift", "categories", "total"),
    [(1.0, 2, 2, 4), (0.7, 2, 3, 6), (2.3, 2, 3, 7), (1.3, 2, 4, 8), (1, 1, 3, 5)],
)
def test_the_delta_of_a_fixed_total(epsilon, shift, categories, total):
    """Exactly Pr[z_1 = 0 | sum]; with a smaller ratio it is larger than that (planted)."""
    ratio = math.exp(-epsilon / 2)
    exact = enumerated(epsilon, ratio, shift, categories, total)
    assert exact == pytest.approx(conditioned(ratio, shift, categories, total)[0], rel=1e-12)
    smaller = 0.8 * ratio
    wrong = enumerated(epsilon, smaller, shift, categories, total)
    assert wrong > 1.01 * conditioned(smaller, shift, categories, total)[0]


@pytest.mark.parametrize(("categories", "total", "error", "independent", "projected"), ROWS)
def test_the_table(categories, total, error, independent, projected):
    """The least common shift with delta at most 1e-6 at epsilon 1, its total and error, beside the protocol's."""
    size, ratio = int(categories), math.exp(-0.5)
    shift = next(n for n in range(1, 40) if conditioned(ratio, n, size, n * size)[0] <= 1e-6)
    masses = conditioned(ratio, shift, size, shift * size)
    deviation = math.sqrt(float(masses @ np.square(np.arange(len(masses)) - float(shift))))
    assert int(total.replace(",", "")) == shift * size
    assert float(error) == pytest.approx(deviation, rel=5e-3)
    protocol = sdp.find("histogram", "shuffler-laplace").calibrate(
        users=10**6, domain_size=size, epsilon=1.0, delta=1e-6
    )
    assert int(independent.replace(",", "")) == pytest.approx(protocol.mean_dummies, abs=1)
    assert float(projected) == pytest.approx(protocol.expected_error().rmse, rel=5e-3)


def test_the_table_has_rows():
    assert [int(row[0]) for row in ROWS] == [2, 3, 4, 8, 12, 32, 100]
