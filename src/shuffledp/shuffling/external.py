"""Uniformly random permutation of more records than fit into memory, through a scratch file.

Rao (1961) and Sandelius (1962), as in memory: every record gets an independent uniform label, records are gathered by
label into buckets, and each bucket is permuted uniformly; their concatenation is exactly uniform. A bucket that is
larger than the memory is treated the same way again. Which buckets those are depends on sizes alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import OutputError, ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import SYSTEM, RandomSource, draw_bytes
from shuffledp.shuffling.permutation import permute, threads_for

_BUCKETS = 256  # a power of two, at most 256: a label is some bits of a random byte
_COPIES = 3  # of the records in memory without the kernels: themselves, gathered, and what permuting takes
_BYTES_BESIDE = 48  # of labels, keys and orders per record without the kernels
_BUFFERS = 1 << 21  # bytes for random numbers, and for what the files hold back, with the kernels

Block = bytes | bytearray | memoryview
Records = NDArray[Any]


def permute_file(
    blocks: Iterable[Block],
    record_size: int,
    out: Path,
    *,
    scratch: Path,
    memory: int = 1 << 28,
    source: RandomSource = SYSTEM,
) -> int:
    """Write all records of the blocks to the file ``out``, in a uniformly random order; returns their number.

    A block is one or more whole records of ``record_size`` bytes. About ``memory`` bytes are used, whatever the number
    of records, and as much room in the folder ``scratch`` as the records take, in files without a name that vanish with
    the process. ``out`` appears whole and durable or not at all; a process that is killed leaves at most a file
    ``.NAME.partial`` beside it, which the next attempt overwrites.
    """
    if record_size < 1 or memory < 1:
        raise ParameterError("Records have at least one byte, and so has the memory.", record_size=record_size)
    room = np.empty(_records_in(memory, record_size), dtype=f"V{record_size}")
    partial = out.with_name(f".{out.name}.partial")
    try:
        with open(partial, "wb", opener=_private) as target:
            written = 0
            for permuted in _permuted(_filled(blocks, room), room, scratch, source):
                target.write(_bytes_of(permuted))
                written += len(permuted)
            target.flush()
            os.fsync(target.fileno())
        os.replace(partial, out)
        _sync_folder(out.parent)
    except OSError as error:
        raise OutputError(f"Cannot permute the records: {error.strerror or error}.", path=str(out)) from None
    finally:
        partial.unlink(missing_ok=True)
    return written


@dataclass
class _Scattered:
    """Records in a scratch file, piece by piece, and within each piece gathered by bucket."""

    file: IO[bytes]
    record_size: int
    pieces: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)
    """The number of records before the piece, and where its buckets begin and end within it."""
    records: int = 0

    def add(self, piece: Records, source: RandomSource) -> None:
        """Give every record of the piece a bucket, and write it gathered by bucket."""
        gathered, bounds = _gathered(piece, source)
        self.file.write(_bytes_of(gathered))
        self.pieces.append((self.records, bounds))
        self.records += len(piece)

    def size(self, bucket: int) -> int:
        """How many records the bucket has."""
        return sum(int(bounds[bucket + 1] - bounds[bucket]) for _, bounds in self.pieces)

    def read(self, bucket: int, room: Records) -> Iterator[Records]:
        """The records of the bucket, as often as they fill ``room``, and then the rest."""
        filled = 0
        for start, bounds in self.pieces:
            place, end = start + int(bounds[bucket]), start + int(bounds[bucket + 1])
            while place < end:
                taken = min(end - place, len(room) - filled)
                self._read_into(room[filled : filled + taken], place)
                place, filled = place + taken, filled + taken
                if filled == len(room):
                    yield room
                    filled = 0
        if filled:
            yield room[:filled]

    def _read_into(self, part: Records, place: int) -> None:
        self.file.seek(place * self.record_size)
        if self.file.readinto(_bytes_of(part)) != part.nbytes:  # type: ignore[attr-defined]
            raise OSError("the scratch file is shorter than what was written to it")


def _records_in(memory: int, record_size: int) -> int:
    """How many records are in memory at once; the kernels need no second copy, and one label a record at most."""
    if ACTIVE:
        return max(1, (memory - min(memory // 4, _BUFFERS)) // (record_size + 1))
    return max(1, memory // (_COPIES * record_size + _BYTES_BESIDE))


def _gathered(piece: Records, source: RandomSource) -> tuple[Records, NDArray[np.int64]]:
    """Give every record a bucket; the records gathered by bucket (in place, with the kernels), and where they begin."""
    if ACTIVE:
        from shuffledp.shuffling.in_place import gather

        content, threads = piece.view(np.uint8), threads_for(source)
        return piece, gather(content, piece.dtype.itemsize, _BUCKETS, source, threads)
    labels = draw_bytes(len(piece), source) & np.uint8(_BUCKETS - 1)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(labels, minlength=_BUCKETS))))
    return piece[np.argsort(labels, kind="stable")], bounds


def _filled(blocks: Iterable[Block], room: Records) -> Iterator[Records]:
    """The records of the blocks, as often as they fill ``room``, and then the rest."""
    content, size, filled = _bytes_of(room), room.dtype.itemsize, 0
    for block in blocks:
        view = memoryview(block).cast("B")
        if len(view) % size:
            raise ParameterError(f"A block of {len(view):,} bytes is no whole number of records of {size:,} bytes.")
        while len(view):
            taken = min(len(view), len(content) - filled)
            content[filled : filled + taken] = view[:taken]
            view, filled = view[taken:], filled + taken
            if filled == len(content):
                yield room
                filled = 0
    if filled:
        yield room[: filled // size]


def _permuted(pieces: Iterator[Records], room: Records, scratch: Path, source: RandomSource) -> Iterator[Records]:
    """The records of all pieces in uniformly random order; ``room`` is where pieces come from and results are."""
    first = next(pieces, None)
    if first is None:
        return
    if len(first) < len(room):  # the last one, too
        permute(first, source)
        yield first
        return
    yield from _through_buckets(chain((first,), pieces), room, scratch, source)


def _through_buckets(
    pieces: Iterable[Records], room: Records, scratch: Path, source: RandomSource
) -> Iterator[Records]:
    with tempfile.TemporaryFile(dir=scratch) as file:
        scattered = _Scattered(file, room.dtype.itemsize)
        for piece in pieces:
            scattered.add(piece, source)
        for bucket in range(_BUCKETS):
            if scattered.size(bucket) > len(room):
                yield from _through_buckets(scattered.read(bucket, room), room, scratch, source)
                continue
            for whole in scattered.read(bucket, room):
                permute(whole, source)
                yield whole


def _bytes_of(records: Records) -> memoryview:
    return memoryview(records.view(np.uint8))  # type: ignore[arg-type]


def _private(path: str, flags: int) -> int:
    """Open so that only the owner can read."""
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Make durable which files there are."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
