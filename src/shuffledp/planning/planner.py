"""Planner: calibrate every protocol that answers a question, and rank those that meet the target."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from shuffledp.checks import check_confidence, check_target, check_users
from shuffledp.errors import ConditionError, InfeasibleError, MissingPackageError, ParameterError, UnknownNameError
from shuffledp.planning.listing import columns_of, figure_of, html_of_plan, html_of_plans
from shuffledp.planning.question import Question
from shuffledp.planning.several_releases import (
    calibrate_within,
    check_releases,
    guarantee_of_a_year,
    guarantee_of_planned,
)
from shuffledp.privacy.guarantee import Guarantee, target_warnings
from shuffledp.protocols.protocol import Cost, ExpectedError, Protocol
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.tabular import data_frame

if TYPE_CHECKING:
    import pandas as pd

    from shuffledp.figures import InlineFigure

TRUSTS = ("shuffled", "augmented", "local", "central")
_SHOWN_REASONS = 4
_CACHED_RESULTS = 16
"""Size of the cache of results, so that planning and then running calibrates once."""


@dataclass(frozen=True)
class Limits:
    """Limits on the plans of a question, beside the target; None is no limit.

    A histogram of two categories is planned as a count: the number of users is public, so that one number is enough.

    ``trust`` is ``shuffled``, ``augmented``, ``local`` or ``central``; ``honest_fraction`` is the fraction of users who
    follow the protocol. ``max_messages`` and ``max_bytes`` bound the expected number per user, ``max_local_epsilon``
    the epsilon that remains if the shuffler and the analyzer collude.
    """

    trust: str = "shuffled"
    honest_fraction: float = 1.0
    max_messages: float | None = None
    max_bytes: float | None = None
    max_local_epsilon: float | None = None
    """Maximum epsilon that remains if the shuffler and the analyzer collude; None for no limit."""

    def __post_init__(self) -> None:
        if self.trust not in TRUSTS:
            raise ParameterError(
                f"There is no trust {self.trust!r}; choose one of {', '.join(TRUSTS)}.", trust=self.trust
            )
        for limit in (self.max_messages, self.max_bytes, self.max_local_epsilon):
            if limit is not None and not limit > 0:
                raise ParameterError(f"A limit must be above 0, not {limit:g}.", limit=limit)

    def why_not(self, protocol: Protocol, releases: int = 1, *, local_epsilon: float | None = None) -> str:
        """The limit that the protocol exceeds, in words; empty if none.

        ``local_epsilon`` is that of its guarantee, if it is known already.
        """
        cost = protocol.cost
        if self.max_messages is not None and cost.messages_per_user > self.max_messages:
            return f"it sends {cost.messages_per_user:.4g} messages per user, more than {self.max_messages:g}"
        if self.max_bytes is not None and cost.bytes_per_user > self.max_bytes:
            return f"it sends {cost.bytes_per_user:.4g} bytes per user, more than {self.max_bytes:g}"
        if self.max_local_epsilon is not None:
            left = releases * (protocol.guarantee.local_epsilon if local_epsilon is None else local_epsilon)
            if left > self.max_local_epsilon:
                bound = "there is no guarantee" if math.isinf(left) else f"epsilon is {left:.4g}"
                return (
                    f"if the shuffler and the analyzer collude, {bound}; "
                    f"the limit is an epsilon of {self.max_local_epsilon:g}"
                )
        return ""


@dataclass(frozen=True, repr=False)
class Plan:
    """A calibrated protocol that meets the target, with its predicted error and its cost.

    ``protocol`` is ready to run, ``calibration`` is ``tight`` or ``paper``, ``setting`` has the options of
    ``calibrate`` that differ from the default, ``expected`` is the predicted error. ``why`` compares it with the best
    plan. ``reference`` is True if it needs other trust than was asked for. ``releases`` is the number of releases that
    meet the target together, ``target_delta`` their delta.
    """

    protocol: Protocol
    calibration: str
    expected: ExpectedError
    setting: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``calibrate`` that differ from the default."""
    why: str = ""
    reference: bool = False
    """True if it needs other trust than was asked for: listed for comparison only."""
    releases: int = 1
    """Number of releases that meet the target together."""
    target_delta: float | None = None
    """The delta of the target; None for that of the protocol."""

    def __repr__(self) -> str:
        return (
            f"Plan({self.protocol.question}/{self.protocol.name}, {self.variant}; {self.protocol.trust}; "
            f"error {self.expected.rmse:.4g}; {self.cost.messages_per_user:.4g} messages, "
            f"{self.cost.bytes_per_user:.4g} bytes per user)"
        )

    def _repr_html_(self) -> str:
        """The plan as notebooks show it."""
        return html_of_plan(self)

    def columns(self) -> dict[str, list[Any]]:
        """The plan as named columns of one row."""
        return columns_of([self])

    def to_frame(self) -> pd.DataFrame:
        """The plan as a pandas data frame of one row; needs the extra ``pandas``."""
        return data_frame(self.columns())

    @property
    def variant(self) -> str:
        """The calibration with its options, as a string."""
        return _variant(self.calibration, self.setting)

    @property
    def cost(self) -> Cost:
        """The cost per user, of one release."""
        return self.protocol.cost

    @property
    def composed(self) -> Guarantee:
        """The guarantee of all ``releases`` together, at the delta of the target; of one release, that of the protocol.

        It is composed exactly, or where that takes long by an upper bound that is usually within 0.5 %.
        """
        once = self.protocol.guarantee
        return once if self.releases == 1 else guarantee_of_planned(once, self.releases, delta=self._delta)

    @property
    def after_a_year(self) -> Guarantee:
        """The guarantee of twelve releases, one every month, at the delta of the target: a quick upper bound.

        It is usually within 4 % of the exact composition, ``protocol.guarantee.after(12)``. The epsilon is infinite if
        none holds at that delta.
        """
        return guarantee_of_a_year(self.protocol.guarantee, delta=self._delta, fine=self.releases > 1)

    @property
    def _delta(self) -> float:
        return self.protocol.guarantee.delta if self.target_delta is None else self.target_delta

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "protocol": self.protocol.name,
            "model": self.protocol.trust,
            "calibration": self.calibration,
            "setting": dict(self.setting),
            "reference": self.reference,
            "guarantee": self.protocol.guarantee.to_json(),
            "composed": _total_to_json(self.composed),
            "after_a_year": _total_to_json(self.after_a_year),
            "expected": self.expected.to_json(),
            "cost": self.cost.to_json(),
            "parameters": self.protocol.parameters(),
            "why": self.why,
        }


