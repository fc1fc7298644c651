"""Order of rows by a column of numbers, dates or times, from the earliest to the latest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.engines.strings import as_strings
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.text_values import parse_number

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc


def order_keys(
    batches: Sequence[Any], name: str, missing: Categories | None = None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """A number per row that is larger for a later row, and which rows have one.

    Strings must all be numbers, or all dates or times as 2026-01-31, 2026-01-31 12:30:00 or 2026-01-31T12:30:00Z.
    """
    arrays = [batch.dictionary_decode() if pa.types.is_dictionary(batch.type) else batch for batch in batches]
    kinds = {array.type for array in arrays if len(array)} or {pa.int64()}
    if len(kinds) > 1 or missing is not None or not _is_ordered(next(iter(kinds))):
        for kind in kinds:
            _check(kind, name)
        return _keys_of_strings(pa.chunked_array([as_strings(array, missing) for array in arrays]), name)
    column = pa.chunked_array([array for array in arrays if len(array)], type=next(iter(kinds)))
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.float64())
        column = pc.if_else(pc.is_nan(column), None, column)
    elif not pa.types.is_integer(column.type):
        column = pc.cast(column, pa.int32() if column.type.bit_width == 32 else pa.int64())
    return _filled(column)


def _is_ordered(kind: pa.DataType) -> bool:
    temporal = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return temporal or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _check(kind: pa.DataType, name: str) -> None:
    if not (_is_ordered(kind) or pa.types.is_null(kind) or _is_string(kind)):
        raise DataError(f"{name} is of type {kind}; it must be a number, a date or a time.")


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _filled(column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    present: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), present


def _keys_of_strings(column: Any, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The keys of strings that are all numbers, or all dates or times."""
    encoded = column.dictionary_encode()
    strings = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], type=pa.string())
    numbers = _numbers(strings.to_pylist())
    keys: NDArray[Any] | None = _times(strings) if numbers is None else numbers
    if keys is None:
        raise DataError(
            f"{name} has values that are neither all numbers nor all dates or times such as 2026-01-31 or "
            "2026-01-31 12:30:00."
        )
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks], type=pa.int32())
    filled, present = _filled(indices)
    return np.append(keys, keys.dtype.type(0))[np.where(present, filled, -1)], present


def _numbers(strings: list[str]) -> NDArray[np.float64] | None:
    numbers = []
    for string in strings:
        number = parse_number(string)
        if number is None:
            return None
        numbers.append(number)
    return np.array(numbers, dtype=np.float64)


def _times(strings: Any) -> NDArray[np.int64] | None:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            times: NDArray[np.int64] = pc.cast(pc.cast(strings, kind), pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            continue
        return times
    return None
