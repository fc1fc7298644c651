"""From a column of text to how many users hold each index, with nothing dropped silently."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shuffledp.domain import Categories, Interval
from shuffledp.errors import DataError
from shuffledp.messages import count_values

__all__ = ["ColumnCounts", "collect_places", "count_bits", "count_categories", "distinct_values"]

_YES = ("1", "true", "yes", "y", "t")
_NO = ("0", "false", "no", "n", "f")
_SHOWN = 3
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass
class ColumnCounts:
    """How many rows hold each index, and how many hold none."""

    counts: NDArray[np.int64]
    missing: int = 0
    outside: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def users(self) -> int:
        """Rows that hold an index."""
        return int(self.counts.sum())


def count_categories(
    batches: Iterable[pa.Array], domain: Categories, *, other: str | None = None, drop_missing: bool = False
) -> ColumnCounts:
    """Count each category. Values outside the domain, and missing ones, are an error unless provided for.

    ``other`` names the category that takes values outside the domain, and missing ones unless
    ``drop_missing`` leaves those out.
    """
    result = _count(batches, pa.array(domain.names, type=pa.string()))
    if drop_missing:
        result.missing = 0
    if other is not None:
        result.counts[domain.index(other)] += result.outside + result.missing
        result.outside = result.missing = 0
    _refuse_leftovers(
        result,
        "Use --other NAME to put them into a category of their own",
        "Use --other NAME to count missing ones too, or --drop-missing to leave them out",
    )
    return result


def count_bits(batches: Iterable[pa.Array], *, equals: str | None = None, drop_missing: bool = False) -> ColumnCounts:
    """Count noes and yeses, or the values that differ from ``equals`` and those that do not."""
    if equals is not None:
        result = _count(batches, pa.array([equals], type=pa.string()))
        result.counts = np.array([result.outside, result.counts[0]], dtype=np.int64)
        result.outside = 0
    else:
        lowered = (pc.utf8_lower(batch) for batch in batches)
        result = _count(lowered, pa.array(_NO + _YES, type=pa.string()))
        noes = int(result.counts[: len(_NO)].sum())
        result.counts = np.array([noes, int(result.counts.sum()) - noes], dtype=np.int64)
    if drop_missing:
        result.missing = 0
    _refuse_leftovers(
        result,
        "A count needs yes/no, true/false or 1/0; use --equals VALUE to count one value",
        "Use --drop-missing to leave missing ones out",
    )
    return result


def collect_places(
    batches: Iterable[pa.Array], domain: Interval, *, clip: bool = False, drop_missing: bool = False
) -> NDArray[np.float64]:
    """Where each user's number lies between the bounds. What is no number, outside or missing is an error.

    ``clip`` moves numbers outside to the nearer bound, ``drop_missing`` leaves rows without one out.
    """
    result = ColumnCounts(np.zeros(1, dtype=np.int64))
    parts: list[NDArray[np.float64]] = []
    for batch in batches:
        result.missing += 0 if drop_missing else batch.null_count
        text = batch.drop_null()
        numbers = _as_numbers(text)
        wrong = np.isnan(numbers) if clip else ~((numbers >= domain.lower) & (numbers <= domain.upper))
        if domain.whole:
            wrong |= numbers != np.floor(numbers)
        if wrong.any():
            result.outside += int(wrong.sum())
            for value in pc.unique(text.filter(pa.array(wrong)).slice(0, 1000)).to_pylist():
                if value not in result.examples and len(result.examples) < _SHOWN:
                    result.examples.append(value)
        parts.append(domain.places(numbers[~wrong], clip=clip))
    result.counts[0] = sum(map(len, parts))
    kind = "whole numbers" if domain.whole else "numbers"
    advice = "" if clip or domain.whole else "; --clip moves numbers to the nearer bound"
    _refuse_leftovers(
        result,
        f"The domain is {kind} from {domain.lower:g} to {domain.upper:g}{advice}",
        "Use --drop-missing to leave missing ones out",
    )
    return np.concatenate(parts)


def _as_numbers(text: pa.Array) -> NDArray[np.float64]:
    """Each text as a number; NaN where it is none."""
    try:
        numbers: NDArray[np.float64] = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
        return numbers
    except pa.ArrowInvalid:
        return np.array([_as_number(value) for value in text.to_pylist()], dtype=np.float64)


def _as_number(value: str) -> float:
    return float(value) if _NUMBER.fullmatch(value) else math.nan


def distinct_values(batches: Iterable[pa.Array]) -> Categories:
    """All values of the column, sorted: a domain that depends on the data and so is not private."""
    found: set[str] = set()
    for batch in batches:
        found.update(value for value in pc.unique(batch).to_pylist() if value is not None)
    if not found:
        raise DataError("The column holds no value at all.")
    return Categories.of(sorted(found, key=_natural))


def _natural(value: str) -> tuple[float, str]:
    """Numbers by size, before anything else; the rest by name."""
    try:
        size = float(value)
    except ValueError:
        size = math.inf
    return (math.inf if math.isnan(size) else size, value)


def _count(batches: Iterable[pa.Array], values: pa.Array) -> ColumnCounts:
    result = ColumnCounts(np.zeros(len(values), dtype=np.int64))
    for batch in batches:
        places = pc.index_in(batch, value_set=values)
        found = places.drop_null().to_numpy()
        result.counts += count_values(found, len(values))
        result.missing += batch.null_count
        outside = len(batch) - batch.null_count - len(found)
        if outside:
            result.outside += outside
            _keep_examples(result, batch, places)
    return result


def _keep_examples(result: ColumnCounts, batch: pa.Array, places: pa.Array) -> None:
    if len(result.examples) < _SHOWN:
        strange = pc.filter(batch, pc.and_(pc.is_null(places), pc.is_valid(batch)))
        for value in pc.unique(strange.slice(0, 1000)).to_pylist():
            if value not in result.examples and len(result.examples) < _SHOWN:
                result.examples.append(value)


def _values(count: int) -> str:
    return "1 value is" if count == 1 else f"{count:,} values are"


def _refuse_leftovers(result: ColumnCounts, advice: str, missing_advice: str) -> None:
    problems, remedies = [], []
    if result.outside:
        examples = ", ".join(repr(value[:40]) for value in result.examples)
        problems.append(f"{_values(result.outside)} outside the domain (for example {examples})")
        remedies.append(advice)
    if result.missing:
        problems.append(f"{_values(result.missing)} missing")
        remedies.append(missing_advice)
    if problems:
        raise DataError(
            f"{' and '.join(problems)}. {'. '.join(remedies)}.", outside=result.outside, missing=result.missing
        )
    if result.users == 0:
        raise DataError("The column holds no rows, so there are no users.")
