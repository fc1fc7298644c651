"""Figures of estimates by group: a row of points per group, or a panel of bars per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shuffledp.figures.rendering import LIGHT, Theme, load_altair, render
from shuffledp.figures.text_extent import distinct_labels

_WIDTH, _ROW_HEIGHT, _NUMBER_HEIGHT = 520, 30, 14
_MAX_ROWS, _MAX_PANELS, _MAX_BARS = 40, 12, 12
_PANEL_WIDTH, _BAR_HEIGHT, _PANELS_PER_LINE = 210, 20, 3
_LABEL_WIDTH, _LABEL_SIZE, _SHORT_LABEL_WIDTH = 260, 12, 120  # pixels
_MAX_LISTED = 8

Numbers = Sequence[tuple[str, float, float, float]]
"""Labels with their values and the ends of the intervals."""


def group_rows(
    suffix: str,
    *,
    rows: Mapping[str, Numbers],
    sizes: Mapping[str, int],
    too_few: Mapping[str, int],
    title: str,
    value_title: str,
    caption: list[str],
    theme: Theme = LIGHT,
) -> bytes:
    """One row per group: its numbers as points with their intervals. Beyond forty groups the largest are drawn."""
    alt = load_altair()
    names = _largest(sizes, _MAX_ROWS)
    caption = _with_omitted(caption, rows, names, too_few)
    shown = dict(zip(names, distinct_labels(names, _LABEL_WIDTH, _LABEL_SIZE), strict=True))
    several = any(len(rows[name]) > 1 for name in names)
    data = [
        {"group": shown[name], "label": label, "value": value, "low": low, "high": high, "series": position}
        for name in names
        for position, (label, value, low, high) in enumerate(rows[name])
    ]
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y(
            "group:N",
            sort=[shown[name] for name in names],
            title=None,
            axis=alt.Axis(labelLimit=_LABEL_WIDTH, ticks=False, grid=True),
        )
    )
    scale, axis = alt.Scale(zero=False, nice=True, padding=12), alt.Axis(format=",~f", tickCount=6)

    def x(field: str) -> Any:
        return alt.X(f"{field}:Q", title=value_title, scale=scale, axis=axis)

    colour = alt.Color(
        "label:N",
        sort=None,
        scale=alt.Scale(range=list(theme.curves)),
        legend=alt.Legend(title="quantile") if several else None,
    )
    if several:
        order = [label for label, *_ in max(rows.values(), key=len)]
        base = base.encode(yOffset=alt.YOffset("label:N", sort=order))
    spans = base.mark_rule(strokeWidth=2.5).encode(x=x("low"), x2="high:Q")
    ends = [
        base.mark_tick(orient="vertical", thickness=2, size=11, opacity=1).encode(x=x(end)) for end in ("low", "high")
    ]
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=x("value"))
    layers = [spans, *ends, points]
    if several:
        layers = [layer.encode(color=colour) for layer in layers]
    else:
        styles = [theme.ink, theme.ink, theme.ink, theme.curves[0]]
        layers = [layer.encode(color=alt.value(style)) for layer, style in zip(layers, styles, strict=True)]
        layers.append(base.mark_text(dy=-11, fontSize=11, color=theme.ink).encode(x=x("value"), text="label:N"))
    per_row = max(len(rows[name]) for name in names) if names else 1
    height = max(60, max(_ROW_HEIGHT, _NUMBER_HEIGHT * per_row) * len(names))
    return render(alt.layer(*layers), suffix, title, caption, width=_WIDTH, height=height, theme=theme)


def group_panels(
    suffix: str,
    *,
    panels: Mapping[str, Numbers],
    sizes: Mapping[str, int],
    too_few: Mapping[str, int],
    title: str,
    value_title: str,
    shares: bool,
    caption: list[str],
    theme: Theme = LIGHT,
) -> bytes:
    """One panel per group: a bar per category, of users or, with ``shares``, of shares of the group.

    Beyond twelve groups the largest are drawn, and beyond twelve categories those with the largest totals.
    """
    alt = load_altair()
    names = _largest(sizes, _MAX_PANELS)
    caption = _with_omitted(caption, panels, names, too_few)
    totals: dict[str, float] = {}
    for name in names:
        for category, value, _, _ in panels[name]:
            totals[category] = totals.get(category, 0.0) + value
    order = list(totals)
    if len(order) > _MAX_BARS:
        chosen = set(sorted(order, key=lambda category: -totals[category])[:_MAX_BARS])
        caption = [*caption, f"The {_MAX_BARS} largest of {len(order):,} categories."]
        order = [category for category in order if category in chosen]
    labels = dict(zip(order, distinct_labels(order, _SHORT_LABEL_WIDTH, _LABEL_SIZE), strict=True))
    charts, largest = [], 0.0
    for name in names:
        whole = sizes[name] if shares else 1
        data: list[dict[str, Any]] = [
            {"category": labels[category], "value": value / whole, "low": low / whole, "high": high / whole}
            for category, value, low, high in panels[name]
            if category in labels
        ]
        largest = max([largest, *(row["high"] for row in data)])
        charts.append((name, data))
    scale = alt.Scale(domain=[0, largest or 1.0], nice=True)
    axis = alt.Axis(format="%" if shares else ",.0f", tickCount=4)
    drawn = []
    titles = distinct_labels(names, _PANEL_WIDTH - 60, _LABEL_SIZE)
    for position, ((name, data), label) in enumerate(zip(charts, titles, strict=True)):
        first = position % _PANELS_PER_LINE == 0
        base = alt.Chart(alt.Data(values=data)).encode(
            y=alt.Y(
                "category:N",
                sort=list(labels.values()),
                title=None,
                axis=alt.Axis(labelLimit=_SHORT_LABEL_WIDTH, ticks=False, labels=first),
            )
        )
        bars = base.mark_bar(color=theme.curves[0], height={"band": 0.7}).encode(
            x=alt.X("value:Q", title=value_title, scale=scale, axis=axis)
        )
        lines = base.mark_rule(color=theme.ink, strokeWidth=2).encode(
            x=alt.X("low:Q", title=value_title, scale=scale, axis=axis), x2="high:Q"
        )
        drawn.append(
            alt.layer(bars, lines).properties(
                width=_PANEL_WIDTH,
                height=max(40, _BAR_HEIGHT * len(order)),
                title=alt.TitleParams(f"{label} ({sizes[name]:,})", fontSize=12, color=theme.ink, anchor="start"),
            )
        )
    lines_of_panels = [
        alt.hconcat(*drawn[start : start + _PANELS_PER_LINE], spacing=24)
        for start in range(0, len(drawn), _PANELS_PER_LINE)
    ]
    return render(
        alt.vconcat(*lines_of_panels, spacing=20), suffix, title, caption, width=None, height=None, theme=theme
    )


def _largest(sizes: Mapping[str, int], limit: int) -> list[str]:
    """The groups to draw, in their order: all, or those with the most users."""
    chosen = set(sorted(sizes, key=lambda name: -sizes[name])[:limit])
    return [name for name in sizes if name in chosen]


def _with_omitted(
    caption: list[str], groups: Mapping[str, Any], drawn: Sequence[str], too_few: Mapping[str, int]
) -> list[str]:
    """The caption with the groups that are not drawn."""
    more = [f"The {len(drawn):,} largest of {len(groups):,} groups."] if len(drawn) < len(groups) else []
    if too_few:
        listed = ", ".join(f"{name[:40]} ({users:,})" for name, users in list(too_few.items())[:_MAX_LISTED])
        others = f" and {len(too_few) - _MAX_LISTED:,} more" if len(too_few) > _MAX_LISTED else ""
        more.append(f"Too few users: {listed}{others}.")
    return [*caption, *more]
