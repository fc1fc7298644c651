"""Reading of columns of CSV files as strings, in batches of bounded size."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from shuffledp.engines.byte_streams import ByteStream
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.paths import DataFile
from shuffledp.engines.table import Progress, check_column
from shuffledp.errors import DataError, ParameterError
from shuffledp.extras import extra
from shuffledp.text_values import parse_number

with extra("files", "Reading a data file"):
    import pyarrow as pa
    import pyarrow.csv

_BLOCK_BYTES = 1 << 22
_MAX_HEADER_BYTES = 1 << 20
"""Maximum size of the header with the empty lines before it."""
_END_OF_FILE = "end of file\x1a"
"""Appended to a file as one more row; if it is not read as the last row, the file ends within a quoted field."""
_DELIMITERS = ";\t|,"
_WRONG_FIELDS = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_NOT_UTF8 = re.compile(r"In CSV column #\d+: (?:Row #(\d+): )?CSV conversion error to string: invalid UTF8 data")
_TOO_LONG = "straddling object"


@dataclass(frozen=True)
class CsvFile:
    """A CSV file.

    Every line after the header is a row; without a header, every line is. An empty line is a row in which every field
    is missing. A line break at the end of the file does not begin another row.
    """

    file: DataFile
    dialect: Dialect
    open: Callable[[], AbstractContextManager[ByteStream]]
    """Opens the text again, to find the row of an error; not for standard input."""

    @property
    def delimiter(self) -> str:
        """The character between fields."""
        return self.dialect.delimiter_of(self.file.suffixes)

    def batches(self, text: ByteStream, columns: Sequence[str], progress: Progress) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns of the text, in batches."""
        names, has_rows = self._begin(text)
        self._check_columns(columns, names)
        if not has_rows:
            return
        last: Any = None
        try:
            with self._reader(text, columns, names) as reader:
                for batch in reader:
                    progress(text.fraction())
                    if len(batch):
                        if last is not None:
                            yield tuple(last.column(name) for name in columns)
                        last = batch
        except pa.ArrowInvalid as error:
            raise self._explained(str(error), columns, names) from None
        if last is None or last.column(columns[0])[-1].as_py() != _END_OF_FILE:
            raise self._not_closed()
        yield tuple(last.column(name)[:-1] for name in columns)

    def _begin(self, text: ByteStream) -> tuple[list[str], bool]:
        """The names of the columns, and whether rows follow; reads the header if there is one."""
        head = text.peek(_MAX_HEADER_BYTES + 2)
        ended = len(head) < _MAX_HEADER_BYTES + 2
        rest = head.lstrip(b"\r\n")
        if not head or (not rest and (self.dialect.header or not ended)):
            problem = (
                "is empty" if not head else "has empty lines only" if ended else "begins with too many empty lines"
            )
            raise DataError(f"{self.file.name} {problem}: there is no header.", path=self.file.name)
        end, quoted = _end_of_record(rest, self.delimiter.encode())
        if end is None and not ended:
            what = "header" if self.dialect.header else "first row"
            raise DataError(
                f"The {what} of {self.file.name} is longer than {_MAX_HEADER_BYTES:,} bytes.", path=self.file.name
            )
        if quoted:
            raise self._not_closed()
        names = self._names_in(rest[:end])
        if not self.dialect.header:
            return self._names_by_position(len(names)), True
        line_break = b"" if end is None else b"\r\n" if rest[end : end + 2] == b"\r\n" else rest[end : end + 1]
        text.read(len(head) - len(rest) + (len(rest) if end is None else end) + len(line_break))
        return names, end is not None

    def _names_in(self, record: bytes) -> list[str]:
        try:
            names: list[str] = self._arrow_reader(pa.py_buffer(record + b"\n")).schema.names
        except UnicodeError:
            raise self.file.error("its first line is not in UTF-8: declare the `encoding=NAME` that it has") from None
        except pa.ArrowInvalid:
            raise self.file.error("its first line is not CSV") from None
        return names

    def _names_by_position(self, count: int) -> list[str]:
        names = list(self.dialect.names)
        if names and len(names) != count:
            raise ParameterError(f"{self.file.name} has {count:,} columns, but {len(names):,} names are given.")
        return names or [str(position + 1) for position in range(count)]

    def _check_columns(self, columns: Sequence[str], names: list[str]) -> None:
        """Refuse columns that the file does not have, with advice if the declared dialect may be wrong."""
        unknown = next((column for column in columns if column not in names), None)
        if unknown is not None and self.dialect.header:
            if len(names) == 1 and (likely := [mark for mark in _DELIMITERS if mark in names[0]]):
                raise ParameterError(
                    f"{self.file.name} has no column {unknown!r}: its header is one name that contains {likely[0]!r}. "
                    f"If that separates its columns, use `delimiter={likely[0]!r}`.",
                    column=unknown,
                )
            if any(parse_number(name) is not None for name in names):  # a row of data, perhaps
                raise ParameterError(
                    f"{self.file.name} has no column {unknown!r}: its first line has numbers instead of names. If it "
                    "has no header, use `header=False`.",
                    column=unknown,
                )
        for column in columns:
            check_column(column, names, self.file.name)

    @contextmanager
    def _reader(
        self, text: ByteStream, columns: Sequence[str], names: list[str], *, serial: bool = False
    ) -> Iterator[Any]:
        """A reader of the batches of the given columns, with one more row at the end."""
        distinct = list(dict.fromkeys(columns))
        as_strings = pa.csv.ConvertOptions(
            include_columns=distinct,
            column_types=dict.fromkeys(distinct, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        last_line = self.delimiter.join(_END_OF_FILE if name == columns[0] else "" for name in names).encode()
        lines = _WithLastLine(text, last_line)
        try:
            yield self._arrow_reader(lines, as_strings, names, serial=serial)
        finally:
            lines.end()  # before the file is closed: the reader has a thread that reads ahead

    def _arrow_reader(
        self,
        stream: Any,
        convert: pa.csv.ConvertOptions | None = None,
        names: list[str] | None = None,
        *,
        serial: bool = False,
    ) -> Any:
        return pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=names, use_threads=not serial),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=convert,
        )

    def _explained(self, message: str, columns: Sequence[str], names: list[str]) -> DataError:
        """The error with the number of the row, but without its content, which Arrow's message would quote."""
        if self.file.path is not None:
            message = self._message_with_row(columns, names) or message
        if match := _WRONG_FIELDS.match(message):
            row, needed, given = match.groups()
            return self.file.error(f"{_row(row)} has {_fields(int(given))} instead of {int(needed):,}")
        if match := _NOT_UTF8.match(message):
            return self.file.error(f"{_row(match[1])} is not in UTF-8: declare the `encoding=NAME` that it has")
        if message.startswith(_TOO_LONG):
            return self.file.error(f"a row is longer than {_BLOCK_BYTES >> 20} MiB, or a quoted field is not closed")
        return self.file.error("it is not valid CSV")

    def _message_with_row(self, columns: Sequence[str], names: list[str]) -> str:
        """Arrow's message when it reads the file again by one thread, which counts rows."""
        with self.open() as text:
            self._begin(text)
            try:
                with self._reader(text, columns, names, serial=True) as reader:
                    for _ in reader:
                        pass
            except pa.ArrowInvalid as error:
                return str(error)
        return ""

    def _not_closed(self) -> DataError:
        return DataError(
            f"{self.file.name} ends within a quoted field: a quotation mark that opens one is never closed, so the "
            "rows after it are lost in that field. Close it.",
            path=self.file.name,
        )


