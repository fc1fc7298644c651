"""The public set of possible values, and the only rules by which a value becomes an index.

Every domain has ``parse`` for a string as people write it, ``encode`` for one value and ``encode_all`` for many.
The rules:

- A value is a string, a number or a boolean. Numbers and booleans are compared as strings (see ``text_values``); spaces
  around a string are ignored. A missing value is not in any domain.
- A string is the category of the same name, or else the only category with the same canonical form: "1.0" is "1",
  "TRUE" is "true". So an integer is an index only if the categories are numbered.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import DomainError, ParameterError
from shuffledp.text_values import canonical_form, looks_missing, parse_number, string_of

Indices = NDArray[np.int64]

_SHOWN = 3
_LARGEST_BOUND = 1e290
"""A sum over a billion users, with a billion times as much noise, is still finite."""
DEFAULT_BINS = 1024
MAX_BINS = 1 << 20
_NUMERAL = re.compile(r"0|[1-9][0-9]{0,18}")
_YES = ("1", "true", "yes", "y", "t")
_NO = ("0", "false", "no", "n", "f")
_ALL_NUMBERS = object()


class Domain(ABC):
    """The public set of possible values of one user."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The value that a string means, for ``encode``; DomainError if it means none."""

    @abstractmethod
    def encode(self, value: Any) -> Any:
        """One value as randomizers take it; DomainError if it is not in the domain."""

    @abstractmethod
    def encode_all(self, values: Iterable[Any]) -> NDArray[Any]:
        """Many values as randomizers take them; DomainError if any is not in the domain."""

    def is_named(self, text: str) -> bool:  # noqa: ARG002 - most domains have no names
        """Whether the string is the name of a value, so that it cannot be a marker for missing values."""
        return False

    def check_missing_markers(self, markers: Iterable[str]) -> None:
        """Refuse a marker for missing values, such as NA, that is the name of a value."""
        for marker in markers:
            if self.is_named(marker):
                raise ParameterError(f"{marker!r} cannot be a value and mean a missing one too.", value=marker)


class DiscreteDomain(Domain):
    """A domain of finitely many values, each with an index from 0 on."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of values."""

    @abstractmethod
    def lookup_names(self) -> tuple[str, ...]:
        """Strings that mean the indices 0, 1, ..., for fast lookup; other strings may mean them too."""

    @abstractmethod
    def find(self, value: Any) -> int | None:
        """The index that a string means; None if it is not in the domain."""


