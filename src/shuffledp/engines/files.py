"""Reading of columns of a CSV or Parquet file, in batches of bounded size."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.engines.table import BATCH_ROWS, Progress, Table, check_column
from shuffledp.errors import DataError
from shuffledp.extras import extra

with extra("files", "Reading a data file"):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

_CSV_BLOCK_BYTES = 1 << 22
_MAX_HEADER_BYTES = 1 << 20
"""Maximum size of the header of a CSV file with the empty lines before it."""
_END_OF_FILE = "end of file\x1a"
"""Appended to a CSV file: if it is not the last row, the file ends within a quoted field that contains rows."""


@dataclass(frozen=True)
class FileTable(Table):
    """The rows of a CSV or Parquet file.

    The format, CSV (also compressed, as .gz, .bz2, .zst or .lz4) or Parquet, is detected from the content. Every line
    of a CSV file after its header is a row, also an empty one, in which every field is missing; the line break at the
    end of the last line does not begin another.
    """

    path: str | Path

    def read(self, columns: Sequence[str], progress: Progress = lambda _: None) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns in batches; those of a CSV file are strings."""
        source = Path(self.path)
        if not source.is_file():
            reason = "it is not a file" if source.exists() else "there is no such file"
            raise DataError(f"Cannot read {source}: {reason}.", path=str(source))
        try:
            yield from (_parquet_batches if _is_parquet(source) else _csv_batches)(source, columns, progress)
        except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"Cannot read {source}: {reason.rstrip('.')}.", path=str(source)) from None


def read_files(path: str | Path) -> FileTable:
    """The table of the CSV or Parquet file at ``path``, whose columns the one-line functions take.

    >>> column = sdp.read_files("survey.csv")["mode"]
    >>> column.name
    'mode'
    """
    return FileTable(path)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parquet_batches(path: Path, columns: Sequence[str], progress: Progress) -> Iterator[tuple[pa.Array, ...]]:
    with pa.parquet.ParquetFile(path) as file:
        _check_columns(columns, file.schema_arrow.names, path)
        rows, done = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(dict.fromkeys(columns))):
            done += len(batch)
            progress(done / rows)
            yield tuple(batch.column(name) for name in columns)


def _csv_batches(path: Path, columns: Sequence[str], progress: Progress) -> Iterator[tuple[pa.Array, ...]]:
    start, header, ends = _header(path)
    names = _csv_reader(path, pa.py_buffer(header + b"\n")).schema.names
    _check_columns(columns, names, path)
    if ends:
        return
    distinct = list(dict.fromkeys(columns))
    as_strings = pa.csv.ConvertOptions(
        include_columns=distinct,
        column_types=dict.fromkeys(distinct, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
    )
    size = path.stat().st_size
    last_line = _delimiter(path).join([_END_OF_FILE] * len(names)).encode()
    last: Any = None
    with _open_csv(path, start, as_strings, last_line) as (raw, reader):
        for batch in reader:
            progress(min(1.0, raw.tell() / size))
            if len(batch):
                if last is not None:
                    yield tuple(last.column(name) for name in columns)
                last = batch
    if last is None or last.column(0)[-1].as_py() != _END_OF_FILE:
        raise DataError(
            f"{path} ends within a quoted field: a quotation mark that opens one is never closed, so the rows after it "
            "are lost in that field. Close it.",
            path=str(path),
        )
    yield tuple(last.column(name)[:-1] for name in columns)


def _header(path: Path) -> tuple[int, bytes, bool]:
    """The number of empty lines before the header, the header, and whether the file ends with it, without a line break.

    The header is read without Arrow: a reader that is abandoned after its first block may still read in a thread of its
    own when the file is opened again, and would take bytes from the second reader.
    """
    with pa.OSFile(str(path)) as raw, pa.input_stream(raw, compression=_compression(path)) as stream:
        content = stream.read(_MAX_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf")
        ended = len(content) < _MAX_HEADER_BYTES - 3 and not stream.read(1)
    rest = content.lstrip(b"\r\n")
    if not rest:
        problem = "is empty" if not content else "has empty lines only" if ended else "begins with too many empty lines"
        raise DataError(f"{path} {problem}: there is no header.", path=str(path))
    blank = content[: len(content) - len(rest)]
    end = _end_of_record(rest, _delimiter(path).encode())
    if end is None and not ended:
        raise DataError(f"The header of {path} is longer than {_MAX_HEADER_BYTES:,} bytes.", path=str(path))
    return len(blank.replace(b"\r\n", b"\n")), rest[:end], end is None


def _end_of_record(content: bytes, delimiter: bytes) -> int | None:
    """The position of the first line break outside quotes; a quotation mark opens a field only at its start."""
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
            return position
        elif character == b'"' and at_start:
            quoted = True
        at_start = character == delimiter and not quoted
        position += 1
    return None


@contextmanager
def _open_csv(path: Path, start: int, convert: pa.csv.ConvertOptions, last_line: bytes) -> Iterator[tuple[Any, Any]]:
    """The raw file, for its position, and a reader of its batches that appends a last line."""
    with pa.OSFile(str(path)) as raw, pa.input_stream(raw, compression=_compression(path)) as stream:
        lines = _WithLastLine(stream, last_line)
        try:
            yield raw, _csv_reader(path, lines, start, convert)
        finally:
            lines.end()  # before the file is closed: the reader has a thread that reads ahead


class _WithLastLine:
    """A stream with one more line, which is a row of its own unless the stream ends within a quoted field."""

    closed = False

    def __init__(self, stream: Any, line: bytes) -> None:
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


def _csv_reader(path: Path, stream: Any, start: int = 0, convert: pa.csv.ConvertOptions | None = None) -> Any:
    return pa.csv.open_csv(
        stream,
        read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, skip_rows=start),
        parse_options=pa.csv.ParseOptions(
            delimiter=_delimiter(path), newlines_in_values=True, ignore_empty_lines=False
        ),
        convert_options=convert,
    )


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


def _compression(path: Path) -> str | None:
    by_suffix = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
    return by_suffix.get(path.suffix.lower())


def _check_columns(columns: Sequence[str], names: list[str], path: Path) -> None:
    for column in columns:
        check_column(column, names, str(path))
