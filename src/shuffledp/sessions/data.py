"""Columns from the arguments of one-line functions and sessions: values in memory, or a column of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import numpy as np

from shuffledp.domain import Categories
from shuffledp.errors import ParameterError
from shuffledp.randomness import SYSTEM, RandomSource

if TYPE_CHECKING:
    from shuffledp.engines.groups import GroupedColumn
    from shuffledp.engines.local import Column
    from shuffledp.engines.table import Table
    from shuffledp.engines.users import UserIds
    from shuffledp.sessions.prepared import AnyColumn


class DataOptions(TypedDict, total=False):
    """What the rows of a column are."""

    missing: str | Sequence[str]
    """Strings that mean a missing value, such as NA, besides an empty one."""
    drop_missing: bool
    """Whether rows without a value are left out; otherwise they are an error."""
    user: Any
    """The users' ids, if users may have several rows: a column as long as the values or, for a column of files, the
    name of another column of the same files. One row of each user counts."""
    pick: str
    """Which row counts: ``row`` (the default) picks one at random, ``value`` one of the distinct values at random,
    ``latest`` the last one by ``order_by``."""
    order_by: Any
    """The column of numbers, dates or times for ``latest``, given in the same form as ``user``."""
    drop_missing_users: bool
    """Whether rows without a user id are left out; otherwise they are an error."""


def check_options(options: Mapping[str, Any], *kinds: type) -> None:
    """Reject an option that none of these typed dictionaries has, such as a misspelled one."""
    names = sorted(name for kind in kinds for name in kind.__annotations__)
    if unknown := sorted(options.keys() - names):
        raise TypeError(f"There is no option {unknown[0]!r}; the options are {', '.join(names)}.")


@dataclass(frozen=True)
class RowsOfUsers:
    """Which row of a user counts in each question about a table with several rows per user; see ``DataOptions``."""

    user: str
    pick: str = "row"
    order_by: str | None = None
    drop_missing_users: bool = False

    def __post_init__(self) -> None:
        self._ids  # noqa: B018 - checks what is given

    @property
    def _ids(self) -> UserIds:
        from shuffledp.engines.users import UserIds

        return UserIds(self.user, self.pick, self.order_by, self.drop_missing_users)

    def options(self) -> dict[str, Any]:
        """These settings as the options of a question."""
        return asdict(self)

    def with_order(self, columns: Sequence[str]) -> list[str]:
        """These columns, and that by which the latest row is chosen."""
        return [*columns] if self.order_by is None else [*columns, self.order_by]

    def count_users(self, table: Table, missing: str | Sequence[str] = ()) -> int:
        """The number of distinct users of the table."""
        markers = (missing,) if isinstance(missing, str) else tuple(missing)
        return table.count_users(self._ids, Categories.of(markers) if markers else None)


def column_of(values: Any, *, source: RandomSource = SYSTEM, **rows: Unpack[DataOptions]) -> AnyColumn:
    """The values as a column: a list, an array, a series, or a column of ``sdp.read_files``.

    ``source`` chooses the row of each user.
    """
    return _column_and_group_name(values, source=source, **rows)[0]


def grouped_column_of(
    values: Any, group_by: Any, private_groups: Categories | None = None, **options: Any
) -> GroupedColumn:
    """The values as a column with a group per user.

    ``group_by`` is given in the same form as ``user``; ``options`` are those of ``column_of``.
    """
    if find_spec("pyarrow") is None and isinstance(values, (list, tuple, np.ndarray)):
        raise ParameterError("Groups need the extra files: pip install 'shuffledp[files]'.")
    column, by = _column_and_group_name(values, group_by=group_by, **options)
    return cast("Column", column).grouped(by, private_groups)


def _column_and_group_name(
    values: Any,
    *,
    missing: str | Sequence[str] = (),
    drop_missing: bool = False,
    user: Any = None,
    pick: str = "row",
    order_by: Any = None,
    drop_missing_users: bool = False,
    source: RandomSource = SYSTEM,
    group_by: Any = None,
) -> tuple[AnyColumn, str]:
    """The column, and the name of the column of groups in its table; empty if there are none."""
    if not isinstance(missing, Iterable):
        raise ParameterError(f"`missing` is a string or a list of strings, not {missing!r}.")
    markers = (missing,) if isinstance(missing, str) else tuple(missing)
    if user is None and (pick != "row" or order_by is not None or drop_missing_users):
        raise ParameterError(
            "`pick=HOW`, `order_by=COLUMN` and `drop_missing_users=True` say which row of a user counts: give the "
            "users' ids too, `user=COLUMN`."
        )
    if find_spec("pyarrow") is None and isinstance(values, (list, tuple, np.ndarray)):
        if user is not None:
            raise ParameterError("User ids need the extra files: pip install 'shuffledp[files]'.")
        return _plain_column(values, markers, drop_missing=drop_missing), ""
    from shuffledp.engines.local import Column
    from shuffledp.engines.table import MemoryTable

    column: Column
    if isinstance(values, Column):
        column = values
    else:
        columns = {"values": values} | _in_memory(user=user, order_by=order_by)
        if group_by is not None:
            name = getattr(group_by, "name", None)  # of a series
            name = name if isinstance(name, str) and name and name not in columns else "group"
            columns, group_by = columns | {name: next(iter(_in_memory(group_by=group_by).values()))}, name
        column = Column(MemoryTable(columns), "values")
        user = None if user is None else "user"
        order_by = None if order_by is None else "order_by"
    column = replace(column, missing=markers or column.missing, drop_missing=drop_missing or column.drop_missing)
    by = "" if group_by is None else _name_in(column, group_by, "group_by")
    if user is None:
        return column, by
    from shuffledp.engines.users import UserIds

    ids = UserIds(
        _name_in(column, user, "user"),
        pick,
        None if order_by is None else _name_in(column, order_by, "order_by"),
        drop_missing_users,
        source,
    )
    return replace(column, users=ids), by


def _in_memory(**columns: Any) -> dict[str, Any]:
    """The columns that are given, which must be in memory as the values are."""
    present = {name: column for name, column in columns.items() if column is not None}
    for name, column in present.items():
        if isinstance(column, str):
            raise ParameterError(
                f"{name} is the name {column!r}, but the values are in memory: give the column itself, such as "
                f"frame[{column!r}]."
            )
    return present


def _name_in(column: Column, other: Any, option: str) -> str:
    """The name of another column of the same files, which may also be given as a column of them."""
    from shuffledp.engines.local import Column

    if isinstance(other, Column) and other.table == column.table:
        return other.name
    if not isinstance(other, str):
        raise ParameterError(f"The values are a column of files: give {option} as the name of another column of these.")
    return other


def _plain_column(values: Any, missing: tuple[str, ...], *, drop_missing: bool) -> AnyColumn:
    from shuffledp.engines.plain import PlainColumn

    if missing or drop_missing:
        raise ParameterError("Missing values need the extra files: pip install 'shuffledp[files]'.")
    return PlainColumn(values)
