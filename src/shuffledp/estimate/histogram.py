"""Estimated histograms: the number of users per category."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, error_sentence, percent, shortened, show_counts
from shuffledp.estimate.estimate import Estimate, Floats, Intervals
from shuffledp.notebook import MAX_ROWS, Html, cell, note, table

_SUMMARIZED = 8  # categories in a repr
_LONGEST_NAME = 40  # characters of a category in a repr


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
        names = (shortened(name, _LONGEST_NAME) for name in first.categories)
        counts = [f"{name!r}: {number.text}" for name, number in zip(names, first.shown(), strict=True)]
        more = [f"... {len(self.counts) - _SUMMARIZED:,} more"] if len(self.counts) > _SUMMARIZED else []
        return self._summary(f"{{{', '.join(counts + more)}}}")

    @property
    def _subject(self) -> str:
        return "histogram"

    def _html_table(self, confidence: float) -> Html:
        """All categories, or the largest if there are many."""
        shown = self if len(self.counts) <= MAX_ROWS else self._largest(MAX_ROWS)
        rows = [
            [cell(name), number.text, number.interval, number.share]
            for name, number in zip(shown.categories, shown.shown(confidence), strict=True)
        ]
        listing = table(["category", "users", f"{percent(confidence)} interval", "share of users"], rows)
        others = f"The {len(rows)} largest of {len(self.counts):,} categories; to_frame() has all."
        return Html(listing + note(others if shown is not self else "") + note(self.error_sentence()))

    def _largest(self, categories: int) -> HistogramEstimate:
        """The estimate of this number of largest categories, in decreasing order."""
        order = np.argsort(-self.counts, kind="stable")[:categories]
        return self._chosen(order, tuple(self.categories[position] for position in order.tolist()))

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

    def frequency_interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """A confidence interval per category for the share of users, as ``interval`` for the number."""
        return self.interval(confidence, simultaneous=simultaneous) / self.users

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
        return self._chosen(slice(start, end), self.categories[start:end])

    def _chosen(self, positions: slice | NDArray[np.int64], categories: tuple[str, ...]) -> HistogramEstimate:
        """The estimate of the categories at these positions."""
        return replace(
            self,
            categories=categories,
            counts=self.counts[positions],
            standard_errors=self.standard_errors[positions],
            intervals=partial(_intervals_of, self.intervals, positions),
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
        return self._bars(suffix, self.categories, numbers, confidence, title or self._title(self._subject))


def _intervals_of(intervals: Intervals, positions: slice | NDArray[np.int64], confidence: float) -> Floats:
    return intervals(confidence)[positions]
