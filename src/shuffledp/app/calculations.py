"""Calculations of the planner's page, made in worker processes: calibrations, collections, releases, previews."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.app.preview import Preview, draw_preview
from shuffledp.app.query import Query
from shuffledp.collection.task.costs import CollectionCost as Collected
from shuffledp.collection.task.costs import collection_cost
from shuffledp.errors import ParameterError
from shuffledp.estimate import QuantileEstimate
from shuffledp.planning.listing import amounts_of
from shuffledp.planning.planner import Limits, Plan, Rejection, candidates
from shuffledp.planning.several_releases import MONTHS, quick_guarantee

_CACHED_PLANS = 64
_MAX_POSITIONS = 5_000_000
"""Maximum number of users of an invented sum, whose numbers are drawn one by one."""
RELEASES = (1, 2, 3, 4, 6, 8, 10, MONTHS)
"""Numbers of releases whose epsilon is shown."""


@dataclass(frozen=True)
class Candidate:
    """A plan or a rejection, with what the page shows of it."""

    result: Plan | Rejection
    document: dict[str, Any]
    """The documented JSON form, without the comparison with other plans."""
    amounts: tuple[str, ...] = ()
    """Errors, messages, bytes and the epsilon of a year, formatted for people."""
    statement: str = ""
    """The guarantee in words."""


def calibrate(query: Query, name: str) -> list[Candidate]:
    """All candidates of one protocol, without the limits on messages, bytes and local epsilon."""
    return [_described(query, result) for result in _results(query, name)]


def _described(query: Query, result: Plan | Rejection) -> Candidate:
    if isinstance(result, Rejection):
        return Candidate(result, result.to_json())
    # without its cached tables, which may have megabytes
    lean = replace(result, protocol=query.asked.planned.answered_by(replace(result.protocol)))
    return Candidate(lean, result.to_json(), tuple(amounts_of(result)), result.composed.statement())


_PLANS: OrderedDict[tuple[Query, str], list[Plan | Rejection]] = OrderedDict()
"""The last results of this process, with their cached tables."""


def _results(query: Query, name: str) -> list[Plan | Rejection]:
    key = (query.calibrated, name)
    if key not in _PLANS:
        limits = Limits(query.trust, query.honest_fraction)
        _PLANS[key] = list(
            candidates(
                query.asked.planned,
                query.epsilon,
                query.delta,
                limits,
                query.confidence,
                releases=query.releases,
                names=[name],
            )
        )
    _PLANS.move_to_end(key)
    while len(_PLANS) > _CACHED_PLANS:
        _PLANS.popitem(last=False)
    return _PLANS[key]


def _plan(query: Query, name: str, variant: str) -> Plan:
    for result in _results(query, name):
        if isinstance(result, Plan) and result.variant == variant:
            return result
    raise ParameterError(f"There is no plan {name} ({variant}) for these parameters.")


def collect(query: Query, name: str, variant: str) -> Collected | str:
    """The plan in a collection, as ``task create`` makes it; or why there is none."""
    plan = _plan(query, name, variant)
    return collection_cost(
        plan, query.asked.planned, delta=query.task_delta(plan), honest_fraction=query.honest_fraction
    )


def account(query: Query, name: str, variant: str) -> list[tuple[int, float]]:
    """Numbers of releases, and the epsilon of all of them together at the delta of the target."""
    guarantee, fine = _plan(query, name, variant).protocol.guarantee, query.releases > 1
    return [
        (releases, float(quick_guarantee(guarantee, releases, delta=query.delta, fine=fine).epsilon))
        for releases in RELEASES
    ]


def preview(query: Query, name: str, variant: str) -> Preview:
    """One release of the plan about invented data of the query's shape; every call draws a new one."""
    protocol = _plan(query, name, variant).protocol
    if query.question in ("sum", "mean"):
        if query.users > _MAX_POSITIONS:
            raise ParameterError(f"A sum is previewed for at most {_MAX_POSITIONS:,} users.")
        positions = invented_positions(query)
        return draw_preview(
            protocol.estimate(protocol.sample_tally(positions)), protocol.truth(positions), query.confidence
        )
    counts = invented_counts(query)
    estimate = protocol.estimate(protocol.sample_tally(counts))
    truth = counts[1:] if query.question == "count" else counts
    if isinstance(estimate, QuantileEstimate):
        below = np.concatenate(([0], np.cumsum(counts))) / query.users
        truth = np.interp(np.array(estimate.asked), below, estimate.edges)
    return draw_preview(estimate, truth.astype(np.float64), query.confidence)


def invented_counts(query: Query) -> NDArray[np.int64]:
    """Invented numbers of users per index, which add up to the number of users."""
    if query.question == "count":
        ones = query.users // (2 if query.shape == "even" else 5)
        return np.array([query.users - ones, ones])
    size = query.domain_size if query.question == "histogram" else query.bins
    weights = np.ones(size) if query.shape == "even" else 1 / np.arange(1.0, size + 1)
    if query.question == "quantiles" and query.shape != "even":  # a hill on the left
        positions = (np.arange(size) + 0.5) / size
        weights = positions * np.exp(-6 * positions)
    ends = np.floor(np.cumsum(weights) / weights.sum() * query.users + 1e-9).astype(np.int64)
    ends[-1] = query.users
    counts: NDArray[np.int64] = np.diff(ends, prepend=0)
    return counts


def invented_positions(query: Query) -> NDArray[np.float64]:
    """Invented numbers of all users, as positions in the interval."""
    positions = (np.arange(query.users) + 0.5) / query.users
    if query.shape != "even":
        positions = 1 - np.sqrt(1 - positions)
    if query.whole and math.isfinite(query.upper - query.lower):
        width = query.upper - query.lower
        positions = np.round(positions * width) / width
    return positions
