"""Base of the protocols that find frequent strings: which strings do many users hold, and how many users each?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Strings
from shuffledp.errors import DomainError
from shuffledp.estimate import StringsEstimate
from shuffledp.messages import Tally
from shuffledp.protocols.flow import EstimatingProtocol, tally_round
from shuffledp.protocols.parts.indexed import IndexedProtocol
from shuffledp.protocols.protocol import ExpectedError
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, RandomSource

if TYPE_CHECKING:
    from shuffledp.protocols.strings.search_plan import SearchSettings

SearchProgress = Callable[[float], None]
"""Called with the share of the work that is done."""
MAX_LISTED = 1 << 12
"""Domains of more strings are not enumerated."""


@dataclass(frozen=True)
class StringsProtocol(IndexedProtocol, EstimatingProtocol[StringsEstimate]):
    """Which strings many users hold, of a domain that nobody lists.

    Values are the indices of strings in the domain; the summary of many values has a row (index, count) for each string
    that somebody holds.
    """

    question: ClassVar[str] = "strings"
    domain_options: ClassVar[tuple[str, ...]] = ("domain", "alphabet", "max_length")

    domain: Strings

    @classmethod
    def domain_arguments(
        cls, *, domain: Strings | None = None, alphabet: str | None = None, max_length: int | None = None
    ) -> tuple[Strings]:
        """Strings over a public alphabet."""
        if domain is None:
            if alphabet is None or max_length is None:
                raise DomainError("Strings need their domain: give alphabet and max_length, or domain.")
            return (Strings(alphabet, max_length),)
        if alphabet is not None or max_length is not None:
            raise DomainError("Give the strings once: as alphabet and max_length, or as domain.")
        if not isinstance(domain, Strings):
            raise DomainError(f"The domain must be of type Strings, not {type(domain).__name__}.")
        return (domain,)

    @classmethod
    @abstractmethod
    def for_target(cls, target: Target, domain: Strings) -> Self:
        """The protocol's own calibration."""

    @property
    def domain_size(self) -> int:
        """The number of possible strings."""
        return self.domain.size

    def inputs(self, *, between: bool = False) -> tuple[int, ...]:  # noqa: ARG002
        """Every index of a small domain; of a large one the empty string, the first one after it and the last one."""
        size = self.domain_size
        return tuple(range(size)) if size <= MAX_LISTED else (0, 1, size - 1)

    def check_indices(self, values: NDArray[Any]) -> NDArray[Any]:
        """Check indices of strings, which may be too large for 64 bits."""
        indices = np.asarray(values)
        if indices.ndim != 1 or indices.dtype.kind not in "iuO":
            raise DomainError(
                f"Indices must be a flat array of integers, not {indices.dtype} in {indices.ndim} dimensions."
            )
        if indices.dtype == object and not all(isinstance(index, (int, np.integer)) for index in indices):
            raise DomainError("Indices of strings must be integers.")
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < self.domain_size):
            raise DomainError(f"An index is outside 0 .. {self.domain_size - 1:,}.")
        return indices.astype(self.domain.index_type)

    def summary(self, values: NDArray[Any]) -> NDArray[Any]:
        """The strings that somebody holds: a row of the index and the number of users for each."""
        indices, counts = np.unique(self.check_indices(values), return_counts=True)
        rows = np.empty((len(indices), 2), dtype=indices.dtype)
        rows[:, 0], rows[:, 1] = indices, counts
        return rows

    def check_summary(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The distinct indices and their counts, checked."""
        table = np.asarray(rows)
        if table.ndim != 2 or table.shape[1] != 2:
            raise DomainError("Counts of strings have a row of index and count for each string.")
        indices, counts = self.check_indices(table[:, 0]), table[:, 1].astype(np.int64)
        if len(counts) and int(counts.min()) < 0:
            raise DomainError("A count of users cannot be below 0.")
        if len(np.unique(indices)) < len(indices):
            raise DomainError("The counts list a string twice.")
        return indices, counts

    @abstractmethod
    def sample_tally(self, data: NDArray[Any], *, source: RandomSource = SYSTEM) -> Tally:
        """A released tally with the distribution of a full round, from the summary of all values."""

    def estimate(self, tally: Tally, *, estimator: str = "") -> StringsEstimate:
        """The strings that were found, with their counts."""
        return self.find_strings(tally, estimator=estimator)

    @abstractmethod
    def find_strings(
        self,
        tally: Tally,
        *,
        estimator: str = "",
        settings: SearchSettings | None = None,
        candidates: Collection[str] = (),
        progress: SearchProgress = lambda _: None,
    ) -> StringsEstimate:
        """The strings that were found, with their counts.

        ``settings`` bound the time and memory of a search. ``candidates`` is a public list of likely strings, for which
        fewer users suffice; strings outside the domain are ignored, and all others are still searched. ``progress`` is
        called with the share of the work that is done. A protocol that needs no search ignores all three.
        """

    @abstractmethod
    def expected_found_from(self, length: int) -> float | None:
        """The least count at which a string of this length is found with probability 95 %, or None."""

    def truth(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """How many users hold each string of a small domain."""
        counts = np.zeros(len(self.inputs()))
        for index, count in self.summary(values).tolist():
            counts[int(index)] = count
        return counts

    def expected_error_of(self, values: NDArray[Any]) -> ExpectedError:  # noqa: ARG002
        """The predicted error of the counts of found strings."""
        return self.expected_error()


def run_strings(
    protocol: StringsProtocol,
    indices: NDArray[Any],
    *,
    candidates: Collection[str] = (),
    progress: SearchProgress = lambda _: None,
    estimator: str,
    route: str,
    source: RandomSource,
) -> StringsEstimate:
    """The estimate of one round over users with these strings; the decoder may use a public list of candidates."""
    tally = tally_round(protocol, indices, route=route, source=source)
    return protocol.find_strings(tally, estimator=estimator, candidates=candidates, progress=progress)
