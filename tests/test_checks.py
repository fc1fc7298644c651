"""Checks of epsilon, delta, users and confidence: what is no number or out of range is refused in one sentence."""

import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.checks import check_claim, check_confidence, check_delta, check_epsilon, check_target, check_users
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
