"""Reading request bodies of bounded length."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Scope


class TooLongError(Exception):
    """The body has more bytes than are read."""


class DisconnectedError(Exception):
    """The sender went away before the end."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that name (lower case)."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def declared_length(scope: Scope) -> int | None:
    """What the sender says the length is."""
    value = header(scope, b"content-length")
    return int(value) if value is not None and value.isdigit() and len(value) <= 18 else None


async def read_body(receive: Receive, *, most: int, arrived: Callable[[int, bool], None] | None = None) -> bytes:
    """The whole body, if it has at most ``most`` bytes; reading stops with the first piece beyond.

    ``arrived`` is told the size of every piece and whether more comes; what it raises ends the reading.
    Senders that never finish are dealt with by the connection: see ``connections``.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        whole: bytes = message.get("body", b"")
        if len(whole) > most:
            raise TooLongError
        if arrived is not None:
            arrived(len(whole), False)
        return whole
    body = bytearray()  # not a list of pieces: a piece of two bytes would take twenty times as much
    while True:
        if message["type"] != "http.request":
            raise DisconnectedError
        piece = message.get("body", b"")
        if len(body) + len(piece) > most:
            raise TooLongError
        more = bool(message.get("more_body", False))
        if arrived is not None:
            arrived(len(piece), more)
        body += piece
        if not more:
            return bytes(body)
        message = await receive()
