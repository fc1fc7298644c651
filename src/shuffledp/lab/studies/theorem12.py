"""The study of Theorem 12 of Balcer and Cheu (2020): a histogram whose error does not depend on the domain size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies import token_checks
from shuffledp.lab.studies.checks import Check, at_most, equals, exceeded_rarely, quantile
from shuffledp.lab.studies.largest_errors import held_quantile
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure, span
from shuffledp.messages import Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram, theorem_12_alpha

_BETA = 0.05
_MAX_USERS = 1_000_000
_SHOWN_DELTA = 1e-6
_SHOWN_EPSILONS = (0.25, 1.0)
_GRID_SIZE = 1000
_SENT_AT_ONCE = 200_000
_HARD_SHARE = 0.9
_CROWD_SHARE = 0.5
_CROWD_HIDDEN = 0.2
_MESSAGE_USERS, _MESSAGE_SIZE = 2000, 20
"""The users and categories of the rounds in which every message is made, at the theorem's epsilon 1 and delta 1e-6."""

Rows = list[dict[str, Any]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Case:
    """The theorem's own parameters: the protocol is (2 epsilon, 2 delta)-private."""

    users: int
    epsilon: float
    delta: float
    size: int

    def protocol(self, calibration: str, categories: Categories) -> BalcerCheuHistogram:
        """The protocol with the theorem's noise, or with the least noise for the same overall target."""
        return BalcerCheuHistogram.calibrate(
            users=self.users,
            epsilon=2 * self.epsilon,
            delta=2 * self.delta,
            categories=categories,
            calibration=calibration,
        )

    def bound(self, *, simultaneous: bool) -> float:
        """Theorem 12 (ii) or (iii) in users."""
        share = theorem_12_alpha(self.users, self.epsilon, self.delta, _BETA, simultaneous=simultaneous)
        return self.users * share


def _measure(settings: Settings) -> Outcome:
    sizes = settings.pick((10, 1000, 100_000), tuple(10**exponent for exponent in range(1, 7)))
    across = [_Case(_MAX_USERS, epsilon, _SHOWN_DELTA, size) for epsilon in _SHOWN_EPSILONS for size in sizes]
    grid = [
        _Case(users, epsilon, delta, _GRID_SIZE)
        for users in settings.pick((20_000, _MAX_USERS), (20_000, 200_000, _MAX_USERS))
        for epsilon in settings.pick((0.3, 1.0), (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0))
        for delta in (1e-6, 1e-10)
        if users >= 100 / epsilon**2 * math.log(2 / delta)
    ]
    cases = [*across, *grid]
    rows: Rows = []
    checks: list[Check] = []
    named: dict[int, Categories] = {}
    for case in settings.part(0.0, 0.9).steps(cases, [1 + case.size / 20_000 for case in cases]):
        categories = named.setdefault(case.size, Categories.numbered(case.size))
        for calibration in ("paper", "tight"):
            protocol = case.protocol(calibration, categories)
            row, case_checks = _measured(case, protocol, settings, rows=2 * len(cases))
            rows.append(row)
            checks += case_checks
    whole, whole_checks = _whole_rounds(settings.part(0.9, 1.0))
    checks += [
        *whole_checks,
        *token_checks.enumeration_checks("Theorem 12 (i)", BalcerCheuHistogram),
        token_checks.audit_check("Theorem 12 (i)", BalcerCheuHistogram, settings),
        *token_checks.zero_checks("Theorem 12", BalcerCheuHistogram, settings),
    ]
    return Outcome(
        measured=_paragraphs(rows, whole),
        tables={"": ResultTable.of(rows), "messages": ResultTable.of(whole)},
        figures=[_domain_figure(rows[: 2 * len(across)]), _grid_figure(rows[2 * len(across) :])],
        checks=checks,
    )


@dataclass(frozen=True, eq=False)
class _Observed:
    """Rounds of one setting, with tallies drawn from their distribution."""

    held: list[int]
    """The true counts, some of them near the noise."""
    errors: Floats
    """By round, the error of each held category."""
    empty: float
    """The largest error of a category without users."""
    crowd: list[int]
    """Other true counts, as many as possible of them near the noise."""
    crowded: Floats
    """By round, the largest error with these counts."""
    noise_checks: list[Check]
    max_messages: int
    """The largest number of messages of a report."""

    @property
    def largest(self) -> Floats:
        """By round, the largest error of the held categories."""
        largest: Floats = self.errors.max(axis=1)
        return largest


def _measured(
    case: _Case, protocol: BalcerCheuHistogram, settings: Settings, *, rows: int = 1
) -> tuple[dict[str, Any], list[Check]]:
    """The row and the checks of one setting; ``rows`` is the number of settings of the study."""
    where = (
        f"epsilon {case.epsilon:g}, delta {case.delta:g}, {case.users:,} users, {case.size:,} categories, "
        f"{protocol.target.calibration} noise"
    )
    observed = _observed(case, protocol, settings, where)
    return _row(case, protocol, observed), _checks(case, protocol, observed, where, rows=rows)


def _observed(case: _Case, protocol: BalcerCheuHistogram, settings: Settings, where: str) -> _Observed:
    rounds = settings.pick(60, 400) if case.size < 100_000 else settings.pick(20, 100)
    noise = Binomial(case.users, protocol.absence)
    held, crowd = _held(noise, case.size), _crowd(noise, case.size)
    errors, empty, noise_of_held = _rounds(protocol, held, rounds, settings, where)
    crowded, _, noise_of_crowd = _rounds(protocol, crowd, rounds, settings, where)
    return _Observed(
        held,
        errors,
        empty,
        crowd,
        crowded.max(axis=1),
        [noise_of_held, noise_of_crowd],
        _max_messages(protocol, settings),
    )


def _row(case: _Case, protocol: BalcerCheuHistogram, observed: _Observed) -> dict[str, Any]:
    noise = Binomial(case.users, protocol.absence)
    error, low, high = quantile(observed.largest, 1 - _BETA)
    return {
        "users": case.users,
        "domain_size": case.size,
        "epsilon": case.epsilon,
        "delta": case.delta,
        "calibration": protocol.target.calibration,
        "noise_mean": noise.mean,
        "true_delta": token_checks.exact_delta(protocol, 2 * case.epsilon).high,
        "true_epsilon": protocol.guarantee.epsilon_at(2 * case.delta),
        "rounds": len(observed.errors),
        "error": error,
        "error_low": low,
        "error_high": high,
        "error_exact": held_quantile(noise, observed.held, 1 - _BETA),
        "error_crowded": quantile(observed.crowded, 1 - _BETA)[0],
        "crowded_categories": len(observed.crowd) - 1,
        "bound_each": case.bound(simultaneous=False),
        "bound_all": case.bound(simultaneous=True),
        "largest_error_of_empty": observed.empty,
        "most_messages": observed.max_messages,
        "bits_per_message": protocol.cost.bits_per_message,
    }


def _checks(case: _Case, protocol: BalcerCheuHistogram, observed: _Observed, where: str, *, rows: int) -> list[Check]:
    target = 2 * case.epsilon, 2 * case.delta
    checks = [
        *token_checks.privacy_checks("Theorem 12 (i)", where, protocol, *target),
        *_bound_checks(case, observed, where),
        *observed.noise_checks,
        *_error_checks(protocol, observed, where, rows=rows),
        at_most(
            "Theorem 12 (iv), messages",
            where,
            observed.max_messages,
            1 + case.size,
            evidence="the largest report that was made",
        ),
        at_most(
            "Theorem 12 (iv), bits of a message",
            where,
            protocol.cost.bits_per_message,
            max(1, math.ceil(math.log2(case.size))),
        ),
    ]
    if protocol.target.calibration == "paper":
        checks.append(token_checks.constant_check("Theorem 12", where, protocol, *target))
    return checks


def _bound_checks(case: _Case, observed: _Observed, where: str) -> list[Check]:
    """The bounds of parts (ii) and (iii) are as printed, and errors exceed them rarely."""
    single, all_together = case.bound(simultaneous=False), case.bound(simultaneous=True)
    printed, printed_together = (
        case.users * token_checks.printed_alpha(case.users, case.epsilon, case.delta, beta)
        for beta in (_BETA, _BETA / case.users)
    )
    crowded_claim = f"Theorem 12 (iii), {len(observed.crowd) - 1:,} counts near the noise"
    return [
        equals("Theorem 12 (ii), the printed bound", where, single, printed, tolerance=1e-12 * printed),
        equals(
            "Theorem 12 (iii), the printed bound",
            where,
            all_together,
            printed_together,
            tolerance=1e-12 * printed_together,
        ),
        *(
            exceeded_rarely(
                f"Theorem 12 (ii), error of a count of {count:,}",
                where,
                observed.errors[:, column],
                single,
                at_most=_BETA,
            )
            for column, count in enumerate(observed.held[:-3])
        ),
        exceeded_rarely("Theorem 12 (iii), all errors together", where, observed.largest, all_together, at_most=_BETA),
        exceeded_rarely(crowded_claim, where, observed.crowded, all_together, at_most=_BETA),
    ]


def _error_checks(protocol: BalcerCheuHistogram, observed: _Observed, where: str, *, rows: int) -> list[Check]:
    """Errors agree with their exact distribution, and categories without users have none."""
    exact = held_quantile(Binomial(protocol.users, protocol.absence), observed.held, 1 - _BETA)
    return [
        exceeded_rarely("the same error in every domain, as computed", where, observed.largest, exact, at_most=_BETA),
        *(
            token_checks.largest_error_check(claim, where, errors, protocol, counts, rows=2 * rows)
            for claim, errors, counts in (
                ("largest error as computed", observed.largest, observed.held),
                ("largest crowded error as computed", observed.crowded, observed.crowd),
            )
        ),
        equals(
            "categories without users are exactly 0",
            where,
            observed.empty,
            0.0,
            evidence=f"{len(observed.errors)} rounds",
        ),
    ]


def _whole_rounds(settings: Settings) -> tuple[Rows, list[Check]]:
    """Rounds in which every message goes through randomizer, permutation and analyzer."""
    case = _Case(_MESSAGE_USERS, 1.0, 1e-6, _MESSAGE_SIZE)
    rows: Rows = []
    checks: list[Check] = []
    for calibration in settings.steps(("paper", "tight")):
        protocol = case.protocol(calibration, Categories.numbered(case.size))
        held = _held(Binomial(case.users, protocol.absence), case.size)
        counts = np.zeros(case.size, dtype=np.int64)
        counts[: len(held)] = held
        values = np.repeat(np.arange(case.size), counts)
        bound = case.bound(simultaneous=True)
        for singly, rounds in ((False, settings.pick(40, 400)), (True, settings.pick(3, 10))):
            tallies = [
                token_checks.message_tally(protocol, values, settings.source, singly=singly) for _ in range(rounds)
            ]
            errors = np.array([token_checks.round_errors(protocol, tally, counts) for tally in tallies])
            largest = errors.max(axis=1)
            route = "one user at a time" if singly else "all users at once"
            where = (
                f"epsilon {case.epsilon:g}, delta {case.delta:g}, {case.users:,} users, {case.size} categories, "
                f"{calibration} noise, messages, {route}"
            )
            checks += [
                token_checks.noise_check("whole rounds: noise", where, protocol, counts, tallies),
                exceeded_rarely("Theorem 12 (iii), whole rounds", where, largest, bound, at_most=_BETA),
                token_checks.largest_error_check(
                    "whole rounds: largest error as computed", where, largest, protocol, held
                ),
                equals(
                    "whole rounds: categories without users are exactly 0",
                    where,
                    float(errors[:, len(held) :].max()),
                    0.0,
                    evidence=f"{rounds} rounds",
                ),
            ]
            rows.append(
                {
                    "calibration": calibration,
                    "randomizer": route,
                    "users": case.users,
                    "domain_size": case.size,
                    "rounds": rounds,
                    "error": quantile(largest, 1 - _BETA)[0],
                    "bound_all": bound,
                }
            )
    return rows, checks


def _held(noise: Binomial, size: int) -> list[int]:
    """At most nine counts: counts near the noise, as many as the users allow, and three that share all other users."""
    steps = (0.8, 0.0, 3.0, 5.0)
    wanted = [round(noise.mean + step * noise.deviation) for step in steps] + [round(noise.mean / 2), 1]
    hard: list[int] = []
    for count in wanted[: size - 4]:
        if sum(hard) + count <= _HARD_SHARE * noise.trials:
            hard.append(count)
    return [*hard, *_shared(noise.trials - sum(hard), 3)]


def _crowd(noise: Binomial, size: int) -> list[int]:
    """Half of the users in as many categories as possible, with counts that may be hidden; all others in one."""

    def categories_with(count: float) -> int:
        return max(1, min(size - 2, int(_CROWD_SHARE * noise.trials / count)))

    hidden = _CROWD_HIDDEN / categories_with(noise.mean)  # the probability that one count is hidden
    count = noise.trials - noise.mirrored.least_with_lower_tail(hidden)
    return [*[count] * categories_with(count), noise.trials - categories_with(count) * count]


def _shared(users: int, parts: int) -> list[int]:
    counts = [users // parts] * parts
    counts[0] += users - sum(counts)
    return counts


def _rounds(
    protocol: BalcerCheuHistogram, held: list[int], rounds: int, settings: Settings, where: str
) -> tuple[Floats, float, Check]:
    """The errors of held categories in every round, the largest error of all others, and the check of the noise."""
    counts = np.zeros(protocol.domain_size, dtype=np.int64)
    counts[: len(held)] = held
    errors, empty = np.empty((rounds, len(held))), 0.0
    tallies: list[Tally] = []
    for number in range(rounds):
        tally = protocol.sample_tally(counts, source=settings.source)
        off = token_checks.round_errors(protocol, tally, counts)
        errors[number] = off[: len(held)]
        empty = max(empty, float(off[len(held) :].max(initial=0.0)))
        tallies.append(Tally(tally.counts[:1000].copy(), tally.users, tally.secure))  # the part that the check uses
    return (
        errors,
        empty,
        token_checks.noise_check(f"noise of {len(held):,} held categories", where, protocol, counts, tallies),
    )


def _max_messages(protocol: BalcerCheuHistogram, settings: Settings) -> int:
    """The largest report of a few users."""
    users = max(2, _SENT_AT_ONCE // protocol.domain_size)
    reports = protocol.randomize_all(np.arange(users) % protocol.domain_size, source=settings.source)
    assert reports.offsets is not None  # noqa: S101
    return int(np.diff(reports.offsets).max())


def _paragraphs(rows: Rows, whole: Rows) -> list[str]:
    paper, tight = ([row for row in rows if row["calibration"] == kind] for kind in ("paper", "tight"))
    saved = [first["noise_mean"] / second["noise_mean"] for first, second in zip(paper, tight, strict=True)]
    fewer = [first["error"] / second["error"] for first, second in zip(paper, tight, strict=True)]
    used = [row["error_crowded"] / row["bound_all"] for row in paper]
    at_one = [row["true_epsilon"] for row in paper if row["epsilon"] == 1.0]
    shown = [row for row in rows if row["delta"] == _SHOWN_DELTA and row["users"] == _MAX_USERS]
    sizes = sorted({row["domain_size"] for row in rows})
    flat = [
        f"{span(row['error'] for row in chosen)} users at epsilon {epsilon:g} with {kind} noise"
        for epsilon in _SHOWN_EPSILONS
        for kind in ("paper", "tight")
        if (chosen := [row for row in shown if (row["epsilon"], row["calibration"]) == (epsilon, kind)])
    ]
    return [
        f"{min(row['rounds'] for row in rows)} to {max(row['rounds'] for row in rows)} rounds at each of {len(paper)} "
        "settings of users, categories, epsilon and delta; with the noise of the theorem (paper), and with the least "
        "noise that is as private by exact accounting (tight). epsilon and delta are those of the theorem: what is "
        "promised for the whole histogram is (2 epsilon, 2 delta). Tallies of these rounds are drawn from their "
        "distribution.",
        f"In {sum(row['rounds'] for row in whole):,} whole rounds of {_MESSAGE_USERS:,} users and {_MESSAGE_SIZE} "
        "categories every message is made by the randomizer, permuted with all others and counted: noise and errors "
        "are as computed there, too. The randomizer is audited, at one setting.",
        "(i) Delta is computed from the probability that is drawn, by integer arithmetic that shares no code with the "
        "accountant that chose it; for few users all data sets and outcomes are enumerated. At 2 epsilon it is at most "
        f"{max(row['true_delta'] / 2 / row['delta'] for row in paper):.1e} of the promised one with the theorem's "
        "noise; at the promised delta, where the theorem says 2, the histogram is private for an epsilon of "
        f"{min(at_one):.2f} to {max(at_one):.2f}. The same promise needs {min(saved):.0f} to {max(saved):.0f} times "
        "less noise.",
        f"(ii), (iii) From {sizes[0]:,} to {sizes[-1]:,} categories the largest error stays where it is: "
        f"{'; '.join(flat)}. With tight noise it is {min(fewer):.0f} to {max(fewer):.0f} times smaller.",
        "Where half of the users sit in categories whose counts the noise can just hide, the largest error comes to "
        f"{min(used):.0%} to {max(used):.0%} of the bound with the theorem's noise.",
        "(iv) No report had more than 1 + d messages, and a message takes "
        f"{max(row['bits_per_message'] for row in rows)} bits at {sizes[-1]:,} categories. A category without users "
        "was estimated as exactly 0 in every round, also with 20 users who omit a token with probability 1/32, where a "
        "wrong comparison would show in 53 of 100 rounds.",
    ]


def _domain_figure(rows: Rows) -> Figure:
    panels = []
    for epsilon in _SHOWN_EPSILONS:
        chosen = [row for row in rows if row["epsilon"] == epsilon]
        panels.append(Panel(f"epsilon = {epsilon:g}", _curves(chosen, "domain_size")))
    changes = [
        max(errors) / min(errors)
        for epsilon in _SHOWN_EPSILONS
        for kind in ("paper", "tight")
        if (errors := [row["error"] for row in rows if (row["epsilon"], row["calibration"]) == (epsilon, kind)])
    ]
    return curve_figure(
        "Largest error against the number of categories: the bound of Theorem 12 is the same in every domain, and the "
        f"measured errors change by a factor of at most {max(changes):.2f}; they lie at "
        f"{_shares_of_bound(rows, 'paper')} of the bound with the theorem's noise and at "
        f"{_shares_of_bound(rows, 'tight')} with tight noise.",
        panels_shown=panels,
        title="A private histogram: the error does not grow with the domain",
        x_title="categories d",
        y_title="largest error (users)",
        caption=[
            f"{_MAX_USERS:,} users, delta = {_SHOWN_DELTA:g}; the 95 % quantile of the error. Dashed: the bound.",
            "Crowded: half of the users in categories whose counts the noise can just hide. Bars: 95 % intervals.",
        ],
        size=(400, 340),
    )


def _grid_figure(rows: Rows) -> Figure:
    panels = []
    for delta in sorted({row["delta"] for row in rows}, reverse=True):
        chosen = [row for row in rows if row["delta"] == delta and row["users"] == _MAX_USERS]
        panels.append(Panel(f"delta = {delta:g}", _curves(chosen, "epsilon")))
    return curve_figure(
        "Largest error against epsilon: it falls as epsilon grows, and lies at "
        f"{_shares_of_bound(rows, 'paper')} of the bound with the theorem's noise and at "
        f"{_shares_of_bound(rows, 'tight')} with tight noise.",
        panels_shown=panels,
        title="Theorem 12 against epsilon",
        x_title="epsilon of the theorem (the histogram has 2 epsilon)",
        y_title="largest error (users)",
        caption=[f"{_MAX_USERS:,} users, {_GRID_SIZE:,} categories; the 95 % quantile of the error."],
        name="epsilon",
        size=(400, 340),
    )


def _shares_of_bound(rows: Rows, calibration: str) -> str:
    return span((row["error"] / row["bound_all"] for row in rows if row["calibration"] == calibration), ".0%")


def _curves(rows: Rows, x: str) -> list[Curve]:
    paper, tight = ([row for row in rows if row["calibration"] == kind] for kind in ("paper", "tight"))
    drawn = [Curve("Theorem 12 (iii)", [(row[x], row["bound_all"]) for row in paper], "formula", group="theorem")]
    for name, chosen in (("noise of the theorem", paper), ("tight noise", tight)):
        points = [(row[x], row["error"]) for row in chosen]
        spread = [(row["error_low"], row["error_high"]) for row in chosen]
        drawn.append(Curve(name, points, spread=spread, group=name))
    drawn.append(Curve("tight noise, crowded", [(row[x], row["error_crowded"]) for row in tight]))
    return drawn


STUDY = Study(
    name="theorem12",
    title="Theorem 12: a private histogram whose error does not grow with the domain",
    source="Balcer and Cheu (2020), Separating Local & Shuffled Differential Privacy via Histograms, Theorem 12",
    claimed=[
        "The private count of Theorem 11 is run for every category at once: a user sends one message of their own "
        "category, and with probability p close to 1 one more of each category. If there are at least (100 / "
        "epsilon²) ln(2 / delta) users, then",
        "(i) the histogram is (2 epsilon, 2 delta)-private in the shuffled model; (ii) each share is off by at most "
        "alpha as in Theorem 11, except with probability beta; (iii) all shares together are off by at most alpha "
        "for beta / n, whatever the size d of the domain, because a category without users is estimated as exactly "
        "0; (iv) each user sends at most 1 + d messages of O(log d) bits.",
    ],
    reading=[
        "The dashed line is the bound of part (iii) for beta = 0.05, in users (alpha times n). Measured errors must "
        "lie below it: the 95 % quantile of the largest error over all categories. That the lines of the "
        "first figure are flat is the statement of the theorem.",
        "The data are chosen to be hard: counts just below and just above the noise, which the threshold hides or "
        "shows at random; they are the same in every domain. In the crowded data half of the users are in categories "
        "with such counts. Larger domains allow more such categories, up to a limit set by the number of users, so "
        "this line first rises slightly.",
    ],
    measure=_measure,
)
