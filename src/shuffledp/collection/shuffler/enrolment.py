"""Enrolment: one-time tokens, each of which allows one report; the shuffler stores only their hashes.

The hash of a token is also the key by which a device proves that it has the token (``wire.tokens``).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shuffledp.collection.wire.tokens import token_hash, token_id
from shuffledp.durable_files import FileLock, open_regular, write_durably
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

_HASH = re.compile(rb"[0-9a-f]{64}")
_MAX_TOKENS = 1_000_000  # of one file, which is in memory when it is written
_HASH_SIZE, _PARTS = 32, 256
_HASHES_PER_TRANSACTION = 2_000
_LONGEST_PAUSE_SECONDS = 0.1
_BLOCK_BYTES, _DIGEST_BLOCK_BYTES = 1 << 16, 1 << 20


def create_token() -> str:
    """A fresh token of 256 random bits, for one device."""
    return secrets.token_urlsafe(32)


def create_tokens(task_name: str, count: int, *, directory: Path, out: Path) -> None:
    """Add the hashes of new tokens to the shuffler's directory, then write the tokens to a new file of mode 0600.

    Both writes are atomic and durable, and safe in several processes at once. If the tokens cannot be written, their
    hashes remain, without effect.
    """
    if not 1 <= count <= _MAX_TOKENS:
        raise ParameterError(f"A file has 1 to {_MAX_TOKENS:,} tokens, not {count:,}; for more, create several files.")
    _refuse_existing(check_writable(out))
    hashes = check_writable(directory / f"{task_name}.tokens")
    tokens = [create_token() for _ in range(count)]
    try:
        with FileLock(directory):
            existing = hashes.read_bytes() if hashes.exists() else b""
            if existing and not existing.endswith(b"\n"):
                existing += b"\n"
            added = "".join(f"{token_hash(token.encode()).hex()}\n" for token in tokens).encode()
            write_durably(hashes, existing + added, mode=0o644, preserve_access=True)
    except OSError as error:
        raise OutputError(f"Cannot write {hashes}: {error.strerror or error}. No token was created.") from None
    try:
        write_durably(out, "".join(f"{token}\n" for token in tokens).encode(), replace=False)
    except OSError as error:
        reason = "it was created meanwhile" if isinstance(error, FileExistsError) else error.strerror or error
        raise OutputError(
            f"Cannot write the tokens to {out}: {reason}. The tokens are lost; their {count:,} hashes in "
            f"{hashes} have no effect. Choose another file and try again.",
            path=str(out),
        ) from None


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise OutputError(f"{out} exists; choose another file for the tokens.", path=str(out))


class TokenDirectory:
    """The token files of all tasks: ``TASK.tokens`` has one hash per line, in hexadecimal."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _TokenFile] = {}

    def find(self, task_name: str, identifier: bytes) -> bytes | None:
        """The hash of the token with an id, spent or not; None if it is not in the directory."""
        file = self._files.get(task_name)
        return None if file is None else file.index.find(identifier)

    def load_new(self, task_name: str, take: Callable[[list[bytes]], None]) -> None:
        """Call ``take`` with the hashes that were appended to a task's file since the last success, in groups.

        Between groups there are pauses. If the file changed in another way, all its hashes are passed again.
        """
        path = self._directory / f"{task_name}.tokens"
        before = self._files.get(task_name, _TokenFile())
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if before.stamp == stamp:
                return
            with open_regular(path) as content:
                hashes, file = _read_tokens(content, before, stamp, path)
        except FileNotFoundError:
            return  # without tokens no report is accepted
        except OSError as error:
            raise DataError(f"Cannot read the tokens {path}: {error}.", path=str(path)) from None
        _pass_in_groups(sorted(hashes), take)  # sorted, so that the store inserts neighbours into the same pages
        file.index.add(hashes)
        self._files[task_name] = file


