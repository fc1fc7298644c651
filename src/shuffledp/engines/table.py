"""Tables: rows of named columns, read in batches of Arrow arrays, from files or from columns in memory."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from shuffledp.errors import DataError, ParameterError
from shuffledp.extras import extra
from shuffledp.text_values import string_of

with extra("files", "Reading a table"):
    import pyarrow as pa

if TYPE_CHECKING:
    from shuffledp.domain import Categories
    from shuffledp.engines.local import Column
    from shuffledp.engines.users import UserIds

Progress = Callable[[float], None]
"""Called with the fraction of the rows that has been read."""

BATCH_ROWS = 1 << 17
_SHOWN_COLUMNS = 20
_SHOWN_CHARACTERS = 60


class Table(ABC):
    """Rows of named columns."""

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers that are strings: a point or a comma."""
        return "."

    @abstractmethod
    def read(self, columns: Sequence[str], progress: Progress = lambda _: None) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns in batches: per batch one array per column, all of the same length.

        Their values are as the source has them: of any type, with outer spaces, null or NaN where one is missing.
        """

    def count_rows(self, columns: Sequence[str], progress: Progress = lambda _: None) -> int:
        """The number of rows; ``columns`` are those that must exist."""
        return sum(len(arrays[0]) for arrays in self.read(columns, progress))

    def count_users(self, users: UserIds, missing: Categories | None = None) -> int:
        """The number of distinct users; missing ids are an error unless they are left out."""
        from shuffledp.engines.users import count_users

        return count_users(self, users, missing)

    def __getitem__(self, name: str) -> Column:
        """The column of this name, as the one-line functions take it."""
        from shuffledp.engines.local import Column

        return Column(self, name)


class MemoryTable(Table):
    """Columns in memory: lists, numpy arrays, and columns of Arrow, pandas and polars."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: arrow_column(values, name) for name, values in columns.items()}
        rows = {name: len(column) for name, column in self._columns.items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
            raise DataError(f"The columns differ in their numbers of rows: {listed}.")

    def read(self, columns: Sequence[str], progress: Progress = lambda _: None) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns in batches."""
        for name in columns:
            check_column(name, list(self._columns), "The table")
        table = pa.table([self._columns[name] for name in columns], names=[str(i) for i in range(len(columns))])
        done = 0
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            yield tuple(batch.columns)
            done += len(batch)
            progress(done / len(table))


def check_column(column: str, names: Sequence[str], source: str) -> None:
    """Refuse a column that ``source`` does not have, or has twice."""
    if column not in names:
        raise ParameterError(f"{source} has no column {column!r}; it has {_listed(names)}.", column=column)
    if names.count(column) > 1:
        raise ParameterError(f"{source} has {names.count(column)} columns named {column!r}; rename them.")


def _listed(names: Sequence[str]) -> str:
    """The first names, shortened: hostile files may have millions of columns, or very long names."""
    shown = [
        name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}..." for name in names[:_SHOWN_COLUMNS]
    ]
    return ", ".join(shown) + (", ..." if len(names) > _SHOWN_COLUMNS else "")


def arrow_column(values: Any, name: str = "values") -> pa.ChunkedArray:
    """A column in memory as an Arrow array; anything but one column is refused, with advice on what to pass."""
    _check_is_column(values, name)
    if isinstance(values, pa.ChunkedArray):
        return without_views(values)
    if isinstance(values, pa.Array):
        return without_views(pa.chunked_array([values]))
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return without_views(pa.chunked_array(values))
        if isinstance(values, np.ma.MaskedArray):
            return pa.chunked_array([pa.array(values.data, mask=np.ma.getmaskarray(values))])
        listed = not isinstance(values, np.ndarray) or values.dtype == object
        return pa.chunked_array([pa.array(values, from_pandas=listed)])  # of pandas: NaT and NA are missing
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.chunked_array([_strings(values, name)])


def without_views(values: Any) -> Any:
    """String views, which polars uses, as strings: Arrow lacks functions for views, such as filters."""
    return values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values


def _strings(values: Any, name: str) -> pa.Array:
    """Values of mixed types, or too large for the types of Arrow, as strings; NaN and None are missing."""
    strings = []
    for value in values:
        string = str(value) if isinstance(value, datetime.date) and not _is_missing(value) else string_of(value)
        if string is None and not _is_missing(value):
            raise DataError(
                f"{name} holds an object of type {type(value).__name__}; a value is a string, a number, a boolean or a "
                "date."
            )
        strings.append(string)
    try:
        return pa.array(strings, type=pa.string())
    except UnicodeEncodeError:
        raise DataError(f"{name} holds a string that is not valid Unicode.") from None


def _is_missing(value: object) -> bool:
    if value is None or isinstance(value, str):
        return True
    if isinstance(value, (float, np.floating, Decimal)):
        return bool(value != value)
    return str(value) in ("<NA>", "NaT")


def _check_is_column(values: Any, name: str) -> None:
    if isinstance(values, (str, bytes, PurePath)):
        raise ParameterError(
            f"{name} is one string, not a column of values. To read a file, give a column of it: "
            'sdp.read_files("data.csv")["COLUMN"].'
        )
    names = _column_names(values)
    if names is not None:
        example = names[0] if names else "COLUMN"
        raise ParameterError(
            f"{name} is a whole table ({_listed(names)}), not one column: give one, such as frame[{example!r}]."
        )
    if getattr(values, "ndim", 1) != 1:
        raise ParameterError(f"{name} is an array of {values.ndim} dimensions, not one column: give a flat array.")
    if not hasattr(values, "__len__") or isinstance(values, (set, frozenset)):
        raise ParameterError(
            f"{name} is an object of type {type(values).__name__}, not a column: give a list, an array or a series."
        )


def _column_names(values: Any) -> list[str] | None:
    """The names of the columns of a table; None if it is not a table."""
    if hasattr(values, "collect_schema"):  # a lazy frame of polars
        return list(values.collect_schema().names())
    if isinstance(values, Mapping):
        return [str(name) for name in values]
    for attribute in ("column_names", "columns"):
        if (names := getattr(values, attribute, None)) is not None:
            return [str(name) for name in names]
    return None
