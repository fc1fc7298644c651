"""The constants of Corollary 24 and of Theorem 11 (ii): tanh(epsilon / 2), and how often the error is exceeded."""

from __future__ import annotations

import math
from typing import Any

from shuffledp.figures import Curve, Panel
from shuffledp.lab.bounds.hyperbolic import crossing, least_m, surplus
from shuffledp.lab.bounds.theorem_11 import theorem_11_failure
from shuffledp.lab.studies.checks import Check, at_least, at_most
from shuffledp.lab.studies.study import Figure, Settings, curve_figure

_INTEGERS = (5, 4)
_LARGEST = 1.6
_STEPS = 160

Row = dict[str, Any]


def hyperbolic() -> tuple[list[Row], list[Check]]:
    """tanh(epsilon / 2) - epsilon / sqrt(m) for m = 5 and 4, with the exact crossing points."""
    rows = [
        {
            "epsilon": _LARGEST * step / _STEPS,
            **{f"surplus_{m}": surplus(_LARGEST * step / _STEPS, m) for m in _INTEGERS},
        }
        for step in range(_STEPS + 1)
    ]
    low, high = (float(end) for end in crossing(5, digits=15))
    inside = [row["surplus_5"] for row in rows if 0 < row["epsilon"] <= 1]
    everywhere = [row["surplus_4"] for row in rows if row["epsilon"] > 0]
    return rows, [
        at_least("tanh(epsilon/2) - epsilon/sqrt(5) on (0, 1], least", "160 steps to 1.6", min(inside), 0.0),
        at_most("tanh(epsilon/2) - epsilon/sqrt(4), largest", "160 steps to 1.6", max(everywhere), 0.0),
        at_least(
            "surplus for 5 just below its crossing point", f"epsilon {low - 1e-9:.12f}", surplus(low - 1e-9, 5), 0
        ),
        at_most(
            "surplus for 5 just above its crossing point", f"epsilon {high + 1e-9:.12f}", surplus(high + 1e-9, 5), 0
        ),
        at_most("the least m up to epsilon 1 is at most 5", "epsilon 1", least_m(1.0), 5.0),
        at_least("the least m up to epsilon 1 is above 4", "epsilon 1", least_m(1.0), 4.0),
    ]


def theorem_11(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The probability that the error of Theorem 11 (ii) is exceeded at the worst count, computed exactly."""
    rows: list[Row] = []
    checks: list[Check] = []
    epsilons = settings.pick((0.1, 1.0), (0.05, 0.1, 0.2, 0.5, 1.0))
    for epsilon in epsilons:
        for delta in settings.pick((1e-6,), (0.1, 1e-3, 1e-6, 1e-10)):
            users = math.ceil(100 / epsilon**2 * math.log(2 / delta))
            for factor in (1, 10):
                for beta in (0.5, 0.05, 1e-6, max(delta**25, 1e-200)):
                    failure = theorem_11_failure(factor * users, epsilon, delta, beta)
                    row = {
                        "epsilon": epsilon,
                        "delta": delta,
                        "users": factor * users,
                        "beta": beta,
                        "failure": failure,
                    }
                    rows.append(row)
                    where = f"epsilon {epsilon:g}, delta {delta:g}, {factor * users:,} users, beta {beta:.3g}"
                    claim = "Theorem 11 (ii): probability that the error is exceeded, worst count"
                    checks.append(at_most(claim, where, failure, beta, evidence="computed exactly"))
    return rows, checks


def hyperbolic_figure(rows: list[Row]) -> Figure:
    """Both differences in one figure, with the crossing point."""
    point = float(crossing(5, digits=15)[0])
    curves = [
        Curve(f"m = {m}", [(row["epsilon"], row[f"surplus_{m}"]) for row in rows], "computed", group=f"m = {m}")
        for m in _INTEGERS
    ]
    curves.append(Curve("zero", [(0.0, 0.0), (_LARGEST, 0.0)], "formula", labelled=False))
    curves.append(Curve(f"crossing at {point:.6f}", [(point, 0.0)], "mark", group="m = 5"))
    return curve_figure(
        f"tanh(epsilon/2) minus epsilon/sqrt(m): for m = 5 above zero up to {point:.4f}, for m = 4 below zero for "
        "every epsilon above 0.",
        panels_shown=[Panel("", curves)],
        title="Why the constant of Corollary 24 is 5",
        x_title="epsilon",
        y_title="tanh(epsilon/2) - epsilon/sqrt(m)",
        caption=[
            f"m = 5: zero at 0 and at {point:.9f}. m = 4: zero at 0 only. "
            f"On (0, 1] the least real m is {least_m(1.0):.6f}."
        ],
        name="tanh",
        x_log=False,
        y_log=False,
        size=(520, 320),
    )
