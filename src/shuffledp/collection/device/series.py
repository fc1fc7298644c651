"""A device and a series: which rounds it takes part in, drawn once and before any value is known, and when it sends.

The draw is a file in the directory of the device, durable before the first report, so that a device that restarts does
not draw again. Missed rounds stay missed.
"""

from __future__ import annotations

import hashlib
import http.client
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np

from shuffledp.collection.device.authors import PinnedAuthors
from shuffledp.collection.device.budget import DeviceBudget
from shuffledp.collection.device.client import Client
from shuffledp.collection.device.outbox import Outbox
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.series import MAX_SERIES_BYTES, Series, authentic_cancellation, authentic_series
from shuffledp.collection.transport.connection import Connection, failure_reason
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.durable_files import FileLock, open_regular, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError, PolicyError, RefusedError, UnreachableError
from shuffledp.shuffling import permute

_FORMAT, _VERSION = "shuffledp-participation", 1
_KEYS = {"format", "version", "rounds", "delays", "cancelled_from", "checksum"}
_MAX_BYTES = 1 << 16
_SENDING_PART = 0.9
"""Reports are sent in the first part of a round, so that a device that is offline for a while can still deliver."""


@dataclass(frozen=True)
class Participation:
    """The rounds of a series that a device takes part in, and how many seconds after their opening it reports."""

    rounds: tuple[int, ...]
    delays: tuple[int, ...]
    cancelled_from: int | None = None

    @classmethod
    def draw(cls, series: Series) -> Self:
        """A uniformly random choice of ``rounds_per_device`` rounds, each with a uniformly random moment."""
        order = np.arange(len(series.keys))
        permute(order)
        rounds = tuple(sorted(order[: series.rounds_per_device].tolist()))
        longest = max(1, int(_SENDING_PART * series.open_seconds))
        return cls(rounds, tuple(secrets.randbelow(longest) for _ in rounds))

    def delay(self, index: int) -> int | None:
        """The delay of a round, or None if the device does not take part in it."""
        return self.delays[self.rounds.index(index)] if index in self.rounds else None

    def to_bytes(self) -> bytes:
        """The content of the file, with a checksum."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "rounds": list(self.rounds),
            "delays": list(self.delays),
            "cancelled_from": self.cancelled_from,
        }
        return canonical({**document, "checksum": hashlib.sha256(canonical(document)).hexdigest()})

    @classmethod
    def from_bytes(cls, content: bytes, series: Series) -> Self:
        """The draw of a file; ValueError, TypeError or KeyError if it is damaged."""
        document = parse_canonical(content, max_bytes=_MAX_BYTES)
        if not isinstance(document, dict) or set(document) != _KEYS:
            raise ParameterError("it has missing or unknown keys")
        checksum = document.pop("checksum")
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ParameterError("it has another format or version")
        if checksum != hashlib.sha256(canonical(document)).hexdigest():
            raise ParameterError("its checksum is wrong")
        drawn = cls(tuple(document["rounds"]), tuple(document["delays"]), document["cancelled_from"])
        if len(set(drawn.rounds)) != len(drawn.delays) or len(drawn.rounds) > series.rounds_per_device:
            raise ParameterError("it has more rounds than the series allows")
        return drawn


class SeriesClient:
    """One device and one series. It takes part in at most ``rounds_per_device`` rounds, which are drawn once."""

    def __init__(
        self,
        signed_series: bytes,
        *,
        author: VerifyingKey,
        state: str | Path,
        policy: Policy | None = None,
        budget: DeviceBudget | None = None,
    ) -> None:
        self._author = PinnedAuthors(state).of(author)
        self.series = authentic_series(signed_series, *self._author.keys)
        self._policy, self._budget = policy or Policy(), budget
        self._policy.check(self.series.task(0))  # all rounds have the same parameters
        Outbox(state)  # creates the directory, or refuses one that others can access
        self._state, self._path = Path(state), Path(state) / f"{self.series.id.hex()}.series"
        self.participation = self._drawn()

    def cancel(self, content: bytes) -> None:
        """Accept a cancellation of the author, durably; of several the one from the earliest round counts."""
        cancellation = authentic_cancellation(content, *self._author.keys)
        if cancellation.series != self.series.id:
            raise ParameterError("The cancellation is about another series.")
        with self._locked():
            drawn = self._read() or self.participation
            if drawn.cancelled_from is None or cancellation.from_round < drawn.cancelled_from:
                drawn = replace(drawn, cancelled_from=cancellation.from_round)
                self._write(drawn)
            self.participation = drawn

    def update(self, connection: Connection) -> None:
        """Ask the server whether the series was cancelled; UnreachableError or RefusedError if it does not answer."""
        try:
            answer, content = connection.download(f"/v2/series/{self.series.id.hex()}", max_bytes=2 * MAX_SERIES_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(f"The shuffler cannot be reached: {failure_reason(error)}.") from None
        if answer.status != 200:
            raise RefusedError(f"The shuffler answered {answer.sentence.rstrip('.')}.", status=answer.status)
        try:
            cancellation = parse_canonical(content, max_bytes=2 * MAX_SERIES_BYTES)["cancellation"]
        except (ParameterError, KeyError, TypeError):
            raise RefusedError("The answer of the shuffler is not about a series.") from None
        if cancellation is not None:
            self.cancel(canonical(cancellation))

    def round_at(self, now: datetime) -> int | None:
        """The round that is open at a moment and in which the device takes part, cancelled ones excluded."""
        index = self.series.round_at(now)
        if index is None or self._is_cancelled(index):
            return None
        return index if index in self.participation.rounds else None

    def moment(self, index: int) -> datetime:
        """When the device reports to a round that it takes part in, at the earliest."""
        delay = self.participation.delay(index)
        if delay is None:
            raise PolicyError(f"This device does not take part in round {index} of the series.")
        return self.series.task(index).opens + timedelta(seconds=delay)

    def client(self, index: int) -> Client:
        """The device and the task of one round that it takes part in."""
        if index not in self.participation.rounds:
            raise PolicyError(
                f"This device does not take part in round {index} of the series: it drew "
                f"{len(self.participation.rounds):,} of {len(self.series.keys):,} rounds."
            )
        return Client.of_round(
            self.series.task(index), self._author, state=self._state, policy=self._policy, budget=self._budget
        )

    def report(self, value: Any, *, now: datetime | None = None) -> int:
        """Store a report to the open round, and return its number; PolicyError if there is nothing to report now."""
        moment = now or datetime.now(UTC)
        index = self.series.round_at(moment)
        if index is None:
            raise PolicyError("No round of the series is open now.")
        if self._is_cancelled(index):
            raise PolicyError(f"The series was cancelled from round {self.participation.cancelled_from} on.")
        client = self.client(index)
        if moment < self.moment(index):
            raise PolicyError(
                f"This device reports to round {index} from {self.moment(index):%Y-%m-%d %H:%M:%S} UTC on, a moment "
                "that it drew."
            )
        client.report(value, now=moment)
        return index

    def _is_cancelled(self, index: int) -> bool:
        cancelled_from = self.participation.cancelled_from
        return cancelled_from is not None and index >= cancelled_from

    def _drawn(self) -> Participation:
        """The draw of this device, made and stored at the first call."""
        with self._locked():
            drawn = self._read()
            if drawn is None:
                drawn = Participation.draw(self.series)
                self._write(drawn)
            return drawn

    def _read(self) -> Participation | None:
        try:
            with open_regular(self._path) as file:
                return Participation.from_bytes(file.read(_MAX_BYTES + 1), self.series)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"Cannot read {self._path}: {error.strerror or error}.") from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = str(error).rstrip(".") if isinstance(error, ParameterError) else type(error).__name__
            raise DataError(
                f"{self._path}, the rounds that this device takes part in, is damaged ({reason}); nothing is sent. "
                "Restore a copy: drawing again would exceed the guarantee."
            ) from None

    def _write(self, drawn: Participation) -> None:
        try:
            write_durably(self._path, drawn.to_bytes(), temporary=self._path.with_suffix(".series-new"))
        except OSError as error:
            raise OutputError(f"Cannot store the drawn rounds in {self._path}: {error.strerror or error}.") from None

    def _locked(self) -> FileLock:
        try:
            return FileLock(self._path.with_suffix(".series-lock"))
        except OSError as error:
            raise OutputError(f"Cannot lock the directory {self._state}: {error.strerror or error}.") from None
