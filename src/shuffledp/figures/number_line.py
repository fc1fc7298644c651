"""Figure of one estimated number: a point with its interval, on an axis of its possible range."""

from __future__ import annotations

from typing import Any

from shuffledp.figures.rendering import LIGHT, load_altair, render

_HEIGHT = 90


def number_line(
    suffix: str,
    *,
    value: float,
    interval: tuple[float, float],
    bounds: tuple[float, float],
    label: str,
    title: str,
    value_title: str,
    caption: list[str],
) -> bytes:
    """Draw a point at ``value`` with its interval and ``label`` on an axis between the ``bounds``.

    If the interval is too short to be seen on that axis, a second axis shows it enlarged.
    """
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in interval)
    inside = min(max(value, bounds[0]), bounds[1])
    lines = [_line((inside, low, high), bounds, label, value_title)]
    if bounds[1] - bounds[0] > _ENLARGED_FROM * (high - low) > 0:
        around = (max(low - (high - low), bounds[0]), min(high + (high - low), bounds[1]))
        lines.append(_line((inside, low, high), around, "", f"{value_title}, enlarged"))
    if len(lines) == 1:
        return render(lines[0], suffix, title, caption, height=_HEIGHT)
    alt = load_altair()

    sized = [line.properties(width=520, height=_HEIGHT) for line in lines]
    return render(alt.vconcat(*sized, spacing=24), suffix, title, caption, width=None)


_ENLARGED_FROM = 25
"""An interval is enlarged if the range is more than this many times as long."""


def _line(numbers: tuple[float, float, float], ends: tuple[float, float], label: str, title: str) -> Any:
    alt = load_altair()

    value, low, high = numbers
    scale = alt.Scale(domain=list(ends), nice=False, zero=False)
    axis = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(format=",~f", tickCount=6))
    base = alt.Chart(alt.Data(values=[{"value": value, "low": low, "high": high, "label": label}]))
    middle = alt.value(_HEIGHT / 2)
    span = base.mark_errorbar(
        color=LIGHT.ink, ticks={"color": LIGHT.ink, "size": 16, "thickness": 2}, rule={"size": 2.5}
    ).encode(x=alt.X("low:Q", title=title, scale=scale), x2="high:Q", y=middle)
    point = base.mark_point(color=LIGHT.curves[0], filled=True, size=110, opacity=1).encode(x=axis, y=middle)
    name = base.mark_text(dy=-22, color=LIGHT.ink, fontSize=12).encode(x=axis, y=middle, text="label:N")
    return alt.layer(span, point, name)
