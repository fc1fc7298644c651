"""The study of Table 2 of Balcer and Cheu (2020): users needed for pointer chasing and pointer jumping, by model."""

from __future__ import annotations

import math
from typing import Any

from shuffledp.errors import ConditionError
from shuffledp.figures import Curve, Panel
from shuffledp.lab.problems import (
    MeasuredSampleSize,
    Method,
    PointerChasing,
    PointerJumping,
    central_rate,
    direct_sample_size,
    local_rate,
    measure_sample_size,
    paper_sample_size,
    shuffled_rate,
)
from shuffledp.lab.problems.exact_zeros import ExactZeros
from shuffledp.lab.problems.identification import Identifier
from shuffledp.lab.problems.sample_size import PaperSampleSize
from shuffledp.lab.problems.solver import identified_rounds
from shuffledp.lab.studies.checks import FALSE_ALARM, Check, at_most, equals, frequency, likely
from shuffledp.lab.studies.integer_accountant import both_shown, item_missed
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure, span
from shuffledp.lab.studies.token_checks import (
    constant_check,
    noise_check_of_rounds,
    printed_mean,
    privacy_checks,
)
from shuffledp.privacy.audit import proportion_bounds
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.randomness import uniform_counts

_EPSILON, _DELTA = 1.0, 1e-6
_SUCCESS = 0.99
_CONFIDENCE = 0.95
_PROTOCOLS = {"shuffled": "balcer-cheu", "central": "stability", "local": "unary"}
_UNCERTAIN_USERS = 150
"""So few users that pointer chasing succeeds in about 7 of 10 rounds; 148 are the fewest for which it is private."""
_MAX_LOOKS = 3
"""How many times the search tests the rounds with one number of users."""
_MAX_LOG_DOMAIN = 2e7
"""Maximum natural logarithm of the domain size; beyond it the local protocol would need more users than exist."""

Problem = PointerChasing | PointerJumping
Row = dict[str, Any]


def _measure(settings: Settings) -> Outcome:
    lengths = settings.pick((3, 1000, 10**6), (3, 10, 100, 1000, 10**4, 10**5, 10**6))
    heights = settings.pick((2, 6), (2, 3, 5, 8, 13, 21, 34))
    problems: list[Problem] = [PointerChasing(2, length) for length in lengths]
    problems += [PointerJumping(height**4, height) for height in heights]
    cases = [
        (problem, model)
        for problem in problems
        for model in _PROTOCOLS
        if model != "local" or problem.log_domain_size <= _MAX_LOG_DOMAIN
    ]
    rows: list[Row] = []
    checks: list[Check] = []
    for problem, model in settings.part(0.0, 0.95).steps(cases, [problem.support_size + 10 for problem, _ in cases]):
        row, case_checks = _case(problem, model, settings, rows=len(cases))
        rows.append(row)
        checks += case_checks
    whole, whole_checks = _whole_domain(settings.part(0.95, 1.0))
    checks += _same_for_all_lengths(rows) + whole_checks
    tables = {"": ResultTable.of(rows), "messages": ResultTable.of(whole)}
    return Outcome(_paragraphs(rows, whole), tables, [_figure(rows)], checks)


def _case(problem: Problem, model: str, settings: Settings, *, rows: int = 1) -> tuple[Row, list[Check]]:
    """The smallest number of users by theory and by search, and checks that the theoretical number is enough.

    ``rows`` is the number of cases of the study, over which the false alarms of one statement are corrected.
    """
    method = Method(epsilon=_EPSILON, delta=_DELTA, protocol=_PROTOCOLS[model])
    proven = direct_sample_size(problem, method)
    measured = measure_sample_size(
        problem,
        method,
        trials=settings.pick(2000, 20_000),
        confidence=_CONFIDENCE,
        precision=0.02,
        source=settings.source,
    )
    where = f"{problem.describe()}, {model} model, epsilon {_EPSILON:g}, delta {_DELTA:g}"
    checks = [
        _solved(
            f"success in 99 of 100 rounds with the proven {proven:,} users ({method.protocol})",
            where,
            method.identifier(problem, proven),
            problem,
            settings,
            rows,
        ),
        _rejected_below_proven(where, measured, proven, rows),
    ]
    if model == "shuffled":
        checks += _noise_checks(problem, method, proven, where, settings)
    row = {
        "problem": "PC(2, l)" if isinstance(problem, PointerChasing) else "MPJ(h^4, h)",
        "parameter": problem.length if isinstance(problem, PointerChasing) else problem.height,
        "model": model,
        "protocol": method.protocol,
        "domain_ln": problem.log_domain_size,
        "users": measured.users,
        "users_low": measured.low,
        "users_high": measured.high,
        "proven": proven,
        "rate": _rate(problem, model),
    }
    if model == "shuffled":
        paper = paper_sample_size(problem.support_size, _EPSILON, _DELTA)
        row["paper"] = paper.users
        checks += _claim_14_checks(problem, paper, where, settings, rows)
    return row, checks


