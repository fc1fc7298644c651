"""The deployed form of the shuffled model: devices report to a task, a shuffler mixes, an analyzer counts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shuffledp.collection.device import Client, Connection, Patience, Policy, State, sealed_report
    from shuffledp.collection.task.task import SignedTask, Task
    from shuffledp.collection.wire.formats import Manifest, ReportFormat
    from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey, SigningKey, VerifyingKey

_HOMES = {
    "Client": "device",
    "Connection": "device",
    "Manifest": "wire.formats",
    "Patience": "device",
    "Policy": "device",
    "ReportFormat": "wire.formats",
    "SealingKey": "wire.keys",
    "SealingPublicKey": "wire.keys",
    "SignedTask": "task.task",
    "SigningKey": "wire.keys",
    "State": "device",
    "Task": "task.task",
    "VerifyingKey": "wire.keys",
    "sealed_report": "device",
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
