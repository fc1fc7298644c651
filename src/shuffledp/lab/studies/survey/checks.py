"""Checks of the survey's entries: privacy, errors, messages, and Hoeffding's bound for randomized response.

The survey is a set of notes on private mean estimation, called "the notes" here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shuffledp.errors import ConditionError
from shuffledp.lab.studies.checks import Check, agrees, at_least, at_most, equals, mean_at_most, rarely, square_at_most
from shuffledp.lab.studies.survey.entries import EPSILON, Measured, calibrated
from shuffledp.privacy.randomized_response_bounds import gamma_of_epsilon, sum_radius

RISK = 0.05


def checks_of_rounds(measurement: Measured) -> list[Check]:
    """The checks of one protocol for one number of users."""
    where = f"{measurement.name}, {measurement.users:,} users, delta {measurement.delta:g}"
    failures = int(np.count_nonzero(np.abs(measurement.errors) > measurement.radius))
    checks = [
        at_most(
            "The claimed delta holds",
            where,
            measurement.true_delta,
            measurement.delta,
            evidence="computed from the noise drawn",
        ),
        rarely(
            "The predicted error is exceeded in 5 of 100 rounds at most",
            where,
            failures=failures,
            rounds=len(measurement.errors),
            at_most=RISK,
        ),
    ]
    if not measurement.entry.counts_all_messages:
        sent = float(measurement.messages.mean())
        checks.append(
            equals("Messages per user", where, sent, measurement.expected_messages, evidence="reports of 200 users")
        )
    return checks


def checks_of_protocol(measurements: Sequence[Measured]) -> list[Check]:
    """The checks of one protocol over all numbers of users together."""
    first = measurements[0]
    users = [measurement.users for measurement in measurements]
    where = f"{first.name}, {min(users):,} to {max(users):,} users"
    errors = np.concatenate([measurement.errors for measurement in measurements])
    predicted = np.concatenate(
        [np.full(len(measurement.errors), measurement.predicted) for measurement in measurements]
    )
    kurtosis = 7.0 if first.entry.share else 3.0  # of Laplace noise, or of a sum of many small terms
    checks = [agrees("The error is as predicted for these data", where, errors, predicted, kurtosis=kurtosis)]
    bounded = [
        measurement.errors / measurement.largest_square**0.5
        for measurement in measurements
        if measurement.largest_square is not None
    ]
    if bounded:
        claim = "Error O(1/epsilon): mean square, as a multiple of 2/(epsilon of the noise)² and rounding"
        checks.append(square_at_most(claim, where, np.concatenate(bounded), 1.0))
    if first.entry.counts_all_messages:
        sent = np.concatenate([measurement.messages / measurement.expected_messages for measurement in measurements])
        checks.append(mean_at_most("Messages per user, as a multiple of the expected number", where, sent, 1.0))
    return checks + [check for measurement in measurements for check in _against_paper(measurement)]


def _against_paper(measurement: Measured) -> list[Check]:
    """The paper's own constants give no less error and no fewer messages."""
    where = f"{measurement.name}, {measurement.users:,} users"
    if not measurement.entry.paper_bounds:
        return []
    try:
        paper = calibrated(measurement.entry, measurement.users, calibration="paper", delta=measurement.delta)
    except ConditionError:  # too few users for the theorem
        return []
    if measurement.entry.paper_bounds == "error":
        bound = paper.expected_error().rmse
        return [at_most("No more error than by the paper's constants", where, measurement.predicted, bound)]
    bound = paper.cost.messages_per_user
    return [at_most("No more messages than by the paper's constants", where, measurement.expected_messages, bound)]


def notes_radius_of_mean(users: int, risk: float) -> float:
    """The error bound of the notes: sqrt(ln(1/risk) / (2 n)), which lacks the division by 2 gamma."""
    return float(np.sqrt(np.log(1 / risk) / (2 * users)))


def hoeffding(measurements: Sequence[Measured]) -> tuple[list[dict[str, Any]], list[Check]]:
    """Randomized response compared with Hoeffding's bound, as in the notes and corrected."""
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    gamma = gamma_of_epsilon(EPSILON)
    for measurement in measurements:
        where = f"{measurement.users:,} users, epsilon {EPSILON:g}, risk {RISK:g}"
        radius, noted = sum_radius(measurement.users, gamma, RISK), notes_radius_of_mean(measurement.users, RISK)
        sizes, rounds = np.abs(measurement.errors), len(measurement.errors)
        exceeded = int(np.count_nonzero(sizes >= radius))
        exact, exact_noted = (
            _exceeded(measurement.users, gamma, radius),
            _exceeded(measurement.users, gamma, noted * measurement.users),
        )
        rows.append(
            {
                "users": measurement.users,
                "rounds": rounds,
                "radius_of_sum": radius,
                "exceeded": exceeded / rounds,
                "exact_probability": exact,
                "notes_radius": noted,
                "notes_exceeded_by_sum": float(np.mean(sizes >= noted)),
                "notes_exceeded_by_mean": float(np.mean(sizes / measurement.users >= noted)),
                "notes_exact_probability_of_mean": exact_noted,
            }
        )
        claim = "Randomized response: Hoeffding's bound on the sum, sqrt(n ln(2/risk)/2)/(2 gamma)"
        checks += [
            rarely(claim, where, failures=exceeded, rounds=rounds, at_most=RISK),
            at_most(claim, f"{where}, nobody holds a 1", exact, RISK, evidence="computed exactly"),
            at_least(
                "The bound of the notes is exceeded more often than it says, even by the mean",
                f"{where}, nobody holds a 1",
                exact_noted,
                RISK,
                evidence="computed exactly",
            ),
        ]
    return rows, checks


def _exceeded(users: int, gamma: float, error: float) -> float:
    """The probability that the estimated sum has an error of at least ``error``, if nobody holds a 1."""
    from scipy import stats

    mean, deviation = users * (0.5 - gamma), 2 * gamma * error
    distribution = stats.binom(users, 0.5 - gamma)
    return float(distribution.sf(np.ceil(mean + deviation) - 1) + distribution.cdf(np.floor(mean - deviation)))
