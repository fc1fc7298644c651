"""One-time tokens: a device that reports shows one, and each pays for one report. Only their hashes are kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shuffledp.collection.files import open_regular
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable

__all__ = ["TokenFolder", "bearer_token", "create_token", "create_tokens", "token_hash"]

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{16,512}) *")
_HASH = re.compile("[0-9a-f]{64}")


def create_token() -> str:
    """A fresh token of 256 random bits, for one device."""
    return secrets.token_urlsafe(32)


def create_tokens(task_name: str, count: int, *, folder: Path, out: Path) -> None:
    """Add the hashes of fresh tokens to the folder of the shuffler, then write the tokens to a new file of mode 0600.

    Both are durable and whole or not there. Several may do it at the same time. If the tokens cannot be written,
    their hashes stay and let nobody in.
    """
    if count < 1:
        raise ParameterError(f"{count} tokens cannot be made; ask for at least one.")
    _refuse_existing(check_writable(out))
    hashes = check_writable(folder / f"{task_name}.tokens")
    tokens = [create_token() for _ in range(count)]
    try:
        with _alone_in(folder):
            known = hashes.read_bytes() if hashes.exists() else b""
            if known and not known.endswith(b"\n"):
                known += b"\n"
            added = "".join(f"{token_hash(each.encode()).hex()}\n" for each in tokens).encode()
            _write_durably(hashes, known + added, 0o644, os.replace)
    except OSError as error:
        raise OutputError(f"Cannot write {hashes}: {error.strerror or error}. No token was made.") from None
    try:
        _write_durably(out, "".join(f"{token}\n" for token in tokens).encode(), 0o600, _link_new)
    except OSError as error:
        reason = "it exists by now" if isinstance(error, FileExistsError) else error.strerror or error
        raise OutputError(
            f"Cannot write the tokens to {out}: {reason}. Nobody has them; their {count:,} hashes in {hashes} let "
            "nobody in. Name another file and run it again.",
            path=str(out),
        ) from None


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise OutputError(f"{out} exists; name another file for the tokens.", path=str(out))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process adds tokens to this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_durably(path: Path, content: bytes, mode: int, publish: Callable[[str, Path], None]) -> None:
    """Write a file beside it, and let it appear whole; if there was one, its mode and owner stay as they are."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            before = path.stat() if path.exists() else None
            if before is not None:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) if before is not None else mode)
            file.flush()
            os.fsync(file.fileno())
        publish(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _link_new(name: str, path: Path) -> None:
    os.link(name, path)  # unlike a renaming this never takes the place of a file


def token_hash(token: bytes) -> bytes:
    """What is kept of a token; it has so many random bits that a plain hash does not give it away."""
    return hashlib.sha256(token).digest()


def bearer_token(authorization: bytes | None) -> bytes | None:
    """The token of an ``Authorization`` header, if it is of the right form."""
    found = _BEARER.fullmatch(authorization) if authorization is not None else None
    return found.group(1) if found else None


class TokenFolder:
    """The hashes of the tokens of each task: the file ``TASK.tokens`` has one in hexadecimal a line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._known: dict[str, array[int]] = {}
        """The first eight bytes of the hashes of each task, in order."""

    def knows(self, task_name: str, hashed: bytes) -> bool:
        """Whether a token is in the folder, spent or not. In rare cases yes for one that is not: the store decides."""
        beginnings = self._known.get(task_name)
        if beginnings is None:
            return False
        place = bisect_left(beginnings, wanted := _beginning(hashed))
        return place < len(beginnings) and beginnings[place] == wanted

    def bring(self, task_name: str, take: Callable[[list[bytes]], None]) -> None:
        """Give all hashes of a task to ``take``, if its file changed since that last worked."""
        path = self._folder / f"{task_name}.tokens"
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._seen.get(task_name) == stamp:
                return
            with open_regular(path) as file:
                lines = file.read().decode("ascii").split()
        except FileNotFoundError:
            return  # no token is known, so no report is taken
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"Cannot read the tokens {path}: {error}.", path=str(path)) from None
        for number, line in enumerate(lines, start=1):
            if not _HASH.fullmatch(line):
                raise DataError(f"Token {number:,} of {path} is not the SHA-256 of a token in hexadecimal.")
        hashes = [bytes.fromhex(line) for line in lines]
        take(hashes)
        self._known[task_name] = array("Q", sorted(map(_beginning, hashes)))
        self._seen[task_name] = stamp


def _beginning(hashed: bytes) -> int:
    return int.from_bytes(hashed[:8], "big")
