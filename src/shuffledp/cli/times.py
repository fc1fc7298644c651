"""Times and durations on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from shuffledp.errors import ParameterError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9})\s*([smhdw])")


def moment(text: str, *, after: datetime | None = None) -> datetime:
    """Parse ``now``, a duration such as ``2h`` after a moment (or now), or an ISO time; rounded down to seconds."""
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
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise wrong from None
    if parsed.tzinfo is None:
        raise wrong
    return parsed.replace(microsecond=0).astimezone(UTC)


def seconds_of(text: str) -> float:
    """The seconds of a duration such as 30s, 10m or 2h."""
    duration = _DURATION.fullmatch(text)
    if not duration:
        raise ParameterError(f"{text!r} is not a valid duration (expected e.g. 30s, 10m or 2h).")
    return float(int(duration[1]) * _SECONDS[duration[2]])
