"""One-time tokens: a device that reports shows one, and each pays for one report. Only their hashes are kept."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable, write_whole

__all__ = ["TokenFolder", "bearer_token", "create_token", "create_tokens", "token_hash"]

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/=-]{16,512}) *")
_HASH = re.compile("[0-9a-f]{64}")


def create_token() -> str:
    """A fresh token of 256 random bits, for one device."""
    return secrets.token_urlsafe(32)


def create_tokens(task_name: str, count: int, *, folder: Path, out: Path) -> None:
    """Write fresh tokens to a new file of mode 0600, and add their hashes to the folder of the shuffler."""
    if count < 1:
        raise ParameterError(f"{count} tokens cannot be made; ask for at least one.")
    tokens = [create_token() for _ in range(count)]
    hashes = check_writable(folder / f"{task_name}.tokens")
    known = hashes.read_bytes() if hashes.exists() else b""
    content = "".join(f"{token}\n" for token in tokens).encode()
    try:
        descriptor = os.open(check_writable(out), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OutputError(f"{out} exists; name another file for the tokens.", path=str(out)) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    write_whole(hashes, known + "".join(f"{token_hash(each.encode()).hex()}\n" for each in tokens).encode())


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

    def bring(self, task_name: str, take: Callable[[list[bytes]], None]) -> None:
        """Give all hashes of a task to ``take``, if its file changed since that last worked."""
        path = self._folder / f"{task_name}.tokens"
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._seen.get(task_name) == stamp:
                return
            lines = path.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return  # no token is known, so no report is taken
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"Cannot read the tokens {path}: {error}.", path=str(path)) from None
        for number, line in enumerate(lines, start=1):
            if not _HASH.fullmatch(line):
                raise DataError(f"Token {number:,} of {path} is not the SHA-256 of a token in hexadecimal.")
        take([bytes.fromhex(line) for line in lines])
        self._seen[task_name] = stamp
