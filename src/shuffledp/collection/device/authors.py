"""The authors that a device pins: at most two keys of each, the present one and the one before it.

A rotation that both keys signed adds the new key and drops the last but one. The ids of all earlier keys are kept, so
that the budget of an author does not start anew with another key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.key_documents import authentic_rotation
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.collection.wire.times import time_to
from shuffledp.durable_files import FileLock, open_regular, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError

_FORMAT, _VERSION = "shuffledp-authors", 1
_MAX_BYTES = 1 << 20
_PINNED = 2


@dataclass(frozen=True)
class PinnedAuthor:
    """One author: the trusted keys, the newest last, and the ids of all keys since the first."""

    keys: tuple[VerifyingKey, ...]
    ids: tuple[str, ...]

    @classmethod
    def first(cls, key: VerifyingKey) -> Self:
        """An author without rotations."""
        return cls((key,), (key.id,))

    def to_document(self) -> dict[str, Any]:
        """The form in the file."""
        return {"keys": [key.to_document() for key in self.keys], "ids": list(self.ids)}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The author of a document; ValueError, TypeError or KeyError if it is damaged."""
        keys = tuple(VerifyingKey.from_document(key) for key in document["keys"])
        ids = tuple(document["ids"])
        if not 1 <= len(keys) <= _PINNED or ids[-len(keys) :] != tuple(key.id for key in keys):
            raise ParameterError("its keys and ids do not match")
        return cls(keys, ids)


class PinnedAuthors:
    """The authors of one device, in its directory."""

    def __init__(self, directory: str | Path) -> None:
        self._directory, self._path = Path(directory), Path(directory) / "authors"

    def of(self, author: VerifyingKey) -> PinnedAuthor:
        """The author of a key that the device was installed with, also if that key was rotated since."""
        return next((pinned for pinned in self._read() if author.id in pinned.ids), PinnedAuthor.first(author))

    def first_id(self, key_id: str) -> str:
        """The id of an author's first key, under which the budget records the author, given the id of any key."""
        return next((pinned.ids[0] for pinned in self._read() if key_id in pinned.ids), key_id)

    def follow(self, content: bytes, author: VerifyingKey, *, now: datetime | None = None) -> PinnedAuthor:
        """Accept a signed rotation of an author's newest key, durably; a repeated one has no effect.

        Once the key that the device was installed with has expired, by the clock of the device (``now``), it accepts no
        rotation of it: a date in the document would protect nobody, since whoever stole the key chooses it.
        """
        with self._locked():
            pinned = self.of(author)
            rotation = authentic_rotation(content, *pinned.keys)
            if rotation.new in pinned.keys and pinned.ids.index(rotation.old.id) + 1 == pinned.ids.index(
                rotation.new.id
            ):
                return pinned
            if rotation.old != pinned.keys[-1] or rotation.new.id in pinned.ids:
                raise ParameterError(
                    f"The author's newest key is {pinned.keys[-1].id}; a rotation from {rotation.old.id} to "
                    f"{rotation.new.id} does not continue it."
                )
            if rotation.old == author and author.expires is not None and (now or datetime.now(UTC)) >= author.expires:
                raise ParameterError(
                    f"The author's key {author.id} expired at {time_to(author.expires)}: this device follows no "
                    "rotation of it any more, which may be a thief's; install the author's new key.",
                    reason="expired",
                )
            followed = PinnedAuthor((*pinned.keys, rotation.new)[-_PINNED:], (*pinned.ids, rotation.new.id))
            others = [other for other in self._read() if author.id not in other.ids]
            self._write([*others, followed])
            return followed

    def _read(self) -> list[PinnedAuthor]:
        """All authors with rotations; DataError if the file is damaged."""
        try:
            with open_regular(self._path) as file:
                document = parse_canonical(file.read(_MAX_BYTES + 1), max_bytes=_MAX_BYTES)
            if (document["format"], document["version"]) != (_FORMAT, _VERSION):
                raise ParameterError("it has another format or version")
            return [PinnedAuthor.from_document(author) for author in document["authors"]]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"Cannot read {self._path}: {error.strerror or error}.") from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = str(error).rstrip(".") if isinstance(error, ParameterError) else type(error).__name__
            raise DataError(f"{self._path}, the authors that this device trusts, is damaged ({reason}).") from None

    def _write(self, authors: list[PinnedAuthor]) -> None:
        document = {"format": _FORMAT, "version": _VERSION, "authors": [author.to_document() for author in authors]}
        try:
            write_durably(self._path, canonical(document), temporary=self._directory / "authors.new")
        except OSError as error:
            raise OutputError(f"Cannot store the author's key in {self._path}: {error.strerror or error}.") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = FileLock(self._directory / "authors.lock")
        except OSError as error:
            raise OutputError(f"Cannot lock the directory {self._directory}: {error.strerror or error}.") from None
        with lock:
            yield
