"""The study of calibration: noise, users and error by the constants of theorems and by exact accounting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shuffledp.figures import Curve, Panel, Theme
from shuffledp.figures.pairs import pairs
from shuffledp.lab.studies.calibration.noise import BETA, QUESTIONS, noise_row
from shuffledp.lab.studies.calibration.protocols import (
    CATEGORIES,
    SETTING,
    checks_of_protocol,
    protocol_row,
    protocols_of_two_calibrations,
)
from shuffledp.lab.studies.calibration.rounds import count_rounds, histogram_rounds, message_rounds
from shuffledp.lab.studies.checks import Check, at_least, at_most, equals
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure, span

_USERS = 10_000_000
"""Large enough that Theorem 12 holds for every target up to epsilon 2."""
_SHOWN_DELTA = 1e-6
_LEAST_SHOWN = 1.0
"""The smallest variance that is drawn; that of the reference noise falls far below it as epsilon grows."""
_LEFT_OUT_IF_QUICK = ("histogram/solh", "histogram/shuffled-k-rr", "sum/cheu", "sum/privacy-blanket", "count/cheu")
_THEOREMS = {"count": "Theorem 11", "histogram": "Theorem 12"}

Row = dict[str, Any]


def _measure(settings: Settings) -> Outcome:
    epsilons = settings.pick(
        (0.1, 0.5, 1.0, 8.0), (0.05, 0.07, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 20.0)
    )
    deltas = settings.pick((1e-6, 1e-10), (1e-4, 1e-6, 1e-8, 1e-10, 1e-12))
    cases = [(question, epsilon, delta) for question in QUESTIONS for delta in deltas for epsilon in epsilons]
    rows = [noise_row(case[0], _USERS, *case[1:]) for case in settings.part(0.0, 0.6).steps(cases)]
    protocols = [
        protocol_row(*names)
        for names in settings.part(0.6, 0.8).steps(list(protocols_of_two_calibrations()))
        if not (settings.quick and "/".join(names) in _LEFT_OUT_IF_QUICK)
    ]
    rounds, checks = _rounds(settings.part(0.8, 1.0))
    checks += [check for row in rows for check in _checks(row)]
    checks += [check for row in protocols for check in checks_of_protocol(row)]
    return Outcome(
        measured=_paragraphs(rows, protocols, rounds),
        tables={"": ResultTable.of(rows), "protocols": ResultTable.of(protocols), "rounds": ResultTable.of(rounds)},
        figures=[
            _noise_figure(rows),
            _ratio_figure(rows),
            _users_figure(rows),
            _error_figure(rows, rounds),
            _protocol_figure(protocols),
        ],
        checks=checks,
    )


def _rounds(settings: Settings) -> tuple[list[Row], list[Check]]:
    targets = [(_USERS, epsilon, _SHOWN_DELTA) for epsilon in settings.pick((0.5,), (0.1, 0.25, 0.5, 1.0))]
    rows, checks = [], []
    for target in settings.steps(targets):
        for calibration in ("paper", "tight"):
            for run, rounds in ((count_rounds, settings.pick(200, 2000)), (histogram_rounds, settings.pick(60, 600))):
                row, run_checks = run(calibration, target, rounds, settings.source)
                rows.append(row)
                checks += run_checks
    for calibration in ("paper", "tight"):
        whole, run_checks = message_rounds(calibration, settings.pick(30, 300), settings.source)
        rows += whole
        checks += run_checks
    return rows, checks


def _checks(row: Row) -> list[Check]:
    """The tight noise is private and at most that of the theorem, and the theorem is true where its conditions hold."""
    where = f"{row['question']}, epsilon {row['epsilon']:g}, delta {row['delta']:g}, {row['users']:,} users"
    theorem, delta = _THEOREMS[row["question"]], row["delta"]
    checks = [
        at_most("Tight noise is private as claimed", where, row["tight_true_delta"], delta),
        at_most("Tight noise is private as claimed, by integer arithmetic", where, row["tight_exact_delta"], delta),
        equals(
            "Delta of the tight noise as reported and by integer arithmetic",
            where,
            row["tight_true_delta"],
            row["tight_exact_delta"],
            tolerance=1e-6 * row["tight_exact_delta"],
        ),
        at_least("Tight noise is not below its floor, ln(1/delta)", where, row["tight_mean"], row["least_mean"]),
    ]
    if row["lemma_23_true_delta"] is not None:
        checks += [
            at_most("Lemma 23 itself is private as claimed", where, row["lemma_23_true_delta"], delta),
            at_most("Tight noise is at most that of Lemma 23", where, row["tight_mean"], row["lemma_23_mean"]),
        ]
    if row.get("tight_halves_mean") is not None:
        claim = "Joint accounting needs at most the noise of two halves"
        checks.append(at_most(claim, where, row["tight_mean"], row["tight_halves_mean"]))
    if row.get("paper_mean") is None:
        return checks
    return [
        *checks,
        at_most(f"{theorem}, privacy", where, row["paper_true_delta"], delta),
        at_most(f"{theorem}, privacy by integer arithmetic", where, row["paper_exact_delta"], delta),
        *(
            equals(f"{theorem}, {words} as printed", where, row[key], row[printed], tolerance=1e-9 * row[printed])
            for words, key, printed in (
                ("noise", "paper_mean", "formula_mean"),
                ("error bound of each number", "theorem_radius", "printed_radius"),
                ("error bound together", "theorem_radius_together", "printed_radius_together"),
            )
        ),
        at_most(f"Tight noise is at most that of {theorem}", where, row["tight_variance"], row["paper_variance"]),
        at_most(
            f"Tight needs at most the users of {theorem}", where, row["tight_least_users"], row["paper_least_users"]
        ),
        at_most(f"{theorem}, error of each number", where, row["paper_radius"], row["theorem_radius"]),
        at_most(f"{theorem}, errors together", where, row["paper_radius_together"], row["theorem_radius_together"]),
    ]


def _paragraphs(rows: Sequence[Row], protocols: Sequence[Row], rounds: Sequence[Row]) -> list[str]:
    def spread(question: str, first: str, second: str) -> str:
        ratios = [row[first] / row[second] for row in _proven(rows, question)]
        return f"{min(ratios):.0f} to {max(ratios):.0f}"

    row = {
        question.name: next(
            row for row in rows if (row["question"], row["epsilon"], row["delta"]) == (question.name, 1.0, _SHOWN_DELTA)
        )
        for question in QUESTIONS
    }
    broken = [target for target in rows if _breaks(target)]
    count = row["count"]
    comparable = [protocol for protocol in protocols if protocol.get("rmse_ratio") is not None]
    costly = [protocol for protocol in comparable if protocol["rmse_ratio"] > 1.001]
    worst, least = (pick(costly, key=lambda protocol: protocol["rmse_ratio"]) for pick in (max, min))
    halves = [target["tight_halves_mean"] / target["tight_mean"] for target in _proven(rows, "histogram")]
    return [
        f"{_USERS:,} users, {len(rows):,} targets; everything but the rounds is computed exactly. At epsilon 1 and "
        f"delta {_SHOWN_DELTA:g} Theorem 11 asks for noise of mean {count['paper_mean']:.0f} and "
        f"{count['tight_mean']:.1f} is enough; for the histogram Theorem 12 asks for "
        f"{row['histogram']['paper_mean']:,.0f} and {row['histogram']['tight_mean']:.1f} is enough. Wherever the "
        f"theorems hold, their variance is {spread('count', 'paper_variance', 'tight_variance')} times what is "
        f"needed for a count and {spread('histogram', 'paper_variance', 'tight_variance')} times for a histogram.",
        f"In truth the theorem's noise for a count at epsilon 1 and delta {_SHOWN_DELTA:g} is private with epsilon "
        f"{count['paper_true_epsilon']:.3f}. Nearly all is lost in the Chernoff bounds of Lemma 23: without the "
        f"simplifications after it, the mean would still be {count['lemma_23_mean']:.0f}. The two categories that a "
        f"user of a histogram moves, taken together, need {min(halves):.2f} to {max(halves):.2f} times less than two "
        "exact halves.",
        f"Users: the theorems ask for {spread('count', 'paper_least_users', 'tight_least_users')} times as many as "
        f"are needed for a count, and {spread('histogram', 'paper_least_users', 'tight_least_users')} times for a "
        f"histogram: {count['paper_least_users']:,} instead of {count['tight_least_users']:,}, and "
        f"{row['histogram']['paper_least_users']:,} instead of {row['histogram']['tight_least_users']:,}, at epsilon "
        f"1 and delta {_SHOWN_DELTA:g}.",
        f"Errors: the bound of Theorem 11 (ii) is {spread('count', 'theorem_radius', 'tight_radius')} times the "
        "error with tight noise; for all categories together, Theorem 12 (iii) is "
        f"{spread('histogram', 'theorem_radius_together', 'tight_radius_together')} times. "
        f"{_total_rounds(rounds, 'tallies drawn'):,} rounds were run with tallies "
        f"drawn from their distribution, and {_total_rounds(rounds, 'messages'):,} "
        "whole rounds of messages: with either noise, errors are as computed.",
        _beyond(broken),
        f"Other protocols, {SETTING['users']:,} users, epsilon {SETTING['epsilon']:g}, {CATEGORIES} categories: the "
        f"constants of the papers cost from {least['rmse_ratio']:.2f} times the error ({least['protocol']}) to "
        f"{worst['rmse_ratio']:.0f} times ({worst['protocol']}). Correlated noise has the same error by either, and "
        "pays in messages.",
    ]


def _total_rounds(rounds: Sequence[Row], route: str) -> int:
    return sum(row["rounds"] for row in rounds if row["route"] == route)


def _beyond(broken: Sequence[Row]) -> str:
    if not broken:
        return "The formula of Corollary 24 is private as claimed at all targets tried, also where it has no proof."
    first = min(broken, key=lambda row: (row["epsilon"], row["delta"]))
    return (
        "Beyond epsilon 1 (2 for a histogram) the formula of Corollary 24 has no proof, and eventually it fails: at "
        f"epsilon {first['epsilon']:g} and delta {first['delta']:g} its noise for a {first['question']} has a true "
        f"delta of {first['formula_true_delta']:.2g}. No noise with a mean below ln(1/delta) is enough: with a "
        "probability above delta no user would omit a token, and nothing would be hidden."
    )


def _breaks(row: Row) -> bool:
    return row["formula_true_delta"] is not None and row["formula_true_delta"] > row["delta"]


def _proven(rows: Sequence[Row], question: str) -> list[Row]:
    """The rows of a question for which the conditions of the theorem hold."""
    return [row for row in rows if row["question"] == question and row.get("paper_mean") is not None]


# --- figures ---------------------------------------------------------------------------------------------------------


def _noise_figure(rows: Sequence[Row]) -> Figure:
    panels = []
    for question in QUESTIONS:
        chosen = [row for row in rows if (row["question"], row["delta"]) == (question.name, _SHOWN_DELTA)]
        theorem = _THEOREMS[question.name]
        proven = _proven(chosen, question.name)
        beyond = [row for row in chosen if row["epsilon"] >= proven[-1]["epsilon"]]
        panels.append(
            Panel(
                question.name,
                [
                    Curve(theorem, _points(proven, "paper_variance"), "computed", group="theorem"),
                    Curve(f"{theorem}'s formula", _points(beyond, "formula_variance"), "formula", group="theorem"),
                    Curve("Lemma 23 itself", _points(chosen, "lemma_23_variance"), "computed"),
                    Curve("least noise (tight)", _points(chosen, "tight_variance"), "computed"),
                    Curve("central, normal", _points(chosen, "gaussian_variance"), "computed"),
                    Curve("central, Laplace", _points(chosen, "laplace_variance"), "computed"),
                ],
            )
        )
    everywhere = [row for row in rows if row["delta"] == _SHOWN_DELTA]
    shown = [row for row in everywhere if row.get("paper_mean") is not None]
    return curve_figure(
        "Variance of the noise against epsilon: where the theorems hold they ask for "
        f"{span((row['variance_ratio'] for row in shown), '.0f')} times what is needed; beyond, their formula falls "
        f"to {min(row['formula_mean'] / row['tight_mean'] for row in everywhere):.2g} times the least mean.",
        panels_shown=panels,
        title="How much noise the theorems ask for, and how much is needed",
        x_title="epsilon",
        y_title="variance of the noise of each number",
        caption=[f"{_USERS:,} users, delta = {_SHOWN_DELTA:g}. Dashed: the theorem's formula where it has no proof."],
    )


def _points(rows: Sequence[Row], key: str) -> list[tuple[float, float]]:
    """The points of a column by epsilon, without missing numbers and those too small to be drawn."""
    return [(row["epsilon"], row[key]) for row in rows if row.get(key) is not None and row[key] >= _LEAST_SHOWN]


def _ratios(rows: Sequence[Row], question: str) -> str:
    return span((row["variance_ratio"] for row in _proven(rows, question)), ".0f")


def _ratio_figure(rows: Sequence[Row]) -> Figure:
    shown = [epsilon for epsilon in (0.05, 0.1, 0.25, 0.5, 1.0) if any(row["epsilon"] == epsilon for row in rows)]
    panels = [
        Panel(
            question.name,
            [
                Curve(
                    f"epsilon {epsilon:g}",
                    sorted(
                        (row["delta"], row["variance_ratio"])
                        for row in _proven(rows, question.name)
                        if row["epsilon"] == epsilon
                    ),
                    "computed",
                )
                for epsilon in shown
            ],
        )
        for question in QUESTIONS
    ]
    return curve_figure(
        "The variance of the theorem's noise as a multiple of the least, against delta: "
        + " and ".join(f"{_ratios(rows, question.name)} times for a {question.name}" for question in QUESTIONS)
        + ".",
        panels_shown=panels,
        title="Variance of the theorem's noise as a multiple of the least variance",
        x_title="delta",
        y_title="variance by the theorem / least variance",
        caption=[f"{_USERS:,} users."],
        name="ratio",
    )


def _users_figure(rows: Sequence[Row]) -> Figure:
    deltas = sorted({row["delta"] for row in rows if row["delta"] in (_SHOWN_DELTA, 1e-10, 1e-12)})
    ends = sorted({deltas[0], deltas[-1]}, reverse=True)
    panels = []
    for question in QUESTIONS:
        chosen = [row for row in rows if row["question"] == question.name]
        curves = [
            Curve(
                f"{name}, delta {delta:g}",
                [(row["epsilon"], row[key]) for row in chosen if row["delta"] == delta and row.get(key) is not None],
                "computed",
                group=f"{key}, {delta:g}",
            )
            for key, name in (("paper_least_users", _THEOREMS[question.name]), ("tight_least_users", "tight"))
            for delta in ends
        ]
        panels.append(Panel(question.name, curves))
    proven = [row for question in QUESTIONS for row in _proven(rows, question.name)]
    return curve_figure(
        "The fewest users against epsilon: the theorems ask for "
        f"{span((row['paper_least_users'] / row['tight_least_users'] for row in proven), '.0f')} times as many as are "
        "needed.",
        panels_shown=panels,
        title="The fewest users",
        x_title="epsilon",
        y_title="users",
        caption=["Below, no noise of this kind meets the target (tight), or the theorem says nothing."],
        name="users",
    )


def _error_figure(rows: Sequence[Row], rounds: Sequence[Row]) -> Figure:
    panels = []
    for question, end, heading in (
        (QUESTIONS[0], "", "one count"),
        (QUESTIONS[1], "_together", "all categories of a histogram together"),
    ):
        chosen = [row for row in rows if (row["question"], row["delta"]) == (question.name, _SHOWN_DELTA)]
        theorem = _THEOREMS[question.name]
        curves = [
            Curve(theorem, _points(chosen, f"theorem_radius{end}"), "formula", group="theorem"),
            Curve("its noise", _points(chosen, f"paper_radius{end}"), "computed", group="paper"),
            Curve("tight noise", _points(chosen, f"tight_radius{end}"), "computed", group="tight"),
        ]
        if question.coordinates == 1:
            curves.append(Curve("tight, no threshold", _points(chosen, "tight_radius_unbiased"), "computed"))
            for calibration in ("paper", "tight"):
                run = [
                    row
                    for row in rounds
                    if (row["question"], row["calibration"], row["route"]) == ("count", calibration, "tallies drawn")
                ]
                dots = [(row["epsilon"], row["error"]) for row in run]
                curves.append(Curve(f"measured, {calibration}", dots, group=calibration, labelled=False))
        panels.append(Panel(heading, curves))
    counts = [row for row in _proven(rows, "count") if row["delta"] == _SHOWN_DELTA]
    return curve_figure(
        "The error that 95 of 100 rounds stay below against epsilon: with tight noise "
        f"{span((row['theorem_radius'] / row['tight_radius'] for row in counts), '.0f')} times less than Theorem 11 "
        f"promises, and {span((row['theorem_radius'] / row['tight_radius_unbiased'] for row in counts), '.0f')} times "
        "less without the threshold.",
        panels_shown=panels,
        title="Error: what the theorems promise, and what is true",
        x_title="epsilon",
        y_title=f"error that {1 - BETA:.0%} of rounds stay below (users)",
        caption=[
            f"{_USERS:,} users, delta = {_SHOWN_DELTA:g}. Dashed: bounds. Lines: computed exactly. Dots: measured, "
            "at a count that is often hidden."
        ],
        name="error",
    )


def _protocol_figure(protocols: Sequence[Row]) -> Figure:
    comparable = sorted(
        (row for row in protocols if row.get("rmse_ratio") is not None), key=lambda row: -float(row["rmse_ratio"])
    )
    drawn = [(row["protocol"], row["tight_rmse"], row["paper_rmse"], _note(row)) for row in comparable]

    def draw(suffix: str, theme: Theme) -> bytes:
        return pairs(
            suffix,
            rows=drawn,
            names=("tight", "paper's constants"),
            title="What the constants of the papers cost",
            x_title="predicted root mean squared error (users)",
            caption=[
                f"{SETTING['users']:,} users, epsilon = {SETTING['epsilon']:g}, delta = {SETTING['delta']:g}, "
                f"{CATEGORIES} categories. Right: error, and messages, as a multiple."
            ],
            theme=theme,
        )

    return Figure(
        "Predicted error of every shuffled protocol with the least noise and with that of its paper: up to "
        f"{max(row['rmse_ratio'] for row in comparable):.0f} times more.",
        draw,
        "protocols",
    )


def _note(row: Row) -> str:
    messages = f", {row['message_ratio']:.2g} x messages" if row["message_ratio"] > 1.05 else ""
    return f"{row['rmse_ratio']:.3g} x{messages}"


STUDY = Study(
    name="calibration",
    title="Calibration: what the constants of theorems cost",
    source="Balcer and Cheu (2020), Theorems 11 and 12, Lemma 23, Corollary 24; and the papers of the other protocols",
    claimed=[
        "A theorem about privacy says how much noise is enough. Theorem 11: for a count, binomial noise of mean "
        "50 ln(2/delta)/epsilon², if epsilon is at most 1 and there are at least 100 ln(2/delta)/epsilon² users. "
        "Theorem 12: for a histogram the same at half of epsilon and half of delta, since a user moves two categories.",
        "The pmf of the noise is known, so its privacy is computed exactly, and the least noise found (`tight`, "
        "the default here). `paper` takes the theorem's constants. Both are private; this study shows what the "
        "second costs.",
    ],
    reading=[
        "First figure: the variance of the noise on each number. Between the theorem's line and the least noise "
        "lies what is lost in proofs; between the least noise and the central lines what the shuffled "
        "model pays. Normal noise is the least that meets (epsilon, delta) in the central model (Balle and Wang 2018), "
        "discrete Laplace needs no delta at all; both need more for a histogram, of which a user changes two counts.",
        "Then: the ratio over delta, the fewest users, and the error. A count below the noise is reported as 0, "
        "which is the price of exact zeros: the error with the threshold is about the mean of the noise, without it "
        "a few standard deviations.",
        "The last figure shows every shuffled protocol that has constants of its own, at one setting.",
    ],
    measure=_measure,
)
