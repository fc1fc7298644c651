"""Conversion of users' values to lists and arrays, and their display in error messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import DomainError
from shuffledp.text_values import looks_missing, string_of

_MAX_EXAMPLES = 3
_ALL_NUMBERS = object()


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of the type contain booleans, integers or floating-point numbers."""
    return dtype == np.bool_ or np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.floating)


def as_sequence(values: Iterable[Any]) -> NDArray[Any] | list[Any]:
    """The values as an array or a list; columns of Arrow, pandas and polars are converted."""
    if isinstance(values, np.ma.MaskedArray):
        return list(values.tolist())  # None for masked values
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist())
    if not isinstance(values, np.ndarray) and hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    return values if isinstance(values, np.ndarray) else list(values)


def as_column(values: Iterable[Any]) -> NDArray[Any] | list[Any]:
    """Numbers or booleans of one type as a flat array, other values as a list."""
    column = as_sequence(values)
    if isinstance(column, list) and set(map(type, column)) == {int}:
        column = np.asarray(column)
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise DomainError(f"Values must be a flat array, not one of {column.ndim} dimensions.", ndim=column.ndim)
        return column if is_real(column.dtype) else list(column if column.dtype.kind in "mM" else column.tolist())
    return column


def as_numeric_array(values: Iterable[Any]) -> NDArray[Any]:
    """The array that numpy makes of the values; decimal numbers and large integers become floating-point numbers."""
    column = as_sequence(values)
    try:
        array = np.array(column.tolist() if isinstance(column, np.ndarray) and column.dtype == object else column)
    except ValueError:
        raise DomainError("The values must be one number or boolean from each user.") from None
    if array.dtype == object and all(isinstance(value, Decimal) or is_number(value) for value in array.flat):
        array = np.array([_as_float(value) for value in array.flat], dtype=np.float64).reshape(array.shape)
    return array


def _as_float(value: Any) -> float:
    """The number, infinite if it exceeds every floating-point number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN of decimal
        return math.nan


def is_number(value: object) -> bool:
    """Whether the value is a boolean, an integer or a floating-point number of Python or numpy."""
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))


def is_missing(value: object) -> bool:
    """Whether the value is missing, or a marker that people write for missing values."""
    if isinstance(value, str):
        return not value.strip() or looks_missing(value)
    return string_of(value) is None and not isinstance(value, int) and str(value) in ("None", "nan", "<NA>", "NaT")


def describe_non_number(values: Iterable[Any]) -> str:
    """The end of an error message that shows the first value that is not a number; empty if all are numbers."""
    column = as_sequence(values)
    other = next((value for value in column if not isinstance(value, Decimal) and not is_number(value)), _ALL_NUMBERS)
    if other is _ALL_NUMBERS:
        return ""
    return f", not {displayed(other)!r}{'; leave missing values out' if is_missing(other) else ''}"


def displayed(value: Any) -> Any:
    """The value for an error message: a numpy scalar as a Python object."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)  # item() of one with nanoseconds is an integer
    return value.item() if isinstance(value, np.generic) else value


def distinct_examples(values: NDArray[Any] | list[Any], positions: NDArray[np.intp]) -> list[Any]:
    """A few distinct values at the given positions, for an error message."""
    distinct: dict[str, Any] = {}
    for position in positions[:1000].tolist():
        distinct.setdefault(repr(values[position]), values[position])
    return list(distinct.values())[:_MAX_EXAMPLES]
