"""Means: users for a Bernoulli mean in all models, and the mean of numbers by a histogram and directly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.figures import Curve, Panel
from shuffledp.lab.bounds.bernoulli_mean import (
    alpha_lower,
    exact_local_users_lower,
    local_users_lower,
    randomized_bits_success,
    users_lower,
)
from shuffledp.lab.studies.checks import Check, agrees, at_least, at_most, likely, quantile, rarely, rmse
from shuffledp.lab.studies.study import Figure, Settings, curve_figure
from shuffledp.planning.sample_size import share_radius, users_for_share
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.count.randomized_response import RandomizedResponse
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.registry import find
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.randomness import binomial

DELTA = 1e-6
PROBABILITY = 0.95
EPSILONS = (1.0, 0.1)
_PROTOCOLS = {"local": "randomized-response", "shuffled": "correlated-noise", "central": "discrete-laplace"}
_LEVELS_USERS = 10_000

Row = dict[str, Any]


def bernoulli(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The 95 % quantile of the error of a population's share, at mean 1/2, in the three models."""
    sizes = settings.pick((1_000, 100_000), (1_000, 10_000, 100_000))
    rows: list[Row] = []
    checks: list[Check] = []
    cases = [(epsilon, trust, users) for epsilon in EPSILONS for trust in _PROTOCOLS for users in sizes]
    for epsilon, trust, users in settings.steps(cases):
        protocol = find("count", _PROTOCOLS[trust]).calibrate(users=users, epsilon=epsilon, delta=DELTA)
        assert isinstance(protocol, CountProtocol)  # noqa: S101
        row, case_checks = _measured(protocol, epsilon, settings)
        rows.append(row)
        checks += case_checks
    return rows, checks


def _measured(protocol: CountProtocol, epsilon: float, settings: Settings) -> tuple[Row, list[Check]]:
    users, rounds = protocol.users, settings.pick(400, 2000)
    errors = share_errors(protocol, 0.5, rounds, settings)
    alpha, low, high = quantile(errors, PROBABILITY)
    radius = share_radius(protocol, 1 - PROBABILITY)
    local = protocol.trust == "local"
    least = alpha_lower(users, PROBABILITY, epsilon if local else math.inf)
    where = f"{protocol.name}, {users:,} users, epsilon {epsilon:g}, mean 1/2"
    row = {
        "model": protocol.trust,
        "protocol": protocol.name,
        "epsilon": epsilon,
        "users": users,
        "rounds": rounds,
        "alpha": alpha,
        "alpha_low": low,
        "alpha_high": high,
        "alpha_proven": radius,
        "alpha_at_least": least,
    }
    checks = [
        rarely(
            "The proven error of the mean is exceeded in 5 of 100 rounds at most",
            where,
            failures=int(np.count_nonzero(errors > radius)),
            rounds=rounds,
            at_most=1 - PROBABILITY,
        ),
        rarely(
            "No more than 95 of 100 rounds stay below the lower bound on alpha",
            where,
            failures=int(np.count_nonzero(errors <= least)),
            rounds=rounds,
            at_most=PROBABILITY,
        ),
    ]
    if isinstance(protocol, RandomizedResponse):
        success = randomized_bits_success(users, float(protocol.blanket) / 2, 0.5 - least, least)
        checks.append(
            at_most("Local lower bound: success within alpha", where, success, PROBABILITY, evidence="computed exactly")
        )
    return row, checks


def share_errors(protocol: CountProtocol, mean: float, rounds: int, settings: Settings) -> NDArray[np.float64]:
    """Errors of the population's mean: a sample is drawn, then a round is run on it."""
    users = protocol.users
    samples = binomial(users, mean, rounds, settings.source)
    errors = np.empty(rounds)
    for number, ones in enumerate(int(sample) for sample in samples):
        tally = protocol.sample_tally(np.array([users - ones, ones]), source=settings.source)
        errors[number] = abs(protocol.estimate(tally).value / users - mean)
    return errors


