"""Tables of data files: CSV, Parquet, Arrow and JSON lines, compressed or not, one or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.engines.byte_streams import ByteStream, open_bytes
from shuffledp.engines.columnar_files import arrow_file_batches, arrow_stream_batches, parquet_batches
from shuffledp.engines.csv_files import CsvFile
from shuffledp.engines.dialect import Dialect
from shuffledp.engines.formats import HEAD_BYTES, Format, binary_format, text_format
from shuffledp.engines.json_lines import JsonLines
from shuffledp.engines.paths import DataFile, Paths, data_files
from shuffledp.engines.table import Progress, Table
from shuffledp.engines.text_streams import utf8_stream
from shuffledp.errors import ParameterError
from shuffledp.extras import extra

with extra("files", "Reading a data file"):
    import pyarrow as pa

_COLUMNAR = {
    Format.parquet: parquet_batches,
    Format.arrow_file: arrow_file_batches,
    Format.arrow_stream: arrow_stream_batches,
}
_MAX_REASON = 200


@dataclass(frozen=True)
class FileTable(Table):
    """The rows of one or several files, one file after the other.

    Formats and compressions are recognized by the content. A path may be a pattern, such as ``data/*.csv``, whose files
    are sorted by name, or ``-`` for standard input, which can be read once.
    """

    paths: Paths
    dialect: Dialect = Dialect()  # noqa: RUF009 - it is frozen

    def __post_init__(self) -> None:
        if isinstance(self.paths, (str, Path)):
            return
        if not isinstance(self.paths, (Sequence, Iterator)):
            kind = type(self.paths).__name__
            raise ParameterError(
                f"Give the path of a file, a pattern or a list of these, not an object of type {kind}."
            )
        object.__setattr__(self, "paths", tuple(self.paths))

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers that are strings."""
        return self.dialect.decimal

    def read(self, columns: Sequence[str], progress: Progress = lambda _: None) -> Iterator[tuple[pa.Array, ...]]:
        """The given columns in batches; those of CSV files and JSON lines are strings."""
        files = data_files(self.paths)
        total, done = max(1, sum(file.size for file in files)), 0
        for file in files:

            def progress_of_all(fraction: float, size: int = file.size, before: int = done) -> None:
                progress(min(1.0, (before + size * fraction) / total))

            try:
                yield from self._batches(file, columns, progress_of_all)
            except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
                raise file.error(_reason(error)) from None
            done += file.size

    def _batches(self, file: DataFile, columns: Sequence[str], progress: Progress) -> Iterator[tuple[Any, ...]]:
        with open_bytes(file) as stream:
            columnar = binary_format(stream.peek(HEAD_BYTES), file)
            if columnar is not None:
                yield from _COLUMNAR[columnar](stream, file, columns, progress)
                return
            text = utf8_stream(stream, self.dialect.encoding, file)
            if text_format(text.peek(HEAD_BYTES), file) is Format.json_lines:
                yield from JsonLines(file, self.dialect).batches(text, columns, progress)
            else:
                csv = CsvFile(file, self.dialect, lambda: self._opened_again(file))
                yield from csv.batches(text, columns, progress)

    @contextmanager
    def _opened_again(self, file: DataFile) -> Iterator[ByteStream]:
        with open_bytes(file) as stream:
            yield utf8_stream(stream, self.dialect.encoding, file)


def read_files(
    paths: str | Path | Sequence[str | Path],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    header: bool = True,
    names: Sequence[str] = (),
    decimal: str = ".",
) -> FileTable:
    """The table of one or several files, whose columns the one-line functions take.

    The files are CSV, Parquet, Arrow (Feather) or JSON lines, also compressed (gzip, bzip2, xz, zstd, lz4, or zip with
    one file), recognized by their content. ``paths`` is a path, a pattern such as ``data/*.csv``, ``-`` for standard
    input, or a list of these. Declare what differs from the defaults: ``delimiter`` between fields, ``encoding``,
    ``header=False`` for CSV files without one, whose columns are "1", "2", ... or ``names``, and ``decimal=","`` where
    1,5 means 1.5. None of this is guessed.

    >>> column = sdp.read_files("survey.csv")["mode"]
    >>> column.name
    'mode'
    """
    return FileTable(paths, Dialect(delimiter, encoding, header, tuple(names), decimal))


def _reason(error: Exception) -> str:
    """The message of a library about a file: one short line of printable ASCII characters."""
    reason = " ".join(str(error).split()).rstrip(".")
    printable = "".join(character for character in reason if character.isascii() and character.isprintable())
    return printable[:_MAX_REASON] or type(error).__name__