class _HashIndex:
    """Hashes of tokens by their ids, in 256 sorted arrays, one per first byte of an id: 40 bytes per token.

    The arrays are small, so that sorting is quick, and are replaced atomically, for concurrent readers.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[array[int], bytes]] = [(array("Q"), b"")] * _PARTS

    def find(self, identifier: bytes) -> bytes | None:
        """The hash of the token with this id."""
        prefixes, hashes = self._parts[identifier[0]]
        prefix = _prefix(identifier)
        for index in range(bisect_left(prefixes, prefix), len(prefixes)):
            if prefixes[index] != prefix:
                break
            hashed = hashes[_HASH_SIZE * index : _HASH_SIZE * (index + 1)]
            if token_id(hashed) == identifier:
                return hashed
        return None

    def add(self, hashes: Iterable[bytes]) -> None:
        """Add hashes of tokens."""
        added: dict[int, list[tuple[int, bytes]]] = {}
        for hashed in hashes:
            identifier = token_id(hashed)
            added.setdefault(identifier[0], []).append((_prefix(identifier), hashed))
        for first, pairs in added.items():
            prefixes, before = self._parts[first]
            existing = (before[at : at + _HASH_SIZE] for at in range(0, len(before), _HASH_SIZE))
            merged = sorted({*pairs, *zip(prefixes, existing, strict=True)})
            self._parts[first] = (
                array("Q", (prefix for prefix, _ in merged)),
                b"".join(hashed for _, hashed in merged),
            )


@dataclass(frozen=True)
class _TokenFile:
    """The complete lines of a file that were read; later only appended lines are read."""

    stamp: tuple[int, int, int] | None = None
    length: int = 0
    digest: bytes = hashlib.sha256().digest()
    tokens: int = 0
    index: _HashIndex = field(default_factory=_HashIndex)


def _digest_before(content: BinaryIO, before: _TokenFile) -> Hash | None:
    """The running digest of the lines that were read before, if the file still begins with them; else None."""
    running, remaining = hashlib.sha256(), before.length
    while remaining and (block := content.read(min(remaining, _DIGEST_BLOCK_BYTES))):
        running.update(block)
        remaining -= len(block)
    return running if not remaining and running.digest() == before.digest else None


def _read_tokens(
    content: BinaryIO, before: _TokenFile, stamp: tuple[int, int, int], path: Path
) -> tuple[list[bytes], _TokenFile]:
    """The appended hashes and the new state of the file; DataError for an invalid line."""
    running = _digest_before(content, before)
    if running is None:
        content.seek(0)
        before, running = _TokenFile(), hashlib.sha256()
    hashes: list[bytes] = []
    length, unterminated = before.length, b""
    while block := content.read(_BLOCK_BYTES):
        lines, newline, unterminated = (unterminated + block).rpartition(b"\n")
        running.update(lines + newline)
        length += len(lines) + len(newline)
        _parse(lines, hashes, before.tokens, path)
        if len(unterminated) > _BLOCK_BYTES:
            raise DataError(f"{path} has a line that is too long to be the SHA-256 of a token in hexadecimal.")
    tokens = before.tokens + len(hashes)
    _parse(unterminated, hashes, before.tokens, path)  # an unterminated last line is read again when the file grows
    return hashes, _TokenFile(stamp, length, running.digest(), tokens, before.index)


def _parse(lines: bytes, hashes: list[bytes], before: int, path: Path) -> None:
    for line in lines.split():
        if not _HASH.fullmatch(line):
            number = before + len(hashes) + 1
            raise DataError(f"Token {number:,} of {path} is not the SHA-256 of a token in hexadecimal.")
        hashes.append(bytes.fromhex(line.decode("ascii")))


def _pass_in_groups(hashes: Sequence[bytes], take: Callable[[list[bytes]], None]) -> None:
    """Call ``take`` with groups of hashes, with pauses in which waiting reports can acquire the lock of the store."""
    for start in range(0, len(hashes), _HASHES_PER_TRANSACTION):
        began = time.monotonic()
        take(list(hashes[start : start + _HASHES_PER_TRANSACTION]))
        if start + _HASHES_PER_TRANSACTION < len(hashes):
            time.sleep(min(_LONGEST_PAUSE_SECONDS, time.monotonic() - began))


def _prefix(identifier: bytes) -> int:
    return int.from_bytes(identifier[:8], "big")
