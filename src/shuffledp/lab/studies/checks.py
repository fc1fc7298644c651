"""Checks of measured or computed numbers against bounds, with statistical tests where rounds are random.

If a claim is true, a check on random rounds fails with probability at most ``FALSE_ALARM``. Checks that belong to one
statement about many rows share it: ``rows`` is their number, and each gets an equal part (Bonferroni). A bound that is
not a number is a failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shuffledp.errors import ParameterError

FALSE_ALARM = 1e-6
_ROUNDING = 1e-6
_DEVIATIONS = 4.9
"""A normal variable is further from its mean, in standard deviations, with probability below ``FALSE_ALARM``."""


LAPLACE_KURTOSIS = 6.6
"""The kurtosis of discrete Laplace noise at epsilon 1, the noise with the heaviest tails among the protocols."""


@dataclass(frozen=True)
class Check:
    """One comparison of something measured or computed with its bound."""

    claim: str
    """The statement that is checked, for example ``Theorem 11 (ii)``."""
    where: str
    """The parameters at which it is checked."""
    measured: float
    relation: str
    """``<=``, ``>=`` or ``=``, from the measured number to the bound."""
    bound: float
    holds: bool
    evidence: str
    """The basis of the decision: an exact computation, or the number of rounds and the test."""

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; numbers that are not finite become null."""
        return {
            "claim": self.claim,
            "where": self.where,
            "measured": self.measured if math.isfinite(self.measured) else None,
            "relation": self.relation,
            "bound": self.bound if math.isfinite(self.bound) else None,
            "holds": self.holds,
            "evidence": self.evidence,
        }


def at_most(claim: str, where: str, value: float, bound: float, *, evidence: str = "computed") -> Check:
    """Check that a number that is exact, or an upper bound, is at most its bound."""
    return Check(claim, where, float(value), "<=", float(bound), bool(value <= bound), evidence)


def at_least(claim: str, where: str, value: float, bound: float, *, evidence: str = "computed") -> Check:
    """Check that a number that is exact, or a lower bound, is at least its bound."""
    return Check(claim, where, float(value), ">=", float(bound), bool(value >= bound), evidence)


def equals(
    claim: str, where: str, value: float, expected: float, *, tolerance: float = 0.0, evidence: str = "computed"
) -> Check:
    """Check that a number equals its expected value up to ``tolerance``."""
    holds = value == expected or abs(value - expected) <= tolerance
    return Check(claim, where, float(value), "=", float(expected), bool(holds), evidence)


def rarely(claim: str, where: str, *, failures: int, rounds: int, at_most: float) -> Check:
    """Check that an event has probability at most ``at_most``: exact binomial test of its frequency."""
    from scipy import stats

    _check_rounds(failures, rounds)
    tail = float(stats.binom.sf(failures - 1, rounds, min(at_most, 1.0))) if failures else 1.0
    holds = tail >= FALSE_ALARM and not math.isnan(at_most)
    evidence = f"{failures:,} of {rounds:,} rounds; exact binomial test, false alarm {FALSE_ALARM:g}"
    return Check(claim, where, failures / rounds, "<=", at_most, holds, evidence)


def exceeded_rarely(claim: str, where: str, errors: ArrayLike, radius: float, *, at_most: float) -> Check:
    """Check that errors exceed ``radius`` with probability at most ``at_most``; a radius of NaN fails."""
    values = _numbers(errors)
    failures = int(np.count_nonzero(~(values <= radius + _ROUNDING)))  # every comparison with NaN is false
    return rarely(claim, f"{where}, at most {radius:,.1f}", failures=failures, rounds=len(values), at_most=at_most)


