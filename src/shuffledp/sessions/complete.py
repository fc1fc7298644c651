"""Complete rows of a table: the users who have a value in every column that a session asks about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shuffledp.domain import Categories
from shuffledp.engines.strings import as_strings, has_strings, swap_decimal_marks
from shuffledp.engines.table import MemoryTable, Progress, Table, check_column
from shuffledp.errors import DataError, ParameterError
from shuffledp.extras import extra

with extra("files", "sdp.complete()"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from shuffledp.engines.spark.table import CompleteSparkTable


def caveat_of(table: CompleteTable | CompleteSparkTable) -> str:
    """What the guarantee of a question about these rows does not cover."""
    who = "who have" if table.user is None else "with a row that has"
    return (
        f"The users are those {who} a value in each of {', '.join(table.columns)}: who they are, and their number, "
        "is not protected."
    )


class CompleteTable(MemoryTable):
    """The rows of a table that have a value in each of its ``columns``: ``rows`` is their number.

    ``user`` names a further column, of user ids, if users may have several rows.
    """

    def __init__(
        self, columns: Mapping[str, Any], rows_left_out: int, decimal: str = ".", user: str | None = None
    ) -> None:
        super().__init__(columns)
        self._decimal = decimal
        self.user = user
        self.columns = tuple(name for name in columns if name != user)
        self.rows = len(next(iter(columns.values())))
        self.rows_left_out = rows_left_out

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers that are strings."""
        return self._decimal

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"CompleteTable({', '.join(self.columns)}; {self.rows:,} rows, {self.rows_left_out:,} left out)"


def complete(
    table: Any,
    columns: Sequence[str],
    *,
    missing: str | Sequence[str] = (),
    user: str | None = None,
    progress: Progress = lambda _: None,
) -> CompleteTable | CompleteSparkTable:
    """The rows of a ``table`` that have a value in each of the ``columns``, in memory; one row is one user.

    If users may have several rows, ``user`` names the column of their ids, which the result has too.

    ``table`` is a data frame of pandas or polars, an Arrow table, a dictionary of columns, or ``sdp.read_files``; rows
    of a data frame of Spark stay there.
    ``missing`` lists strings that mean a missing value, besides null, NaN and an empty string. ``len()`` of the result
    is the number of users of a session about these columns, which it makes public; ``progress`` is called with the
    fraction of the rows that has been read.

    >>> answered = sdp.complete({"mode": ["bus", "car", None], "minutes": [12.0, None, 30.0]}, ["mode", "minutes"])
    >>> len(answered), answered.rows_left_out
    (1, 2)
    """
    if isinstance(columns, str) or not columns:
        raise ParameterError("Give the columns as a list of their names, at least one.")
    required = list(dict.fromkeys(columns))
    if user is not None and user in required:
        raise ParameterError(f"{user} is the column of user ids; it cannot be asked about.")
    names = required if user is None else [*required, user]
    markers = Categories.of([missing] if isinstance(missing, str) else missing) if missing else None
    if hasattr(table, "mapInArrow") or hasattr(table, "complete"):  # data in Spark stay there
        from shuffledp.engines.spark.table import SparkTable

        return (table if isinstance(table, SparkTable) else SparkTable(table)).complete(required, markers, user)
    batches: list[list[Any]] = [[] for _ in names]
    rows = 0
    source = _table(table, names)
    for arrays in source.read(names, progress):
        rows += len(arrays[0])
        has_all = _has_value(arrays[0], markers)
        for array in arrays[1 : len(required)]:
            has_all = pc.and_(has_all, _has_value(array, markers))
        for index, array in enumerate(arrays):
            batches[index].append(array.filter(has_all))
    if not rows:
        raise DataError("The table has no rows.")
    chosen = {name: _joined(parts, source.decimal) for name, parts in zip(names, batches, strict=True)}
    left = len(chosen[names[0]])
    if not left:
        raise DataError(f"No row has a value in each of {', '.join(required)}.")
    return CompleteTable(chosen, rows - left, source.decimal, user)


def _table(table: Any, names: Sequence[str]) -> Table:
    if isinstance(table, Table):
        return table
    if hasattr(table, "collect_schema") and hasattr(table, "collect"):
        raise ParameterError("A lazy data frame has no values yet: give the result of its collect().")
    listed = getattr(table, "column_names", None)
    listed = getattr(table, "columns", None) if listed is None else listed
    listed = table.keys() if listed is None and isinstance(table, Mapping) else listed
    if listed is None:
        raise ParameterError(
            f"An object of type {type(table).__name__} is not a table: give a data frame, an Arrow table, a dictionary "
            "of columns, or sdp.read_files(PATH)."
        )
    for name in names:
        check_column(name, [str(column) for column in listed], "The table")
    return MemoryTable({name: table[name] for name in names})


def _has_value(values: Any, markers: Categories | None) -> Any:
    """Whether each row has a value, by the same rules as when a question reads the column."""
    if markers is None and (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        return pc.is_valid(values)
    if markers is None and pa.types.is_floating(values.type) and not pa.types.is_float16(values.type):
        return pc.invert(pc.is_null(values, nan_is_null=True))
    return pc.is_valid(as_strings(values, markers, any_spelling=True))


def _joined(parts: list[Any], decimal: str) -> Any:
    """Batches as one column, of strings if their types differ."""
    if len({part.type for part in parts}) == 1:
        return pa.chunked_array(parts)
    return pa.chunked_array([_as_strings(part, decimal) for part in parts])


def _as_strings(values: Any, decimal: str) -> Any:
    """The values as strings; numbers get the decimal mark that strings of the table have."""
    strings = as_strings(values)
    return swap_decimal_marks(strings) if decimal == "," and not has_strings(values.type) else strings