def planned(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The planner's numbers of users for a mean within alpha, compared with lower bounds and simulated rounds."""
    rows: list[Row] = []
    checks: list[Check] = []
    for alpha in settings.steps(settings.pick((0.03,), (0.1, 0.03, 0.01))):
        for trust in ("local", "shuffled", "central"):
            size = users_for_share(within=alpha, probability=PROBABILITY, epsilon=1.0, delta=DELTA, trust=trust)
            protocol = size.protocol
            assert isinstance(protocol, CountProtocol)  # noqa: S101
            local = trust == "local"
            least = exact_local_users_lower(alpha, PROBABILITY, 1.0) if local else users_lower(alpha, PROBABILITY)
            rounds = settings.pick(200, 1000)
            errors = share_errors(protocol, 0.5, rounds, settings)
            where = f"{trust} model, within {alpha:g} with probability {PROBABILITY:g}, epsilon 1, delta {DELTA:g}"
            rows.append(
                {
                    "model": trust,
                    "alpha": alpha,
                    "protocol": protocol.name,
                    "users_planned": size.users,
                    "users_at_least": least,
                    "success": float(np.mean(errors <= alpha)),
                }
            )
            checks += [
                at_least("Planned users are not below the lower bound", where, size.users, least),
                likely(
                    "Planned users are enough",
                    where,
                    successes=int(np.count_nonzero(errors <= alpha)),
                    rounds=rounds,
                    at_least=PROBABILITY,
                ),
            ]
    return rows, checks


def mean_figure(rows: list[Row]) -> Figure:
    """Users against alpha, a panel for each epsilon."""
    panels = []
    for epsilon in EPSILONS:
        curves = []
        for trust in _PROTOCOLS:
            chosen = sorted((row for row in rows if (row["epsilon"], row["model"]) == (epsilon, trust)), key=_alpha)
            curves.append(Curve(trust, [(row["alpha"], row["users"]) for row in chosen], group=trust))
        widths = sorted(row["alpha"] for row in rows if row["epsilon"] == epsilon)
        span = [widths[0] * (widths[-1] / widths[0]) ** (step / 20) for step in range(21)]
        span = [alpha for alpha in span if alpha < 0.5]
        local = [(alpha, local_users_lower(alpha, PROBABILITY, epsilon)) for alpha in span]
        curves += [
            Curve("local, lower bound", local, "formula", group="local"),
            Curve("any, lower bound", [(alpha, users_lower(alpha, PROBABILITY)) for alpha in span], "formula"),
        ]
        panels.append(Panel(f"epsilon = {epsilon:g}", curves))
    return curve_figure(
        "Users needed for the mean of bits against the error alpha: the shuffled and the central line "
        "coincide, the local one lies far above, the more so for a smaller epsilon.",
        panels_shown=panels,
        title="Users for a mean of bits within alpha, with probability 95 %",
        x_title="alpha",
        y_title="users",
        caption=[
            f"delta = {DELTA:g}. Dots: the 95 % quantile of the measured error, for a population mean of 1/2.",
            "Dashed: lower bounds with their constants.",
        ],
        size=(340, 320),
    )


def _alpha(row: Row) -> float:
    return float(row["alpha"])


def by_histogram_or_directly(settings: Settings) -> tuple[list[Row], list[Check]]:
    """The mean of numbers on equally spaced levels, from a private histogram of the levels and by a private sum."""
    rows: list[Row] = []
    checks: list[Check] = []
    target: dict[str, Any] = {"users": _LEVELS_USERS, "epsilon": 1.0, "delta": DELTA}
    direct = find("sum", "split-and-mix").calibrate(**target, domain=Interval(0.0, 1.0))
    assert isinstance(direct, SumProtocol)  # noqa: S101
    rounds = settings.pick(60, 200)
    for levels in settings.steps(settings.pick((2, 20), (2, 5, 20, 100))):
        values = np.linspace(0.0, 1.0, levels)
        counts = np.full(levels, _LEVELS_USERS // levels, dtype=np.int64)
        counts[-1] += _LEVELS_USERS - counts.sum()
        truth = float(values @ counts)
        histogram = find("histogram", "correlated-noise").calibrate(**target, domain_size=levels)
        assert isinstance(histogram, HistogramProtocol)  # noqa: S101
        estimates = (
            histogram.estimate(histogram.sample_tally(counts, source=settings.source), estimator="unbiased").counts
            for _ in range(rounds)
        )
        bucketed = np.array([float(values @ estimate) - truth for estimate in estimates])
        data = np.repeat(values, counts)
        summed = np.array(
            [direct.estimate(direct.sample_tally(data, source=settings.source)).value - truth for _ in range(rounds)]
        )
        category_rmse = histogram.expected_error(estimator="unbiased").rmse
        predicted = category_rmse * float(np.sqrt(values @ values))
        direct_rmse = direct.expected_error(values=data).rmse
        where = f"{levels} levels, {_LEVELS_USERS:,} users, epsilon 1, delta {DELTA:g}"
        rows.append(
            {
                "levels": levels,
                "rounds": rounds,
                "rmse_by_histogram": rmse(bucketed)[0],
                "predicted_by_histogram": predicted,
                "rmse_directly": rmse(summed)[0],
                "predicted_directly": direct_rmse,
                "rmse_of_a_category": category_rmse,
            }
        )
        checks += [
            agrees("The sum from a histogram has the predicted error", where, bucketed, predicted),
            agrees("The direct sum has the predicted error", where, summed, direct_rmse),
            at_least("A mean is not harder than its histogram: error ratio", where, predicted / direct_rmse, 1.0),
        ]
    return rows, checks


def histogram_figure(rows: list[Row]) -> Figure:
    """The error of the sum against the number of levels."""
    return curve_figure(
        "Error of a sum of numbers against the number of levels: flat if summed directly, growing with the square root "
        "of the levels if computed from a histogram.",
        panels_shown=[
            Panel(
                "",
                [
                    Curve("from a histogram", [(row["levels"], row["rmse_by_histogram"]) for row in rows]),
                    Curve("directly (split-and-mix)", [(row["levels"], row["rmse_directly"]) for row in rows]),
                    Curve(
                        "one category of the histogram",
                        [(row["levels"], row["rmse_of_a_category"]) for row in rows],
                        "computed",
                    ),
                ],
            )
        ],
        title="Is a histogram easier than a mean?",
        x_title="levels of the numbers, categories of the histogram",
        y_title="root mean squared error of the sum",
        caption=[f"{_LEVELS_USERS:,} users, epsilon = 1, delta = {DELTA:g}; divide by the users for the mean."],
        name="histogram-or-mean",
        size=(520, 320),
    )
