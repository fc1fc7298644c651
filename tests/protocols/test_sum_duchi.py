"""One bit per number in the local model."""

import math

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import DomainError
from shuffledp.protocols.sum.duchi import DuchiSum

UNIT = Interval(0.0, 1.0)


def protocol(epsilon: float = 1.0, users: int = 1000) -> DuchiSum:
    return DuchiSum.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain=UNIT)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("place", [0.0, 0.25, 1.0])
def test_the_bit_has_the_papers_probability(epsilon, place):
    e, u = math.exp(epsilon), 2 * place - 1
    expected = 1 / 2 + u * (e - 1) / (2 * (e + 1))
    assert float(protocol(epsilon).report_pmf(place)[0, 1]) == pytest.approx(expected, rel=1e-9)


def test_the_variance_is_the_papers():
    """n (c^2 - u^2) / 4 with c = (e + 1) / (e - 1) at epsilon = 1."""
    c, places = (math.e + 1) / (math.e - 1), np.array([0.0, 0.3, 1.0])
    expected = np.sum(c**2 - (2 * places - 1) ** 2) / 4
    assert protocol().variance(places) == pytest.approx(expected, rel=1e-9)
    assert protocol().expected_error().rmse == pytest.approx(c / 2 * math.sqrt(1000), rel=1e-9)


def test_a_place_outside_is_refused():
    with pytest.raises(DomainError, match=r"between 0\.0 and 1\.0"):
        protocol().randomize_all(np.array([0.5, 1.5]))
