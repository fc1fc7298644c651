"""Optional compiled kernels; every caller has a numpy implementation with the same distribution.

The environment variable ``SHUFFLEDP_NATIVE`` selects ``auto`` (the default: use the kernels if they were built), ``on``
(warn if they are missing) or ``off``.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

__all__ = ["ACTIVE", "STATUS", "NativeStatus", "available_cores"]

_KERNELS = ("_bits", "_counting", "_numbers", "_permutation", "_prefixes", "_reports", "_tables")
_CHOICES = ("auto", "on", "off")


@dataclass(frozen=True)
class NativeStatus:
    """Whether the compiled kernels are used, and why."""

    active: bool
    reason: str
    wrong: bool = False
    """Whether the setting is invalid or cannot be met; ``reason`` explains it."""


def _status() -> NativeStatus:
    choice = os.environ.get("SHUFFLEDP_NATIVE", "").strip().lower() or "auto"
    if choice not in _CHOICES:
        return NativeStatus(False, f"SHUFFLEDP_NATIVE is {choice!r}; it can be {', '.join(_CHOICES)}.", wrong=True)
    if choice == "off":
        return NativeStatus(False, "switched off by SHUFFLEDP_NATIVE")
    try:
        for kernel in _KERNELS:
            import_module(f"{__name__}.{kernel}")
    except ImportError as error:
        reason = _build_note() or f"not built: {error}"
        if choice == "on":
            return NativeStatus(False, f"SHUFFLEDP_NATIVE is 'on', but the kernels are {reason}.", wrong=True)
        return NativeStatus(False, reason)
    return NativeStatus(True, _build_note() or "built")


def _build_note() -> str:
    """The note that the build left about its result, or an empty string."""
    try:
        return Path(__file__).with_name("_built.txt").read_text().strip()
    except OSError:
        return ""


def available_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


STATUS = _status()
ACTIVE = STATUS.active
if STATUS.wrong:
    warnings.warn(STATUS.reason, RuntimeWarning, stacklevel=2)
