"""The part of the frontier study next to the central model: points, goals, and the optimum found by free optimization.

Everything is at epsilon 1 and delta 1e-6. The noise of a category does not depend on the numbers of users and
categories, so the rates in ``shuffledp.lab.free_clusters`` serve for every pair of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shuffledp.figures import Curve, Panel
from shuffledp.lab.free_clusters import DELTA, EPSILON, FreeClusters, found_optima
from shuffledp.lab.studies.checks import Check, at_least, at_most, mean_square_agrees, rmse
from shuffledp.lab.studies.study import Figure, Settings, curve_figure
from shuffledp.lab.studies.token_checks import message_tally
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.registry import find

USERS, CATEGORIES = 1_000_000, 1000
FEW_USERS, FEW_CATEGORIES = 100_000, 12
_SPLITS = (0.75, 0.82, 0.9, 0.94, 0.96)
_WEIGHTED = (0.5, 0.655, 0.75, 0.82)
_LARGEST_QUICK_TABLE = 240


@dataclass(frozen=True)
class Goal:
    """A protocol with options, and the largest error and number of messages that it may have."""

    users: int
    categories: int
    name: str
    options: dict[str, Any]
    messages: float
    error: float = math.inf
    over_central: float = math.inf
    """Maximum ratio to the error of the central mechanism that knows the number of users."""

    @property
    def protocol(self) -> HistogramProtocol:
        """The calibrated protocol."""
        return calibrated(self.name, self.users, self.categories, **self.options)

    @property
    def where(self) -> str:
        """The protocol and its setting in words."""
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        return f"{self.name}{options}, {self.users:,} users, {self.categories:,} categories"


GOALS = (
    Goal(USERS, CATEGORIES, "correlated-noise", {"split": 0.9}, 1.43, 3.12),
    Goal(USERS, CATEGORIES, "correlated-noise", {"split": 0.94}, 1.68, 2.99),
    Goal(USERS, CATEGORIES, "correlated-noise", {"split": 0.655, "weighted": True}, 1.13, 4.3),
    Goal(USERS, CATEGORIES, "shuffler-laplace", {}, 1.03, 2.80),
    Goal(FEW_USERS, FEW_CATEGORIES, "correlated-noise", {"split": 0.98}, 2.0, over_central=1.10),
)


def calibrated(name: str, users: int, categories: int, **options: Any) -> HistogramProtocol:
    """A histogram protocol at epsilon 1 and delta 1e-6."""
    protocol = find("histogram", name).calibrate(
        users=users, domain_size=categories, epsilon=EPSILON, delta=DELTA, **options
    )
    assert isinstance(protocol, HistogramProtocol)  # noqa: S101 - the question is a histogram
    return protocol


def messages_of(protocol: HistogramProtocol) -> float:
    """Messages per user, with the dummies of the shuffler."""
    return protocol.cost.messages_per_user + protocol.cost.dummies_per_user


def goal_checks(settings: Settings) -> tuple[list[dict[str, Any]], list[Check]]:
    """Every goal: predicted numbers, exact delta, and the error of whole rounds with every message."""
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    for goal in settings.steps(GOALS):
        protocol = goal.protocol
        messages, error = messages_of(protocol), protocol.expected_error().rmse
        central = calibrated("discrete-laplace", goal.users, goal.categories).expected_error().rmse
        checks += [
            at_most("messages per user", goal.where, messages, goal.messages),
            at_most("delta at epsilon 1", goal.where, protocol.guarantee.delta_at(EPSILON), DELTA),
        ]
        if math.isfinite(goal.error):
            checks.append(at_most("root mean squared error", goal.where, error, goal.error))
        if math.isfinite(goal.over_central):
            claim = "error over that of the central model that knows the number of users"
            checks.append(at_most(claim, goal.where, error / central, goal.over_central))
        errors = _errors_of_rounds(protocol, goal, settings)
        checks.append(mean_square_agrees("whole rounds: the error is as predicted", goal.where, errors, error))
        measured, low, high = rmse(errors)
        rows.append(
            {
                "users": goal.users,
                "categories": goal.categories,
                "protocol": goal.name,
                "options": ", ".join(f"{name} {value}" for name, value in goal.options.items()),
                "messages_per_user": messages,
                "most_messages": goal.messages,
                "predicted_error": error,
                "most_error": min(goal.error, goal.over_central * central),
                "measured_error": measured,
                "measured_low": low,
                "measured_high": high,
                "rounds": len(errors),
                "over_central": error / central,
            }
        )
    return rows, checks


def _errors_of_rounds(protocol: HistogramProtocol, goal: Goal, settings: Settings) -> np.ndarray[Any, Any]:
    """Errors of rounds in which every message is generated, permuted and counted; a row for each round.

    The quick form generates the messages of small rounds only, and draws the tallies of the others.
    """
    values = np.arange(goal.users) % goal.categories
    counts = protocol.summary(values)
    rounds = math.ceil(settings.pick(2_000, 12_000) / goal.categories)
    few = goal.users <= FEW_USERS
    if settings.quick:
        rounds = min(rounds, 8 if few else rounds)
        tallies = (protocol.sample_tally(counts, source=settings.source) for _ in range(20 * rounds if few else rounds))
    else:
        rounds = min(rounds, 200 if few else rounds)
        tallies = (message_tally(protocol, values, settings.source) for _ in range(rounds))
    return np.stack([protocol.estimate(tally).counts - counts for tally in tallies])


def optimum_points(settings: Settings) -> tuple[list[FreeClusters], list[Check]]:
    """The optima that were found; each delta is confirmed from positive terms, those of large tables in full runs."""
    optima = found_optima()
    checks = []
    for point in settings.steps(optima):
        if not settings.quick or point.sufficient_length <= _LARGEST_QUICK_TABLE:
            where = f"{point.messages:.1f} messages per category, error {math.sqrt(point.variance):.3f}"
            claim = "free optimization: delta by positive convolutions"
            checks.append(at_most(claim, where, point.certified_delta(EPSILON), DELTA))
    return optima, checks


def fewest_messages_at(optima: Sequence[FreeClusters], variance: float) -> float:
    """Messages per category of the optimum at this variance, on the chords between points; NaN beyond the ends."""
    ordered = sorted(optima, key=lambda point: point.variance)
    variances, messages = [point.variance for point in ordered], [point.messages for point in ordered]
    return float(np.interp(variance, variances, messages, left=math.nan, right=math.nan))


def near_optimum(settings: Settings) -> tuple[list[dict[str, Any]], list[Check], Figure]:
    """Points of the protocols beside the optimum, for a million users and 1,000 categories."""
    optima, checks = optimum_points(settings)
    forms: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "clusters of equally likely sizes": [("correlated-noise", {"split": split}) for split in _SPLITS],
        "clusters with weights, and singles": [
            ("correlated-noise", {"split": split, "weighted": True}) for split in _WEIGHTED
        ],
        "uniform-blanket": [("uniform-blanket", {})],
        "augmented shuffler": [("shuffler-laplace", {})],
        "central, total known": [("discrete-laplace", {})],
    }
    rows, lines = [], []
    for form, members in forms.items():
        points = []
        for name, options in members:
            protocol = calibrated(name, USERS, CATEGORIES, **options)
            messages, error = messages_of(protocol), protocol.expected_error().rmse
            points.append((messages, error))
            row: dict[str, Any] = {"form": form, "options": str(options), "messages_per_user": messages, "error": error}
            if name == "correlated-noise":
                variance = protocol.expected_error(estimator="unbiased").rmse ** 2
                noise, least = (messages - 1) * USERS / CATEGORIES, fewest_messages_at(optima, variance)
                if math.isfinite(least):
                    row |= {"noise_messages": noise, "noise_messages_of_the_optimum": least}
                    claim = "noise messages over those of the optimum found at the same error"
                    checks.append(at_least(claim, f"{form}, {options}", noise / least, 1.0))
            rows.append(row)
        lines.append(Curve(form, sorted(points), "measured" if len(points) > 1 else "mark"))
    best = [_shown(point) for point in optima]
    rows += [{"form": "optimum found", "messages_per_user": x, "error": y} for x, y in best]
    lines.append(Curve("optimum found by free optimization", sorted(best), "formula"))
    figure = curve_figure(
        "Error against messages per user near the central model. Clusters of equally likely sizes lie above a "
        "dashed line, the optimum found by free optimization; weights and singles lie between. The augmented "
        "shuffler has the error of the central model with little more than one message.",
        panels_shown=[Panel("", lines)],
        title="How near the least number of messages is",
        x_title="messages per user, dummies of an augmented shuffler included",
        y_title="root mean squared error of a count (users)",
        caption=[
            f"{USERS:,} users, {CATEGORIES:,} categories, epsilon = {EPSILON:g}, delta = {DELTA:g}. Estimates are "
            "projected onto the number of users.",
            "Dashed: the best noise that free optimization over all clusters of messages found; not a proven optimum.",
        ],
        name="optimum",
        x_log=False,
        y_log=False,
        size=(620, 420),
    )
    return rows, checks, figure


def _shown(point: FreeClusters) -> tuple[float, float]:
    """Messages per user and error after the projection."""
    return 1 + point.messages * CATEGORIES / USERS, math.sqrt(point.variance * (1 - 1 / CATEGORIES))
