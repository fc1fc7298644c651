"""What a study holds against a bound, and when that counts as broken.

A check on random rounds sounds a wrong alarm with probability at most ``WRONG_ALARM`` if the claim is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shuffledp.errors import ParameterError

WRONG_ALARM = 1e-6
_DEVIATIONS = 4.9
"""A normal number is further off with probability below ``WRONG_ALARM``, on both sides together."""


LAPLACE_KURTOSIS = 6.6
"""Of discrete Laplace noise at epsilon 1, the heaviest that protocols add."""


@dataclass(frozen=True)
class Check:
    """One comparison of something measured or computed with its bound."""

    claim: str
    """Which statement, for example ``Theorem 11 (ii)``."""
    where: str
    """At which parameters."""
    measured: float
    relation: str
    """``<=``, ``>=`` or ``=``, from the measured number to the bound."""
    bound: float
    holds: bool
    evidence: str
    """How it was judged: computed exactly, or how many rounds and which test."""

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
    """A number that is known exactly (or bounded from above) is not above its bound."""
    return Check(claim, where, float(value), "<=", float(bound), bool(value <= bound), evidence)


def at_least(claim: str, where: str, value: float, bound: float, *, evidence: str = "computed") -> Check:
    """A number that is known exactly (or bounded from below) is not below its bound."""
    return Check(claim, where, float(value), ">=", float(bound), bool(value >= bound), evidence)


def equals(
    claim: str, where: str, value: float, expected: float, *, tolerance: float = 0.0, evidence: str = "computed"
) -> Check:
    """A number is what it should be, up to ``tolerance``."""
    holds = value == expected or abs(value - expected) <= tolerance
    return Check(claim, where, float(value), "=", float(expected), bool(holds), evidence)


def rarely(claim: str, where: str, *, failures: int, rounds: int, at_most: float) -> Check:
    """Something happens with probability at most ``at_most``: exact binomial test of how often it did."""
    from scipy import stats

    _check_rounds(failures, rounds)
    tail = float(stats.binom.sf(failures - 1, rounds, min(at_most, 1.0))) if failures else 1.0
    evidence = f"{failures:,} of {rounds:,} rounds; exact binomial test, wrong alarm {WRONG_ALARM:g}"
    return Check(claim, where, failures / rounds, "<=", at_most, tail >= WRONG_ALARM, evidence)


def likely(claim: str, where: str, *, successes: int, rounds: int, at_least: float) -> Check:
    """Something happens with probability at least ``at_least``: exact binomial test of how often it did."""
    from scipy import stats

    _check_rounds(successes, rounds)
    tail = float(stats.binom.cdf(successes, rounds, max(at_least, 0.0)))
    evidence = f"{successes:,} of {rounds:,} rounds; exact binomial test, wrong alarm {WRONG_ALARM:g}"
    return Check(claim, where, successes / rounds, ">=", at_least, tail >= WRONG_ALARM, evidence)


def mean_at_most(claim: str, where: str, samples: ArrayLike, bound: float) -> Check:
    """The mean of a distribution is at most ``bound``: Student's test of numbers that are nearly normal."""
    from scipy import stats

    values = _numbers(samples)
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    deviations = float(stats.t.isf(WRONG_ALARM, len(values) - 1))
    evidence = f"mean of {len(values):,} rounds, standard error {error:.3g}; broken beyond {deviations:.1f} of them"
    return Check(claim, where, mean, "<=", float(bound), mean - deviations * error <= bound, evidence)


def square_at_most(claim: str, where: str, errors: ArrayLike, largest_rmse: ArrayLike) -> Check:
    """The mean square of errors is at most the square of ``largest_rmse``, each in units of its own.

    Judged by what errors with Laplace tails can do if the claim is true, not by the spread of the sample, which a large
    error makes large as well.
    """
    ratios = np.asarray(errors, dtype=np.float64).ravel() / np.asarray(largest_rmse, dtype=np.float64)
    squares = _numbers(ratios) ** 2
    mean, reach = float(squares.mean()), _reach_above(len(squares), LAPLACE_KURTOSIS)
    evidence = f"{len(squares):,} squared errors; broken above {1 + reach:.3g}, wrong alarm {WRONG_ALARM:g}"
    return Check(claim, where, mean, "<=", 1.0, mean <= 1 + reach, evidence)


def agrees(
    claim: str, where: str, errors: ArrayLike, predicted_rmse: ArrayLike, *, kurtosis: float = LAPLACE_KURTOSIS
) -> Check:
    """The root mean squared error is as predicted: each error is taken in units of its own prediction.

    Too large is judged by what errors with the given kurtosis and Laplace tails can do if the prediction is true; too
    small by the spread of the sample, or that of the kurtosis if it is larger. The normal distribution has 3. Few
    errors can hardly be too small.
    """
    ratios = np.asarray(errors, dtype=np.float64).ravel() / np.asarray(predicted_rmse, dtype=np.float64)
    squares = _numbers(ratios) ** 2
    spread = max(float(squares.std(ddof=1)), math.sqrt(kurtosis - 1)) / math.sqrt(len(squares))
    mean, above = float(squares.mean()), _reach_above(len(squares), kurtosis)
    evidence = (
        f"{len(squares):,} errors, each in units of its predicted root mean square; broken if the mean square lies "
        f"{above:.3g} above or {_DEVIATIONS} standard errors below, wrong alarm {WRONG_ALARM:g}"
    )
    holds = 1 - _DEVIATIONS * spread <= mean <= 1 + above
    return Check(claim, where, math.sqrt(mean), "=", 1.0, holds, evidence)


def _reach_above(size: int, kurtosis: float) -> float:
    """How far the mean of so many squares of unit size can lie above 1 by chance.

    Many a little too large (the normal part), or a single one far out in a Laplace tail, exp(-sqrt(2) x).
    """
    single = math.log(size / WRONG_ALARM) ** 2 / 2
    return _DEVIATIONS * math.sqrt((kurtosis - 1) / size) + single / size


def rmse(errors: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """The root mean squared error, and about from where to where it may lie.

    On a logarithmic scale, with the spread of the squares in the sample or that of Laplace errors if it is larger: for
    few errors the interval is wide rather than wrong.
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
    """The quantile of a distribution and the range it may lie in: order statistics, valid for every distribution.

    Where the samples are too few for one end of the interval, the extreme sample stands for it.
    """
    from scipy import stats

    values = np.sort(_numbers(samples))
    size = len(values)
    low, high = (int(stats.binom.ppf(tail, size, share)) for tail in ((1 - confidence) / 2, (1 + confidence) / 2))
    place = max(math.ceil(size * share) - 1, 0)
    return float(values[place]), float(values[max(low - 1, 0)]), float(values[min(high, size - 1)])


def _numbers(samples: ArrayLike) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64).ravel()
    if len(values) < 2 or not np.isfinite(values).all():
        raise ParameterError(f"A study needs at least two finite numbers to judge from, not {len(values):,}.")
    return values


def _check_rounds(hits: int, rounds: int) -> None:
    if not 0 <= hits <= rounds or rounds < 1:
        raise ParameterError(f"{hits:,} of {rounds:,} rounds cannot be judged.", hits=hits, rounds=rounds)
