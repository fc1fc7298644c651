"""The analyzer's directory: initialized once, explicitly, so that an empty directory is never taken for a new analyzer.

A volume that is not mounted looks like an empty directory. An analyzer that started there would have a new ledger, and
with it an unspent budget. A marker file says that a directory was initialized; without it the analyzer does not start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.agreement import LEDGER, RELEASES, has_ledger
from shuffledp.collection.analyzer.ledger import Ledger, entries_in
from shuffledp.collection.analyzer.publishing import published_in
from shuffledp.collection.server.batches import batches_in, tasks_with_chunks
from shuffledp.collection.server.directories import check_directory, lock_directory, make_private
from shuffledp.collection.server.logs import event
from shuffledp.durable_files import open_regular, write_durably
from shuffledp.errors import DataError, OutputError

MARKER = "analyzer.json"
_VERSION = 1
_MAX_BYTES = 1 << 12


@dataclass(frozen=True)
class Marker:
    """The content of the marker file of a directory."""

    initialized: str
    """Time of the initialization, in UTC."""
    backup: str | None = None
    """When the backup was made, if the directory is one."""

    def write(self, directory: Path) -> None:
        """Write it durably and atomically."""
        document = {"kind": "analyzer", "version": _VERSION, "initialized": self.initialized, "backup": self.backup}
        content = json.dumps(document).encode() + b"\n"
        write_durably(directory / MARKER, content, temporary=directory / f".{MARKER}")


def read_marker(directory: Path) -> Marker | None:
    """The marker of a directory; None if there is none, DataError if it is not valid."""
    path = directory / MARKER
    try:
        with open_regular(path) as file:
            document: Any = json.loads(file.read(_MAX_BYTES))
        if document["kind"] != "analyzer" or type(document["version"]) is not int:
            raise ValueError
        if document["version"] > _VERSION:
            raise DataError(f"{path} has version {document['version']}; this program reads {_VERSION}.", path=str(path))
        backup = document["backup"]
        return Marker(str(document["initialized"]), None if backup is None else str(backup))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.", path=str(path)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"{path} is not a valid marker of an analyzer directory: restore the backup.", path=str(path)
        ) from None


def initialize(directory: Path) -> None:
    """Initialize a directory for a new analyzer whose populations have spent nothing; it must not contain data.

    A missing directory is created; its parent must exist.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot create {directory}: {error.strerror or error}.", path=str(directory)) from None
    check_directory(directory)
    make_private(directory)
    lock = lock_directory(directory)
    try:
        _refuse_used(directory)
        Ledger(directory / LEDGER).close()
        Marker(_now()).write(directory)
    finally:
        lock.release()


def _refuse_used(directory: Path) -> None:
    marker = read_marker(directory)
    if marker is not None and marker.backup is not None:
        raise DataError(_is_backup(directory, marker), path=str(directory))
    if marker is not None:
        raise DataError(
            f"{directory} was initialized at {marker.initialized}; it cannot be initialized again.", path=str(directory)
        )
    if is_used(directory):
        raise DataError(
            f"{directory} contains the data of an analyzer; a new one needs an empty directory.", path=str(directory)
        )


def is_used(directory: Path) -> bool:
    """Whether a directory has data of any task."""
    return bool(
        entries_in(directory / LEDGER)
        or batches_in(directory)
        or published_in(directory / RELEASES)
        or tasks_with_chunks(directory)
    )


def check_initialized(directory: Path) -> None:
    """Refuse a directory that was not initialized, and a backup; nothing is changed.

    A directory of an earlier version has a ledger but no marker: it is accepted, and marked at the next start.
    """
    marker = read_marker(directory)
    if marker is not None and marker.backup is not None:
        raise DataError(_is_backup(directory, marker), path=str(directory))
    if marker is None and not _has_data(directory):
        raise DataError(
            f"{directory} has no ledger, so that the spent budget would be lost: mount its volume or restore the "
            "backup; if this is a new analyzer, initialize it once with `shuffledp init analyzer`.",
            path=str(directory),
        )


def mark_existing(directory: Path) -> None:
    """Write the marker of a directory of an earlier version."""
    if read_marker(directory) is None:
        Marker(_now()).write(directory)
        event("directory-marked")


def _has_data(directory: Path) -> bool:
    """Whether a directory without a marker is one of an earlier version; its consistency is checked later."""
    return has_ledger(directory) or bool(batches_in(directory)) or bool(published_in(directory / RELEASES))


def _is_backup(directory: Path, marker: Marker) -> str:
    return (
        f"{directory} is a backup, made at {marker.backup}: it may lack later releases. Restore it with "
        "`shuffledp restore analyzer`."
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