class _CategoricalDomain(DiscreteDomain):
    """A domain of categories, named or numbered."""

    @abstractmethod
    def find(self, value: object) -> int | None:
        """The index of one value; None if it is not in the domain."""

    def encode(self, value: object) -> int:
        """The index of one value."""
        index = self.find(value)
        if index is None:
            raise DomainError(
                f"{_plain(value)!r} is not one of the {len(self):,} categories.{self._advice([value])}", value=value
            )
        return index

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value."""
        column = _flat(values)
        if isinstance(column, np.ndarray):
            distinct, inverse = np.unique(column, return_inverse=True)
            indices = self._find_all(list(distinct))[inverse]
        else:
            indices = self._find_all(column)
        outside = np.flatnonzero(indices < 0)
        if len(outside):
            examples = _distinct(column, outside)
            shown = ", ".join(repr(_plain(value)) for value in examples)
            raise DomainError(
                f"{len(outside):,} of {len(indices):,} values are not in the domain (for example {shown})."
                f"{self._advice(examples)}",
                count=len(outside),
            )
        return indices

    def is_named(self, text: str) -> bool:
        """Whether the string means a category."""
        return self.find(text) is not None

    def _find_all(self, values: list[Any]) -> Indices:
        """The index of each value, -1 if it is not in the domain."""
        indices = (self.find(value) for value in values)
        return np.fromiter((-1 if index is None else index for index in indices), dtype=np.int64, count=len(values))

    def _advice(self, values: list[Any]) -> str:
        """What to do about values outside the domain, if that is likely to help."""
        if any(map(_is_missing, values)):
            return " A missing value belongs to no category: leave it out, or give it a category of its own."
        if others := [value for value in values if not isinstance(value, (str, Decimal)) and not _is_number(value)]:
            return (
                " A value is a string, a number or a boolean, not an object of type "
                f"{type(others[0]).__name__}: give it as the category is written."
            )
        if any(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values):
            return " The categories have names, so an integer is a value, not an index: give names."
        return ""


@dataclass(frozen=True)
class Categories(_CategoricalDomain):
    """Categories with ``names`` in a fixed public order.

    >>> modes = sdp.Categories.of(["bus", "bike", "car"])
    >>> modes.encode("bike")
    1
    >>> modes.encode_all(["car", "bus"]).tolist()
    [2, 0]
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise DomainError("The domain is empty: name at least one category.")
        for name in self.names:
            if not isinstance(name, str):
                raise DomainError(f"A category must be a string, not {name!r}.", category=name)
        if len(set(self.names)) < len(self.names):
            name = Counter(self.names).most_common(1)[0][0]
            raise DomainError(f"The category {name!r} appears twice in the domain; name it once.", category=name)

    @classmethod
    def of(cls, names: Iterable[str]) -> Categories:
        """The categories in the order given."""
        if isinstance(names, str):
            raise DomainError(f"Categories are a list of names, not the single string {names!r}.")
        return cls(tuple(names))

    @classmethod
    def numbered(cls, size: int) -> Categories:
        """Categories "0", "1", ... for a domain of which only the size is given."""
        return cls(tuple(str(i) for i in range(size)))

    def __len__(self) -> int:
        return len(self.names)

    def lookup_names(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _by_canonical_form(self) -> dict[str, int]:
        """The categories whose canonical form no other category has."""
        forms = [canonical_form(name) for name in self.names]
        occurrences = Counter(forms)
        return {form: index for index, form in enumerate(forms) if occurrences[form] == 1}

    def find(self, value: object) -> int | None:
        """The index of the category of this name, or else of the only one with the same canonical form."""
        if isinstance(value, str) and (index := self._by_name.get(value)) is not None:
            return index
        string = string_of(value)
        if string is None:
            return None
        index = self._by_name.get(string)
        return self._by_canonical_form.get(canonical_form(string)) if index is None else index

    def parse(self, text: str) -> str:
        """The name of the category that the string means."""
        return self.names[self.encode(text)]


@dataclass(frozen=True)
class Numbered(_CategoricalDomain):
    """Categories 0 to ``size`` - 1 without names; there may be a billion.

    >>> sdp.Numbered(1000).encode("7")
    7
    """

    size: int

    def __len__(self) -> int:
        return self.size

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers as strings, all of them."""
        return tuple(str(i) for i in range(self.size))

    def lookup_names(self) -> tuple[str, ...]:
        """The numbers as strings, all of them."""
        return self.names

    def find(self, value: object) -> int | None:
        """The index itself, also as a string or as 3.0; None if it is not below the size."""
        string = string_of(value)
        numeral = None if string is None else _NUMERAL.fullmatch(canonical_form(string))
        return int(numeral[0]) if numeral and int(numeral[0]) < self.size else None

    def parse(self, text: str) -> int:
        """The index that the string means."""
        return self.encode(text)

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value."""
        column = _flat(values)
        if isinstance(column, np.ndarray) and np.issubdtype(column.dtype, np.integer):
            return check_indices(column, self.size)
        return super().encode_all(column)

    def _advice(self, values: list[Any]) -> str:
        advice = super()._advice([value for value in values if not isinstance(value, (int, np.integer))])
        return f" They are numbered from 0 to {self.size - 1:,}.{advice}"


@dataclass(frozen=True)
class Bit(DiscreteDomain):
    """Yes or no: index 1 or 0.

    >>> sdp.Bit().parse("yes"), sdp.Bit().encode(False)
    (1, 0)
    """

    def __len__(self) -> int:
        return 2

    def lookup_names(self) -> tuple[str, ...]:
        """The digits 0 and 1."""
        return ("0", "1")

    def find(self, value: str) -> int | None:
        """1 for yes, y, true, t or 1, and 0 for no, n, false, f or 0, in upper or lower case; else None."""
        form = canonical_form(value).lower()
        return int(form in _YES) if form in _YES + _NO else None

    def parse(self, text: str) -> int:
        """1 for yes, y, true, t or 1, and 0 for no, n, false, f or 0, in upper or lower case."""
        index = self.find(text)
        if index is None:
            raise DomainError(f"A count needs yes/no, true/false or 1/0, not {text!r}.", value=text)
        return index

    def encode(self, value: bool | int) -> int:
        """The index of one value: a boolean, or the number 0 or 1."""
        return int(self.encode_all([value])[0])

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value: a boolean, or the number 0 or 1."""
        array = _numeric(values)
        if len(array) == 0:
            return np.empty(0, dtype=np.int64)
        if array.ndim != 1 or not _is_real(array.dtype):
            raise DomainError(f"A count needs 0 or 1 from each user{_first_other(values)}.")
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            raise DomainError(
                f"{int(wrong.sum()):,} of {len(array):,} values are neither 0 nor 1 (for example {array[wrong][0]}).",
                count=int(wrong.sum()),
            )
        return array.astype(np.int64)


BIT = Bit()


@dataclass(frozen=True)
class EqualTo(Bit):
    """Whether a user's value is the given one: index 1 if it is, 0 if it is any other.

    >>> from shuffledp.domain import EqualTo
    >>> EqualTo("1").parse("1.0"), EqualTo("1").parse("bus")
    (1, 0)
    """

    value: str

    @cached_property
    def _category(self) -> Categories:
        return Categories.of([self.value])

    def lookup_names(self) -> tuple[str, ...]:
        """Empty: no string means all other values."""
        return ()

    def find(self, value: str) -> int:
        """1 if the string means the given value, else 0."""
        return int(self._category.find(value) is not None)

    def is_named(self, text: str) -> bool:
        """Whether the string means the given value."""
        return self.find(text) == 1


@dataclass(frozen=True)
class Interval(Domain):
    """Numbers from ``lower`` to ``upper``; if ``whole``, only integers.

    >>> sdp.Interval(0, 120).encode_all([30, 150], clip=True).tolist()
    [0.25, 1.0]
    """

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
            raise DomainError(f"Integers need integer bounds, not {self.lower} and {self.upper}.")

    @property
    def width(self) -> float:
        """The sensitivity of a sum: by how much one user can change it."""
        return self.upper - self.lower

    @property
    def steps(self) -> int | None:
        """For integers, the number of steps from the lower to the upper bound."""
        return round(self.width) if self.whole else None

    def parse(self, text: str) -> float:
        """The number that the string is; ``encode`` checks that it lies between the bounds."""
        number = parse_number(text)
        if number is None:
            raise DomainError(f"A number is needed, not {text!r}.", value=text)
        return number

    def encode(self, value: float) -> float:
        """The position of one number in the interval, from 0.0 at the lower bound to 1.0 at the upper one."""
        return float(self.encode_all([value])[0])

    @property
    def description(self) -> str:
        """The values of the domain in a few words."""
        return f"{'integers' if self.whole else 'numbers'} from {self.lower:g} to {self.upper:g}"

    def outside(self, numbers: NDArray[np.float64], *, clip: bool = False) -> NDArray[np.bool_]:
        """Which numbers are not in the domain: NaN, not an integer if ``whole``, and unless ``clip`` beyond a bound."""
        outside = np.isnan(numbers) if clip else ~((numbers >= self.lower) & (numbers <= self.upper))
        return outside | (numbers != np.floor(numbers)) if self.whole else outside

    def encode_all(self, values: Iterable[Any], *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each number in the interval, from 0.0 at the lower bound to 1.0 at the upper one.

        Numbers outside the bounds are refused, or clipped to the nearer bound with ``clip``.
        """
        return np.clip((self.numbers(values, clip=clip) - self.lower) / self.width, 0.0, 1.0)

    def numbers(self, values: Iterable[Any], *, clip: bool = False) -> NDArray[np.float64]:
        """The numbers themselves, checked, and clipped to the bounds with ``clip``."""
        array = _numeric(values)
        if array.ndim != 1 or not (_is_real(array.dtype) or len(array) == 0):
            raise DomainError(f"The values must be one number from each user{_first_other(values)}.")
        numbers = array.astype(np.float64)
        outside = self.outside(numbers, clip=clip)
        if outside.any():
            raise DomainError(
                f"{int(outside.sum()):,} of {len(numbers):,} values are not {self.description} "
                f"(for example {numbers[outside][0]:g}).",
                count=int(outside.sum()),
            )
        return np.clip(numbers, self.lower, self.upper)


@dataclass(frozen=True)
class Bins(DiscreteDomain):
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

    def __len__(self) -> int:
        return self.bins

    @property
    def interval(self) -> Interval:
        """The numbers of all bins."""
        return Interval(self.lower, self.upper)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """The ends of the bins, one more than there are bins."""
        edges = self.lower + (self.upper - self.lower) * np.arange(self.bins + 1) / self.bins
        edges[-1] = self.upper
        return edges

    @property
    def names(self) -> tuple[str, ...]:
        """Each bin as a half-open interval."""
        ends = [f"{edge:g}" for edge in self.edges.tolist()]
        names = [f"[{low}, {high})" for low, high in itertools.pairwise(ends)]
        return (*names[:-1], names[-1][:-1] + "]")

    def lookup_names(self) -> tuple[str, ...]:
        """Empty: a number is not the name of a bin."""
        return ()

    def parse(self, text: str) -> float:
        """The number that the string is; ``encode`` checks that it lies between the bounds."""
        return self.interval.parse(text)

    def find(self, value: Any) -> int | None:
        """The bin of the number that a string is; None if it is not a number between the bounds."""
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
        return np.minimum(indices, self.bins - 1).astype(np.int64)


def check_index(index: int, size: int) -> int:
    """Check one index into a domain of the given size."""
    if isinstance(index, float) or not 0 <= (checked := operator.index(index)) < size:
        raise DomainError(f"The index {index} is not an integer in 0 .. {size - 1:,}.", index=index)
    return checked


def _is_real(dtype: np.dtype[Any]) -> bool:
    return dtype == np.bool_ or np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.floating)