def _claim_14_checks(
    problem: Problem, paper: PaperSampleSize, where: str, settings: Settings, rows: int
) -> list[Check]:
    """The sample size of Claim 14 is enough with the paper's noise, whose mean is as printed."""
    method = Method(epsilon=_EPSILON, delta=_DELTA, calibration="paper", rule="paper")
    printed = printed_mean(_EPSILON, _DELTA, 2)
    claim = f"Claim 14, success with {paper.users:,} users and the paper's noise"
    return [
        _solved(claim, where, method.identifier(problem, paper.users), problem, settings, rows),
        equals("Claim 14, the printed noise", where, paper.noise_mean, printed, tolerance=1e-12 * printed),
        *_noise_checks(problem, method, paper.users, f"{where}, paper's noise", settings),
    ]


def _solved(claim: str, where: str, identifier: Identifier, problem: Problem, settings: Settings, rows: int) -> Check:
    """Rounds of the protocol itself identify the support in 99 of 100 cases; fewer rounds where one takes long."""
    trials = _trials(settings) // (1 if isinstance(identifier, ExactZeros) else 10)
    identified = identified_rounds(identifier, problem.instance(settings.source), trials, settings.source)
    return likely(claim, where, successes=identified, rounds=trials, at_least=_SUCCESS, rows=rows)


def _trials(settings: Settings) -> int:
    return settings.pick(200, 2000)


def _rejected_below_proven(where: str, measured: MeasuredSampleSize, proven: int, rows: int) -> Check:
    """The largest number of users that the search rejects, at a level corrected over all rows, is below the proven."""
    tests = rows * len(measured.tested) * _MAX_LOOKS
    rejected = [
        users
        for users, trials, successes in measured.tested
        if not trials or float(proportion_bounds(successes, trials, FALSE_ALARM / tests)[1]) < _SUCCESS
    ]
    evidence = f"{len(measured.tested)} numbers of users tried; false alarm {FALSE_ALARM:g} over {rows} rows together"
    return at_most(
        "too few by the search, and below the proven", where, max(rejected, default=1), proven - 1, evidence=evidence
    )


def _noise_checks(problem: Problem, method: Method, users: int, where: str, settings: Settings) -> list[Check]:
    """Privacy, noise and the probability of missing an item, from the integers of the noise that is drawn."""
    identifier = method.identifier(problem, users)
    assert isinstance(identifier, ExactZeros)  # noqa: S101
    protocol = identifier.protocol
    assert isinstance(protocol, BalcerCheuHistogram)  # noqa: S101
    rounds = []
    for _ in range(_trials(settings)):
        counts = uniform_counts(users, problem.support_size, settings.source)
        rounds.append((counts, protocol.sample_tally(counts, source=settings.source)))
    mean = users * protocol.absence.fraction
    # c holders and noise N give the estimate c - N + E[N], or 0 if c <= N: the item is missed if c - N <= margin
    margin = max(0, math.ceil(identifier.least_estimate - mean) - 1)
    missed = item_missed(users, protocol.absence.fraction, problem.support_size, margin)
    checks = [
        *privacy_checks("Theorem 12", where, protocol, _EPSILON, _DELTA),
        noise_check_of_rounds("noise of the held items", where, protocol, rounds),
        equals(
            "the probability that an item is missed, from which the number is proven",
            where,
            identifier.missed,
            missed,
            tolerance=1e-6 * missed + 1e-12,
            evidence="integer arithmetic on the noise drawn",
        ),
    ]
    if method.calibration == "paper":
        checks.append(constant_check("Claim 14", where, protocol, _EPSILON, _DELTA))
    return checks


