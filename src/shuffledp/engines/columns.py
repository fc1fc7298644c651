"""One column of a CSV or Parquet file, read in batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from shuffledp.errors import DataError, ParameterError

__all__ = ["Progress", "read_column"]

Progress = Callable[[float], None]
"""Called with the fraction of the file that has been read."""

_BATCH_ROWS = 1 << 17
_CSV_BLOCK_BYTES = 1 << 22


def read_column(path: str | Path, column: str, *, progress: Progress = lambda _: None) -> Iterator[pa.Array]:
    """The column as text without outer spaces, batch by batch; what is missing (null, NaN, empty) is null.

    CSV (also compressed, as .gz, .bz2, .zst or .lz4) and Parquet are told apart by their content.
    """
    source = Path(path)
    if not source.is_file():
        reason = "it is not a file" if source.exists() else "there is no such file"
        raise DataError(f"Cannot read {source}: {reason}.", path=str(source))
    try:
        batches = _parquet_batches if _is_parquet(source) else _csv_batches
        for batch in batches(source, column, progress):
            yield _as_text(batch)
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"Cannot read {source}: {reason.rstrip('.')}.", path=str(source)) from None


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parquet_batches(path: Path, column: str, progress: Progress) -> Iterator[pa.Array]:
    with pa.parquet.ParquetFile(path) as file:
        _check_column(column, file.schema_arrow.names, path)
        rows, done = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[column]):
            done += len(batch)
            progress(done / rows)
            yield batch.column(0)


def _csv_batches(path: Path, column: str, progress: Progress) -> Iterator[pa.Array]:
    size = path.stat().st_size
    if size == 0:
        raise DataError(f"{path} is empty: there is not even a header.", path=str(path))
    with _open_csv(path) as (_, reader):
        _check_column(column, reader.schema.names, path)
    text_only = pa.csv.ConvertOptions(
        include_columns=[column], column_types={column: pa.string()}, strings_can_be_null=True, null_values=[""]
    )
    with _open_csv(path, text_only) as (raw, reader):
        for batch in reader:
            progress(min(1.0, raw.tell() / size))
            yield batch.column(0)


@contextmanager
def _open_csv(path: Path, convert: pa.csv.ConvertOptions | None = None) -> Iterator[tuple[Any, Any]]:
    """The raw file, which knows how far it is read, and a reader of batches on top of it."""
    with pa.OSFile(str(path)) as raw, pa.input_stream(raw, compression=_compression(path)) as stream:
        yield (
            raw,
            pa.csv.open_csv(
                stream,
                read_options=pa.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
                parse_options=pa.csv.ParseOptions(
                    delimiter="\t" if ".tsv" in path.suffixes else ",", newlines_in_values=True
                ),
                convert_options=convert,
            ),
        )


def _compression(path: Path) -> str | None:
    by_suffix = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
    return by_suffix.get(path.suffix.lower())


def _check_column(column: str, names: list[str], path: Path) -> None:
    if column not in names:
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ParameterError(f"{path} has no column {column!r}; it has {known}.", column=column)
    if names.count(column) > 1:
        raise ParameterError(f"{path} has {names.count(column)} columns named {column!r}; name them apart.")


def _as_text(values: Any) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    if not pa.types.is_string(values.type):
        values = pc.cast(values, pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.equal(trimmed, ""), None, trimmed)
