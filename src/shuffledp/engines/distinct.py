"""Distinct values of a whole column, such as user ids: the index of each row's value among them.

Values are compared as categories are, by ``shuffledp.text_values``: 7, 7.0, "7", " 7 " and "7.0" are one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.engines.strings import as_strings
from shuffledp.errors import DataError
from shuffledp.extras import extra
from shuffledp.text_values import canonical_form

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc

MISSING = -1
_SEVERAL_SPELLINGS = r"^[-+]?[0-9]+\.0+$|^(?i:true|false)$"
"""Strings that ``canonical_form`` may change."""


@dataclass(frozen=True)
class DistinctValues:
    """The distinct values of a column."""

    indices: NDArray[np.int32]
    """The index of each row's value; ``MISSING`` if the row has none."""
    values: Any
    """The distinct values as an Arrow array, some of which may belong to no row."""

    @property
    def missing(self) -> int:
        """The number of rows without a value."""
        return int(np.count_nonzero(self.indices == MISSING))

    def names(self) -> list[str]:
        """The distinct values as strings."""
        names: list[str] = as_strings(self.values).to_pylist()
        return names


def index_distinct_values(batches: Sequence[Any], what: str, missing: Categories | None = None) -> DistinctValues:
    """The distinct values of a column that is given in batches; ``what`` names its values in an error message."""
    arrays = [array for array in (_simple(batch, what) for batch in batches) if len(array)]
    if len({array.type for array in arrays}) > 1:
        arrays = [as_strings(array) for array in arrays]
    if not arrays:
        return DistinctValues(np.empty(0, dtype=np.int32), pa.array([], type=pa.string()))
    column = pa.chunked_array(arrays)
    is_dictionary = pa.types.is_dictionary(column.type)
    encoded = column.unify_dictionaries() if is_dictionary else column.dictionary_encode()
    indices = np.concatenate([_indices(chunk.indices) for chunk in encoded.chunks])
    values = encoded.chunk(0).dictionary
    if pa.types.is_integer(values.type) and missing is None and values.null_count == 0:
        return DistinctValues(indices, values)
    merged = _canonical(as_strings(values, missing)).dictionary_encode()
    if merged.null_count or len(merged.dictionary) < len(values):
        indices = np.append(_indices(merged.indices), np.int32(MISSING))[indices]
    return DistinctValues(indices, merged.dictionary)


def _simple(values: Any, what: str) -> Any:
    """The values as a type that Arrow can dictionary-encode; an error if they are lists or structs."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_nested(kind):
        raise DataError(f"{what} is of type {kind}; it must be a string, a number, a boolean or a date.")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], type=pa.string())
    if pa.types.is_null(kind) or pa.types.is_float16(kind) or pa.types.is_string_view(kind):
        return as_strings(values)
    return values


def _indices(indices: Any) -> NDArray[np.int32]:
    """Arrow's indices with ``MISSING`` for null."""
    numbers: NDArray[np.int32] = pc.fill_null(pc.cast(indices, pa.int32()), MISSING).to_numpy(zero_copy_only=False)
    return numbers


def _canonical(strings: Any) -> Any:
    """One spelling for all strings that mean the same integer or boolean."""
    several = pc.fill_null(pc.match_substring_regex(strings, pattern=_SEVERAL_SPELLINGS), False)
    if not pc.any(several).as_py():
        return strings
    forms = [canonical_form(string) for string in strings.filter(several).to_pylist()]
    return pc.replace_with_mask(strings, several, pa.array(forms, type=pa.string()))
