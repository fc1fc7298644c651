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

__all__ = [
    "LAPLACE_KURTOSIS",
    "WRONG_ALARM",
    "Check",
    "agrees",
    "at_least",
    "at_most",
    "equals",
    "likely",
    "mean_at_most",
    "quantile",
    "rarely",
    "rmse",
]

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
    """The mean of a law is at most ``bound``: a broken bound lies below the mean by 4.9 standard errors."""
    values = _numbers(samples)
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    evidence = f"mean of {len(values):,} rounds, standard error {error:.3g}; broken beyond {_DEVIATIONS} of them"
    return Check(claim, where, mean, "<=", float(bound), mean - _DEVIATIONS * error <= bound, evidence)


def agrees(
    claim: str, where: str, errors: ArrayLike, predicted_rmse: ArrayLike, *, kurtosis: float = LAPLACE_KURTOSIS
) -> Check:
    """The root mean squared error is as predicted: each error is taken in units of its own prediction.

    The standard error of the mean square is that of the sample, or, if larger, that of a law with the given kurtosis:
    a sample that happens to lack large errors is too small in its mean and in its spread, and would sound a wrong alarm
    by itself (for 200 Laplace errors once in 700 times). The normal law has 3.
    """
    ratios = np.asarray(errors, dtype=np.float64).ravel() / np.asarray(predicted_rmse, dtype=np.float64)
    squares = _numbers(ratios) ** 2
    spread = max(float(squares.std(ddof=1)), math.sqrt(kurtosis - 1)) / math.sqrt(len(squares))
    mean = float(squares.mean())
    evidence = (
        f"{len(squares):,} errors, each in units of its predicted root mean square; broken beyond {_DEVIATIONS} "
        f"standard errors of the mean square, wrong alarm {WRONG_ALARM:g}"
    )
    return Check(claim, where, math.sqrt(mean), "=", 1.0, abs(mean - 1) <= _DEVIATIONS * spread, evidence)


def rmse(errors: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """The root mean squared error, and from where to where it may lie (by the spread of the squares)."""
    from scipy import stats

    squares = _numbers(errors) ** 2
    mean, error = float(squares.mean()), float(squares.std(ddof=1) / math.sqrt(len(squares)))
    reach = float(stats.norm.isf((1 - confidence) / 2)) * error
    return math.sqrt(mean), math.sqrt(max(mean - reach, 0.0)), math.sqrt(mean + reach)


def quantile(samples: ArrayLike, share: float, confidence: float = 0.95) -> tuple[float, float, float]:
    """The quantile of a law, and from where to where it may lie: order statistics, valid for every law.

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
