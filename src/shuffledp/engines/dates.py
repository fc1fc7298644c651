"""Dates of Arrow columns as local times, by the rules of ``shuffledp.domain.periods``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.domain.periods import Seconds, parse_date
from shuffledp.engines.strings import as_strings, distinct_strings
from shuffledp.extras import extra

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc

_PLAIN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?$"
"""Spelling of dates that Arrow parses by the same rules."""
_WITH_TIME = r"^.{10}[ T]"


def local_times(
    values: Any, missing: Categories | None = None, *, needs_time: bool = False
) -> tuple[Seconds, NDArray[np.bool_]]:
    """Each value as a local time (NaT if it is not a date), and which values are not missing."""
    kind = values.type
    if missing is None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        times = _seconds(pc.local_timestamp(values) if pa.types.is_timestamp(kind) and kind.tz else values)
        present = ~np.isnat(times)
        return (np.full_like(times, "NaT") if needs_time and pa.types.is_date(kind) else times), present
    if pa.types.is_string(kind) and missing is None:
        strings = as_strings(values)
        if _all_match(strings, _PLAIN) and (not needs_time or _all_match(strings, _WITH_TIME)):
            try:
                return _seconds(pc.cast(strings, pa.timestamp("s"))), strings.is_valid().to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:  # such as the 30th of February
                pass
    positions, distinct = distinct_strings(values, missing)
    parsed = [None if string is None else parse_date(string, needs_time=needs_time) for string in distinct]
    times = np.array([np.datetime64("NaT", "s") if time is None else time for time in parsed], dtype="datetime64[s]")
    return times[positions], np.array([string is not None for string in distinct])[positions]


def _seconds(values: Any) -> Seconds:
    times: Seconds = values.to_numpy(zero_copy_only=False).astype("datetime64[s]")
    return times


def _all_match(strings: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(strings, pattern), min_count=0).as_py())
