"""tanh(epsilon / 2) against epsilon / sqrt(m): crossing points and the constants 5 and 4.683 of Corollary 24."""

import math
from decimal import Decimal, localcontext

import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.bounds.hyperbolic import crossing, least_m, surplus


def test_the_crossing_for_5_is_known_to_27_digits():
    low, high = crossing(5, digits=27)
    assert (low, high) == (Decimal("1.204282213777793208017925514"), Decimal("1.204282213777793208017925515"))
    with localcontext(prec=45):  # tanh(x/2) = 1 - 2 / (e^x + 1): another formula than that of the code
        signs = [1 - 2 / (end.exp() + 1) > end / Decimal(5).sqrt() for end in (low, high)]
    assert signs == [True, False]


def test_for_4_and_less_there_is_no_crossing_above_0():
    assert crossing(4) == crossing(1) == (0, 0)
    assert all(surplus(step / 1000, 4) < 0 for step in range(1, 3000))


@pytest.mark.parametrize("m", [5, 6, 9, 100])
def test_the_surplus_changes_its_sign_at_the_crossing_and_nowhere_else(m):
    point = float(crossing(m, digits=12)[0])
    steps = [point * step / 500 for step in range(1, 1500)]
    assert all((surplus(epsilon, m) > 0) == (epsilon < point) for epsilon in steps if abs(epsilon - point) > 1e-9)


def test_the_least_real_m_up_to_epsilon_1():
    assert least_m(1.0) == pytest.approx(1 / math.tanh(0.5) ** 2) == pytest.approx(4.6827, abs=1e-4)
    assert surplus(1.0, 4.682) < 0 < surplus(1.0, 4.683)


def test_bad_arguments_are_rejected():
    for arguments in ((0, 5), (5, 0), (5, 99)):
        with pytest.raises(ParameterError):
            crossing(*arguments)
    with pytest.raises(ParameterError):
        least_m(float("nan"))
