"""The public set of possible values, and the way from a value to its index and back."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import DomainError

__all__ = ["BIT", "Bit", "Categories", "Interval", "check_counts", "check_index", "check_indices", "check_places"]

Indices = NDArray[np.int64]

_SHOWN = 3
_LARGEST_BOUND = 1e290
"""Leaves room for a billion users and for a billion times as much noise."""


@dataclass(frozen=True)
class Categories:
    """Named categories in a fixed public order."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise DomainError("The domain is empty: name at least one category.")
        for name in self.names:
            if not isinstance(name, str):
                raise DomainError(f"A category must be text, not {name!r}.", category=name)
        if len(set(self.names)) < len(self.names):
            name = Counter(self.names).most_common(1)[0][0]
            raise DomainError(f"The category {name!r} appears twice in the domain; name it once.", category=name)

    @classmethod
    def of(cls, names: Iterable[str]) -> Categories:
        """The categories in the order given."""
        return cls(tuple(names))

    @classmethod
    def numbered(cls, size: int) -> Categories:
        """Categories "0", "1", ... for a domain of which only the size is known."""
        return cls(tuple(str(i) for i in range(size)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def index(self, value: str) -> int:
        """The index of one value."""
        try:
            return self._places[value]
        except (KeyError, TypeError):
            raise DomainError(f"{value!r} is not one of the {len(self):,} categories.", value=value) from None

    def indices(self, values: Iterable[Any]) -> Indices:
        """The index of each value; text is looked up, whole numbers are taken as indices already."""
        if not isinstance(values, np.ndarray):
            values = list(values)
        if len(values) and isinstance(values[0], (int, np.integer)) and not isinstance(values[0], bool):
            values = np.asarray(values)
        if isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.integer):
            return check_indices(values, len(self))
        found = np.fromiter((self._places.get(value, -1) for value in values), dtype=np.int64)
        outside = np.flatnonzero(found < 0)
        if len(outside):
            shown = ", ".join(repr(value) for value in _distinct(values, outside))
            raise DomainError(
                f"{len(outside):,} of {len(found):,} values are not in the domain (for example {shown}).",
                count=len(outside),
            )
        return found


@dataclass(frozen=True)
class Bit:
    """Yes or no: index 1 or 0."""

    def __len__(self) -> int:
        return 2

    def index(self, value: bool | int) -> int:
        """The index of one value."""
        if value not in (0, 1):
            raise DomainError(f"A count needs 0 or 1, not {value!r}.", value=value)
        return int(value)

    def indices(self, values: Iterable[Any]) -> Indices:
        """The index of each value."""
        array = values if isinstance(values, np.ndarray) else np.array(list(values))
        if len(array) == 0:
            return np.empty(0, dtype=np.int64)
        if array.dtype == np.bool_:
            return array.astype(np.int64)
        if not np.issubdtype(array.dtype, np.number):
            raise DomainError(f"A count needs 0 or 1 from each user, not {array.flat[0]!r}.")
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            raise DomainError(
                f"{int(wrong.sum()):,} of {len(array):,} values are neither 0 nor 1 (for example {array[wrong][0]}).",
                count=int(wrong.sum()),
            )
        return array.astype(np.int64)


BIT = Bit()


@dataclass(frozen=True)
class Interval:
    """Numbers from ``lower`` to ``upper``; if ``whole``, only whole ones."""

    lower: float
    upper: float
    whole: bool = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):  # an interval has one form as a document, however its bounds were written
            object.__setattr__(self, name, float(getattr(self, name)))
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise DomainError(f"The bounds must be finite numbers, not {self.lower} and {self.upper}.")
        if not self.lower < self.upper:
            raise DomainError(f"The lower bound must lie below the upper one, not {self.lower} and {self.upper}.")
        if max(-self.lower, self.upper) > _LARGEST_BOUND:
            raise DomainError(
                f"The interval from {self.lower} to {self.upper} is too wide: beyond {_LARGEST_BOUND:g} a sum may be "
                "larger than any floating-point number."
            )
        if self.whole and not (self.lower.is_integer() and self.upper.is_integer()):
            raise DomainError(f"Whole numbers need whole bounds, not {self.lower} and {self.upper}.")

    @property
    def width(self) -> float:
        """How far one user can move the sum."""
        return self.upper - self.lower

    @property
    def steps(self) -> int | None:
        """For whole numbers, how many steps lead from the lower to the upper bound."""
        return round(self.width) if self.whole else None

    def places(self, values: Iterable[Any], *, clip: bool = False) -> NDArray[np.float64]:
        """Where each number lies, from 0.0 at the lower bound to 1.0 at the upper one.

        Numbers outside the bounds are refused, or moved to the nearer bound with ``clip``.
        """
        array = np.asarray(values if isinstance(values, np.ndarray) else list(values))
        if array.ndim != 1 or not (_is_real(array.dtype) or len(array) == 0):
            raise DomainError("A sum needs one number from each user.")
        numbers = array.astype(np.float64)
        wrong = np.isnan(numbers) if clip else ~((numbers >= self.lower) & (numbers <= self.upper))
        if self.whole:
            wrong |= numbers != np.floor(numbers)
        if wrong.any():
            kind = "whole numbers" if self.whole else "numbers"
            raise DomainError(
                f"{int(wrong.sum()):,} of {len(numbers):,} values are not {kind} from {self.lower:g} to {self.upper:g} "
                f"(for example {numbers[wrong][0]:g}).",
                count=int(wrong.sum()),
            )
        clipped = np.clip(numbers, self.lower, self.upper)
        return np.clip((clipped - self.lower) / self.width, 0.0, 1.0)


