"""Conversion of values to strings, and of strings to numbers.

- Spaces around a string are ignored. An empty string, ``None`` and NaN are missing values.
- A number or boolean becomes a string: 7 becomes "7", 1.0 "1", 2.5 "2.5", ``True`` "true".
- Numbers are written with ASCII digits, a point and an exponent: "-1.5e3". Not numbers: "1_0", "0x10", "inf", "nan".
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

import numpy as np

EXACT_INTEGERS = 2**53
"""Integers up to here are exact as floating-point numbers."""
_LONGEST_INTEGER = 10**100
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_ZERO_FRACTION = re.compile(r"([-+]?[0-9]+)\.0+")
_BOOLEANS = ("true", "false")
MISSING_MARKERS = frozenset({"na", "n/a", "#n/a", "<na>", "nan", "null", "none", "nil", "?", "-", "."})


def parse_number(text: str) -> float | None:
    """The string as a number, infinite if it exceeds every floating-point number; None if it is not a number."""
    trimmed = text.strip()
    return float(trimmed) if _NUMBER.fullmatch(trimmed) else None


def canonical_form(text: str) -> str:
    """The canonical spelling of an integer or a boolean; any other string without surrounding spaces."""
    trimmed = text.strip()
    if integer := _ZERO_FRACTION.fullmatch(trimmed):
        return "0" if integer[1] in ("-0", "+0") else integer[1]
    lowered = trimmed.lower()
    return lowered if lowered in _BOOLEANS else trimmed


def looks_missing(text: str) -> bool:
    """Whether the string commonly marks a missing value, as NA does; it is a value unless declared missing."""
    return text.strip().lower() in MISSING_MARKERS


def string_of(value: object) -> str | None:
    """The value as a string; None if it is missing, or not a string, boolean or number."""
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
