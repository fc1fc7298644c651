"""Checks of epsilon, delta, users, confidence and risk: what is out of range is refused in one sentence."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.checks import (
    check_claim,
    check_confidence,
    check_delta,
    check_epsilon,
    check_local_epsilon,
    check_number_of_users,
    check_open_unit,
    check_target,
    check_users,
)
from shuffledp.errors import ParameterError

WRONG = [math.nan, -math.inf, -1.0]


@pytest.mark.parametrize("wrong", WRONG)
def test_numbers_out_of_range(wrong):
    for check in (check_epsilon, check_delta, check_confidence):
        with pytest.raises(ParameterError):
            check(wrong)
    for target in ((wrong, 1e-6), (1.0, wrong), (math.inf, 1e-6), (701, 1e-6), (1e-13, 1e-6), (1.0, 1e-301)):
        with pytest.raises(ParameterError):
            check_target(*target)
    for claim in ((wrong, 0.0), (1.0, wrong), (701, 0.0), (1.0, 1e-301), (1.0, 1.0)):
        with pytest.raises(ParameterError):
            check_claim(*claim)
    with pytest.raises(ParameterError):
        check_users(10, wrong)


@pytest.mark.parametrize("wrong", ["1", None, 1j, [1.0]])
def test_what_is_no_number(wrong):
    for target in ((wrong, 1e-6), (1.0, wrong)):
        with pytest.raises(ParameterError, match="must be a number"):
            check_target(*target)
    with pytest.raises(ParameterError, match="must be a number"):
        check_users(10, wrong)
    with pytest.raises(ParameterError, match="must be an integer"):
        check_users(wrong, 1.0)


def test_a_huge_number_of_users_is_not_printed():
    with pytest.raises(ParameterError, match="not a number of 16,610 bits") as refused:
        check_users(10**5000, 1.0)  # Python refuses to print more than 4,300 digits
    assert len(str(refused.value)) < 100
    with pytest.raises(ParameterError, match=r"not 1,000,000,000,000,001\."):
        check_users(10**15 + 1, 1.0)


def test_what_is_accepted():
    for epsilon, delta in ((1, 1e-6), (np.float64(1), np.float32(0.5)), (Fraction(1, 3), Fraction(1, 10))):
        check_target(epsilon, delta)
    check_claim(0, 0)
    check_users(np.int64(2), 1)


@pytest.mark.parametrize("wrong", [*WRONG, 0.0, 1.0, math.inf])
def test_what_must_lie_strictly_between_0_and_1(wrong):
    with pytest.raises(ParameterError, match="risk must lie strictly between 0 and 1") as refused:
        check_open_unit("risk", wrong)
    assert list(refused.value.values) == ["risk"]


@pytest.mark.parametrize("wrong", [*WRONG, 0.0, 701.0])
def test_local_epsilon_out_of_range(wrong):
    with pytest.raises(ParameterError, match="local epsilon"):
        check_local_epsilon(wrong)


def test_number_of_users():
    for wrong in (True, 2.0, math.nan, "2", 0, 11):
        with pytest.raises(ParameterError, match="user"):
            check_number_of_users(wrong, max_users=10)
    for right in (1, 10, np.int64(10)):
        check_number_of_users(right, max_users=10)
    with pytest.raises(ParameterError, match="At least 2 users"):
        check_number_of_users(1, min_users=2)
