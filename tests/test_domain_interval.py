"""Numbers between two bounds: what is no number between them is refused, or moved if asked."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shuffledp.domain import Interval, check_positions
from shuffledp.errors import DomainError

NUMBERS = st.floats(-1e100, 1e100)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (1, 0),
        (0, 0),
        (math.nan, 1),
        (0, math.nan),
        (-math.inf, 0),
        (0, math.inf),
        (-1e308, 1e308),
        (0, 1e308),
        (-1e291, 0),
    ],
)
def test_bounds_that_mean_nothing(lower, upper):
    with pytest.raises(DomainError):
        Interval(lower, upper)


@pytest.mark.parametrize(("lower", "upper"), [(0.5, 3), (0, 3.5), (-0.25, 0.25)])
def test_whole_numbers_need_whole_bounds(lower, upper):
    Interval(lower, upper)
    with pytest.raises(DomainError, match="integer bounds"):
        Interval(lower, upper, whole=True)


def test_width_and_steps():
    assert Interval(-3, 4).width == 7
    assert Interval(-3, 4).steps is None
    assert Interval(-3, 4, whole=True).steps == 7
    assert Interval(0, 2**60, whole=True).steps == 2**60


@given(NUMBERS, NUMBERS, st.lists(st.floats(0, 1), max_size=5))
def test_places_lie_between_0_and_1(lower, upper, shares):
    assume(lower < upper)
    interval = Interval(lower, upper)
    values = [min(max(lower + share * (upper - lower), lower), upper) for share in shares]
    places = interval.encode_all([*values, lower, upper])
    assert places[-2:].tolist() == [0.0, 1.0]
    assert check_positions(places) is places
    assert np.all(np.abs(lower + places[:-2] * interval.width - values) <= 1e-9 * max(abs(lower), abs(upper), 1e-300))


@given(NUMBERS, NUMBERS, st.lists(st.floats(allow_nan=False), max_size=8))
def test_clipping_moves_to_the_nearer_bound(lower, upper, values):
    assume(lower < upper)
    interval = Interval(lower, upper)
    places = interval.encode_all(values, clip=True)
    for value, place in zip(values, places.tolist(), strict=True):
        if value <= lower:
            assert place == 0.0
        elif value >= upper:
            assert place == 1.0
        else:
            assert 0.0 <= place <= 1.0


@pytest.mark.parametrize("value", [math.nan, -0.001, 1.001, math.inf, -math.inf])
@pytest.mark.parametrize("before", [0, 3])
def test_one_number_outside_is_refused(value, before):
    with pytest.raises(DomainError, match=f"1 of {before + 1} values"):
        Interval(0, 1).encode_all([0.5] * before + [value])


def test_nothing_moves_what_is_no_number():
    with pytest.raises(DomainError, match="nan"):
        Interval(0, 1).encode_all([0.5, math.nan], clip=True)


def test_infinite_numbers_are_moved_like_large_ones():
    assert Interval(0, 10).encode_all([math.inf, -math.inf], clip=True).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("value", [0.5, 30.5, math.nan, 1e-9])
def test_whole_numbers_are_not_rounded(value):
    for clip in (False, True):
        with pytest.raises(DomainError, match="integers"):
            Interval(0, 10, whole=True).encode_all([1, value], clip=clip)


@pytest.mark.parametrize(
    "values",
    [["1", "0"], [None, 1.0], [[0.5], [0.5]], "01", [b"1"], [np.datetime64("2026-01-01")], [object()], [2**70]],
)
def test_what_is_not_one_number_from_each_user(values):
    with pytest.raises(DomainError):
        Interval(0, 1).encode_all(values)


def test_kinds_of_numbers():
    for values in ([True, False], np.array([1, 0], dtype=np.uint8), (1.0, 0.0), iter([1, 0]), np.float32([1, 0])):
        assert Interval(0, 1).encode_all(values).tolist() == [1.0, 0.0]
    assert Interval(0, 1).encode_all([]).tolist() == []


def test_the_narrowest_interval():
    assert Interval(0.0, 5e-324).encode_all([0.0, 5e-324]).tolist() == [0.0, 1.0]
    assert Interval(1.0, math.nextafter(1, 2)).encode_all([1.0, math.nextafter(1, 2)]).tolist() == [0.0, 1.0]
    assert Interval(1e16, 1e16 + 2, whole=True).encode_all([1e16 + 2]).tolist() == [1.0]


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.5, 1.0000001]),
        np.array([-1e-300]),
        np.array([0.5, math.nan]),
        np.array([math.nan, 0.5]),
        np.array([math.inf]),
        np.array([[0.5]]),
        np.array(0.5),
        np.array(["0.5"]),
        np.array([0.5 + 0j]),
    ],
)
def test_places_outside_are_refused(values):
    with pytest.raises(DomainError):
        check_positions(values)


def test_places_that_are_fine():
    assert check_positions(np.array([0, 1])).dtype == np.float64
    assert check_positions(np.array([], dtype=float)).tolist() == []


def test_complex_numbers_are_refused():
    for refuse in (Interval(0, 1).encode_all, check_positions):
        with pytest.raises(DomainError):
            refuse(np.array([0.5 + 3j]))
