"""The study of Theorem 11 of Balcer and Cheu (2020): a private count from two messages per user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies import token_checks
from shuffledp.lab.studies.checks import Check, at_most, equals, exceeded_rarely, quantile, rarely
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure, span
from shuffledp.messages import Tally
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount, theorem_11_alpha

_BETA = 0.05
_USERS = 1_000_000
_DELTAS = (1e-6, 1e-10)
_MESSAGE_USERS, _MESSAGE_EPSILON, _MESSAGE_DELTA = 2000, 1.0, 1e-6
"""The setting of the rounds with generated messages; the theorem requires at least 1,451 users here."""

Row = dict[str, Any]


def _measure(settings: Settings) -> Outcome:
    epsilons = settings.pick((0.1, 0.3, 1.0), (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0))
    rounds = settings.pick(100, 2000)
    cases = [(delta, epsilon) for delta in _DELTAS for epsilon in epsilons]
    rows: list[Row] = []
    checks: list[Check] = []
    for delta, epsilon in settings.part(0.0, 0.8).steps(cases):
        for calibration in ("paper", "tight"):
            protocol = BalcerCheuCount.calibrate(users=_USERS, epsilon=epsilon, delta=delta, calibration=calibration)
            row, case_checks = _case(protocol, epsilon, delta, rounds, settings, rows=2 * len(cases))
            rows.append(row | {"calibration": calibration})
            checks += case_checks
    whole, whole_checks = _whole_rounds(settings.part(0.8, 1.0))
    checks += [
        *whole_checks,
        *token_checks.enumeration_checks("Theorem 11 (i)", BalcerCheuCount),
        token_checks.audit_check("Theorem 11 (i)", BalcerCheuCount, settings),
        *token_checks.zero_checks("Theorem 11 (iii)", BalcerCheuCount, settings),
    ]
    return Outcome(
        measured=_paragraphs(rows, whole, rounds),
        tables={"": ResultTable.of(rows), "messages": ResultTable.of(whole)},
        figures=[_figure(rows)],
        checks=checks,
    )


@dataclass(frozen=True, eq=False)
class _Observed:
    """Rounds of one setting, with tallies drawn from their distribution."""

    counts: list[int]
    """The true counts; a count of 0 is observed, too."""
    tallies: dict[int, list[Tally]]
    """By true count, the tally of every round."""
    errors: dict[int, NDArray[np.float64]]
    """By true count, the error of every round."""
    max_messages: int
    """The largest number of messages of 1,000 reports."""


def _case(
    protocol: BalcerCheuCount, epsilon: float, delta: float, rounds: int, settings: Settings, *, rows: int = 1
) -> tuple[Row, list[Check]]:
    """The row and the checks of one setting; ``rows`` is the number of settings of the study."""
    observed = _observed(protocol, rounds, settings)
    return _row(protocol, epsilon, delta, observed), _checks(protocol, epsilon, delta, observed, rows=rows)


def _observed(protocol: BalcerCheuCount, rounds: int, settings: Settings) -> _Observed:
    mean = _USERS * float(protocol.absence)
    # from a count that the threshold always hides to one that it hides in a fifth of the rounds, and one that it never
    # hides; the error quantile of a count that is hidden in one round of twenty would jump between two values
    counts = [1, round(mean / 2), round(mean), round(mean + 0.84 * mean**0.5), _USERS // 2]
    tallies = {count: [_drawn(protocol, count, settings) for _ in range(rounds)] for count in [0, *counts]}
    return _Observed(
        counts,
        tallies,
        {count: _errors(protocol, drawn, count) for count, drawn in tallies.items()},
        max(len(protocol.randomize(index % 2, source=settings.source)) for index in range(1000)),
    )


def _row(protocol: BalcerCheuCount, epsilon: float, delta: float, observed: _Observed) -> Row:
    radii = {count: quantile(observed.errors[count], 1 - _BETA) for count in observed.counts}
    worst = max(observed.counts, key=lambda count: radii[count][0])
    return {
        "delta": delta,
        "epsilon": epsilon,
        "noise_mean": _USERS * float(protocol.absence),
        "true_delta": token_checks.exact_delta(protocol, epsilon).high,
        "true_epsilon": protocol.guarantee.epsilon_at(delta),
        "worst_count": worst,
        "error": radii[worst][0],
        "error_low": radii[worst][1],
        "error_high": radii[worst][2],
        "bound": _USERS * theorem_11_alpha(_USERS, epsilon, delta, _BETA),
        "largest_error_of_zero": float(observed.errors[0].max()),
        "most_messages": observed.max_messages,
    }


def _checks(protocol: BalcerCheuCount, epsilon: float, delta: float, observed: _Observed, *, rows: int) -> list[Check]:
    calibration, errors = protocol.target.calibration, observed.errors
    where = f"epsilon {epsilon:g}, delta {delta:g}, {_USERS:,} users, {calibration} noise"
    alpha = theorem_11_alpha(_USERS, epsilon, delta, _BETA)
    printed = token_checks.printed_alpha(_USERS, epsilon, delta, _BETA)
    checks = [
        *token_checks.privacy_checks("Theorem 11 (i)", where, protocol, epsilon, delta),
        equals("Theorem 11 (ii), the printed bound", where, alpha, printed, tolerance=1e-12 * printed),
    ]
    if calibration == "paper":
        checks.append(token_checks.constant_check("Theorem 11", where, protocol, epsilon, delta))
    for count in observed.counts:
        claim = f"Theorem 11 (ii), error of a count of {count:,}"
        checks += [
            exceeded_rarely(claim, where, errors[count], _USERS * alpha, at_most=_BETA),
            token_checks.largest_error_check(
                f"error of a count of {count:,} as computed",
                where,
                errors[count],
                protocol,
                [count],
                rows=rows * len(observed.counts),
            ),
            token_checks.noise_check(
                f"noise on a count of {count:,}", where, protocol, np.array([count]), observed.tallies[count]
            ),
        ]
    failures, rounds = int(np.count_nonzero(errors[0])), len(errors[0])
    evidence = "the largest report of 1,000 users"
    return [
        *checks,
        rarely("Theorem 11 (iii), zero stays zero", where, failures=failures, rounds=rounds, at_most=0.0),
        at_most("Theorem 11 (iv), messages", where, observed.max_messages, 2, evidence=evidence),
    ]


def _drawn(protocol: BalcerCheuCount, count: int, settings: Settings) -> Tally:
    return protocol.sample_tally(np.array([_USERS - count, count]), source=settings.source)


def _errors(protocol: BalcerCheuCount, tallies: list[Tally], count: int) -> Any:
    return np.array([token_checks.round_errors(protocol, tally, np.array([float(count)]))[0] for tally in tallies])


def _whole_rounds(settings: Settings) -> tuple[list[Row], list[Check]]:
    """Rounds in which every message goes through randomizer, permutation and analyzer."""
    rows: list[Row] = []
    checks: list[Check] = []
    for calibration in settings.steps(("paper", "tight")):
        protocol = BalcerCheuCount.calibrate(
            users=_MESSAGE_USERS, epsilon=_MESSAGE_EPSILON, delta=_MESSAGE_DELTA, calibration=calibration
        )
        mean = _MESSAGE_USERS * float(protocol.absence)
        count = round(mean + 0.84 * mean**0.5)
        bits = (np.arange(_MESSAGE_USERS) < count).astype(np.int64)
        bound = _MESSAGE_USERS * theorem_11_alpha(_MESSAGE_USERS, _MESSAGE_EPSILON, _MESSAGE_DELTA, _BETA)
        for singly, rounds in ((False, settings.pick(60, 600)), (True, settings.pick(5, 20))):
            tallies = [
                token_checks.message_tally(protocol, bits, settings.source, singly=singly) for _ in range(rounds)
            ]
            errors = _errors(protocol, tallies, count)
            route = "one user at a time" if singly else "all users at once"
            where = (
                f"epsilon {_MESSAGE_EPSILON:g}, delta {_MESSAGE_DELTA:g}, {_MESSAGE_USERS:,} users, "
                f"{calibration} noise, messages, {route}"
            )
            checks += [
                token_checks.noise_check("whole rounds: noise", where, protocol, np.array([count]), tallies),
                exceeded_rarely("Theorem 11 (ii), whole rounds", where, errors, bound, at_most=_BETA),
                token_checks.largest_error_check("whole rounds: error as computed", where, errors, protocol, [count]),
            ]
            rows.append(
                {
                    "calibration": calibration,
                    "randomizer": route,
                    "users": _MESSAGE_USERS,
                    "count": count,
                    "rounds": rounds,
                    "error": quantile(errors, 1 - _BETA)[0],
                    "bound": bound,
                }
            )
    return rows, checks


def _paragraphs(rows: list[Row], whole: list[Row], rounds: int) -> list[str]:
    paper = [row for row in rows if row["calibration"] == "paper"]
    tight = [row for row in rows if row["calibration"] == "tight"]
    saved = [first["error"] / second["error"] for first, second in zip(paper, tight, strict=True)]
    looser = [row["bound"] / row["error"] for row in tight]
    return [
        f"{rounds:,} rounds of {_USERS:,} users for each of five true counts, from one that the threshold hides to one "
        "that it never hides, at each epsilon and delta; with the noise of the theorem (paper) and with the least "
        "noise that meets the same target by exact accounting (tight). Tallies of these rounds are drawn from their "
        "distribution. The error shown is that of the worst count.",
        f"In {sum(row['rounds'] for row in whole):,} whole rounds of {_MESSAGE_USERS:,} users every message is "
        "generated by the randomizer, permuted with all others and counted; noise and errors are as computed, too.",
        "(i) Delta is computed from the probability that is drawn, by integer arithmetic that shares no code with the "
        "accountant that chose it; for few users all data sets and all outcomes are enumerated; and the randomizer is "
        "audited. (ii) The measured error lies below the bound and agrees with the exact distribution (two-sided).",
        "With the theorem's noise the error is nearly as large as the theorem says. With tight noise it is "
        f"{min(saved):.0f} to {max(saved):.0f} times smaller, so that the bound is {min(looser):.0f} to "
        f"{max(looser):.0f} times what is needed.",
        "The true delta of the theorem's noise at the claimed epsilon is far below the claimed one: see the column "
        "`true_delta`. At the claimed delta it is private for the epsilon in `true_epsilon`.",
        "(iii) A count of 0 was estimated as exactly 0 in every round. With the noise of these targets a wrong "
        "comparison would not be detected, so this is also checked with 20 users who omit a token with probability "
        "1/32: in 53 of 100 rounds as many tokens as users arrive. (iv) No report had more than two messages.",
    ]


def _figure(rows: list[Row]) -> Figure:
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
    shares = {
        kind: [row["error"] / row["bound"] for row in rows if row["calibration"] == kind] for kind in ("paper", "tight")
    }
    return curve_figure(
        "Error of a private count against epsilon: the bound of Theorem 11, the measured error with the theorem's "
        f"noise at {span(shares['paper'], '.0%')} of it, and the measured error with tight noise at "
        f"{span(shares['tight'], '.1%')} of it.",
        panels_shown=panels,
        title="A private count: theorem and measurement",
        x_title="epsilon",
        y_title="error of the worst count (users)",
        caption=[
            f"{_USERS:,} users; the 95 % quantile of the error. Dashed: the bound. Bars: 95 % intervals.",
        ],
    )


def _curve(name: str, rows: list[Row]) -> Curve:
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
        "The dashed line is the bound of part (ii), in users (alpha times n), for beta = 0.05. Measured errors must "
        "lie below it: they are the 95 % quantile of the error, at the count for which it is largest.",
        "The worst counts are those just below the noise: they are estimated as 0. This is the cost of part (iii).",
    ],
    measure=_measure,
)
