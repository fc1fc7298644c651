"""The study of amplification by shuffling: published bounds compared with each other and with exact values."""

from __future__ import annotations

import math
from typing import Any

from shuffledp.errors import ConditionError
from shuffledp.lab.studies.amplification.few_users import channel_rows, example_rows, few_user_checks
from shuffledp.lab.studies.amplification.figures import figures
from shuffledp.lab.studies.amplification.lower_bounds import (
    epsilon_upper_bound,
    response_lower_bound,
    two_answers_lower_bound,
)
from shuffledp.lab.studies.checks import FALSE_ALARM, Check, at_least, at_most
from shuffledp.lab.studies.study import Outcome, ResultTable, Settings, Study
from shuffledp.privacy.amplification import METHODS, BlanketCurve
from shuffledp.privacy.audit import Evidence, learn_threshold
from shuffledp.randomness import Dyadic, bernoulli, binomial

_DELTA = 1e-6
_USER_COUNTS = (10_000, 1_000_000)
_LOCAL_EPSILONS = (1.0, 4.0)
_ROUNDING = 1e-6
"""Two searches for an epsilon may end this far apart, relative to it."""
_BOUNDS = tuple(name for name in METHODS if name != "exact-2-rr")
_LEARNING_ROUNDS = 100_000
"""The number of rounds from which the event of an audit is learned."""


def _measure(settings: Settings) -> Outcome:
    rows = _grid_rows(settings.part(0.0, 0.6))
    audited = _audit_rows(settings.part(0.6, 0.65))
    channels = channel_rows(settings.part(0.65, 0.95))
    examples = example_rows(settings)
    settings.progress(1.0)
    return Outcome(
        measured=_paragraphs(rows, audited, channels, examples),
        tables={
            "": ResultTable.of(rows),
            "audit": ResultTable.of(audited),
            "few-users": ResultTable.of(channels),
            "examples": ResultTable.of(examples),
        },
        figures=figures(
            rows, audited, examples, user_counts=_USER_COUNTS, local_epsilons=_LOCAL_EPSILONS, delta=_DELTA
        ),
        checks=[
            *_grid_checks(rows),
            *_audit_checks(audited),
            *few_user_checks(channels),
            *_example_checks(examples),
        ],
    )


def _grid_rows(settings: Settings) -> list[dict[str, Any]]:
    """All bounds at each number of users and local epsilon that a figure shows."""
    local = settings.pick((0.25, 2.0, 6.0), (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))
    user_counts = settings.pick((100, 10_000, 1_000_000), (100, 300, 1000, 3000, 10**4, 10**5, 10**6, 10**7))
    values = settings.pick((3, 100), (3, 10, 100))
    points = [(users, epsilon) for users in _USER_COUNTS for epsilon in sorted({*local, *_LOCAL_EPSILONS})]
    points += [(users, epsilon) for users in user_counts for epsilon in _LOCAL_EPSILONS if users not in _USER_COUNTS]
    cases = [(users, epsilon, values if users in _USER_COUNTS else ()) for users, epsilon in points]
    return [_grid_row(*case) for case in settings.steps(cases, [_work(*case) for case in cases])]


def _work(users: int, local_epsilon: float, values: tuple[int, ...]) -> float:
    """The approximate duration of a row: the width of distributions grows with the root of the number of users."""
    return (1 + len(values)) * (1 + math.sqrt(users) * math.exp(-local_epsilon / 2) / 300)


