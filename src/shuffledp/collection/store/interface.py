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

__all__ = ["TOKEN_HASH_SIZE", "Incoming", "Outcome", "RoundState", "Store", "StoreError"]

TOKEN_HASH_SIZE = 32


class StoreError(ShuffledpError):
    """The store cannot be opened, reached or written, or a round is not in the state that this needs."""


class Outcome(Enum):
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


class RoundState(Enum):
    """Where a round is; it only ever goes forward."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    SHUFFLED = "shuffled"
    """The batch file and the manifest in the note are the truth; the reports may be destroyed."""
    DELIVERED = "delivered"
    DESTROYED = "destroyed"
    """Never to be released."""


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

    def accept(self, batch: Sequence[Incoming]) -> list[Outcome]:
        """Take in reports of any rounds, each whole with its token or not at all; the outcomes in their order.

        If it raises, each of the reports may or may not be durable: sending it again is safe and tells.
        """

    def count(self, task_id: bytes) -> int:
        """How many reports the round accepted; known also after they were destroyed."""

    def state(self, task_id: bytes) -> RoundState:
        """Where the round is."""

    def rounds(self) -> Mapping[bytes, RoundState]:
        """Every round that was ever opened."""

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

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """Let these tokens, given by their SHA-256, each pay for one report; known ones stay as they are."""

    def check(self) -> None:
        """Nothing if the store can be written, else a StoreError."""

    def close(self) -> None:
        """Let go of files and connections."""
