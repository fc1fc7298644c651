"""How values read as text, and text as numbers.

- Spaces around text do not count. Text that is empty then, ``None`` and NaN are missing, and never a value.
- A number or boolean reads as its text: 7 as "7", 1.0 as "1", 2.5 as "2.5", ``True`` as "true".
- Numbers are written with ASCII digits, a point and an exponent: "-1.5e3". "1_0", "0x10", "inf" and "nan" are none.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

import numpy as np

__all__ = ["EXACT_INTEGERS", "looks_missing", "parse_number", "reading", "text_of"]

EXACT_INTEGERS = 2**53
"""Up to here every integer is a floating-point number of its own."""
_LONGEST_INTEGER = 10**100
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_ZERO_FRACTION = re.compile(r"([-+]?[0-9]+)\.0+")
_BOOLEANS = ("true", "false")
_MISSING_MARKERS = frozenset({"na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "?", "-", "."})


def parse_number(text: str) -> float | None:
    """The number that the text is, infinite if it exceeds every floating-point number; None if it is none."""
    trimmed = text.strip()
    return float(trimmed) if _NUMBER.fullmatch(trimmed) else None


def reading(text: str) -> str:
    """What different ways to write the same integer or boolean have in common; other text itself."""
    trimmed = text.strip()
    if integer := _ZERO_FRACTION.fullmatch(trimmed):
        return "0" if integer[1] in ("-0", "+0") else integer[1]
    lowered = trimmed.lower()
    return lowered if lowered in _BOOLEANS else trimmed


def looks_missing(text: str) -> bool:
    """Whether people write this where there is no value, such as NA; it is a value all the same unless declared so."""
    return text.strip().lower() in _MISSING_MARKERS


def text_of(value: object) -> str | None:
    """The value as text; None if it is missing, or neither text nor boolean nor number."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value)) if abs(int(value)) < _LONGEST_INTEGER else None
    if isinstance(value, (float, np.floating)):
        if math.isnan(value):
            return None
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) <= EXACT_INTEGERS else str(value)
    return str(value) if isinstance(value, Decimal) else None
