"""Questions about a column, with parameters that are checked before any data are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shuffledp.domain import DEFAULT_BINS, Bins, DiscreteDomain, Interval, Strings
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES
from shuffledp.planning import Mean, Sum
from shuffledp.sessions.domains import Bound, histogram_domain
from shuffledp.sessions.prepared import (
    Prepared,
    check_quantiles,
    prepare_count,
    prepare_histogram,
    prepare_numbers,
    prepare_quantiles,
    prepare_strings,
)

if TYPE_CHECKING:
    from shuffledp.sessions.prepared import AnyColumn


@dataclass(frozen=True)
class Ask:
    """A question about a column that has not been read yet."""

    statistic: str
    """``count``, ``histogram``, ``sum``, ``mean``, ``quantiles``, ``variance`` or ``strings``."""
    question: str
    """The question whose protocols answer it: ``sum`` for a mean, ``quantiles`` for a variance."""
    prepare: Callable[[AnyColumn], Prepared]
    """From the column to the input of a protocol."""
    about: str = ""
    """Text after the name of the column in labels, such as " = yes"."""


def ask_count(*, equals: str | None = None) -> Ask:
    """How many users said yes, or have the value ``equals``."""
    about = "" if equals is None else f" = {equals}"
    return Ask("count", "count", lambda column: prepare_count(column, equals=equals), about)


def ask_histogram(
    *,
    categories: Iterable[str] | DiscreteDomain | None = None,
    bins: int | Sequence[float] | None = None,
    by: str | None = None,
    lower: Bound | None = None,
    upper: Bound | None = None,
    other: str | None = None,
    clip: bool = False,
) -> Ask:
    """How many users have each value of a public domain."""
    domain = histogram_domain(categories=categories, bins=bins, by=by, lower=lower, upper=upper, other=other)
    return Ask("histogram", "histogram", lambda column: prepare_histogram(column, domain, other=other, clip=clip))


def ask_sum(*, lower: float, upper: float, whole: bool = False, clip: bool = False) -> Ask:
    """The sum of the users' numbers."""
    return _ask_numbers(Sum, Interval(lower, upper, whole), clip=clip)


def ask_mean(*, lower: float, upper: float, whole: bool = False, clip: bool = False) -> Ask:
    """The mean of the users' numbers."""
    return _ask_numbers(Mean, Interval(lower, upper, whole), clip=clip)


def ask_quantiles(
    *,
    lower: float,
    upper: float,
    quantiles: Sequence[float] = DEFAULT_QUANTILES,
    bins: int = DEFAULT_BINS,
    clip: bool = False,
) -> Ask:
    """The distribution of the users' numbers, with some quantiles."""
    return _ask_distribution("quantiles", Bins(lower, upper, bins), check_quantiles(quantiles), clip=clip)


def ask_variance(*, lower: float, upper: float, bins: int = DEFAULT_BINS, clip: bool = False) -> Ask:
    """The variance of the users' numbers, from their distribution."""
    return _ask_distribution("variance", Bins(lower, upper, bins), DEFAULT_QUANTILES, clip=clip)


def ask_strings(
    *,
    alphabet: str,
    max_length: int,
    trim: bool = False,
    nfc: bool = False,
    case_fold: bool = False,
    other: bool = False,
    candidates: Collection[str] = (),
) -> Ask:
    """The frequent strings of an open domain; ``candidates`` is a public list of likely ones."""
    domain = Strings(alphabet, max_length, trim=trim, nfc=nfc, case_fold=case_fold, other=other)
    return Ask("strings", "strings", partial(prepare_strings, domain=domain, candidates=candidates))


ASKS: dict[str, Callable[..., Ask]] = {
    "count": ask_count,
    "histogram": ask_histogram,
    "sum": ask_sum,
    "mean": ask_mean,
    "quantiles": ask_quantiles,
    "variance": ask_variance,
    "strings": ask_strings,
}
"""The questions by the name of the statistic."""


def _ask_numbers(kind: type[Sum], domain: Interval, *, clip: bool) -> Ask:
    return Ask(kind.name, kind.question, lambda column: prepare_numbers(kind, column, domain, clip=clip))


def _ask_distribution(statistic: str, domain: Bins, quantiles: tuple[float, ...], *, clip: bool) -> Ask:
    def prepare(column: AnyColumn) -> Prepared:
        return prepare_quantiles(
            column, lower=domain.lower, upper=domain.upper, bins=domain.bins, quantiles=quantiles, clip=clip
        )

    return Ask(statistic, "quantiles", prepare)
