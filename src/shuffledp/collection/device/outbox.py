"""The outbox of a device: sealed reports until they are delivered, then only the final state.

One directory per device, one file per task. The file is durable before anything is sent, so that a report that may have
left the device is never randomized again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from shuffledp.durable_files import FileLock, create_directory, sync_directory, write_durably
from shuffledp.errors import DataError, OutputError

_PENDING, _LOCK, _NEW = ".report", ".lock", ".new"


class State(Enum):
    """State of the report to one task."""

    NONE = "none"
    PENDING = "pending"
    """Sealed and stored; it may have been sent."""
    DELIVERED = "delivered"
    CLOSED = "closed"
    """The round is closed; an earlier attempt may have arrived."""
    REFUSED = "refused"
    """The server will never accept it."""


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
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():  # deleting a report would allow a second one
            raise OutputError(
                f"The directory {directory} belongs to or is accessible to other users; the reports of a device need "
                f"a directory of mode 0700: chmod 700 {directory}."
            )

    def state(self, task_id: bytes) -> State:
        """The state of the report to this task."""
        for state, suffix in (*_FINAL.items(), (State.PENDING, _PENDING)):
            if self._has(task_id, suffix):
                return state
        return State.NONE

    @contextmanager
    def locked(self, task_id: bytes) -> Iterator[None]:
        """Lock the report to a task against other processes and threads, and remove leftovers of a crash."""
        try:
            lock = FileLock(self._file(task_id, _LOCK))
        except OSError as error:
            raise OutputError(f"Cannot lock the directory {self._directory}: {error.strerror or error}.") from None
        with lock:
            self._tidy(task_id)
            yield

    def put(self, task_id: bytes, report: bytes) -> None:
        """Store a sealed report durably. The caller holds the lock, and there is no report yet."""
        self._write(task_id, _PENDING, report)

    def pending(self, task_id: bytes) -> bytes:
        """The sealed report that is not delivered yet; it is durable."""
        try:
            report = self._file(task_id, _PENDING).read_bytes()
            sync_directory(self._directory)  # the last step of ``put`` may have failed
        except OSError as error:
            raise DataError(f"Cannot read the stored report: {error.strerror or error}.") from None
        return report

    def finish(self, task_id: bytes, state: State, note: str = "") -> None:
        """Record the final state durably, and delete the report. The caller holds the lock."""
        self._write(task_id, _FINAL[state], note.encode(errors="replace"))
        self._tidy(task_id)

    def note(self, task_id: bytes) -> str:
        """Why a report was refused."""
        for suffix in _FINAL.values():
            if self._has(task_id, suffix):
                return self._file(task_id, suffix).read_text(encoding="utf-8", errors="replace")
        return ""

    def _file(self, task_id: bytes, suffix: str) -> Path:
        return self._directory / f"{task_id.hex()}{suffix}"

    def _has(self, task_id: bytes, suffix: str) -> bool:
        """Whether a file exists; OutputError if that cannot be determined, since it might exist."""
        try:
            os.lstat(self._file(task_id, suffix))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise OutputError(f"Cannot read the directory {self._directory}: {error.strerror or error}.") from None
        return True

    def _tidy(self, task_id: bytes) -> None:
        """Delete an incomplete file, and a report with a final state."""
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
        """Write atomically; under the lock one temporary name is enough."""
        try:
            write_durably(self._file(task_id, suffix), content, temporary=self._file(task_id, _NEW))
        except OSError as error:
            raise OutputError(f"Cannot store the report in {self._directory}: {error.strerror or error}.") from None
