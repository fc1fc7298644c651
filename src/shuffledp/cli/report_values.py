"""Values and tokens of devices, read from the command line and from files and checked before anything is sent."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shuffledp.cli.screen import note
from shuffledp.domain import Bit, Domain, EqualTo
from shuffledp.errors import DataError, DomainError, ParameterError
from shuffledp.text_values import looks_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shuffledp.collection.task.task import Task

_MAX_TOKEN_BYTES = 1 << 30
_MAX_VALUE_BYTES = 1 << 16


def value_of(task: Task, text: str) -> Any:
    """Parse a category, yes or no, or a number; raises DomainError if the task has no such value."""
    return _parse(task.protocol.domain, text)


def _parse(domain: Domain, text: str) -> Any:
    value = domain.parse(text)
    domain.encode(value)
    return value


def read_value() -> str:
    """Read a value from standard input, which must be a single line."""
    try:
        text = sys.stdin.buffer.read(_MAX_VALUE_BYTES + 1).decode("utf-8-sig")
    except UnicodeError:
        raise DataError("The value on standard input is not UTF-8.") from None
    lines = text.splitlines()
    if len(text) > _MAX_VALUE_BYTES or len(lines) > 1:
        raise DataError("Standard input must hold one value: a single line.")
    if not text.strip():
        raise DataError("There is no value on standard input.")
    return lines[0]


def read_values(
    task: Task,
    path: Path,
    column: str,
    *,
    equals: str | None,
    missing: tuple[str, ...],
    drop_missing: bool,
    devices: int | None,
) -> list[Any]:
    """Read the values of a column, one per device; a missing value or one outside the domain is an error."""
    from shuffledp.engines.columns import read_column

    domain = task.protocol.domain
    if equals is not None and not isinstance(domain, Bit):
        raise ParameterError(f"--equals belongs to a count; this task asks for a {task.protocol.question}.")
    if devices is not None and devices < 1:
        raise ParameterError(f"At least one device is needed, not {devices}.")
    if equals is not None:
        domain = EqualTo(equals)
    domain.check_missing_markers(missing)

    def texts() -> Iterator[str | None]:
        for batch in read_column(path, column, missing=missing):
            yield from batch.to_pylist()

    values: list[Any] = []
    parsed: dict[str, Any] = {}
    wrong, absent, example, marker = 0, 0, "", ""
    for text in islice((text for text in texts() if text is not None or not drop_missing), devices):
        if text is None:
            absent += 1
            continue
        try:
            if text not in parsed:
                parsed[text] = _parse(domain, text)
            values.append(parsed[text])
        except DomainError as error:
            wrong, example = wrong + 1, example or str(error)
            marker = marker or (text if looks_missing(text) else "")
    if wrong:
        hint = f" If {marker!r} stands for a missing value, use --missing {marker}." if marker else ""
        raise DataError(f"{wrong:,} rows of {path} hold no value of this task. {example}{hint}", rows=wrong)
    if absent:
        raise DataError(f"{absent:,} rows of {path} have no value; --drop-missing leaves them out.", rows=absent)
    if not values:
        raise DataError("The column holds no rows, so there are no devices.")
    for text in filter(looks_missing, parsed) if equals is not None else ():
        note(f"{text!r} is counted as a value; if it stands for a missing one, use --missing {text}.")
    return values


def read_tokens(path: Path | None) -> list[str] | None:
    """Read enrolment tokens, one per line; only the owner may have access to the file."""
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
        raise DataError(f"{path} holds no token.", path=str(path))
    return tokens
