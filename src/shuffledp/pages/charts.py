"""Charts of estimates as inline SVG: bars with their intervals, one number, and a cumulative distribution.

Colours are CSS variables (``--ink``, ``--soft``, ``--line``, ``--bar``), so that one drawing serves light and dark
pages. The same numbers always give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from shuffledp.figures.text_extent import distinct_labels, shortened, text_width

_FONT_SIZE, _TITLE_SIZE = 12, 15
_LABEL_WIDTH, _PLOT_WIDTH = 260, 520
_ROW_HEIGHT, _BAR_HEIGHT = 26, 18
_TOP, _BOTTOM, _GAP = 34, 46, 8
_TICKS = 6
_CURVE_LEFT, _CURVE_HEIGHT = 48, 260
_ENLARGED_FROM = 25
"""An interval shorter than this part of the range is drawn a second time, enlarged."""


@dataclass(frozen=True)
class Bar:
    """One estimated number with its interval."""

    name: str
    value: float
    low: float
    high: float
    label: str
    """The number as it is written beside the bar."""


@dataclass(frozen=True)
class CurvePoint:
    """The share of users below a number, with the band around it."""

    x: float
    share: float
    low: float
    high: float


def bar_chart(bars: Sequence[Bar], *, title: str, axis_title: str, notes: Sequence[str], description: str) -> str:
    """One horizontal bar for each number, with its interval as a line; ``description`` is the alternative text."""
    names = distinct_labels([bar.name for bar in bars], _LABEL_WIDTH, _FONT_SIZE)
    names = [shortened(name, _LABEL_WIDTH, _FONT_SIZE) for name in names]
    left = max(text_width(name, _FONT_SIZE) for name in names) + _GAP
    axis = _Axis.over([0.0, *(end for bar in bars for end in (bar.value, bar.low, bar.high))], left)
    bottom = _TOP + _ROW_HEIGHT * len(bars)
    parts = axis.draw(bottom, axis_title)
    for row, (bar, name) in enumerate(zip(bars, names, strict=True)):
        middle = _TOP + _ROW_HEIGHT * (row + 0.5)
        start, end = sorted((axis.position(0.0), axis.position(bar.value)))
        parts += [
            _text(left - _GAP, middle + 4, name, anchor="end"),
            f'<rect x="{start:.2f}" y="{middle - _BAR_HEIGHT / 2:.2f}" width="{end - start:.2f}" '
            f'height="{_BAR_HEIGHT}" fill="var(--bar)"/>',
            *_interval(axis.position(bar.low), axis.position(bar.high), middle, 6),
            _text(axis.position(max(bar.high, 0.0)) + _GAP, middle + 4, bar.label),
        ]
    right = max(axis.position(max(bar.high, 0.0)) + _GAP + text_width(bar.label, _FONT_SIZE) for bar in bars)
    return _drawing(parts, title, notes, description, width=max(right, left + _PLOT_WIDTH + 30), bottom=bottom)


def interval_chart(bar: Bar, bounds: tuple[float, float], *, title: str, axis_title: str, description: str) -> str:
    """A point with its interval on the range in which the number can lie; a short interval is also drawn enlarged."""
    low, value, high = (min(max(end, bounds[0]), bounds[1]) for end in (bar.low, bar.value, bar.high))
    ranges = [(bounds, bar.label, axis_title)]
    if bounds[1] - bounds[0] > _ENLARGED_FROM * (high - low) > 0:
        around = (max(low - (high - low), bounds[0]), min(high + (high - low), bounds[1]))
        ranges.append((around, "", f"{axis_title}, enlarged"))
    parts: list[str] = []
    bottom = float(_TOP)
    for ends, label, subtitle in ranges:
        axis = _Axis(*ends, 30.0) if ends[0] < ends[1] else _Axis.over(ends, 30.0)
        middle, bottom = bottom + 36, bottom + 62
        parts += axis.draw(bottom, subtitle, top=middle - 20)
        parts += _interval(axis.position(low), axis.position(high), middle, 8)
        parts.append(f'<circle cx="{axis.position(value):.2f}" cy="{middle:.2f}" r="6" fill="var(--bar)"/>')
        parts.append(_text(axis.position(value), middle - 16, label, anchor="middle"))
        bottom += _BOTTOM
    overhang = text_width(bar.label, _FONT_SIZE) / 2
    return _drawing(parts, title, (), description, width=30 + _PLOT_WIDTH + max(30, overhang), bottom=bottom - _BOTTOM)


def cumulative_chart(
    points: Sequence[CurvePoint],
    quantiles: Sequence[tuple[float, Bar]],
    *,
    title: str,
    axis_title: str,
    notes: Sequence[str],
    description: str,
) -> str:
    """The shares of users below increasing numbers with their band, and a dot with its interval per quantile."""
    top, bottom = _TOP + 18.0, _TOP + 18.0 + _CURVE_HEIGHT
    axis = _Axis(points[0].x, points[-1].x, _CURVE_LEFT)

    def height(share: float) -> float:
        return bottom - _CURVE_HEIGHT * min(max(share, 0.0), 1.0)

    def path(pairs: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{axis.position(x):.2f} {height(y):.2f}" for x, y in pairs)

    band = [(point.x, point.low) for point in points] + [(point.x, point.high) for point in reversed(points)]
    parts = axis.draw(bottom, axis_title, top=top)
    parts.append(_text(_CURVE_LEFT, top - 12, "share of users below", soft=True))
    for quarter in range(5):
        y = height(quarter / 4)
        parts.append(f'<path d="M{_CURVE_LEFT} {y:.2f}h{_PLOT_WIDTH}" stroke="var(--line)"/>')
        parts.append(_text(_CURVE_LEFT - _GAP, y + 4, f"{25 * quarter}%", anchor="end", soft=True))
    parts.append(f'<path d="{path(band)}Z" fill="var(--bar)" fill-opacity="0.3"/>')
    line = path([(point.x, point.share) for point in points])
    parts.append(f'<path d="{line}" stroke="var(--bar)" stroke-width="2" fill="none"/>')
    for share, bar in quantiles:
        parts += _interval(axis.position(bar.low), axis.position(bar.high), height(share), 5)
        parts.append(f'<circle cx="{axis.position(bar.value):.2f}" cy="{height(share):.2f}" r="4" fill="var(--ink)"/>')
    return _drawing(parts, title, notes, description, width=_CURVE_LEFT + _PLOT_WIDTH + 40, bottom=bottom)


@dataclass(frozen=True)
class _Axis:
    """A horizontal scale, with its ends in pixels."""

    low: float
    high: float
    left: float

    @classmethod
    def over(cls, numbers: Sequence[float], left: float) -> _Axis:
        """An axis that contains these numbers and ends at ticks."""
        low, high = min(numbers), max(numbers)
        step = _step(high - low or abs(high) or 1.0)
        return cls(math.floor(low / step) * step, max(math.ceil(high / step), math.floor(low / step) + 1) * step, left)

    def position(self, number: float) -> float:
        """The horizontal position of a number, in pixels."""
        return self.left + _PLOT_WIDTH * (number - self.low) / (self.high - self.low)

    def draw(self, bottom: float, title: str, *, top: float = _TOP) -> list[str]:
        """Grid lines, tick labels and the title below."""
        step = _step(self.high - self.low)
        ticks = [n * step for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        parts = []
        for tick in ticks:
            x = self.position(tick)
            parts.append(f'<path d="M{x:.2f} {top:.2f}V{bottom:.2f}" stroke="var(--line)"/>')
            parts.append(_text(x, bottom + 16, _number(tick, step), anchor="middle", soft=True))
        parts.append(_text(self.left + _PLOT_WIDTH / 2, bottom + 34, title, anchor="middle", soft=True))
        return parts


def _step(span: float) -> float:
    """The distance of ticks: 1, 2 or 5 times a power of ten."""
    raw = span / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))


def _number(tick: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step)))
    return f"{tick + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _interval(low: float, high: float, middle: float, half: float) -> list[str]:
    path = f"M{low:.2f} {middle:.2f}H{high:.2f}" + "".join(
        f"M{end:.2f} {middle - half:.2f}V{middle + half:.2f}" for end in (low, high)
    )
    return [f'<path d="{path}" stroke="var(--ink)" stroke-width="2" fill="none"/>']


def _text(x: float, y: float, text: str, *, anchor: str = "start", soft: bool = False, size: int = _FONT_SIZE) -> str:
    colour = "var(--soft)" if soft else "var(--ink)"
    position = f'x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"'
    return f'<text {position} font-size="{size}" fill="{colour}">{escape(text)}</text>'


def _drawing(
    parts: Sequence[str], title: str, notes: Sequence[str], description: str, *, width: float, bottom: float
) -> str:
    height = bottom + _BOTTOM + 18 * len(notes)
    below = [_text(0, bottom + _BOTTOM + 18 * n + 12, note, soft=True) for n, note in enumerate(notes)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(description)}" '
            'font-family="system-ui, sans-serif" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
            _text(0, 16, title, size=_TITLE_SIZE),
            *parts,
            *below,
            "</svg>",
        ]
    )
