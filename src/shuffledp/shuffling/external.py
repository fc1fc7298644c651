"""Uniformly random permutation of more records than fit into memory, through a scratch file.

Rao (1961) and Sandelius (1962), as in memory: every record gets an independent uniform label, records are grouped by
label into buckets, and each bucket is permuted uniformly; their concatenation is exactly uniform. A bucket that is
larger than the memory is permuted recursively. Which buckets those are depends on sizes only.

A scratch file has the records almost in their original order, so it is encrypted with a key that only this process has.
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
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from shuffledp.durable_files import write_durably
from shuffledp.errors import OutputError, ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.shuffling.grouping import group_randomly
from shuffledp.shuffling.permutation import permute

_BUCKETS = 256  # of one level; a power of two
_COPIES = 3  # copies of the records in memory without the kernels: original, grouped, and scratch for permuting
_OVERHEAD_BYTES = 48  # labels, keys and orders per record without the kernels
_CIPHER_BLOCK = 16
_ENCRYPTED_AT_ONCE = 1 << 20  # bytes; a second copy of that size is in memory
_BUFFERS = 1 << 21  # bytes for random numbers and file buffers, with the kernels

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

    A block consists of complete records of ``record_size`` bytes. About ``memory`` bytes of memory are used, whatever
    the number of records, and in the directory ``scratch`` as much disk space as the records take, in unnamed temporary
    files that disappear with the process. ``out`` is written atomically and durably; a killed process leaves at most a
    file ``.NAME.partial`` beside it, which the next attempt overwrites.
    """
    if record_size < 1 or memory < 1:
        raise ParameterError("record_size and memory must be at least 1 byte.", record_size=record_size)
    buffer = np.empty(_records_in(memory, record_size), dtype=f"V{record_size}")
    partial = out.with_name(f".{out.name}.partial")
    written = 0

    def contents() -> Iterator[memoryview]:
        nonlocal written
        for permuted in _permuted(_filled(blocks, buffer), buffer, scratch, source):
            yield _bytes_of(permuted)
            written += len(permuted)

    try:
        write_durably(out, contents(), temporary=partial)
    except OSError as error:
        raise OutputError(f"Cannot permute the records: {error.strerror or error}.", path=str(out)) from None
    finally:
        partial.unlink(missing_ok=True)
    return written


@dataclass
class _EncryptedFile:
    """A file that is appended to and read anywhere, in AES-256-CTR with a key in memory that encrypts nothing else."""

    file: IO[bytes]
    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def __post_init__(self) -> None:
        self._writer = self._cipher_at(0)

    def append(self, content: memoryview) -> None:
        """Write further bytes at the end."""
        for start in range(0, len(content), _ENCRYPTED_AT_ONCE):
            self.file.write(self._writer.update(content[start : start + _ENCRYPTED_AT_ONCE]))

    def read_into(self, part: memoryview, position: int) -> None:
        """Fill ``part`` with the bytes from a position on; OSError if there are fewer."""
        self.file.seek(position)
        if self.file.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise OSError("the scratch file is shorter than what was written to it")
        cipher = self._cipher_at(position)
        for start in range(0, len(part), _ENCRYPTED_AT_ONCE):
            piece = part[start : start + _ENCRYPTED_AT_ONCE]
            piece[:] = cipher.update(piece)

    def _cipher_at(self, position: int) -> CipherContext:
        """The key stream from a position on; encryption and decryption are the same."""
        block, within = divmod(position, _CIPHER_BLOCK)
        counter = block.to_bytes(_CIPHER_BLOCK, "big")
        cipher = Cipher(algorithms.AES(self.key), modes.CTR(counter)).encryptor()
        cipher.update(bytes(within))
        return cipher


@dataclass
class _Scattered:
    """Records in a scratch file, piece by piece, and within each piece grouped by bucket."""

    file: _EncryptedFile
    record_size: int
    pieces: list[tuple[int, NDArray[np.int64]]] = field(default_factory=list)
    """For each piece the number of records before it, and the bounds of its buckets within it."""
    records: int = 0

    def add(self, piece: Records, source: RandomSource) -> None:
        """Assign every record of the piece to a bucket, and write the piece grouped by bucket."""
        gathered, bounds = group_randomly(piece, _BUCKETS, source)
        self.file.append(_bytes_of(gathered))
        self.pieces.append((self.records, bounds))
        self.records += len(piece)

    def size(self, bucket: int) -> int:
        """The number of records in the bucket."""
        return sum(int(bounds[bucket + 1] - bounds[bucket]) for _, bounds in self.pieces)

    def read(self, bucket: int, buffer: Records) -> Iterator[Records]:
        """Yield ``buffer`` each time the bucket's records have filled it; last, its part with the remaining records."""
        filled = 0
        for start, bounds in self.pieces:
            position, end = start + int(bounds[bucket]), start + int(bounds[bucket + 1])
            while position < end:
                taken = min(end - position, len(buffer) - filled)
                part = _bytes_of(buffer[filled : filled + taken])
                self.file.read_into(part, position * self.record_size)
                position, filled = position + taken, filled + taken
                if filled == len(buffer):
                    yield buffer
                    filled = 0
        if filled:
            yield buffer[:filled]


def _records_in(memory: int, record_size: int) -> int:
    """The number of records in memory at a time; the kernels need no second copy and at most one label per record."""
    if ACTIVE:
        return max(1, (memory - min(memory // 4, _BUFFERS)) // (record_size + 1))
    return max(1, memory // (_COPIES * record_size + _OVERHEAD_BYTES))


def _filled(blocks: Iterable[Block], buffer: Records) -> Iterator[Records]:
    """Yield ``buffer`` each time the blocks' records have filled it; last, its part with the remaining records."""
    content, size, filled = _bytes_of(buffer), buffer.dtype.itemsize, 0
    for block in blocks:
        view = memoryview(block).cast("B")
        if len(view) % size:
            raise ParameterError(
                f"The size of a block must be a multiple of the record size; got a block of {len(view):,} bytes "
                f"and records of {size:,} bytes."
            )
        while len(view):
            taken = min(len(view), len(content) - filled)
            content[filled : filled + taken] = view[:taken]
            view, filled = view[taken:], filled + taken
            if filled == len(content):
                yield buffer
                filled = 0
    if filled:
        yield buffer[: filled // size]


def _permuted(pieces: Iterator[Records], buffer: Records, scratch: Path, source: RandomSource) -> Iterator[Records]:
    """The records of all pieces in uniformly random order; pieces arrive in ``buffer``, and so do the results."""
    first = next(pieces, None)
    if first is None:
        return
    if len(first) < len(buffer):  # the only piece
        permute(first, source)
        yield first
        return
    yield from _through_buckets(chain((first,), pieces), buffer, scratch, source)


def _through_buckets(
    pieces: Iterable[Records], buffer: Records, scratch: Path, source: RandomSource
) -> Iterator[Records]:
    with tempfile.TemporaryFile(dir=scratch) as file:
        scattered = _Scattered(_EncryptedFile(file), buffer.dtype.itemsize)
        for piece in pieces:
            scattered.add(piece, source)
        for bucket in range(_BUCKETS):
            if scattered.size(bucket) > len(buffer):
                yield from _through_buckets(scattered.read(bucket, buffer), buffer, scratch, source)
                continue
            for records in scattered.read(bucket, buffer):
                permute(records, source)
                yield records


def _bytes_of(records: Records) -> memoryview:
    return memoryview(records.view(np.uint8))  # type: ignore[arg-type]
