"""Scheduling of background work in a server: interruption at shutdown."""

from __future__ import annotations

__all__ = ["ShutdownError"]


class ShutdownError(Exception):
    """The server was asked to stop; the interrupted step is repeated after the next start."""
