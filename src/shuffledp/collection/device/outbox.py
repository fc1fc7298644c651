"""The outbox of a device: sealed reports until they are delivered, then only that they were.

One directory per device, one file per task. A file is written whole and made durable before anything is sent, so that a
report that may have left the device is never randomized again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from shuffledp.collection.transport.files import FileLock, create_directory, sync_directory, write_durably
from shuffledp.errors import DataError, OutputError

_PENDING, _LOCK, _NEW = ".report", ".lock", ".new"


class State(Enum):
    """How far a report to one task has come."""

    NONE = "none"
    PENDING = "pending"
    """It is sealed and stored, and may have been sent."""
    DELIVERED = "delivered"
    CLOSED = "closed"
    """The round takes no reports any more; whether an earlier attempt arrived is not known."""
    REFUSED = "refused"
    """The server will never take it."""


_FINAL = {State.DELIVERED: ".delivered", State.CLOSED: ".closed", State.REFUSED: ".refused"}


class Outbox:
    """The reports of one device, durable; no raw value is ever stored."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        try:
            create_directory(self._directory)
            status = self._directory.stat()
        except OSError as error:
            raise OutputError(f"Cannot create the directory {directory}: {error.strerror or error}.") from None
        if not stat.S_ISDIR(status.st_mode):
            raise OutputError(f"{directory} is not a directory.")
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():  # others could remove a report, and have it redrawn
            raise OutputError(
                f"The directory {directory} belongs to or is open to others; the reports of a device need a directory "
                f"of its own, of mode 0700: chmod 700 {directory}."
            )

    def state(self, task_id: bytes) -> State:
        """How far the report to this task has come."""
        for state, suffix in (*_FINAL.items(), (State.PENDING, _PENDING)):
            if self._has(task_id, suffix):
                return state
        return State.NONE

    @contextmanager
    def locked(self, task_id: bytes) -> Iterator[None]:
        """Only one process and thread at a time works on the report to a task; what a crash left over is removed."""
        try:
            lock = FileLock(self._file(task_id, _LOCK))
        except OSError as error:
            raise OutputError(f"Cannot lock the directory {self._directory}: {error.strerror or error}.") from None
        with lock:
            self._tidy(task_id)
            yield

    def put(self, task_id: bytes, report: bytes) -> None:
        """Keep a sealed report, durable when this returns. Only under the lock, and only if there is none."""
        self._write(task_id, _PENDING, report)

    def pending(self, task_id: bytes) -> bytes:
        """The sealed report that is still to be delivered; certainly durable."""
        try:
            report = self._file(task_id, _PENDING).read_bytes()
            sync_directory(self._directory)  # putting it there may have failed in its last step
        except OSError as error:
            raise DataError(f"Cannot read the stored report: {error.strerror or error}.") from None
        return report

    def finish(self, task_id: bytes, state: State, note: str = "") -> None:
        """Remember for good what became of the report, and delete its bytes. Only under the lock."""
        self._write(task_id, _FINAL[state], note.encode(errors="replace"))
        self._tidy(task_id)

    def note(self, task_id: bytes) -> str:
        """Why a report was not taken."""
        for suffix in _FINAL.values():
            if self._has(task_id, suffix):
                return self._file(task_id, suffix).read_text(encoding="utf-8", errors="replace")
        return ""

    def _file(self, task_id: bytes, suffix: str) -> Path:
        return self._directory / f"{task_id.hex()}{suffix}"

    def _has(self, task_id: bytes, suffix: str) -> bool:
        """Whether there is such a file. Not to know is an error: it must not pass for no."""
        try:
            os.lstat(self._file(task_id, suffix))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise OutputError(f"Cannot read the directory {self._directory}: {error.strerror or error}.") from None
        return True

    def _tidy(self, task_id: bytes) -> None:
        """Remove a file that was not finished, and a report whose end is known."""
        obsolete = [_NEW] if self._has(task_id, _NEW) else []
        if self._has(task_id, _PENDING) and self.state(task_id) is not State.PENDING:
            obsolete.append(_PENDING)
        if not obsolete:
            return
        try:
            for suffix in obsolete:
                self._file(task_id, suffix).unlink()
            sync_directory(self._directory)
        except OSError as error:
            raise OutputError(f"Cannot clean up the directory {self._directory}: {error.strerror or error}.") from None

    def _write(self, task_id: bytes, suffix: str, content: bytes) -> None:
        """Whole or not at all: under the lock there is one temporary file at most."""
        try:
            write_durably(self._file(task_id, suffix), content, temporary=self._file(task_id, _NEW))
        except OSError as error:
            raise OutputError(f"Cannot store the report in {self._directory}: {error.strerror or error}.") from None
