"""Privacy accounting of ``stability``: noisy counts of non-empty categories, of which small ones are withheld.

Every non-empty category gets discrete Laplace noise and is shown if the noisy count reaches the threshold (Bun, Nissim
and Stemmer 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shuffledp.checks import check_epsilon, check_target
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import check_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.randomness import Dyadic
from shuffledp.search import least_integer

_MOST_SEARCHED = 1 << 13
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True)
class StabilityCurve:
    """Non-empty counts plus noise of distribution ~ ratio^|x|, shown if the sum is at least ``threshold``.

    A count that changes between two numbers above 0 is at most as telling as without a threshold, and
    then its loss is ln(1/ratio) or the opposite: randomized response, which long counts come as near to as
    one likes. A count that becomes empty is shown with probability w = Pr[1 + noise >= threshold] before
    and never after. A replacement takes one user from a count and gives one to another: four cases.
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
        kept = 1 / (1 + float(self.ratio))
        kept = min(kept * (1 + 1e-15), 1.0)
        shown = self.singleton_shown
        changed = DiscretePair(np.array([kept, 1 - kept]), np.array([1 - kept, kept]), cut)
        emptied = DiscretePair(np.array([1 - shown, shown]), np.array([1.0, 0.0]), cut)
        return (
            (changed, changed),
            (emptied, changed),
            (changed, emptied.reversed),
            (emptied, emptied.reversed),
        )

    def delta_at(self, epsilon: float) -> float:
        """The least delta at which the release is (epsilon, delta)-private, from above."""
        check_epsilon(epsilon)
        common, *others = self.directions()
        pure = -2 * math.log(float(self.ratio)) * (1 + 1e-15)  # of two counts that both stay non-empty
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
        lambda threshold: StabilityCurve(ratio, threshold).delta_at(epsilon) <= delta, limit=_MOST_SEARCHED
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
