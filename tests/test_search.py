"""Searches for the least number that meets a condition: exact at jumps, and never satisfied by a NaN."""

import math

import pytest

from shuffledp.search import (
    Bracket,
    bisect,
    bisect_integers,
    bisect_ratio,
    find_bracket,
    least_integer,
    least_integer_near,
    narrow,
)

JUMP = math.pi


def falling(x: float) -> float:
    return JUMP - x


def jump(x: float) -> float:
    return 1.0 if x < JUMP else -1.0


def undefined_below(x: float) -> float:
    """NaN stands for what could not be computed; it must count as too little noise."""
    return math.nan if x < JUMP else -1.0


@pytest.mark.parametrize("least", [1, 2, 3, 7, 8, 1000, 10**18 + 1])
def test_least_integers(least):
    assert least_integer(lambda n: n >= least) == least
    assert bisect_integers(lambda n: n >= least, 0, 2 * least) == least
    assert least_integer(lambda n: n >= least, limit=least - 1 if least > 1 else None) == (1 if least == 1 else None)


@pytest.mark.parametrize("guess", [-5, 0, 6, 7, 8, 90, 200])
@pytest.mark.parametrize("least", [0, 1, 7, 99, 100])
@pytest.mark.parametrize("step", [1, 10])
def test_least_integers_near_a_guess(guess, least, step):
    points = []

    def holds(n: int) -> bool:
        points.append(n)
        return n >= least

    assert least_integer_near(holds, guess, -1, 100, step=step) == least
    assert len(points) == len(set(points))
    assert all(0 <= point < 100 for point in points)


def test_bisection_ends_where_the_condition_holds():
    for tolerance in ({"absolute": 1e-9}, {"relative": 1e-9}, {"steps": 40}):
        x = bisect(lambda x: x >= JUMP, 0.0, 8.0, **tolerance)
        assert JUMP <= x <= JUMP + 1e-8
    low, high = bisect_ratio(lambda x: x >= JUMP, 0.1, 100.0, ratio=1 + 1e-9)
    assert low < JUMP <= high <= low * (1 + 1e-9)


@pytest.mark.parametrize("excess", [falling, jump, undefined_below])
@pytest.mark.parametrize("guess", [0.0, 3.0, 3.3, 10.0])
def test_the_upper_end_of_a_bracket_is_enough(excess, guess):
    bracket = find_bracket(excess, guess, 0.0, 10.0, step=0.1, growth=2.0)
    assert bracket is not None
    assert bracket.low < JUMP <= bracket.high
    x = narrow(
        excess,
        bracket,
        next_point=lambda bracket: bracket.midpoint,
        enough=lambda bracket: bracket.width < 1e-9,
    )
    assert JUMP <= x < JUMP + 1e-8
    assert excess(x) <= 0


def test_the_illinois_method_needs_few_steps():
    evaluated = []

    def curve(x: float) -> float:
        evaluated.append(x)
        return math.exp(-x) - math.exp(-JUMP)

    x = narrow(
        curve,
        Bracket(0.0, curve(0.0), 10.0, curve(10.0)),
        next_point=lambda bracket: bracket.secant_from_low(1e-10),
        enough=lambda bracket: bracket.width < 1e-8,
        steps=60,
    )
    assert curve(x) <= 0
    assert x == pytest.approx(JUMP, abs=1e-7)
    assert len(evaluated) < 40


@pytest.mark.parametrize("nothing", [lambda _: 1.0, lambda _: math.nan, lambda _: math.inf])
def test_where_nothing_is_enough_there_is_no_bracket(nothing):
    assert find_bracket(nothing, 1.0, 0.0, 10.0, step=0.5, growth=2.0) is None


def test_where_the_least_is_enough_both_ends_are_there():
    bracket = find_bracket(lambda _: -1.0, 5.0, 0.5, 10.0, step=0.5, growth=2.0)
    assert bracket is not None
    assert (bracket.low, bracket.high) == (0.5, 0.5)
