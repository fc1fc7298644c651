"""Rows of a table that have an index or position, collected batch by batch with other columns of the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.engines.encoding import Encoded
from shuffledp.extras import extra

with extra("files", "Reading a table"):
    import pyarrow as pa


class EncodedRows:
    """The encoded values of rows, and the same rows of other columns, by their ``roles``, such as "user"."""

    def __init__(self, roles: Iterable[str]) -> None:
        self._values: list[NDArray[Any]] = []
        self._columns: dict[str, list[Any]] = {role: [] for role in roles}

    def add(self, encoded: Encoded, columns: Sequence[Any]) -> None:
        """Add the encoded rows of a batch; ``columns`` are those of all its rows."""
        # indices are below 2^31: half the memory
        values = encoded.values.astype(np.int32) if encoded.values.dtype == np.int64 else encoded.values
        self._values.append(values)
        rows = None if encoded.rows is None else pa.array(encoded.rows)
        for batches, column in zip(self._columns.values(), columns, strict=True):
            batches.append(column if rows is None else column.filter(rows))

    def values(self) -> NDArray[Any]:
        """The index or position of every row; call it once, since it releases the memory."""
        batches, self._values = self._values, []
        return np.concatenate(batches)

    def column(self, role: str) -> list[Any]:
        """The batches of another column; call it once, since it releases the memory."""
        batches, self._columns[role] = self._columns[role], []
        return batches
