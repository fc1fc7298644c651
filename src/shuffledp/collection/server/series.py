"""The series that a server has accepted, with their cancellations, and what it tells devices about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.series import (
    MAX_SERIES_BYTES,
    Cancellation,
    Series,
    authentic_cancellation,
    authentic_series,
)
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.trusted_authors import TrustedAuthors
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.collection.wire.times import time_to
from shuffledp.errors import ParameterError


@dataclass
class AcceptedSeries:
    """A series, who signed it, and from which round on it is cancelled."""

    series: Series
    content: bytes
    """The signed document."""
    author: VerifyingKey
    cancelled_from: int | None = None
    cancellation: bytes | None = None
    """The signed document that counts."""
    _tasks: dict[int, Task] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The id in hexadecimal, as in URLs."""
        return self.series.id.hex()

    @property
    def rounds(self) -> int:
        """The number of rounds that were planned."""
        return len(self.series.keys)

    def task(self, index: int) -> Task:
        """The task of a round, derived once."""
        if index not in self._tasks:
            self._tasks[index] = self.series.task(index)
        return self._tasks[index]

    def is_cancelled(self, index: int) -> bool:
        """Whether a round does not take place."""
        return self.cancelled_from is not None and index >= self.cancelled_from

    def round_at(self, seconds: float) -> int | None:
        """The round that is open at a time, in seconds since 1970, if there is one that is not cancelled."""
        index = self.series.round_at(datetime.fromtimestamp(seconds, UTC))
        return None if index is None or self.is_cancelled(index) else index

    def answer(self, seconds: float, is_served: Callable[[str], bool]) -> bytes:
        """What devices are told, as canonical JSON: the signed documents, and the round that takes reports now."""
        index = self.round_at(seconds)
        if index is not None and not is_served(self.task(index).id.hex()):
            index = None
        return canonical(
            {
                "series": parse_canonical(self.content, max_bytes=MAX_SERIES_BYTES),
                "cancellation": None
                if self.cancellation is None
                else parse_canonical(self.cancellation, max_bytes=MAX_SERIES_BYTES),
                "round": index,
                "task": None if index is None else self.task(index).id.hex(),
            }
        )

    def to_json(self, seconds: float) -> dict[str, Any]:
        """The form in the operator's overview."""
        index, series = self.round_at(seconds), self.series
        return {
            "series": self.name,
            "name": series.first.name,
            "population": series.first.population,
            "author": self.author.id,
            "rounds": self.rounds,
            "rounds_per_device": series.rounds_per_device,
            "first_opens": time_to(series.first.opens),
            "last_closes": time_to(self.task(self.rounds - 1).closes),
            "round": index,
            "task": None if index is None else self.task(index).id.hex(),
            "cancelled_from": self.cancelled_from,
        }


class SeriesBook:
    """The series of a server, by their ids."""

    def __init__(self, authors: TrustedAuthors) -> None:
        self._authors = authors
        self._accepted: dict[bytes, AcceptedSeries] = {}

    def __iter__(self) -> Iterator[AcceptedSeries]:
        return iter(list(self._accepted.values()))

    def get(self, name: str) -> AcceptedSeries | None:
        """The series with this id in hexadecimal, if it was accepted."""
        return next((accepted for accepted in self if accepted.name == name), None)

    def read(self, content: bytes) -> AcceptedSeries:
        """A signed series; ParameterError if it is not valid, or conflicts with the series that it replaces."""
        content = content.removesuffix(b"\n")
        series = authentic_series(content, *self._authors.keys)
        author_id = parse_canonical(content, max_bytes=MAX_SERIES_BYTES)["author"]
        author = next(key for key in self._authors.keys if key.id == author_id)
        accepted = AcceptedSeries(series, content, author)
        self._check_replaced(accepted)
        return accepted

    def add(self, accepted: AcceptedSeries) -> bool:
        """Accept a series; False if it was accepted before."""
        return self._accepted.setdefault(accepted.series.id, accepted) is accepted

    def cancel(self, content: bytes) -> tuple[AcceptedSeries, Cancellation] | None:
        """Accept a signed cancellation; None if the same or an earlier round was cancelled before.

        A cancellation that only the ledger knew until now is accepted again: a process may have been killed before it
        destroyed the keys. ParameterError if there is no such series, or if another author signed it.
        """
        content = content.removesuffix(b"\n")
        cancellation = authentic_cancellation(content, *self._authors.keys)
        accepted = self._accepted.get(cancellation.series)
        if accepted is None:
            raise ParameterError(f"There is no series {cancellation.series.hex()} here that could be cancelled.")
        signer_id = parse_canonical(content, max_bytes=MAX_SERIES_BYTES)["author"]
        signer = next(key for key in self._authors.keys if key.id == signer_id)
        if not self._authors.are_same_author(accepted.author, signer):
            raise ParameterError(
                f"The series {accepted.name} was signed by the key {accepted.author.id}; {signer.id} cannot cancel it.",
                reason="unknown-author",
            )
        if cancellation.from_round >= accepted.rounds:
            raise ParameterError(
                f"The series {accepted.name} has {accepted.rounds:,} rounds; round {cancellation.from_round:,}, from "
                "which it is cancelled, is not one of them."
            )
        is_resumed = accepted.cancellation is None and accepted.cancelled_from == cancellation.from_round
        if accepted.is_cancelled(cancellation.from_round) and not is_resumed:
            return None
        accepted.cancelled_from, accepted.cancellation = cancellation.from_round, content
        return accepted, cancellation

    def _check_replaced(self, accepted: AcceptedSeries) -> None:
        """Refuse a series whose rounds overlap with those of the series that it replaces."""
        replaces = accepted.series.replaces
        if replaces is None:
            return
        replaced = self._accepted.get(replaces)
        if replaced is None:
            raise ParameterError(f"The series replaces {replaces.hex()}, which is not known here; add that first.")
        if not self._authors.are_same_author(accepted.author, replaced.author):
            raise ParameterError(f"The series replaces {replaces.hex()} of another author.")
        if replaced.cancelled_from is None:
            raise ParameterError(f"The series replaces {replaces.hex()}, which is not cancelled; cancel it first.")
        if replaced.cancelled_from == 0:
            return
        closes = replaced.task(replaced.cancelled_from - 1).closes
        if accepted.series.first.opens < closes:
            raise ParameterError(
                f"The rounds overlap: the series begins at {time_to(accepted.series.first.opens)}, and round "
                f"{replaced.cancelled_from - 1} of the series that it replaces is open until {time_to(closes)}."
            )
