"""Estimates: the released statistics with their errors, intervals and guarantee."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, error_sentence, percent, show_counts, show_number, withheld_sentence
from shuffledp.extras import extra

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from shuffledp.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]
_SUMMARIZED = 8  # categories in a repr
_CAPTION_WIDTH = 110  # characters of a line under a figure's title
Intervals = Callable[[float], Floats]
"""From a confidence to the lower and upper ends, one row per estimated number."""
Thresholds = Callable[[float], int | None]
"""From a confidence to ``withheld_below``; None if nothing is withheld."""


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """Base class of estimates: the released numbers with their errors, and the guarantee of the release.

    ``protocol``, ``estimator`` and ``users`` say how it was made, ``secure`` is False if the noise came from a seed,
    and ``caveats`` are sentences about what the ``guarantee`` does not cover. ``intervals`` and ``threshold_at`` are
    functions of the confidence; use ``interval()`` and ``withheld_below()``.
    """

    protocol: str
    estimator: str
    users: int
    guarantee: Guarantee
    intervals: Intervals = field(repr=False)
    secure: bool
    """False if the noise came from a seed: then there is no privacy."""
    caveats: tuple[str, ...] = field(default=(), kw_only=True)
    """What the guarantee does not cover, a sentence each."""
    threshold_at: Thresholds | None = field(default=None, kw_only=True, repr=False)

    def withheld_below(self, confidence: float = 0.95) -> int | None:
        """The threshold below which counts may be withheld; None if the estimator withholds none.

        A withheld count has the estimate 0. A count of at least the threshold is withheld with a probability of at most
        (1 - confidence) / 2.
        """
        check_confidence(confidence)
        return None if self.threshold_at is None else self.threshold_at(confidence)

    @abstractmethod
    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The estimated numbers formatted for people, clipped to their intervals and rounded to the error."""

    @property
    def withheld(self) -> Any:
        """Whether each count was withheld because noise alone can be as large; its estimate is then 0."""
        return False

    def withheld_sentence(self, confidence: float = 0.95) -> str:
        """An explanation of withheld counts; empty if none was withheld."""
        return withheld_sentence(self.withheld_below(confidence), confidence) if np.any(self.withheld) else ""

    def _summary(self, *parts: str) -> str:
        """The repr, of the given parts and the guarantee."""
        privacy = f"epsilon = {self.guarantee.epsilon:.4g}, delta = {self.guarantee.delta:.2g}"
        privacy = privacy if self.secure else "NOT PRIVATE: seeded"
        return f"{type(self).__name__}({'; '.join(parts)}; {self.users:,} users; {self.protocol}, {privacy})"

    def guarantee_sentence(self) -> str:
        """The guarantee and its caveats in sentences, or that there is none because the noise came from a seed."""
        if not self.secure:
            return "NOT PRIVATE: the noise came from a fixed seed; do not release this result."
        return " ".join((self.guarantee.sentence(), *self.caveats))

    def _to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "estimator": self.estimator,
            "guarantee": self.guarantee.to_json() if self.secure else None,
            "secure": self.secure,
            "caveats": list(self.caveats) if self.secure else [self.guarantee_sentence(), *self.caveats],
            "users": self.users,
        }

    @abstractmethod
    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form, with arrays and tuples, which take less memory than lists."""

    def to_json(self, confidence: float = 0.95) -> dict[str, Any]:
        """The documented JSON form."""
        return {key: _plain(value) for key, value in self.to_document(confidence).items()}

    @abstractmethod
    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns of equal length, one row per estimated number."""

    def to_table(self, confidence: float = 0.95) -> pa.Table:
        """The estimate as an Arrow table, one row per estimated number; needs the extra ``files``."""
        with extra("files", "to_table()"):
            import pyarrow as pa
        return pa.table(self.columns(confidence))

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """The estimate as a pandas data frame, one row per estimated number; needs the extra ``pandas``."""
        with extra("pandas", "to_frame()"):
            import pandas as pd
        return pd.DataFrame(self.columns(confidence))

    def _caption(self, confidence: float) -> list[str]:
        """The lines under the title of a figure: what the bars are, the guarantee, and its caveats."""
        lines = [f"Lines: {percent(confidence)} confidence. {self.users:,} users, protocol {self.protocol}."]
        withheld = textwrap.wrap(self.withheld_sentence(confidence), _CAPTION_WIDTH)
        if not self.secure:
            return [*lines, *withheld, self.guarantee_sentence()]
        factor = math.exp(min(self.guarantee.epsilon, 700.0))
        lines.append(
            f"Differentially private in the {self.guarantee.trust} model: epsilon = {self.guarantee.epsilon:.4g} "
            f"(any outcome at most {factor:.3g} times likelier), delta = {self.guarantee.delta:.2g}."
        )
        return [*lines, *withheld, *self.caveats]

    def _title(self, subject: str) -> str:
        return f"{'Private' if self.secure else 'NOT PRIVATE'} {subject}"

    def _bars(
        self, suffix: str, names: Sequence[str], numbers: tuple[Floats, Floats, Floats], confidence: float, title: str
    ) -> bytes:
        """Draw counts with their intervals as bars."""
        from shuffledp.figures import bars

        values, errors, intervals = numbers
        return bars(
            suffix,
            names=names,
            values=values,
            errors=errors,
            intervals=intervals,
            withheld_below=self.withheld_below(confidence),
            users=self.users,
            title=title,
            value_title=f"users (of {self.users:,})",
            caption=self._caption(confidence),
        )

    def plot(self, path: str | Path, *, confidence: float = 0.95, title: str | None = None) -> None:
        """Draw the estimate with its intervals (.png, .svg or .html)."""
        from shuffledp.figures import check_figure_path
        from shuffledp.output import write_whole

        suffix = check_figure_path(path).suffix.lower()
        write_whole(path, self.figure(suffix, confidence=confidence, title=title))

    @abstractmethod
    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """The figure as the content of a file with this suffix."""


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

    def _more_columns(self) -> dict[str, Any]:
        return {"fraction": [self.fraction], "withheld": [self.withheld]}

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar with its interval among all users, as the content of a .png, .svg or .html file."""
        numbers = np.array([self.value]), np.array([self.standard_error]), np.array([self.interval(confidence)])
        return self._bars(suffix, ["yes"], numbers, confidence, title or self._title("count"))


@dataclass(frozen=True, eq=False, repr=False)
class SumEstimate(_NumberEstimate):
    """An estimated sum of the users' numbers, or its mean: ``value``, ``standard_error``, ``interval()``.

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
            title=title or self._title(self.statistic),
            value_title=f"{self.statistic} over {self.users:,} users",
            caption=self._caption(confidence),
        )