def likely(claim: str, where: str, *, successes: int, rounds: int, at_least: float, rows: int = 1) -> Check:
    """Check that an event has probability at least ``at_least``: exact binomial test of its frequency."""
    from scipy import stats

    _check_rounds(successes, rounds)
    tail = float(stats.binom.cdf(successes, rounds, max(at_least, 0.0)))
    evidence = f"{successes:,} of {rounds:,} rounds; exact binomial test, {_alarm_words(rows)}"
    return Check(claim, where, successes / rounds, ">=", at_least, tail >= FALSE_ALARM / rows, evidence)


def frequency(
    claim: str, where: str, *, hits: int, trials: int, probability: float, rows: int = 1, of: str = "rounds"
) -> Check:
    """Check that an event has exactly this probability: exact binomial test of its frequency, two-sided."""
    from scipy import stats

    _check_rounds(hits, trials)
    tails = stats.binom.cdf(hits, trials, probability), stats.binom.sf(hits - 1, trials, probability)
    holds = 2 * float(min(tails)) >= FALSE_ALARM / rows  # false if the probability is NaN
    evidence = f"{hits:,} of {trials:,} {of}; two-sided exact binomial test, {_alarm_words(rows)}"
    return Check(claim, where, hits / trials, "=", probability, holds, evidence)


def mean_at_most(claim: str, where: str, samples: ArrayLike, bound: float) -> Check:
    """Check that the mean of a nearly normal distribution is at most ``bound``: Student's t-test."""
    from scipy import stats

    values = _numbers(samples)
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    deviations = float(stats.t.isf(FALSE_ALARM, len(values) - 1))
    evidence = f"mean of {len(values):,} rounds, standard error {error:.3g}; broken beyond {deviations:.1f} of them"
    return Check(claim, where, mean, "<=", float(bound), mean - deviations * error <= bound, evidence)


def square_at_most(claim: str, where: str, errors: ArrayLike, largest_rmse: ArrayLike) -> Check:
    """Check that the mean square of errors, each divided by its ``largest_rmse``, is at most 1.

    The limit follows from Laplace tails and not from the sample variance, which a large error would inflate.
    """
    largest = np.asarray(largest_rmse, dtype=np.float64)
    if not np.isfinite(largest).all():
        return Check(claim, where, math.nan, "<=", 1.0, False, "the bound is not a finite number")
    squares = _numbers(np.asarray(errors, dtype=np.float64).ravel() / largest) ** 2
    mean, reach = float(squares.mean()), _reach_above(len(squares), LAPLACE_KURTOSIS)
    evidence = f"{len(squares):,} squared errors; broken above {1 + reach:.3g}, false alarm {FALSE_ALARM:g}"
    return Check(claim, where, mean, "<=", 1.0, mean <= 1 + reach, evidence)


def agrees(
    claim: str, where: str, errors: ArrayLike, predicted_rmse: ArrayLike, *, kurtosis: float = LAPLACE_KURTOSIS
) -> Check:
    """Check that the root mean squared error is as predicted; each error is divided by its own prediction.

    The upper limit follows from the given kurtosis and Laplace tails. The lower limit follows from the sample variance
    or from the kurtosis, whichever gives the larger spread. The kurtosis of a normal distribution is 3.
    """
    predicted = np.asarray(predicted_rmse, dtype=np.float64)
    if not np.isfinite(predicted).all():
        return Check(claim, where, math.nan, "=", 1.0, False, "the prediction is not a finite number")
    ratios = np.asarray(errors, dtype=np.float64).ravel() / predicted
    squares = _numbers(ratios) ** 2
    spread = max(float(squares.std(ddof=1)), math.sqrt(kurtosis - 1)) / math.sqrt(len(squares))
    mean, above = float(squares.mean()), _reach_above(len(squares), kurtosis)
    evidence = (
        f"{len(squares):,} errors, each in units of its predicted root mean square; broken if the mean square lies "
        f"{above:.3g} above or {_DEVIATIONS} standard errors below, false alarm {FALSE_ALARM:g}"
    )
    holds = 1 - _DEVIATIONS * spread <= mean <= 1 + above
    return Check(claim, where, math.sqrt(mean), "=", 1.0, holds, evidence)