def check_index(index: int, size: int) -> int:
    """One whole number as an index into a domain of the given size."""
    if isinstance(index, float) or not 0 <= (place := operator.index(index)) < size:
        raise DomainError(f"The index {index} is not a whole number in 0 .. {size - 1:,}.", index=index)
    return place


def _is_real(dtype: np.dtype[Any]) -> bool:
    return dtype == np.bool_ or np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.floating)


def check_places(values: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers from 0.0 to 1.0, one per user."""
    places = np.asarray(values)
    if places.ndim != 1 or not _is_real(places.dtype):
        raise DomainError("Places in an interval must be a flat array of numbers.")
    places = places.astype(np.float64, copy=False)
    if len(places) and not (float(places.min()) >= 0.0 and float(places.max()) <= 1.0):
        raise DomainError("A place in an interval lies between 0.0 and 1.0.")
    return places


def check_counts(counts: NDArray[Any], size: int) -> NDArray[np.int64]:
    """How many users hold each index of a domain of the given size."""
    true = np.asarray(counts)
    if true.shape != (size,) or not np.issubdtype(true.dtype, np.integer) or int(true.min()) < 0:
        raise DomainError(f"Counts must be {size:,} whole numbers that are not below 0.", size=size)
    return true.astype(np.int64, copy=False)


def check_indices(values: NDArray[Any], size: int) -> Indices:
    """Whole numbers as indices into a domain of the given size."""
    if values.ndim != 1:
        raise DomainError(f"Indices must be a flat array, not one of {values.ndim} dimensions.", ndim=values.ndim)
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise DomainError(f"Indices must be whole numbers, not {values.dtype}.", dtype=str(values.dtype))
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= size):
        outside = int(((values < 0) | (values >= size)).sum())
        raise DomainError(
            f"{outside:,} of {len(values):,} indices are outside 0 .. {size - 1:,}.", count=outside, size=size
        )
    return values.astype(np.int64, copy=False)


def _distinct(values: Iterable[Any], places: NDArray[np.intp]) -> list[Any]:
    """A few distinct values at the given places, for a message."""
    sequence: Any = values if isinstance(values, (Sequence, np.ndarray)) else list(values)
    found: list[Any] = []
    for place in places[:1000]:
        value = sequence[place]
        if value not in found:
            found.append(value)
        if len(found) == _SHOWN:
            break
    return found
