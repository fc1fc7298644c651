"""Logs: one JSON object per line, about the server and its rounds, never about one report or its sender.

Records of libraries are reduced to their message templates, since arguments may contain addresses or content.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

_LOGGER = logging.getLogger("shuffledp.collection")
_CONSTANT_TEMPLATES = ("uvicorn.error",)
"""Loggers whose message templates are constant strings."""


def event(name: str, *, level: int = logging.INFO, **fields: str | int | float | bool | None) -> None:
    """Log that something happened to the server or a round. Fields must not be about one report."""
    _LOGGER.log(level, name, extra={"fields": fields})


class JsonLinesFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in seconds, level, event and its fields; of exceptions only the type and the location."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(int(record.created), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "level": record.levelname.lower(),
        }
        if record.name == _LOGGER.name:
            line |= {"event": record.msg} | getattr(record, "fields", {})
        else:
            line |= {"event": "library", "logger": record.name}
            if record.name in _CONSTANT_TEMPLATES and isinstance(record.msg, str):
                line["text"] = record.msg.strip()  # the template: arguments may be addresses
        if record.exc_info and record.exc_info[1] is not None:
            line |= _location(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=lambda value: type(value).__name__)


def _location(error: BaseException) -> dict[str, str]:
    """The type and location of an error, without its message, which may quote a request."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]]
    return {"error": type(error).__name__, "where": " > ".join(where)}


def configure_logs(stream: TextIO | None = None, *, level: str = "info") -> None:
    """Send all logs and warnings of this process as JSON lines to ``stream``, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLinesFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_once_each)
    warnings.showwarning = _log_warning


_seen: set[str] = set()


def _log_warning(
    message: Warning | str,  # noqa: ARG001  # it may quote a request
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Log the category and location of a warning, once."""
    where = f"{Path(filename).name}:{lineno}"
    if _is_new(f"{category.__name__} {where}"):
        event("library", level=logging.WARNING, logger="warnings", warning=category.__name__, where=where)


def _once_each(record: logging.LogRecord) -> bool:
    """Pass each kind of record once: a line per invalid request would reveal when requests arrived."""
    kind = f"{record.msg}{_location(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ''}"
    return _is_new(kind)


def _is_new(kind: str) -> bool:
    new = kind not in _seen and len(_seen) < 1000
    _seen.add(kind) if new else None
    return new
