"""Estimated frequent strings: those that were found, with the number of users who hold each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.display import ShownNumber, error_sentence, percent, show_counts, visible
from shuffledp.errors import ParameterError
from shuffledp.estimate.estimate import Estimate, Floats, Intervals
from shuffledp.notebook import MAX_ROWS, Html, cell, note, table

_SUMMARIZED = 8  # strings in a repr

Recall = Callable[[int, float], float]
"""From a length and a count to the probability that such a string is found."""


@dataclass(frozen=True, eq=False, repr=False)
class StringsEstimate(Estimate):
    """Frequent ``strings`` and how many users hold each: ``counts``, ``standard_errors``, ``interval()``.

    The strings are in decreasing order of their counts. ``found_from`` has, for each length, the number of users from
    which on a string is found with the probability ``found_with``; ``recall()`` is that probability for any number of
    users. A string that is missing is probably held by fewer users; it may not be rare. ``hidden`` is the number of
    strings that were found and left out because of a block list; ``symbol`` is what lengths count, symbols or bytes,
    and ``recall_of`` the function behind ``recall()``.

    >>> words = ["yes"] * 4_000 + ["no"] * 6_000
    >>> estimate = sdp.strings(words, alphabet="a-z", max_length=3, epsilon=1.0, delta=1e-6)
    >>> estimate.strings
    ('no', 'yes')
    """

    strings: tuple[str, ...]
    counts: Floats
    standard_errors: Floats
    found_from: tuple[float | None, ...] = field(kw_only=True)
    """By length: the least count that is found with the probability ``found_with``, or None."""
    found_with: float = field(default=0.95, kw_only=True)
    recall_of: Recall = field(kw_only=True, repr=False)
    symbol: str = field(default="symbol", kw_only=True)
    """What lengths count: symbols, or bytes."""
    hidden: int = field(default=0, kw_only=True)

    def __repr__(self) -> str:
        first = self.part(0, _SUMMARIZED)
        counts = [f"{visible(text)}: {number.text}" for text, number in zip(first.strings, first.shown(), strict=True)]
        more = [f"... {len(self) - _SUMMARIZED:,} more"] if len(self) > _SUMMARIZED else []
        return self._summary(f"{{{', '.join(counts + more)}}}")

    def __len__(self) -> int:
        return len(self.strings)

    @property
    def _subject(self) -> str:
        return "strings"

    @property
    def frequencies(self) -> Floats:
        """The estimated share of users per string."""
        return self.counts / self.users

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Floats:
        """A confidence interval per string: it contains the true count with at least this probability.

        With ``simultaneous``, all intervals together do (Bonferroni correction). That holds for strings which are
        nearly always found; those that rarely are may be listed because their noise was large.
        """
        check_confidence(confidence)
        if simultaneous:
            confidence = 1 - (1 - confidence) / max(1, len(self))
        return self.intervals(confidence)

    def recall(self, length: int, count: float) -> float:
        """The predicted probability that a string of this length is found if this many users hold it."""
        if not 0 <= length < len(self.found_from):
            raise ParameterError(f"Strings have from 0 to {len(self.found_from) - 1} {self.symbol}s, not {length}.")
        return self.recall_of(length, count)

    def without(self, blocked: Collection[str]) -> StringsEstimate:
        """The estimate without the strings of a public block list; ``hidden`` counts those that were left out."""
        shown = [position for position, text in enumerate(self.strings) if text not in blocked]
        hidden = self.hidden + len(self) - len(shown)
        return replace(self._chosen(np.array(shown, dtype=np.int64)), hidden=hidden)

    def part(self, start: int, end: int) -> StringsEstimate:
        """The estimate of the strings from position ``start`` to before ``end``."""
        return self._chosen(np.arange(len(self))[start:end])

    def _chosen(self, positions: NDArray[np.int64]) -> StringsEstimate:
        return replace(
            self,
            strings=tuple(self.strings[position] for position in positions.tolist()),
            counts=self.counts[positions],
            standard_errors=self.standard_errors[positions],
            intervals=partial(_intervals_of, self.intervals, positions),
        )

    def shown(self, confidence: float = 0.95) -> list[ShownNumber]:
        """The counts formatted for people."""
        numbers = (numbers.tolist() for numbers in (self.counts, self.standard_errors, self.interval(confidence)))
        return show_counts(*numbers, users=self.users)

    def error_sentence(self) -> str:
        """The standard errors of the counts, in a sentence."""
        return error_sentence(self.standard_errors.tolist(), self.counts.tolist(), None)

    def found_sentence(self) -> str:
        """How many users must hold a string of the most common length for it to be listed, and how many are hidden."""
        lengths = Counter(self._length(text) for text in self.strings)
        length = min(lengths, key=lambda length: (-lengths[length], -length)) if lengths else len(self.found_from) - 1
        least = self.found_from[length]
        of_length = "" if len(set(self.found_from)) == 1 else f" of {length} {self._symbols(length)}"
        sentence = f"No string{of_length} can be found with probability {percent(self.found_with)}."
        if least is not None:
            sentence = (
                f"A string{of_length} held by {math.ceil(least):,} or more users is in this list with probability "
                f"{percent(self.found_with)}."
            )
        if not self.hidden:
            return sentence
        return (
            f"{sentence} {self.hidden:,} {'string is' if self.hidden == 1 else 'strings are'} hidden by a block list."
        )

    def _length(self, text: str) -> int:
        return len(text.encode()) if self.symbol == "byte" else len(text)

    def _symbols(self, number: int) -> str:
        return self.symbol if number == 1 else f"{self.symbol}s"

    def _html_table(self, confidence: float) -> Html:
        """All strings, or the most frequent if there are many."""
        first = self.part(0, MAX_ROWS)
        rows = [
            [cell(visible(text)), number.text, number.interval, number.share]
            for text, number in zip(first.strings, first.shown(confidence), strict=True)
        ]
        listing = table(["string", "users", f"{percent(confidence)} interval", "share of users"], rows)
        others = f"The {len(rows)} most frequent of {len(self):,} strings; to_frame() has all."
        return Html(listing + note(others if len(rows) < len(self) else "") + note(self.error_sentence()))

    def withheld_sentence(self, confidence: float = 0.95) -> str:  # noqa: ARG002 - that of the search
        """How many users must hold a string for it to be listed."""
        return self.found_sentence()

    def to_document(self, confidence: float = 0.95) -> dict[str, Any]:
        """The content of the JSON form, with tuples and arrays."""
        return self._to_json() | {
            "strings": self.strings,
            "counts": self.counts,
            "standard_errors": self.standard_errors,
            "intervals": self.interval(confidence),
            "confidence": confidence,
            "found_from": self.found_from,
            "found_with": self.found_with,
            "hidden": self.hidden,
        }

    def columns(self, confidence: float = 0.95) -> dict[str, Any]:
        """The estimate as named columns, one row per string."""
        low, high = self.interval(confidence).T
        return {
            "string": list(self.strings),
            "count": self.counts,
            "standard_error": self.standard_errors,
            "lower": low,
            "upper": high,
            "frequency": self.frequencies,
            "secure": [self.secure] * len(self),
        }

    def figure(self, suffix: str, *, confidence: float = 0.95, title: str | None = None) -> bytes:
        """A bar per string with its interval, as the content of a .png, .svg or .html file."""
        numbers = self.counts, self.standard_errors, self.interval(confidence)
        names = [visible(text) for text in self.strings]
        return self._bars(suffix, names, numbers, confidence, title or self._title(self._subject))


def _intervals_of(intervals: Intervals, positions: NDArray[np.int64], confidence: float) -> Floats:
    return intervals(confidence)[positions]
