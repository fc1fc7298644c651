"""What the commands that read a task share: files to tasks and keys, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.cli.options import number, whole_number
from shuffledp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from shuffledp.collection.task.task import SignedTask, Task
    from shuffledp.collection.wire.keys import SealingPublicKey, SigningKey, VerifyingKey

__all__ = [
    "AuthorOption",
    "MaxDeltaOption",
    "MaxEpsilonOption",
    "MaxMessagesOption",
    "MinUsersOption",
    "naming",
    "read_authentic",
    "read_sealing_key",
    "read_signing_key",
    "read_task",
    "read_task_bytes",
    "read_verifying_key",
]

AuthorOption = Annotated[
    Path, typer.Option("--author", metavar="KEY.pub", help="The author's public key, which you trust.")
]
MaxEpsilonOption = Annotated[
    float | None, typer.Option("--max-epsilon", parser=number, metavar="E", help="Refuse a task with a larger epsilon.")
]
MaxDeltaOption = Annotated[
    float | None, typer.Option("--max-delta", parser=number, metavar="D", help="Refuse a task with a larger delta.")
]
MinUsersOption = Annotated[
    int | None,
    typer.Option(
        "--min-users", parser=whole_number, metavar="N", help="Refuse a task that hides among fewer honest users."
    ),
]
MaxMessagesOption = Annotated[
    int | None,
    typer.Option("--max-messages", parser=whole_number, metavar="M", help="Refuse a task with longer reports."),
]


def read_task_bytes(path: Path) -> bytes:
    """The bytes of a task's file, or a little more than a task may have."""
    from shuffledp.collection.task.task import MOST_TASK_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MOST_TASK_BYTES + 2)
    except OSError as error:
        raise DataError(f"Cannot read the task {path}: {error.strerror or error}.", path=str(path)) from None


def read_task(path: Path) -> SignedTask:
    """The task of a file, whoever signed it."""
    from shuffledp.collection.task.task import SignedTask

    with naming(path):
        return SignedTask.from_bytes(read_task_bytes(path))


def read_authentic(path: Path, author: Path) -> Task:
    """The task of a file, signed by that author, with a guarantee that holds."""
    from shuffledp.collection.task.authentic import authentic_task

    key = read_verifying_key(author)
    with naming(path):
        return authentic_task(read_task_bytes(path), key)


def read_verifying_key(path: Path) -> VerifyingKey:
    """The public key of an author or a shuffler."""
    from shuffledp.collection.wire.keys import VerifyingKey

    with naming(path):
        return VerifyingKey.load(path)


def read_sealing_key(path: Path) -> SealingPublicKey:
    """The public key of an analyzer."""
    from shuffledp.collection.wire.keys import SealingPublicKey

    with naming(path):
        return SealingPublicKey.load(path)


def read_signing_key(path: Path) -> SigningKey:
    """The private key of an author."""
    from shuffledp.collection.wire.keys import SigningKey

    with naming(path):
        return SigningKey.load(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is wrong inside a file is no wrong usage of the command."""
    try:
        yield
    except ParameterError as error:
        raise DataError(f"{path}: {error}", path=str(path)) from None