def _total_to_json(guarantee: Guarantee) -> dict[str, Any]:
    """Epsilon and delta of several releases; an infinite epsilon becomes null."""
    epsilon = guarantee.epsilon if math.isfinite(guarantee.epsilon) else None
    return {"releases": guarantee.releases, "epsilon": epsilon, "delta": guarantee.delta}


@dataclass(frozen=True)
class Rejection:
    """A protocol that does not meet the target or the limits: ``protocol``, its ``calibration`` and the ``reason``."""

    protocol: str
    calibration: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"protocol": self.protocol, "calibration": self.calibration, "reason": self.reason}


@dataclass(frozen=True, repr=False)
class Plans:
    """The result of ``plan``: the plans for a question, best first, and the rejected protocols.

    It is a sequence of plans; ``plans["cheu"]`` is the best plan of a protocol.

    ``best`` is the protocol of the best plan, ready to run. ``plans`` has the feasible plans in the order of their
    error, then references that need other trust; ``rejected`` has the other protocols with the reasons; ``question``,
    ``epsilon``, ``delta`` and ``releases`` repeat what was asked for.

    >>> plans = sdp.plan(sdp.Count(users=10_000), epsilon=1.0, delta=1e-6)
    >>> plans.best is plans[0].protocol, plans[-1].reference
    (True, True)
    >>> plans["cheu"].protocol.name, len(plans) == len(list(plans))
    ('cheu', True)
    """

    question: Question
    epsilon: float
    delta: float
    plans: tuple[Plan, ...]
    rejected: tuple[Rejection, ...]
    releases: int = 1

    def __repr__(self) -> str:
        best = self.plans[0]
        several = f" for {self.releases:,} releases together" if self.releases > 1 else ""
        return (
            f"Plans({self.question.name} of {self.question.users:,} users; epsilon = {self.epsilon:.4g}, "
            f"delta = {self.delta:.2g}{several}; best {best.protocol.name} with error {best.expected.rmse:.4g}; "
            f"{len(self.plans)} plans, {len(self.rejected)} rejected)"
        )

    def _repr_html_(self) -> str:
        """The plans as notebooks show them."""
        return html_of_plans(self)

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __contains__(self, plan: object) -> bool:
        return plan in (self._by_name if isinstance(plan, str) else self.plans)

    @property
    def _by_name(self) -> dict[str, Plan]:
        """The best plan of each protocol."""
        return {plan.protocol.name: plan for plan in reversed(self.plans)}

    @overload
    def __getitem__(self, key: int | str) -> Plan: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Plan, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Plan | tuple[Plan, ...]:
        """The plan at a position, or the best plan of the protocol of this name; with a slice, several."""
        if not isinstance(key, str):
            return self.plans[key]
        if key in self._by_name:
            return self._by_name[key]
        reason = next((rejection.reason for rejection in self.rejected if rejection.protocol == key), None)
        if reason is not None:
            raise InfeasibleError(f"{key} was rejected: {reason}", protocol=key)
        names = ", ".join(dict.fromkeys(plan.protocol.name for plan in self.plans))
        raise UnknownNameError(f"There is no plan {key!r}; choose one of {names}.", protocol=key)

    def columns(self) -> dict[str, list[Any]]:
        """The plans as named columns, one row per plan."""
        return columns_of(self.plans)

    def to_frame(self) -> pd.DataFrame:
        """The plans as a pandas data frame, one row per plan; needs the extra ``pandas``."""
        return data_frame(self.columns())

    def figure(self, suffix: str) -> bytes:
        """Error against communication, as the content of a .png, .svg or .html file."""
        return figure_of(self, suffix)

    def plot(self, path: str | Path | None = None) -> InlineFigure | None:
        """Draw error against communication: to a file (.png, .svg or .html), or without a path in the notebook."""
        from shuffledp.figures import show_or_write

        return show_or_write(self.figure, path)

    @property
    def best(self) -> Protocol:
        """The protocol of the best plan, ready to run."""
        return self.plans[0].protocol

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about a weak target, such as a delta above 1/users."""
        return target_warnings(self.epsilon, self.delta, self.question.users)

    @property
    def frontier(self) -> tuple[Plan, ...]:
        """The Pareto frontier: plans with lower error than all that send no more bytes, fewest bytes first."""
        frontier: list[Plan] = []
        feasible = [plan for plan in self.plans if not plan.reference]
        for plan in sorted(feasible, key=lambda plan: (plan.cost.bytes_per_user, plan.expected.rmse)):
            if not frontier or plan.expected.rmse < frontier[-1].expected.rmse:
                frontier.append(plan)
        return tuple(frontier)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "question": self.question.to_json(),
            "target": {"epsilon": self.epsilon, "delta": self.delta},
            "releases": self.releases,
            "warnings": list(self.warnings),
            "plans": [plan.to_json() for plan in self.plans],
            "rejected": [rejection.to_json() for rejection in self.rejected],
        }


def plan(
    question: Question,
    *,
    epsilon: float,
    delta: float,
    releases: int = 1,
    trust: str = "shuffled",
    honest_fraction: float = 1.0,
    max_messages: float | None = None,
    max_bytes: float | None = None,
    max_local_epsilon: float | None = None,
    confidence: float = 0.95,
) -> Plans:
    """Rank the protocols that answer ``question`` with at most ``epsilon`` and ``delta``, within the limits.

    With ``releases``, the same question is asked that many times about the same users, and ``epsilon`` and ``delta``
    are those of all releases together. Errors, messages and bytes are those of one release.

    A histogram of two categories is planned as a count: the number of users is public, so that one number is enough.

    ``trust`` is ``shuffled``, ``augmented``, ``local`` or ``central``; ``honest_fraction`` is the fraction of users who
    follow the protocol; ``max_messages`` and ``max_bytes`` bound the expected number per user, ``max_local_epsilon``
    the epsilon that remains if the shuffler and the analyzer collude. ``confidence`` is that of the predicted maximum
    errors.

    The result always has a plan that can be run: if there is none, InfeasibleError has the reason of every protocol.

    >>> question = sdp.Count(users=10_000)
    >>> plans = sdp.plan(question, epsilon=1.0, delta=1e-6)
    >>> len(plans.best.run([True] * 4_000 + [False] * 6_000).interval(0.95))
    2
    """
    limits = Limits(trust, honest_fraction, max_messages, max_bytes, max_local_epsilon)
    check_target(epsilon, delta)
    check_users(question.users, honest_fraction)
    check_confidence(confidence)
    check_releases(releases)
    plans = _plans(question.planned, epsilon, delta, limits, confidence, releases)
    return plans if plans.question == question else replace(plans, question=question)


@lru_cache(maxsize=_CACHED_RESULTS, typed=True)
def _plans(question: Question, epsilon: float, delta: float, limits: Limits, confidence: float, releases: int) -> Plans:
    """Calibrate and rank all candidates; the last few results are cached, since plans are immutable."""
    results = list(candidates(question, epsilon, delta, limits, confidence, releases=releases))
    return ranked(question, epsilon, delta, limits, results, releases=releases)


def ranked(
    question: Question,
    epsilon: float,
    delta: float,
    limits: Limits,
    results: Iterable[Plan | Rejection],
    *,
    releases: int = 1,
) -> Plans:
    """The plans of all candidates, best first, with reasons; InfeasibleError if none has the trust asked for."""
    results = list(results)
    plans = [result for result in results if isinstance(result, Plan)]
    rejected = tuple(result for result in results if isinstance(result, Rejection))
    feasible = _ranked([plan for plan in plans if not plan.reference])
    if not feasible:
        raise InfeasibleError(
            f"No protocol of the {limits.trust} model meets the target. {_main_reasons(question, limits, rejected)}",
            rejected=rejected,
        )
    references = _ranked([plan for plan in plans if plan.reference])
    return Plans(question, epsilon, delta, _explained(question, feasible, references), rejected, releases)


def candidates(
    question: Question,
    epsilon: float,
    delta: float,
    limits: Limits,
    confidence: float = 0.95,
    *,
    releases: int = 1,
    names: Collection[str] | None = None,
    variants: Collection[tuple[str, str]] | None = None,
    references: bool = True,
    verify: bool = True,
) -> Iterator[Plan | Rejection]:
    """Calibrate every protocol for the question, or those in ``names``, in each way worth trying.

    For several releases, these are the exact calibrations only: theorems state the noise of one release. ``variants``
    restricts them to these pairs of a name and a ``Plan.variant``; where no variant of a name is worth trying for this
    target, all its others are.
    """
    if variants is not None:
        names = {name for name, _ in variants}
    for name, kind in PROTOCOLS[question.question].items():
        if names is not None and name not in names:
            continue
        reference = kind.trust != limits.trust or kind.trusts_shuffler
        tried: list[Protocol] = []
        if reference and not references:
            continue
        calibrations = list(_calibrations(kind, question, epsilon, delta, releases, reference=reference))
        if variants is not None:
            calibrations = [each for each in calibrations if (name, _variant(*each)) in variants] or calibrations
        for calibration, setting in calibrations:
            try:
                protocol = question.answered_by(
                    calibrate_within(
                        kind,
                        question.settings(),
                        epsilon=epsilon,
                        delta=delta,
                        releases=releases,
                        calibration=calibration,
                        honest_fraction=limits.honest_fraction,
                        **setting,
                    )
                )
                if protocol in tried:
                    continue
                tried.append(protocol)
                # tight calibrations end with this check themselves
                reason = _why_not_private(protocol) if verify and calibration == "paper" else ""
                reason = reason or ("" if reference else limits.why_not(protocol, releases))
                expected = protocol.expected_error(confidence=confidence) if not reason else None
            except (InfeasibleError, ConditionError, MissingPackageError, ParameterError) as error:
                yield Rejection(name, _variant(calibration, setting), str(error))
                continue
            if expected is None:
                yield Rejection(name, _variant(calibration, setting), reason)
            else:
                yield Plan(
                    protocol,
                    calibration,
                    expected,
                    setting,
                    reference=reference,
                    releases=releases,
                    target_delta=delta,
                )


def _why_not_private(protocol: Protocol) -> str:
    """The error of the recomputed guarantee, if it does not hold; else empty."""
    try:
        protocol.guarantee  # noqa: B018
    except (ParameterError, InfeasibleError) as error:
        return str(error)
    return ""


def _main_reasons(question: Question, limits: Limits, rejected: tuple[Rejection, ...]) -> str:
    """The reasons for rejecting the first few protocols of the requested trust, a sentence each."""
    protocols = PROTOCOLS[question.question]
    first: dict[str, str] = {}
    for rejection in rejected:
        if protocols[rejection.protocol].trust == limits.trust:
            first.setdefault(rejection.protocol, rejection.reason.partition(". ")[0].rstrip("."))
    shown = [f"{name}: {reason}" for name, reason in list(first.items())[:_SHOWN_REASONS]]
    more = f"; and {len(first) - len(shown)} more" if len(first) > len(shown) else ""
    return f"{'; '.join(shown)}{more}."


def _calibrations(
    kind: type[Protocol], question: Question, epsilon: float, delta: float, releases: int, *, reference: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calibrations with their options: the default, its alternatives, the paper's; for a reference the default only."""
    yield kind.calibrations[0], {}
    if reference:
        return
    once = {"epsilon": epsilon / math.sqrt(releases), "delta": delta / releases}  # about those of one release
    for setting in kind.alternatives(**question.settings(), **once):
        yield kind.calibrations[0], setting
    for calibration in kind.calibrations[1:] if releases == 1 else ():
        yield calibration, {}


