"""The question turned around: how much privacy, or how many users, does a wanted error need?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning.planner import Limits, Plan, Plans, candidates, plan
from shuffledp.planning.question import Question
from shuffledp.privacy.calibration import MOST_USERS
from shuffledp.privacy.guarantee import check_target

__all__ = ["fewest_users_for", "least_epsilon_for"]

_EPSILONS = (0.01, 30.0)
_PRECISION = 0.002
_CONTENDERS = 3


def least_epsilon_for(question: Question, *, accuracy: float, delta: float, **limits: Any) -> Plans:
    """The plans at the least epsilon (to 0.2 per cent) at which the best one's error is at most ``accuracy``."""
    check_target(1.0, delta)
    _check(accuracy)
    confidence = limits.pop("confidence", 0.95)

    def error(log_epsilon: float, names: tuple[str, ...] | None) -> list[Plan]:
        return _feasible(question, math.exp(log_epsilon), delta, Limits(**limits), names)

    low, high = (math.log(bound) for bound in _EPSILONS)
    reached = _search(error, accuracy, low, high, _PRECISION)
    if reached is None:
        raise InfeasibleError(
            f"No protocol of the {Limits(**limits).trust} model has an error of {accuracy:g} {question.unit} or less, "
            f"even at epsilon = {_EPSILONS[1]:g}.",
            accuracy=accuracy,
        )
    return plan(question, epsilon=math.exp(reached), delta=delta, confidence=confidence, **limits)


def fewest_users_for(question: Question, *, accuracy: float, epsilon: float, delta: float, **limits: Any) -> Plans:
    """The plans for the fewest users (to 0.2 per cent) with whom the best one's error is at most ``accuracy``.

    The number of users that the question names is ignored.
    """
    check_target(epsilon, delta)
    _check(accuracy)
    confidence = limits.pop("confidence", 0.95)

    def asked(log_users: float) -> Question:
        return replace(question, users=max(2, round(math.exp(log_users))))

    def error(log_users: float, names: tuple[str, ...] | None) -> list[Plan]:
        return _feasible(asked(log_users), epsilon, delta, Limits(**limits), names)

    reached = _search(error, accuracy, math.log(2), math.log(MOST_USERS) / 2, _PRECISION)
    if reached is None:
        reached = _search(error, accuracy, math.log(MOST_USERS) / 2, math.log(MOST_USERS), _PRECISION)
    if reached is None:
        raise InfeasibleError(
            f"No number of users brings the error down to {accuracy:g} {question.unit} "
            f"at epsilon = {epsilon:g} and delta = {delta:g} in the {Limits(**limits).trust} model.",
            accuracy=accuracy,
        )
    return plan(asked(reached), epsilon=epsilon, delta=delta, confidence=confidence, **limits)


def _check(accuracy: float) -> None:
    if not (math.isfinite(accuracy) and accuracy > 0):
        raise ParameterError(f"The wanted error must be a positive number, not {accuracy}.", accuracy=accuracy)


def _feasible(
    question: Question, epsilon: float, delta: float, limits: Limits, names: tuple[str, ...] | None
) -> list[Plan]:
    """Plans to choose from, the best first."""
    found = candidates(question, epsilon, delta, limits, names=names)
    plans = [each for each in found if isinstance(each, Plan) and not each.reference]
    return sorted(plans, key=lambda each: each.expected.rmse)


Errors = Callable[[float, "tuple[str, ...] | None"], list[Plan]]


def _search(errors: Errors, accuracy: float, low: float, high: float, precision: float) -> float | None:
    """The least point between the two at which some plan is accurate enough, taking errors to fall.

    All protocols are tried at a few points; between those only the ones that were ahead there.
    """

    def good(found: list[Plan]) -> bool:
        return bool(found) and found[0].expected.rmse <= accuracy

    ahead: set[str] = set()
    points = [low + (high - low) * step / 4 for step in range(5)]
    bracket: tuple[float, float] | None = None
    previous = low
    for point in points:
        found = errors(point, None)
        ahead |= {each.protocol.name for each in found[:_CONTENDERS]}
        if good(found):
            bracket = (previous, point)
            break
        previous = point
    if bracket is None:
        return None
    left, right = bracket
    while right - left > precision:
        middle = (left + right) / 2
        left, right = (left, middle) if good(errors(middle, tuple(ahead))) else (middle, right)
    return right
