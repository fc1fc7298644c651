"""Privacy accounting of ``stability``: noisy counts of non-empty categories, of which small ones are withheld.

Discrete Laplace noise is added to every non-empty category, which is released if its noisy count reaches the threshold
(Bun, Nissim and Stemmer 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shuffledp.checks import check_epsilon, check_target
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, check_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic
from shuffledp.search import least_integer

_MAX_SEARCHED = 1 << 13
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True)
class StabilityCurve:
    """Non-empty counts with discrete Laplace noise, released if the noisy count is at least ``threshold``.

    A count that changes between two positive numbers has a privacy loss of at most ln(1/ratio) in absolute value, as
    without a threshold; the supremum over counts is that of randomized response. A count that becomes empty was
    released with probability w = Pr[1 + noise >= threshold] before, and is never released after. Replacing a user
    decrements one count and increments another, which makes four cases.
    """

    ratio: Dyadic
    threshold: int

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if self.threshold < 1:
            raise ParameterError(f"The threshold must be at least 1, not {self.threshold}.", threshold=self.threshold)

    @property
    def singleton_shown(self) -> float:
        """Upper bound on Pr[1 + noise >= threshold]."""
        ratio = float(self.ratio)
        return as_delta(ratio ** (self.threshold - 1) / (1 + ratio) * (1 + 1e-12 * self.threshold) + _TINY)

    def directions(self, cut: float = 0.0) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per case of the replacement, the two independent pairs of distributions of the two counts."""
        no_flip = 1 / (1 + float(self.ratio))
        no_flip = min(no_flip * (1 + 1e-15), 1.0)
        released = self.singleton_shown
        changed = DiscretePair(np.array([no_flip, 1 - no_flip]), np.array([1 - no_flip, no_flip]), cut)
        emptied = DiscretePair(np.array([1 - released, released]), np.array([1.0, 0.0]), cut)
        return (
            (changed, changed),
            (emptied, changed),
            (changed, emptied.reversed),
            (emptied, emptied.reversed),
        )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the release is (epsilon, delta)-private."""
        check_epsilon(epsilon)
        common, *others = self.directions()
        pure = DiscreteLaplaceCurve(self.ratio, coordinates=2).pure_epsilon  # if both counts stay non-empty
        worst = 0.0
        for first, second in others if epsilon >= pure else (common, *others):
            p, q = np.outer(first.p, second.p).ravel(), np.outer(first.q, second.q).ravel()
            excess = p - math.exp(min(epsilon, 700.0)) * (1 - 1e-15) * q
            worst = max(worst, math.fsum(excess[excess > 0]))
        return as_delta(worst * (1 + _ROUNDING))


def least_threshold_for(ratio: Dyadic, epsilon: float, delta: float) -> int:
    """The least threshold at which noise of this ratio is (epsilon, delta)-private."""
    check_target(epsilon, delta)
    threshold = least_integer(
        lambda threshold: StabilityCurve(ratio, threshold).delta_at(epsilon) <= delta, limit=_MAX_SEARCHED
    )
    if threshold is None:
        raise InfeasibleError(
            f"No threshold makes noise of ratio {ratio} private at epsilon = {epsilon:g} and delta = {delta:g}: two "
            f"counts change, so the ratio must be at least e^(-epsilon/2) = {math.exp(-epsilon / 2):.6g}.",
            ratio=ratio,
            epsilon=epsilon,
            delta=delta,
        )
    return threshold
