"""Bar chart of estimated numbers of users with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shuffledp.display import show_counts
from shuffledp.figures.rendering import LIGHT, load_altair, render
from shuffledp.figures.text_extent import distinct_labels

_MAX_BARS = 60
_LABEL_WIDTH, _LABEL_SIZE = 260, 12  # pixels


def bars(
    suffix: str,
    *,
    names: Sequence[str],
    values: NDArray[np.float64],
    errors: NDArray[np.float64],
    intervals: NDArray[np.float64],
    users: int,
    title: str,
    value_title: str,
    caption: list[str],
    truth: NDArray[np.float64] | None = None,
    withheld_below: int | None = None,
) -> bytes:
    """One horizontal bar per name with its interval; with ``truth``, a mark where the true value lies.

    Values are drawn clipped to their intervals; a count that was withheld has an interval but no bar.
    Beyond sixty names only the largest are drawn, and the caption says so.
    """
    alt = load_altair()

    drawn = np.arange(len(names))
    if len(names) > _MAX_BARS:
        drawn = np.argsort(-values, kind="stable")[:_MAX_BARS]
        caption = [*caption, f"The {_MAX_BARS} largest of {len(names):,} categories."]
    chosen = values[drawn].tolist(), errors[drawn].tolist(), intervals[drawn].tolist()
    numbers = show_counts(*chosen, users=users, withheld_below=withheld_below)
    labels_of = distinct_labels([names[i] for i in drawn.tolist()], _LABEL_WIDTH, _LABEL_SIZE)
    rows = [
        {
            "name": label,
            "value": number.value,
            "low": float(intervals[i, 0]),
            "high": float(intervals[i, 1]),
            "end": max(float(intervals[i, 1]), 0.0),
            "label": number.text,
        }
        | ({} if truth is None else {"truth": float(truth[i])})
        for i, label, number in zip(drawn.tolist(), labels_of, numbers, strict=True)
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y(
            "name:N",
            sort=[row["name"] for row in rows],
            title=None,
            axis=alt.Axis(labelLimit=_LABEL_WIDTH, ticks=False),
        )
    )
    columns = base.mark_bar(color=LIGHT.curves[0], height={"band": 0.72}).encode(
        x=alt.X("value:Q", title=value_title, axis=alt.Axis(format=",.0f", tickCount=6))
    )
    lines = base.mark_errorbar(
        color=LIGHT.ink, ticks={"color": LIGHT.ink, "size": 13, "thickness": 1.5}, rule={"size": 2}
    ).encode(x=alt.X("low:Q", title=value_title), x2="high:Q")
    labels = base.mark_text(align="left", dx=6, color=LIGHT.ink).encode(x=alt.X("end:Q"), text="label:N")
    layers = [columns, lines, labels]
    if truth is not None:
        layers.append(
            base.mark_point(color=LIGHT.curves[1], shape="triangle-up", filled=True, size=45, yOffset=11).encode(
                x=alt.X("truth:Q")
            )
        )
    return render(alt.layer(*layers), suffix, title, caption, height=max(120, 26 * len(rows)))
