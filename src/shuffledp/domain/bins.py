"""Domains of numbers in adjacent bins, of equal width or between given edges, which are public."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain.domain import DiscreteDomain
from shuffledp.domain.encoded import Indices
from shuffledp.domain.interval import Interval
from shuffledp.errors import DomainError
from shuffledp.text_values import parse_number

DEFAULT_BINS = 1024
MAX_BINS = 1 << 20


class BinnedNumbers(DiscreteDomain):
    """Numbers in adjacent bins: index 0 is the lowest bin.

    A bin contains its lower edge and not its upper one; the last bin contains both.
    """

    @property
    @abstractmethod
    def edges(self) -> NDArray[np.float64]:
        """The bounds of the bins in ascending order: one more than there are bins."""

    @property
    def interval(self) -> Interval:
        """The numbers of all bins."""
        return Interval(float(self.edges[0]), float(self.edges[-1]))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """Each bin as a half-open interval, with as many digits as distinguish the edges."""
        ends = _spelled(self.edges.tolist())
        names = [f"[{low}, {high})" for low, high in itertools.pairwise(ends)]
        return (*names[:-1], names[-1][:-1] + "]")

    def lookup_names(self) -> tuple[str, ...]:
        """Empty: a number is not the name of a bin."""
        return ()

    def parse(self, text: str) -> float:
        """The string as a number; ``encode`` checks that it lies between the bounds."""
        return self.interval.parse(text)

    def find(self, value: Any) -> int | None:
        """The index of the bin of a number, which may be a string; None if it is not a number between the bounds."""
        number = parse_number(value) if isinstance(value, str) else value
        if number is None or self.interval.outside(np.array([number], dtype=np.float64))[0]:
            return None
        return int(self.indices(np.array([number], dtype=np.float64))[0])

    def encode(self, value: float) -> int:
        """The index of the bin of one number."""
        return int(self.encode_all([value])[0])

    def encode_all(self, values: Iterable[Any], *, clip: bool = False) -> Indices:
        """The index of the bin of each number; numbers beyond the bounds are refused, or clipped with ``clip``."""
        return self.indices(self.interval.numbers(values, clip=clip))

    def indices(self, numbers: NDArray[np.float64]) -> Indices:
        """The bins of numbers between the bounds."""
        indices = np.searchsorted(self.edges, numbers, side="right") - 1
        return np.minimum(indices, len(self) - 1).astype(np.int64)


@dataclass(frozen=True)
class Bins(BinnedNumbers):
    """Numbers from ``lower`` to ``upper`` in bins of equal width: index 0 is the lowest bin.

    A bin contains its lower edge and not its upper one; the last bin contains both.

    >>> sdp.Bins(0, 120, bins=12).encode_all([0, 9.99, 10, 120]).tolist()
    [0, 0, 1, 11]
    """

    lower: float
    upper: float
    bins: int

    def __post_init__(self) -> None:
        interval = Interval(self.lower, self.upper)
        object.__setattr__(self, "lower", interval.lower)
        object.__setattr__(self, "upper", interval.upper)
        if not isinstance(self.bins, (int, np.integer)) or isinstance(self.bins, bool):
            raise DomainError(f"The number of bins must be an integer, not {self.bins!r}.")
        if not 1 <= self.bins <= MAX_BINS:
            raise DomainError(f"The number of bins must lie between 1 and {MAX_BINS:,}, not {self.bins:,}.")
        if (np.diff(self.edges) <= 0).any():
            raise DomainError(
                f"{self.bins:,} bins from {self.lower:g} to {self.upper:g} are too narrow for floating-point numbers."
            )

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The bounds of the bins in ascending order: one more than there are bins."""
        edges = self.lower + (self.upper - self.lower) * np.arange(self.bins + 1) / self.bins
        edges[-1] = self.upper
        return edges


@dataclass(frozen=True)
class Edges(BinnedNumbers):
    """Numbers in bins between the given ``bounds``, in ascending order.

    >>> ages = sdp.Edges.of([0, 18, 65, 120])
    >>> ages.names
    ('[0, 18)', '[18, 65)', '[65, 120]')
    >>> ages.encode_all([17.5, 18, 120]).tolist()
    [0, 1, 2]
    """

    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.bounds) <= MAX_BINS + 1:
            raise DomainError(f"Bins need from 2 to {MAX_BINS + 1:,} edges, not {len(self.bounds):,}.")
        for low, high in itertools.pairwise(self.bounds):
            if not low < high:
                raise DomainError(f"The edges of bins must ascend, not {low:g} before {high:g}.")
        self.interval  # noqa: B018 - checks the bounds

    @classmethod
    def of(cls, edges: Iterable[float]) -> Edges:
        """The bins between the given edges."""
        try:
            bounds = tuple(float(edge) for edge in edges)
        except (TypeError, ValueError):
            raise DomainError("The edges of bins must be numbers.") from None
        return cls(bounds)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The bounds of the bins in ascending order: one more than there are bins."""
        return np.array(self.bounds)


def _spelled(edges: list[float]) -> list[str]:
    """The edges with six digits, or as many more as distinguish them."""
    for digits in range(6, 17):
        spelled = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(spelled)) == len(spelled):
            return spelled
    return [repr(edge) for edge in edges]
