"""Releases by group: public groups in parallel, each calibrated for its size, or private groups in one histogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from shuffledp.domain import Categories, DiscreteDomain, Interval
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.estimate import Estimate, HistogramEstimate
from shuffledp.estimate.grouped import GroupedEstimate, TooFewUsers
from shuffledp.messages import Tally
from shuffledp.planning import Histogram, Plan, Question, plan
from shuffledp.privacy.guarantee import WITHIN_GROUP
from shuffledp.privacy.parallel import in_parallel
from shuffledp.protocols.flow import RemoteGroup
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import find
from shuffledp.randomness import SYSTEM, RandomSource
from shuffledp.sessions.prepared import Prepared
from shuffledp.sessions.release import BEST, choose_protocol, release, run_prepared

if TYPE_CHECKING:
    from shuffledp.engines.groups import GroupedColumn
    from shuffledp.engines.users import UserIds

Prepare = Callable[[Any], Prepared]
"""From a column to the prepared question about it."""

GRID_RATIO = 1.05
"""Ratio of a geometric grid of numbers of users; a group is calibrated for the largest one up to its size."""
_RANKING_RATIO = 1.6
"""Ratio of the coarser grid for whose numbers of users the best protocol is chosen."""
_LEAST_USERS, _VERY_MANY_USERS = 2, 10_000_000


@dataclass(frozen=True)
class PreparedGroups:
    """A question about each of several public groups, before any noise: keep it as secret as the data."""

    by: str
    """The name of the column with the groups."""
    groups: Mapping[str, Prepared]
    """The question about each group, with its users and their data."""

    @property
    def users(self) -> int:
        """The number of users of all groups, which is public."""
        return sum(prepared.users for prepared in self.groups.values())


@dataclass(frozen=True)
class _Part:
    """The users of one group, as a column that was read already."""

    data: NDArray[Any]
    drop_missing: bool
    users: UserIds | None
    required: str

    def bits(self, **_options: Any) -> NDArray[Any]:
        return self.data

    def histogram(self, _domain: DiscreteDomain, **_options: Any) -> NDArray[Any]:
        return self.data

    def positions(self, _domain: Interval, **_options: Any) -> NDArray[Any]:
        return self.data


def prepare_groups(column: GroupedColumn, prepare: Prepare) -> PreparedGroups:
    """The question about the users of each group; the column is read once."""
    prepare(column)  # reads the column, which then has its members
    groups: dict[str, Prepared] = {}
    for name, data in column.members.by_group():
        prepared = prepare(_Part(data, column.drop_missing, column.users, column.required))
        groups[name] = replace(prepared, neighbours=WITHIN_GROUP[prepared.neighbours])
    return PreparedGroups(column.by, groups)


def release_groups(
    prepared: PreparedGroups,
    *,
    estimator: str | None = None,
    route: str = "auto",
    source: RandomSource = SYSTEM,
    **target: Any,
) -> GroupedEstimate:
    """One release about every group that has enough users for the target; ``target`` also chooses the protocol."""
    protocols = choose_protocols(prepared, estimator=estimator, **target)
    chosen = {name: protocols[grid_users(group.users)] for name, group in prepared.groups.items()}
    tallies = _remote_tallies(prepared, chosen, source)
    results: dict[str, Estimate | TooFewUsers] = {}
    for name, group in prepared.groups.items():
        protocol = chosen[name]
        if protocol is None:
            results[name] = TooFewUsers(group.users)
        elif name in tallies:
            estimate = protocol.estimate(tallies[name], estimator=estimator or protocol.estimators[0])
            results[name] = group.finish(estimate)
        else:
            results[name] = run_prepared(group, protocol, estimator=estimator, route=route, source=source)
    estimates = [result for result in results.values() if isinstance(result, Estimate)]
    return GroupedEstimate(
        by=prepared.by,
        results=results,
        guarantee=in_parallel(estimate.guarantee for estimate in estimates) if estimates else None,
        statistic=next(iter(prepared.groups.values())).question.name,
    )


def _remote_tallies(
    prepared: PreparedGroups, protocols: Mapping[str, Protocol | None], source: RandomSource
) -> dict[str, Tally]:
    """The tallies of the groups whose values are held by another system, which runs the rounds of all at once."""
    remote = {name: group.data for name, group in prepared.groups.items() if isinstance(group.data, RemoteGroup)}
    feasible = {name: protocol for name, protocol in protocols.items() if name in remote and protocol is not None}
    return next(iter(remote.values())).tally_all(feasible, source=source) if feasible else {}


def choose_protocols(prepared: PreparedGroups, **target: Any) -> dict[int, Protocol | None]:
    """A protocol for each number of users of the grid that some group needs; None if it is too small for the target.

    A protocol that is calibrated for fewer users is valid for more. If some number of users is too small for the
    target, smaller ones are not tried. A target that no number of users meets is an error.
    """
    questions = {grid_users(group.users): group.question for group in prepared.groups.values()}
    protocols: dict[int, Protocol | None] = dict.fromkeys(questions)
    choose, feasible = _Chooser(**target), False
    for users in sorted(questions, reverse=True):
        question = replace(questions[users], users=users)
        try:
            if users >= _LEAST_USERS:
                protocols[users] = choose(question)
                feasible = True
        except (InfeasibleError, ConditionError):
            if not feasible:
                _check_more_users_help(choose, question)
            break
    return protocols


def _check_more_users_help(choose: _Chooser, question: Question) -> None:
    """Raise the error of a target that even very many users do not meet."""
    choose(replace(question, users=_VERY_MANY_USERS))


def grid_users(users: int) -> int:
    """The largest number round(1.05^i) that is not above the number of users."""
    return _grid(users, GRID_RATIO)


def _grid(users: int, ratio: float) -> int:
    exponent = math.floor(math.log(users) / math.log(ratio)) + 2
    while round(ratio**exponent) > users:
        exponent -= 1
    return round(ratio**exponent)


@dataclass
class _Chooser:
    """Chooses a protocol per number of users: ranked on the coarser grid, calibrated for the number itself."""

    epsilon: float
    delta: float
    protocol: str = BEST
    trust: str = "shuffled"
    calibration: str = "tight"
    honest_fraction: float = 1.0
    estimator: str | None = None
    ranked: dict[int, Plan] = field(default_factory=dict)

    def __call__(self, question: Question) -> Protocol:
        """The protocol for the question; InfeasibleError or ConditionError if its users are too few for the target."""
        coarse = _grid(question.users, _RANKING_RATIO)
        if self.protocol == BEST and _LEAST_USERS <= coarse < question.users:
            best = self._best(replace(question, users=coarse))
            if best is not None and (self.estimator is None or self.estimator in best.protocol.estimators):
                kind = find(best.protocol.question, best.protocol.name)
                settings = question.planned.settings() | dict(best.setting)
                return question.planned.answered_by(
                    kind.calibrate(**settings, **self._target, calibration=best.calibration)
                )
        choice: dict[str, Any] = {"protocol": self.protocol, "trust": self.trust, "calibration": self.calibration}
        return choose_protocol(question, **self._target, **choice, estimator=self.estimator)

    @property
    def _target(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "honest_fraction": self.honest_fraction}

    def _best(self, question: Question) -> Plan | None:
        """The best plan for a number of users of the coarser grid; None if there is none."""
        if question.users not in self.ranked:
            try:
                self.ranked[question.users] = plan(question, **self._target, trust=self.trust).plans[0]
            except InfeasibleError:
                return None
        return self.ranked[question.users]


@dataclass(frozen=True)
class PreparedPrivateGroups:
    """A question about private groups, before any noise: one histogram of groups and values."""

    by: str
    """The name of the column with the groups."""
    groups: tuple[str, ...]
    values: tuple[str, ...]
    statistic: str
    product: Prepared
    """The histogram over all pairs of a group and a value, group by group."""


def prepare_private_groups(column: GroupedColumn, prepare: Prepare) -> PreparedPrivateGroups:
    """The number of users per listed group and value."""
    together = prepare(column)  # of all groups
    values, members = together.value_names, column.members
    question = Histogram(together.users, domain_size=len(members.names) * len(values))
    product = replace(together, question=question, data=members.product_counts())
    return PreparedPrivateGroups(column.by, members.names, values, together.question.name, product)


def release_private_groups(prepared: PreparedPrivateGroups, **target: Any) -> GroupedEstimate:
    """One release about all groups, which also protects which group a user belongs to."""
    estimate = release(prepared.product, **target)
    assert isinstance(estimate, HistogramEstimate)  # noqa: S101
    size = len(prepared.values)
    starts = range(0, len(prepared.groups) * size, size)
    parts = (replace(estimate.part(start, start + size), categories=prepared.values) for start in starts)
    return GroupedEstimate(
        by=prepared.by,
        statistic=prepared.statistic,
        results=dict(zip(prepared.groups, parts, strict=True)),
        guarantee=estimate.guarantee,
        private=True,
    )


def check_private_groups(question: str, groups: Iterable[str] | None, group_by: Any) -> Categories | None:
    """The private groups as categories; refuses questions that cannot be answered by private groups."""
    if groups is None:
        return None
    if group_by is None:
        raise ParameterError("Private groups need the column that holds each user's group: give `group_by=COLUMN` too.")
    if question not in ("count", "histogram"):
        raise ParameterError(
            f"Private groups are not offered for {question}: the noise would have to hide how many users a group has. "
            "Ask for a histogram of bins by private groups, or give public groups by `group_by=COLUMN` alone."
        )
    return Categories.of(groups)
