"""Times in documents and key files: UTC, to the second."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from shuffledp.errors import ParameterError

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TIME_FORM = re.compile("[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MAX_SHOWN = 60


def time_to(moment: datetime) -> str:
    """A time as it is in signed documents, in UTC to the second."""
    return moment.astimezone(UTC).strftime(_TIME)


def time_from(document: dict[str, Any], key: str) -> datetime:
    """A time of a document; ParameterError if it is not written as ``time_to`` writes it."""
    value = document[key]
    try:
        if isinstance(value, str) and _TIME_FORM.fullmatch(value):  # strptime alone also accepts single digits
            return datetime.strptime(value, _TIME).replace(tzinfo=UTC)
    except ValueError:
        pass
    raise ParameterError(
        f"{key} must be a time in the years 1000 to 9999 like 2026-01-31T18:00:00Z, not {repr(value)[:_MAX_SHOWN]}."
    )
