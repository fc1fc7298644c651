"""Charts as inline SVG: bars with their intervals, one number, a cumulative distribution, points with their frontier.

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
_LEAST_TICKS = 3
_LEAST_DECADES = 1.0
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
    truth: float | None = None
    """The true number, if it is known: of invented data."""


@dataclass(frozen=True)
class CurvePoint:
    """The share of users below a number, with the band around it."""

    x: float
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """A point of a chart of two positive quantities."""

    name: str
    x: float
    y: float
    kind: str = "usual"
    """``usual``, ``chosen``, or ``other`` for one that is only compared with."""


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    axis_title: str,
    notes: Sequence[str],
    description: str,
    plot_width: int = _PLOT_WIDTH,
) -> str:
    """One horizontal bar for each number, with its interval as a line; ``description`` is the alternative text.

    A known truth is a triangle.
    """
    label_width = _LABEL_WIDTH * plot_width // _PLOT_WIDTH
    names = distinct_labels([bar.name for bar in bars], label_width, _FONT_SIZE)
    names = [shortened(name, label_width, _FONT_SIZE) for name in names]
    left = max(text_width(name, _FONT_SIZE) for name in names) + _GAP
    axis = _Axis.over([0.0, *(end for bar in bars for end in (bar.value, bar.low, bar.high))], left, plot_width)
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
            *_truth(axis, bar, middle + _BAR_HEIGHT / 2),
            _text(axis.position(max(bar.high, 0.0)) + _GAP, middle + 4, bar.label),
        ]
    right = max(axis.position(max(bar.high, 0.0)) + _GAP + text_width(bar.label, _FONT_SIZE) for bar in bars)
    return _drawing(parts, title, notes, description, width=max(right, left + plot_width + 30), bottom=bottom)


def interval_chart(
    bar: Bar,
    bounds: tuple[float, float],
    *,
    title: str,
    axis_title: str,
    description: str,
    plot_width: int = _PLOT_WIDTH,
) -> str:
    """A point with its interval on the range in which the number can lie; a short interval is also drawn enlarged."""
    low, value, high = (min(max(end, bounds[0]), bounds[1]) for end in (bar.low, bar.value, bar.high))
    ranges = [(bounds, bar.label, axis_title)]
    if bounds[1] - bounds[0] > _ENLARGED_FROM * (high - low) > 0:
        around = (max(low - (high - low), bounds[0]), min(high + (high - low), bounds[1]))
        ranges.append((around, "", f"{axis_title}, enlarged"))
    parts: list[str] = []
    bottom = float(_TOP)
    for ends, label, subtitle in ranges:
        axis = _Axis(*ends, 30.0, plot_width) if ends[0] < ends[1] else _Axis.over(ends, 30.0, plot_width)
        middle, bottom = bottom + 36, bottom + 62
        parts += axis.draw(bottom, subtitle, top=middle - 20)
        parts += _interval(axis.position(low), axis.position(high), middle, 8)
        parts.append(f'<circle cx="{axis.position(value):.2f}" cy="{middle:.2f}" r="6" fill="var(--bar)"/>')
        parts += _truth(axis, bar, middle + 8) if bar.truth is not None and ends[0] <= bar.truth <= ends[1] else []
        parts.append(_text(axis.position(value), middle - 16, label, anchor="middle"))
        bottom += _BOTTOM
    overhang = text_width(bar.label, _FONT_SIZE) / 2
    return _drawing(parts, title, (), description, width=30 + plot_width + max(30, overhang), bottom=bottom - _BOTTOM)


def cumulative_chart(
    points: Sequence[CurvePoint],
    quantiles: Sequence[tuple[float, Bar]],
    *,
    title: str,
    axis_title: str,
    notes: Sequence[str],
    description: str,
    plot_width: int = _PLOT_WIDTH,
) -> str:
    """The shares of users below increasing numbers with their band, and a dot with its interval per quantile."""
    top, bottom = _TOP + 18.0, _TOP + 18.0 + _CURVE_HEIGHT
    axis = _Axis(points[0].x, points[-1].x, _CURVE_LEFT, plot_width)

    def height(share: float) -> float:
        return bottom - _CURVE_HEIGHT * min(max(share, 0.0), 1.0)

    def path(pairs: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{axis.position(x):.2f} {height(y):.2f}" for x, y in pairs)

    band = [(point.x, point.low) for point in points] + [(point.x, point.high) for point in reversed(points)]
    parts = axis.draw(bottom, axis_title, top=top)
    parts.append(_text(_CURVE_LEFT, top - 12, "share of users below", soft=True))
    for quarter in range(5):
        y = height(quarter / 4)
        parts.append(f'<path d="M{_CURVE_LEFT} {y:.2f}h{plot_width}" stroke="var(--line)"/>')
        parts.append(_text(_CURVE_LEFT - _GAP, y + 4, f"{25 * quarter}%", anchor="end", soft=True))
    parts.append(f'<path d="{path(band)}Z" fill="var(--bar)" fill-opacity="0.3"/>')
    line = path([(point.x, point.share) for point in points])
    parts.append(f'<path d="{line}" stroke="var(--bar)" stroke-width="2" fill="none"/>')
    for share, bar in quantiles:
        parts += _interval(axis.position(bar.low), axis.position(bar.high), height(share), 5)
        parts.append(f'<circle cx="{axis.position(bar.value):.2f}" cy="{height(share):.2f}" r="4" fill="var(--ink)"/>')
        parts += _truth(axis, bar, height(share) + 4)
    return _drawing(parts, title, notes, description, width=_CURVE_LEFT + plot_width + 40, bottom=bottom)


def frontier_chart(
    points: Sequence[Point],
    frontier: Sequence[tuple[float, float]],
    *,
    title: str,
    axis_titles: tuple[str, str],
    notes: Sequence[str],
    description: str,
    plot_width: int = _PLOT_WIDTH,
) -> str:
    """Points on logarithmic axes, and the frontier as a line; each point has a tooltip with its name and numbers."""
    top, bottom = _TOP + 18.0, _TOP + 18.0 + _CURVE_HEIGHT
    across = _LogAxis.over([point.x for point in points], _CURVE_LEFT, plot_width)
    up = _LogAxis.over([point.y for point in points], bottom, -_CURVE_HEIGHT)
    parts = [_text(0, top - 12, axis_titles[1], soft=True)]
    parts.append(_text(_CURVE_LEFT + plot_width / 2, bottom + 34, axis_titles[0], anchor="middle", soft=True))
    for tick in across.ticks:
        parts.append(f'<path d="M{across.position(tick):.2f} {top:.2f}V{bottom:.2f}" stroke="var(--line)"/>')
        parts.append(_text(across.position(tick), bottom + 16, _short(tick), anchor="middle", soft=True))
    for tick in up.ticks:
        parts.append(f'<path d="M{_CURVE_LEFT} {up.position(tick):.2f}h{plot_width}" stroke="var(--line)"/>')
        parts.append(_text(_CURVE_LEFT - _GAP, up.position(tick) + 4, _short(tick), anchor="end", soft=True))
    if len(frontier) > 1:
        path = "M" + "L".join(f"{across.position(x):.2f} {up.position(y):.2f}" for x, y in frontier)
        parts.append(f'<path d="{path}" stroke="var(--bar)" stroke-width="2" fill="none"/>')
    styles = {
        "usual": 'r="5" fill="var(--bar)"',
        "chosen": 'r="7" fill="var(--paper)" stroke="var(--bar)" stroke-width="4"',
        "other": 'r="4" fill="var(--paper)" stroke="var(--soft)" stroke-width="1.5"',
    }
    for point in sorted(points, key=lambda point: list(styles).index(point.kind), reverse=True):
        text = f"{point.name}: {axis_titles[1]} {point.y:,.4g}, {axis_titles[0]} {point.x:,.4g}"
        position = f'cx="{across.position(point.x):.2f}" cy="{up.position(point.y):.2f}"'
        parts.append(f"<circle {position} {styles[point.kind]}><title>{escape(text)}</title></circle>")
    for point in points:
        if point.kind == "chosen":
            parts.append(_beside(point.name, across.position(point.x), up.position(point.y), _CURVE_LEFT + plot_width))
    return _drawing(parts, title, notes, description, width=_CURVE_LEFT + plot_width + 24, bottom=bottom)


def line_chart(
    points: Sequence[tuple[float, float]],
    *,
    title: str,
    axis_titles: tuple[str, str],
    description: str,
    plot_width: int = _PLOT_WIDTH,
) -> str:
    """A line through points with its values, from 0 on both axes."""
    height = _CURVE_HEIGHT * 3 / 5
    top, bottom = _TOP + 18.0, _TOP + 18.0 + height
    across = _Axis.over([0.0, *(x for x, _ in points)], _CURVE_LEFT, plot_width)
    up = _Axis.over([0.0, *(y for _, y in points)], bottom, -height)
    parts = across.draw(bottom, axis_titles[0], top=top)
    parts.append(_text(0, top - 12, axis_titles[1], soft=True))
    for tick, label in up.ticks:
        parts.append(f'<path d="M{_CURVE_LEFT} {up.position(tick):.2f}h{plot_width}" stroke="var(--line)"/>')
        parts.append(_text(_CURVE_LEFT - _GAP, up.position(tick) + 4, label, anchor="end", soft=True))
    path = "M" + "L".join(f"{across.position(x):.2f} {up.position(y):.2f}" for x, y in points)
    parts.append(f'<path d="{path}" stroke="var(--bar)" stroke-width="2" fill="none"/>')
    for x, y in points:
        position = f'cx="{across.position(x):.2f}" cy="{up.position(y):.2f}"'
        parts.append(f'<circle {position} r="4" fill="var(--bar)"><title>{x:,g}: {y:,.4g}</title></circle>')
    return _drawing(parts, title, (), description, width=_CURVE_LEFT + plot_width + 24, bottom=bottom)


@dataclass(frozen=True)
class _Axis:
    """A horizontal scale, with its ends in pixels."""

    low: float
    high: float
    left: float
    width: float = _PLOT_WIDTH

    @classmethod
    def over(cls, numbers: Sequence[float], left: float, width: float = _PLOT_WIDTH) -> _Axis:
        """An axis that contains these numbers and ends at ticks."""
        low, high = min(numbers), max(numbers)
        step = _step(high - low or abs(high) or 1.0, width)
        last = max(math.ceil(high / step), math.floor(low / step) + 1)
        return cls(math.floor(low / step) * step, last * step, left, width)

    def position(self, number: float) -> float:
        """The position of a number, in pixels."""
        return self.left + self.width * (number - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The ticks with their labels."""
        step = _step(self.high - self.low, self.width)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(n * step, _number(n * step, step)) for n in range(first, last + 1)]

    def draw(self, bottom: float, title: str, *, top: float = _TOP) -> list[str]:
        """Grid lines, tick labels and the title below."""
        parts = []
        for tick, label in self.ticks:
            x = self.position(tick)
            parts.append(f'<path d="M{x:.2f} {top:.2f}V{bottom:.2f}" stroke="var(--line)"/>')
            parts.append(_text(x, bottom + 16, label, anchor="middle", soft=True))
        parts.append(_text(self.left + self.width / 2, bottom + 34, title, anchor="middle", soft=True))
        return parts


