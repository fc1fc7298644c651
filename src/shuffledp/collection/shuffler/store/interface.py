"""What the shuffler keeps durably: reports of rounds that are open, and the state of every round for ever.

Nothing of a report is kept but its bytes: no address and no time. No column links a token to the report it paid for,
but both are written in one transaction, so that the database's own log tells with which reports a token was spent,
until the round is destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from shuffledp.errors import ShuffledpError

TOKEN_HASH_SIZE = 32


class StoreError(ShuffledpError):
    """The store cannot be opened, reached or written, or a round is not in the state that this needs."""


class UnreachableStoreError(StoreError):
    """The database does not answer at the moment; a later attempt may succeed without any change."""


class DamagedRoundError(StoreError):
    """The stored reports of one round cannot be used; other rounds may be in order."""


class ReportOutcome(Enum):
    """What became of a report."""

    NEW = "new"
    """It is durable."""
    SAME = "same"
    """It was here already, with these bytes."""
    CONFLICT = "conflict"
    """Another report with this id is here."""
    CLOSED = "closed"
    """The round takes no reports any more, or was never opened. Said also to one that it holds already."""
    FULL = "full"
    """The round holds as many reports as it may."""
    TOKEN_UNKNOWN = "token-unknown"  # noqa: S105
    """The round wants tokens, and this is none of its own, or there is none."""
    TOKEN_SPENT = "token-spent"  # noqa: S105
    """Another report was accepted with this token."""
    UNAVAILABLE = "unavailable"
    """The storage of this round fails while that of others may work. It may or may not be durable."""


class RoundState(Enum):
    """Where a round is; it only ever goes forward."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    SHUFFLED = "shuffled"
    """The batch file and the manifest in the note are the truth; the reports may be destroyed."""
    DELIVERED = "delivered"
    DESTROYED = "destroyed"
    """Never to be released."""
    CANCELLED = "cancelled"
    """An operator ended it before it was shuffled; its reports were destroyed."""
    ABANDONED = "abandoned"
    """An operator gave it up: its reports were damaged, or its batch could not be delivered."""


FINISHED = frozenset(
    {RoundState.DELIVERED, RoundState.DESTROYED, RoundState.CANCELLED, RoundState.ABANDONED},
)
"""The states that a round never leaves."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """State of one round at the time of a survey."""

    state: RoundState
    reports: int
    error: str | None = None
    """Why the stored reports of this round cannot be used; names the file or table and the round."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All rounds of a store, read at once."""

    rounds: Mapping[bytes, RoundRecord]
    time: float | None = None
    """Wall-clock time of the store in seconds since 1970, if it has a clock of its own."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A report that was checked and waits to become durable."""

    task_id: bytes
    report_id: bytes
    body: bytes = field(repr=False)
    token_hash: bytes | None = field(default=None, repr=False)
    """The SHA-256 of the enrolment token, where the round wants one."""


class Store(Protocol):
    """Safe to use from several threads. Everything is durable when a call returns; failures are StoreErrors."""

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """Begin to collect, or do nothing if the round is known, whatever its state: no round opens twice."""

    def accept(self, batch: Sequence[Incoming]) -> list[ReportOutcome]:
        """Take in reports of any rounds, each whole with its token or not at all; the outcomes in their order.

        If it raises, each of the reports may or may not be durable: sending it again is safe and tells.
        """

    def count(self, task_id: bytes) -> int:
        """How many reports the round accepted; known also after they were destroyed."""

    def state(self, task_id: bytes) -> RoundState:
        """Where the round is."""

    def rounds(self) -> Mapping[bytes, RoundState]:
        """Every round that was ever opened."""

    def survey(self) -> Survey:
        """State, number of reports and damage of every round that was ever opened, at the cost of one statement.

        It also does the store's own periodic work: noticing files that were deleted or replaced.
        """

    def note(self, task_id: bytes) -> bytes:
        """What was noted at the last advance: the signed manifest of a round that was shuffled, else nothing."""

    def close_round(self, task_id: bytes) -> int:
        """Accept no report after this; returns how many there are. Closing again says the same number."""

    def claim(self, task_id: bytes) -> AbstractContextManager[bool]:
        """Whether this caller alone may release the round, for as long as the context lasts; never waits.

        It saves work in vain. What makes a release happen once is ``advance``, which only one caller can do.
        """

    def advance(self, task_id: bytes, to: RoundState, note: bytes = b"") -> None:
        """From CLOSED to SHUFFLED, with the manifest as the note, or from SHUFFLED to DELIVERED.

        Repeating a step with the same note does nothing; with another note, or in another state, it is refused.
        """

    def reports(self, task_id: bytes) -> Iterator[bytes]:
        """The bodies of all reports of a closed round, in no particular order, in bounded memory."""

    def destroy(self, task_id: bytes) -> None:
        """Reports, their ids and the tokens are gone for good; the round can never open again.

        A CLOSED round becomes DESTROYED, a SHUFFLED or DELIVERED one keeps its state. Others are refused.
        """

    def give_up(self, task_id: bytes, to: RoundState) -> None:
        """End a round without a release: reports and tokens are destroyed, and the new state is recorded for good.

        To CANCELLED from COLLECTING or CLOSED, to ABANDONED from any state that is not finished. Works for damaged
        rounds. Repeating it does nothing.
        """

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """Let these tokens, given by their SHA-256, each pay for one report; known ones stay as they are."""

    def check(self) -> None:
        """Nothing if the store can be written, else a StoreError."""

    def close(self) -> None:
        """Let go of files and connections."""
