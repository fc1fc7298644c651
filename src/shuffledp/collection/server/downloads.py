"""Files as answers, read in pieces as fast as the other side takes them: however large, they need no memory."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

__all__ = ["FileResponse"]

_PIECE = 1 << 15


@dataclass(frozen=True, eq=False)
class FileResponse:
    """An open file, which does not change while it is sent, and is closed after that."""

    file: BinaryIO
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the server lets nobody have more in memory than fits between the two sides."""
        with self.file as file:
            size = os.fstat(file.fileno()).st_size
            headers = [(b"content-length", b"%d" % size), *self.headers]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                await _send_body(file, receive, send)
            await send({"type": "http.response.body"})


async def _send_body(file: BinaryIO, receive: Receive, send: Send) -> None:
    gone = asyncio.create_task(_until_gone(receive))
    try:
        while not gone.done() and (piece := await run_in_threadpool(file.read, _PIECE)):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    """To somebody who is gone nothing is sent any more, and sending does not say so."""
    while (await receive())["type"] != "http.disconnect":
        pass