def check_positions(values: NDArray[Any]) -> NDArray[np.float64]:
    """Check positions in an interval: numbers from 0.0 to 1.0, one per user."""
    positions = np.asarray(values)
    if positions.ndim != 1 or not _is_real(positions.dtype):
        raise DomainError("Positions in an interval must be a flat array of numbers.")
    positions = positions.astype(np.float64, copy=False)
    if len(positions) and not (float(positions.min()) >= 0.0 and float(positions.max()) <= 1.0):
        raise DomainError("Positions in an interval must lie between 0.0 and 1.0.")
    return positions


def check_counts(counts: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Check the numbers of users who hold each index of a domain of the given size."""
    array = np.asarray(counts)
    if array.shape != (size,) or not np.issubdtype(array.dtype, np.integer) or int(array.min()) < 0:
        raise DomainError(f"Counts must be {size:,} non-negative integers.", size=size)
    return array.astype(np.int64, copy=False)


def check_indices(values: NDArray[Any], size: int) -> Indices:
    """Check indices into a domain of the given size."""
    if values.ndim != 1:
        raise DomainError(f"Indices must be a flat array, not one of {values.ndim} dimensions.", ndim=values.ndim)
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == np.bool_):
        raise DomainError(f"Indices must be integers, not {values.dtype}.", dtype=str(values.dtype))
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= size):
        outside = int(((values < 0) | (values >= size)).sum())
        raise DomainError(
            f"{outside:,} of {len(values):,} indices are outside 0 .. {size - 1:,}.", count=outside, size=size
        )
    return values.astype(np.int64, copy=False)


def _sequence(values: Iterable[Any]) -> NDArray[Any] | list[Any]:
    """The values as an array or a list; columns of Arrow, pandas and polars are converted."""
    if isinstance(values, np.ma.MaskedArray):
        return list(values.tolist())  # with None for what is masked
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist())
    if not isinstance(values, np.ndarray) and hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    return values if isinstance(values, np.ndarray) else list(values)


def _flat(values: Iterable[Any]) -> NDArray[Any] | list[Any]:
    """Numbers or booleans of one type as an array, anything else as a list."""
    column = _sequence(values)
    if isinstance(column, list) and set(map(type, column)) == {int}:
        column = np.asarray(column)
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise DomainError(f"Values must be a flat array, not one of {column.ndim} dimensions.", ndim=column.ndim)
        return column if _is_real(column.dtype) else list(column if column.dtype.kind in "mM" else column.tolist())
    return column


def _numeric(values: Iterable[Any]) -> NDArray[Any]:
    """The array that numpy makes of the values; decimal numbers and large integers become floating-point numbers."""
    column = _sequence(values)
    try:
        array = np.array(column.tolist() if isinstance(column, np.ndarray) and column.dtype == object else column)
    except ValueError:
        raise DomainError("The values must be one number or boolean from each user.") from None
    if array.dtype == object and all(isinstance(value, Decimal) or _is_number(value) for value in array.flat):
        array = np.array([_as_float(value) for value in array.flat], dtype=np.float64).reshape(array.shape)
    return array


def _as_float(value: Any) -> float:
    """The number, infinite if it exceeds every floating-point number."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN of decimal
        return math.nan


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))


def _is_missing(value: object) -> bool:
    """Whether the value is missing, or a marker that people write for missing values."""
    if isinstance(value, str):
        return not value.strip() or looks_missing(value)
    return string_of(value) is None and not isinstance(value, int) and str(value) in ("None", "nan", "<NA>", "NaT")


def _first_other(values: Iterable[Any]) -> str:
    """The first value that is not a number, for a message; empty if all are."""
    column = _sequence(values)
    other = next((value for value in column if not isinstance(value, Decimal) and not _is_number(value)), _ALL_NUMBERS)
    if other is _ALL_NUMBERS:
        return ""
    return f", not {_plain(other)!r}{'; leave missing values out' if _is_missing(other) else ''}"


def _plain(value: Any) -> Any:
    """A numpy scalar as Python shows it."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)  # as an item, one with nanoseconds is an integer
    return value.item() if isinstance(value, np.generic) else value


def _distinct(values: NDArray[Any] | list[Any], positions: NDArray[np.intp]) -> list[Any]:
    """A few distinct values at the given positions, for a message."""
    distinct: dict[str, Any] = {}
    for position in positions[:1000].tolist():
        distinct.setdefault(repr(values[position]), values[position])
    return list(distinct.values())[:_SHOWN]
