"""Estimates of counts that are released only from a threshold on; withheld counts are estimated as 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.histogram.protocol import check_categories
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.protocol import ExpectedError, Pmf
from shuffledp.search import bisect_integers

Floats = NDArray[np.float64]

THRESHOLD_ESTIMATORS = ("threshold",)
_PLAUSIBLY_WITHHELD = 0.025  # as in an interval of 95 % confidence
_NEVER_WITHHELD = 1e-12
_MAX_LISTED = 100_000


class Withholding(Protocol):
    """The effect of the threshold on a true count; hashable. A count of 0 is always withheld, without error."""

    def __hash__(self) -> int: ...

    def withheld(self, count: int) -> float:
        """The probability that a category with ``count`` users is withheld; decreases with the count."""

    def squared_errors(self, counts: NDArray[np.int64]) -> Floats:
        """The mean squared error of the estimate at each true count."""


@dataclass(frozen=True)
class ThresholdAnalysis(LinearAnalysis):
    """Linear estimates of released counts, and 0 for withheld ones."""

    withholding: Withholding = field(kw_only=True)

    def estimate(self, observed: NDArray[Any], estimator: str) -> Floats:  # noqa: ARG002
        """0 for withheld categories, which are observed as 0."""
        return np.where(observed > 0, super().estimate(observed, "unbiased"), 0.0)

    def standard_errors(self, observed: NDArray[Any]) -> Floats:
        """The root mean squared error at the estimated count, including the effect of withholding.

        For a withheld count: the largest error at any count in its 95 % interval.
        """
        estimate = np.rint(self.estimate(observed, "threshold")).astype(np.int64)
        distinct, inverse = np.unique(estimate, return_inverse=True)
        squares = self.error.variance(distinct.astype(np.float64))
        may_be_withheld = distinct <= self.largest_withheld(_NEVER_WITHHELD)
        squares[may_be_withheld] = self.withholding.squared_errors(distinct[may_be_withheld])
        shown = np.sqrt(squares)[inverse]
        if np.all(observed > 0):
            return shown
        return np.where(
            observed > 0, shown, _withheld_error(self.withholding, self.largest_withheld(_PLAUSIBLY_WITHHELD))
        )

    def withheld_below(self, confidence: float) -> int | None:
        """The least count that is withheld with probability (1 - confidence) / 2 or less."""
        return self.largest_withheld((1 - confidence) / 2) + 1

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], Floats]:
        """Released counts and withholding have half of the error probability 1 - confidence each."""
        return partial(self._intervals_at, observed)

    def _intervals_at(self, observed: NDArray[Any], confidence: float) -> Floats:
        risk = (1 - confidence) / 2
        low, high = self.error.interval(self.estimate(observed, "threshold"), risk)
        shown = observed > 0
        low = np.where(shown, np.maximum(low, 1.0), 0.0)
        ends: Floats = np.stack((low, np.where(shown, high, self.largest_withheld(risk))), axis=-1)
        return np.clip(ends, 0.0, self.largest)

    def expected_error(self, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:
        """The larger of the errors of an average count and of a released one; or that of given true counts."""
        check_confidence(confidence)
        risk = (1 - confidence) / (2 * min(self.numbers, self.largest))  # only non-empty categories have an error
        return ExpectedError(
            rmse=math.sqrt(self._mean_squared_error(truth)),
            max_error=max(float(self.largest_withheld(risk)), self.error.radius(risk, self.largest)),
            confidence=confidence,
        )

    def _mean_squared_error(self, truth: NDArray[Any] | None) -> float:
        if truth is None:
            average = round(self.largest / self.numbers)
            shown = float(self.error.variance(np.array([max(average, self.largest_withheld(0.05) + 1.0)]))[0])
            return max(shown, self._mean_squared_error(np.array([average])))
        distinct, times = np.unique(np.asarray(truth).astype(np.int64), return_counts=True)
        return float(self.withholding.squared_errors(distinct) @ times) / float(times.sum())

    def largest_withheld(self, risk: float) -> int:
        """The largest true count that is withheld with a probability above ``risk``."""
        return _largest_withheld(self.withholding, risk, int(self.largest))


@lru_cache(maxsize=1024)
def _largest_withheld(withholding: Withholding, risk: float, largest: int) -> int:
    """The largest true count up to ``largest`` that is withheld with a probability above ``risk``."""
    low, high = 0, 1
    while high <= largest and withholding.withheld(high) > risk:
        low, high = high, 2 * high
    return min(bisect_integers(lambda count: not withholding.withheld(count) > risk, low, high) - 1, largest)


@lru_cache(maxsize=256)
def _withheld_error(withholding: Withholding, largest: int) -> float:
    """The largest root mean squared error at a count of at most ``largest``.

    It increases with the count while most counts are withheld, and then decreases; a coarse search is refined.
    """
    step = max(1, largest // 256)
    coarse = np.unique(np.append(np.arange(0, largest + 1, step), largest))
    best = int(coarse[np.argmax(withholding.squared_errors(coarse))])
    fine = np.arange(max(best - step, 0), min(best + step, largest) + 1)
    return math.sqrt(float(np.max(withholding.squared_errors(fine))))


def independent_release_pmf(counts: Sequence[Mapping[int, Fraction | float]]) -> Pmf:
    """The joint distribution of independent released counts."""
    if math.prod(len(pmf) for pmf in counts) > _MAX_LISTED:
        raise ParameterError(
            "The release has too many outcomes to list; use fewer users, a smaller domain or less noise."
        )
    return {
        tuple(count for count, _ in outcome): math.prod(mass for _, mass in outcome)
        for outcome in product(*(pmf.items() for pmf in counts))
    }


def check_unreleased(tally: Tally, categories: int) -> None:
    """Reject a tally that is already released, or that does not fit the categories."""
    if tally.released:
        raise ParameterError("This tally is already released; a tally is released once.")
    check_categories(tally, categories)


def check_released(tally: Tally, categories: int, threshold: int) -> None:
    """Reject a tally that is not released, or that contains counts below the threshold."""
    if not tally.released:
        raise ParameterError("This tally contains counts below the threshold; release it first.")
    check_categories(tally, categories)
    if np.any((tally.counts != 0) & (tally.counts < threshold)):
        raise ParameterError(f"A released tally must not contain counts below the threshold {threshold:,}.")
