"""Simulated rounds of the two protocols of Balcer and Cheu, to check the computed errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from shuffledp.lab.studies.calibration.noise import BETA
from shuffledp.lab.studies.checks import Check, agrees, quantile, rarely
from shuffledp.lab.studies.token_checks import message_tally, noise_check, round_errors
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.randomness import RandomSource

CATEGORIES = 20
_MESSAGE_TARGET = (10_000, 1.0, 1e-6)
"""Users, epsilon and delta of the rounds in which every message is generated; the conditions of Theorem 12 hold."""


def count_rounds(
    calibration: str, target: tuple[int, float, float], rounds: int, source: RandomSource
) -> tuple[dict[str, Any], list[Check]]:
    """Thresholded and unbiased errors of a count that is often hidden, for (users, epsilon, delta)."""
    users, epsilon, delta = target
    protocol = BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=delta, calibration=calibration)
    radius = protocol.expected_error(confidence=1 - BETA).max_error
    truth = _often_hidden(protocol)
    tallies = [protocol.sample_tally(np.array([users - truth, truth]), source=source) for _ in range(rounds)]
    errors = np.array([abs(protocol.estimate(tally).value - truth) for tally in tallies])
    unbiased = np.array([protocol.estimate(tally, estimator="unbiased").value - truth for tally in tallies])
    return _row_and_checks("count", calibration, target, (errors, unbiased), (radius, _spread(protocol)))


def histogram_rounds(
    calibration: str, target: tuple[int, float, float], rounds: int, source: RandomSource
) -> tuple[dict[str, Any], list[Check]]:
    """The largest thresholded error over all categories, and every unbiased error, for (users, epsilon, delta)."""
    users, epsilon, delta = target
    protocol = BalcerCheuHistogram.calibrate(
        users=users, epsilon=epsilon, delta=delta, calibration=calibration, domain_size=CATEGORIES
    )
    radius = protocol.expected_error(confidence=1 - BETA).max_error
    truth = np.full(CATEGORIES, _often_hidden(protocol), dtype=np.int64)
    truth[0] += users - truth.sum()  # the first category gets the remaining users
    tallies = [protocol.sample_tally(truth, source=source) for _ in range(rounds)]
    errors = np.array([np.abs(protocol.estimate(tally).counts - truth).max() for tally in tallies])
    unbiased = np.array([protocol.estimate(tally, estimator="unbiased").counts - truth for tally in tallies])
    return _row_and_checks("histogram", calibration, target, (errors, unbiased.ravel()), (radius, _spread(protocol)))


def message_rounds(calibration: str, rounds: int, source: RandomSource) -> tuple[list[dict[str, Any]], list[Check]]:
    """Whole rounds of both protocols, in which every message is generated, permuted with all others and counted."""
    users, epsilon, delta = target = _MESSAGE_TARGET
    rows: list[dict[str, Any]] = []
    checks: list[Check] = []
    protocols: list[BalcerCheuCount | BalcerCheuHistogram] = [
        BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=delta, calibration=calibration),
        BalcerCheuHistogram.calibrate(
            users=users, epsilon=epsilon, delta=delta, calibration=calibration, domain_size=CATEGORIES
        ),
    ]
    for protocol in protocols:
        values = np.arange(users) % len(protocol.inputs())
        truth = protocol.truth(values)
        tallies = [message_tally(protocol, values, source) for _ in range(rounds)]
        tallies += [message_tally(protocol, values, source, singly=True)]
        errors = np.array([round_errors(protocol, tally, truth).max() for tally in tallies])
        unbiased = np.array([protocol.observed(tally) - users + _mean(protocol) - truth for tally in tallies])
        radius = protocol.expected_error(confidence=1 - BETA).max_error
        row, run_checks = _row_and_checks(
            protocol.question, calibration, target, (errors, unbiased.ravel()), (radius, _spread(protocol)), "messages"
        )
        rows.append(row)
        where = f"{protocol.question}, {users:,} users, {calibration} noise, messages"
        counts = truth.astype(np.int64)
        checks += [*run_checks, noise_check("Noise of whole rounds", where, protocol, counts, tallies)]
    return rows, checks


def _mean(protocol: BalcerCheuCount | BalcerCheuHistogram) -> float:
    return protocol.users * float(protocol.absence)


def _often_hidden(protocol: BalcerCheuCount | BalcerCheuHistogram) -> int:
    """A count, or one of several, that is zeroed in nearly 10 of 100 rounds; its error is then the count itself."""
    return int(protocol.expected_error(confidence=1 - 2 * BETA).max_error)


def _spread(protocol: BalcerCheuCount | BalcerCheuHistogram) -> float:
    expected: float = protocol.expected_error(estimator="unbiased").rmse
    return expected


def _row_and_checks(
    question: str,
    calibration: str,
    target: tuple[int, float, float],
    measured: tuple[Any, Any],
    computed: tuple[float, float],
    route: str = "tallies drawn",
) -> tuple[dict[str, Any], list[Check]]:
    """The row and the checks of one setting: thresholded and unbiased errors compared with the computed ones."""
    (errors, unbiased), (radius, spread) = measured, computed
    users, epsilon, delta = target
    where = f"{question}, epsilon {epsilon:g}, delta {delta:g}, {users:,} users, {calibration} noise, {route}"
    error, low, high = quantile(errors, 1 - BETA)
    row = {
        "question": question,
        "calibration": calibration,
        "route": route,
        "epsilon": epsilon,
        "delta": delta,
        "users": users,
        "rounds": len(errors),
        "error": error,
        "error_low": low,
        "error_high": high,
        "computed_error": radius,
        "unbiased_rmse": float(np.sqrt(np.mean(unbiased**2))),
        "computed_rmse": spread,
    }
    failures = int(np.count_nonzero(errors > radius))
    claim = "The computed error is exceeded in 5 of 100 rounds at most"
    checks = [
        rarely(claim, where, failures=failures, rounds=len(errors), at_most=BETA),
        agrees("Unbiased errors are as computed", where, unbiased, spread, kurtosis=3.5),
    ]
    return row, checks
