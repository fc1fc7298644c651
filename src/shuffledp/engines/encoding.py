"""Encoding of a column: the index or position of each row, and a refusal of rows that have none.

Nothing is dropped silently: a value outside the domain or a missing one is an error unless it is provided for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BinnedNumbers, Categories, DiscreteDomain, Domain, Interval, Periods, Strings
from shuffledp.engines.dates import local_times
from shuffledp.engines.strings import as_strings, distinct_strings, has_strings, swap_decimal_marks
from shuffledp.errors import DataError, DomainError
from shuffledp.extras import extra
from shuffledp.text_values import canonical_form, looks_missing, parse_number

with extra("files", "Reading a table"):
    import pyarrow as pa
    import pyarrow.compute as pc

_SHOWN = 3
_MISSING, _OUTSIDE = -1, -2
_MAX_USUAL_NAMES = 1 << 16


@dataclass(frozen=True)
class Encoded:
    """The rows of a batch that have a code."""

    values: NDArray[Any]
    """Their indices or positions."""
    rows: NDArray[np.bool_] | None = None
    """Which rows of the batch these are; None if all."""


class Rules(TypedDict, total=False):
    """How the values of a column are read."""

    missing: Categories | None
    """Strings that mean a missing value."""
    drop_missing: bool
    """Whether rows without a value are left out."""
    decimal: str
    """The decimal mark of numbers that are strings: a point or a comma."""


class Encoder(ABC):
    """Encodes the batches of one column, and counts the rows that it cannot encode."""

    def __init__(self, *, missing: Categories | None = None, drop_missing: bool = False, decimal: str = ".") -> None:
        self._markers, self._drop_missing, self._decimal = missing, drop_missing, decimal
        self.encoded = 0
        """The number of rows with an index or position."""
        self.missing = 0
        self.outside = 0
        self.examples: list[str] = []
        """A few values outside the domain."""
        self.markers: list[str] = []
        """All values that the domain does not name and that look like missing ones, such as NA."""

    @property
    def drops_missing(self) -> bool:
        """Whether rows without a value are left out."""
        return self._drop_missing

    @property
    def usual_names(self) -> tuple[str, ...]:
        """Strings that all values may be expected to be; empty if none are known."""
        return ()

    def encode(self, values: Any, counts: NDArray[np.int64] | None = None) -> Encoded:
        """The rows of a batch that have an index or position.

        ``counts`` says how many rows each value stands for, if they were counted before.
        """
        encoded = self._encode(values, counts)
        self.encoded += _total(counts, encoded.rows, len(encoded.values))
        return encoded

    @abstractmethod
    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:
        """Encode a batch, and count its other rows by ``add_outside`` and in ``missing``."""

    @property
    def state(self) -> dict[str, Any]:
        """What was counted so far, for ``merge``."""
        return {
            "encoded": self.encoded,
            "missing": self.missing,
            "outside": self.outside,
            "examples": self.examples,
            "markers": self.markers,
        }

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another encoder of the same column has counted."""
        self.encoded += state["encoded"]
        self.missing += state["missing"]
        self.outside += state["outside"]
        self.examples = list(dict.fromkeys([*self.examples, *state["examples"]]))[:_SHOWN]
        self.markers = list(dict.fromkeys([*self.markers, *state["markers"]]))

    def add_outside(self, value: str, rows: int) -> None:
        """Count rows with a value outside the domain."""
        self.outside += rows
        if len(self.examples) < _SHOWN and value not in self.examples:
            self.examples.append(value)

    def add_marker(self, value: str) -> None:
        """Remember a value if it looks like a missing one."""
        if looks_missing(value) and value not in self.markers:  # a few dozen at most: the error lists them all
            self.markers.append(value)

    @property
    def _advice(self) -> str:
        """What to do about values outside the domain."""
        return ""

    @property
    def _missing_advice(self) -> str:
        return "Use `drop_missing=True` to leave missing ones out"

    def check(self) -> None:
        """Refuse a column that has rows without an index or position, or no rows at all."""
        problems, remedies = [], []
        if self.outside:
            examples = ", ".join(repr(value[:40]) for value in self.examples)
            problems.append(f"{_values(self.outside)} outside the domain (for example {examples})")
            remedies.append(self._advice)
            if self.markers:
                remedies.append(
                    f"If {_listed(self.markers)} stands for a missing value, use `missing={tuple(self.markers)}`"
                )
        missing = 0 if self._drop_missing else self.missing
        if missing:
            problems.append(f"{_values(missing)} missing")
            remedies.append(self._missing_advice)
        if problems:
            raise DataError(f"{' and '.join(problems)}. {'. '.join(remedies)}.", outside=self.outside, missing=missing)
        if self.encoded == 0:
            raise DataError("The column holds no rows, so there are no users.")


