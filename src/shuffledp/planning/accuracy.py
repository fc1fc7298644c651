"""The question turned around: how much privacy, or how many users, does a wanted error need?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning.planner import Limits, Plan, Plans, candidates, plan
from shuffledp.planning.question import Question
from shuffledp.privacy.calibration import honest_count
from shuffledp.privacy.guarantee import check_target

__all__ = ["fewest_users_for", "least_epsilon_for"]

_EPSILONS = (math.log(0.01), math.log(30.0))
_MOST_USERS = math.log(10**9)
_USERS_PER_ERROR = 10  # a count that is off by more than a tenth of the users says little
_PRECISION = 0.004
_MOST_ROUNDS = 3

Errors = Callable[[float, "set[str] | None"], list[Plan]]


def least_epsilon_for(question: Question, *, accuracy: float, delta: float, **limits: Any) -> Plans:
    """The plans at the least epsilon (to 0.4 per cent) at which the best one's error is at most ``accuracy``.

    ``limits`` are those of ``plan``: trust, honest_fraction, max_messages, max_bytes, max_local_epsilon, confidence.
    """
    check_target(1.0, delta)
    _check(accuracy)
    kept = _limits(limits)

    def errors(log_epsilon: float, names: set[str] | None) -> list[Plan]:
        return _feasible(question, math.exp(log_epsilon), delta, kept, names)

    reached = _search(errors, accuracy, math.log(1.0), *_EPSILONS)
    if reached is None:
        raise InfeasibleError(
            f"No protocol of the {kept.trust} model has an error of {accuracy:g} {question.unit} or less, "
            f"even at epsilon = {math.exp(_EPSILONS[1]):g}.",
            accuracy=accuracy,
        )
    return plan(question, epsilon=math.exp(reached), delta=delta, **limits)


def fewest_users_for(question: Question, *, accuracy: float, epsilon: float, delta: float, **limits: Any) -> Plans:
    """The plans for the fewest users (to 0.4 per cent) with whom the best one's error is at most ``accuracy``.

    The number of users that the question names is ignored; ``limits`` are those of ``plan``. For counts, at least
    ten times as many users as the wanted error are taken.
    """
    check_target(epsilon, delta)
    _check(accuracy)
    kept = _limits(limits)

    def asked(log_users: float) -> Question:
        return replace(question, users=max(2, math.ceil(math.exp(log_users) - 1e-9)))

    def errors(log_users: float, names: set[str] | None) -> list[Plan]:
        return _feasible(asked(log_users), epsilon, delta, kept, names)

    fewest = math.log(max(2.0, _USERS_PER_ERROR * accuracy if question.unit == "users" else 2.0))
    if fewest >= _MOST_USERS:
        raise ParameterError(f"An error of {accuracy:g} users is larger than can be planned for.", accuracy=accuracy)
    reached = _search(errors, accuracy, max(math.log(10_000), fewest), fewest, _MOST_USERS)
    if reached is None:
        raise InfeasibleError(
            f"No number of users brings the error down to {accuracy:g} {question.unit} "
            f"at epsilon = {epsilon:g} and delta = {delta:g} in the {kept.trust} model.",
            accuracy=accuracy,
        )
    return plan(asked(reached), epsilon=epsilon, delta=delta, **limits)


def _limits(limits: dict[str, Any]) -> Limits:
    return Limits(**{name: value for name, value in limits.items() if name != "confidence"})


def _check(accuracy: float) -> None:
    if not (math.isfinite(accuracy) and accuracy > 0):
        raise ParameterError(f"The wanted error must be a positive number, not {accuracy}.", accuracy=accuracy)


def _feasible(question: Question, epsilon: float, delta: float, limits: Limits, names: set[str] | None) -> list[Plan]:
    """Plans to choose from, the best first."""
    if honest_count(question.users, limits.honest_fraction) < 2:
        return []  # nobody to hide among
    found = candidates(question, epsilon, delta, limits, names=names, references=False, verify=False)
    plans = [each for each in found if isinstance(each, Plan)]
    return sorted(plans, key=lambda each: each.expected.rmse)


def _search(errors: Errors, accuracy: float, start: float, low: float, high: float) -> float | None:
    """The least point between the two at which some plan is accurate enough, taking errors to fall.

    All protocols are tried where the search begins and where it ends; between, only those that were ahead.
    """
    contenders: set[str] = set()

    def excess(at: float) -> float:
        """By how much the least error exceeds the wanted one, in logarithms; infinite if there is no plan."""
        found = errors(at, contenders or None)
        return math.log(max(found[0].expected.rmse, 1e-300) / accuracy) if found else math.inf

    point = start
    for _ in range(_MOST_ROUNDS):
        ahead = {each.protocol.name for each in errors(point, None)[:1]}
        if contenders and ahead <= contenders:
            return point
        contenders |= ahead
        if excess(high) > 0:  # perhaps one will do that is not ahead, or not feasible, where the search began
            contenders = {each.protocol.name for each in errors(high, None)[:1]}
            if not contenders or excess(high) > 0:
                return None
        point = _crossing(excess, point, low, high)
    return point


def _crossing(excess: Callable[[float], float], start: float, low: float, high: float) -> float:
    """The least point with no excess, to the precision, if ``high`` has none.

    Where errors fall as fast as the point grows, the excess is the step to take; else the range is halved.
    """
    left, right, at = low, high, start
    while right - left > _PRECISION:
        value = excess(at)
        if value > 0:
            left = at
        else:
            right = at
        guess = at + value + math.copysign(_PRECISION / 4, value) if abs(value) < 3 else math.inf
        inside = left + _PRECISION / 4 < guess < right - _PRECISION / 4
        at = guess if inside and abs(value) > _PRECISION / 8 else (left + right) / 2
    return right
