"""Reading of columns of JSON lines as strings: one object per line, each with the values of one row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shuffledp.engines.byte_streams import ByteStream
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.paths import DataFile
from shuffledp.engines.table import BATCH_ROWS, Progress, check_column
from shuffledp.errors import DataError
from shuffledp.extras import extra

with extra("files", "Reading a data file"):
    import pyarrow as pa

_MAX_LINE_BYTES = 1 << 24
_PIECE_BYTES = 1 << 20
_LISTED_NAMES = 100
"""About how many names of columns the error about an unknown column can list."""
_CONSTANTS = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
_NOT_AN_OBJECT = "is not a JSON object; one object per line is needed"


class _Pairs(list[tuple[str, Any]]):
    """The keys of an object with their values."""


class JsonLines:
    """A file of JSON lines.

    Every line is a row. A key is a column; a value is missing if its key is absent, or if it is null or NaN. Numbers
    become strings as they are written in the file, so that none is rounded.
    """

    def __init__(self, file: DataFile, dialect: Dialect) -> None:
        self._file = file
        self._names: dict[str, None] = {}
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_Pairs,
            parse_int=str,
            parse_float=_number_writer(dialect.decimal),
            parse_constant=_CONSTANTS.get,
        )

    def batches(self, text: ByteStream, columns: Sequence[str], progress: Progress) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns in batches; a column that no line has is an error at the end."""
        rows: list[tuple[str | None, ...]] = []
        unseen, number = set(columns), 0
        for number, line in enumerate(_lines(text, self._file), 1):
            values = self._object(line, number)
            unseen.difference_update(values)
            rows.append(tuple(self._string(values.get(column), column, number) for column in columns))
            if len(rows) == BATCH_ROWS:
                yield self._arrays(rows, number)
                rows = []
                progress(text.fraction())
        for column in unseen:
            check_column(column, list(self._names), self._file.name)
        if rows:
            yield self._arrays(rows, number)

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            pairs = self._decoder.decode(line.decode())
        except UnicodeDecodeError:
            raise self._error(number, "is not in UTF-8") from None
        except RecursionError:
            raise self._error(number, "is nested too deeply") from None
        except ValueError:
            raise self._error(number, _NOT_AN_OBJECT) from None
        if not isinstance(pairs, _Pairs):
            raise self._error(number, _NOT_AN_OBJECT)
        values = dict(pairs)
        if len(values) < len(pairs):
            raise self._error(number, "has a key twice")
        if len(self._names) < _LISTED_NAMES:
            self._names.update(dict.fromkeys(values))
        return values

    def _string(self, value: Any, column: str, number: int) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        raise self._error(number, f"has a list or an object in {column!r}; a value is a string, a number or a boolean")

    def _arrays(self, rows: list[tuple[str | None, ...]], last: int) -> tuple[pa.Array, ...]:
        try:
            return tuple(pa.array(values, type=pa.string()) for values in zip(*rows, strict=True))
        except UnicodeEncodeError:  # half of a surrogate pair
            first = last - len(rows) + 1
            wrong = next(index for index, row in enumerate(rows) if not all(map(_is_unicode, row)))
            raise self._error(first + wrong, "has a value that is not Unicode") from None

    def _error(self, number: int, problem: str) -> DataError:
        return self._file.error(f"line {number:,} {problem}")


def _number_writer(decimal: str) -> Callable[[str], str]:
    """A function that spells a number with the decimal mark that strings of the file have."""
    return str if decimal == "." else lambda digits: digits.replace(".", decimal)


def _is_unicode(value: str | None) -> bool:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _lines(text: ByteStream, file: DataFile) -> Iterator[bytes]:
    """The lines; the line break at the end of the last one does not begin another."""
    rest, number = b"", 0
    while piece := text.read(_PIECE_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > _MAX_LINE_BYTES:
            raise file.error(f"line {number + 1:,} is longer than {_MAX_LINE_BYTES >> 20} MiB")
    if rest:
        yield rest