def _whole_domain(settings: Settings) -> tuple[list[Row], list[Check]]:
    """Whole rounds over all items of a small domain, at a number of users where success is uncertain.

    Each user holds one of both items at random, so that the probability of success is an integer sum.
    """
    problem = PointerChasing(2, 3)
    rows: list[Row] = []
    checks: list[Check] = []
    rounds = {
        "messages": settings.pick(150, 1500),
        "listed": settings.pick(150, 1500),
        "auto": settings.pick(300, 3000),
    }
    for route, trials in settings.steps(list(rounds.items())):
        method = Method(epsilon=_EPSILON, delta=_DELTA, route=route)
        identifier = method.identifier(problem, _UNCERTAIN_USERS)
        protocol = identifier.protocol
        assert isinstance(protocol, BalcerCheuHistogram)  # noqa: S101
        exact = both_shown(_UNCERTAIN_USERS, protocol.absence.fraction)
        identified = identified_rounds(identifier, problem.instance(settings.source), trials, settings.source)
        where = f"{problem.describe()}, {_UNCERTAIN_USERS} users, route {identifier.route}"
        checks.append(
            frequency(
                "success as computed, where it is uncertain", where, hits=identified, trials=trials, probability=exact
            )
        )
        rows.append(
            {
                "problem": "PC(2, 3)",
                "route": identifier.route,
                "items": identifier.simulated_items,
                "users": _UNCERTAIN_USERS,
                "rounds": trials,
                "success": identified / trials,
                "success_exact": exact,
            }
        )
    return rows, checks


def _rate(problem: Problem, model: str) -> float | None:
    """The rate of Table 2, with constant 1; None where the table has none."""
    if model == "shuffled":
        return shuffled_rate(problem, _EPSILON, _DELTA)
    if model == "central":
        return central_rate(problem, _EPSILON, _DELTA)
    try:
        return local_rate(problem, _EPSILON)
    except ConditionError:
        return None


def _same_for_all_lengths(rows: list[Row]) -> list[Check]:
    """In the shuffled and the central model the users needed for pointer chasing do not depend on the length."""
    checks = []
    for model in ("shuffled", "central"):
        chosen = [row for row in rows if row["problem"] == "PC(2, l)" and row["model"] == model]
        proven = [row["proven"] for row in chosen]
        where = f"l from {chosen[0]['parameter']:,} to {chosen[-1]['parameter']:,}"
        checks.append(equals(f"PC(2, l) is independent of l in the {model} model", where, max(proven), min(proven)))
    return checks


def _paragraphs(rows: list[Row], whole: list[Row]) -> list[str]:
    chasing = {row["model"]: row for row in rows if row["problem"] == "PC(2, l)"}
    jumping = {row["model"]: row for row in rows if row["problem"] == "MPJ(h^4, h)" and row["model"] != "local"}
    longest, highest = chasing["shuffled"], jumping["shuffled"]
    local = chasing["local"]
    digits = local["domain_ln"] / math.log(10)
    return [
        "For each problem the fewest users that succeed in 99 of 100 rounds were searched for, with a stated "
        "confidence; `balcer-cheu` in the shuffled model, `stability` in the central one, `unary` in the local one, "
        f"all with tight noise at epsilon = {_EPSILON:g}, delta = {_DELTA:g}.",
        f"Pointer chasing takes about {longest['users']:,} users in the shuffled model ({longest['proven']:,} proven, "
        f"{longest['paper']:,} by the constants of the paper's proof) and {chasing['central']['users']:,} in the "
        f"central one, whatever the length. In the local model the histogram route takes {local['users']:,} users for "
        f"length {local['parameter']:,}, where the domain has 10^{digits:,.0f} items; no non-interactive local "
        f"protocol takes fewer than a constant times {local['rate']:,.0f}.",
        f"Pointer jumping with h = {highest['parameter']} takes about {highest['users']:,} users in the shuffled model "
        f"and {jumping['central']['users']:,} in the central one.",
        "Large domains are not listed. Items that nobody holds are reported as exactly 0 by the shuffled and central "
        "protocols; in the local one the largest of their estimates is drawn by its order statistic. The search draws "
        "samples and noise and compares them as the protocol does; with the proven number of users rounds of the "
        "protocol itself are run, with tallies drawn from their distribution.",
        f"{whole[0]['rounds']:,} whole rounds of PC(2, 3) with {_UNCERTAIN_USERS} users make every message of all "
        f"{whole[0]['items']} items: {whole[0]['success']:.0%} of them succeed, "
        f"{whole[0]['success_exact']:.1%} are computed by integer arithmetic.",
    ]