def mean_square_agrees(
    claim: str, where: str, errors: NDArray[np.float64], predicted_rmse: float, *, allowance: float = 0.0
) -> Check:
    """Check that the mean square of all errors is as predicted; a row of ``errors`` for each round, all data fixed.

    The standard error of the mean is the largest of three: from all errors, from the means of rounds (errors of one
    round may be dependent), and of Laplace errors of the predicted size. The last one covers samples in which the mean
    and the spread are both small by chance. ``allowance`` is a share of the predicted square.
    """
    squares = errors**2
    rounds = len(squares)
    spreads = [
        float(squares.std(ddof=1)) / math.sqrt(squares.size),
        float(squares.mean(axis=1).std(ddof=1)) / math.sqrt(rounds) if rounds > 1 else 0.0,
        predicted_rmse**2 * math.sqrt((LAPLACE_KURTOSIS - 1) / squares.size),
    ]
    reach = _DEVIATIONS * max(spreads) + allowance * predicted_rmse**2
    mean = float(squares.mean())
    return Check(
        claim,
        where,
        math.sqrt(mean),
        "=",
        predicted_rmse,
        abs(mean - predicted_rmse**2) <= reach,  # false if either is NaN
        f"{squares.size:,} errors of {rounds:,} rounds; broken beyond {_DEVIATIONS} standard errors",
    )


def _alarm_words(rows: int) -> str:
    return f"false alarm {FALSE_ALARM:g}" + (f" over {rows:,} rows together" if rows > 1 else "")


def _reach_above(size: int, kurtosis: float) -> float:
    """By how much the mean of ``size`` squares with expectation 1 can exceed 1 by chance.

    The sum of a normal deviation of the mean and of one error far out in a Laplace tail, exp(-sqrt(2) x).
    """
    single = math.log(size / FALSE_ALARM) ** 2 / 2
    return _DEVIATIONS * math.sqrt((kurtosis - 1) / size) + single / size


def rmse(errors: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """The root mean squared error with an approximate confidence interval.

    The interval is computed on a logarithmic scale from the spread of the squares in the sample, or that of Laplace
    errors if it is larger, so that it is conservative for few errors.
    """
    from scipy import stats

    squares = _numbers(errors) ** 2
    mean = float(squares.mean())
    if mean == 0:
        return 0.0, 0.0, 0.0
    spread = max(float(squares.std(ddof=1)) / mean, math.sqrt(LAPLACE_KURTOSIS - 1)) / math.sqrt(len(squares))
    factor = math.exp(float(stats.t.isf((1 - confidence) / 2, len(squares) - 1)) * spread / 2)
    return math.sqrt(mean), math.sqrt(mean) / factor, math.sqrt(mean) * factor


def quantile(samples: ArrayLike, share: float, confidence: float = 0.95) -> tuple[float, float, float]:
    """A quantile with a confidence interval by order statistics, valid for every distribution.

    If there are too few samples for an end of the interval, the extreme sample is used.
    """
    from scipy import stats

    values = np.sort(_numbers(samples))
    size = len(values)
    low, high = (int(stats.binom.ppf(tail, size, share)) for tail in ((1 - confidence) / 2, (1 + confidence) / 2))
    index = max(math.ceil(size * share) - 1, 0)
    return float(values[index]), float(values[max(low - 1, 0)]), float(values[min(high, size - 1)])


def _numbers(samples: ArrayLike) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        raise ParameterError(f"A check needs at least two numbers, all finite; got {len(values):,}.")
    return values


def _check_rounds(hits: int, rounds: int) -> None:
    if not 0 <= hits <= rounds or rounds < 1:
        raise ParameterError(
            f"hits must lie between 0 and rounds, and rounds must be at least 1; got {hits:,} of {rounds:,}.",
            hits=hits,
            rounds=rounds,
        )