class IndexEncoder(Encoder):
    """Encodes values as indices of a discrete domain.

    ``other`` names the category that takes values outside the domain, and missing ones unless ``drop_missing`` leaves
    those out.
    """

    def __init__(self, domain: DiscreteDomain, *, other: str | None = None, **rules: Unpack[Rules]) -> None:
        super().__init__(**rules)
        self._domain = domain
        self._other = None if other is None else int(domain.encode(other))

    @property
    def usual_names(self) -> tuple[str, ...]:
        """The names of the domain, unless other values are provided for or there are too many."""
        if self._other is not None or self._markers is not None or len(self._domain) > _MAX_USUAL_NAMES:
            return ()
        return self._domain.lookup_names()

    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:
        positions, strings = distinct_strings(values, self._markers)
        codes = self._codes(strings)
        if (codes < 0).any():
            rows = np.zeros(len(strings), dtype=np.int64)
            np.add.at(rows, positions, 1 if counts is None else counts)
            for position in np.flatnonzero((codes < 0) & (rows > 0)).tolist():
                codes[position] = self._provided_for(strings[position], int(rows[position]))
        indices = codes[positions]
        encoded = indices >= 0
        return Encoded(indices) if encoded.all() else Encoded(indices[encoded], encoded)

    def _codes(self, strings: list[str | None]) -> NDArray[np.int64]:
        """The index of each string; below 0 if it has none. Arrow looks up exact names, the domain all others."""
        names = pa.array(self._domain.lookup_names(), type=pa.string()) if len(self._domain) <= len(strings) else None
        codes = np.full(len(strings), _OUTSIDE, dtype=np.int64)
        if names is not None:
            exact = pc.fill_null(pc.index_in(pa.array(strings, type=pa.string()), value_set=names), _OUTSIDE)
            codes = exact.to_numpy(zero_copy_only=False).astype(np.int64)
        for position in np.flatnonzero(codes < 0).tolist():
            value = strings[position]
            index = None if value is None else self._domain.find(value)
            codes[position] = _MISSING if value is None else _OUTSIDE if index is None else index
            if value is not None and not self._domain.is_named(value):
                self.add_marker(value)
        return codes

    def _provided_for(self, value: str | None, rows: int) -> int:
        """The code of rows whose value is missing (None) or outside the domain."""
        if self._other is not None and not (value is None and self._drop_missing):
            return self._other
        if value is None:
            self.missing += rows
            return _MISSING
        self.add_outside(value, rows)
        return _OUTSIDE


class CategoryEncoder(IndexEncoder):
    """Encodes values as indices of categories."""

    @property
    def _advice(self) -> str:
        return "Use `other=NAME` to put them into a category of their own"

    @property
    def _missing_advice(self) -> str:
        return "Use `other=NAME` to count missing ones too, or `drop_missing=True` to leave them out"


class StringEncoder(Encoder):
    """Encodes strings as indices of an open domain; unlike elsewhere, white space counts and "" is a value."""

    def __init__(self, domain: Strings, **rules: Unpack[Rules]) -> None:
        super().__init__(**rules)
        self._domain = domain

    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:
        positions, strings = distinct_strings(values, self._markers, exact=True)
        rows = np.zeros(len(strings), dtype=np.int64)
        np.add.at(rows, positions, 1 if counts is None else counts)
        indices: list[int] = []
        for value, count in zip(strings, rows.tolist(), strict=True):
            index = self._domain.find(value)
            if value is None and self._domain.other and not self._drop_missing:
                index = 0
            if index is None and count:
                if value is None:
                    self.missing += count
                else:
                    self.add_outside(value, count)
            indices.append(-1 if index is None else index)
            if value and count and self._domain.other:
                self.add_marker(value)
        codes = self._domain.index_array(indices)[positions]
        encoded = np.asarray(codes >= 0, dtype=np.bool_)
        return Encoded(codes) if encoded.all() else Encoded(codes[encoded], encoded)

    @property
    def _advice(self) -> str:
        return f"The domain is {self._domain.description}; `other=True` counts other strings as the empty one"


