"""The record of what a device has spent: one privacy curve per report, durable before the report may be sent.

The record is one file in the directory of the device, replaced atomically under a lock. An entry is never refunded, and
it is deleted once the window of the budget has passed. Days come from the clock of the device, but they never run back,
and a task advances them at most to the day on which it closes, so that a clock that is wrong does not free the budget.
Authors and series are stored under a keyed hash.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from shuffledp.collection.device.authors import PinnedAuthor
from shuffledp.collection.device.budget import AuthorBudget, DeviceBudget
from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import VerifyingKey, from_base64, to_base64
from shuffledp.durable_files import FileLock, open_regular, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError, PolicyError
from shuffledp.privacy.sampled_curves import POINTS, SampledCurve, SampledTotal

_FORMAT, _VERSION = "shuffledp-budget", 1
_KEYS = {"format", "version", "key", "day", "entries", "checksum"}
_ENTRY_KEYS = {"day", "author", "series", "epsilon", "delta", "curve"}
_KEY_SIZE = 32
_MAX_ENTRIES = 4000
_MAX_BYTES = 1 << 23
_CURVE_TYPE = np.dtype("<f4")


@dataclass(frozen=True)
class Entry:
    """One report: its day, keyed hashes of the author and of the series, and its privacy curve."""

    day: date
    author: bytes
    series: bytes
    release: SampledCurve

    def to_document(self) -> dict[str, Any]:
        """The form in the file."""
        return {
            "day": self.day.isoformat(),
            "author": to_base64(self.author),
            "series": to_base64(self.series),
            "epsilon": repr(self.release.epsilon),
            "delta": repr(self.release.delta),
            "curve": to_base64(self.release.deltas.astype(_CURVE_TYPE).tobytes()),
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The entry of a document; ValueError or TypeError if it is damaged."""
        if set(document) != _ENTRY_KEYS:
            raise ParameterError("an entry has missing or unknown keys")
        curve = np.frombuffer(from_base64(document["curve"], POINTS * _CURVE_TYPE.itemsize), dtype=_CURVE_TYPE)
        return cls(
            date.fromisoformat(document["day"]),
            from_base64(document["author"], _KEY_SIZE),
            from_base64(document["series"], _KEY_SIZE),
            SampledCurve(curve.astype(np.float32), float(document["epsilon"]), float(document["delta"])),
        )


@dataclass(frozen=True)
class Record:
    """All entries, oldest first, the latest day that was recorded, and the key of the hashes."""

    key: bytes
    day: date
    entries: tuple[Entry, ...] = ()

    def author_tag(self, key_id: str) -> bytes:
        """The keyed hash of an author."""
        return self._tag(b"author\0" + key_id.encode())

    def series_tag(self, task: Task) -> bytes:
        """The keyed hash of the series of a task, or of the task itself if it belongs to none."""
        series = None if task.wire is None else task.wire.series
        return self._tag(b"series\0" + (task.id if series is None else series.series))

    def _tag(self, name: bytes) -> bytes:
        return hmac.digest(self.key, name, "sha256")

    def since(self, day: date, window_days: int) -> Record:
        """The record on a day: without the entries whose window has passed."""
        return replace(self, day=day, entries=tuple(e for e in self.entries if _expiry(e, window_days) > day))

    def to_bytes(self) -> bytes:
        """The content of the file, with a checksum."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "key": to_base64(self.key),
            "day": self.day.isoformat(),
            "entries": [entry.to_document() for entry in self.entries],
        }
        return canonical({**document, "checksum": hashlib.sha256(canonical(document)).hexdigest()})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The record of a file; ValueError, TypeError or KeyError if it is damaged."""
        document = parse_canonical(content, max_bytes=_MAX_BYTES)
        if not isinstance(document, dict) or set(document) != _KEYS:
            raise ParameterError("it has missing or unknown keys")
        checksum = document.pop("checksum")
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ParameterError("it has another format or version")
        if checksum != hashlib.sha256(canonical(document)).hexdigest():
            raise ParameterError("its checksum is wrong")
        entries = tuple(Entry.from_document(entry) for entry in document["entries"])
        record = cls(from_base64(document["key"], _KEY_SIZE), date.fromisoformat(document["day"]), entries)
        days = [entry.day for entry in entries]
        if len(entries) > _MAX_ENTRIES or days != sorted(days) or any(day > record.day for day in days):
            raise ParameterError("its days are not in order")
        return record


def _expiry(entry: Entry, window_days: int) -> date:
    try:
        return entry.day + timedelta(days=window_days)
    except OverflowError:
        return date.max


