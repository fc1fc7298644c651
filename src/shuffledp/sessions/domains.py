"""The public domain of a histogram: listed categories, numbers in bins, or dates in periods."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

import numpy as np

from shuffledp.checks import check_real
from shuffledp.domain import Bins, Categories, DiscreteDomain, Edges, Periods
from shuffledp.errors import DomainError, ParameterError
from shuffledp.text_values import parse_number

Bound = float | str | datetime.date | np.datetime64


def histogram_domain(
    *,
    categories: Iterable[str] | DiscreteDomain | None = None,
    bins: int | Sequence[float] | None = None,
    by: str | None = None,
    lower: Bound | None = None,
    upper: Bound | None = None,
    other: str | None = None,
) -> DiscreteDomain:
    """The domain that is given in one of three ways.

    ``categories`` lists the values, and ``other`` is added if it is not listed. ``bins`` are the edges of bins, or
    their number between ``lower`` and ``upper``. ``by`` is a period of dates; years, months, weeks and days need
    ``lower`` and ``upper``. The domain never depends on the data.
    """
    present = [name for name, value in (("categories", categories), ("bins", bins), ("by", by)) if value is not None]
    if len(present) != 1:
        problem = "none is given" if not present else f"not {' and '.join(present)}"
        raise ParameterError(
            "A histogram needs its public domain, in one way: `categories=LIST`, `bins=EDGES` or `by=PERIOD`; "
            f"{problem}."
        )
    if other is not None and not other.strip():
        raise DomainError("The category for other values needs a name; `other=NAME` is empty.")
    if by is not None:
        return Periods(by, _date(lower), _date(upper))
    if bins is not None:
        return _bins(bins, lower, upper)
    if lower is not None or upper is not None:
        raise ParameterError("`lower=L` and `upper=U` belong to bins and dates, not to listed categories.")
    domain = categories if isinstance(categories, DiscreteDomain) else Categories.of(categories or ())
    if other is None or not isinstance(domain, Categories) or other in domain.names:
        return domain
    return Categories.of([*domain.names, other])


def _bins(bins: int | Sequence[float], lower: Bound | None, upper: Bound | None) -> DiscreteDomain:
    bounds = (_number(lower, "lower"), _number(upper, "upper"))
    if isinstance(bins, (int, np.integer)):
        low, high = bounds
        if low is None or high is None:
            raise ParameterError(f"{bins} bins of equal width need their bounds: give `lower=L` and `upper=U`.")
        return Bins(low, high, int(bins))
    if isinstance(bins, (str, float)) or not hasattr(bins, "__iter__"):
        raise ParameterError(f"`bins` is a number of bins or a list of their edges, not {bins!r}.")
    edges = Edges.of(bins)
    for name, bound, edge in zip(("lower", "upper"), bounds, (edges.bounds[0], edges.bounds[-1]), strict=True):
        if bound is not None and bound != edge:
            raise ParameterError(
                f"The bins from {edges.bounds[0]:g} to {edges.bounds[-1]:g} do not cover the bounds: {name} is "
                f"{bound:g}. Leave {name} out, or begin and end the bins at the bounds."
            )
    return edges


def _number(bound: Bound | None, name: str) -> float | None:
    number = parse_number(bound) if isinstance(bound, str) else bound
    if isinstance(number, (int, float, np.integer, np.floating)):
        check_real(name, number)
        return float(number)
    if bound is None:
        return None
    raise ParameterError(f"The bounds of bins are numbers; {name} is {bound!r}.")


def _date(bound: Bound | None) -> str | None:
    if bound is None or isinstance(bound, str):
        return bound
    if isinstance(bound, np.datetime64):
        return str(bound.astype("datetime64[D]"))
    if isinstance(bound, datetime.date):  # datetime is a subclass
        return bound.isoformat()[:10]
    raise ParameterError(f"The bounds of periods are dates such as 2024-05-31, not {bound!r}.")
