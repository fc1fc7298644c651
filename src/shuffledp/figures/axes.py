"""Axes with fixed ends and length, so that values can be converted to pixels, and their tick labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shuffledp.figures.rendering import load_altair

_DECIMAL_RANGE = (1e-2, 1e5)
"""Numbers from the first to below the second are written without an exponent."""
_MAX_DECIMAL_MULTIPLE = 1e7
"""Multiples of powers of ten are written without an exponent up to here."""


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
        """An axis that contains all values. ``margins`` are factors below and above, or shares of a linear range."""
        usable = [value for value in values if math.isfinite(value) and (value > 0 or not log)] or [1.0]
        low, high = min(usable), max(usable)
        if log:
            return cls(low / margins[0], high * margins[1], length)
        extent = (high - low) or abs(high) or 1.0
        return cls(low - extent * (margins[0] - 1) / 20, high + extent * (margins[1] - 1) / 20, length, log=False)

    def pixel(self, value: float) -> float:
        """The distance of a value from the start, in pixels."""
        if self.log:
            share = math.log(max(value, self.start) / self.start) / math.log(self.end / self.start)
        else:
            share = (value - self.start) / (self.end - self.start)
        return self.length * share

    def value(self, pixel: float) -> float:
        """The value at this distance from the start, in pixels."""
        share = pixel / self.length
        if self.log:
            return float(self.start * (self.end / self.start) ** share)
        return self.start + (self.end - self.start) * share

    def scale(self) -> Any:
        """The axis as a scale of Altair."""
        return load_altair().Scale(
            type="log" if self.log else "linear", domain=[self.start, self.end], nice=False, zero=False
        )

    def ticks(self, max_count: int = 7) -> Any:
        """Ticks at powers of ten, or at 1, 2, 5 if there are few decades, with readable labels."""
        alt = load_altair()
        if not self.log:
            return alt.Axis(tickCount=max_count)
        values = _round_values(self.start, self.end, max_count)
        labels = " : ".join(f"abs(datum.value / {value!r} - 1) < 1e-6 ? '{_tick_label(value)}'" for value in values)
        return alt.Axis(values=values, labelExpr=f"{labels} : ''")


def _round_values(start: float, end: float, max_count: int) -> list[float]:
    """At most ``max_count`` powers of ten between the ends; with multiples between them if they are few."""
    first, last = math.ceil(math.log10(start) - 1e-9), math.floor(math.log10(end) + 1e-9)
    decades = list(range(first, last + 1))
    if len(decades) >= 3:
        step = math.ceil(len(decades) / max_count)
        return [_power(exponent) for exponent in decades if exponent % step == 0]
    digits = (1, 2, 5) if math.log10(end / start) > 0.7 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    values = [digit * _power(exponent) for exponent in range(first - 1, last + 1) for digit in digits]
    return [value for value in values if start <= value <= end] or [start, end]


def _power(exponent: int) -> float:
    return float(f"1e{exponent}")


def _tick_label(value: float) -> str:
    exponent = round(math.log10(value))
    is_power = abs(value / _power(exponent) - 1) < 1e-9
    if _DECIMAL_RANGE[0] <= value < _DECIMAL_RANGE[1] or (
        not is_power and _DECIMAL_RANGE[0] <= value < _MAX_DECIMAL_MULTIPLE
    ):
        return f"{value:,.10g}"
    if is_power:
        return f"1e{exponent}"  # superscripts are missing in many fonts
    return f"{value:.3g}"
