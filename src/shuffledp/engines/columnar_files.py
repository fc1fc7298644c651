"""Reading of columns of Parquet files and of Arrow IPC files and streams (Feather), in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shuffledp.engines.byte_streams import ByteStream
from shuffledp.engines.paths import DataFile
from shuffledp.engines.table import BATCH_ROWS, Progress, check_column, without_views
from shuffledp.extras import extra

with extra("files", "Reading a data file"):
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

Batches = Iterator[tuple[Any, ...]]


def parquet_batches(stream: ByteStream, file: DataFile, columns: Sequence[str], progress: Progress) -> Batches:
    """The given columns of a Parquet file."""
    with pa.parquet.ParquetFile(stream.everything(file)) as content:
        _check_columns(columns, content.schema_arrow.names, file)
        rows, done = max(1, content.metadata.num_rows), 0
        for batch in content.iter_batches(batch_size=BATCH_ROWS, columns=list(dict.fromkeys(columns))):
            done += len(batch)
            progress(min(1.0, done / rows))
            yield tuple(batch.column(name) for name in columns)


def arrow_file_batches(stream: ByteStream, file: DataFile, columns: Sequence[str], progress: Progress) -> Batches:
    """The given columns of an Arrow IPC file, which Feather files are too."""
    content = stream.everything(file)
    names = pa.ipc.open_file(content).schema.names
    _check_columns(columns, names, file)
    needed = pa.ipc.IpcReadOptions(included_fields=sorted({names.index(column) for column in columns}))
    reader = pa.ipc.open_file(content, options=needed)
    for number in range(reader.num_record_batches):
        yield from _in_pieces(reader.get_batch(number), columns)
        progress((number + 1) / reader.num_record_batches)


def arrow_stream_batches(stream: ByteStream, file: DataFile, columns: Sequence[str], progress: Progress) -> Batches:
    """The given columns of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.PythonFile(stream, mode="r")) as reader:
        _check_columns(columns, reader.schema.names, file)
        for batch in reader:
            yield from _in_pieces(batch, columns)
            progress(stream.fraction())


def _in_pieces(batch: Any, columns: Sequence[str]) -> Batches:
    """The columns of a batch in pieces of bounded length; its buffers, which come from outside, are checked first."""
    arrays = [batch.column(name) for name in columns]
    for array in arrays:
        array.validate(full=True)
    arrays = [without_views(array) for array in arrays]
    for start in range(0, len(batch), BATCH_ROWS):
        yield tuple(array[start : start + BATCH_ROWS] for array in arrays)


def _check_columns(columns: Sequence[str], names: list[str], file: DataFile) -> None:
    for column in columns:
        check_column(column, names, file.name)
