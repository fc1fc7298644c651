"""What a device keeps of its reports: the sealed bytes until they are delivered, then only that they were.

One folder per device, one file per task. A file is written whole and made durable before anything is sent, so that a
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

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        try:
            create_directory(self._folder)
            found = self._folder.stat()
        except OSError as error:
            raise OutputError(f"Cannot make the folder {folder}: {error.strerror or error}.") from None
        if not stat.S_ISDIR(found.st_mode):
            raise OutputError(f"{folder} is not a folder.")
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():  # others could remove a report, and have it redrawn
            raise OutputError(
                f"The folder {folder} belongs to or is open to others; a device's reports want its own, of mode 0700: "
                f"chmod 700 {folder}."
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
            raise OutputError(f"Cannot lock the folder {self._folder}: {error.strerror or error}.") from None
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
            sync_directory(self._folder)  # putting it there may have failed in its last step
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
        return self._folder / f"{task_id.hex()}{suffix}"

    def _has(self, task_id: bytes, suffix: str) -> bool:
        """Whether there is such a file. Not to know is an error: it must not pass for no."""
        try:
            os.lstat(self._file(task_id, suffix))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise OutputError(f"Cannot look into the folder {self._folder}: {error.strerror or error}.") from None
        return True

    def _tidy(self, task_id: bytes) -> None:
        """Remove a file that was not finished, and a report whose end is known."""
        gone = [_NEW] if self._has(task_id, _NEW) else []
        if self._has(task_id, _PENDING) and self.state(task_id) is not State.PENDING:
            gone.append(_PENDING)
        if not gone:
            return
        try:
            for suffix in gone:
                self._file(task_id, suffix).unlink()
            sync_directory(self._folder)
        except OSError as error:
            raise OutputError(f"Cannot tidy the folder {self._folder}: {error.strerror or error}.") from None

    def _write(self, task_id: bytes, suffix: str, content: bytes) -> None:
        """Whole or not at all: under the lock there is one temporary file at most."""
        try:
            write_durably(self._file(task_id, suffix), content, temporary=self._file(task_id, _NEW))
        except OSError as error:
            raise OutputError(f"Cannot keep the report in {self._folder}: {error.strerror or error}.") from None
