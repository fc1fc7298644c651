"""Questions about a column, prepared for a round: the question with its users, and the input of its protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import (
    DEFAULT_BINS,
    BinnedNumbers,
    Categories,
    DiscreteDomain,
    Interval,
    Numbered,
    Periods,
    Strings,
)
from shuffledp.errors import ParameterError
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES, QuantileEstimate, check_quantile
from shuffledp.planning import Count, FrequentStrings, Histogram, Quantiles, Question, Sum
from shuffledp.privacy.guarantee import REPLACE_ONE, REPLACE_ONE_USER
from shuffledp.protocols.flow import RemoteValues, run_counted, run_round
from shuffledp.protocols.strings.protocol import run_strings

if TYPE_CHECKING:
    from shuffledp.engines.groups import GroupedColumn
    from shuffledp.engines.local import Column
    from shuffledp.engines.plain import PlainColumn
    from shuffledp.estimate import Estimate

    AnyColumn = Column | PlainColumn | GroupedColumn

MAX_QUANTILES = 99
_PLACEHOLDER_USERS = 2  # until the column has been read


@dataclass(frozen=True)
class Prepared:
    """A question about the values of a column, before any noise: keep it as secret as the data."""

    question: Question
    data: NDArray[Any] | RemoteValues
    """The number of users per index; for sums and means the position of each user's number, for strings each index."""
    caveats: tuple[str, ...] = ()
    """What the guarantee of a release will not cover, a sentence each."""
    quantiles: tuple[float, ...] = ()
    """The quantiles that are asked for."""
    neighbours: str = REPLACE_ONE
    """The neighbouring relation of the guarantee of a release."""
    value_names: tuple[str, ...] = ()
    """The names of the values that are counted; empty for sums, means and quantiles."""
    run: Callable[..., Estimate] = run_counted
    """The function of ``protocols.flow`` that makes an estimate from ``data``."""

    @property
    def users(self) -> int:
        """The number of users, which is public."""
        return self.question.users

    def finish(self, estimate: Estimate) -> Estimate:
        """The estimate with the caveats, and with the quantiles that were asked for."""
        guarantee = replace(estimate.guarantee, neighbours=self.neighbours)
        finished = replace(estimate, caveats=(*estimate.caveats, *self.caveats), guarantee=guarantee)
        return replace(finished, asked=self.quantiles) if isinstance(finished, QuantileEstimate) else finished


def prepare_count(column: AnyColumn, *, equals: str | None = None) -> Prepared:
    """How many users said yes, or have the value ``equals``."""
    counts = column.bits(equals=equals)
    question = Count(int(counts.sum()))
    return Prepared(question, counts, caveats_of(column), neighbours=neighbours_of(column), value_names=("no", "yes"))


def prepare_histogram(
    column: AnyColumn,
    domain: DiscreteDomain,
    *,
    other: str | None = None,
    clip: bool = False,
    from_data: bool = False,
) -> Prepared:
    """How many users have each value of the domain: categories, bins of numbers, or periods of dates.

    ``from_data`` says that the domain was taken from the data.
    """
    if clip and not isinstance(domain, BinnedNumbers):
        raise ParameterError("`clip=True` is for bins of numbers: leave it out for categories and dates.")
    counts = column.histogram(domain, other=other, clip=clip)
    caveats = caveats_of(column, clip=clip)
    if from_data:
        caveats = ("The list of categories was taken from the data: which ones occur is not protected.", *caveats)
    categories = _categories(domain, other)
    question = Histogram(int(counts.sum()), categories=categories)
    return Prepared(question, counts, caveats, neighbours=neighbours_of(column), value_names=categories.names)


def _categories(domain: DiscreteDomain, other: str | None) -> Categories:
    """The categories of a histogram over the domain, with ``other`` after bins and periods."""
    if isinstance(domain, Categories):
        return domain
    if not isinstance(domain, (BinnedNumbers, Periods, Numbered)):
        raise ParameterError(f"A histogram counts categories, numbers in bins or dates, not {type(domain).__name__}.")
    return Categories.of(domain.names if other is None else [*domain.names, other])


def prepare_numbers(kind: type[Sum], column: AnyColumn, domain: Interval, *, clip: bool = False) -> Prepared:
    """The sum or mean (``kind``) of the users' numbers."""
    positions = column.positions(domain, clip=clip)
    question = kind(len(positions), domain.lower, domain.upper, domain.whole)
    caveats = caveats_of(column, clip=clip)
    return Prepared(question, positions, caveats, neighbours=neighbours_of(column), run=run_round)


def prepare_quantiles(
    column: AnyColumn,
    *,
    lower: float,
    upper: float,
    bins: int = DEFAULT_BINS,
    quantiles: Sequence[float] = DEFAULT_QUANTILES,
    clip: bool = False,
) -> Prepared:
    """The distribution of the users' numbers, with the quantiles of the given shares of users."""
    shares = check_quantiles(quantiles)
    question = Quantiles(_PLACEHOLDER_USERS, lower, upper, bins)
    counts = column.histogram(question.domain, clip=clip)
    question = replace(question, users=int(counts.sum()))
    return Prepared(question, counts, caveats_of(column, clip=clip), shares, neighbours_of(column))


def prepare_strings(
    column: AnyColumn,
    domain: Strings,
    *,
    candidates: Collection[str] = (),
    progress: Callable[[float], None] = lambda _: None,
) -> Prepared:
    """The frequent strings of the users; ``candidates`` is a public list of likely ones."""
    if not hasattr(column, "strings"):
        raise ParameterError(
            "Strings cannot be found in a column of another engine: count them there, and use `run_counts`."
        )
    indices = column.strings(domain)
    caveats = caveats_of(column)
    if domain.other:
        caveats = ("Strings outside the domain were counted as the empty string.", *caveats)
    question = FrequentStrings(len(indices), domain)
    run = partial(run_strings, candidates=tuple(candidates), progress=progress)
    return Prepared(question, indices, caveats, neighbours=neighbours_of(column), run=run)


def check_quantiles(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Check the shares of users whose quantiles are asked for: distinct, strictly between 0 and 1."""
    try:
        shares = tuple(float(share) for share in np.atleast_1d(quantiles))
    except (TypeError, ValueError):
        raise ParameterError("The quantiles are a list of numbers strictly between 0 and 1.") from None
    if not shares:
        raise ParameterError("There is no quantile to estimate: name at least one.")
    for share in shares:
        check_quantile(share)
    if len(set(shares)) < len(shares):
        raise ParameterError(f"The quantiles {', '.join(f'{share:g}' for share in shares)} name a share twice.")
    if len(shares) > MAX_QUANTILES:
        raise ParameterError(f"At most {MAX_QUANTILES} quantiles can be asked for, not {len(shares):,}.")
    return shares


def caveats_of(column: AnyColumn, *, clip: bool = False) -> tuple[str, ...]:
    """What the guarantee does not cover, and what was done to the values."""
    caveats = []
    if column.users is not None:
        caveats.append(column.users.sentence)
        if column.users.drop_missing:
            caveats.append("Rows without a user id were left out: which rows have one is not protected.")
    if column.drop_missing:
        caveats.append(
            f"Rows without {column.required} were left out: who has one, and the number of users, is not protected."
        )
    if clip:
        caveats.append("Values outside the bounds were clipped; the estimate is of the clipped values.")
    return tuple(caveats)


def neighbours_of(column: AnyColumn) -> str:
    """The neighbouring relation: one row per user is replaced, or all rows of one user."""
    return REPLACE_ONE if column.users is None else REPLACE_ONE_USER
