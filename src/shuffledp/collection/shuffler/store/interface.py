"""The interface of the shuffler's stores: reports of unfinished rounds, and the state of every round permanently.

Of a report only its bytes are stored: no address and no time. No column links a token to its report, but both are
written in one transaction. Until the round is destroyed, the write-ahead log of the database therefore reveals a
small group of reports that contains the report of a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from shuffledp.errors import ShuffledpError


class StoreError(ShuffledpError):
    """The store cannot be opened, reached or written, or a round is in the wrong state for an operation."""


class UnreachableStoreError(StoreError):
    """The database does not answer at the moment; a later attempt may succeed without any change."""


class DamagedRoundError(StoreError):
    """The stored reports of one round cannot be used; other rounds may be intact."""


class ReportOutcome(Enum):
    """The outcome of accepting a report."""

    NEW = "new"
    """It is durable."""
    SAME = "same"
    """It was stored before, with the same bytes."""
    CONFLICT = "conflict"
    """Another report with this id is stored."""
    CLOSED = "closed"
    """The round is closed or was never opened; also returned for a report that is stored."""
    FULL = "full"
    """The round has its maximum number of reports."""
    TOKEN_UNKNOWN = "token-unknown"  # noqa: S105
    """The round requires a token, and the report has none or an unknown one."""
    TOKEN_SPENT = "token-spent"  # noqa: S105
    """Another report was accepted with this token."""
    UNAVAILABLE = "unavailable"
    """The storage of this round fails, while other rounds may work; the report may or may not be durable."""


class RoundState(Enum):
    """State of a round; it only advances."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    SHUFFLED = "shuffled"
    """The batch file and the manifest in the note are authoritative; the reports may be destroyed."""
    DELIVERED = "delivered"
    DESTROYED = "destroyed"
    """Too few reports: it is never released."""
    CANCELLED = "cancelled"
    """An operator ended it before it was shuffled; its reports were destroyed."""
    ABANDONED = "abandoned"
    """An operator gave it up: its reports were damaged, or its batch could not be delivered."""


FINISHED = frozenset(
    {RoundState.DELIVERED, RoundState.DESTROYED, RoundState.CANCELLED, RoundState.ABANDONED},
)
"""The final states."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """State of one round at the time of a snapshot."""

    state: RoundState
    reports: int
    error: str | None = None
    """Why the stored reports of this round cannot be used; names the file or table and the round."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """All rounds of a store, read at once."""

    rounds: Mapping[bytes, RoundRecord]
    time: float | None = None
    """Wall-clock time of the store in seconds since 1970, if it has a clock of its own."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A valid report that waits to become durable."""

    task_id: bytes
    report_id: bytes
    body: bytes = field(repr=False)
    token_hash: bytes | None = field(default=None, repr=False)
    """The SHA-256 of the enrolment token, if the round requires one."""


class Store(Protocol):
    """Safe to use from several threads. Everything is durable when a call returns; failures are StoreErrors."""

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """Begin to collect; no effect if the round exists in any state: no round opens twice."""

    def accept(self, batch: Sequence[Incoming]) -> list[ReportOutcome]:
        """Store reports of any rounds, each atomically with its token; the outcomes are in the same order.

        If it raises, each report may or may not be durable; accepting it again is safe and returns the outcome.
        """

    def count(self, task_id: bytes) -> int:
        """The number of reports that the round accepted, even after they were destroyed."""

    def state(self, task_id: bytes) -> RoundState:
        """The state of the round."""

    def rounds(self) -> Mapping[bytes, RoundState]:
        """Every round that was ever opened."""

    def snapshot(self) -> StoreSnapshot:
        """State, number of reports and damage of every round that was ever opened, with one query.

        It also does the store's periodic work, such as detecting deleted and replaced files.
        """

    def note(self, task_id: bytes) -> bytes:
        """The note of the last advance: the signed manifest of a shuffled round, else empty."""

    def close_round(self, task_id: bytes) -> int:
        """Close the round, and return its number of reports; closing it again returns the same number."""

    def claim(self, task_id: bytes) -> AbstractContextManager[bool]:
        """A context whose value is whether this caller alone may shuffle or deliver the round; it never waits.

        It prevents duplicate work. That a batch is made once is ensured by ``advance``, which succeeds for one caller.
        """

    def advance(self, task_id: bytes, to: RoundState, note: bytes = b"") -> None:
        """From CLOSED to SHUFFLED, with the manifest as the note, or from SHUFFLED to DELIVERED.

        Repeating it with the same note has no effect; with another note, or in another state, it is refused.
        """

    def reports(self, task_id: bytes) -> Iterator[bytes]:
        """The bodies of all reports of a closed round, in any order, with bounded memory."""

    def destroy(self, task_id: bytes) -> None:
        """Delete the reports, their ids and the tokens; the round can never open again.

        A CLOSED round becomes DESTROYED, a SHUFFLED or DELIVERED one keeps its state; a COLLECTING one is refused.
        """

    def give_up(self, task_id: bytes, to: RoundState) -> None:
        """End a round without delivery: delete its reports and tokens, and record the final state.

        To CANCELLED from COLLECTING or CLOSED, to ABANDONED from any state that is not final. It also works for damaged
        rounds; repeating it has no effect.
        """

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """Add tokens, given by their SHA-256, each of which allows one report; existing ones are unchanged."""

    def check(self) -> None:
        """Raise a StoreError if the store cannot be written."""

    def close(self) -> None:
        """Close files and connections."""
