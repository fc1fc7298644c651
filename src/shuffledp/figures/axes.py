"""Axes of known ends and length, so that what is drawn can be placed in pixels; and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shuffledp.figures.rendering import load_altair

__all__ = ["Axis"]

_PLAIN = (1e-2, 1e5)
"""Numbers from the first to below the second are written out, others as powers of ten."""
_WRITTEN_OUT = 1e7


@dataclass(frozen=True)
class Axis:
    """An axis from ``start`` to ``end``, logarithmic or linear, ``length`` pixels long."""

    start: float
    end: float
    length: int
    log: bool = True

    @classmethod
    def over(
        cls, values: Iterable[float], length: int, *, log: bool = True, margins: tuple[float, float] = (2.5, 1.6)
    ) -> Axis:
        """An axis with all values on it. ``margins`` are factors below and above, or shares of a linear range."""
        usable = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(usable), max(usable)
        if log:
            return cls(low / margins[0], high * margins[1], length)
        room = (high - low) or abs(high) or 1.0
        return cls(low - room * (margins[0] - 1) / 20, high + room * (margins[1] - 1) / 20, length, log=False)

    def pixel(self, value: float) -> float:
        """How far from the start a value lies."""
        if self.log:
            share = math.log(max(value, self.start) / self.start) / math.log(self.end / self.start)
        else:
            share = (value - self.start) / (self.end - self.start)
        return self.length * share

    def value(self, pixel: float) -> float:
        """The value that lies so far from the start."""
        share = pixel / self.length
        if self.log:
            return float(self.start * (self.end / self.start) ** share)
        return self.start + (self.end - self.start) * share

    def scale(self) -> Any:
        """The same as a scale of the drawing library."""
        return load_altair().Scale(
            type="log" if self.log else "linear", domain=[self.start, self.end], nice=False, zero=False
        )

    def ticks(self, most: int = 7) -> Any:
        """Ticks at powers of ten (or at 1, 2, 5 of few decades), written so that a person can read them."""
        alt = load_altair()
        if not self.log:
            return alt.Axis(tickCount=most)
        values = _round_values(self.start, self.end, most)
        words = " : ".join(f"abs(datum.value / {value!r} - 1) < 1e-6 ? '{_written(value)}'" for value in values)
        return alt.Axis(values=values, labelExpr=f"{words} : ''")


def _round_values(start: float, end: float, most: int) -> list[float]:
    """Powers of ten between the ends, thinned to ``most``; with 2 and 5 between them where they are few."""
    first, last = math.ceil(math.log10(start) - 1e-9), math.floor(math.log10(end) + 1e-9)
    decades = list(range(first, last + 1))
    if len(decades) >= 3:
        step = math.ceil(len(decades) / most)
        return [_power(exponent) for exponent in decades if exponent % step == 0]
    digits = (1, 2, 5) if math.log10(end / start) > 0.7 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    values = [digit * _power(exponent) for exponent in range(first - 1, last + 1) for digit in digits]
    return [value for value in values if start <= value <= end] or [start, end]


def _power(exponent: int) -> float:
    return float(f"1e{exponent}")


def _written(value: float) -> str:
    exponent = round(math.log10(value))
    is_power = abs(value / _power(exponent) - 1) < 1e-9
    if _PLAIN[0] <= value < _PLAIN[1] or (not is_power and _PLAIN[0] <= value < _WRITTEN_OUT):
        return f"{value:,.10g}"
    if is_power:
        return f"1e{exponent}"  # superscripts are missing in many fonts
    return f"{value:.3g}"
