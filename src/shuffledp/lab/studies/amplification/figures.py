"""Figures of the study of amplification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies.amplification.few_users import EXAMPLE_USERS
from shuffledp.lab.studies.study import Figure, curve_figure, span

Rows = Sequence[dict[str, Any]]

_MAIN = {
    "erlingsson": "Erlingsson 2019",
    "privacy-blanket-closed": "blanket 2019",
    "clones-closed": "clones 2021, closed",
    "clones": "clones 2021",
    "stronger-clones": "stronger clones*",
    "3-rr exact": "exact, 3 answers",
}
_LOCAL, _SHUFFLED = "local epsilon", "epsilon after shuffling"


def figures(
    rows: Rows,
    audited: Rows,
    examples: Rows,
    *,
    user_counts: Sequence[int],
    local_epsilons: Sequence[float],
    delta: float,
) -> list[Figure]:
    """All figures of the study, the main one first."""
    return [
        _main(rows, user_counts, delta),
        _by_users(rows, audited, local_epsilons, delta),
        _forms(rows, user_counts[-1], delta),
        _few_users(examples),
    ]


def _main(rows: Rows, user_counts: Sequence[int], delta: float) -> Figure:
    panels = []
    for users in user_counts:
        chosen = _of(rows, users)
        diagonal = [(row["local_epsilon"], row["local_epsilon"]) for row in chosen]
        lines = [_curve(label, chosen, name) for name, label in _MAIN.items()]
        panels.append(Panel(f"{users:,} users", [Curve("no shuffling", diagonal, "formula"), *lines]))
    drawn = [row for users in user_counts for row in _of(rows, users)]
    shares = [row["stronger-clones"] / row["local_epsilon"] for row in drawn if row.get("stronger-clones") is not None]
    ratios = [
        row["stronger-clones"] / row["3-rr exact"]
        for row in drawn
        if row.get("stronger-clones") is not None and row.get("3-rr exact")
    ]
    return curve_figure(
        f"Epsilon after shuffling against local epsilon, for {len(user_counts)} numbers of users. Stronger clones "
        f"lies at {span(shares, '.2g')} of the diagonal, and at {span(ratios, '.2f')} times the exact value of "
        "randomized response with three answers.",
        panels_shown=panels,
        title="Epsilon after shuffling",
        x_title=_LOCAL,
        y_title=_SHUFFLED,
        caption=[f"delta = {delta:g}. Lower is better. * for randomized response; the others for all."],
    )


def _by_users(rows: Rows, audited: Rows, local_epsilons: Sequence[float], delta: float) -> Figure:
    panels = []
    names = {name: label for name, label in _MAIN.items() if name != "3-rr exact"} | {"2-rr exact": "exact, 2 answers"}
    for local in local_epsilons:
        chosen = sorted((row for row in rows if row["local_epsilon"] == local), key=lambda row: row["users"])
        flat = [(row["users"], local) for row in chosen]
        lines = [Curve("no shuffling", flat, "formula")]
        lines += [_curve(label, chosen, name, x="users") for name, label in names.items()]
        shown = [row for row in audited if row["local_epsilon"] == local]
        if shown:
            lines.append(Curve("lower bound by audit", [(row["users"], row["shown"]) for row in shown]))
        panels.append(Panel(f"local epsilon = {local:g}", lines))
    first, last = (_stronger(rows, users, local_epsilons[0]) for users in _ends(rows, local_epsilons[0]))
    return curve_figure(
        f"Epsilon after shuffling against the number of users. At local epsilon {local_epsilons[0]:g}, stronger clones "
        f"falls from {first:.3g} to {last:.3g}.",
        panels_shown=panels,
        title="Epsilon after shuffling decreases with the number of users",
        x_title="users",
        y_title=_SHUFFLED,
        caption=[f"delta = {delta:g}. * for randomized response. Dots: lower bounds from audited rounds."],
        name="users",
    )


def _ends(rows: Rows, local: float) -> tuple[int, int]:
    """The fewest and the most users with a value of stronger clones."""
    users = [row["users"] for row in rows if row["local_epsilon"] == local and row.get("stronger-clones") is not None]
    return min(users), max(users)


def _stronger(rows: Rows, users: int, local: float) -> float:
    return next(float(row["stronger-clones"]) for row in rows if (row["users"], row["local_epsilon"]) == (users, local))


def _forms(rows: Rows, users: int, delta: float) -> Figure:
    chosen = _of(rows, users)

    def line(label: str, name: str, group: str, kind: str = "computed") -> Curve:
        return _curve(label, chosen, name, kind=kind, group=group)

    general = [
        line("Erlingsson, simple", "erlingsson-simple", "Erlingsson", "formula"),
        line("Erlingsson", "erlingsson", "Erlingsson"),
        line("blanket, closed", "privacy-blanket-closed", "blanket", "formula"),
        line("blanket, Hoeffding", "privacy-blanket", "blanket"),
        line("blanket, Bennett", "privacy-blanket-bennett", "Bennett"),
        line("clones, closed", "clones-closed", "clones", "formula"),
        line("clones", "clones", "clones"),
    ]
    response = [
        line("stronger clones, closed", "stronger-clones-closed", "stronger", "formula"),
        line("stronger clones", "stronger-clones", "stronger"),
    ]
    for count in (3, 10, 100):
        counted = [row for row in chosen if f"{count}-rr bound" in row]
        if counted:
            label = f"{count} answers"
            exact = [(row["local_epsilon"], row[f"{count}-rr exact"]) for row in counted]
            response += [
                _curve(label, counted, f"{count}-rr bound", group=label),
                Curve(f"{label}, exact", exact, group=label, labelled=False),
            ]
    gaps = [
        row[f"{count}-rr bound"] / row[f"{count}-rr exact"]
        for count in (3, 10, 100)
        for row in chosen
        if row.get(f"{count}-rr bound") and row.get(f"{count}-rr exact")
    ]
    return curve_figure(
        "All forms of the bounds, closed ones dashed; and randomized response on a known number of answers, whose "
        f"bounds are {span(gaps, '.3f')} times the exact values.",
        panels_shown=[
            Panel(f"every randomizer, {users:,} users", general),
            Panel(f"randomized response, {users:,} users", response),
        ],
        title="Closed forms, numerical bounds, and bounds for a known randomizer",
        x_title=_LOCAL,
        y_title=_SHUFFLED,
        caption=[
            f"delta = {delta:g}. Dashed: closed forms, where their conditions are met. "
            "Dots: exact, if all others hold a third value."
        ],
        name="forms",
    )


def _few_users(examples: Rows) -> Figure:
    inside, outside = ([row for row in examples if row["example"] == example] for example in ("inside", "outside"))

    def line(label: str, chosen: Rows, name: str, kind: str = "computed") -> Curve:
        return _curve(label, chosen, name, x="epsilon", kind=kind)

    return curve_figure(
        "Delta against epsilon for few users: bounds for a channel of the class that they are proven for, and the form "
        "of 2023 for a channel outside it, next to the exact curves.",
        panels_shown=[
            Panel(
                f"randomized response, 3 answers, {EXAMPLE_USERS} users",
                [
                    line("exact", inside, "exact"),
                    line("clones 2021", inside, "clones"),
                    line("stronger clones", inside, "stronger-clones"),
                    line("blanket, summed", inside, "blanket of the channel"),
                ],
            ),
            Panel(
                "another channel, outside the class, 2 users",
                [
                    line("exact", outside, "exact"),
                    line("clones 2021", outside, "clones"),
                    line("clones, distance", outside, "clones of the channel"),
                    line("2023: not valid here", outside, "2023, from the distance", "formula"),
                ],
            ),
        ],
        title="Few users: bounds compared with full enumeration",
        x_title="epsilon",
        y_title="delta",
        x_log=False,
        caption=[
            "Every valid bound lies on or above the exact curve. "
            "Dashed: a published form, outside the class it is proved for."
        ],
        name="few-users",
    )


def _of(rows: Rows, users: int) -> Rows:
    return sorted((row for row in rows if row["users"] == users), key=lambda row: row["local_epsilon"])


def _curve(
    label: str, rows: Rows, name: str, *, x: str = "local_epsilon", kind: str = "computed", group: str = ""
) -> Curve:
    points = [(float(row[x]), float(row[name])) for row in rows if row.get(name) is not None]
    return Curve(label, points, kind, group=group, labelled=len(points) > 1)  # a single point makes no line
