"""Compiled kernels, used where they were built; whoever calls one has a twin in numpy with the same distribution.

The environment variable ``SHUFFLEDP_NATIVE`` chooses: ``auto`` (the default), ``on`` (missing kernels are an error) or
``off``.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

__all__ = ["ACTIVE", "STATUS", "NativeStatus"]

_KERNELS = ("_bits", "_counting", "_numbers", "_permutation", "_reports", "_tables")
_CHOICES = ("auto", "on", "off")


@dataclass(frozen=True)
class NativeStatus:
    """Whether the compiled kernels are used, and why."""

    active: bool
    reason: str
    wrong: bool = False
    """What was asked for cannot be: the reason says it."""


def _status() -> NativeStatus:
    choice = os.environ.get("SHUFFLEDP_NATIVE", "").strip().lower() or "auto"
    if choice not in _CHOICES:
        return NativeStatus(False, f"SHUFFLEDP_NATIVE is {choice!r}; it can be {', '.join(_CHOICES)}.", wrong=True)
    if choice == "off":
        return NativeStatus(False, "switched off by SHUFFLEDP_NATIVE")
    try:
        for each in _KERNELS:
            import_module(f"{__name__}.{each}")
    except ImportError as error:
        reason = _note() or f"not built: {error}"
        if choice == "on":
            return NativeStatus(False, f"SHUFFLEDP_NATIVE is 'on', but the kernels are {reason}.", wrong=True)
        return NativeStatus(False, reason)
    return NativeStatus(True, _note() or "built")


def _note() -> str:
    """What the build wrote down."""
    try:
        return Path(__file__).with_name("_built.txt").read_text().strip()
    except OSError:
        return ""


STATUS = _status()
ACTIVE = STATUS.active
if STATUS.wrong:
    warnings.warn(STATUS.reason, RuntimeWarning, stacklevel=2)