def _figure(rows: list[Row]) -> Figure:
    panels = []
    for problem, title in (
        ("PC(2, l)", "pointer chasing PC(2, l), against l"),
        ("MPJ(h^4, h)", "pointer jumping MPJ(h^4, h), against h"),
    ):
        chosen = [row for row in rows if row["problem"] == problem]
        curves = []
        for model in ("local", "shuffled", "central"):
            mine = [row for row in chosen if row["model"] == model]
            name = {"local": "local, this route", "shuffled": "shuffled", "central": "central"}[model]
            curves.append(
                Curve(
                    name,
                    [(row["parameter"], row["users"]) for row in mine],
                    spread=[(row["users_low"], row["users_high"]) for row in mine],
                    group=model,
                )
            )
        shuffled = [row for row in chosen if row["model"] == "shuffled"]
        curves.append(
            Curve(
                "shuffled, Claim 14's constants",
                [(row["parameter"], row["paper"]) for row in shuffled],
                "formula",
                group="shuffled",
            )
        )
        bound = "non-interactive local bound" if problem == "PC(2, l)" else "local lower bound"
        curves.append(Curve(bound, _lower_bound(problem, shuffled), "formula", group="local"))
        panels.append(Panel(title, curves))
    return curve_figure(
        f"Users needed for pointer chasing against the length: {_spans(rows, 'PC(2, l)')}; and for pointer jumping "
        f"against the height: {_spans(rows, 'MPJ(h^4, h)')}.",
        panels_shown=panels,
        title="Table 2, measured: users that succeed in 99 of 100 rounds",
        x_title="l or h",
        y_title="users",
        caption=[
            f"epsilon = {_EPSILON:g}, delta = {_DELTA:g}, tight noise. Dots: found by search, bars: 95 % intervals.",
            "Dashed: Claim 14 with explicit constants; the local lower bounds with constant 1, which the papers leave "
            "open.",
        ],
    )


def _spans(rows: list[Row], problem: str) -> str:
    users = {
        model: [row["users"] for row in rows if (row["problem"], row["model"]) == (problem, model)]
        for model in ("local", "shuffled", "central")
    }
    return ", ".join(f"{span(numbers)} in the {model} model" for model, numbers in users.items())


def _lower_bound(problem: str, rows: list[Row]) -> list[tuple[float, float]]:
    """The local row of Table 2, at every parameter that was measured."""
    points = []
    for row in rows:
        size = row["parameter"]
        try:
            bound = local_rate(PointerChasing(2, size) if problem == "PC(2, l)" else PointerJumping(size**4, size), 1.0)
        except ConditionError:
            continue
        points.append((size, bound))
    return points


STUDY = Study(
    name="table2",
    title="Table 2: pointer chasing and pointer jumping in three models",
    source="Balcer and Cheu (2020), Separating Local & Shuffled Differential Privacy via Histograms, Table 2, Claim 14",
    claimed=[
        "Pointer chasing PC(k, l): every user holds a random one of two permutations of l numbers; follow them in "
        "turn, up to the k-th number. Pointer jumping MPJ(s, h): every user holds the labels of one of h levels of a "
        "tree with s children at each node; follow the labels from the root to a leaf. How many users does it take to "
        "answer rightly with probability 99/100?",
        "Local model, lower bounds up to a constant: l / e^epsilon for k = 2 and non-interactive protocols; "
        "h³ / (epsilon² log h) for s = h⁴, even if the analyzer may ask one user after the other.",
        "Shuffled model: O(log(1 / delta) / epsilon²), whatever k and l are, and O(h log h log(1 / delta) / epsilon²).",
        "Central model: the same with 1 / epsilon instead of 1 / epsilon².",
    ],
    reading=[
        "Left, the lines of the shuffled and the central model are flat: the length of the permutations does not "
        "matter. The dots of the local model belong to one way to solve the problem there, by a histogram over all "
        "pairs; the dashed line of the same colour is what no non-interactive local protocol can beat, up to a "
        "constant that the paper leaves open.",
        "For short permutations the local model needs few users, too: it protects every answer individually, while "
        "the shuffled model needs a minimum number of users before it protects anybody.",
        "Right, from h = 4 on the domain is too large for the histogram in the local model, so only the lower bound "
        "is drawn.",
    ],
    measure=_measure,
)
