"""Questions about data frames of Spark: one release by a given protocol, exact counts, and answers by group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Bit, Categories, DiscreteDomain, Domain, Interval, Numbered, Strings
from shuffledp.engines.spark.session import explained_failures
from shuffledp.engines.spark.table import SparkColumn, SparkTable
from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.estimate import Estimate, GroupedEstimate
from shuffledp.planning import Count, Histogram, Mean, Quantiles, Question, Sum
from shuffledp.protocols.flow import run_counted, run_round
from shuffledp.protocols.protocol import Protocol, check_enough_users, check_estimator
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.sessions import one_line
from shuffledp.sessions.data import DataOptions, check_options, column_of
from shuffledp.sessions.prepared import caveats_of, neighbours_of

if TYPE_CHECKING:
    from shuffledp.engines.spark.session import Frame

ROUTES = ("auto", "counts", "partial")


def table(frame: Frame) -> SparkTable:
    """A Spark data frame as a table, whose columns every one-line function and session takes.

    ``sdp.mean(sdp.spark.table(df)["minutes"], lower=0, upper=120, epsilon=1, delta=1e-8)`` counts and randomizes in
    Spark; ``user``, ``order_by`` and ``group_by`` are names of other columns. ``Session.of`` takes the table itself.
    """
    return SparkTable(frame)


def run(
    frame: Frame,
    column: str,
    protocol: Protocol | Callable[[int], Protocol],
    *,
    equals: str | None = None,
    domain: Domain | None = None,
    other: str | None = None,
    clip: bool = False,
    estimator: str = "",
    route: str = "auto",
    source: RandomSource = SYSTEM,
    **options: Unpack[DataOptions],
) -> Estimate:
    """One release: the estimate of a round of the protocol over the users of a column of a Spark data frame.

    ``protocol`` is calibrated for at most as many users as there are, or a function from the number of users to a
    protocol. ``route`` is ``counts`` (Spark counts the values exactly, and the driver draws the tally; the default for
    categories, bins and dates), or ``partial`` (the workers randomize the value of each user, and need shuffledp; the
    default for sums, means and strings): the distribution is the same. ``options`` are ``missing``,
    ``drop_missing``, ``user``, ``pick``, ``order_by`` and ``drop_missing_users`` as for ``sdp.count``, with
    columns by name. ``equals``, ``other`` and ``clip`` are those of ``sdp.count`` and ``sdp.histogram``; ``domain``
    says how values become indices where the protocol only knows names, such as bins.

    The action is run here, and the result is a plain object: evaluating it again draws no new noise. Calling this
    function again is another release.
    """
    if route not in ROUTES:
        raise UnknownNameError(f"There is no route {route!r}; choose one of {', '.join(ROUTES)}.", route=route)
    values = _column(frame, column, source, options)
    if not isinstance(protocol, Protocol):
        if not callable(protocol):
            raise ParameterError(
                f"A protocol is needed, such as sdp.plan(...).best, not an object of type {type(protocol).__name__}."
            )
        protocol = protocol(_number_of_users(values))
    estimator = estimator or protocol.estimators[0]
    check_estimator(estimator, protocol.estimators)
    estimate = _round(values, protocol, domain or protocol.domain, equals, other, clip, estimator, route, source)
    guarantee = replace(estimate.guarantee, neighbours=neighbours_of(values))
    return replace(estimate, caveats=caveats_of(values, clip=clip), guarantee=guarantee)


def count(
    frame: Frame,
    column: str,
    domain: DiscreteDomain,
    *,
    other: str | None = None,
    clip: bool = False,
    source: RandomSource = SYSTEM,
    **options: Unpack[DataOptions],
) -> NDArray[np.int64]:
    """The exact number of users per value of the domain, in its order. This is not private: do not release it.

    Options are those of ``sdp.spark.run``. ``sdp.run_counts`` makes a private estimate from the result.
    """
    values = _column(frame, column, source, options)
    counts = values.bits() if isinstance(domain, Bit) else values.histogram(domain, other=other, clip=clip)
    return np.array(counts)


def run_groups(
    frame: Frame,
    column: str,
    question: Question,
    *,
    epsilon: float,
    delta: float,
    group_by: str,
    private_groups: Sequence[str] | None = None,
    out: str | None = None,
    **options: Any,
) -> GroupedEstimate:
    """Answers by group: one estimate for each group of the column ``group_by`` that has enough users.

    ``question`` is what is asked about each group, such as ``sdp.Mean(1, lower=0, upper=120)``; its number of users is
    ignored. Public groups are calibrated each for its size; with ``private_groups``, a public list of all groups, which
    group a user belongs to is protected, too. ``out`` is a path where Spark writes the result as Parquet. Further
    ``options`` are those of ``sdp.histogram``. Calling this function again is another release.
    """
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "group_by": group_by, **options}
    asked["private_groups"] = private_groups
    values = SparkTable(frame)[column]
    estimate: Any
    if isinstance(question, Count):
        estimate = one_line.count(values, **asked)
    elif isinstance(question, Histogram):
        estimate = one_line.histogram(values, categories=_categories(question), **asked)
    elif isinstance(question, Quantiles):
        domain = question.domain
        estimate = one_line.quantiles(values, lower=domain.lower, upper=domain.upper, bins=domain.bins, **asked)
    elif isinstance(question, Sum):
        ask = one_line.mean if isinstance(question, Mean) else one_line.sum
        estimate = ask(values, lower=question.lower, upper=question.upper, whole=question.whole, **asked)
    else:
        raise ParameterError(
            f"A question is needed, such as sdp.Count, not an object of type {type(question).__name__}."
        )
    grouped = cast("GroupedEstimate", estimate)
    if out is not None:
        with explained_failures():
            frame.sparkSession.createDataFrame(grouped.to_table()).write.parquet(str(out))
    return grouped


def _categories(question: Histogram) -> DiscreteDomain:
    if isinstance(question.categories, Categories):
        return question.categories
    return Numbered(question.domain_size or 1)


def _column(frame: Frame, name: str, source: RandomSource, rows: DataOptions) -> SparkColumn:
    check_options(rows, DataOptions)
    return cast("SparkColumn", column_of(SparkTable(frame)[name], source=source, **rows))


def _number_of_users(values: SparkColumn) -> int:
    """The number of users with a value if others are left out, else of all."""
    rows = values.table.complete([values.name], values.missing_rules.markers) if values.drop_missing else values.table
    if values.users is not None:
        return rows.count_users(values.users, values.missing_rules.markers)
    with explained_failures():
        return int(rows.frame.count())


def _round(
    values: SparkColumn,
    protocol: Protocol,
    domain: Domain,
    equals: str | None,
    other: str | None,
    clip: bool,
    estimator: str,
    route: str,
    source: RandomSource,
) -> Estimate:
    if isinstance(domain, (Interval, Strings)) and route == "counts":
        what = "A sum or mean is" if isinstance(domain, Interval) else "Frequent strings are"
        raise ParameterError(f"{what} not a function of counts: use the route partial.", route=route)
    if isinstance(domain, Interval):

        def encoder() -> Any:
            return values.number_encoder(domain, clip=clip), 0
    elif isinstance(domain, Strings):

        def encoder() -> Any:
            return values.string_encoder(domain), 0
    elif isinstance(domain, Bit):

        def encoder() -> Any:
            return values.bit_encoder(equals), 2
    elif isinstance(domain, DiscreteDomain):

        def encoder() -> Any:
            return values.histogram_encoder(domain, other=other, clip=clip)
    else:
        raise ParameterError(f"{protocol.name} cannot be run on Spark.")
    if not isinstance(domain, (Interval, Strings)):
        counts, counted = values.counts(encoder), "messages" if route == "partial" else "counts"
        return run_counted(protocol, counts, estimator=estimator, route=counted, source=source)
    rows = values.one_pass(encoder)
    if rows is None:
        return run_round(protocol, values.rows(encoder), estimator=estimator, route="messages", source=source)
    tally = rows.tally(protocol, source=source)
    check_enough_users(tally.users, protocol.users)
    return protocol.estimate(tally, estimator=estimator)
