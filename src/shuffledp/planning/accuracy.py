"""Inverse planning: the least epsilon, or the fewest users, for a target error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shuffledp.checks import check_target
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.planning.planner import Limits, Plan, Plans, candidates, plan
from shuffledp.planning.question import Question
from shuffledp.planning.several_releases import check_releases
from shuffledp.privacy.calibration import honest_count

_LOG_EPSILONS = (math.log(0.01), math.log(30.0))
_MAX_LOG_USERS = math.log(10**9)
_USERS_PER_ERROR = 10  # an error of more than a tenth of the users is of no use
_PRECISION = 0.004  # of the logarithm of epsilon or of the number of users
_MAX_ITERATIONS = 4

Variant = tuple[str, str]
"""The name of a protocol and ``Plan.variant``."""
Candidates = Callable[[float, "set[Variant] | None"], list[Plan]]


def least_epsilon_for(question: Question, *, accuracy: float, delta: float, **limits: Any) -> Plans:
    """The plans for a question at the least epsilon at which the error of the best is at most ``accuracy``.

    Epsilon is accurate to 0.4 per cent; ``delta`` is given. ``limits`` are those of ``plan``: releases, trust,
    honest_fraction, max_messages, max_bytes, max_local_epsilon, confidence.

    >>> plans = sdp.least_epsilon_for(sdp.Count(users=10_000), accuracy=20.0, delta=1e-6, trust="central")
    >>> plans.plans[0].expected.rmse <= 20.0
    True
    """
    check_target(1.0, delta)
    _check(accuracy)
    checked_limits = _limits(limits)

    def feasible(log_epsilon: float, variants: set[Variant] | None) -> list[Plan]:
        return _feasible(question, math.exp(log_epsilon), delta, checked_limits, variants, _releases(limits))

    def plans(log_epsilon: float) -> Plans:
        return plan(question, epsilon=math.exp(log_epsilon), delta=delta, **limits)

    solution = _search(feasible, plans, accuracy, math.log(1.0), *_LOG_EPSILONS)
    if solution is None:
        raise InfeasibleError(
            f"No protocol of the {checked_limits.trust} model has an error of {accuracy:g} {question.unit} or less, "
            f"even at epsilon = {math.exp(_LOG_EPSILONS[1]):g}.",
            accuracy=accuracy,
        )
    return solution


def fewest_users_for(question: Question, *, accuracy: float, epsilon: float, delta: float, **limits: Any) -> Plans:
    """The plans for a question with the fewest users with whom the error of the best is at most ``accuracy``.

    The number is accurate to 0.4 per cent; ``epsilon`` and ``delta`` are given. The number of users in the question is
    ignored; ``limits`` are those of ``plan``. For counts, there are at least ten times as many users as the target
    error.

    >>> mean = sdp.Mean(users=1, lower=0, upper=120)
    >>> plans = sdp.fewest_users_for(mean, accuracy=0.5, epsilon=1.0, delta=1e-6, trust="central")
    >>> plans.plans[0].expected.rmse <= 0.5
    True
    """
    check_target(epsilon, delta)
    _check(accuracy)
    checked_limits = _limits(limits)

    def question_for(log_users: float) -> Question:
        return replace(question, users=max(2, math.ceil(math.exp(log_users) - 1e-9)))

    def feasible(log_users: float, variants: set[Variant] | None) -> list[Plan]:
        return _feasible(question_for(log_users), epsilon, delta, checked_limits, variants, _releases(limits))

    def plans(log_users: float) -> Plans:
        return plan(question_for(log_users), epsilon=epsilon, delta=delta, **limits)

    fewest = math.log(max(2.0, _USERS_PER_ERROR * accuracy if question.unit == "users" else 2.0))
    if fewest >= _MAX_LOG_USERS:
        raise ParameterError(f"An error of {accuracy:g} users is too large to plan for.", accuracy=accuracy)
    solution = _search(feasible, plans, accuracy, max(math.log(10_000), fewest), fewest, _MAX_LOG_USERS)
    if solution is None:
        raise InfeasibleError(
            f"No number of users reduces the error to {accuracy:g} {question.unit} "
            f"at epsilon = {epsilon:g} and delta = {delta:g} in the {checked_limits.trust} model.",
            accuracy=accuracy,
        )
    return solution


def _limits(limits: dict[str, Any]) -> Limits:
    return Limits(**{name: value for name, value in limits.items() if name not in ("confidence", "releases")})


def _releases(limits: dict[str, Any]) -> int:
    releases: int = limits.get("releases", 1)
    check_releases(releases)
    return releases


def _check(accuracy: float) -> None:
    if not (math.isfinite(accuracy) and accuracy > 0):
        raise ParameterError(f"The target error must be a positive number, not {accuracy}.", accuracy=accuracy)


def _feasible(
    question: Question, epsilon: float, delta: float, limits: Limits, variants: set[Variant] | None, releases: int
) -> list[Plan]:
    """Feasible plans without references, the best first."""
    if honest_count(question.users, limits.honest_fraction) < 2:
        return []  # no protocol hides one honest user alone
    results = candidates(
        question.planned, epsilon, delta, limits, releases=releases, variants=variants, references=False, verify=False
    )
    return sorted((result for result in results if isinstance(result, Plan)), key=lambda plan: plan.expected.rmse)


def _search(
    feasible: Candidates, plans: Callable[[float], Plans], accuracy: float, start: float, low: float, high: float
) -> Plans | None:
    """The plans at the least point from ``low`` to ``high`` at which one is accurate enough, if errors decrease.

    All protocols are calibrated in all variants at the start and at the end of the search; between them, only the
    variants that were the most accurate there.
    """
    contenders: set[Variant] = set()

    def excess(point: float) -> float:
        """The logarithm of the lowest error over the target error; infinite if there is no plan."""
        ranked = feasible(point, contenders)
        return math.log(max(ranked[0].expected.rmse, 1e-300) / accuracy) if ranked else math.inf

    contenders |= {_variant(plan) for plan in feasible(start, None)[:1]}
    if not contenders or excess(high) > 0:  # another may be the best, or the only feasible one, at the end
        contenders = {_variant(plan) for plan in feasible(high, None)[:1]}
        if not contenders or excess(high) > 0:
            return None
    point = start
    for _ in range(_MAX_ITERATIONS):
        point = _crossing(excess, point, low, high)
        result = plans(point)
        best, *others = sorted(
            (plan for plan in result.plans if not plan.reference), key=lambda plan: plan.expected.rmse
        )
        nearly_best = best.expected.rmse * (1 + _PRECISION / 4)
        if any(_variant(plan) in contenders and plan.expected.rmse <= nearly_best for plan in (best, *others)):
            break
        contenders.add(_variant(best))
    return result


def _variant(plan: Plan) -> Variant:
    return plan.protocol.name, plan.variant


def _crossing(excess: Callable[[float], float], start: float, low: float, high: float) -> float:
    """The least point at which the excess is at most 0, up to the precision; the excess must be at most 0 at ``high``.

    The excess itself is used as the step, which is exact where the error is inversely proportional to epsilon or to the
    number of users. A step out of the range leads to its end if nothing was computed there yet; otherwise the range
    is halved.
    """
    left, right, point = low, high, start
    while right - left > _PRECISION:
        value = excess(point)
        if value > 0:
            left = point
        else:
            right = point
        guess = point + value + math.copysign(_PRECISION / 4, value) if abs(value) < 3 else math.inf
        inside = left + _PRECISION / 4 < guess < right - _PRECISION / 4
        if guess <= left == low:
            point = low + _PRECISION / 2
        else:
            point = guess if inside and abs(value) > _PRECISION / 8 else (left + right) / 2
    return right
