"""Round keys: private keys that are used for one round and then destroyed, one file for each in a directory.

The directory should be on a volume of its own, encrypted and without backups. A file is named after the id of its key.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from shuffledp.collection.server.logs import event
from shuffledp.collection.task.key_documents import Destruction
from shuffledp.collection.wire.key_command import KeyReader
from shuffledp.collection.wire.keys import ExpiredKeyError, RoundKey, RoundPublicKey, SigningKey
from shuffledp.collection.wire.times import time_to
from shuffledp.durable_files import sync_directory, write_durably
from shuffledp.errors import DataError, ShuffledpError

RECORD = ".destroyed.json"
"""The end of the name of a signed record that a key was destroyed."""


class KeylessError(ShuffledpError):
    """The round key of a round is missing, so its reports cannot be opened; an operator has to act."""


@dataclass(frozen=True)
class RoundKeyDirectory:
    """The round keys of a server; without a directory it has none."""

    directory: Path | None = None
    reader: KeyReader = field(default_factory=KeyReader)
    signer: SigningKey | None = None
    """Signs the records of destroyed keys; without it they are not signed."""
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Held while a key is destroyed: the analyzer may find a released batch with one thread and end it with another."""

    def has(self, public: RoundPublicKey) -> bool:
        """Whether the file of a key exists."""
        return self.directory is not None and self.file(public).exists()

    def load(self, public: RoundPublicKey, *, until: datetime | None = None) -> RoundKey:
        """The key; KeylessError if its file is missing, cannot be used or has expired.

        With ``until``, also if the key expires before that time.
        """
        if self.directory is None:
            raise KeylessError(
                "The task has wire version 2, and no directory of round keys is configured: set round_keys."
            )
        file = self.file(public)
        if not self.has(public):
            if self.was_destroyed(public):
                raise KeylessError(f"The round key {public.id} was destroyed: cancel the round.")
            raise KeylessError(f"The round key {public.id} is missing: put {file} back, or cancel the round.")
        try:
            key = self.reader.round_key(file)
        except DataError as error:
            raise KeylessError(f"The round key {public.id} cannot be used: {error}") from None
        if key.public != public:
            raise KeylessError(f"{file} is the key {key.public.id}, not the round key {public.id}.")
        if key.expires is not None and until is not None and key.expires < until:
            raise KeylessError(
                f"The round key {public.id} expires at {time_to(key.expires)}, and the round needs it until "
                f"{time_to(until)}: use another key, or set a later time in {file}."
            )
        try:
            key.check_unexpired(datetime.fromtimestamp(self.clock(), UTC))
        except ExpiredKeyError as error:
            raise KeylessError(
                f"{error} Nothing was deleted: set a later time in {file}, or cancel the round."
            ) from None
        return key

    def destroy(self, public: RoundPublicKey) -> None:
        """Overwrite and delete the file of a key, durably, and record that; no effect if there is none.

        KeylessError, without any change, if the file has another key: that would be lost for its own round, and the
        record would be wrong. Copies that the file system or the disk keeps of earlier contents are not erased.
        """
        with self._lock:
            if self.has(public):
                self._check_content(public)
                self._destroy(public)

    def _check_content(self, public: RoundPublicKey) -> None:
        """Refuse a file with another key, as far as it can be read."""
        file = self.file(public)
        try:
            found = self.reader.round_key(file).public
        except DataError:
            return
        if found != public:
            raise KeylessError(
                f"{file} is the key {found.id}, so it was not destroyed as {public.id}: put the right file in its "
                f"place, and this one at {self.file(found).name}."
            )

    def _destroy(self, public: RoundPublicKey) -> None:
        record = Destruction(public, datetime.fromtimestamp(self.clock(), UTC))
        try:
            content = record.unsigned() if self.signer is None else record.signed(self.signer)
        except ExpiredKeyError as error:
            event("key-record-unsigned", level=logging.ERROR, key=public.id, reason=str(error))
            content = record.unsigned()
        write_durably(self._record(public), content + b"\n", mode=0o644)  # a killed process destroys the key later
        try:
            destroy_file(self.file(public))
        except FileNotFoundError:
            if self.has(public):
                raise
            return  # another process was faster, such as keys destroy; the record is true
        except OSError:
            self._record(public).unlink(missing_ok=True)
            raise
        event("key-destroyed", key=public.id)

    def was_destroyed(self, public: RoundPublicKey) -> bool:
        """Whether there is a record that a key was destroyed, and no file of it."""
        return self.directory is not None and self._record(public).exists() and not self.has(public)

    def file(self, public: RoundPublicKey) -> Path:
        """The file of a key, which need not exist."""
        return (self.directory or Path()) / f"{public.id}.key"

    def _record(self, public: RoundPublicKey) -> Path:
        return (self.directory or Path()) / f"{public.id}{RECORD}"


def destroy_file(file: Path) -> None:
    """Overwrite a file in place, delete it, and make both durable; also incomplete copies that a crash left beside it.

    Other names of the same file (hard links) lose the content too. Copies that the file system or the disk keeps of
    earlier contents are not erased.
    """
    for each in [*file.parent.glob(f".{file.name}.*"), file]:
        with each.open("r+b", buffering=0) as content:
            content.write(bytes(os.fstat(content.fileno()).st_size))
            os.fsync(content.fileno())
        each.unlink(missing_ok=True)
    sync_directory(file.parent)
