"""Dumbbell chart: two numbers per row, as a dot and a diamond with a line between them."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.figures.axes import Axis
from shuffledp.figures.rendering import LIGHT, Theme, load_altair, render

_WIDTH, _ROW_HEIGHT = 520, 24


def pairs(
    suffix: str,
    *,
    rows: Sequence[tuple[str, float, float, str]],
    names: tuple[str, str],
    title: str,
    x_title: str,
    caption: list[str],
    theme: Theme = LIGHT,
) -> bytes:
    """Draw rows of a name, a first and a second number, and a note at the right, on a logarithmic axis.

    ``names`` are the labels of the first numbers (dots) and of the second (diamonds), written above the first row.
    """
    alt = load_altair()

    across = Axis.over([number for _, first, second, _ in rows for number in (first, second)], _WIDTH)
    x = alt.X("x:Q", title=x_title, scale=across.scale(), axis=across.ticks(6))
    order = [name for name, _, _, _ in rows]
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, ticks=False, grid=False))
    spans = [{"name": name, "x": first, "x2": second} for name, first, second, _ in rows]
    connections = (
        alt.Chart(alt.Data(values=spans)).mark_rule(color=theme.soft_ink, strokeWidth=1.5).encode(x=x, x2="x2:Q", y=y)
    )
    layers = [connections]
    for series, (shape, label) in enumerate(zip(("circle", "diamond"), names, strict=True)):
        colour = theme.curves[series]
        dots = [{"name": row[0], "x": row[series + 1]} for row in rows]
        marks = alt.Chart(alt.Data(values=dots)).mark_point(color=colour, shape=shape, filled=True, size=75, opacity=1)
        first = alt.Chart(alt.Data(values=dots[:1])).mark_text(
            dy=-15, align=("right", "left")[series], color=colour, text=label, fontSize=11
        )
        layers += [marks.encode(x=x, y=y), first.encode(x=x, y=y)]
    notes = [{"name": name, "x": across.end, "note": note} for name, _, _, note in rows]
    text = alt.Chart(alt.Data(values=notes)).mark_text(align="left", dx=8, color=theme.ink, fontSize=11)
    layers.append(text.encode(x=x, y=y, text="note:N"))
    height = _ROW_HEIGHT * len(rows)
    return render(alt.layer(*layers), suffix, title, caption, width=_WIDTH, height=height, theme=theme)
