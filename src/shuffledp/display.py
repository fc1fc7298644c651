"""Formatting of estimates for people, on the terminal, on pages, in figures and in reprs.

The number of digits follows the error, ends of intervals are rounded outward, estimates are clipped to their intervals,
and a count that was withheld is shown as "< 64" instead of 0. JSON and tables have the unrounded numbers.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SIGNIFICANT = 2  # digits of the error
_MAX_DECIMALS = 12
_MAX_PERCENT_DECIMALS = 6
_LARGEST_WRITTEN_OUT = 1e15
_MAX_DIGITS = 17  # of a floating-point number
_MOST_MARKS = 3  # combining marks of one character
_BEFORE_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")

_PRINTABLE = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}  # a picture of each, such as ␛
    | dict.fromkeys([*range(0xD800, 0xE000), 0xFFFE, 0xFFFF], 0xFFFD)
)
"""A replacement for every character that XML or UTF-8 does not allow."""


def printable(text: str) -> str:
    """The string with visible replacements of all characters that HTML, SVG or UTF-8 cannot represent."""
    return text.translate(_PRINTABLE)


def visible(text: str, length: int = 80) -> str:
    r"""A string that users sent, for people: what is invisible, or changes the direction of text, is escaped.

    >>> print(visible("a\u202eb\x1b"), visible(""))
    a\u202eb\x1b (empty)
    """
    if not text:
        return "(empty)"
    characters, marks = [], _MOST_MARKS
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category[0] == "M" else 0
        hidden = category[0] == "C" or (category[0] == "Z" and character != " ") or marks > _MOST_MARKS
        escaped = character.encode("unicode_escape").decode() if hidden else character
        characters.append("\\\\" if character == "\\" else escaped)
    return shortened("".join(characters), length)


def spreadsheet_safe(text: str) -> str:
    """A string that users sent, for a CSV file: an apostrophe before what a spreadsheet would take for a formula.

    Strings that begin with an apostrophe get another one: the first one of a cell is never part of the string.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("a=b")
    ("'=1+1", 'a=b')
    """
    return f"'{text}" if text.startswith(_BEFORE_FORMULAS) else text


def shortened(text: str, length: int) -> str:
    """The string, with an ellipsis in place of what exceeds this many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@dataclass(frozen=True)
class ShownNumber:
    """One estimated number, formatted, and the value to draw."""

    value: float
    """The estimate clipped to its interval; 0 if it was withheld."""
    text: str
    low: str
    high: str
    error: str
    share: str = ""
    """In percent of all users; empty for sums and means."""

    @property
    def interval(self) -> str:
        """Both ends of the interval."""
        return f"{self.low} to {self.high}"


def show_counts(
    counts: Sequence[float],
    errors: Sequence[float],
    intervals: Sequence[Sequence[float]],
    *,
    users: int,
    withheld_below: int | None = None,
) -> list[ShownNumber]:
    """Format estimated numbers of users; with ``withheld_below``, an estimate of 0 is a count that was withheld."""
    usable = [float(error) for error in errors if math.isfinite(error) and error > 0]
    percent_decimals = min(decimals_of(100 * min(usable) / users) if usable and users else 2, _MAX_PERCENT_DECIMALS)
    return [
        _shown_count(float(count), float(error), interval, users, percent_decimals, withheld_below)
        for count, error, interval in zip(counts, errors, intervals, strict=True)
    ]


def _shown_count(
    count: float, error: float, interval: Sequence[float], users: int, percent_decimals: int, withheld_below: int | None
) -> ShownNumber:
    """Format one estimated number of users, as an integer."""
    low, high = (float(end) for end in interval)
    ends = {"low": _rounded(low, 0, math.floor), "high": _rounded(high, 0, math.ceil), "error": _error(error)}
    if withheld_below is not None and count == 0:
        share = _rounded(100 * withheld_below / users, percent_decimals, math.ceil) if users else "?"
        return ShownNumber(value=0.0, text=f"< {withheld_below:,}", share=f"< {share}%", **ends)
    value = _clipped(count, low, high)
    share = _rounded(100 * value / users, percent_decimals, round) if users else "?"
    return ShownNumber(value=value, text=_rounded(value, 0, round), share=f"{share}%", **ends)


