"""The deployed form of the shuffled model: devices report to a task, a shuffler mixes, an analyzer counts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shuffledp.collection.client import Client, Connection, Patience, Policy, State, sealed_report
    from shuffledp.collection.keys import SealingKey, SealingPublicKey, SigningKey, VerifyingKey
    from shuffledp.collection.task import SignedTask, Task
    from shuffledp.collection.wire import Manifest, ReportFormat

_HOMES = {
    "Client": "client",
    "Connection": "client",
    "Manifest": "wire",
    "Patience": "client",
    "Policy": "client",
    "ReportFormat": "wire",
    "SealingKey": "keys",
    "SealingPublicKey": "keys",
    "SignedTask": "task",
    "SigningKey": "keys",
    "State": "client",
    "Task": "task",
    "VerifyingKey": "keys",
    "sealed_report": "client",
}

__all__ = [
    "Client",
    "Connection",
    "Manifest",
    "Patience",
    "Policy",
    "ReportFormat",
    "SealingKey",
    "SealingPublicKey",
    "SignedTask",
    "SigningKey",
    "State",
    "Task",
    "VerifyingKey",
    "sealed_report",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use: a server loads no client, and a device no server."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shuffledp.collection' has no attribute {name!r}")
    return getattr(import_module(f"shuffledp.collection.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
