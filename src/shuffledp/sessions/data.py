"""Data as the one-line functions and sessions take them: a column in memory, or a column of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from shuffledp.errors import ParameterError

if TYPE_CHECKING:
    from shuffledp.sessions.prepared import AnyColumn


class DataOptions(TypedDict, total=False):
    """What the rows of a column are."""

    missing: str | Sequence[str]
    """Strings that mean a missing value, such as NA, besides an empty one."""
    drop_missing: bool
    """Whether rows without a value are left out; otherwise they are an error."""


def column_of(values: Any, *, missing: str | Sequence[str] = (), drop_missing: bool = False) -> AnyColumn:
    """The values as a column: a list, an array, a series, or a column of ``sdp.read_files``."""
    markers = (missing,) if isinstance(missing, str) else tuple(missing)
    if find_spec("pyarrow") is None and isinstance(values, (list, tuple, np.ndarray)):
        return _plain_column(values, markers, drop_missing=drop_missing)
    from shuffledp.engines.local import Column
    from shuffledp.engines.table import MemoryTable

    if isinstance(values, Column):
        return replace(values, missing=markers or values.missing, drop_missing=drop_missing or values.drop_missing)
    return Column(MemoryTable({"values": values}), "values", drop_missing, markers)


def _plain_column(values: Any, missing: tuple[str, ...], *, drop_missing: bool) -> AnyColumn:
    from shuffledp.engines.plain import PlainColumn

    if missing or drop_missing:
        raise ParameterError("Missing values need the extra files: pip install 'shuffledp[files]'.")
    return PlainColumn(values)
