"""Counts that are shown only from a threshold on: what is withheld is estimated as 0, and how far off that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.search import bisect_integers

Floats = NDArray[np.float64]

THRESHOLD_ESTIMATORS = ("threshold",)
_PLAUSIBLY_WITHHELD = 0.025  # as in an interval of 95 % confidence
_NEVER_WITHHELD = 1e-12


class Withholding(Protocol):
    """What the threshold does to a true count; hashable. A count of 0 is always withheld, so that it has no error."""

    def __hash__(self) -> int: ...

    def withheld(self, count: int) -> float:
        """The probability that a category with so many users is withheld; falls with their number."""

    def squared_errors(self, counts: NDArray[np.int64]) -> Floats:
        """The mean squared error of the estimate at each true count."""


@dataclass(frozen=True)
class ThresholdAnalysis(LinearAnalysis):
    """Linear estimates of what is shown, and 0 for the rest."""

    withholding: Withholding = field(kw_only=True)

    def estimate(self, observed: NDArray[Any], estimator: str) -> Floats:  # noqa: ARG002
        """What is observed of a category that is withheld is 0."""
        return np.where(observed > 0, super().estimate(observed, "unbiased"), 0.0)

    def standard_errors(self, observed: NDArray[Any]) -> Floats:
        """The root mean squared error at the count that is estimated, withholding included.

        For what is withheld: the largest at any count that its 95% interval allows.
        """
        estimate = np.rint(self.estimate(observed, "threshold")).astype(np.int64)
        distinct, place = np.unique(estimate, return_inverse=True)
        squares = self.error.variance(distinct.astype(np.float64))
        near = distinct <= self.hidden(_NEVER_WITHHELD)
        squares[near] = self.withholding.squared_errors(distinct[near])
        shown = np.sqrt(squares)[place]
        if np.all(observed > 0):
            return shown
        return np.where(observed > 0, shown, _withheld_error(self.withholding, self.hidden(_PLAUSIBLY_WITHHELD)))

    def withheld_below(self, confidence: float) -> int | None:
        """The least count that is withheld with at most half of the risk."""
        return self.hidden((1 - confidence) / 2) + 1

    def intervals(self, observed: NDArray[Any]) -> Callable[[float], Floats]:
        """Half of the risk for what is shown, half for being withheld."""
        estimate = self.estimate(observed, "threshold")

        def at(confidence: float) -> Floats:
            risk = (1 - confidence) / 2
            low, high = self.error.interval(estimate, risk)
            shown = observed > 0
            low = np.where(shown, np.maximum(low, 1.0), 0.0)
            ends: Floats = np.stack((low, np.where(shown, high, self.hidden(risk))), axis=-1)
            return np.clip(ends, 0.0, self.largest)

        return at

    def expected_error(self, confidence: float, truth: NDArray[Any] | None = None) -> ExpectedError:
        """The larger error of a count of average size and of one that is shown, or that of the given true counts."""
        check_confidence(confidence)
        risk = (1 - confidence) / (2 * min(self.numbers, self.largest))  # only categories that are held can be off
        return ExpectedError(
            rmse=math.sqrt(self._mean_squared_error(truth)),
            max_error=max(float(self.hidden(risk)), self.error.radius(risk, self.largest)),
            confidence=confidence,
        )

    def _mean_squared_error(self, truth: NDArray[Any] | None) -> float:
        if truth is None:
            average = round(self.largest / self.numbers)
            shown = float(self.error.variance(np.array([max(average, self.hidden(0.05) + 1.0)]))[0])
            return max(shown, self._mean_squared_error(np.array([average])))
        distinct, times = np.unique(np.asarray(truth).astype(np.int64), return_counts=True)
        return float(self.withholding.squared_errors(distinct) @ times) / float(times.sum())

    def hidden(self, risk: float) -> int:
        """The largest true count that is withheld with more than the risk."""
        return _most_withheld(self.withholding, risk, int(self.largest))


@lru_cache(maxsize=1024)
def _most_withheld(withholding: Withholding, risk: float, largest: int) -> int:
    """The largest true count up to ``largest`` that is withheld with more than the risk."""
    low, high = 0, 1
    while high <= largest and withholding.withheld(high) > risk:
        low, high = high, 2 * high
    return min(bisect_integers(lambda count: not withholding.withheld(count) > risk, low, high) - 1, largest)


@lru_cache(maxsize=256)
def _withheld_error(withholding: Withholding, most: int) -> float:
    """The largest root mean squared error at a count of at most ``most``.

    It rises with the count as long as nearly all are withheld, and then falls: a coarse search is refined.
    """
    step = max(1, most // 256)
    coarse = np.unique(np.append(np.arange(0, most + 1, step), most))
    best = int(coarse[np.argmax(withholding.squared_errors(coarse))])
    fine = np.arange(max(best - step, 0), min(best + step, most) + 1)
    return math.sqrt(float(np.max(withholding.squared_errors(fine))))


def check_unreleased(tally: Tally, categories: int) -> None:
    """Refuse to release twice, or what is not a tally of these categories."""
    if tally.released:
        raise ParameterError("This tally is released already; that happens once.")
    if len(tally.counts) != categories:
        raise ParameterError(f"A tally of {len(tally.counts):,} categories does not fit a domain of {categories:,}.")


def check_released(tally: Tally, categories: int, threshold: int) -> None:
    """Refuse to estimate from counts that should have been withheld."""
    if not tally.released:
        raise ParameterError("This tally holds counts below the threshold; release it first.")
    if len(tally.counts) != categories:
        raise ParameterError(f"A tally of {len(tally.counts):,} categories does not fit a domain of {categories:,}.")
    if np.any((tally.counts != 0) & (tally.counts < threshold)):
        raise ParameterError(f"A released tally holds no count below the threshold {threshold:,}.")
