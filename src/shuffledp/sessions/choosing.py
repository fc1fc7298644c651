"""The protocol of the next release of a session, calibrated for what the budget allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError, ShuffledpError
from shuffledp.planning import Plan, Question, plan
from shuffledp.planning.several_releases import calibrate_within
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import REPLACE_ONE, least_epsilon
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import find
from shuffledp.sessions.budget import MAX_RELEASES, Allowance, Budget, Release
from shuffledp.sessions.release import BEST, choose_protocol

_LEAST_RATIO = 0.95
"""The composed epsilon of k releases is rarely less than this times the sum of their epsilons over sqrt(k)."""


def with_chosen(
    budget: Budget,
    question: Question,
    *,
    spending: Mapping[str, Any],
    label: str,
    subject: str,
    statistic: str | None = None,
    choice: Mapping[str, Any] | None = None,
    secure: bool = True,
    neighbours: str = REPLACE_ONE,
) -> Budget:
    """The budget after one more release, which answers the question by the protocol that ``choose_within`` chooses.

    ``spending`` are the arguments of ``Budget.allow``, ``choice`` the options of ``choose_within``.
    """
    allowance = budget.allow(**spending)
    protocol = choose_within(question, budget, allowance, **(choice or {}))
    return budget.with_release(
        Release(
            label=label,
            statistic=statistic or question.name,
            subject=subject,
            protocol=protocol,
            limit=budget.limit_after(allowance, protocol),
            released_at=datetime.now(UTC).replace(microsecond=0),
            share=allowance.share,
            secure=secure,
            neighbours=neighbours,
        )
    )


def choose_within(
    question: Question,
    budget: Budget,
    allowance: Allowance,
    *,
    protocol: str = BEST,
    calibration: str = "tight",
    estimator: str | None = None,
) -> Protocol:
    """The named protocol, or the best one, with the least noise that the allowance permits.

    The best one has the least error if all that is left were spent on releases like this one.
    """
    if allowance.own is not None:
        epsilon, delta = allowance.own
        return choose_protocol(
            question,
            epsilon=epsilon,
            delta=delta,
            protocol=protocol,
            trust=budget.trust,
            calibration=calibration,
            honest_fraction=budget.honest_fraction,
            estimator=estimator,
        )
    if protocol != BEST:
        return _calibrated(question, budget, allowance, find(question.question, protocol), calibration)
    failure: ShuffledpError | None = None
    for candidate in _ranked(question, budget, allowance):
        if estimator is not None and estimator not in candidate.protocol.estimators:
            raise ParameterError(
                f"There is no estimator {estimator!r} of {candidate.protocol.name}, the best protocol, which has "
                f"{', '.join(candidate.protocol.estimators)}. Choose one of these, or name a protocol."
            )
        kind = find(candidate.protocol.question, candidate.protocol.name)
        try:
            return _calibrated(question.planned, budget, allowance, kind, candidate.calibration, **candidate.setting)
        except (InfeasibleError, ConditionError) as error:
            failure = failure or error
    assert failure is not None  # noqa: S101 - there is at least one plan
    raise failure


def _ranked(question: Question, budget: Budget, allowance: Allowance) -> list[Plan]:
    """Plans for the next release, best first, by the error if all that is left were spent on releases like it.

    Noise that composes well may be the best for several releases, although other noise is better for one. Each protocol
    is calibrated for an equal part of what is left, and its error is multiplied by the composed epsilon of these parts
    over the sum of their epsilons: errors are nearly proportional to 1 / epsilon. The ranking affects accuracy only.
    """
    share = budget.left.share
    remaining = allowance.releases if allowance.share is None else max(1, round(share / allowance.share))
    remaining = min(remaining, MAX_RELEASES)
    part = budget.epsilon * share / remaining
    plans = plan(
        question,
        epsilon=part,
        delta=budget.delta / remaining,
        trust=budget.trust,
        honest_fraction=budget.honest_fraction,
    )
    feasible = [candidate for candidate in plans.plans if not candidate.reference]
    composed = remaining + bool(budget.releases)  # earlier releases count as one more
    if composed == 1:
        return feasible
    errors: dict[str, float] = {}
    for candidate in feasible:
        name, error = candidate.protocol.name, candidate.expected.rmse
        if name in errors or error * _LEAST_RATIO / math.sqrt(composed) >= min(errors.values(), default=math.inf):
            continue
        with suppress(InfeasibleError, ConditionError):  # where the distribution has too many outcomes to compose
            together = least_epsilon(compose(candidate.protocol.guarantee.curve, composed), budget.delta)
            errors[name] = error * together / (composed * part)
    return sorted(feasible, key=lambda candidate: errors.get(candidate.protocol.name, math.inf))


def _calibrated(
    question: Question,
    budget: Budget,
    allowance: Allowance,
    kind: type[Protocol],
    calibration: str,
    **setting: Any,
) -> Protocol:
    return question.answered_by(
        calibrate_within(
            kind,
            question.settings(),
            epsilon=allowance.limit,
            delta=budget.delta,
            releases=allowance.releases,
            before=budget.curve if budget.releases else None,
            honest_fraction=budget.honest_fraction,
            calibration=calibration,
            **setting,
        )
    )