class BitEncoder(IndexEncoder):
    """Encodes yes and no, or whether a value is a given one."""

    @property
    def _advice(self) -> str:
        return "A count needs yes/no, true/false or 1/0; use `equals=VALUE` to count one value"


class _RangeEncoder(Encoder):
    """Encodes values by arithmetic; ``other`` is the index of values outside the domain and of missing ones."""

    def __init__(self, *, other: int | None = None, **rules: Unpack[Rules]) -> None:
        super().__init__(**rules)
        self._other = other

    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:
        codes, present, outside = self._codes(values)
        if self._other is not None:
            codes = np.where(outside if self._drop_missing else outside | ~present, self._other, codes)
            outside = np.zeros_like(outside)
            present = present if self._drop_missing else np.ones_like(present)
        if outside.any():
            strings = as_strings(values, self._markers).filter(pa.array(outside))
            for value, rows in _distinct(strings, None if counts is None else counts[outside]):
                self.add_outside(value, rows)
                self.add_marker(value)
        self.missing += _total(counts, ~present, int(len(present) - np.count_nonzero(present)))
        encoded = present & ~outside
        return Encoded(codes) if encoded.all() else Encoded(codes[encoded], encoded)

    @abstractmethod
    def _codes(self, values: Any) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
        """The code of each row (arbitrary if it has none), which rows have a value, and which values are outside."""


