"""Round keys: the private keys of outer seals, one file for each round, destroyed once the round is mixed.

The directory should be on a volume of its own, encrypted and without backups. A file is named after the id of its key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shuffledp.collection.server.logs import event
from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey
from shuffledp.durable_files import sync_directory
from shuffledp.errors import DataError, ShuffledpError


class KeylessError(ShuffledpError):
    """The round key of a round is missing, so its reports cannot be opened; an operator has to act."""


@dataclass(frozen=True)
class RoundKeyDirectory:
    """The round keys of a server; without a directory it has none."""

    directory: Path | None = None

    def has(self, public: SealingPublicKey) -> bool:
        """Whether the file of a key exists."""
        return self.directory is not None and self._file(public).exists()

    def load(self, public: SealingPublicKey) -> SealingKey:
        """The key; KeylessError if its file is missing or cannot be used."""
        if self.directory is None:
            raise KeylessError(
                "The task has wire version 2, and no directory of round keys is configured: set round_keys."
            )
        if not self.has(public):
            raise KeylessError(
                f"The round key {public.id} is missing: put {self._file(public)} back, or cancel the round."
            )
        try:
            key = SealingKey.load(self._file(public))
        except DataError as error:
            raise KeylessError(f"The round key {public.id} cannot be used: {error}") from None
        if key.public != public:
            raise KeylessError(f"{self._file(public)} is the key {key.public.id}, not the round key {public.id}.")
        return key

    def destroy(self, public: SealingPublicKey) -> None:
        """Overwrite and delete the file of a key, durably; no effect if there is none.

        Copies that the file system or the disk keeps of earlier contents are not erased.
        """
        if self.directory is None or not self.has(public):
            return
        file = self._file(public)
        with file.open("r+b", buffering=0) as content:
            content.write(bytes(os.fstat(content.fileno()).st_size))
            os.fsync(content.fileno())
        file.unlink(missing_ok=True)
        sync_directory(self.directory)
        event("key-destroyed", key=public.id)

    def _file(self, public: SealingPublicKey) -> Path:
        return (self.directory or Path()) / f"{public.id}.key"
