"""Verification of signed tasks: the signature is checked on the bytes before anything in them is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shuffledp.collection.task.canonical import canonical, parse_canonical
from shuffledp.collection.task.task import MAX_TASK_BYTES, SIGNED_AS, SignedTask, Task
from shuffledp.collection.wire.keys import SIGNATURE_SIZE, VerifyingKey, from_base64
from shuffledp.durable_files import open_regular
from shuffledp.errors import DataError, ParameterError, ShuffledpError


def authentic_task(content: bytes, *authors: VerifyingKey) -> Task:
    """The task of these bytes; ParameterError unless one of the authors signed them and the guarantee holds.

    ``values["reason"]`` of the error is a code of vectors/README.md. One line feed may follow the task.

    The signature is verified first: unsigned bytes never reach the code that builds protocols and recomputes
    guarantees, which hostile parameters could keep busy for hours.
    """
    with _refusing("not-canonical"):
        envelope = parse_canonical(content.removesuffix(b"\n"), max_bytes=MAX_TASK_BYTES)
    with _refusing("malformed"):
        if not isinstance(envelope, dict) or set(envelope) != {"task", "author", "signature"}:
            raise ParameterError("A signed task must have the keys task, author and signature.")
        signature = from_base64(envelope["signature"], SIGNATURE_SIZE)
    author = next((key for key in authors if key.id == envelope["author"]), None)
    if author is None:
        trusted = ", ".join(key.id for key in authors)
        raise ParameterError(
            f"The task was not signed by a key that is trusted here: {trusted}.", reason="unknown-author"
        )
    signed = canonical(envelope["task"])
    with _refusing("bad-signature"):
        author.verify(signature, SIGNED_AS + signed)
    with _refusing("malformed"):
        task = SignedTask.from_bytes(content).task
        if task.content != signed:  # in Python true equals 1
            raise ParameterError("The task is not in canonical form.")
        _ = task.guarantee
    return task


@contextmanager
def _refusing(reason: str) -> Iterator[None]:
    """Raise every error as a ParameterError with this reason, unless it has its own."""
    try:
        yield
    except ShuffledpError as error:
        raise ParameterError(str(error), **{"reason": reason, **error.values}) from None
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise ParameterError(
            f"The parameters of the task are not valid: {type(error).__name__}.", reason=reason
        ) from None


def load_authentic(path: Path, authors: Sequence[VerifyingKey]) -> tuple[Task, bytes]:
    """The task of a file that one of the authors signed, and its bytes.

    DataError if the file cannot be read, ParameterError if the task is not valid; both name the file.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MAX_TASK_BYTES + 2)
    except OSError as error:
        raise DataError(f"Cannot read the task {path}: {error.strerror or error}.", path=str(path)) from None
    try:
        return authentic_task(content, *authors), content.removesuffix(b"\n")
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}", **error.values) from None
