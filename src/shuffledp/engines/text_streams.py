"""Text of a data file as a stream in UTF-8: encodings, byte-order marks, NUL bytes."""

from __future__ import annotations

import codecs

from shuffledp.engines.byte_streams import ByteStream
from shuffledp.engines.paths import DataFile

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""From each byte-order mark to its encoding; those of UTF-32 come first since they begin with those of UTF-16."""
_PIECE_BYTES = 1 << 20


def utf8_stream(stream: ByteStream, encoding: str, file: DataFile) -> ByteStream:
    """The text in UTF-8 without its byte-order mark, if it is in the declared encoding."""
    head = stream.peek(4)
    mark, marked = next(((mark, name) for mark, name in _MARKS.items() if head.startswith(mark)), (b"", ""))
    if marked and not encoding.startswith(marked):
        raise file.error(f"it begins with the byte-order mark of {marked.upper()}: use `encoding='{marked}'`")
    if encoding in ("utf-16", "utf-32") and not marked:
        raise file.error(
            f"it has no byte-order mark, so the order of its bytes is not known: use `encoding='{encoding}-le'` or "
            f"`encoding='{encoding}-be'`"
        )
    if encoding != "utf-8":
        return ByteStream(_Decoded(stream, marked or encoding, file).read, stream.fraction)
    stream.read(len(mark))

    def read(size: int) -> bytes:
        content = stream.read(size)
        if b"\0" in content:
            raise file.error(
                "it has NUL bytes, so it is not text in UTF-8; if it is in UTF-16, use `encoding='utf-16-le'`"
            )
        return content

    return ByteStream(read, stream.fraction)


class _Decoded:
    """Text of another encoding, as UTF-8."""

    def __init__(self, stream: ByteStream, encoding: str, file: DataFile) -> None:
        self._stream, self._encoding, self._file = stream, encoding, file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._lines, self._first, self._ended = 1, True, False

    def read(self, _: int) -> bytes:
        """The next piece, of any size; empty at the end only."""
        content = ""
        while not content and not self._ended:
            piece = self._stream.read(_PIECE_BYTES)
            self._ended = not piece
            try:
                content = self._decoder.decode(piece, final=self._ended)
            except UnicodeDecodeError as error:
                line = self._lines + error.object[: error.start].decode(self._encoding, "ignore").count("\n")
                raise self._file.error(f"near line {line:,} it is not in the encoding {self._encoding}") from None
            if self._first and content:
                content, self._first = content.removeprefix("\ufeff"), False
        if "\0" in content:
            raise self._file.error(f"it has NUL characters, so it is not text in the encoding {self._encoding}")
        self._lines += content.count("\n")
        try:
            return content.encode()
        except UnicodeError:  # surrogates
            raise self._file.error(f"it is not text in the encoding {self._encoding}") from None
