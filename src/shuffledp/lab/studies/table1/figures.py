"""Figures of the study of Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies.study import Figure, curve_figure, span
from shuffledp.lab.studies.table1.rows import ROWS

Rows = Sequence[dict[str, Any]]

_PANELS = {
    "local [3]": ("bassily-smith", "unary"),
    "shuffled [8]": ("cheu",),
    "shuffled [13], sketch": ("count-min",),
    "shuffled [13], Hadamard": ("hadamard-blanket",),
    "shuffled, Theorem 12": ("balcer-cheu",),
    "central": ("stability", "discrete-laplace"),
}


def main_figure(rows: Rows, epsilon: float, delta: float) -> Figure:
    """All rows with tight noise, a panel for each number of users."""
    panels = [
        Panel(
            f"{users:,} users",
            [
                _measured(row.label, [measured for measured in rows if _is(measured, row.protocol, users, "tight")])
                for row in ROWS.values()
            ],
        )
        for users in sorted({row["users"] for row in rows})
    ]
    return curve_figure(
        "Largest error of a histogram against the number of categories, for each row of Table 1 with tight noise, from "
        f"the smallest to the largest domain: {_growths(rows, max(row['users'] for row in rows))}.",
        panels_shown=panels,
        title="Table 1, measured: the error of Theorem 12 does not grow with the domain",
        x_title="categories d",
        y_title="largest error (users)",
        caption=[
            f"epsilon = {epsilon:g}, delta = {delta:g}, tight noise; the 95 % quantile of the error.",
            "The same data in every domain. Bars: 95 % intervals.",
        ],
        size=(380, 400),
    )


def row_figure(rows: Rows, users: int) -> Figure:
    """A panel for each row of the table: measured next to its formula, with the paper's and with tight noise."""
    panels = []
    for title, protocols in _PANELS.items():
        drawn = []
        for protocol in protocols:
            for calibration in ROWS[protocol].calibrations:
                chosen = [row for row in rows if _is(row, protocol, users, calibration)]
                name = f"{calibration} noise" if len(protocols) == 1 else _short(protocol, calibration)
                group = calibration if len(protocols) == 1 or protocol == "stability" else protocol
                points = [(row["domain_size"], row["formula"]) for row in chosen]
                if chosen:
                    drawn.append(_measured(name, chosen, group))
                    drawn.append(Curve(name, points, "formula", group=group, labelled=False))
        panels.append(Panel(title, drawn))
    shares = [row["error"] / row["formula"] for row in rows if row["users"] == users]
    return curve_figure(
        f"A panel for each row of Table 1: measured largest errors at {span(shares, '.0%')} of the dashed formula of "
        "the row, with the paper's and with tight noise.",
        panels_shown=panels,
        title="Each row of Table 1 next to its formula",
        x_title="categories d",
        y_title="largest error (users)",
        caption=[f"{users:,} users. Solid: measured, the 95 % quantile of the error. Dashed: the formula."],
        name="rows",
        columns=3,
        size=(230, 250),
    )


def large_figure(rows: Rows, users: int) -> Figure:
    """Errors in very large domains, where the growing curves cross the flat one."""
    names = dict.fromkeys(row["protocol"] for row in rows)
    largest = max(row["domain_size"] for row in rows)
    flat = next(row["error"] for row in rows if row["protocol"] == "balcer-cheu" and row["domain_size"] == largest)
    others = {row["protocol"]: row["error"] / flat for row in rows if row["domain_size"] == largest}
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in others.items() if name != "balcer-cheu")
    return curve_figure(
        f"Largest error against the number of categories, up to {largest:.0e}. There, as a multiple of the error of "
        f"Theorem 12: {ratios}.",
        panels_shown=[Panel("", [_measured(name, [row for row in rows if row["protocol"] == name]) for name in names])],
        title="Very large domains: where a constant error is the smallest",
        x_title="categories d",
        y_title="largest error (users)",
        caption=[f"{users:,} users, tight noise; the 95 % quantile of the error."],
        name="large",
        y_log=True,
        size=(520, 340),
    )


def message_figure(rows: Rows) -> Figure:
    """Messages per user against the size of the domain."""
    panels = []
    for users in sorted({row["users"] for row in rows}):
        drawn = []
        for protocol in ("balcer-cheu", "count-min", "hadamard-blanket", "cheu"):
            chosen = [row for row in rows if _is(row, protocol, users, "tight")]
            points = [(row["domain_size"], row["messages_per_user"]) for row in chosen]
            drawn.append(Curve(ROWS[protocol].label, points, "computed"))
        sizes = sorted({row["domain_size"] for row in rows})
        drawn.append(
            Curve("cheu [8], all bits: d", [(size, float(size)) for size in sizes], "formula", group="cheu [8]")
        )
        drawn.append(Curve("local: 1", [(size, 1.0) for size in sizes], "computed"))
        panels.append(Panel(f"{users:,} users", drawn))
    largest = max(row["domain_size"] for row in rows if row["protocol"] == "balcer-cheu")
    sent = {
        row["protocol"]: row["messages_per_user"]
        for row in rows
        if row["calibration"] == "tight" and row["model"] == "shuffled" and row["domain_size"] <= largest
    }
    listed = ", ".join(f"{name} {messages:,.3g}" for name, messages in sent.items())
    return curve_figure(
        f"Messages per user against the number of categories. In the largest domain that was run: {listed}.",
        panels_shown=panels,
        title="What it costs: messages per user",
        x_title="categories d",
        y_title="messages per user",
        caption=["Tight noise. Theorem 12 asks each user for a message of nearly every category."],
        name="messages",
        size=(380, 300),
    )


def _growths(rows: Rows, users: int) -> str:
    parts = []
    for row in ROWS.values():
        errors = [measured["error"] for measured in rows if _is(measured, row.protocol, users, "tight")]
        parts.append(f"{row.protocol} from {errors[0]:,.0f} to {errors[-1]:,.0f}")
    return f"with {users:,} users {', '.join(parts)}"


def _measured(name: str, rows: Rows, group: str = "") -> Curve:
    return Curve(
        name,
        [(row["domain_size"], row["error"]) for row in rows],
        spread=[(row["error_low"], row["error_high"]) for row in rows],
        group=group,
    )


def _short(protocol: str, calibration: str) -> str:
    return protocol if len(ROWS[protocol].calibrations) == 1 else f"{protocol}, {calibration}"


def _is(row: dict[str, Any], protocol: str, users: int, calibration: str) -> bool:
    return bool((row["protocol"], row["users"], row["calibration"]) == (protocol, users, calibration))