class Spending:
    """The record of one device, in its directory."""

    def __init__(self, directory: str | Path, budget: DeviceBudget) -> None:
        self._directory, self._path = Path(directory), Path(directory) / "budget"
        self.budget = budget

    def charge(self, task: Task, author: VerifyingKey | PinnedAuthor, release: SampledCurve, now: datetime) -> None:
        """Record a report durably; if it exceeds the budget, record nothing and raise a PolicyError.

        All keys of an author share the author's budget.
        """
        pinned = PinnedAuthor.first(author) if isinstance(author, VerifyingKey) else author
        with self._locked():
            record = self.read()
            today = max(record.day, min(now.astimezone(UTC).date(), task.closes.astimezone(UTC).date()))
            record = record.since(today, self.budget.window_days)
            entry = Entry(today, record.author_tag(pinned.ids[0]), record.series_tag(task), release)
            limits = self.budget.of_author(pinned.ids)
            refusals = list(_refusals(record.entries, entry, self.budget, limits))
            if refusals:
                raise max(refusals, key=lambda refusal: refusal.possible).error()
            self._write(replace(record, entries=(*record.entries, entry)))

    def read(self) -> Record:
        """The record, empty if there is none; DataError if it is damaged, so that nothing that was spent is forgotten.

        If a process is killed before its record is durable, its report is not stored, either.
        """
        try:
            os.lstat(self._path)
        except FileNotFoundError:
            return Record(os.urandom(_KEY_SIZE), date.min)
        except OSError as error:
            raise OutputError(f"Cannot read the directory {self._directory}: {error.strerror or error}.") from None
        try:
            with open_regular(self._path) as file:
                return Record.from_bytes(file.read(_MAX_BYTES + 1))
        except OSError as error:
            reason = error.strerror or str(error)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = "a key is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise DataError(
            f"{self._path}, the record of what this device has spent, is damaged ({reason}); nothing is sent. Restore "
            "a copy that is not older than the last report; deleting it would forget what was spent.",
            reason="budget",
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = FileLock(self._directory / "budget.lock")
        except OSError as error:
            raise OutputError(f"Cannot lock the directory {self._directory}: {error.strerror or error}.") from None
        with lock:
            yield

    def _write(self, record: Record) -> None:
        content = record.to_bytes()
        if len(record.entries) > _MAX_ENTRIES or len(content) > _MAX_BYTES:
            raise PolicyError(
                f"This device has reported {_MAX_ENTRIES:,} times within {self.budget.window_days:,} days; its record "
                "cannot hold more.",
                reason="budget",
            )
        try:
            write_durably(self._path, content, temporary=self._directory / "budget.new")
        except OSError as error:
            raise OutputError(f"Cannot record the report in {self._path}: {error.strerror or error}.") from None


class _Refusal(NamedTuple):
    """Why a report exceeds the budget, and from which day on it would not; ``date.max`` for never."""

    sentence: str
    possible: date
    values: dict[str, Any]

    def error(self) -> PolicyError:
        never = self.possible == date.max
        when = "" if never else f" Possible again on {self.possible.isoformat()}."
        return PolicyError(
            self.sentence + when,
            reason="budget",
            possible=None if never else self.possible.isoformat(),
            **self.values,
        )


def _refusals(entries: Sequence[Entry], new: Entry, budget: DeviceBudget, limits: AuthorBudget) -> Iterator[_Refusal]:
    """The limits that the entries of the window exceed together with a new one."""
    of_author = [entry for entry in entries if entry.author == new.author]
    scopes = [("This device", entries, budget.epsilon)]
    if limits.epsilon is not None:
        scopes.append(("This author", of_author, limits.epsilon))
    for name, counted, epsilon in scopes:
        refusal = _epsilon_refusal(name, counted, new, epsilon, budget)
        if refusal is not None:
            yield refusal
    if limits.series is not None:
        latest = {entry.series: entry for entry in of_author if entry.series != new.series}  # the latest entry of each
        others = sorted(latest.values(), key=lambda entry: entry.day, reverse=True)
        if len(others) >= limits.series:
            yield _Refusal(
                f"This author has used {len(others):,} of {limits.series:,} series in {budget.window_days:,} days.",
                _expiry(others[limits.series - 1], budget.window_days),
                {"used": len(others), "limit": limits.series},
            )


def _epsilon_refusal(
    name: str, entries: Sequence[Entry], new: Entry, epsilon: float, budget: DeviceBudget
) -> _Refusal | None:
    """The refusal if the entries and the new one exceed epsilon.

    Entries are added from the newest to the oldest. The one that makes the total too large, and all older ones, must
    expire before the new one is possible.
    """
    total = SampledTotal.of([new.release])
    if not total.is_within(epsilon, budget.delta):
        needed = total.epsilon_at(budget.delta)
        return _Refusal(
            f"{name} may use {epsilon:g} in {budget.window_days:,} days; "
            f"{_needs(needed, budget.delta, 'this task alone')}",
            date.max,
            {"used": 0.0, "needed": needed, "limit": epsilon},
        )
    for entry in reversed(entries):
        total = total.followed_by(entry.release)
        if not total.is_within(epsilon, budget.delta):
            releases = [earlier.release for earlier in entries]
            used = SampledTotal.of(releases).epsilon_at(budget.delta)
            together = SampledTotal.of([*releases, new.release]).epsilon_at(budget.delta)
            needed = together - used if math.isfinite(together) else math.inf
            shown = f"{used:.4g}" if math.isfinite(used) else "more than all"
            return _Refusal(
                f"{name} has used {shown} of {epsilon:g} in {budget.window_days:,} days; "
                f"{_needs(needed, budget.delta, 'this')}",
                _expiry(entry, budget.window_days),
                {"used": used, "needed": needed, "limit": epsilon},
            )
    return None


def _needs(epsilon: float, delta: float, task: str) -> str:
    if math.isfinite(epsilon):
        return f"{task} needs {epsilon:.4g}."
    return f"with {task} no epsilon would hold at delta = {delta:g}."


class Usage(NamedTuple):
    """What was spent within the window."""

    releases: int
    series: int
    epsilon: float
    """At the delta of the budget; infinite if no epsilon holds."""
    oldest_expires: date | None
    """From which day on the oldest report no longer counts."""


def usage(record: Record, budget: DeviceBudget, *, now: datetime, author: str | None = None) -> Usage:
    """What the device has spent until now, in total or on the tasks of one author, given by the id of its key."""
    entries = record.since(max(record.day, now.astimezone(UTC).date()), budget.window_days).entries
    if author is not None:
        entries = tuple(entry for entry in entries if entry.author == record.author_tag(author))
    return Usage(
        len(entries),
        len({(entry.author, entry.series) for entry in entries}),
        SampledTotal.of(entry.release for entry in entries).epsilon_at(budget.delta),
        _expiry(entries[0], budget.window_days) if entries else None,
    )
