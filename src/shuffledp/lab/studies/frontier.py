"""The study of error against communication: all histogram protocols, planned and measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.figures import LIGHT, Theme
from shuffledp.figures import frontier as draw_frontier
from shuffledp.lab.studies.checks import Check, at_least, at_most, equals, mean_square_agrees, rmse
from shuffledp.lab.studies.near_optimum import GOALS, goal_checks, near_optimum
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, span
from shuffledp.lab.studies.token_checks import message_tally, noise_check, privacy_checks
from shuffledp.planning import Histogram, Plan, Plans, plan
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.histogram.hadamard_blanket import HadamardBlanketHistogram
from shuffledp.protocols.histogram.hashed_blanket import HashedBlanketHistogram
from shuffledp.protocols.histogram.local_hashing import LocalHashing
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.histogram.solh import ShuffledLocalHashing
from shuffledp.protocols.histogram.unary import UnaryEncoding
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.registry import find

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 1e-6
_QUICK = ((10_000, 1000), (10_000, 16))
_FULL = (*_QUICK, (1_000_000, 16), (1_000_000, 1000), (1_000_000, 100_000))
"""Numbers of users and categories; the figure of the first pair is the main one."""

_RARE = {"balcer-cheu": 0.01, "stability": 0.01, "sample-and-threshold": 0.01, "count-min": 0.01}
"""Relative allowance on the mean square error of protocols whose predicted error includes rare events that the rounds
may not show: counts that pass a threshold, or cells that categories share (the prediction of count-min averages over at
most 300 categories)."""
_BLANKET_MESSAGES = 42.65
"""Blanket messages that each category needs, at this epsilon and delta, in the limit of many categories."""
_MANY, _MANY_RATIO, _FEW_RATIO = 1000, 1.15, 1.2
"""Limits of the error of correlated noise over that of the central model, from that many categories on and below. The
number of users is public, which helps the central model more, and most with few categories."""
_MESSAGE_PAIR, _MESSAGE_ROUNDS = (10_000, 16), 12
"""Users and categories of the rounds in which every message is generated, and the number of these rounds."""
_REPORTS_ONE_BY_ONE = 500
_MAX_MESSAGES = 1e5
_MAX_HASHES = 2e9

_HASHED = (
    ShuffledLocalHashing,
    HashedBlanketHistogram,
    LocalHashing,
    HadamardBlanketHistogram,
    CountMinHistogram,
    UnaryEncoding,
)
"""Protocols whose rounds are simulated report by report."""


def _measure(settings: Settings) -> Outcome:
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    figures: list[Figure] = []
    whole: list[dict[str, Any]] = []
    cases = settings.pick(_QUICK, _FULL)
    shares = [_work(users, size) for users, size in cases]
    goals, goals_kept = goal_checks(settings.part(0.0, 0.15))
    points_near, near_checks, near_figure = near_optimum(settings.part(0.15, 0.25))
    checks += goals_kept + near_checks
    for number, (users, size) in enumerate(cases):
        start, end = (0.25 + 0.75 * sum(shares[:step]) / sum(shares) for step in (number, number + 1))
        plans = plan(Histogram(users, size), epsilon=_EPSILON, delta=_DELTA)
        points = _points(plans, settings.part(start, end))
        rows += [point.row() for point in points]
        checks += [point.check() for point in points if len(point.errors)] + _readings(plans) + _privacy_checks(plans)
        if (users, size) == _MESSAGE_PAIR:
            whole, whole_checks = _whole_rounds(plans, settings)
            checks += whole_checks
        figures.append(_figure(plans, points, "" if number == 0 else f"n{_short(users)}-d{_short(size)}"))
    figures.insert(1, near_figure)
    return Outcome(
        measured=[*_paragraphs(rows, whole), *_goal_paragraphs(goals, points_near)],
        tables={
            "": ResultTable.of(rows),
            "messages": ResultTable.of(whole),
            "goals": ResultTable.of(goals),
            "optimum": ResultTable.of(points_near),
        },
        figures=figures,
        checks=checks,
    )


def _work(users: int, size: int) -> float:
    """The approximate duration of a pair, for the progress."""
    return 1.0 + users / 2e5 + size / 5e3


@dataclass(frozen=True, eq=False)
class _Point:
    """A plan, what is predicted for the data, and the errors that were measured."""

    users: int
    domain_size: int
    plan: Plan
    predicted: float
    errors: Floats
    """The errors of all categories in all rounds; empty if a round takes too long."""
    rounds: int
    on_frontier: bool

    @property
    def measured(self) -> float:
        return rmse(self.errors)[0]

    @property
    def shown(self) -> float:
        """The error in the figure: measured if available, else predicted."""
        return self.measured if len(self.errors) else self.predicted

    def row(self) -> dict[str, Any]:
        error, low, high = rmse(self.errors) if len(self.errors) else (None, None, None)
        return {
            "users": self.users,
            "domain_size": self.domain_size,
            "protocol": self.plan.protocol.name,
            "model": _model(self.plan),
            "noise": self.plan.variant,
            "messages_per_user": self.plan.cost.messages_per_user,
            "bytes_per_user": self.plan.cost.bytes_per_user,
            "planned_error": self.plan.expected.rmse,
            "predicted_error": self.predicted,
            "measured_error": error,
            "measured_low": low,
            "measured_high": high,
            "rounds": self.rounds,
            "on_frontier": self.on_frontier,
        }

    def check(self) -> Check:
        """The mean square of the errors is as predicted."""
        return mean_square_agrees(
            "the error is as predicted",
            f"{self.plan.protocol.name} ({self.plan.variant}), {_setting(self.users, self.domain_size)}",
            self.errors.reshape(self.rounds, -1),
            self.predicted,
            allowance=_RARE.get(self.plan.protocol.name, 0.0),
        )


def _points(plans: Plans, settings: Settings) -> list[_Point]:
    """Every plan, measured on users who are spread evenly over the categories."""
    users, size = plans.question.users, _size(plans)
    counts = np.full(size, users // size, dtype=np.int64)
    counts[: users % size] += 1
    points = []
    for planned in settings.steps(plans.plans):
        candidate = _repeatable(planned, settings)
        rounds = _rounds(candidate, users, size, settings)
        errors = [_errors(candidate, counts, settings) for _ in range(rounds)]
        points.append(
            _Point(
                users,
                size,
                candidate,
                _histogram(candidate).expected_error(counts=counts).rmse,
                np.concatenate(errors) if errors else np.zeros(0),
                rounds,
                planned in plans.frontier,
            )
        )
    return points


def _privacy_checks(plans: Plans) -> list[Check]:
    """Privacy of the noise that balcer-cheu draws, by integer arithmetic."""
    checks = []
    for candidate in plans.plans:
        if isinstance(candidate.protocol, BalcerCheuHistogram):
            where = f"balcer-cheu ({candidate.variant}), {_setting(plans.question.users, _size(plans))}"
            checks += privacy_checks("balcer-cheu", where, candidate.protocol, _EPSILON, _DELTA)
    return checks


def _whole_rounds(plans: Plans, settings: Settings) -> tuple[list[dict[str, Any]], list[Check]]:
    """Rounds of the shuffled protocols in which every message is generated, permuted and counted."""
    users, size = plans.question.users, _size(plans)
    values = np.arange(users) % size
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    for planned in plans.plans:
        candidate = _repeatable(planned, settings)
        protocol = _histogram(candidate)
        numbers = users * candidate.cost.messages_per_user * protocol.message_format.columns
        if protocol.trust != "shuffled" or protocol.trusts_shuffler or numbers > settings.pick(4e5, 1e7):
            continue
        counts = protocol.summary(values)
        tallies = [message_tally(protocol, values, settings.source) for _ in range(_MESSAGE_ROUNDS)]
        errors = np.stack([protocol.estimate(tally).counts - counts for tally in tallies])
        predicted = protocol.expected_error(counts=counts).rmse
        where = f"{protocol.name} ({candidate.variant}), {_setting(users, size)}, messages"
        claim = "whole rounds: the error is as predicted"
        checks.append(mean_square_agrees(claim, where, errors, predicted, allowance=_RARE.get(protocol.name, 0.0)))
        if isinstance(protocol, BalcerCheuHistogram):
            few = values[:_REPORTS_ONE_BY_ONE]
            singly = [message_tally(protocol, few, settings.source, singly=True)]
            checks += [
                noise_check("whole rounds: noise", where, protocol, counts, tallies),
                noise_check("reports made one by one: noise", where, protocol, protocol.summary(few), singly),
            ]
        rows.append(
            {
                "protocol": protocol.name,
                "noise": candidate.variant,
                "users": users,
                "domain_size": size,
                "rounds": _MESSAGE_ROUNDS,
                "measured_error": float(np.sqrt(np.mean(errors**2))),
                "predicted_error": predicted,
            }
        )
    return rows, checks


def _repeatable(candidate: Plan, settings: Settings) -> Plan:
    """The plan, for count-min with hash functions drawn from the study's source.

    The calibration of count-min draws hash functions from the system's randomness, so they differ in every run.
    """
    protocol = candidate.protocol
    if not isinstance(protocol, CountMinHistogram):
        return candidate
    drawn = AffineHashes.for_domain(protocol.domain_size, protocol.buckets).draw(protocol.rows, settings.source)
    hashes = tuple((int(u), int(v)) for u, v in zip(*drawn, strict=True))
    return replace(candidate, protocol=replace(protocol, hashes=hashes))


def _errors(candidate: Plan, counts: NDArray[np.int64], settings: Settings) -> Floats:
    protocol = _histogram(candidate)
    errors: Floats = protocol.estimate(protocol.sample_tally(counts, source=settings.source)).counts - counts
    return errors


def _histogram(candidate: Plan) -> HistogramProtocol:
    assert isinstance(candidate.protocol, HistogramProtocol)  # noqa: S101 - the question is a histogram
    return candidate.protocol


def _rounds(candidate: Plan, users: int, size: int, settings: Settings) -> int:
    """The number of rounds that take at most about a second, by a deterministic estimate; 0 if one takes too long."""
    protocol, locally_hashed = candidate.protocol, isinstance(candidate.protocol, LocalHashing)
    if candidate.cost.messages_per_user > _MAX_MESSAGES or (locally_hashed and users * size > _MAX_HASHES):
        return 0
    seconds = 1e-3 + 1.5e-6 * size
    if isinstance(protocol, _HASHED):
        seconds += 4e-7 * users + 1.2e-5 * size + (7e-9 * users * size if locally_hashed else 0.0)
    least = max(1, math.ceil(160 / size))
    return min(max(least, round(settings.pick(0.02, 0.5) / seconds)), 400)


def _readings(plans: Plans) -> list[Check]:
    """Check what the page of this study states about the planned errors and costs."""
    users, size = plans.question.users, _size(plans)
    where = _setting(users, size)
    chosen = [candidate for candidate in plans.plans if not candidate.reference]
    line = plans.frontier
    below_frontier = sum(
        all(
            candidate.cost.bytes_per_user < other.cost.bytes_per_user or candidate.expected.rmse < other.expected.rmse
            for other in line
        )
        for candidate in chosen
    )
    steps = [after.expected.rmse / before.expected.rmse for before, after in pairwise(line)]
    default, central, blanket = (
        _find(plans, name) for name in ("correlated-noise", "discrete-laplace", "uniform-blanket")
    )
    local = min(candidate.expected.rmse for candidate in plans.plans if candidate.protocol.trust == "local")
    per_category = 1 + _BLANKET_MESSAGES * size / users
    checks = [
        at_most("more bytes, less error: the largest step of the frontier", where, max(steps), 1.0),
        at_most("plans that lie below the frontier", where, below_frontier, 0),
        at_most(
            "correlated-noise: error over that of the central model",
            where,
            default.expected.rmse / central.expected.rmse,
            _MANY_RATIO if size >= _MANY else _FEW_RATIO,
        ),
        equals(
            f"uniform-blanket sends 1 + {_BLANKET_MESSAGES} d/n messages",
            where,
            blanket.cost.messages_per_user,
            per_category,
            tolerance=0.005 * per_category,
        ),
        at_least("the local model: error over the best shuffled one", where, local / line[-1].expected.rmse, 30.0),
    ]
    if size <= users / 500:
        messages = default.cost.messages_per_user
        checks.append(at_most("correlated-noise: messages per user where d <= n/500", where, messages, 2.0))
    return checks


def _find(plans: Plans, name: str) -> Plan:
    """The default form of a protocol."""
    kind = find("histogram", name)
    return next(
        candidate for candidate in plans.plans if isinstance(candidate.protocol, kind) and candidate.variant == "tight"
    )


def _figure(plans: Plans, points: list[_Point], name: str) -> Figure:
    users, size = plans.question.users, _size(plans)
    unmeasured = [f"{point.plan.protocol.name} ({point.plan.variant})" for point in points if not len(point.errors)]
    caption = [
        f"{users:,} users, {size:,} categories, epsilon = {_EPSILON:g}, delta = {_DELTA:g}. Dots: measured. "
        "Lower and further left is better.",
        "Dashed: the Pareto frontier of the shuffled protocols, with planned errors."
        + (f" Only planned: {', '.join(unmeasured)}." if unmeasured else ""),
    ]
    dots = [
        (
            point.plan.protocol.name,
            _model(point.plan),
            point.plan.calibration,
            point.plan.cost.bytes_per_user,
            point.shown,
        )
        for point in points
    ]
    edge = [(candidate.cost.bytes_per_user, candidate.expected.rmse) for candidate in plans.frontier]

    def draw(suffix: str, theme: Theme = LIGHT) -> bytes:
        return draw_frontier(
            suffix,
            points=dots,
            edge=edge,
            title=f"Error and communication of a histogram of {size:,} categories",
            x_title="bytes per user",
            y_title="root mean squared error of a count (users)",
            caption=caption,
            theme=theme,
        )

    best = plans.plans[0]
    ratios = {
        model: span((error / best.expected.rmse for error in errors), ".2g")
        for model in ("local", "central")
        if (errors := [candidate.expected.rmse for candidate in plans.plans if candidate.protocol.trust == model])
    }
    others = " and ".join(f"{ratio} times that in the {model} model" for model, ratio in ratios.items())
    return Figure(
        f"Error against bytes per user for all histogram protocols, {users:,} users and {size:,} categories. The least "
        f"error of the shuffled ones is that of {best.protocol.name}; errors are {others}.",
        draw,
        name,
    )


def _model(candidate: Plan) -> str:
    return "counting shuffler" if candidate.protocol.trusts_shuffler else str(candidate.protocol.trust)


def _size(plans: Plans) -> int:
    return int(plans.question.settings()["domain_size"])


def _setting(users: int, size: int) -> str:
    return f"{users:,} users, {size:,} categories"


def _short(number: int) -> str:
    exponent = round(math.log10(number))
    return f"1e{exponent}" if number == 10**exponent and exponent > 3 else str(number)


def _paragraphs(rows: list[dict[str, Any]], whole: list[dict[str, Any]]) -> list[str]:
    measured = [row for row in rows if row["measured_error"] is not None]
    settings = list(dict.fromkeys((row["users"], row["domain_size"]) for row in rows))
    deviations = [abs(row["measured_error"] / row["predicted_error"] - 1) for row in measured]
    words = [
        f"All histogram protocols with every setting that the planner tries, at {len(settings)} pairs of users and "
        f"categories: {len(rows)} candidates, of which {len(measured)} were run on users spread evenly over the "
        f"categories, {sum(row['rounds'] for row in measured):,} rounds in all. Measured errors are within "
        f"{max(deviations):.1%} of those predicted, half of them within {float(np.median(deviations)):.1%}. Tallies "
        "of these rounds are drawn from the distribution that they have in a whole round.",
        f"For {len(whole)} shuffled candidates at {_setting(*_MESSAGE_PAIR)} whole rounds were run as well, "
        f"{_MESSAGE_ROUNDS} each: every message is generated, permuted with all others and counted. Errors are as "
        "predicted, too.",
    ]
    words += [_setting_paragraph(rows, users, size) for users, size in settings]
    planned = [row for row in rows if abs(row["planned_error"] / row["predicted_error"] - 1) > 0.01]
    if planned:
        listed = "; ".join(
            f"{row['protocol']} ({row['noise']}) at {_setting(row['users'], row['domain_size'])} plans "
            f"{row['planned_error']:.3g} and has {row['predicted_error']:.3g}"
            for row in planned
        )
        words.append(
            "The planner does not know the data. For protocols with a threshold it plans with a category that is "
            f"well above it, for count-min with one that shares no cell; on this data that differs: {listed}."
        )
    return words


def _goal_paragraphs(goals: list[dict[str, Any]], near: list[dict[str, Any]]) -> list[str]:
    """The numbers that must hold, and the distance from the optimum found by free optimization."""
    listed = "; ".join(
        f"{row['protocol']}{' (' + row['options'] + ')' if row['options'] else ''} at "
        f"{_setting(row['users'], row['categories'])}: {row['messages_per_user']:.3f} messages per user "
        f"(at most {row['most_messages']:g}), error {row['predicted_error']:.3f} (at most {row['most_error']:.3g}; "
        f"{row['over_central']:.3f} times the central one), measured {row['measured_error']:.3f} in "
        f"{row['rounds']:,} rounds"
        for row in goals
    )
    excess = {
        form: span(
            (
                row["noise_messages"] / row["noise_messages_of_the_optimum"] - 1
                for row in near
                if row["form"] == form and row.get("noise_messages")
            ),
            ".1%",
        )
        for form in dict.fromkeys(row["form"] for row in near if row.get("noise_messages"))
    }
    more = "; ".join(f"{form}: {share}" for form, share in excess.items())
    return [
        f"The {len(GOALS)} goals: {listed}.",
        "Every noise that users can add in independent shares consists of Poisson numbers of clusters of messages. "
        "Free optimization over the rates of all clusters found noise with the fewest messages at each error; it is "
        f"not proven optimal, its delta is exact. Noise messages above it, at the same error: {more}.",
    ]


def _setting_paragraph(rows: list[dict[str, Any]], users: int, size: int) -> str:
    here = [row for row in rows if (row["users"], row["domain_size"]) == (users, size)]
    line = sorted((row for row in here if row["on_frontier"]), key=lambda row: float(row["bytes_per_user"]))
    first, last = line[0], line[-1]
    local = min(row["planned_error"] for row in here if row["model"] == "local")
    central = min(row["planned_error"] for row in here if row["model"] == "central")
    return (
        f"{_setting(users, size)}: the least bytes, {first['bytes_per_user']:.3g} a user, are those of "
        f"{first['protocol']} with an error of {first['planned_error']:.2f} users; the least error, "
        f"{last['planned_error']:.2f}, is that of {last['protocol']} ({last['noise']}) with "
        f"{last['bytes_per_user']:.3g} bytes in {last['messages_per_user']:.3g} messages. The central model has "
        f"{central:.2f}, the local one {local:,.0f}."
    )


STUDY = Study(
    name="frontier",
    title="Error against communication: which histogram protocol when",
    source="The histogram protocols of shuffledp, with the least noise and with the constants of their papers",
    claimed=[
        "A histogram in the shuffled model needs one short message per user for an error far below that of the local "
        "model, or more messages for an error close to that of the central model. Which protocol is best depends on "
        "the number of users n and of categories d.",
        "With 500 users or more for each category, correlated noise has an error at most a fifth above that of the "
        "central model, with one or two messages. With fewer, each category still needs its noise, about "
        f"{_BLANKET_MESSAGES:.0f} messages for the uniform blanket at epsilon 1 and delta 1e-6: messages grow with d/n."
        " Balcer and Cheu send about d.",
    ],
    reading=[
        "Each dot is a protocol with one setting of its noise. Down is less error, left is fewer bytes. The dashed "
        "line joins those shuffled protocols that no other dominates. Protocols of the local and of the central "
        "model, and those with a shuffler that counts or adds dummies, are there to compare: they need other trust.",
        "Dots are measured: the root of the mean squared error over all categories and rounds. The line is what the "
        "planner predicts without any data, so the dots of the frontier must lie on its corners.",
        "The second figure shows the corner near the central model: the forms of correlated noise beside the optimum "
        "that free optimization found, which is dashed, and the references with other trust.",
        "Where a category holds fewer users than a threshold (Balcer and Cheu, stability, sample and threshold), "
        "nothing of it is reported: the error is then the count itself, and looks small only because the counts are.",
    ],
    measure=_measure,
)
