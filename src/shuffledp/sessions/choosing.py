"""The protocol of the next release of a session, calibrated for what the budget allows."""

from __future__ import annotations

from typing import Any

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning import Question, plan
from shuffledp.planning.several_releases import calibrate_within
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.registry import find
from shuffledp.sessions.budget import Allowance, Budget
from shuffledp.sessions.release import BEST, choose_protocol


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

    The best one is that with the least error for this part of the session's epsilon and delta.
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
    part = 1 / allowance.releases if allowance.share is None else allowance.share
    ranked = plan(
        question,
        epsilon=part * budget.epsilon,
        delta=part * budget.delta,
        trust=budget.trust,
        honest_fraction=budget.honest_fraction,
    )
    failure: InfeasibleError | None = None
    for candidate in (each for each in ranked.plans if not each.reference):
        if estimator is not None and estimator not in candidate.protocol.estimators:
            raise ParameterError(
                f"There is no estimator {estimator!r} of {candidate.protocol.name}, the best protocol, which has "
                f"{', '.join(candidate.protocol.estimators)}. Choose one of these, or name a protocol."
            )
        kind = find(question.question, candidate.protocol.name)
        try:
            return _calibrated(question, budget, allowance, kind, candidate.calibration, **candidate.setting)
        except InfeasibleError as error:
            failure = failure or error
    assert failure is not None  # noqa: S101 - there is at least one plan
    raise failure


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
