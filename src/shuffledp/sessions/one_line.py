"""Private answers in one line: counts, histograms, sums, means, quantiles and frequent strings of a column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Unpack, cast, overload

from shuffledp.checks import check_confidence
from shuffledp.domain import DEFAULT_BINS, DiscreteDomain
from shuffledp.errors import ParameterError
from shuffledp.estimate import CountEstimate, Estimate, GroupedEstimate, HistogramEstimate, StringsEstimate, SumEstimate
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES, EstimatedNumber, QuantileEstimate
from shuffledp.sessions.asking import Ask, ask_count, ask_histogram, ask_mean, ask_quantiles, ask_strings, ask_sum
from shuffledp.sessions.data import DataOptions, check_options, column_of, grouped_column_of
from shuffledp.sessions.domains import Bound
from shuffledp.sessions.groups import (
    check_private_groups,
    prepare_groups,
    prepare_private_groups,
    release_groups,
    release_private_groups,
)
from shuffledp.sessions.release import ReleaseOptions, check_release, release


class Options(DataOptions, ReleaseOptions, total=False):
    """Options of every one-line function."""


@overload
def count(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    equals: str | None = ...,
    group_by: None = None,
    private_groups: None = None,
    **options: Unpack[Options],
) -> CountEstimate: ...
@overload
def count(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    equals: str | None = ...,
    group_by: object,
    private_groups: Iterable[str] | None = ...,
    **options: Unpack[Options],
) -> GroupedEstimate: ...
def count(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    equals: str | None = None,
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> CountEstimate | GroupedEstimate:
    """Count privately how many users said yes, or have the value ``equals``.

    The release satisfies (``epsilon``, ``delta``)-differential privacy by the best protocol for this number of users.
    ``values`` are one per user: booleans, 0 and 1, or yes and no, as a list, an array, a series of pandas or polars, an
    Arrow array, or a column of files (``sdp.read_files``). ``options`` are ``missing`` and ``drop_missing`` for missing
    values; ``user``, ``pick``, ``order_by`` and ``drop_missing_users`` for several rows per user, of which one counts;
    ``protocol``, ``trust``, ``calibration``, ``honest_fraction``, ``estimator``, ``route`` and ``source`` for
    how the question is answered, as for ``shuffledp run``.

    ``group_by`` is a column of public groups, given in the same form as ``user``: the result has one estimate per
    group, and groups with too few users are listed without one. ``private_groups`` is a public list of all groups; with
    it, which group a user belongs to is protected, too.

    >>> answers = [True] * 4_000 + [False] * 6_000
    >>> low, high = sdp.count(answers, epsilon=1.0, delta=1e-6).interval(0.999999)
    >>> low <= 4_000 <= high
    True
    """
    answer = _answer(ask_count(equals=equals), values, epsilon, delta, options, group_by, private_groups)
    return cast("CountEstimate | GroupedEstimate", answer)


@overload
def histogram(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    categories: Iterable[str] | DiscreteDomain | None = ...,
    bins: int | Sequence[float] | None = ...,
    by: str | None = ...,
    lower: Bound | None = ...,
    upper: Bound | None = ...,
    other: str | None = ...,
    clip: bool = ...,
    group_by: None = None,
    private_groups: None = None,
    **options: Unpack[Options],
) -> HistogramEstimate: ...
@overload
def histogram(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    categories: Iterable[str] | DiscreteDomain | None = ...,
    bins: int | Sequence[float] | None = ...,
    by: str | None = ...,
    lower: Bound | None = ...,
    upper: Bound | None = ...,
    other: str | None = ...,
    clip: bool = ...,
    group_by: object,
    private_groups: Iterable[str] | None = ...,
    **options: Unpack[Options],
) -> GroupedEstimate: ...
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
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> HistogramEstimate | GroupedEstimate:
    """Count privately how many users have each value of a public domain, which is given in one of three ways.

    ``categories`` lists the values. ``bins`` are the edges of bins of numbers, or their number between ``lower`` and
    ``upper``. ``by`` counts dates by year, month, week or day between the dates ``lower`` and ``upper``, or by
    month-of-year, weekday or hour.

    ``other`` names a category for values outside the domain, and for missing ones; ``clip`` clips numbers to the nearer
    bound. ``epsilon``, ``delta``, ``values``, ``group_by``, ``private_groups`` and ``options`` are those of
    ``sdp.count``.

    >>> modes = ["bus"] * 5_000 + ["bike"] * 3_000 + ["car"] * 2_000
    >>> estimate = sdp.histogram(modes, categories=["bus", "bike", "car"], epsilon=1.0, delta=1e-6)
    >>> estimate.categories, abs(estimate.counts[0] - 5_000) < 500
    (('bus', 'bike', 'car'), np.True_)
    >>> sdp.histogram([3, 17, 40, 66] * 1_000, bins=[0, 18, 65, 120], epsilon=1.0, delta=1e-6).categories
    ('[0, 18)', '[18, 65)', '[65, 120]')
    """
    ask = ask_histogram(categories=categories, bins=bins, by=by, lower=lower, upper=upper, other=other, clip=clip)
    answer = _answer(ask, values, epsilon, delta, options, group_by, private_groups)
    return cast("HistogramEstimate | GroupedEstimate", answer)


@overload
def sum(  # noqa: A001 - sdp.sum
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = ...,
    clip: bool = ...,
    group_by: None = None,
    private_groups: None = None,
    **options: Unpack[Options],
) -> SumEstimate: ...
@overload
def sum(  # noqa: A001 - sdp.sum
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = ...,
    clip: bool = ...,
    group_by: object,
    private_groups: Iterable[str] | None = ...,
    **options: Unpack[Options],
) -> GroupedEstimate: ...
def sum(  # noqa: A001 - sdp.sum
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = False,
    clip: bool = False,
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> SumEstimate | GroupedEstimate:
    """Estimate privately the sum of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``whole`` says that all numbers are integers; ``clip`` clips numbers outside the bounds, which are an error
    otherwise. ``epsilon``, ``delta``, ``values``, ``group_by`` and ``options`` are those of ``sdp.count``;
    ``private_groups`` are refused.

    >>> sdp.sum([2.5] * 10_000, lower=0, upper=10, epsilon=1.0, delta=1e-6).statistic
    'sum'
    """
    ask = ask_sum(lower=lower, upper=upper, whole=whole, clip=clip)
    answer = _answer(ask, values, epsilon, delta, options, group_by, private_groups)
    return cast("SumEstimate | GroupedEstimate", answer)


@overload
def mean(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = ...,
    clip: bool = ...,
    group_by: None = None,
    private_groups: None = None,
    **options: Unpack[Options],
) -> SumEstimate: ...
@overload
def mean(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = ...,
    clip: bool = ...,
    group_by: object,
    private_groups: Iterable[str] | None = ...,
    **options: Unpack[Options],
) -> GroupedEstimate: ...
def mean(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    whole: bool = False,
    clip: bool = False,
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> SumEstimate | GroupedEstimate:
    """Estimate privately the mean of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``whole`` says that all numbers are integers; ``clip`` clips numbers outside the bounds, which are an error
    otherwise. ``epsilon``, ``delta``, ``values``, ``group_by`` and ``options`` are those of ``sdp.count``;
    ``private_groups`` are refused.

    >>> estimate = sdp.mean([2.5] * 10_000, lower=0, upper=10, epsilon=1.0, delta=1e-6)
    >>> abs(estimate.value - 2.5) < 0.5
    True
    """
    ask = ask_mean(lower=lower, upper=upper, whole=whole, clip=clip)
    answer = _answer(ask, values, epsilon, delta, options, group_by, private_groups)
    return cast("SumEstimate | GroupedEstimate", answer)


@overload
def quantiles(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    quantiles: Sequence[float] = ...,
    bins: int = ...,
    clip: bool = ...,
    group_by: None = None,
    private_groups: None = None,
    **options: Unpack[Options],
) -> QuantileEstimate: ...
@overload
def quantiles(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    lower: float,
    upper: float,
    quantiles: Sequence[float] = ...,
    bins: int = ...,
    clip: bool = ...,
    group_by: object,
    private_groups: Iterable[str] | None = ...,
    **options: Unpack[Options],
) -> GroupedEstimate: ...
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
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
    **options: Unpack[Options],
) -> QuantileEstimate | GroupedEstimate:
    """Estimate privately the distribution of the users' numbers, each from ``lower`` to ``upper``, which are public.

    ``quantiles`` are the shares of users that are asked for; the estimate answers any other too. ``bins`` is the number
    of bins of equal width in which the numbers are counted. ``clip`` clips numbers outside the bounds. ``epsilon``,
    ``delta``, ``values``, ``group_by`` and ``options`` are those of ``sdp.count``; ``private_groups`` are refused.

    >>> minutes = [float(minute % 120) for minute in range(12_000)]
    >>> estimate = sdp.quantiles(minutes, lower=0, upper=120, bins=120, epsilon=1.0, delta=1e-6)
    >>> 50 < estimate.median.value < 70
    True
    """
    ask = ask_quantiles(lower=lower, upper=upper, quantiles=quantiles, bins=bins, clip=clip)
    answer = _answer(ask, values, epsilon, delta, options, group_by, private_groups)
    return cast("QuantileEstimate | GroupedEstimate", answer)


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
    if options.keys() & {"group_by", "private_groups"}:
        raise ParameterError(
            "The variance of a group follows from its quantiles: sdp.quantiles(..., group_by=COLUMN)[GROUP].variance()."
        )
    estimate = quantiles(
        values, epsilon=epsilon, delta=delta, lower=lower, upper=upper, bins=bins, clip=clip, **options
    )
    return estimate.variance(confidence)


def strings(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    alphabet: str,
    max_length: int,
    trim: bool = False,
    nfc: bool = False,
    case_fold: bool = False,
    other: bool = False,
    candidates: Collection[str] = (),
    **options: Unpack[Options],
) -> StringsEstimate:
    """Find privately the strings that many users hold, of at most ``max_length`` symbols of a public ``alphabet``.

    Nobody lists the strings. ``alphabet`` is written like ``a-z``, or one of ``lowercase``, ``hostname`` and ``bytes``;
    ``trim``, ``nfc`` and ``case_fold`` normalize strings, ``other`` counts those outside the domain as the empty one
    (see ``sdp.Strings``). ``candidates`` is a public list of likely strings, for which fewer users suffice; others are
    found too. ``epsilon``, ``delta``, ``values`` and ``options`` are those of ``sdp.count``.

    >>> words = ["shuffle"] * 6_000 + ["noise"] * 4_000
    >>> sdp.strings(words, alphabet="a-z", max_length=8, epsilon=1.0, delta=1e-6).strings
    ('shuffle', 'noise')
    """
    if options.keys() & {"group_by", "private_groups"}:
        raise ParameterError("Strings cannot be asked for by group: leave group_by and private_groups out.")
    ask = ask_strings(
        alphabet=alphabet,
        max_length=max_length,
        trim=trim,
        nfc=nfc,
        case_fold=case_fold,
        other=other,
        candidates=candidates,
    )
    return cast("StringsEstimate", _answer(ask, values, epsilon, delta, options))


def _answer(
    ask: Ask,
    values: Any,
    epsilon: float,
    delta: float,
    options: Options,
    group_by: Any = None,
    private_groups: Iterable[str] | None = None,
) -> Estimate | GroupedEstimate:
    """One release, or one per public group; everything that can be refused is refused before data are read."""
    data, how = _split(options)
    target = {"epsilon": epsilon, "delta": delta, **how}
    listed = check_private_groups(ask.statistic, private_groups, group_by)
    check_release(ask.question if listed is None else "histogram", **target)
    if group_by is None:
        return release(ask.prepare(column_of(values, **data)), **target)
    column = grouped_column_of(values, group_by, listed, **data)
    if listed is not None:
        return release_private_groups(prepare_private_groups(column, ask.prepare), **target)
    return release_groups(prepare_groups(column, ask.prepare), **target)


def _split(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that describe the data, and those that choose how the question is answered."""
    check_options(options, DataOptions, ReleaseOptions)
    data = {name: value for name, value in options.items() if name in DataOptions.__annotations__}
    if "source" in options:
        data["source"] = options["source"]  # chooses the row of each user, too
    return data, {name: value for name, value in options.items() if name not in DataOptions.__annotations__}
