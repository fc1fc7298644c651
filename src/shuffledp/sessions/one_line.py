"""Private answers in one line: counts, histograms, sums, means and quantiles of a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack, cast

from shuffledp.checks import check_confidence
from shuffledp.domain import DEFAULT_BINS, Bins, DiscreteDomain, Interval
from shuffledp.estimate import CountEstimate, HistogramEstimate, SumEstimate
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES, EstimatedNumber, QuantileEstimate
from shuffledp.planning import Mean, Sum
from shuffledp.sessions.data import DataOptions, column_of
from shuffledp.sessions.domains import Bound, histogram_domain
from shuffledp.sessions.prepared import (
    check_quantiles,
    prepare_count,
    prepare_histogram,
    prepare_numbers,
    prepare_quantiles,
)
from shuffledp.sessions.release import ReleaseOptions, check_release, release


class Options(DataOptions, ReleaseOptions, total=False):
    """Options of every one-line function."""


def count(
    values: Any, *, epsilon: float, delta: float, equals: str | None = None, **options: Unpack[Options]
) -> CountEstimate:
    """Count privately how many users said yes, or have the value ``equals``.

    The release satisfies (``epsilon``, ``delta``)-differential privacy by the best protocol for this number of users.
    ``values`` are one per user: booleans, 0 and 1, or yes and no, as a list, an array, a series of pandas or polars, an
    Arrow array, or a column of files (``sdp.read_files``). ``options`` are ``missing`` and ``drop_missing`` for missing
    values; ``user``, ``pick``, ``order_by`` and ``drop_missing_users`` for several rows per user, of which one counts;
    ``protocol``, ``trust``, ``calibration``, ``honest_fraction``, ``estimator``, ``route`` and ``source`` for
    how the question is answered, as for ``shuffledp run``.

    >>> answers = [True] * 4_000 + [False] * 6_000
    >>> low, high = sdp.count(answers, epsilon=1.0, delta=1e-6).interval(0.999999)
    >>> low <= 4_000 <= high
    True
    """
    data, how = _split(options)
    check_release("count", epsilon=epsilon, delta=delta, **how)
    prepared = prepare_count(column_of(values, **data), equals=equals)
    return cast("CountEstimate", release(prepared, epsilon=epsilon, delta=delta, **how))


def histogram(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    categories: Iterable[str] | DiscreteDomain | None = None,
    bins: int | Sequence[float] | None = None,
    by: str | None = None,
    lower: Bound | None = None,
    upper: Bound | None = None,
    other: str | None = None,
    clip: bool = False,
    **options: Unpack[Options],
) -> HistogramEstimate:
    """Count privately how many users have each value of a public domain, which is given in one of three ways.

    ``categories`` lists the values. ``bins`` are the edges of bins of numbers, or their number between ``lower`` and
    ``upper``. ``by`` counts dates by year, month, week or day between the dates ``lower`` and ``upper``, or by
    month-of-year, weekday or hour.

    ``other`` names a category for values outside the domain, and for missing ones; ``clip`` clips numbers to the nearer
    bound. ``epsilon``, ``delta``, ``values`` and ``options`` are those of ``sdp.count``.

    >>> modes = ["bus"] * 5_000 + ["bike"] * 3_000 + ["car"] * 2_000
    >>> estimate = sdp.histogram(modes, categories=["bus", "bike", "car"], epsilon=1.0, delta=1e-6)
    >>> estimate.categories, abs(estimate.counts[0] - 5_000) < 500
    (('bus', 'bike', 'car'), np.True_)
    >>> sdp.histogram([3, 17, 40, 66] * 1_000, bins=[0, 18, 65, 120], epsilon=1.0, delta=1e-6).categories
    ('[0, 18)', '[18, 65)', '[65, 120]')
    """
    data, how = _split(options)
    check_release("histogram", epsilon=epsilon, delta=delta, **how)
    domain = histogram_domain(categories=categories, bins=bins, by=by, lower=lower, upper=upper, other=other)
    prepared = prepare_histogram(column_of(values, **data), domain, other=other, clip=clip)
    return cast("HistogramEstimate", release(prepared, epsilon=epsilon, delta=delta, **how))


def sum(  # noqa: A001 - sdp.sum
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = False,
    clip: bool = False,
    **options: Unpack[Options],
) -> SumEstimate:
    """Estimate privately the sum of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``whole`` says that all numbers are integers; ``clip`` clips numbers outside the bounds, which are an error
    otherwise. ``epsilon``, ``delta``, ``values`` and ``options`` are those of ``sdp.count``.

    >>> sdp.sum([2.5] * 10_000, lower=0, upper=10, epsilon=1.0, delta=1e-6).statistic
    'sum'
    """
    return _numbers(Sum, values, epsilon, delta, Interval(lower, upper, whole), clip, options)


def mean(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = False,
    clip: bool = False,
    **options: Unpack[Options],
) -> SumEstimate:
    """Estimate privately the mean of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``whole`` says that all numbers are integers; ``clip`` clips numbers outside the bounds, which are an error
    otherwise. ``epsilon``, ``delta``, ``values`` and ``options`` are those of ``sdp.count``.

    >>> estimate = sdp.mean([2.5] * 10_000, lower=0, upper=10, epsilon=1.0, delta=1e-6)
    >>> abs(estimate.value - 2.5) < 0.5
    True
    """
    return _numbers(Mean, values, epsilon, delta, Interval(lower, upper, whole), clip, options)


def quantiles(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    quantiles: Sequence[float] = DEFAULT_QUANTILES,
    bins: int = DEFAULT_BINS,
    clip: bool = False,
    **options: Unpack[Options],
) -> QuantileEstimate:
    """Estimate privately the distribution of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``quantiles`` are the shares of users that are asked for; the estimate answers any other too. ``bins`` is the number
    of bins of equal width in which the numbers are counted. ``clip`` clips numbers outside the bounds. ``epsilon``,
    ``delta``, ``values`` and ``options`` are those of ``sdp.count``.

    >>> minutes = [float(minute % 120) for minute in range(12_000)]
    >>> estimate = sdp.quantiles(minutes, lower=0, upper=120, bins=120, epsilon=1.0, delta=1e-6)
    >>> 50 < estimate.median.value < 70
    True
    """
    data, how = _split(options)
    Bins(lower, upper, bins), check_quantiles(quantiles)
    check_release("quantiles", epsilon=epsilon, delta=delta, **how)
    prepared = prepare_quantiles(
        column_of(values, **data), lower=lower, upper=upper, bins=bins, quantiles=quantiles, clip=clip
    )
    return cast("QuantileEstimate", release(prepared, epsilon=epsilon, delta=delta, **how))


def variance(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    bins: int = DEFAULT_BINS,
    clip: bool = False,
    confidence: float = 0.95,
    **options: Unpack[Options],
) -> EstimatedNumber:
    """Estimate privately the variance of the users' numbers, each from ``lower`` to ``upper``, which are public.

    It is computed from the estimated distribution over ``bins`` bins, as ``sdp.quantiles`` gives it; the interval has
    the given ``confidence`` for any data. ``clip`` clips numbers outside the bounds. ``epsilon``, ``delta``, ``values``
    and ``options`` are those of ``sdp.count``.

    >>> minutes = [float(minute % 120) for minute in range(12_000)]
    >>> sdp.variance(minutes, lower=0, upper=120, bins=120, epsilon=1.0, delta=1e-6).value > 1_000
    True
    """
    check_confidence(confidence)
    estimate = quantiles(
        values, epsilon=epsilon, delta=delta, lower=lower, upper=upper, bins=bins, clip=clip, **options
    )
    return estimate.variance(confidence)


def _numbers(
    kind: type[Sum], values: Any, epsilon: float, delta: float, domain: Interval, clip: bool, options: Options
) -> SumEstimate:
    data, how = _split(options)
    check_release("sum", epsilon=epsilon, delta=delta, **how)
    prepared = prepare_numbers(kind, column_of(values, **data), domain, clip=clip)
    return cast("SumEstimate", release(prepared, epsilon=epsilon, delta=delta, **how))


def _split(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that describe the data, and those that choose how the question is answered."""
    known = DataOptions.__annotations__.keys() | ReleaseOptions.__annotations__.keys()
    if unknown := sorted(options.keys() - known):
        raise TypeError(f"There is no option {unknown[0]!r}; the options are {', '.join(sorted(known))}.")
    data = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    if "source" in options:
        data["source"] = options["source"]  # chooses the row of each user, too
    return data, {name: value for name, value in options.items() if name not in DataOptions.__annotations__}
