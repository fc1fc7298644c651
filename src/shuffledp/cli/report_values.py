"""Values of devices from the command line and from files, checked before anything is sent."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shuffledp.errors import DataError, DomainError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shuffledp.collection.task import Task

__all__ = ["read_tokens", "read_values", "value_of"]

_YES = ("1", "true", "yes", "y", "t")
_NO = ("0", "false", "no", "n", "f")
_MOST_TOKEN_BYTES = 1 << 30


def value_of(task: Task, text: str) -> Any:
    """A value as people write it: a category, yes or no, a number; a DomainError if the task has no such value."""
    from shuffledp.collection.client.report import encoded

    value: Any = text.strip()
    if task.protocol.question == "count":
        lowered = value.lower()
        if lowered not in _YES + _NO:
            raise DomainError(f"A count needs yes/no, true/false or 1/0, not {text!r}.")
        value = int(lowered in _YES)
    elif task.protocol.question == "sum":
        try:
            value = float(value)
        except ValueError:
            raise DomainError(f"A sum needs a number, not {text!r}.") from None
    encoded(task, value)
    return value


def read_values(
    task: Task, path: Path, column: str, *, equals: str | None, drop_missing: bool, devices: int | None
) -> list[Any]:
    """The values of a column, one a device; any that is missing or outside the domain is an error."""
    from shuffledp.engines.columns import read_column

    if equals is not None and task.protocol.question != "count":
        raise ParameterError(f"--equals belongs to a count; this task asks for a {task.protocol.question}.")
    if devices is not None and devices < 1:
        raise ParameterError(f"At least one device is needed, not {devices}.")

    def texts() -> Iterator[str | None]:
        for batch in read_column(path, column):
            yield from batch.to_pylist()

    values: list[Any] = []
    known: dict[str, Any] = {}
    wrong, missing, example = 0, 0, ""
    for text in islice((each for each in texts() if each is not None or not drop_missing), devices):
        if text is None:
            missing += 1
        elif equals is not None:
            values.append(int(text == equals))
        elif text in known:
            values.append(known[text])
        else:
            try:
                known[text] = value_of(task, text)
                values.append(known[text])
            except DomainError as error:
                wrong, example = wrong + 1, example or str(error)
    if wrong:
        raise DataError(f"{wrong:,} rows of {path} hold no value of this task. {example}", rows=wrong)
    if missing:
        raise DataError(f"{missing:,} rows of {path} hold no value; --drop-missing leaves them out.", rows=missing)
    if not values:
        raise DataError("The column holds no rows, so there are no devices.")
    return values


def read_tokens(path: Path | None) -> list[str] | None:
    """Enrolment tokens, one a line; the file must be its owner's alone."""
    if path is None:
        return None
    try:
        found = path.stat()
        if found.st_mode & 0o077:
            raise DataError(f"{path} can be read by others; tokens want mode 0600: chmod 600 {path}.", path=str(path))
        if found.st_size > _MOST_TOKEN_BYTES:
            raise DataError(f"{path} is too large for a file of tokens.", path=str(path))
        tokens = path.read_text(encoding="ascii").split()
    except OSError as error:
        raise DataError(f"Cannot read the tokens {path}: {error.strerror or error}.", path=str(path)) from None
    except UnicodeError:
        raise DataError(f"{path} holds no tokens: they are ASCII text.", path=str(path)) from None
    if not tokens:
        raise DataError(f"{path} holds no token.", path=str(path))
    return tokens
