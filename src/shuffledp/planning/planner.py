"""Try every protocol that answers the question, and rank those that meet the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.model import Cost, ExpectedError
from shuffledp.planning.question import Question
from shuffledp.privacy.calibration import CALIBRATIONS, check_users
from shuffledp.privacy.guarantee import check_target
from shuffledp.protocols.registry import PROTOCOLS

__all__ = ["MODELS", "Plan", "Plans", "Rejection", "plan"]

MODELS = ("shuffled", "local", "central")


@dataclass(frozen=True)
class Plan:
    """A protocol that meets the target, with its predicted error."""

    protocol: Any
    calibration: str
    expected: ExpectedError
    why: str

    @property
    def cost(self) -> Cost:
        """What a user sends."""
        cost: Cost = self.protocol.cost
        return cost

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "protocol": self.protocol.name,
            "model": self.protocol.model,
            "calibration": self.calibration,
            "guarantee": self.protocol.guarantee.to_json(),
            "expected": self.expected.to_json(),
            "cost": self.cost.to_json(),
            "parameters": self.protocol.parameters(),
            "why": self.why,
        }


@dataclass(frozen=True)
class Rejection:
    """A protocol that does not meet the target or the limits, and why."""

    protocol: str
    calibration: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"protocol": self.protocol, "calibration": self.calibration, "reason": self.reason}


@dataclass(frozen=True)
class Plans:
    """Feasible plans, the best first, and what was rejected."""

    question: Question
    epsilon: float
    delta: float
    plans: tuple[Plan, ...]
    rejected: tuple[Rejection, ...]

    @property
    def best(self) -> Any:
        """The protocol of the best plan, ready to run."""
        return self.plans[0].protocol

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "question": self.question.to_json(),
            "target": {"epsilon": self.epsilon, "delta": self.delta},
            "plans": [each.to_json() for each in self.plans],
            "rejected": [each.to_json() for each in self.rejected],
        }


def plan(
    question: Question,
    *,
    epsilon: float,
    delta: float,
    trust: str = "shuffled",
    honest_fraction: float = 1.0,
    max_messages: float | None = None,
    max_bytes: float | None = None,
    confidence: float = 0.95,
) -> Plans:
    """Rank the protocols that answer ``question`` within (epsilon, delta) and the limits.

    Raises InfeasibleError with the reason of every protocol if there is none, so that the result
    always holds a plan that can be run.
    """
    check_target(epsilon, delta)
    check_users(question.users, honest_fraction)
    if not 0 < confidence < 1:
        raise ParameterError(f"The confidence must lie between 0 and 1, not {confidence:g}.", confidence=confidence)
    for limit in (max_messages, max_bytes):
        if limit is not None and not limit > 0:
            raise ParameterError(f"A limit on what users send must be above 0, not {limit:g}.", limit=limit)
    if trust not in MODELS:
        raise ParameterError(f"There is no trust model {trust!r}; choose one of {', '.join(MODELS)}.", trust=trust)
    plans: list[Plan] = []
    rejected: list[Rejection] = []
    for name, kind in PROTOCOLS[question.name].items():
        if kind.model != trust:
            rejected.append(Rejection(name, "-", f"it works in the {kind.model} model, not the {trust} one"))
            continue
        for calibration in CALIBRATIONS:
            try:
                protocol = kind.calibrate(
                    **question.settings(),
                    epsilon=epsilon,
                    delta=delta,
                    calibration=calibration,
                    honest_fraction=honest_fraction,
                )
            except (InfeasibleError, ConditionError) as error:
                rejected.append(Rejection(name, calibration, str(error)))
                continue
            too_dear = _over_limit(protocol.cost, max_messages, max_bytes)
            if too_dear:
                rejected.append(Rejection(name, calibration, too_dear))
                continue
            plans.append(Plan(protocol, calibration, protocol.expected_error(confidence=confidence), ""))
    if not plans:
        reasons = "; ".join(f"{each.protocol} ({each.calibration}): {each.reason.rstrip('.')}" for each in rejected)
        raise InfeasibleError(f"No protocol meets the target. {reasons}.", rejected=rejected)
    ranked = sorted(plans, key=lambda each: (each.expected.rmse, each.cost.bytes_per_user))
    return Plans(question, epsilon, delta, _explained(ranked), tuple(rejected))


def _over_limit(cost: Cost, max_messages: float | None, max_bytes: float | None) -> str:
    """Why the cost is over a limit, or nothing."""
    if max_messages is not None and cost.messages_per_user > max_messages:
        return f"it sends {cost.messages_per_user:.4g} messages per user, more than {max_messages:g}"
    if max_bytes is not None and cost.bytes_per_user > max_bytes:
        return f"it sends {cost.bytes_per_user:.4g} bytes per user, more than {max_bytes:g}"
    return ""


def _explained(ranked: list[Plan]) -> tuple[Plan, ...]:
    best = ranked[0]
    explained = []
    for place, each in enumerate(ranked):
        if place == 0:
            why = f"least error of {len(ranked)} feasible: off by {each.expected.rmse:.3g} users, typically"
        else:
            why = f"{each.expected.rmse / best.expected.rmse:.3g} times the error of the best"
        if each.calibration == "paper":
            why += "; the theorem's constants ask for more noise than privacy needs"
        explained.append(Plan(each.protocol, each.calibration, each.expected, why))
    return tuple(explained)
