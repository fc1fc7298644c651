"""Estimated counts, sums and means: one number with its standard error and interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, show_counts, show_number
from shuffledp.estimate.estimate import Estimate, Floats, Intervals


@dataclass(frozen=True, eq=False, repr=False)
class _NumberEstimate(Estimate):
    """One estimated number."""

    value: float
    standard_error: float
    statistic: str = field(default="", kw_only=True)

    def __repr__(self) -> str:
        (number,) = self.shown()
        estimate = f"{self.statistic} {number.text}, standard error {number.error}"
        return self._summary(estimate, f"{number.interval} with 95% confidence")

    @property
    def _subject(self) -> str:
        return self.statistic

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """A confidence interval: it contains the true number, whatever it is, with at least this probability."""
        check_confidence(confidence)
        low, high = self.intervals(confidence)[0]
        return float(low), float(high)

    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The number formatted for people."""
        return [show_number(self.value, self.standard_error, self.interval(confidence))]

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form."""
        return self._to_json() | {
            "value": self.value,
            "standard_error": self.standard_error,
            "interval": list(self.interval(confidence)),
            "confidence": confidence,
        }

    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns of one row."""
        low, high = self.interval(confidence)
        columns = {"value": [self.value], "standard_error": [self.standard_error], "lower": [low], "upper": [high]}
        return columns | self._more_columns() | {"secure": [self.secure]}

    def _more_columns(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, eq=False, repr=False)
class CountEstimate(_NumberEstimate):
    """An estimated number of users who hold a 1: ``value``, ``standard_error``, ``interval()``, ``fraction``.

    Its ``statistic`` is "count".

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=1_000, epsilon=1.0, delta=1e-6)
    >>> estimate = protocol.run([True] * 400 + [False] * 600)
    >>> low, high = estimate.interval(0.95)
    >>> low <= estimate.value <= high
    True
    """

    statistic: str = field(default="count", kw_only=True)

    @property
    def withheld(self) -> bool:
        """Whether the count was withheld because noise alone can be as large; the value is then 0."""
        return self.value == 0 and self.withheld_below() is not None

    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The count formatted for people."""
        below = self.withheld_below(confidence)
        numbers = [self.value], [self.standard_error], [self.interval(confidence)]
        return show_counts(*numbers, users=self.users, withheld_below=below)

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form."""
        below = self.withheld_below(confidence)
        return super().to_document(confidence) | {"withheld": self.withheld, "withheld_below": below}

    @property
    def fraction(self) -> float:
        """The estimated share of users."""
        return self.value / self.users

    def fraction_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """A confidence interval for the share of users."""
        low, high = self.interval(confidence)
        return low / self.users, high / self.users

    def _more_columns(self) -> dict[str, Any]:
        return {"fraction": [self.fraction], "withheld": [self.withheld]}

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar with its interval among all users, as the content of a .png, .svg or .html file."""
        numbers = np.array([self.value]), np.array([self.standard_error]), np.array([self.interval(confidence)])
        return self._bars(suffix, ["yes"], numbers, confidence, title or self._title(self._subject))


@dataclass(frozen=True, eq=False, repr=False)
class SumEstimate(_NumberEstimate):
    """An estimated sum or mean of the users' numbers: ``value``, ``standard_error``, ``interval()``.

    ``statistic`` is "sum" or "mean"; ``bounds`` are those that follow from the public bounds of the values.

    >>> plans = sdp.plan(sdp.Mean(users=1_000, lower=0, upper=10), epsilon=1.0, delta=1e-6)
    >>> estimate = plans.best.run([2.5] * 1_000)
    >>> estimate.statistic, abs(estimate.value - 2.5) < 5
    ('mean', True)
    """

    statistic: str = field(default="sum", kw_only=True)
    bounds: tuple[float, float] = field(default=(-math.inf, math.inf), kw_only=True)
    """Bounds of the true number that follow from the public bounds of the values."""

    @property
    def mean(self) -> SumEstimate:
        """The same release as an estimated mean: everything divided by the public number of users."""
        if self.statistic == "mean":
            return self
        return replace(
            self,
            statistic="mean",
            value=self.value / self.users,
            standard_error=self.standard_error / self.users,
            intervals=partial(_divided, self.intervals, self.users),
            bounds=(self.bounds[0] / self.users, self.bounds[1] / self.users),
        )

    @property
    def sum(self) -> SumEstimate:
        """The same release as an estimated sum: everything multiplied by the public number of users."""
        if self.statistic == "sum":
            return self
        return replace(
            self,
            statistic="sum",
            value=self.value * self.users,
            standard_error=self.standard_error * self.users,
            intervals=partial(_multiplied, self.intervals, self.users),
            bounds=(self.bounds[0] * self.users, self.bounds[1] * self.users),
        )

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form."""
        return super().to_document(confidence) | {"statistic": self.statistic}

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A point with its interval between the bounds, as the content of a .png, .svg or .html file."""
        from shuffledp.figures import number_line

        (number,), (low, high) = self.shown(confidence), self.interval(confidence)
        bounds = self.bounds if all(map(math.isfinite, self.bounds)) else (low, high)
        return number_line(
            suffix,
            value=number.value,
            interval=(low, high),
            bounds=bounds,
            label=number.text,
            title=title or self._title(self._subject),
            value_title=f"{self.statistic} over {self.users:,} users",
            caption=self._caption(confidence),
        )


def _divided(intervals: Intervals, users: int, confidence: float) -> Floats:
    return intervals(confidence) / users


def _multiplied(intervals: Intervals, users: int, confidence: float) -> Floats:
    return intervals(confidence) * users