@dataclass(frozen=True)
class _LogAxis:
    """A logarithmic scale with its ends in pixels; numbers that are not positive are at its low end."""

    low: float
    high: float
    start: float
    length: float

    @classmethod
    def over(cls, numbers: Sequence[float], start: float, length: float) -> _LogAxis:
        """An axis that contains these numbers, with a margin."""
        positive = [math.log10(number) for number in numbers if number > 0] or [0.0]
        margin = max(0.1, 0.06 * (max(positive) - min(positive)))
        low, high = min(positive) - margin, max(positive) + margin
        if high - low < _LEAST_DECADES:
            middle = (low + high) / 2
            low, high = middle - _LEAST_DECADES / 2, middle + _LEAST_DECADES / 2
        return cls(low, high, start, length)

    def position(self, number: float) -> float:
        """The position of a number, in pixels."""
        share = (math.log10(number) - self.low) / (self.high - self.low) if number > 0 else 0.0
        return self.start + self.length * share

    @property
    def ticks(self) -> list[float]:
        """Powers of ten, every few if there are many; with few of them also 2 and 5 times these."""
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        step = -(-len(decades) // _TICKS)
        factors = (1.0, 2.0, 5.0) if self.high - self.low < 2 else (1.0,)
        ticks = [factor * 10.0**decade for decade in decades if decade % step == 0 for factor in factors]
        return [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]


def _step(span: float, width: float) -> float:
    """The distance of ticks: 1, 2 or 5 times a power of ten."""
    raw = span / max(_LEAST_TICKS, round(_TICKS * abs(width) / _PLOT_WIDTH))
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))


def _number(tick: float, step: float) -> str:
    digits = max(0, -math.floor(math.log10(step)))
    return f"{tick + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _short(tick: float) -> str:
    """A power of ten, or 2 or 5 times one."""
    return f"{tick:,.0f}" if 1 <= tick < 1e6 else f"{tick:g}"


def _beside(name: str, x: float, y: float, right: float) -> str:
    """A name beside a point, on the right or as far right as it fits."""
    return _text(max(0.0, min(x + 10, right - text_width(name, _FONT_SIZE))), y + 22, name)


def _truth(axis: _Axis, bar: Bar, y: float) -> list[str]:
    """A triangle below the true number, if it is known."""
    if bar.truth is None:
        return []
    x = axis.position(min(max(bar.truth, axis.low), axis.high))
    return [f'<path d="M{x:.2f} {y - 5:.2f}l5 8h-10z" fill="var(--truth)" stroke="var(--paper)"/>']


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
