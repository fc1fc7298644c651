"""Pure differential privacy: the privacy curve of a guarantee with delta = 0, and exact logarithms of ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shuffledp.checks import check_epsilon
from shuffledp.privacy.divergence import as_delta

_RATIO_BITS = 80


@dataclass(frozen=True)
class PureCurve:
    """Replacing one user changes the probability of every outcome by at most a factor of e^epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def delta_at(self, epsilon: float) -> float:
        """The largest delta of any epsilon-private mechanism; randomized response attains it."""
        check_epsilon(epsilon)
        if epsilon >= self.epsilon:
            return 0.0
        return as_delta(-math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon)) * (1 + 1e-12))


def log_ratio_above(numerator: int, denominator: int) -> float:
    """ln(numerator / denominator) of positive integers of any size, rounded up."""
    ratio = (numerator << _RATIO_BITS) // denominator + 1  # in units of 2^-80, rounded up
    excess = ratio - (1 << _RATIO_BITS)
    if abs(excess) < 1 << (_RATIO_BITS - 2):
        logarithm = math.log1p(excess / (1 << _RATIO_BITS))
    elif ratio.bit_length() < _RATIO_BITS + 1000:
        logarithm = math.log(ratio / (1 << _RATIO_BITS))
    else:
        logarithm = math.log(ratio) - _RATIO_BITS * math.log(2)
    return logarithm + abs(logarithm) * 1e-14 + 1e-15