def show_number(value: float, error: float, interval: Sequence[float]) -> ShownNumber:
    """Format an estimated sum or mean with as many decimals as show two digits of its error."""
    low, high = (float(end) for end in interval)
    value = _clipped(float(value), low, high)
    width = high - low
    scale = error if math.isfinite(error) and error > 0 else width / 4 if math.isfinite(width) and width > 0 else 0.0
    decimals = decimals_of(scale)
    if scale == 0 or decimals > _MAX_DECIMALS or max(abs(value), abs(low), abs(high)) >= _LARGEST_WRITTEN_OUT:
        text, lowest, highest = (_in_digits(number, scale) for number in (value, low, high))
    else:
        text = _rounded(value, decimals, round)
        lowest, highest = _rounded(low, decimals, math.floor), _rounded(high, decimals, math.ceil)
    return ShownNumber(value, text, lowest, highest, _error(error))


def decimals_of(error: float) -> int:
    """The number of decimals that show two significant digits of the error; 0 if it is at least 10, or unknown."""
    if not (math.isfinite(error) and error > 0):
        return 0
    leading = math.floor(math.log10(error))
    if float(f"{error:.{_SIGNIFICANT - 1}e}") >= 10.0 ** (leading + 1):  # 0.0999 is written 0.10
        leading += 1
    return max(0, _SIGNIFICANT - 1 - leading)


def withheld_sentence(withheld_below: int | None, confidence: float) -> str:
    """An explanation of "< 64"; empty if nothing can be withheld."""
    if withheld_below is None:
        return ""
    return (
        f'Counts that cannot be distinguished from noise are withheld and shown as "< {withheld_below:,}": one of '
        f"{withheld_below:,} or more is withheld with a probability of at most {percent((1 - confidence) / 2)}."
    )


def error_sentence(errors: Sequence[float], counts: Sequence[float], withheld_below: int | None) -> str:
    """The standard errors of the counts that are shown and of those that were withheld."""
    withheld = [error for error, count in zip(errors, counts, strict=True) if withheld_below is not None and count == 0]
    shown = [error for error, count in zip(errors, counts, strict=True) if withheld_below is None or count != 0]
    parts = []
    if shown:
        parts.append(f"The standard error of each count is {error_range(shown)} users")
    if withheld:
        subject = "of a withheld one" if shown else "The standard error of a withheld count is"
        parts.append(f"{subject} up to {_error(max(withheld))}")
    return ", ".join(parts) + "." if parts else ""


def error_range(errors: Sequence[float]) -> str:
    """The smallest and the largest error; one number if they are shown alike."""
    smallest, largest = _error(min(errors)), _error(max(errors))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def _clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high) if low <= high else value


def _rounded(value: float, decimals: int, direction: Any) -> str:
    """Format with the given number of decimals, rounded in a direction unless it is exact."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= _LARGEST_WRITTEN_OUT:
        return _in_digits(value, 0.0)
    nearest = f"{value:,.{decimals}f}"
    scaled = value * 10.0**decimals
    # a decimal such as 2.3 is not exact in binary
    is_exact = abs(scaled - round(scaled)) <= 1e-9 * max(1.0, abs(scaled))
    if direction is not round and not is_exact:
        nearest = f"{direction(scaled) / 10.0**decimals:,.{decimals}f}"
    return nearest.removeprefix("-") if float(nearest.replace(",", "")) == 0 else nearest


def _in_digits(value: float, error: float) -> str:
    """Format with as many significant digits as show the error, at most those of a floating-point number."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if error <= 0:
        return f"{value:,.10g}"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(error)) + _SIGNIFICANT
    return f"{value:,.{min(max(digits, _SIGNIFICANT), _MAX_DIGITS)}g}"


def _error(error: float) -> str:
    if not math.isfinite(error) or error <= 0:
        return f"{error:g}"
    decimals = decimals_of(error)
    return f"{error:,.{decimals}f}" if decimals <= _MAX_DECIMALS and error < _LARGEST_WRITTEN_OUT else f"{error:.2g}"


def percent(probability: float) -> str:
    """A probability in percent without rounding: 0.999 is 99.9%, not 100%."""
    return f"{100 * probability:.10g}%"
