"""Encoding of a column: the number of users per index, or their positions; nothing is dropped silently."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import BIT, Bins, Categories, DiscreteDomain, Domain, EqualTo, Interval
from shuffledp.errors import DataError, DomainError
from shuffledp.extras import extra
from shuffledp.messages import count_values
from shuffledp.text_values import canonical_form, looks_missing, parse_number

with extra("files", "Reading a data file"):
    import pyarrow as pa
    import pyarrow.compute as pc

_SHOWN = 3


@dataclass
class ColumnCounts:
    """The number of rows per index, and of rows without one."""

    counts: NDArray[np.int64]
    missing: int = 0
    outside: int = 0
    examples: list[str] = field(default_factory=list)
    """A few values outside the domain."""
    markers: list[str] = field(default_factory=list)
    """All values that the domain does not name and that look like missing ones, such as NA."""

    @property
    def users(self) -> int:
        """The number of rows that hold an index."""
        return int(self.counts.sum())

    def add(self, value: str, index: int | None, rows: int) -> None:
        """Add rows that hold a value; its index is None if it is outside the domain."""
        if index is not None:
            self.counts[index] += rows
            return
        self.outside += rows
        if len(self.examples) < _SHOWN and value not in self.examples:
            self.examples.append(value)

    def add_marker(self, value: str) -> None:
        """Remember a value if it looks like a missing one."""
        if looks_missing(value) and value not in self.markers:  # a few dozen at most: the error lists them all
            self.markers.append(value)


def count_categories(
    batches: Iterable[pa.Array], domain: Categories, *, other: str | None = None, drop_missing: bool = False
) -> ColumnCounts:
    """Count each category; a value outside the domain or a missing one is an error unless provided for.

    ``other`` names the category that takes values outside the domain, and missing ones unless
    ``drop_missing`` leaves those out.
    """
    result = _count(batches, domain)
    if drop_missing:
        result.missing = 0
    if other is not None:
        result.counts[domain.encode(other)] += result.outside + result.missing
        result.outside = result.missing = 0
    _refuse_unencoded(
        result,
        "Use `other=NAME` to put them into a category of their own",
        "Use `other=NAME` to count missing ones too, or `drop_missing=True` to leave them out",
    )
    return result


def count_bits(batches: Iterable[pa.Array], *, equals: str | None = None, drop_missing: bool = False) -> ColumnCounts:
    """Count the values no and yes, or those that are not ``equals`` and those that are."""
    result = _count(batches, BIT if equals is None else EqualTo(equals))
    if drop_missing:
        result.missing = 0
    _refuse_unencoded(
        result,
        "A count needs yes/no, true/false or 1/0; use `equals=VALUE` to count one value",
        "Use `drop_missing=True` to leave missing ones out",
    )
    return result


def collect_positions(
    batches: Iterable[pa.Array], domain: Interval, *, clip: bool = False, drop_missing: bool = False
) -> NDArray[np.float64]:
    """The position of each user's number in the interval; one that is not a number, outside or missing is an error.

    ``clip`` clips numbers to the nearer bound, ``drop_missing`` leaves out rows without a number.
    """
    result = ColumnCounts(np.zeros(1, dtype=np.int64))
    parts = [domain.encode_all(numbers, clip=clip) for numbers in _numbers_inside(batches, domain, result, clip=clip)]
    result.counts[0] = sum(map(len, parts))
    _refuse_unfit_numbers(result, domain, clip=clip, drop_missing=drop_missing)
    return np.concatenate(parts)


def count_bins(
    batches: Iterable[pa.Array], domain: Bins, *, clip: bool = False, drop_missing: bool = False
) -> NDArray[np.int64]:
    """The number of users per bin; what is not a number, outside or missing is an error.

    ``clip`` clips numbers to the nearer bound, ``drop_missing`` leaves out rows without a number.
    """
    result = ColumnCounts(np.zeros(len(domain), dtype=np.int64))
    for numbers in _numbers_inside(batches, domain.interval, result, clip=clip):
        result.counts += count_values(domain.encode_all(numbers, clip=clip), len(domain))
    _refuse_unfit_numbers(result, domain.interval, clip=clip, drop_missing=drop_missing)
    return result.counts


def _numbers_inside(
    batches: Iterable[pa.Array], domain: Interval, result: ColumnCounts, *, clip: bool
) -> Iterator[NDArray[np.float64]]:
    """The numbers of each batch that lie in the domain; ``result`` counts the other rows."""
    for batch in batches:
        result.missing += batch.null_count
        strings = batch.drop_null()
        numbers = _as_numbers(strings)
        outside = domain.outside(numbers, clip=clip)
        if outside.any():
            for value, rows in _distinct(strings.filter(pa.array(outside))):
                result.add(value, None, rows)
                result.add_marker(value)
        yield numbers[~outside]


def _refuse_unfit_numbers(result: ColumnCounts, domain: Interval, *, clip: bool, drop_missing: bool) -> None:
    if drop_missing:
        result.missing = 0
    advice = "" if clip or domain.whole else "; `clip=True` clips numbers to the nearer bound"
    _refuse_unencoded(
        result,
        f"The domain is {domain.description}{advice}",
        "Use `drop_missing=True` to leave missing ones out",
    )


@dataclass
class ParsedColumn:
    """The values of a column, one per user, and the values that look like missing ones."""

    values: list[Any]
    markers: list[str]


def parse_values(
    batches: Iterable[pa.Array], domain: Domain, *, drop_missing: bool = False, limit: int | None = None
) -> ParsedColumn:
    """The value of each user, parsed by the domain; a missing value or one outside the domain is an error.

    ``drop_missing`` leaves out rows without a value, and ``limit`` is the maximum number of rows.
    """
    result = ColumnCounts(np.zeros(1, dtype=np.int64))
    values: list[Any] = []
    parsed: dict[str, Any] = {}
    reason = ""
    strings = (string for batch in batches for string in batch.to_pylist())
    for string in islice((string for string in strings if string is not None or not drop_missing), limit):
        if string is None:
            result.missing += 1
            continue
        try:
            if string not in parsed:
                value = domain.parse(string)
                domain.encode(value)
                if not domain.is_named(string):
                    result.add_marker(string)
                parsed[string] = value
            values.append(parsed[string])
        except DomainError as error:
            reason = reason or str(error).rstrip(".")
            result.add(string, None, 1)
            result.add_marker(string)
    result.counts[0] = len(values)
    _refuse_unencoded(result, reason, "Use `drop_missing=True` to leave missing ones out")
    return ParsedColumn(values, result.markers)


def _as_numbers(strings: pa.Array) -> NDArray[np.float64]:
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
    for value in sorted(values, key=_natural):
        names.setdefault(canonical_form(value), value)
    return Categories.of(names.values())


def _natural(value: str) -> tuple[float, str]:
    """Numbers by size, before anything else; the rest by name."""
    size = parse_number(value)
    return (math.inf if size is None else size, value)


def _count(batches: Iterable[pa.Array], domain: DiscreteDomain) -> ColumnCounts:
    """Arrow looks up exact names; every other distinct value goes through the rules of the domain."""
    result = ColumnCounts(np.zeros(len(domain), dtype=np.int64))
    names = pa.array(domain.lookup_names(), type=pa.string())
    for batch in batches:
        indices = pc.index_in(batch, value_set=names)
        result.counts += count_values(indices.drop_null().to_numpy(), len(domain))
        result.missing += batch.null_count
        for value, rows in _distinct(batch.filter(pc.and_(pc.is_null(indices), pc.is_valid(batch)))):
            result.add(value, domain.find(value), rows)
            if not domain.is_named(value):
                result.add_marker(value)
    return result


def _distinct(values: pa.Array) -> Iterator[tuple[str, int]]:
    """Every distinct value with its number of rows."""
    counted = pc.value_counts(values)
    return zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)


def _values(count: int) -> str:
    return "1 value is" if count == 1 else f"{count:,} values are"


def _listed(values: list[str]) -> str:
    return " or ".join(repr(value) for value in values)


def _refuse_unencoded(result: ColumnCounts, advice: str, missing_advice: str) -> None:
    problems, remedies = [], []
    if result.outside:
        examples = ", ".join(repr(value[:40]) for value in result.examples)
        problems.append(f"{_values(result.outside)} outside the domain (for example {examples})")
        remedies.append(advice)
        if result.markers:
            remedies.append(
                f"If {_listed(result.markers)} stands for a missing value, use `missing={tuple(result.markers)}`"
            )
    if result.missing:
        problems.append(f"{_values(result.missing)} missing")
        remedies.append(missing_advice)
    if problems:
        raise DataError(
            f"{' and '.join(problems)}. {'. '.join(remedies)}.", outside=result.outside, missing=result.missing
        )
    if result.users == 0:
        raise DataError("The column holds no rows, so there are no users.")
