"""Estimated distributions of numbers: users below each edge, quantiles, ranges and histograms, with intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, error_range, percent, show_counts, show_number
from shuffledp.errors import ParameterError
from shuffledp.estimate.binned_moments import BinnedMoments
from shuffledp.estimate.estimate import Estimate, Floats
from shuffledp.notebook import Html, card, note, table
from shuffledp.tabular import data_frame

if TYPE_CHECKING:
    import pandas as pd

RadiusOf = Callable[[Floats, float], float]
"""From weights of the bins and a risk to a distance: the estimate of sum(weights * counts) exceeds the truth by more
than this distance with probability at most risk / 2, and falls below it by more with probability at most risk / 2."""

DEFAULT_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_MAX_REFINED = 48  # bins at either end of an interval that are tested with the sharper bound of radius_of


@dataclass(frozen=True, repr=False)
class EstimatedNumber:
    """One number, its ``value``, with its interval from ``low`` to ``high`` at a ``confidence``."""

    value: float
    low: float
    high: float
    confidence: float

    def __repr__(self) -> str:
        number = self.shown()
        return f"EstimatedNumber({number.text}; {number.interval} with {percent(self.confidence)} confidence)"

    def _repr_html_(self) -> str:
        number = self.shown()
        return card(
            "", table(["estimate", f"{percent(self.confidence)} interval"], [[number.text, number.interval]], words=())
        )

    def shown(self) -> ShownNumber:
        """The number formatted for people, rounded to a quarter of its interval."""
        return show_number(self.value, (self.high - self.low) / 4, (self.low, self.high))

    def columns(self) -> dict[str, Any]:
        """The number as named columns of one row."""
        return {"value": [self.value], "lower": [self.low], "upper": [self.high], "confidence": [self.confidence]}

    def to_frame(self) -> pd.DataFrame:
        """The number as a pandas data frame of one row; needs the extra ``pandas``."""
        return data_frame(self.columns())

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"value": self.value, "interval": [self.low, self.high], "confidence": self.confidence}


@dataclass(frozen=True, eq=False, repr=False)
class QuantileEstimate(Estimate):
    """The estimated distribution of the users' numbers: ``quantile()``, ``cdf()``, ``range()``, ``variance()``.

    Every number has an interval that contains the truth, whatever the data, with at least the confidence. The value of
    a quantile is interpolated within its bin; its interval consists of whole bins. ``below`` are the estimated numbers
    of users below the inner ``edges`` of the bins, with their ``standard_errors``; ``unbiased`` are these before they
    were made monotone, and ``radius_of`` computes intervals. ``asked`` are the quantiles that tables list.

    >>> plans = sdp.plan(sdp.Quantiles(users=2_000, lower=0, upper=120, bins=16), epsilon=1.0, delta=1e-6)
    >>> estimate = plans.best.run([30.0] * 1_000 + [90.0] * 1_000)
    >>> estimate.quantile(0.25).low <= 30 <= estimate.quantile(0.25).high
    True
    """

    edges: Floats
    """The ends of the bins, one more than there are bins."""
    below: Floats
    """The estimated number of users below each inner edge."""
    standard_errors: Floats
    """Standard errors of ``below``."""
    unbiased: Floats = field(repr=False)
    """The same estimates before they were made monotone; intervals lie about these."""
    radius_of: RadiusOf = field(repr=False)
    asked: tuple[float, ...] = field(default=DEFAULT_QUANTILES, kw_only=True)
    """The quantiles that tables and the JSON form list."""
    _radii: dict[tuple[int, float], float] = field(default_factory=dict, init=False, repr=False)
    """Radii by edge and risk: they take long to compute, and tables and figures need the same."""
    _deviations: dict[float, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    """Intervals of the standard deviation by confidence, relative to the distance between the bounds."""

    def __post_init__(self) -> None:
        for share in self.asked:
            check_quantile(share)

    def __repr__(self) -> str:
        shown = zip(self.asked, self.shown(), strict=True)
        return self._summary(", ".join(f"{share:g} quantile {number.text}" for share, number in shown))

    @property
    def _subject(self) -> str:
        return "distribution"

    def _html_table(self, confidence: float) -> Html:
        """The quantiles asked for."""
        numbers = zip(self.asked, self.shown(confidence), strict=True)
        rows = [[f"{share:g}", number.text, number.interval] for share, number in numbers]
        listing = table(["quantile", "value", f"{percent(confidence)} interval"], rows, words=())
        return Html(listing + note(self.error_sentence()))

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1

    @property
    def cumulative(self) -> Floats:
        """Numbers of users below every edge, from 0 to all users, that do not decrease."""
        inner = np.clip(np.maximum.accumulate(np.clip(self.below, 0.0, self.users)), 0.0, self.users)
        return np.concatenate(([0.0], inner, [float(self.users)]))

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """An interval for the number of users below each inner edge; with ``simultaneous``, all hold at once."""
        check_confidence(confidence)
        if simultaneous:
            confidence = 1 - (1 - confidence) / max(1, len(self.below))
        return self.intervals(confidence)

    def quantile(self, share: float, confidence: float = 0.95) -> EstimatedNumber:
        """The number below which this share of the users lies; ``share`` is strictly between 0 and 1."""
        check_quantile(share)
        check_confidence(confidence)
        target = share * self.users
        counts = self.cumulative
        index = min(max(int(np.searchsorted(counts, target, side="left")) - 1, 0), self.bins - 1)
        inside = counts[index + 1] - counts[index]
        position = (target - counts[index]) / inside if inside > 0 else 0.5
        low, high = float(self.edges[index]), float(self.edges[index + 1])
        first, last = self._bins_of(target, index, confidence)
        value = low + (high - low) * min(max(float(position), 0.0), 1.0)
        return EstimatedNumber(value, float(self.edges[first]), float(self.edges[last + 1]), confidence)

    @property
    def median(self) -> EstimatedNumber:
        """The 0.5 quantile."""
        return self.quantile(0.5)

    def _bins_of(self, target: float, index: int, confidence: float) -> tuple[int, int]:
        """The first and last bin that may contain the user of this rank.

        A bin is excluded if by the intervals at least ``target`` users lie below it, or fewer below its upper edge.
        The bin that contains the rank is excluded with a probability of at most 1 - confidence, half at either end.
        """
        risk = 1 - confidence
        ends = self.intervals(confidence)
        at_least = np.concatenate(([0.0], ends[:, 0], [float(self.users)]))  # users below each edge
        at_most = np.concatenate(([0.0], ends[:, 1], [float(self.users)]))
        possible = np.flatnonzero((at_least[:-1] < target) & (at_most[1:] >= target))
        first, last = (int(possible[0]), int(possible[-1])) if len(possible) else (index, index)
        for _ in range(_MAX_REFINED):
            if first >= min(index, last) or self._may_contain(first, target, risk):
                break
            first += 1
        for _ in range(_MAX_REFINED):
            if last <= max(index, first) or self._may_contain(last, target, risk):
                break
            last -= 1
        return min(first, index), max(last, index)

    def _may_contain(self, index: int, target: float, risk: float) -> bool:
        """Whether a bin may contain the user of this rank, by the sharper bound."""
        fewest = self._below_edge(index) - self._radius_below(index, risk)
        largest = self._below_edge(index + 1) + self._radius_below(index + 1, risk)
        return fewest < target <= largest

    def _below_edge(self, edge: int) -> float:
        return float(np.concatenate(([0.0], self.unbiased, [float(self.users)]))[edge])

    def _radius_below(self, edge: int, risk: float) -> float:
        if edge in (0, self.bins):
            return 0.0
        if (edge, risk) not in self._radii:
            self._radii[edge, risk] = self.radius_of((np.arange(self.bins) < edge).astype(np.float64), risk)
        return self._radii[edge, risk]

    def cdf(self, x: float, confidence: float = 0.95) -> EstimatedNumber:
        """The share of users below ``x``; interpolated between edges, where the interval covers both edges."""
        number = self.range(float(self.edges[0]), x, confidence)
        return EstimatedNumber(number.value / self.users, number.low / self.users, number.high / self.users, confidence)

    def range(self, low: float, high: float, confidence: float = 0.95) -> EstimatedNumber:
        """The number of users from ``low`` to below ``high``; interpolated within the bins at either end.

        The lower end of the interval counts the bins inside the range, the upper end all bins that overlap it.
        """
        check_confidence(confidence)
        low, high = self._clipped(low), self._clipped(high)
        if not low <= high:
            raise ParameterError(f"A range needs its lower end first, not {low:g} and {high:g}.")
        estimate = float(np.interp(high, self.edges, self.cumulative) - np.interp(low, self.edges, self.cumulative))
        outer = self._edge_at(low, "right"), self._edge_at(high, "left")
        inner = self._edge_at(low, "left"), self._edge_at(high, "right")
        least = self._sum_of_bins(*inner, confidence)[0] if inner[0] < inner[1] else 0.0
        highest = self._sum_of_bins(*outer, confidence)[1] if outer[0] < outer[1] else 0.0
        value = min(max(estimate, least), highest)
        return EstimatedNumber(value, least, highest, confidence)

    def _clipped(self, x: float) -> float:
        if math.isnan(x):
            raise ParameterError("A range needs numbers, not NaN.")
        return float(min(max(x, self.edges[0]), self.edges[-1]))

    def _edge_at(self, x: float, side: str) -> int:
        """The number of the last edge at or below x ("right"), or of the first edge at or above it ("left")."""
        if side == "right":
            return int(np.searchsorted(self.edges, x, side="right")) - 1
        return int(np.searchsorted(self.edges, x, side="left"))

    def _sum_of_bins(self, first: int, end: int, confidence: float) -> tuple[float, float]:
        """An interval for the number of users in the bins from ``first`` to before ``end``."""
        estimate = self._below_edge(end) - self._below_edge(first)
        if (first, end) == (0, self.bins):
            return float(self.users), float(self.users)
        index = np.arange(self.bins)
        radius = self.radius_of(((index >= first) & (index < end)).astype(np.float64), 1 - confidence)
        return max(estimate - radius, 0.0), min(estimate + radius, float(self.users))

    def mean(self, confidence: float = 0.95) -> EstimatedNumber:
        """The mean of the users' numbers, each taken as the middle of its bin; the interval holds for any data."""
        check_confidence(confidence)
        low, high = self._moments(self.unbiased).mean_interval(1 - confidence)
        lower, width = float(self.edges[0]), self._width
        value = min(max(self._moments(self.below).mean, low), high)
        return EstimatedNumber(lower + width * value, lower + width * low, lower + width * high, confidence)

    def standard_deviation(self, confidence: float = 0.95) -> EstimatedNumber:
        """The square root of the variance."""
        number = self.variance(confidence)
        return EstimatedNumber(math.sqrt(number.value), math.sqrt(number.low), math.sqrt(number.high), confidence)

    def variance(self, confidence: float = 0.95) -> EstimatedNumber:
        """The mean squared distance of the users' numbers from their mean.

        Numbers are taken as uniform within their bin; the interval holds for any data.
        """
        check_confidence(confidence)
        if confidence not in self._deviations:
            self._deviations[confidence] = self._moments(self.unbiased).deviation_interval(1 - confidence)
        low, high = (deviation**2 for deviation in self._deviations[confidence])
        moments, scale = self._moments(self.below), self._width**2
        value = min(max(moments.variance + moments.variance_within, low), high)
        return EstimatedNumber(scale * value, scale * low, scale * high, confidence)

    def _moments(self, below: Floats) -> BinnedMoments:
        return BinnedMoments(np.diff(below, prepend=0.0, append=float(self.users)), self.users, self.radius_of)

    @property
    def _width(self) -> float:
        """The distance from the lower to the upper bound."""
        return float(self.edges[-1] - self.edges[0])

    def histogram(self, edges: Sequence[float], confidence: float = 0.95) -> list[EstimatedNumber]:
        """The number of users between each two successive edges."""
        if len(edges) < 2 or not all(low < high for low, high in itertools.pairwise(edges)):
            raise ParameterError("A histogram needs at least two edges in increasing order.")
        return [self.range(low, high, confidence) for low, high in itertools.pairwise(edges)]

    def quantiles(self, shares: Sequence[float] | None = None, confidence: float = 0.95) -> list[EstimatedNumber]:
        """Several quantiles; those asked for if none are given."""
        return [self.quantile(share, confidence) for share in (self.asked if shares is None else shares)]

    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The quantiles asked for, formatted for people."""
        return [number.shown() for number in self.quantiles(confidence=confidence)]

    def shown_below(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The numbers of users below each inner edge, formatted for people."""
        numbers = self.below.tolist(), self.standard_errors.tolist(), self.interval(confidence).tolist()
        return show_counts(*numbers, users=self.users)

    def error_sentence(self) -> str:
        """The standard errors of the numbers of users below edges."""
        errors = error_range(self.standard_errors.tolist())
        return f"The standard error of the number of users below an edge is {errors} users."

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form, with arrays."""
        quantiles = zip(self.asked, self.quantiles(confidence=confidence), strict=True)
        return self._to_json() | {
            "quantiles": [
                {"quantile": share, "value": number.value, "interval": [number.low, number.high]}
                for share, number in quantiles
            ],
            "mean": _value_and_interval(self.mean(confidence)),
            "variance": _value_and_interval(self.variance(confidence)),
            "standard_deviation": _value_and_interval(self.standard_deviation(confidence)),
            "edges": self.edges,
            "below": self.below,
            "standard_errors": self.standard_errors,
            "intervals": self.interval(confidence),
            "confidence": confidence,
        }

    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns, one row per inner edge."""
        low, high = self.interval(confidence).T
        return {
            "edge": self.edges[1:-1],
            "below": self.below,
            "standard_error": self.standard_errors,
            "lower": low,
            "upper": high,
            "share": self.below / self.users,
            "secure": [self.secure] * len(self.below),
        }

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """The cumulative distribution with a band that holds everywhere at once, as the content of a file."""
        from shuffledp.figures import MarkedQuantile, cumulative

        band = self.interval(confidence, simultaneous=True)
        ends = np.array([[0.0, 0.0], *band.tolist(), [float(self.users)] * 2])
        ends[:, 0] = np.maximum.accumulate(ends[:, 0])  # true counts do not decrease, so their bounds need not either
        ends[::-1, 1] = np.minimum.accumulate(ends[::-1, 1])
        marks = [
            MarkedQuantile(share, number.value, number.low, number.high, f"{share:g}: {text.text}")
            for share, number, text in zip(
                self.asked, self.quantiles(confidence=confidence), self.shown(confidence), strict=True
            )
        ]
        _, *guarantee = self._caption(confidence)
        return cumulative(
            suffix,
            edges=self.edges,
            shares=self.cumulative / self.users,
            band=ends / self.users,
            quantiles=marks,
            title=title or self._title(self._subject),
            caption=[
                f"Band: {percent(confidence)} confidence at all values together. Dots: quantiles with "
                f"{percent(confidence)} intervals.",
                f"{self.users:,} users in {self.bins:,} bins, protocol {self.protocol}.",
                *guarantee,
            ],
        )


def _value_and_interval(number: EstimatedNumber) -> dict[str, Any]:
    return {"value": number.value, "interval": [number.low, number.high]}


def check_quantile(share: float) -> None:
    """Refuse a share of users that is not strictly between 0 and 1: the extremes of a data set are never private."""
    if not isinstance(share, (int, float, np.integer, np.floating)):
        raise ParameterError(f"A quantile must be a number between 0 and 1, both excluded, not {share!r}.")
    if not 0 < share < 1:
        raise ParameterError(
            f"A quantile must lie between 0 and 1, both excluded, not {share:g}; the least and largest value of the "
            "data are those of single users.",
            quantile=share,
        )
