"""Pure differential privacy: a factor that no outcome exceeds, and nothing beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shuffledp.errors import ParameterError

__all__ = ["PureLaw", "log_ratio_above"]


@dataclass(frozen=True)
class PureLaw:
    """Any two outcomes' probabilities differ by at most e^epsilon, whatever one user answered."""

    epsilon: float

    def delta_at(self, epsilon: float) -> float:
        """The largest delta that an epsilon-private mechanism can have, which randomized response has."""
        if not epsilon >= 0:
            raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
        if epsilon >= self.epsilon:
            return 0.0
        return min(1.0, -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon)) * (1 + 1e-12))


def log_ratio_above(numerator: int, denominator: int) -> float:
    """ln(numerator / denominator) of positive whole numbers, rounded up."""
    return _log(numerator, denominator) * (1 + 1e-14) + 1e-15


def _log(numerator: int, denominator: int) -> float:
    excess = numerator - denominator
    if abs(excess) * 4 < denominator:
        return math.log1p(excess / denominator)
    return (
        math.log(numerator) - math.log(denominator)
        if numerator > 4 * denominator
        else math.log(numerator / denominator)
    )
