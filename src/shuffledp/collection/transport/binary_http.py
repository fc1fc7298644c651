"""Binary HTTP messages (RFC 9292): requests are encoded with known lengths, responses are decoded in both framings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException

_REQUEST_OF_KNOWN_LENGTH = 0
_RESPONSE_OF_KNOWN_LENGTH = 1
_RESPONSE_OF_UNKNOWN_LENGTH = 3
_FIRST_FINAL_STATUS = 200
_LAST_STATUS = 599


@dataclass(frozen=True)
class BinaryResponse:
    """A final response; names of header fields are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    content: bytes

    def getheader(self, name: str) -> str | None:
        """The first value of a header field."""
        return next((value for key, value in self.headers if key == name.lower()), None)


def encode_integer(number: int) -> bytes:
    """A variable-length integer of RFC 9000, section 16, in its shortest form."""
    for bits, size in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if number < 1 << bits:
            prefix = size.bit_length() - 1
            return (number | prefix << (8 * size - 2)).to_bytes(size, "big")
    raise ValueError(f"{number} does not fit into 62 bits.")


def encode_request(
    method: str, scheme: str, authority: str, path: str, headers: Mapping[str, str], content: bytes
) -> bytes:
    """A request of known length, without trailers."""
    fields = b"".join(_text(name.lower()) + _text(value) for name, value in headers.items())
    control = b"".join(map(_text, (method, scheme, authority, path)))
    return encode_integer(_REQUEST_OF_KNOWN_LENGTH) + control + b"".join(map(_prefixed, (fields, content, b"")))


def decode_response(message: bytes) -> BinaryResponse:
    """The final response in a message; HTTPException if it is not valid."""
    reader = _Reader(message)
    framing = reader.integer()
    if framing not in (_RESPONSE_OF_KNOWN_LENGTH, _RESPONSE_OF_UNKNOWN_LENGTH):
        raise HTTPException(f"a binary HTTP message of type {framing} is not a response")
    known = framing == _RESPONSE_OF_KNOWN_LENGTH
    while True:
        status = reader.integer()
        if not 100 <= status <= _LAST_STATUS:
            raise HTTPException(f"a binary HTTP response has the status {status}")
        headers = tuple(_fields(reader, known))
        if status >= _FIRST_FINAL_STATUS:
            break
    content = _section(reader) if known else b"".join(_chunks(reader))
    for _ in _fields(reader, known):
        pass  # trailers are allowed and not used
    if reader.rest().strip(b"\0"):
        raise HTTPException("a binary HTTP message is followed by other data than padding")
    return BinaryResponse(status, headers, content)


def _text(value: str) -> bytes:
    return _prefixed(value.encode("latin-1"))


def _prefixed(value: bytes) -> bytes:
    return encode_integer(len(value)) + value


class _Reader:
    """Reads a message from its beginning; HTTPException where it is truncated inside of an item."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._position = 0

    @property
    def ended(self) -> bool:
        return self._position == len(self._message)

    def integer(self) -> int:
        first = self.take(1)[0]
        number = first & 0x3F
        for byte in self.take((1 << (first >> 6)) - 1):
            number = number << 8 | byte
        return number

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._message):
            raise HTTPException("a binary HTTP message is truncated")
        part, self._position = self._message[self._position : end], end
        return part

    def rest(self) -> bytes:
        return self.take(len(self._message) - self._position)


def _section(reader: _Reader) -> bytes:
    """A section with its length; sections at the end that are empty may be left out (RFC 9292, section 3.8)."""
    return b"" if reader.ended else reader.take(reader.integer())


def _chunks(reader: _Reader) -> Iterable[bytes]:
    while not reader.ended and (length := reader.integer()):
        yield reader.take(length)


def _fields(reader: _Reader, known: bool) -> Iterable[tuple[str, str]]:
    """The fields of a header or trailer section: of known length, or ended by an empty name."""
    lines = _Reader(_section(reader)) if known else reader
    while not lines.ended:
        name = lines.take(lines.integer())
        if not name:
            if known:
                raise HTTPException("a field of a binary HTTP message has no name")
            return
        value = lines.take(lines.integer())
        yield name.decode("latin-1").lower(), value.decode("latin-1")