def _variant(calibration: str, setting: Mapping[str, Any]) -> str:
    return ", ".join((calibration, *(f"{name} {value}" for name, value in setting.items())))


def _ranked(plans: list[Plan]) -> list[Plan]:
    """By error; of those without one, which reveals nothing comes first, and then by communication."""
    return sorted(plans, key=lambda plan: (plan.expected.rmse, _reveals(plan), plan.cost.bytes_per_user))


def _reveals(plan: Plan) -> bool:
    return plan.expected.rmse > 0 or plan.protocol.guarantee.epsilon > 0


def _explained(question: Question, feasible: list[Plan], references: list[Plan]) -> tuple[Plan, ...]:
    best = feasible[0]
    number = f"{len(feasible)} feasible protocols" if len(feasible) > 1 else "1 feasible protocol"
    why = f"lowest error of {number} (typical error {best.expected.rmse:.3g} {question.unit})"
    explained = [replace(best, why=why)]
    explained += [replace(plan, why=_compared(plan, best)) for plan in feasible[1:]]
    for plan in references:
        why = f"{_compared(plan, best)}; {trust_asked(plan.protocol)}"
        explained.append(replace(plan, why=why))
    return tuple(explained)


def _compared(plan: Plan, best: Plan) -> str:
    if best.expected.rmse > 0:
        why = f"{plan.expected.rmse / best.expected.rmse:.3g} times the error of the best"
    else:
        why = f"typical error {plan.expected.rmse:.3g}"
    if not plan.reference and plan.cost.bytes_per_user < best.cost.bytes_per_user:
        why += f", with {plan.cost.bytes_per_user / best.cost.bytes_per_user:.2g} times its bytes"
    if plan.calibration == "paper":
        why += "; the constants of the theorem give more noise than needed"
    return why


def trust_asked(protocol: Protocol) -> str:
    """Who must be trusted with what, in a clause."""
    if protocol.trusts_shuffler:
        return "the shuffler must count, sample and remove small counts, and sees every value"
    return {
        "central": "the collecting party sees every value",
        "local": "no party needs to be trusted",
        "augmented": "the shuffler must add dummies; it reads no value, but learns the exact counts from the estimate",
        "shuffled": "the shuffler must be trusted to shuffle",
    }[protocol.trust]
