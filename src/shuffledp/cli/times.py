"""Times on the command line: a moment with its zone, or how long from another one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from shuffledp.errors import ParameterError

__all__ = ["moment", "seconds_of"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9})\s*([smhdw])")


def moment(text: str, *, after: datetime | None = None) -> datetime:
    """In whole seconds: ``now``, ``2h`` after a moment (or now), or an ISO time such as 2026-01-31T18:00:00Z."""
    now = datetime.now(UTC).replace(microsecond=0)
    if text == "now":
        return now
    wrong = ParameterError(
        f"{text!r} is neither a time with its zone, like 2026-01-31T18:00:00Z, nor a duration, like 30m, 2h or 7d."
    )
    try:
        duration = _DURATION.fullmatch(text)
        if duration:
            return (after or now) + timedelta(seconds=int(duration[1]) * _SECONDS[duration[2]])
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise wrong from None
    if found.tzinfo is None:
        raise wrong
    return found.replace(microsecond=0).astimezone(UTC)


def seconds_of(text: str) -> float:
    """How many seconds a duration like 30s, 10m or 2h has."""
    duration = _DURATION.fullmatch(text)
    if not duration:
        raise ParameterError(f"{text!r} is no duration, like 30s, 10m or 2h.")
    return float(int(duration[1]) * _SECONDS[duration[2]])
