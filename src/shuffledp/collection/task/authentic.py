"""Verification of signed tasks: the signature is checked on the bytes before anything in them is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shuffledp.collection.task.signed_documents import check_author, refusing, verify_document
from shuffledp.collection.task.task import MAX_TASK_BYTES, SIGNED_AS, Task
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.durable_files import open_regular
from shuffledp.errors import DataError, ParameterError


def authentic_task(content: bytes, *authors: VerifyingKey) -> Task:
    """The task of these bytes; ParameterError unless one of the authors signed them and the guarantee holds.

    ``values["reason"]`` of the error is a code of vectors/README.md. One line feed may follow the task.

    The signature is verified first: unsigned bytes never reach the code that builds protocols and recomputes
    guarantees, which hostile parameters could keep busy for hours.
    """
    verified = verify_document(content, authors, name="task", labels=SIGNED_AS, max_bytes=MAX_TASK_BYTES)
    with refusing("malformed", "task"):
        task = Task.from_document(verified.document)
        if task.content != verified.content:  # equal documents may differ as bytes: True == 1
            raise ParameterError("The task is not in canonical form.")
        check_author(verified.author, task.opens, "task")
        if task.wire is not None:
            task.wire.check_supported()
        _ = task.guarantee
    return task


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
