"""The bytes of a data file, decompressed in a stream of bounded memory."""

from __future__ import annotations

import io
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from shuffledp.engines.formats import NOT_DATA, OFFICE_MEMBERS, compression
from shuffledp.engines.paths import DataFile
from shuffledp.errors import DataError
from shuffledp.extras import extra

with extra("files", "Reading a data file"):
    import pyarrow as pa

MAX_IN_MEMORY_BYTES = 1 << 30
"""Maximum size of content that must be in memory as a whole, since it is compressed or from standard input."""
_MAX_XZ_MEMORY_BYTES = 1 << 28
_PIECE_BYTES = 1 << 16
_MAX_PIECE_BYTES = 1 << 24
"""Maximum number of bytes requested at once: a hostile file may declare more than it has."""
_MAGIC_BYTES = 16
_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz", ".zip": "zip"}
_ENCRYPTED = 0x1

_read_inputs: WeakSet[Any] = WeakSet()
"""Standard inputs that have been read: they cannot be read twice."""


class ByteStream:
    """A stream of bytes that can be read once; ``peek`` returns its next bytes without consuming them."""

    closed = False

    def __init__(
        self, read: Callable[[int], bytes], fraction: Callable[[], float] = lambda: 0.0, whole: Any = None
    ) -> None:
        self._read, self.fraction, self._whole = read, fraction, whole
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, which stay unread; fewer only if there are no more."""
        self._ahead = self._at_least(size)
        return self._ahead[:size]

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes; fewer only if there are no more."""
        content = self._at_least(size)
        self._ahead = content[size:]
        return content[:size]

    def _at_least(self, size: int) -> bytes:
        """The bytes that were peeked at, extended to ``size`` bytes unless the stream ends before."""
        pieces, length = [self._ahead], len(self._ahead)
        while length < size and (more := self._read(min(size - length, _MAX_PIECE_BYTES))):
            pieces.append(more)
            length += len(more)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readable(self) -> bool:
        """True: part of the interface of files, which libraries ask for."""
        return True

    def close(self) -> None:
        """Do nothing: the file is closed where it was opened."""

    def everything(self, file: DataFile) -> Any:
        """All content, for random access: the file itself, or a copy in memory if it is not too large."""
        if self._whole is not None:
            return self._whole
        content = bytearray()
        while piece := self.read(_PIECE_BYTES):
            content += piece
            if len(content) > MAX_IN_MEMORY_BYTES:
                raise file.error(
                    f"it has more than {MAX_IN_MEMORY_BYTES >> 30} GiB in a format that must be in memory as a whole "
                    "when it is compressed or comes from standard input; decompress it to a file"
                )
        return pa.BufferReader(bytes(content))


@contextmanager
def open_bytes(file: DataFile) -> Iterator[ByteStream]:
    """The decompressed content; a file that changes before the end of the block is refused."""
    if file.path is None:
        raw = ByteStream(_standard_input())
        packed = compression(raw.peek(_MAGIC_BYTES))
        yield _decompressed(pa.PythonFile(raw, mode="r"), packed, file) if packed else raw
        return
    before, size = file.identity(), max(1, file.size)
    with pa.OSFile(str(file.path)) as native:
        packed = compression(native.read(_MAGIC_BYTES))
        native.seek(0)
        by_name = _SUFFIXES.get(file.suffixes[-1]) if file.suffixes else None
        if by_name not in (None, packed) and file.size:
            raise file.error(f"its name ends in {file.suffixes[-1]}, but its content is not compressed by {by_name}")

        def fraction() -> float:
            return min(1.0, int(native.tell()) / size)

        if packed is None:
            yield ByteStream(native.read, fraction, native)
        else:
            stream = _decompressed(native, packed, file)
            stream.fraction = fraction
            yield stream
    if file.identity() != before:
        raise file.error("it changed while it was read")


def _standard_input() -> Callable[[int], bytes]:
    source = getattr(sys.stdin, "buffer", None)
    if source is None:
        raise DataError("Cannot read standard input: there is none.")
    if source in _read_inputs:
        raise DataError("Standard input was read already, and can be read once only: save it to a file.")
    _read_inputs.add(source)

    def read(size: int) -> bytes:
        content: bytes = source.read(size)
        return content

    return read


def _decompressed(native: Any, packed: str, file: DataFile) -> ByteStream:
    stream = _open_compressed(native, packed, file)
    if compression(stream.peek(_MAGIC_BYTES)):
        raise file.error("it is compressed twice; decompress it once")
    return stream


def _open_compressed(native: Any, packed: str, file: DataFile) -> ByteStream:
    if packed == "zip":
        return ByteStream(_only_member(native, file))
    if packed == "xz":
        return ByteStream(_Xz(native.read, file).read)
    return ByteStream(pa.CompressedInputStream(native, packed).read)


def _only_member(native: Any, file: DataFile) -> Callable[[int], bytes]:
    """The only file in a zip archive, whose name does not matter."""
    if file.path is None:
        native = io.BytesIO(ByteStream(native.read).everything(file).read())
    try:
        archive = zipfile.ZipFile(native)
        members = [member for member in archive.infolist() if not member.is_dir()]
        for name, kind in OFFICE_MEMBERS.items():
            if any(member.filename == name for member in members):
                raise file.error(f"it is {kind}, {NOT_DATA}")
        if len(members) != 1:
            raise file.error(f"it is a zip archive of {len(members):,} files; one with a single file is needed")
        if members[0].flag_bits & _ENCRYPTED:
            raise file.error("it is an encrypted zip archive; extract it first")
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise file.error("it is a zip archive with a compression other than deflate; extract it first")
        content = archive.open(members[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, UnicodeError):
        raise file.error("it is a damaged or empty zip archive") from None

    def read(size: int) -> bytes:
        try:
            return content.read(min(size, _PIECE_BYTES * 16))
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise file.error("it is a damaged or empty zip archive") from None

    return read


class _Xz:
    """Content of an xz file, which may have several streams; a dictionary that needs much memory is refused."""

    def __init__(self, read: Callable[[int], bytes], file: DataFile) -> None:
        self._compressed, self._file = read, file
        self._decompressor: lzma.LZMADecompressor | None = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; empty only at the end of the content."""
        try:
            while True:
                if self._decompressor is None:
                    self._rest = (self._rest or self._compressed(_PIECE_BYTES)).lstrip(b"\0")  # padding of streams
                    if not self._rest:
                        if self._compressed_ended():
                            return b""
                        continue
                    self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_MEMORY_BYTES)
                if self._decompressor.needs_input and not self._rest:
                    self._rest = self._compressed(_PIECE_BYTES)
                    if not self._rest:
                        raise self._file.error("it is a truncated xz file")
                content = self._decompressor.decompress(self._rest, max_length=size)
                self._rest = b""
                if self._decompressor.eof:
                    self._rest, self._decompressor = self._decompressor.unused_data, None
                if content:
                    return content
        except lzma.LZMAError:
            raise self._file.error("it is a damaged xz file, or needs too much memory") from None

    def _compressed_ended(self) -> bool:
        """Read more compressed bytes; True if there are none."""
        self._rest = self._compressed(_PIECE_BYTES)
        return not self._rest
