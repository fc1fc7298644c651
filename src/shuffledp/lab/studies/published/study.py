"""Published numbers beside those computed here: every row, its checks, the figure and the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies.checks import Check, agrees, at_least, at_most, equals, mean_at_most
from shuffledp.lab.studies.published.exact import blanket_delta, threshold_delta_lower
from shuffledp.lab.studies.published.rows import (
    ADULTS,
    ROWS,
    Published,
    ages,
    hashed,
    one_message_sum,
    sampled_threshold,
)
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure, span
from shuffledp.lab.studies.token_checks import message_tally
from shuffledp.privacy.amplification import METHODS

_PRINTED_MEAN_ERROR = 5.86e-4
_NORMAL_KURTOSIS = 3.0
_HASHED = ((10**5, 1, 0.25), (10**5, 1, 0.5), (10**5, 1, 1.0), (10**5, 1, 3.0), (10**4, 1, 1.0), (10**5, 3, 1.0))
"""Users, exponent c and epsilon of the rows of Luo and others that are confirmed independently."""
_CLOSED_FORMS = {"clones-closed": 0.214, "stronger-clones-closed": 0.180, "clones": 0.0530, "stronger-clones": 0.0432}
"""The bounds that are easily confused, for 10,000 users, local epsilon 1 and delta 1e-6."""


def _measure(settings: Settings) -> Outcome:
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    for published in settings.part(0.0, 0.6).steps(ROWS):
        ours = published.ours()
        rows.append(_row(published, ours))
        checks += _row_checks(published, ours)
    checks += _confirmed_blankets(settings.part(0.6, 0.8)) + _confirmed_threshold() + _closed_forms()
    measured, mean_checks = _one_message_rounds(settings.part(0.8, 1.0))
    return Outcome(
        measured=[*_paragraphs(rows), measured],
        tables={"": ResultTable.of(rows)},
        figures=[_figure(rows)],
        checks=checks + mean_checks,
    )


def _row(published: Published, ours: float) -> dict[str, Any]:
    return {
        "source": published.source,
        "quantity": published.quantity,
        "setting": published.setting,
        "published": published.printed,
        "shuffledp": ours,
        "ratio": ours / published.printed,
        "assumed": published.assumed,
    }


def _row_checks(published: Published, ours: float) -> list[Check]:
    """Not above what is published, not below a published lower bound, and as documented."""
    where = f"{published.source}; {published.quantity}, {published.setting}"
    checks = [
        at_most("at most the published number", where, ours, published.printed),
        equals(
            "as documented",
            where,
            ours,
            published.expected,
            tolerance=0.0 if published.whole_numbers else published.tolerance * published.expected,
        ),
    ]
    if published.lowest:
        checks.append(at_least("at least the published lower bound", where, ours, published.lowest))
    return checks


def _confirmed_blankets(settings: Settings) -> list[Check]:
    """The blankets of Luo and others are private, and 1 % fewer messages are not, by an independent sum."""
    checks = []
    for users, exponent, epsilon in settings.steps(settings.pick(_HASHED[2:4], _HASHED)):
        cells, mean = hashed(users, exponent, epsilon)
        where = f"{users:,} users, c = {exponent}, epsilon {epsilon:g}, {1 + mean:.2f} messages"
        evidence = "computed with SciPy's binomial distribution alone"
        exact, fewer = (blanket_delta(users, cells, factor * mean, epsilon) for factor in (1.0, 0.99))
        target = users**-2.0
        checks += [
            at_most("hashed values: exact delta over n^-2", where, exact / target, 1 + 1e-6, evidence=evidence),
            at_least("1 % fewer blanket messages: delta over n^-2", where, fewer / target, 1.0, evidence=evidence),
        ]
    return checks


def _confirmed_threshold() -> list[Check]:
    """A threshold that is lower by 1 would not do: a lower bound on its delta."""
    lower = int(sampled_threshold()) - 1
    claim = "Nebula: delta of the next lower threshold"
    return [at_least(claim, f"threshold {lower}, probability 0.105", threshold_delta_lower(0.105, lower, 1.0), 1e-8)]


def _closed_forms() -> list[Check]:
    """Which of the bounds that are called clone bounds has which value."""
    where = "10,000 users, local epsilon 1, delta 1e-6"
    return [
        equals(f"{name}: epsilon", where, METHODS[name](10**4, 1.0, 1e-6), expected, tolerance=6e-4)
        for name, expected in _CLOSED_FORMS.items()
    ]


def _one_message_rounds(settings: Settings) -> tuple[str, list[Check]]:
    """Whole rounds of the one-message mean on numbers like the ages of Adult."""
    protocol, values = one_message_sum(), ages()
    rounds = settings.pick(40, 400)
    errors = np.array(
        [
            protocol.estimate(message_tally(protocol, values, settings.source)).value - float(values.sum())
            for _ in settings.steps(range(rounds))
        ]
    )
    where = f"{rounds:,} rounds of {ADULTS:,} numbers like the ages of Adult"
    predicted = protocol.expected_error(values=values).rmse
    absolute = np.abs(errors) / ADULTS
    checks = [
        agrees("one message: the error is as predicted", where, errors, predicted, kurtosis=_NORMAL_KURTOSIS),
        mean_at_most("one message: mean absolute error of the mean", where, absolute, _PRINTED_MEAN_ERROR),
    ]
    return (
        f"The one-message mean was also run, every message generated and permuted: its mean absolute error in {where} "
        f"was {absolute.mean():.3g}, where {math.sqrt(2 / math.pi) * predicted / ADULTS:.3g} is predicted and the "
        f"notebook has {_PRINTED_MEAN_ERROR:.3g}.",
        checks,
    )


def _paragraphs(rows: list[dict[str, Any]]) -> list[str]:
    fair = [row for row in rows if not row["assumed"]]
    assumed = "; ".join(f"{row['source']}, {row['quantity']}: {row['assumed']}" for row in rows if row["assumed"])
    contradicted = next(row for row in rows if "c = 3" in row["setting"])
    best, last = (pick(fair, key=lambda row: float(row["ratio"])) for pick in (min, max))
    return [
        f"{len(rows)} published numbers were recomputed. Of {len(fair)} whose parameters are all stated, the numbers "
        f"computed here are {span((row['ratio'] for row in fair), '.3g')} times the published ones: nearest to it "
        f"{last['setting']} ({last['source']}), farthest {best['setting']} ({best['source']}).",
        f"Parameters that are not stated, and what was assumed for them: {assumed}.",
        f"For c = 3, {contradicted['source'].partition(' (the')[0]} has {contradicted['published']}. The authors' own "
        f"program contradicts it: it gives 79.81, and {contradicted['shuffledp']:.2f} is computed here.",
        "The notebook of Balle and others also has an error of split-and-mix sums (IKOS) below that of the central "
        "mechanism, which is impossible at that privacy: the parameter of its negative binomial sampler is wrong. It "
        "is not a row.",
        "Two closed forms of the clone bound are in use. For 10,000 users, local epsilon 1 and delta 1e-6, that of "
        f"2021, for any randomizer, gives {METHODS['clones-closed'](10**4, 1.0, 1e-6):.3g}, that of 2023, for a "
        f"restricted class, {METHODS['stronger-clones-closed'](10**4, 1.0, 1e-6):.3g}; computed bounds are "
        f"{METHODS['clones'](10**4, 1.0, 1e-6):.3g} and {METHODS['stronger-clones'](10**4, 1.0, 1e-6):.3g}.",
    ]


def _figure(rows: list[dict[str, Any]]) -> Figure:
    groups: dict[str, list[tuple[float, float]]] = {}
    for number, row in enumerate(rows, start=1):
        groups.setdefault(row["source"].partition(";")[0].partition(" (the ")[0], []).append((number, row["ratio"]))
    lines = [Curve(name, points, "mark") for name, points in groups.items()]
    lines.append(Curve("published", [(1, 1.0), (len(rows), 1.0)], "formula"))
    return curve_figure(
        f"The {len(rows)} published numbers, each number computed here divided by the published one: from "
        f"{min(row['ratio'] for row in rows):.2g} to {max(row['ratio'] for row in rows):.2g}, all at or below a dashed "
        "line at 1.",
        panels_shown=[Panel("", lines)],
        title="Published numbers and ours",
        x_title="row of the table",
        y_title="ours over the published number",
        caption=[
            "Epsilon, messages, noise or error at the same target: lower is better. Dashed: the published number."
        ],
        x_log=False,
        size=(620, 380),
    )


STUDY = Study(
    name="published",
    title="Published numbers, reproduced or improved",
    source="Tables of papers and outputs of the programs of their authors; the sources are in the table",
    claimed=[
        "Papers on the shuffled model print epsilons, noise, messages and errors for stated targets, and programs of "
        "their authors compute them. The library must reproduce each of these numbers or do better at the same "
        "privacy.",
    ],
    reading=[
        "Each row is one printed number: its source, the quantity and the parameters, the published value and the one "
        "computed here. Every quantity is a cost, so a ratio below 1 is better.",
        "Where a source does not state a parameter, the last column says which one, and what was assumed. These rows "
        "compare orders of magnitude only.",
    ],
    measure=_measure,
)
