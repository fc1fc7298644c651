"""Static files of pages: scripts and styles, prebuilt in ``pages/static``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

CONTENT_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
"""Content types by the suffix of a file."""


@cache
def read_asset(name: str) -> bytes:
    """The content of a file of ``pages/static``; the name is one that a page has, never one from a request."""
    return files("shuffledp.pages").joinpath("static", name).read_bytes()
