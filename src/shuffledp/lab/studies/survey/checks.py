"""What the survey's rows are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shuffledp.errors import ConditionError
from shuffledp.lab.studies.checks import Check, agrees, at_least, at_most, equals, mean_at_most, rarely, square_at_most
from shuffledp.lab.studies.survey.entries import EPSILON, Measured, calibrated
from shuffledp.privacy.randomized_response_bounds import gamma_of_epsilon, sum_radius

RISK = 0.05


def checks_of_rounds(found: Measured) -> list[Check]:
    """What one protocol does for one number of users."""
    where = f"{found.name}, {found.users:,} users, delta {found.delta:g}"
    failures = int(np.count_nonzero(np.abs(found.errors) > found.radius))
    checks = [
        at_most("Private as said", where, found.true_delta, found.delta, evidence="computed from the noise drawn"),
        rarely(
            "The predicted error is exceeded in 5 of 100 rounds at most",
            where,
            failures=failures,
            rounds=len(found.errors),
            at_most=RISK,
        ),
    ]
    if not found.entry.counts_all_messages:
        sent = float(found.messages.mean())
        checks.append(
            equals("Messages per user", where, sent, found.expected_messages, evidence="reports of 200 users")
        )
    return checks


def checks_of_protocol(found: Sequence[Measured]) -> list[Check]:
    """What one protocol does over all numbers of users together."""
    first = found[0]
    where = f"{first.name}, {min(each.users for each in found):,} to {max(each.users for each in found):,} users"
    errors = np.concatenate([each.errors for each in found])
    predicted = np.concatenate([np.full(len(each.errors), each.predicted) for each in found])
    kurtosis = 7.0 if first.entry.share else 3.0  # of Laplace noise, or of a sum of many small terms
    checks = [agrees("The error is as predicted for these data", where, errors, predicted, kurtosis=kurtosis)]
    bounded = [each.errors / each.largest_square**0.5 for each in found if each.largest_square is not None]
    if bounded:
        claim = "Error O(1/epsilon): mean square, as a multiple of 2/(epsilon of the noise)² and rounding"
        checks.append(square_at_most(claim, where, np.concatenate(bounded), 1.0))
    if first.entry.counts_all_messages:
        sent = np.concatenate([each.messages / each.expected_messages for each in found])
        checks.append(mean_at_most("Messages per user, as a multiple of what is expected", where, sent, 1.0))
    return checks + [check for each in found for check in _against_paper(each)]


def _against_paper(found: Measured) -> list[Check]:
    """The paper's own constants give no less error and no fewer messages."""
    where = f"{found.name}, {found.users:,} users"
    if found.name not in ("sum/privacy-blanket", "count/correlated-noise"):
        return []
    try:
        paper = calibrated(found.entry, found.users, calibration="paper", delta=found.delta)
    except ConditionError:  # too few users for the theorem
        return []
    if found.name == "sum/privacy-blanket":
        bound = paper.expected_error().rmse
        return [at_most("No more error than by the paper's constants", where, found.predicted, bound)]
    bound = paper.cost.messages_per_user
    return [at_most("No more messages than by the paper's constants", where, found.expected_messages, bound)]


def notes_radius_of_mean(users: int, risk: float) -> float:
    """What the notes give for the error: sqrt(ln(1/risk) / (2 n)), without the division by 2 gamma."""
    return float(np.sqrt(np.log(1 / risk) / (2 * users)))


def hoeffding(found: Sequence[Measured]) -> tuple[list[dict[str, Any]], list[Check]]:
    """Randomized response against Hoeffding's bound, as the notes have it and as it is right."""
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    gamma = gamma_of_epsilon(EPSILON)
    for each in found:
        where = f"{each.users:,} users, epsilon {EPSILON:g}, risk {RISK:g}"
        radius, noted = sum_radius(each.users, gamma, RISK), notes_radius_of_mean(each.users, RISK)
        sizes, rounds = np.abs(each.errors), len(each.errors)
        exceeded = int(np.count_nonzero(sizes >= radius))
        exact, exact_noted = _exceeded(each.users, gamma, radius), _exceeded(each.users, gamma, noted * each.users)
        rows.append(
            {
                "users": each.users,
                "rounds": rounds,
                "radius_of_sum": radius,
                "exceeded": exceeded / rounds,
                "exact_probability": exact,
                "notes_radius": noted,
                "notes_exceeded_by_sum": float(np.mean(sizes >= noted)),
                "notes_exceeded_by_mean": float(np.mean(sizes / each.users >= noted)),
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
    """The probability that the estimated sum is off by ``error`` or more, if nobody holds a 1."""
    from scipy import stats

    mean, off = users * (0.5 - gamma), 2 * gamma * error
    distribution = stats.binom(users, 0.5 - gamma)
    return float(distribution.sf(np.ceil(mean + off) - 1) + distribution.cdf(np.floor(mean - off)))
