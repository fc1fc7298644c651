"""Domains of dates in periods: years, months, weeks or days between public dates, days of the week, hours."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain.bins import MAX_BINS
from shuffledp.domain.domain import DiscreteDomain
from shuffledp.domain.encoded import Indices
from shuffledp.domain.values import as_sequence
from shuffledp.errors import DomainError

Seconds = NDArray[np.datetime64]
"""Local times as numpy's datetime64[s]."""

CALENDAR_PERIODS = ("year", "month", "week", "day")
"""Periods that need a first and a last date."""
CYCLES = ("month-of-year", "weekday", "hour")
"""Periods that recur, and need no bounds."""
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:?[0-9]{2})?)?"
)
_MONDAY = 3  # 1970-01-01, the first day that numpy counts, was a Thursday


@dataclass(frozen=True)
class Periods(DiscreteDomain):
    """Dates in periods: ``by`` is year, month, week, day, month-of-year, weekday or hour.

    The first four need the public dates ``lower`` and ``upper``; all periods from that of ``lower`` to that of
    ``upper`` are in the domain. Weeks begin on Monday.

    >>> months = sdp.Periods("month", "2013-01-01", "2013-12-31")
    >>> len(months), months.names[0], months.encode("2013-03-09 12:30")
    (12, '2013-01', 2)
    """

    by: str
    lower: str | None = None
    upper: str | None = None

    def __post_init__(self) -> None:
        if self.by not in CALENDAR_PERIODS + CYCLES:
            raise DomainError(
                f"There is no period {self.by!r}; choose one of {', '.join(CALENDAR_PERIODS + CYCLES)}.", by=self.by
            )
        for name in ("lower", "upper"):
            bound = getattr(self, name)
            if bound is not None and not (isinstance(bound, str) and parse_date(bound) is not None):
                raise DomainError(f"The bounds of periods are dates such as 2024-05-31, not {bound!r}.")
        if self.by in CYCLES:
            if self.lower is not None or self.upper is not None:
                raise DomainError(f"Periods by {self.by} have no bounds: leave lower and upper out.")
            return
        if self.lower is None or self.upper is None:
            raise DomainError(
                f"Periods by {self.by} need a first and a last date, which are public: give `lower=DATE` and "
                "`upper=DATE`."
            )
        if not self.lower[:10] <= self.upper[:10]:
            raise DomainError(f"The lower bound must not lie after the upper one, not {self.lower} and {self.upper}.")
        if len(self) > MAX_BINS:
            raise DomainError(f"There are {len(self):,} periods between the bounds, more than {MAX_BINS:,}.")

    def __len__(self) -> int:
        if self.by in CYCLES:
            return {"month-of-year": 12, "weekday": 7, "hour": 24}[self.by]
        first, last = self._bounds
        return last - first + 1

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The numbers of the first and the last period."""
        dates = np.array([str(self.lower)[:10], str(self.upper)[:10]], dtype="datetime64[s]")
        first, last = self._numbers(dates).tolist()
        return first, last

    @property
    def needs_time(self) -> bool:
        """Whether a date without a time is not in the domain."""
        return self.by == "hour"

    @property
    def names(self) -> tuple[str, ...]:
        """The periods: 2013, 2013-05, 2013-W07, 2013-05-31, a month, a day of the week, or an hour from 00 to 23."""
        if self.by == "weekday":
            return _WEEKDAYS
        if self.by == "month-of-year":
            return (*_MONTHS, "December")
        if self.by == "hour":
            return tuple(f"{hour:02}" for hour in range(24))
        first, last = self._bounds
        numbers = np.arange(first, last + 1)
        if self.by == "week":
            days = (7 * numbers - _MONDAY).astype("datetime64[D]").tolist()
            return tuple(f"{year}-W{week:02}" for year, week, _ in (day.isocalendar() for day in days))
        unit = {"year": "Y", "month": "M", "day": "D"}[self.by]
        return tuple(str(period) for period in numbers.astype(f"datetime64[{unit}]"))

    @property
    def description(self) -> str:
        """The values of the domain in a few words."""
        dates = "dates with a time" if self.needs_time else "dates"
        return dates if self.by in CYCLES else f"dates from {self.names[0]} to {self.names[-1]}"

    def lookup_names(self) -> tuple[str, ...]:
        """Empty: a date is not the name of a period."""
        return ()

    def parse(self, text: str) -> np.datetime64:
        """The string as a date; ``encode`` checks that it lies between the bounds."""
        date = parse_date(text, needs_time=self.needs_time)
        if date is None:
            example = "2024-05-31 18:30" if self.needs_time else "2024-05-31"
            raise DomainError(f"A date such as {example} is needed, not {text!r}.", value=text)
        return date

    def find(self, value: Any) -> int | None:
        """The index of the period of a date, which may be a string; None if it is not a date between the bounds."""
        date = parse_date(value, needs_time=self.needs_time) if isinstance(value, str) else value
        if date is None or np.isnat(date):
            return None
        index = int(self.indices(np.array([date], dtype="datetime64[s]"))[0])
        return index if index >= 0 else None

    def encode(self, value: Any) -> int:
        """The index of the period of one date."""
        return int(self.encode_all([value])[0])

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of the period of each date: strings, dates and times of Python, numpy or pandas."""
        dates = [_as_date(value, needs_time=self.needs_time) for value in as_sequence(values)]
        indices = self.indices(np.array(dates, dtype="datetime64[s]"))
        if (indices < 0).any():
            outside = int((indices < 0).sum())
            raise DomainError(f"{outside:,} of {len(indices):,} values are not {self.description}.", count=outside)
        return indices

    def indices(self, dates: Seconds) -> Indices:
        """The index of the period of each local time; -1 if it is not between the bounds, or not a time."""
        numbers = self._numbers(dates)
        if self.by in CYCLES:
            return np.where(np.isnat(dates), -1, numbers)
        first, last = self._bounds
        return np.where(np.isnat(dates) | (numbers < first) | (numbers > last), -1, numbers - first)

    def _numbers(self, dates: Seconds) -> Indices:
        """The number of the period of each local time, counted from 1970 or from the start of the cycle."""
        if self.by == "hour":
            return dates.astype("datetime64[h]").astype(np.int64) % 24
        if self.by in ("week", "weekday"):
            days = dates.astype("datetime64[D]").astype(np.int64) + _MONDAY
            return days // 7 if self.by == "week" else days % 7
        if self.by == "month-of-year":
            return dates.astype("datetime64[M]").astype(np.int64) % 12
        unit = {"year": "Y", "month": "M", "day": "D"}[self.by]
        return dates.astype(f"datetime64[{unit}]").astype(np.int64)


def parse_date(text: str, *, needs_time: bool = False) -> np.datetime64 | None:
    """The string as a local time, to the second; None if it is not a date, or has no time but needs one."""
    match = _DATE.fullmatch(text.strip())
    if match is None or (needs_time and match[2] is None):
        return None
    try:
        return np.datetime64(f"{match[1]}T{match[2] or '00:00'}", "s")
    except ValueError:  # such as the 30th of February
        return None


def _as_date(value: Any, *, needs_time: bool) -> np.datetime64:
    """One value as a local time; NaT if it is not a date."""
    nothing = np.datetime64("NaT", "s")
    if isinstance(value, str):
        date = parse_date(value, needs_time=needs_time)
        return nothing if date is None else date  # the first second of 1970 is falsy
    if isinstance(value, datetime.datetime):
        return nothing if value != value else np.datetime64(value.replace(tzinfo=None, microsecond=0), "s")
    if isinstance(value, datetime.date):
        return nothing if needs_time else np.datetime64(value, "s")
    return value.astype("datetime64[s]") if isinstance(value, np.datetime64) else nothing
