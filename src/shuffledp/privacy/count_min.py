"""Privacy accounting of ``count-min``: the rows of a noisy sketch of hashed counts.

In each row a user increments one cell, chosen by a public hash of the value, and every cell once more with probability
gamma (Ghazi, Golowich, Kumar, Pagh and Velingker 2019). Replacing a user changes at most two cells of each row, in
opposite directions, and each cell contains the noise Bin(users, gamma). If a hash maps both values to the same cell,
that row does not change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from shuffledp.checks import LARGEST_EPSILON, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialHistogram, shift_pair
from shuffledp.privacy.calibration import least_rate
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, MAX_RELEASES
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.privacy.mirrored_composition import MirroredComposition
from shuffledp.randomness import Dyadic
from shuffledp.search import bisect_ratio

_CUT = 1e-17


@dataclass(frozen=True)
class SketchRows:
    """``rows`` rows of counts; each of ``users`` honest users increments every cell with probability ``gamma``."""

    users: int
    gamma: Dyadic
    rows: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_RELEASES:
            raise ParameterError(
                f"The number of rows must lie between 1 and {MAX_RELEASES:,}, not {self.rows:,}.", rows=self.rows
            )

    @cached_property
    def _composed(self) -> PrivacyCurve:
        # adding tokens with probability gamma and omitting them give mirrored distributions
        noise = Binomial(self.users, self.gamma)
        return (
            BinomialHistogram(noise) if self.rows == 1 else MirroredComposition(shift_pair(noise, cut=_CUT), self.rows)
        )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; with several rows, at least the resolution of the composition."""
        return self._composed.delta_at(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """One direction as two independent pairs per row; the other direction is its mirror image."""
        (pairs,) = BinomialHistogram(Binomial(self.users, self.gamma)).directions(cut)
        return (pairs * self.rows,)


def least_gamma(users: int, rows: int, epsilon: float, delta: float) -> Dyadic:
    """The least probability of a noise message per user and cell for (epsilon, delta)-privacy."""
    check_target(epsilon, delta)
    # the rounding error of the composition grows with the number of rows
    certified = CERTIFIED_DOWN_TO * max(2.0, rows / 10)
    if rows > 1 and delta < certified:
        raise InfeasibleError(
            f"With {rows} rows the accounting is certified for delta >= {certified:g}; got {delta:g}.",
            delta=delta,
            rows=rows,
        )
    variance = 2 * rows * _gaussian_variance(epsilon, delta) + math.log(1 / delta)
    solution = least_rate(
        lambda gamma: SketchRows(users, gamma, rows),
        epsilon,
        delta,
        guess=min(0.4, variance / users),
        highest=0.5,
    )
    if solution is None:
        raise InfeasibleError(
            f"{users:,} users are too few for {rows} rows at epsilon = {epsilon:g} and delta = {delta:g}; "
            f"about {math.ceil(4 * variance):,} are needed. Use fewer rows or allow a larger epsilon.",
            users=users,
            epsilon=epsilon,
            delta=delta,
        )
    return solution


def _gaussian_variance(epsilon: float, delta: float) -> float:
    """Approximate variance of Gaussian noise for sensitivity 1, as the starting point of a search."""
    from statistics import NormalDist

    normal = NormalDist()

    def is_private(deviation: float) -> bool:
        tail = normal.cdf(1 / (2 * deviation) - epsilon * deviation)
        beyond = math.exp(min(epsilon, LARGEST_EPSILON)) * normal.cdf(-1 / (2 * deviation) - epsilon * deviation)
        return tail - beyond <= delta

    return bisect_ratio(is_private, 1e-3, 1e12, ratio=1.01)[1] ** 2


def paper_gamma(users: int, rows: int, epsilon: float, delta: float) -> Dyadic:
    """gamma n = 90 tau^2 ln(2 tau/delta) / epsilon^2 (Lemma 4.10 of Ghazi and others)."""
    check_target(epsilon, delta)
    mean = 90 * rows**2 * math.log(2 * rows / delta) / epsilon**2
    if mean > users / 2:
        raise ConditionError(
            f"The constant of Lemma 4.10 requires gamma above 1/2, where the variance decreases: with {rows} rows, "
            f"epsilon = {epsilon:g} and delta = {delta:g} it takes {math.ceil(2 * mean):,} users; given {users:,}. "
            "The tight calibration needs far fewer.",
            users=users,
            needed=math.ceil(2 * mean),
        )
    return Dyadic.at_least(mean / users)