def _grid_row(users: int, local_epsilon: float, values: tuple[int, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {"users": users, "local_epsilon": local_epsilon}
    row |= {name: _epsilon(name, users, local_epsilon) for name in METHODS}
    row["2-rr exact"] = two_answers_lower_bound(users, local_epsilon, _DELTA)
    for count in values:
        row[f"{count}-rr exact"] = response_lower_bound(users, local_epsilon, count, _DELTA)
        row[f"{count}-rr bound"] = _response_bound(users, local_epsilon, count, row["stronger-clones"])
    return row


def _epsilon(name: str, users: int, local_epsilon: float) -> float | None:
    """Epsilon after shuffling, at most the local one; None where a condition of the theorem is not met."""
    try:
        return METHODS[name](users, local_epsilon, _DELTA)
    except ConditionError:
        return None


def _response_bound(users: int, local_epsilon: float, values: int, stronger: float) -> float:
    """The bound for randomized response: the smaller of stronger clones and of the computed privacy blanket."""
    curve = BlanketCurve(users, Dyadic.at_least(values / (math.exp(local_epsilon) + values - 1)), values)
    if curve.rough_delta_at(stronger) > _DELTA:
        return stronger
    return epsilon_upper_bound(curve.rough_delta_at, _DELTA, stronger)


def _grid_checks(rows: list[dict[str, Any]]) -> list[Check]:
    """No bound is below the exact epsilon, and closed forms are not below the computed bounds."""
    exact_epsilons = [max(value for name, value in row.items() if name.endswith(" exact")) for row in rows]
    checks = []
    for name in _BOUNDS:
        # the local epsilon always holds, without a theorem
        proved = [None if row[name] == row["local_epsilon"] else row[name] for row in rows]
        checks += _least_ratio(f"{name} is not below the exact epsilon", proved, exact_epsilons, rows)
    for name in ("3-rr", "10-rr", "100-rr"):
        chosen = [row for row in rows if f"{name} bound" in row]
        if chosen:
            bounds, exact = ([row[f"{name} {kind}"] for row in chosen] for kind in ("bound", "exact"))
            checks += _least_ratio(f"the bound of {name} is not below its exact epsilon", bounds, exact, chosen)
    for larger, smaller in (
        ("clones-closed", "clones"),
        ("stronger-clones-closed", "stronger-clones"),
        ("erlingsson-simple", "erlingsson"),
        ("clones", "stronger-clones"),
    ):
        both = [row for row in rows if row[larger] is not None]
        first, second = ([row[name] for row in both] for name in (larger, smaller))
        checks += _least_ratio(f"{larger} is not below {smaller}", first, second, both)
    return checks


def _least_ratio(
    claim: str, values: list[float | None], bounds: list[float], rows: list[dict[str, Any]]
) -> list[Check]:
    """One check at the smallest ratio of many numbers to their bounds; none if there are no numbers."""
    ratios = [
        (value / bound, f"{row['users']:,} users, local epsilon {row['local_epsilon']:g}")
        for value, bound, row in zip(values, bounds, rows, strict=True)
        if value is not None
    ]
    evidence = f"computed; the least ratio of {len(ratios):,}, at delta {_DELTA:g}"
    return [
        at_least(claim, f"closest at {where}", least, 1 - _ROUNDING, evidence=evidence)
        for least, where in sorted(ratios)[:1]
    ]


def _audit_rows(settings: Settings) -> list[dict[str, Any]]:
    """Audit of shuffled randomized response on bits: lower bounds on epsilon from rounds on neighbouring data sets."""
    trials = settings.pick(200_000, 4_000_000)
    local_epsilon = _LOCAL_EPSILONS[-1]
    flip = Dyadic.at_least(1 / (1 + math.exp(local_epsilon)))
    rows = []
    for users in settings.steps(settings.pick((100, 1000, 10_000), (100, 300, 1000, 3000, 10_000))):

        def ones(target: int, rounds: int, users: int = users) -> Any:
            """The number of reports that are 1, in each round; all other users hold a 0."""
            others = binomial(users - 1, flip, rounds, settings.source)
            return others + (bernoulli(flip, rounds, settings.source) ^ bool(target))

        learned = learn_threshold(
            ones(1, _LEARNING_ROUNDS), ones(0, _LEARNING_ROUNDS), delta=_DELTA, risk=FALSE_ALARM, trials=trials
        )
        hits, other_hits = (int(learned.event.occurred(ones(target, trials).reshape(-1, 1)).sum()) for target in (1, 0))
        evidence = Evidence(hits, trials, other_hits, trials, FALSE_ALARM)
        rows.append(
            {
                "users": users,
                "local_epsilon": local_epsilon,
                "rounds": 2 * trials,
                "event": learned.event.describe(["reports of 1"]),
                "hits": hits,
                "other_hits": other_hits,
                "shown": evidence.epsilon_at(_DELTA),
                "exact": two_answers_lower_bound(users, local_epsilon, _DELTA),
                "least_bound": min(
                    bound for name in _BOUNDS if (bound := _epsilon(name, users, local_epsilon)) is not None
                ),
            }
        )
    return rows


def _audit_checks(rows: list[dict[str, Any]]) -> list[Check]:
    return [
        at_most(
            "the audited epsilon is not above any bound",
            f"{row['users']:,} users, local epsilon {row['local_epsilon']:g}",
            row["shown"],
            row["least_bound"],
            evidence=f"{row['hits']:,} against {row['other_hits']:,} of {row['rounds'] // 2:,} rounds each; "
            f"Clopper-Pearson, false alarm {FALSE_ALARM:g}",
        )
        for row in rows
    ]


def _example_checks(rows: list[dict[str, Any]]) -> list[Check]:
    """No valid bound is below the exact delta; the form of 2023 is, in the example outside the class that it needs."""
    checks = []
    for example in ("inside", "outside"):
        chosen = [row for row in rows if row["example"] == example]
        for name in ("clones", "clones of the channel", "blanket of the channel", "stronger-clones"):
            ratios = [row[name] / row["exact"] for row in chosen if row.get(name) is not None]
            if ratios:
                where = f"the example {example} the class of stronger clones"
                checks.append(at_least(f"{name} is not below the exact delta", where, min(ratios), 1 - 1e-8))
    ratios = [row["exact"] / row["2023, from the distance"] for row in rows if row["example"] == "outside"]
    checks.append(
        at_least(
            "the form of 2023 with the total variation distance is not a bound outside its class",
            "the example outside the class, 2 users: exact delta over that form",
            max(ratios),
            1.0,
            evidence="computed exactly; it confirms the erratum",
        )
    )
    return checks


def _paragraphs(
    rows: list[dict[str, Any]],
    audited: list[dict[str, Any]],
    channels: list[dict[str, Any]],
    examples: list[dict[str, Any]],
) -> list[str]:
    main_rows = [row for row in rows if row["users"] in _USER_COUNTS]
    trivial = min(
        local
        for local in {row["local_epsilon"] for row in main_rows}
        if all(row["erlingsson"] == local for row in main_rows if row["local_epsilon"] == local)
    )
    saved = [row["clones-closed"] / row["clones"] for row in main_rows if row["clones-closed"] is not None]
    stronger = [row["clones"] / row["stronger-clones"] for row in main_rows]
    marks = [row for row in rows if "3-rr exact" in row]
    left = [row["stronger-clones"] / max(row["3-rr exact"], row["2-rr exact"]) for row in marks]
    names = [name for name in ("3-rr", "10-rr", "100-rr") if any(f"{name} bound" in row for row in marks)]
    gaps = [row[f"{name} bound"] / row[f"{name} exact"] - 1 for row in marks for name in names]
    below = [
        row["privacy-blanket"] / row["privacy-blanket-closed"]
        for row in main_rows
        if row["privacy-blanket-closed"] < row["privacy-blanket"]
    ]
    by_users = {row["users"]: row["clones"] for row in rows if row["local_epsilon"] == 1.0}
    many, few = max(by_users), 100 if 100 in by_users else min(by_users)
    underestimate = max(
        row["exact"] / row["2023, from the distance"] for row in examples if row["example"] == "outside"
    )
    return [
        f"Epsilon after shuffling at delta {_DELTA:g}, for {len(rows)} pairs of a number of users and a local epsilon. "
        "Only the audit and the random channels are random; all bounds are computed and compared with exact values.",
        "Epsilon decreases with about the root of the number of users: at local epsilon 1 the bound by clones is "
        f"{by_users[few]:.3g} for {few:,} users and {by_users[many]:.3g} for {many:,}.",
        f"Computing instead of using the closed form of the same theorem gains a factor of {min(saved):.1f} to "
        f"{max(saved):.1f} (clones of 2021). Knowing that it is randomized response (stronger clones) gains "
        f"{min(stronger):.2f} to {max(stronger):.2f} more. Without knowing the number of answers, no bound can gain "
        f"more than a further factor of {min(left):.2f} to {max(left):.2f}, because of the exact values for two "
        "and three answers.",
        "For randomized response on a known number of answers the computed privacy blanket is nearly exact: at most "
        f"{max(gaps):.2%} above the exact value for data where all others hold a third value.",
        f"The first bound (2019) is for small local epsilons: at {trivial:g} it is trivial for both numbers of users. "
        "The closed form of the privacy blanket lies below the generic form by Hoeffding's inequality in "
        f"{len(below)} of {len(main_rows)} cases, by up to {max(below, default=1):.1f} times. Both hold: the closed "
        "form ties the size of the blanket to that of its terms, the generic form takes the worst of each.",
        f"The audit ran randomized response on bits {audited[0]['rounds']:,} times for each number of users. It shows "
        f"epsilon {audited[0]['shown']:.2f} at least for {audited[0]['users']:,} users, where the exact value is "
        f"{audited[0]['exact']:.2f} and the least bound {audited[0]['least_bound']:.2f}; for "
        f"{audited[-1]['users']:,} users {audited[-1]['shown']:.3f}, {audited[-1]['exact']:.3f} and "
        f"{audited[-1]['least_bound']:.3f}. Events as rare as delta do not occur in so few rounds: an audit detects "
        "gross errors, it does not measure epsilon.",
        f"With few users everything can be enumerated: {len(channels)} exact deltas of channels of three kinds, each "
        "below every bound that is proved for its channel. In the example outside the class, the form of 2023 that "
        f"uses the total variation distance is up to {underestimate:.1f} times too small, as the erratum allows.",
    ]


STUDY = Study(
    name="amplification",
    title="Amplification by shuffling: bounds compared with exact values",
    source="Erlingsson and others (2019); Balle, Bell, Gascon and Nissim (2019); "
    "Feldman, McMillan and Talwar (2021, 2023)",
    claimed=[
        "A report that is private on its own, with some local epsilon, becomes far more private among the shuffled "
        "reports of n users: epsilon decreases as 1/sqrt(n). `erlingsson` was the first proof, "
        "`privacy-blanket` counts how many reports do not depend on the value, `clones` how many others send what the "
        "target may have sent. Those hold for every randomizer.",
        "`stronger-clones` (2023) has more clones. It was published for every randomizer, and an erratum says that it "
        "holds for a restricted class only. Here it is used where every report has R(z)(y) >= (R(x)(y) + R(x')(y)) / "
        "(e^local_epsilon + 1), which is so for randomized response, and refused elsewhere.",
    ],
    reading=[
        "Lower is better for a valid bound. Where a line joins the dashed diagonal (no shuffling), its theorem is "
        "trivial; where it ends, a condition of the theorem is not met.",
        "The line named exact is the exact epsilon for certain data: no valid bound for that randomizer can lie below "
        "it. The gap between it and the lowest bound limits what a better proof could gain.",
        "In the figure of few users the dashed curve is a form that is not valid there: it falls below the exact one.",
    ],
    measure=_measure,
)
