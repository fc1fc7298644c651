"""One row of each user: contribution bounding for tables with several rows per user.

The choice depends on that user's rows and on secret randomness alone. So replacing all rows of one user, however many,
replaces one value of the round, and the guarantee of the round holds per user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.engines.distinct import MISSING, index_distinct_values
from shuffledp.engines.encoding import Encoded
from shuffledp.engines.row_order import order_keys
from shuffledp.engines.rows import EncodedRows
from shuffledp.errors import DataError, ParameterError
from shuffledp.extras import extra
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.shuffling import permute
from shuffledp.text_values import looks_missing

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from shuffledp.engines.table import Table

PICKS = ("row", "value", "latest")
_LONGEST_MARKER = 5


@dataclass(frozen=True)
class UserIds:
    """The column of user ids, and how the row of a user that counts is chosen."""

    column: str
    pick: str = "row"
    """``row``: uniformly among the user's rows; ``value``: among their distinct values; ``latest``: by ``order_by``."""
    order_by: str | None = None
    """The column of numbers, dates or times whose largest is the latest; ties are broken at random."""
    drop_missing: bool = False
    """Whether rows without a user id are left out; otherwise they are an error."""
    source: RandomSource = SYSTEM

    def __post_init__(self) -> None:
        if self.pick not in PICKS:
            raise ParameterError(f"There is no pick {self.pick!r}; choose one of {', '.join(PICKS)}.", pick=self.pick)
        if (self.pick == "latest") != (self.order_by is not None):
            raise ParameterError(
                "Choosing the latest row of a user needs a column of numbers, dates or times: give `order_by=COLUMN`."
                if self.order_by is None
                else '`order_by=COLUMN` is for choosing the latest row of a user: give `pick="latest"` too.'
            )

    @property
    def columns(self) -> dict[str, str]:
        """The columns to read beside that of the values, by their roles."""
        return {"user": self.column} | ({} if self.order_by is None else {"order": self.order_by})

    @property
    def sentence(self) -> str:
        """How one row of each user was chosen."""
        how = {
            "row": "one row of each user was chosen uniformly at random",
            "value": "one of the distinct values of each user was chosen uniformly at random",
            "latest": f"the latest row of each user by {self.order_by} was chosen, ties at random",
        }[self.pick]
        return f"The guarantee is per user: {how}, and only that one counts."


@dataclass(frozen=True)
class MissingRules:
    """What is done about missing values in columns beside that of the values."""

    markers: Categories | None = None
    """Strings that mean a missing value."""
    drop: bool = False
    """Whether rows without a value are left out."""
    remark: Callable[[str], None] = lambda _: None


def count_users(table: Table, users: UserIds, markers: Categories | None = None) -> int:
    """The number of distinct users of a table; missing ids are an error unless they are left out."""
    rows = EncodedRows(["user"])
    for (ids,) in table.read([users.column]):
        rows.add(Encoded(np.zeros(len(ids), dtype=np.int32)), [ids])
    user_of = _user_of_each_row(users, rows, MissingRules(markers))
    number = len(np.unique(user_of[user_of != MISSING]))
    if number == 0:
        raise DataError("No row has a user id, so there are no users.")
    return number


def one_row_per_user(
    users: UserIds,
    rows: EncodedRows,
    values: NDArray[Any],
    rules: MissingRules,
    among: NDArray[np.bool_] | None = None,
    groups: NDArray[np.int32] | None = None,
) -> NDArray[np.int64]:
    """The numbers of the chosen rows, one per user, among all rows or some of them.

    If the group of each row is given, a user's group is that of a row chosen regardless of values: it is public, so it
    must not depend on how many distinct values the user has.
    """
    user_of = _user_of_each_row(users, rows, rules)
    keys, present = _order_keys(users, rows, rules)
    eligible = user_of != MISSING
    for condition in (present, among):
        eligible = eligible if condition is None else eligible & condition
    candidates = np.flatnonzero(eligible)
    if len(candidates) == 0:
        raise DataError("No row has a user id, so there are no users.")
    if users.pick == "value":
        if groups is not None:
            of_user = np.empty(int(user_of.max()) + 1, dtype=groups.dtype)
            first = choose_rows(user_of, candidates, source=users.source)
            of_user[user_of[first]] = groups[first]
            candidates = candidates[groups[candidates] == of_user[user_of[candidates]]]
        candidates = _first_of_each_value(user_of, values, candidates)
    return choose_rows(user_of, candidates, keys, source=users.source)


def _user_of_each_row(users: UserIds, rows: EncodedRows, rules: MissingRules) -> NDArray[np.int32]:
    """The index of each row's user; ``MISSING`` if it has none and such rows are left out."""
    distinct = index_distinct_values(rows.column("user"), f"The column of user ids ({users.column})", rules.markers)
    if (missing := distinct.missing) and not users.drop_missing:
        raise DataError(
            f"{'1 user id is' if missing == 1 else f'{missing:,} user ids are'} missing in {users.column}. "
            "Use `drop_missing_users=True` to leave these rows out.",
            missing=missing,
        )
    for name in _suspicious(distinct.values):
        rules.remark(
            f"{name!r} is counted as the id of one user; if it stands for a missing id, use `missing={(name,)}`."
        )
    return distinct.indices


def _order_keys(
    users: UserIds, rows: EncodedRows, rules: MissingRules
) -> tuple[NDArray[Any] | None, NDArray[np.bool_] | None]:
    """The sort key of each row, and which rows have one; None if rows are chosen at random."""
    name = users.order_by
    if name is None:
        return None, None
    keys, present = order_keys(rows.column("order"), f"The column {name}", rules.markers)
    if (missing := int(len(present) - np.count_nonzero(present))) and not rules.drop:
        raise DataError(
            f"{'1 value is' if missing == 1 else f'{missing:,} values are'} missing in {name}, by which rows are "
            "ordered. Use `drop_missing=True` to leave these rows out.",
            missing=missing,
        )
    return keys, present


def choose_rows(
    users: NDArray[np.int32], rows: NDArray[np.int64], keys: NDArray[Any] | None = None, *, source: RandomSource
) -> NDArray[np.int64]:
    """One of the ``rows`` of each user: the one with the largest key, uniformly at random among several.

    All rows are permuted, and the last row of each user in that order is taken. The relative orders of the rows of
    different users are independent, so each choice depends on the rows of its user alone.
    """
    order = rows.astype(np.int32 if len(users) < 1 << 31 else np.int64)
    permute(order, source)
    if keys is not None:
        order = order[np.argsort(keys[order], kind="stable")]
    last = np.full(int(users[rows].max()) + 1, -1, dtype=order.dtype)
    last[users[order]] = order  # of several assignments to one user the last remains
    return last[last >= 0].astype(np.int64)


def _first_of_each_value(users: NDArray[np.int32], values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each user with each of the user's values."""
    if values.dtype.kind == "f":
        values = pa.array(values).dictionary_encode().indices.to_numpy()
    pairs = users[rows].astype(np.int64) * (int(values.max()) + 1) + values[rows]
    return rows[np.unique(pairs, return_index=True)[1]]


def _suspicious(ids: Any) -> list[str]:
    """Ids that look like a missing value, such as NA."""
    if not pa.types.is_string(ids.type):
        return []
    short = ids.filter(pc.less_equal(pc.binary_length(ids), _LONGEST_MARKER))
    return [name for name in short.to_pylist() if looks_missing(name)]
