"""Values of Arrow columns as strings, by the rules of ``shuffledp.text_values``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.text_values import EXACT_INTEGERS, string_of

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc

_PLAIN = (1e-4, 1e5)
"""Python and Arrow both write numbers in this range without an exponent."""


def as_strings(
    values: Any, missing: Categories | None = None, *, any_spelling: bool = False, exact: bool = False
) -> pa.Array:
    """Each value as ``string_of`` spells it, null where it is missing (null, NaN, empty, or one of ``missing``).

    With ``any_spelling``, floating-point numbers may be spelled in any way, which is faster. With ``exact``,
    white space around strings and empty strings are kept.
    """
    _check_type(values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = _float_strings(values, any_spelling and missing is None)
    try:
        if not pa.types.is_string(values.type):
            values = pc.cast(values, pa.string())
        trimmed = values if exact else pc.utf8_trim_whitespace(values)
    except pa.ArrowInvalid:
        raise DataError("The column has a value that is not in UTF-8.") from None
    strings = trimmed if exact else pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    return strings if missing is None else _without(strings, missing)


def distinct_strings(
    values: Any, missing: Categories | None = None, *, exact: bool = False
) -> tuple[NDArray[np.int64], list[str | None]]:
    """For each row, the position of its value among the distinct values; and these as strings, then None for missing.

    Several distinct values may be the same string. ``exact`` is that of ``as_strings``.
    """
    _check_type(values.type)
    if pa.types.is_float16(values.type) or pa.types.is_string_view(values.type):  # Arrow has no dictionaries of these
        values = as_strings(values, exact=exact)
    if pa.types.is_dictionary(values.type) and len(values.dictionary) > len(values):
        values = values.dictionary_decode()
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    strings = as_strings(encoded.dictionary, missing, exact=exact).to_pylist()
    positions = pc.fill_null(pc.cast(encoded.indices, pa.int64()), len(strings)).to_numpy(zero_copy_only=False)
    return positions, [*strings, None]


def has_strings(kind: pa.DataType) -> bool:
    """Whether values of the type are strings, also in dictionaries."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value))


def swap_decimal_marks(strings: pa.Array) -> pa.Array:
    """Numbers with a decimal comma as numbers with a point; numbers with a point get a comma, which is not valid."""
    for mark, instead in ((".", "\0"), (",", "."), ("\0", ",")):
        strings = pc.replace_substring(strings, mark, instead)
    return strings


def _check_type(kind: pa.DataType) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(value):
        raise DataError(f"The column is of type {kind}; a value is a string, a number, a boolean or a date.")
    if pa.types.is_duration(value) or pa.types.is_interval(value):
        raise DataError(f"The column is of type {kind}: convert durations to numbers first, such as seconds.")


def _float_strings(values: Any, any_spelling: bool) -> pa.Array:
    """Floating-point numbers as strings, integers among them without a point, NaN as null."""
    if pa.types.is_float16(values.type):  # for which Arrow has hardly any functions
        return pa.array([string_of(value) for value in values.to_numpy(zero_copy_only=False)], type=pa.string())
    values = pc.if_else(pc.is_nan(values), None, values)
    wide = pc.cast(values, pa.float64())
    size = pc.abs(wide)
    whole = pc.and_(pc.equal(pc.floor(wide), wide), pc.less_equal(size, EXACT_INTEGERS))
    integers = pc.cast(pc.if_else(whole, wide, 0.0), pa.int64())
    strings = pc.if_else(whole, pc.cast(integers, pa.string()), pc.cast(values, pa.string()))
    if any_spelling:
        return strings
    plain = pc.or_(whole, pc.and_(pc.greater_equal(size, _PLAIN[0]), pc.less(size, _PLAIN[1])))
    other = pc.fill_null(pc.invert(plain), False)
    if not pc.any(other).as_py():
        return strings
    distinct = values.filter(other).dictionary_encode()  # Arrow writes 1e-7 where Python writes 1e-07
    spelled = pa.array([string_of(value) for value in distinct.dictionary.to_numpy()], type=pa.string())
    return pc.replace_with_mask(strings, other, spelled.take(distinct.indices))


def _without(strings: pa.Array, missing: Categories) -> pa.Array:
    """The strings with null for those that mean a missing value."""
    distinct = strings.dictionary_encode()
    marked = pa.array([missing.find(value) is not None for value in distinct.dictionary.to_pylist()], type=pa.bool_())
    return pc.if_else(pc.fill_null(marked.take(distinct.indices), False), None, strings)
