"""The Spark engine: tables of files that Spark reads, by paths and patterns as Spark understands them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from shuffledp.engines.dialect import Dialect
from shuffledp.engines.engine import Engine
from shuffledp.engines.paths import STANDARD_INPUT
from shuffledp.engines.spark.session import Frame, explained_failures, start_session
from shuffledp.engines.spark.table import SparkTable
from shuffledp.engines.table import Table
from shuffledp.errors import DataError, ParameterError

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".parquet": "parquet",
}
_DEFAULT_FORMAT = "parquet"
_ENCODINGS = {
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-be": "UTF-16BE",
    "utf-16-le": "UTF-16LE",
    "utf-32": "UTF-32",
    "utf-8": "UTF-8",
}
"""The encodings that Spark reads, by their names in Python."""


class SparkEngine(Engine):
    """Reads files and runs rounds in Spark: in the active session, or in one that is started for ``master``."""

    name = "spark"

    def __init__(self, master: str | None = None, *, progress: bool = False) -> None:
        self.session = start_session(master, progress=progress)

    def table(self, paths: Sequence[str], dialect: Dialect) -> Table:
        """The rows of all files; paths such as ``s3a://bucket/*.parquet`` are passed to Spark as they are.

        The suffix gives the format: CSV, JSON lines, ORC or Parquet. Directories without a suffix are read as Parquet.
        """
        listed = [str(path) for path in paths]
        if not listed:
            raise ParameterError("There is no file to read: name at least one.")
        if STANDARD_INPUT in listed:
            raise ParameterError("Spark cannot read standard input: save it to a file.")
        formats = {_format(path) for path in listed}
        if len(formats) > 1:
            raise ParameterError(f"The files have several formats ({', '.join(sorted(formats))}): read one at a time.")
        kind = formats.pop()
        with explained_failures():
            self._check_named_once(listed, kind, dialect)
            return SparkTable(self._read(listed, kind, dialect), decimal=dialect.decimal)

    def _read(self, paths: list[str], kind: str, dialect: Dialect) -> Frame:
        reader = self.session.read
        if kind == "json":
            return reader.option("encoding", _encoding(dialect)).json(paths, primitivesAsString=True, mode="FAILFAST")
        if kind != "csv":
            return reader.format(kind).load(paths)
        return _named(reader.csv(paths, **_csv_options(paths, dialect)), dialect)

    def _check_named_once(self, paths: list[str], kind: str, dialect: Dialect) -> None:
        """Refuse a file that is named twice, since its users would count twice."""
        if len(paths) == 1:
            return
        seen: set[str] = set()
        for path in paths:
            files = set(self._read([path], kind, dialect).inputFiles())
            if again := seen & files:
                name = sorted(again)[0]
                raise ParameterError(f"{name} is named twice: its users would count twice.", path=name)
            seen |= files


def _format(path: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(path.rstrip("/")).suffixes]
    formats = [_FORMATS[suffix] for suffix in suffixes if suffix in _FORMATS]
    return formats[-1] if formats else _DEFAULT_FORMAT


def _encoding(dialect: Dialect) -> str:
    if dialect.encoding not in _ENCODINGS:
        supported = ", ".join(_ENCODINGS)
        raise ParameterError(f"Spark reads the encodings {supported}, not {dialect.encoding}: convert the files.")
    return _ENCODINGS[dialect.encoding]


def _csv_options(paths: list[str], dialect: Dialect) -> dict[str, Any]:
    """Fields as strings, as they are in the file; rows that do not fit the header are an error."""
    delimiters = {dialect.delimiter_of([s.lower() for s in PurePosixPath(path).suffixes]) for path in paths}
    if len(delimiters) > 1:
        raise ParameterError("The files have several delimiters: read one kind at a time.")
    return {
        "sep": delimiters.pop(),
        "encoding": _encoding(dialect),
        "header": dialect.header,
        "quote": '"',
        "escape": '"',
        "multiLine": True,  # a line break may be inside quotes; so each file is read by one task
        "mode": "FAILFAST",
        "enforceSchema": False,
        "ignoreLeadingWhiteSpace": False,
        "ignoreTrailingWhiteSpace": False,
    }


def _named(frame: Frame, dialect: Dialect) -> Frame:
    """Name the columns of a file without a header: by the given names, or 1, 2, ..."""
    if dialect.header:
        return frame
    names = dialect.names or tuple(str(number) for number in range(1, len(frame.columns) + 1))
    if len(names) != len(frame.columns):
        raise DataError(f"The files have {len(frame.columns):,} columns, and {len(names):,} names are given.")
    return frame.toDF(*names)