@dataclass(frozen=True, eq=False, repr=False)
class HistogramEstimate(Estimate):
    """Estimated numbers of users per category: ``counts``, ``frequencies``, ``standard_errors``, ``interval()``.

    >>> plans = sdp.plan(sdp.Histogram(users=1_000, categories=["a", "b"]), epsilon=1.0, delta=1e-6)
    >>> estimate = plans.best.run(["a"] * 700 + ["b"] * 300)
    >>> estimate.categories, estimate.interval(0.95).shape
    (('a', 'b'), (2, 2))
    """

    categories: tuple[str, ...]
    counts: Floats
    standard_errors: Floats

    def __repr__(self) -> str:
        first = self.part(0, _SUMMARIZED)
        counts = [f"{name!r}: {number.text}" for name, number in zip(first.categories, first.shown(), strict=True)]
        more = [f"... {len(self.counts) - _SUMMARIZED:,} more"] if len(self.counts) > _SUMMARIZED else []
        return self._summary(f"{{{', '.join(counts + more)}}}")

    @property
    def withheld(self) -> NDArray[np.bool_]:
        """Which counts were withheld because noise alone can be as large; their estimates are 0."""
        return np.asarray((self.counts == 0) & (self.withheld_below() is not None), dtype=np.bool_)

    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The counts formatted for people."""
        below = self.withheld_below(confidence)
        numbers = (numbers.tolist() for numbers in (self.counts, self.standard_errors, self.interval(confidence)))
        return show_counts(*numbers, users=self.users, withheld_below=below)

    def error_sentence(self) -> str:
        """The standard errors of the counts, in a sentence."""
        return error_sentence(self.standard_errors.tolist(), self.counts.tolist(), self.withheld_below())

    @property
    def frequencies(self) -> Floats:
        """The estimated share of users per category."""
        return self.counts / self.users

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """A confidence interval per category: it contains the true count with at least this probability.

        With ``simultaneous``, all intervals together do (Bonferroni correction).
        """
        check_confidence(confidence)
        if simultaneous:
            confidence = 1 - (1 - confidence) / len(self.counts)
        return self.intervals(confidence)

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form, with a tuple and arrays."""
        return self._to_json() | {
            "categories": self.categories,
            "counts": self.counts,
            "standard_errors": self.standard_errors,
            "intervals": self.interval(confidence),
            "confidence": confidence,
            "withheld": self.withheld,
            "withheld_below": self.withheld_below(confidence),
        }

    def part(self, start: int, end: int) -> HistogramEstimate:
        """The estimate of the categories from index ``start`` to before ``end``."""
        return replace(
            self,
            categories=self.categories[start:end],
            counts=self.counts[start:end],
            standard_errors=self.standard_errors[start:end],
            intervals=partial(_part, self.intervals, start, end),
        )

    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns, one row per category."""
        low, high = self.interval(confidence).T
        return {
            "category": list(self.categories),
            "count": self.counts,
            "standard_error": self.standard_errors,
            "lower": low,
            "upper": high,
            "frequency": self.frequencies,
            "withheld": self.withheld,
            "secure": [self.secure] * len(self.counts),
        }

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar per category with its interval, as the content of a .png, .svg or .html file."""
        numbers = self.counts, self.standard_errors, self.interval(confidence)
        return self._bars(suffix, self.categories, numbers, confidence, title or self._title("histogram"))


def _part(intervals: Intervals, start: int, end: int, confidence: float) -> Floats:
    return intervals(confidence)[start:end]


def _divided(intervals: Intervals, users: int, confidence: float) -> Floats:
    return intervals(confidence) / users


def _multiplied(intervals: Intervals, users: int, confidence: float) -> Floats:
    return intervals(confidence) * users


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