def _row(number: str | None) -> str:
    return "a row" if number is None else f"row {int(number):,}"


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count:,} fields"


def _end_of_record(content: bytes, delimiter: bytes) -> tuple[int | None, bool]:
    """The position of the first line break outside quotes; if there is none, also whether quotes are left open.

    A quotation mark opens a field only at its start.
    """
    quoted, at_start, position = False, True, 0
    while position < len(content):
        character = content[position : position + 1]
        if quoted:
            if character == b'"':
                if content[position + 1 : position + 2] == b'"':
                    position += 1
                else:
                    quoted = False
        elif character in (b"\n", b"\r"):
            return position, False
        elif character == b'"' and at_start:
            quoted = True
        at_start = character == delimiter and not quoted
        position += 1
    return None, quoted


class _WithLastLine:
    """A stream with one more line, which is a row of its own unless the stream ends within a quoted field."""

    closed = False

    def __init__(self, stream: ByteStream, line: bytes) -> None:
        self._stream, self._line, self._ended, self._last = stream, line, False, b"\n"
        self._held = b""
        self._lock = threading.Lock()

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes, never ending between CR and LF: Arrow would lose that LF, even in a quoted field."""
        with self._lock:
            return self._read(size)

    def _read(self, size: int) -> bytes:
        content, self._held = self._held, b""
        while len(content) < size and not self._ended:
            more = self._stream.read(size - len(content))
            content += more
            self._last = more[-1:] or self._last
            if not more:
                self._ended = True
                self._line = self._line if self._last in (b"\n", b"\r") else b"\n" + self._line
        rest = size - len(content)
        content, self._line = content + self._line[:rest], self._line[rest:]
        if len(content) > 1 and content.endswith(b"\r"):
            content, self._held = content[:-1], b"\r"
        return content

    def end(self) -> None:
        """Return no more bytes from now on; waits for a read in progress."""
        with self._lock:
            self._ended, self._line, self._held = True, b"", b""

    def close(self) -> None:
        self.closed = True