class NumberEncoder(_RangeEncoder):
    """Encodes numbers between two bounds as positions, or as indices of bins; ``clip`` clips to the nearer bound."""

    def __init__(
        self,
        domain: Interval | BinnedNumbers,
        *,
        clip: bool = False,
        other: int | None = None,
        **rules: Unpack[Rules],
    ) -> None:
        super().__init__(other=other, **rules)
        self._domain, self._clip = domain, clip
        self._interval = domain.interval if isinstance(domain, BinnedNumbers) else domain

    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:
        if self._markers is None and pa.types.is_float64(values.type) and not values.null_count and len(values):
            numbers = values.to_numpy()  # the usual case, with few passes over the memory
            if (
                not self._interval.whole
                and self._interval.lower <= numbers.min() <= numbers.max() <= self._interval.upper
            ):
                return Encoded(self._of_numbers(numbers))
        return super()._encode(values, counts)

    def _of_numbers(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """The codes of numbers between the bounds."""
        if isinstance(self._domain, BinnedNumbers):
            return self._domain.indices(numbers)
        return self._domain.positions(numbers)

    def _codes(self, values: Any) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
        numbers, present = _numbers(values, self._markers, self._decimal)
        outside = self._interval.outside(numbers, clip=self._clip) & present
        inside = present & ~outside
        if not inside.all():
            numbers = np.where(inside, numbers, self._interval.lower)
        return self._of_numbers(np.clip(numbers, self._interval.lower, self._interval.upper)), present, outside

    @property
    def _advice(self) -> str:
        can_clip = not (self._clip or self._interval.whole) and any(
            parse_number(value) is not None for value in self.examples
        )
        advice = "; `clip=True` clips numbers to the nearer bound" if can_clip else ""
        if {value.lower() for value in self.examples} <= {"true", "false"}:
            advice = "; ask for a count of booleans, or convert them to 0 and 1"
        return f"The domain is {self._interval.description}{advice}"


class DateEncoder(_RangeEncoder):
    """Encodes dates as indices of their periods."""

    def __init__(self, domain: Periods, *, other: int | None = None, **rules: Unpack[Rules]) -> None:
        super().__init__(other=other, **rules)
        self._domain = domain

    def _codes(self, values: Any) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
        dates, present = local_times(values, self._markers, needs_time=self._domain.needs_time)
        codes = self._domain.indices(dates)
        return codes, present, present & (codes < 0)

    @property
    def _advice(self) -> str:
        return f"The domain is {self._domain.description}"


def _numbers(values: Any, missing: Categories | None, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each value as a number, NaN if it is not one, and which values are not missing."""
    if missing is None and (pa.types.is_float64(values.type) or pa.types.is_integer(values.type)):
        valid = np.ones(len(values), dtype=np.bool_)
        if values.null_count:
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            values = values.fill_null(0)
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return numbers, valid & ~np.isnan(numbers)
    strings = as_strings(values, missing, any_spelling=True)
    if decimal == "," and has_strings(values.type):
        strings = swap_decimal_marks(strings)
    if not strings.null_count:
        return _parsed(strings), np.ones(len(strings), dtype=np.bool_)
    present = strings.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.full(len(strings), math.nan)
    numbers[present] = _parsed(strings.drop_null())
    return numbers, present


def _parsed(strings: pa.Array) -> NDArray[np.float64]:
    """Each string as a number by the rules of ``parse_number``; NaN if it is not a number."""
    try:
        numbers: NDArray[np.float64] = pc.cast(strings, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        pass
    else:
        if np.isfinite(numbers).all():  # Arrow takes inf and nan for numbers
            return numbers
    parsed = (parse_number(value) for value in strings.to_pylist())
    return np.array([math.nan if number is None else number for number in parsed], dtype=np.float64)


class ValueParser(Encoder):
    """Parses the value of each row by the rules of a domain."""

    def __init__(self, domain: Domain, **rules: Unpack[Rules]) -> None:
        super().__init__(**rules)
        self._domain, self._parsed, self._reason = domain, dict[str, Any](), ""

    def parse(self, batches: Iterable[Any], limit: int | None = None) -> list[Any]:
        """The values of the first ``limit`` rows; missing ones count as rows unless they are dropped."""
        values_read = (pair for batch in batches for pair in self._with_point(batch))
        rows = islice((pair for pair in values_read if pair[0] is not None or not self._drop_missing), limit)
        values = [value for pair in rows for value in self._value(*pair)]
        self.encoded = len(values)
        return values

    def _with_point(self, batch: Any) -> Iterator[tuple[str | None, str | None]]:
        """Each value as a string, and as one in which numbers have a decimal point."""
        strings = as_strings(batch, self._markers)
        swapped = strings
        if self._decimal == "," and has_strings(batch.type) and isinstance(self._domain, (Interval, BinnedNumbers)):
            swapped = swap_decimal_marks(strings)
        return zip(strings.to_pylist(), swapped.to_pylist(), strict=True)

    def _encode(self, values: Any, counts: NDArray[np.int64] | None) -> Encoded:  # noqa: ARG002
        return Encoded(np.array(self.parse([values]), dtype=object))

    def _value(self, string: str | None, with_point: str | None) -> Iterator[Any]:
        """The value that the string means, if any."""
        if string is None or with_point is None:
            self.missing += 1
            return
        try:
            if with_point not in self._parsed:
                value = self._domain.parse(with_point)
                self._domain.encode(value)
                if not self._domain.is_named(string):
                    self.add_marker(string)
                self._parsed[with_point] = value
            yield self._parsed[with_point]
        except DomainError as error:
            self._reason = self._reason or str(error).replace(repr(with_point), repr(string)).rstrip(".")
            self.add_outside(string, 1)
            self.add_marker(string)

    @property
    def _advice(self) -> str:
        return self._reason


def distinct_values(batches: Iterable[pa.Array]) -> Categories:
    """All values of the column, sorted: a domain that depends on the data and so is not private.

    Of values with the same canonical form, such as "1" and "1.0", the first is the category of them all.
    """
    values: set[str] = set()
    for batch in batches:
        values.update(value for value in pc.unique(batch).to_pylist() if value is not None)
    if not values:
        raise DataError("The column has no values.")
    names: dict[str, str] = {}
    for value in sorted(values, key=natural_order):
        names.setdefault(canonical_form(value), value)
    return Categories.of(names.values())


def natural_order(value: str) -> tuple[float, str]:
    """The sort key of a value: numbers come first, by size, then all others by name."""
    size = parse_number(value)
    return (math.inf if size is None else size, value)


def _total(counts: NDArray[np.int64] | None, rows: NDArray[np.bool_] | None, number: int) -> int:
    """The number of rows that were counted: ``number`` if every value stands for one."""
    return number if counts is None else int(counts.sum() if rows is None else counts[rows].sum())


def _distinct(values: pa.Array, counts: NDArray[np.int64] | None) -> Iterator[tuple[str, int]]:
    """Every distinct value with its number of rows."""
    if counts is not None:
        return zip(values.to_pylist(), counts.tolist(), strict=True)
    counted = pc.value_counts(values)
    return zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)


def _values(count: int) -> str:
    return "1 value is" if count == 1 else f"{count:,} values are"


def _listed(values: list[str]) -> str:
    return " or ".join(repr(value) for value in values)
