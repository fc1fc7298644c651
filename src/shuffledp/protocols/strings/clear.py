"""Protocols in which users send their string to a trusted party, which releases only frequent ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_index
from shuffledp.errors import ParameterError
from shuffledp.estimate import StringsEstimate
from shuffledp.messages import MessageFormat, Messages, Tally, count_values
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.parts.thresholded import THRESHOLD_ESTIMATORS, ThresholdAnalysis
from shuffledp.protocols.protocol import ExpectedError, Pmf, check_estimator
from shuffledp.protocols.strings.protocol import MAX_LISTED, SearchProgress, StringsProtocol
from shuffledp.randomness import SYSTEM, RandomSource

if TYPE_CHECKING:
    from shuffledp.protocols.strings.search_plan import SearchSettings

_FOUND_WITH = 0.95
_LIMB = 64


@dataclass(frozen=True, eq=False)
class StringTally(Tally):
    """Counts of the strings of a large domain that occur: ``indices`` in increasing order, and the count of each."""

    indices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.indices) != len(self.counts):
            raise ParameterError(f"There are {len(self.indices):,} strings, but {len(self.counts):,} counts.")

    def __add__(self, other: Tally) -> StringTally:
        if not isinstance(other, StringTally) or self.released or other.released:
            raise ParameterError("Only tallies of strings that are not released can be added.")
        counts: dict[int, int] = {}
        for part in (self, other):
            for index, count in zip(part.indices, part.counts.tolist(), strict=True):
                counts[index] = counts.get(index, 0) + count
        return string_tally(counts, self.users + other.users, self.secure and other.secure)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StringTally):
            return NotImplemented
        return super().__eq__(other) is True and self.indices == other.indices

    __hash__ = None


def string_tally(counts: dict[int, int], users: int, secure: bool) -> StringTally:
    """The tally of these counts by index."""
    indices = tuple(sorted(counts))
    numbers = np.array([counts[index] for index in indices], dtype=np.int64)
    return StringTally(numbers, users, secure, indices=indices)


@dataclass(frozen=True)
class ClearStrings(SingleMessageProtocol, StringsProtocol):
    """Users send their string; the release is that of a histogram of the strings that occur."""

    trust: ClassVar[str] = "central"
    estimators: ClassVar[tuple[str, ...]] = THRESHOLD_ESTIMATORS

    @abstractmethod
    def histogram(self, strings: int) -> HistogramProtocol:
        """The same noise and threshold for a histogram of this many strings."""

    @property
    def message_format(self) -> MessageFormat:
        """The index of a string, in parts of 64 bits."""
        parts = max(1, -(-(self.domain_size - 1).bit_length() // _LIMB))
        if parts == 1:
            return MessageFormat((self.domain_size,))
        return MessageFormat((((self.domain_size - 1) >> (_LIMB * (parts - 1))) + 1, *[1 << _LIMB] * (parts - 1)))

    @property
    def _is_listed(self) -> bool:
        """Whether a tally has a count for every string of the domain."""
        return self.domain_size <= MAX_LISTED

    def report_pmf(self, value: int) -> Pmf:
        """The true index."""
        owned = check_index(value, self.domain_size)
        return {tuple(int(index == owned) for index in self.inputs()): 1.0}

    def randomize(self, value: Any, *, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The string itself."""
        return self.randomize_all(self.domain.index_array([check_index(value, self.domain_size)]), source=source).values

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The strings themselves, without randomization."""
        owned = self.check_indices(values)
        form = self.message_format
        if form.columns == 1:
            return one_message_each(owned.astype(form.dtype), source)
        sent = form.empty(len(owned))
        for column in range(form.columns):
            shift = _LIMB * (form.columns - 1 - column)
            sent[:, column] = [(int(index) >> shift) & ((1 << _LIMB) - 1) for index in owned]
        return Messages(sent, len(owned), np.arange(len(owned) + 1, dtype=np.int64), source.secure)

    def tally(self, messages: Messages) -> Tally:
        """The number of users per string: of every string of a small domain, else of those that occur."""
        form = self.message_format
        values = form.check(messages.values)
        if self._is_listed:
            return Tally(count_values(values, self.domain_size), messages.users, messages.secure)
        rows, counts = np.unique(values.reshape(-1, form.columns), axis=0, return_counts=True)
        occurring: dict[int, int] = {}
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            index = 0
            for part in row:
                index = index << _LIMB | part
            if index >= self.domain_size:
                raise ParameterError("A message is not the index of a string.")
            occurring[index] = count
        return string_tally(occurring, messages.users, messages.secure)

    def sample_tally(self, data: NDArray[Any], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts, released."""
        indices, counts = self.check_summary(data)
        held = {int(index): int(count) for index, count in zip(indices, counts, strict=True) if count}
        if not self._is_listed:
            return self.release(string_tally(held, int(counts.sum()), source.secure), source=source)
        listed = np.zeros(self.domain_size, dtype=np.int64)
        for index, count in held.items():
            listed[index] = count
        return self.release(Tally(listed, int(counts.sum()), source.secure), source=source)

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """Noise for every string that occurs; only frequent ones are released."""
        released = self.histogram(max(1, len(tally.counts))).release(_padded(tally), source=source)
        if not isinstance(tally, StringTally):
            return released
        shown = np.flatnonzero(released.counts[: len(tally.counts)])
        return StringTally(
            released.counts[shown],
            released.users,
            released.secure,
            released=True,
            indices=tuple(tally.indices[position] for position in shown.tolist()),
        )

    def release_pmf(self, tally: Tally) -> Pmf:
        """Independent counts, each withheld or released."""
        return self.histogram(self.domain_size).release_pmf(tally)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: no count below the threshold."""
        if isinstance(tally, StringTally) != (not self._is_listed):
            raise ParameterError("This tally does not belong to this domain of strings.")
        self.histogram(max(1, len(tally.counts))).check_tally(_padded(tally))

    def find_strings(
        self,
        tally: Tally,
        *,
        estimator: str = "",
        settings: SearchSettings | None = None,  # noqa: ARG002 - nothing is searched
        candidates: Collection[str] = (),  # noqa: ARG002
        progress: SearchProgress = lambda _: None,  # noqa: ARG002
    ) -> StringsEstimate:
        """The released strings, with their counts."""
        estimator = estimator or self.estimators[0]
        self.check_round(tally, estimator)
        shown = np.flatnonzero(tally.counts)
        indices = tally.indices if isinstance(tally, StringTally) else range(len(tally.counts))
        analysis = self._analysis(tally.users)
        counts = analysis.estimate(tally.counts[shown], estimator)
        order = np.argsort(-counts, kind="stable")
        observed = tally.counts[shown][order]
        least = float(analysis.largest_withheld(1 - _FOUND_WITH) + 1)
        return StringsEstimate(
            **self.origin(tally, estimator),
            intervals=analysis.intervals(observed),
            strings=tuple(self.domain.string(int(indices[position])) or "" for position in shown[order].tolist()),
            counts=counts[order],
            standard_errors=analysis.standard_errors(observed),
            found_from=(least,) * (self.domain.max_length + 1),
            found_with=_FOUND_WITH,
            recall_of=partial(_released, analysis),
            symbol="byte" if self.domain.symbols is None else "symbol",
        )

    def expected_found_from(self, length: int) -> float | None:  # noqa: ARG002 - the same for all
        """The least count that is rarely withheld."""
        return float(self._analysis(self.users).largest_withheld(1 - _FOUND_WITH) + 1)

    def _analysis(self, users: int) -> ThresholdAnalysis:
        analysis = self.histogram(min(self.domain_size, users)).analysis(users)
        assert isinstance(analysis, ThresholdAnalysis)  # noqa: S101 - of the histograms of both protocols
        return analysis

    def expected_error(
        self, *, estimator: str = "", confidence: float = 0.95, users: int | None = None
    ) -> ExpectedError:
        """The error of a released count, and the largest of all: a string that is withheld counts as 0."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        analysis = self._analysis(users or self.users)
        least = analysis.largest_withheld(1 - _FOUND_WITH) + 1.0
        variance = float(analysis.error.variance(np.array([least]))[0])
        return replace(analysis.expected_error(confidence), rmse=variance**0.5)

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:
        """The predicted error for these strings of a small domain."""
        if not self._is_listed:
            return self.expected_error()
        histogram = self.histogram(self.domain_size)
        return histogram.expected_error(counts=self.truth(values).astype(np.int64))


def _padded(tally: Tally) -> Tally:
    """A tally for a histogram, which has at least one category."""
    counts = tally.counts if len(tally.counts) else np.zeros(1, dtype=np.int64)
    return Tally(counts, tally.users, tally.secure, tally.released)


def _released(analysis: ThresholdAnalysis, length: int, count: float) -> float:  # noqa: ARG001 - the same for all
    return 1.0 - analysis.withholding.withheld(int(count))
