"""Privacy accounting of ``fake-users``: flipped one-hot rows among flipped rows of zeros.

Each user sends a one-hot row and some rows of zeros, with every bit flipped with probability q (Cheu and Zhilyaev
2022). The real rows of the other users can be revealed: for two categories only the 1 bits in the fake rows and in the
target's row matter. So the count of a category is W + Ber(1 - q) with the target's bit and W + Ber(q) without it, where
W ~ Bin(rows, q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shuffledp.checks import check_epsilon, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import shift_pair
from shuffledp.privacy.calibration import least_rate
from shuffledp.privacy.cheu import LARGEST_FLIP
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.randomness import Dyadic

_CUTS = (1e-30, 1e-305)


@dataclass(frozen=True)
class FakeRows:
    """``rows`` fake rows of all honest users and one real row; bits are flipped with probability ``flip``."""

    rows: int
    flip: Dyadic

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ParameterError(f"At least one fake row is needed, not {self.rows}.", rows=self.rows)
        if not 0 < self.flip.numerator <= 1 << (self.flip.bits - 1):
            raise ParameterError(
                f"The flip probability must be above 0 and at most 1/2, not {self.flip}.", flip=self.flip
            )

    @property
    def local_epsilon(self) -> float:
        """The epsilon of the two bits of the real row that change, without any fake rows."""
        return 2 * log_ratio_above(self.flip.complement.numerator, self.flip.numerator)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the histogram is (epsilon, delta)-private."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon * (1 + 1e-12):
            return 0.0
        noise = Binomial(self.rows, self.flip)
        for cut in _CUTS:
            delta = _sorted_pair(self, cut).delta_with_reversed_twin(epsilon)
            if delta > 1e6 * cut:
                break
        rounding = 2 * float(noise.tail_error(round(noise.mean + 40 * noise.deviation)))
        return as_delta(delta * (1 + rounding))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """One direction as two independent pairs; the other direction is its mirror image."""
        pair = _row_pair(self, cut)
        return ((pair, pair.reversed),)


def _row_pair(curve: FakeRows, cut: float) -> DiscretePair:
    """The count of one category with the target's bit set, and without.

    ``shift_pair`` bounds W + 1 and W; here both are mixtures of these. Every divergence of the mixtures is a sum of
    convex, homogeneous functions of the two masses, so the mixtures of the bounding pair are a bounding pair.
    """
    shifted = shift_pair(Binomial(curve.rows, curve.flip), cut=cut)
    flip, no_flip = float(curve.flip), float(curve.flip.complement)
    return DiscretePair(no_flip * shifted.p + flip * shifted.q, flip * shifted.p + no_flip * shifted.q, shifted.cut)


@lru_cache(maxsize=4)
def _sorted_pair(curve: FakeRows, cut: float) -> DiscretePair:
    return _row_pair(curve, cut).sorted_by_loss()


def least_row_flip(rows: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which ``rows`` fake rows make the histogram (epsilon, delta)-private."""
    check_target(epsilon, delta)
    variance = 2 * math.log(1.25 / delta) / epsilon**2 + math.log(1 / delta)
    solution = least_rate(
        lambda flip: FakeRows(rows, flip), epsilon, delta, guess=variance / rows, highest=LARGEST_FLIP
    )
    if solution is None:
        raise InfeasibleError(
            f"{rows:,} fake rows are too few for epsilon = {epsilon:g} and delta = {delta:g}: bits would have to be "
            f"flipped with probability above {LARGEST_FLIP}. Send more fake rows or allow a larger epsilon.",
            rows=rows,
            epsilon=epsilon,
            delta=delta,
        )
    return solution


def paper_row_flip(rows: int, epsilon: float, delta: float) -> Dyadic:
    """The least q with rows q (1 - q) >= (33/5) ((e^epsilon + 1)/(e^epsilon - 1))^2 ln(4/delta).

    Cheu and Zhilyaev (2022). It exists if the right-hand side is at most rows / 4.
    """
    check_target(epsilon, delta)
    needed = 33 / 5 / math.tanh(epsilon / 2) ** 2 * math.log(4 / delta)
    if 4 * needed > rows:
        raise ConditionError(
            "The constants of Cheu and Zhilyaev 2022 need "
            f"(132/5) ((e^epsilon + 1)/(e^epsilon - 1))^2 ln(4/delta) = {math.ceil(4 * needed):,} "
            f"fake rows for epsilon = {epsilon:g} and delta = {delta:g}; given {rows:,}. "
            "The tight calibration needs far fewer.",
            rows=rows,
            needed=math.ceil(4 * needed),
        )
    share = needed / rows
    return Dyadic.at_least(min(0.5, 2 * share / (1 + math.sqrt(1 - 4 * share)) * (1 + 1e-15)))
