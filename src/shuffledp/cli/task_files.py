"""Tasks, keys and enrolment tokens read from files, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shuffledp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from shuffledp.collection.task.task import SignedTask, Task
    from shuffledp.collection.wire.keys import RoundPublicKey, SealingPublicKey, SigningKey, VerifyingKey

_MAX_TOKEN_BYTES = 1 << 30


def read_task_bytes(path: Path) -> bytes:
    """Read the file of a task, up to slightly more than the maximum size of a task."""
    from shuffledp.collection.task.task import MAX_TASK_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_TASK_BYTES + 2)
    except OSError as error:
        raise DataError(f"Cannot read the task {path}: {error.strerror or error}.", path=str(path)) from None


def read_task(path: Path) -> SignedTask:
    """Read a signed task without verifying its signature."""
    from shuffledp.collection.task.task import SignedTask

    with errors_in(path):
        return SignedTask.from_bytes(read_task_bytes(path))


def read_authentic(path: Path, author: Path) -> Task:
    """Read a task and verify the author's signature and its guarantee."""
    from shuffledp.collection.task.authentic import authentic_task

    key = read_verifying_key(author)
    with errors_in(path):
        return authentic_task(read_task_bytes(path), key)


def read_verifying_key(path: Path) -> VerifyingKey:
    """Read the public key of an author or a shuffler."""
    from shuffledp.collection.wire.keys import VerifyingKey

    with errors_in(path):
        return VerifyingKey.load(path)


def read_sealing_key(path: Path) -> SealingPublicKey:
    """Read the public key of an analyzer."""
    from shuffledp.collection.wire.keys import SealingPublicKey

    with errors_in(path):
        return SealingPublicKey.load(path)


def read_round_key(path: Path) -> RoundPublicKey:
    """Read the public round key of a shuffler, of either suite."""
    from shuffledp.collection.wire.keys import public_round_key

    with errors_in(path):
        return public_round_key(path)


def read_signing_key(path: Path) -> SigningKey:
    """Read the private key of an author."""
    from shuffledp.collection.wire.keys import SigningKey

    with errors_in(path):
        return SigningKey.load(path)


def read_tokens(path: Path | None) -> list[str] | None:
    """Read enrolment tokens, one per line; only the owner may have access to the file."""
    from shuffledp.collection.wire.tokens import check_token

    if path is None:
        return None
    try:
        status = path.stat()
        if status.st_mode & 0o077:
            raise DataError(f"{path} can be read by others; tokens need mode 0600: chmod 600 {path}.", path=str(path))
        if status.st_size > _MAX_TOKEN_BYTES:
            raise DataError(f"{path} is too large for a file of tokens.", path=str(path))
        tokens = path.read_text(encoding="ascii").split()
    except OSError as error:
        raise DataError(f"Cannot read the tokens {path}: {error.strerror or error}.", path=str(path)) from None
    except UnicodeError:
        raise DataError(f"{path} is not a token file: tokens are ASCII.", path=str(path)) from None
    if not tokens:
        raise DataError(f"{path} contains no token.", path=str(path))
    with errors_in(path):
        for token in tokens:
            check_token(token)
    return tokens


@contextmanager
def errors_in(path: Path) -> Iterator[None]:
    """Report a ParameterError as an error in the file, which is not wrong usage of the command."""
    try:
        yield
    except ParameterError as error:
        raise DataError(f"{path}: {error}", path=str(path)) from None
