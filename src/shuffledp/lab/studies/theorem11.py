"""The study of Theorem 11 of Balcer and Cheu (2020): a private count from two messages per user."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies.checks import Check, at_most, quantile, rarely
from shuffledp.lab.studies.study import Outcome, Settings, Study, Table, curve_figure
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount, theorem_11_alpha

_BETA = 0.05
_USERS = 1_000_000
_DELTAS = (1e-6, 1e-10)


def _measure(settings: Settings) -> Outcome:
    epsilons = settings.pick((0.1, 0.3, 1.0), (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0))
    rounds = settings.pick(100, 2000)
    cases = [(delta, epsilon) for delta in _DELTAS for epsilon in epsilons]
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    for delta, epsilon in settings.steps(cases):
        for calibration in ("paper", "tight"):
            protocol = BalcerCheuCount.calibrate(users=_USERS, epsilon=epsilon, delta=delta, calibration=calibration)
            row, case_checks = _case(protocol, epsilon, delta, rounds, settings)
            rows.append(row | {"calibration": calibration})
            checks += case_checks
    return Outcome(
        measured=_words(rows, rounds),
        tables={"": Table.of(rows)},
        figures=[_figure(rows)],
        checks=checks,
    )


def _case(
    protocol: BalcerCheuCount, epsilon: float, delta: float, rounds: int, settings: Settings
) -> tuple[dict[str, Any], list[Check]]:
    where = f"epsilon {epsilon:g}, delta {delta:g}, {_USERS:,} users, {protocol.target.calibration} noise"
    bound = _USERS * theorem_11_alpha(_USERS, epsilon, delta, _BETA)
    mean = _USERS * float(protocol.absence)
    true_delta = protocol.guarantee.delta_at(epsilon)
    # counts that the threshold hides always to in one round of five, and one that it never hides; the error quantile of
    # a count that is hidden in one round of twenty would jump between two values
    counts = [1, round(mean / 2), round(mean), round(mean + 0.84 * mean**0.5), _USERS // 2]
    errors = np.array([[_error(protocol, count, settings) for count in counts] for _ in range(rounds)])
    worst = int(np.argmax([quantile(column, 1 - _BETA)[0] for column in errors.T]))
    radius, low, high = quantile(errors[:, worst], 1 - _BETA)
    zeros = [_error(protocol, 0, settings) for _ in range(rounds)]
    max_messages = max(len(protocol.randomize(index % 2, source=settings.source)) for index in range(1000))
    row = {
        "delta": delta,
        "epsilon": epsilon,
        "noise_mean": mean,
        "true_delta": true_delta,
        "true_epsilon": protocol.guarantee.epsilon_at(delta),
        "worst_count": counts[worst],
        "error": radius,
        "error_low": low,
        "error_high": high,
        "bound": bound,
        "largest_error_of_zero": max(zeros),
        "most_messages": max_messages,
    }
    checks = [
        at_most("Theorem 11 (i), privacy", where, true_delta, delta, evidence="computed exactly"),
        *(
            rarely(
                f"Theorem 11 (ii), error of a count of {count:,}",
                where,
                failures=_nonzero(errors[:, column] > bound),
                rounds=rounds,
                at_most=_BETA,
            )
            for column, count in enumerate(counts)
        ),
        rarely(
            "Theorem 11 (iii), zero stays zero",
            where,
            failures=int(np.count_nonzero(zeros)),
            rounds=rounds,
            at_most=0.0,
        ),
        at_most("Theorem 11 (iv), messages", where, max_messages, 2, evidence="the largest report of 1,000 users"),
    ]
    return row, checks


def _nonzero(values: ArrayLike) -> int:
    return int(np.count_nonzero(values))


def _error(protocol: BalcerCheuCount, count: int, settings: Settings) -> float:
    tally = protocol.sample_tally(np.array([_USERS - count, count]), source=settings.source)
    return abs(protocol.estimate(tally).value - count)


def _words(rows: list[dict[str, Any]], rounds: int) -> list[str]:
    paper = [row for row in rows if row["calibration"] == "paper"]
    tight = [row for row in rows if row["calibration"] == "tight"]
    saved = [first["error"] / second["error"] for first, second in zip(paper, tight, strict=True)]
    looser = [row["bound"] / row["error"] for row in tight]
    return [
        f"{rounds:,} rounds of {_USERS:,} users for each of five true counts, from one that the threshold hides to one "
        "that it never hides, at each epsilon and delta; with the noise of the theorem (paper) and with the least "
        "noise that meets the same target by exact accounting (tight). The error shown is that of the worst count.",
        "With the theorem's noise the error is nearly as large as the theorem says. With tight noise it is "
        f"{min(saved):.0f} to {max(saved):.0f} times smaller, so that the bound is {min(looser):.0f} to "
        f"{max(looser):.0f} times what is needed.",
        "The true delta of the theorem's noise at the claimed epsilon is far below the claimed one: see the column "
        "`true_delta`. At the claimed delta it is private for the epsilon in `true_epsilon`.",
        "A count of 0 was estimated as exactly 0 in every round, and no report had more than two messages.",
    ]


def _figure(rows: list[dict[str, Any]]) -> Any:
    panels = []
    for delta in _DELTAS:
        chosen = [row for row in rows if row["delta"] == delta]
        paper = [row for row in chosen if row["calibration"] == "paper"]
        tight = [row for row in chosen if row["calibration"] == "tight"]
        panels.append(
            Panel(
                f"delta = {delta:g}",
                [
                    Curve("Theorem 11 (ii)", [(row["epsilon"], row["bound"]) for row in paper], "formula"),
                    _curve("noise of the theorem", paper),
                    _curve("tight noise", tight),
                ],
            )
        )
    return curve_figure(
        "Error of a private count against epsilon: the bound of Theorem 11, the measured error with the theorem's "
        "noise just below it, and the measured error with tight noise far below both.",
        panels_shown=panels,
        title="A private count: the theorem and what is measured",
        x_title="epsilon",
        y_title="error of the worst count (users)",
        caption=[
            f"{_USERS:,} users; the error that 95 of 100 rounds stay under. Dashed: the bound. Bars: 95 % intervals.",
        ],
    )


def _curve(name: str, rows: list[dict[str, Any]]) -> Curve:
    return Curve(
        name,
        [(row["epsilon"], row["error"]) for row in rows],
        spread=[(row["error_low"], row["error_high"]) for row in rows],
    )


STUDY = Study(
    name="theorem11",
    title="Theorem 11: a private count from two messages per user",
    source="Balcer and Cheu (2020), Separating Local & Shuffled Differential Privacy via Histograms, Theorem 11",
    claimed=[
        "Every user sends their bit as a token, and with probability p close to 1 one more token as noise. If there "
        "are at least (100 / epsilon²) ln(2 / delta) users and 1 - p is 50 ln(2 / delta) / (epsilon² n), then:",
        "(i) The protocol is (epsilon, delta)-private in the shuffled model.",
        "(ii) The estimated share of ones is off by at most alpha = (50 / (epsilon² n)) ln(2 / delta) + "
        "(1 / (epsilon n)) sqrt(200 ln(2 / delta) ln(2 / beta)), except with probability beta.",
        "(iii) If nobody holds a 1, the estimate is exactly 0.",
        "(iv) Each user sends at most two messages of one bit.",
    ],
    reading=[
        "The dashed line is what part (ii) promises, in users (alpha times n), for beta = 0.05. Measured errors must "
        "lie below it: they are the error that 95 of 100 rounds stay under, at the count for which it is largest.",
        "The worst counts are those just under the noise: they are estimated as 0. That is the price of part (iii).",
    ],
    measure=_measure,
)
