"""Traps: reports of dummies that a later shuffler sends like a device, to detect that an earlier one drops reports.

A later shuffler of a chain cannot see that reports are missing. Its traps look like any other report to the shufflers
before it, and it recognizes their messages once it has opened its layer. If a trap was accepted and one of its messages
is missing, reports were dropped, and the round is destroyed. Traps are left out of the batch.

Each trap is stored before it is sent, and marked once it was accepted, so that a killed process forgets none.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shuffledp.collection.device.sending import Patience, deliver, reports_path
from shuffledp.collection.task.task import Task
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.formats import REPORT_ID_SIZE, ReportFormat, digest
from shuffledp.collection.wire.layers import add_layers
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.durable_files import sync_directory, write_durably
from shuffledp.errors import RefusedError, ShuffledpError

_SHARE_OF_THE_ROUND = 0.9  # in which traps are sent, at random moments
_ONE_ATTEMPT = Patience(attempts=1)


class TrapMissingError(ShuffledpError):
    """A trap was accepted and is not in the batch: an earlier shuffler dropped reports."""


@dataclass
class TrapWatch:
    """Recognizes the messages of this shuffler's traps in the batch of the one before."""

    traps: Mapping[bytes, int] = field(default_factory=dict)
    """From the SHA-256 of each message of a trap, without its layer, to the number of the trap."""
    accepted: frozenset[int] = frozenset()
    """The numbers of the traps that were accepted."""
    unknown: frozenset[int] = frozenset()
    """The numbers of those that were refused after an attempt without an answer, in which they may have been accepted.

    They raise no alarm: a lost connection would destroy the round.
    """
    per_report: int = 1
    found: Counter[int] = field(default_factory=Counter)

    def without_traps(self, messages: bytes, size: int) -> bytes:
        """Concatenated messages of ``size`` bytes without those of traps, which are counted."""
        if not self.traps:
            return messages
        kept = bytearray()
        for start in range(0, len(messages), size):
            message = messages[start : start + size]
            trap = self.traps.get(digest(message))
            if trap is None:
                kept += message
            else:
                self.found[trap] += 1
        return bytes(kept)

    def check(self) -> int:
        """How many traps are complete; TrapMissingError unless all are that were accepted."""
        complete = {trap for trap, messages in self.found.items() if messages == self.per_report}
        if missing := self.accepted - complete:
            raise TrapMissingError(
                f"{len(missing):,} of {len(self.accepted):,} traps that were accepted are missing or incomplete in the "
                "batch: an earlier shuffler dropped reports.",
                missing=len(missing),
            )
        return len(complete)


@dataclass(frozen=True)
class TrapDirectory:
    """The traps of all rounds, and where they are sent."""

    directory: Path
    first_shuffler: str | None = None
    certificates: Path | None = None
    tokens: Path | None = None
    """A directory of ``TASK.txt`` files with an enrolment token for each trap, one per line."""

    def prepare(self, task: Task, hop: int) -> None:
        """Make the traps of a round durably, unless they exist; each has a random moment at which it is sent."""
        place = self._place(task.id)
        if place.exists():
            return
        new = self.directory / f".{place.name}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700, parents=True)
        opens, seconds = task.opens.timestamp(), (task.closes - task.opens).total_seconds()
        moments = random.SystemRandom()
        for number in range(task.wire.traps if task.wire is not None else 0):
            report, digests = _trap(task, hop)
            due = opens + _SHARE_OF_THE_ROUND * seconds * moments.random()
            document = {"due": due, "messages": [message.hex() for message in digests]}
            write_durably(new / f"{number}.report", report, mode=0o600)
            write_durably(new / f"{number}.json", json.dumps(document).encode(), mode=0o600)
        sync_directory(new)
        new.rename(place)
        sync_directory(self.directory)

    def send_due(self, task: Task, now: float, proceed: Callable[[], None] = lambda: None) -> None:
        """Send the traps whose moment has come and that have no answer yet; one attempt each.

        ShuffledpError if one could not be sent; it is tried again. A trap that is refused for good stays unsent. One
        that is refused does not keep the others back.
        """
        place = self._place(task.id)
        due = [
            number
            for number, document in self._documents(task.id).items()
            if document["due"] <= now and not self._mark(place, number).exists()
        ]
        if not due or self.first_shuffler is None:
            return
        tokens = self._tokens_of(task)
        refusal: RefusedError | None = None
        with Connection(self.first_shuffler, insecure_http=True, authorities=self.certificates) as connection:
            for number in due:
                proceed()
                report, token = (place / f"{number}.report").read_bytes(), tokens.get(number)
                attempt = place / f"{number}.attempt"
                is_unanswered = attempt.exists()
                write_durably(attempt, b"", mode=0o600)
                try:
                    deliver(
                        connection,
                        reports_path(task),
                        report,
                        token=token,
                        version=task.version,
                        patience=_ONE_ATTEMPT,
                    )
                except RefusedError as error:
                    if error.values.get("final"):
                        answer = b"unknown" if is_unanswered else b"refused"
                        write_durably(self._mark(place, number), answer, mode=0o600)
                    else:
                        refusal = error
                        if not is_unanswered:
                            attempt.unlink()
                else:
                    write_durably(self._mark(place, number), b"accepted", mode=0o600)
        if refusal is not None:
            raise refusal

    def watch(self, task: Task) -> TrapWatch:
        """What to look for in the batch of a round."""
        place = self._place(task.id)
        traps: dict[bytes, int] = {}
        marked: defaultdict[bytes, set[int]] = defaultdict(set)
        for number, document in self._documents(task.id).items():
            traps |= {bytes.fromhex(message): number for message in document["messages"]}
            mark = self._mark(place, number)
            if mark.exists():
                marked[mark.read_bytes()].add(number)
        accepted, unknown = frozenset(marked[b"accepted"]), frozenset(marked[b"unknown"])
        return TrapWatch(traps, accepted, unknown, task.messages_per_report)

    def delete(self, task_id: bytes) -> None:
        """Delete the traps of a round that is over."""
        shutil.rmtree(self._place(task_id), ignore_errors=True)

    def _documents(self, task_id: bytes) -> dict[int, dict[str, Any]]:
        files = self._place(task_id).glob("*.json")
        return {int(file.stem): json.loads(file.read_bytes()) for file in files}

    def _tokens_of(self, task: Task) -> dict[int, str]:
        if self.tokens is None:
            return {}
        file = self.tokens / f"{task.id.hex()}.txt"
        return dict(enumerate(file.read_text(encoding="ascii").split())) if file.exists() else {}

    def _place(self, task_id: bytes) -> Path:
        return self.directory / task_id.hex()

    def _mark(self, place: Path, number: int) -> Path:
        return place / f"{number}.answer"


def _trap(task: Task, hop: int) -> tuple[bytes, list[bytes]]:
    """A report of dummies, and the hashes of its messages as the shuffler with this index sees them."""
    if task.wire is None:
        raise ShuffledpError("Only tasks of wire version 2 have traps.")
    sealed = Sealer(task.analyzer, task.id, task.message_size, task.version).seal([], task.messages_per_report)
    keys = task.wire.round_keys
    inner = add_layers(sealed, keys, task.id, after=hop)
    report = ReportFormat.of(task).build(
        os.urandom(REPORT_ID_SIZE), add_layers(inner, keys[: hop + 1], task.id, after=0)
    )
    return report, [digest(message) for message in inner]
