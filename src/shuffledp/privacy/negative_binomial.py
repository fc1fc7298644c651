"""The negative binomial distribution: sums of geometric numbers, of which every user can add a share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import check_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta, check_masses
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]

_USUAL_CUT = 1e-30
_TAIL_CUT = 1e-18
_MOST_REACH = 1e6
_UP = 1 + 1e-9  # for the rounding of masses
_LEAST_SHAPE = Fraction(1, 1 << 200)
_MOST_WINDOW = 1 << 23


@dataclass(frozen=True)
class NegativeBinomial:
    """NB(shape, ratio): Pr[k] = C(k + shape - 1, k) (1 - ratio)^shape ratio^k on k = 0, 1, 2, ..."""

    shape: Fraction
    ratio: Dyadic

    def __post_init__(self) -> None:
        if not self.shape > 0:
            raise ParameterError(f"The shape must be positive, not {self.shape}.", shape=self.shape)
        if not _LEAST_SHAPE <= self.shape <= 1 / _LEAST_SHAPE:
            raise ParameterError("The shape must lie between 2^-200 and 2^200, where it is a normal double.")
        check_ratio(self.ratio)
        if self.mean + 12 * math.sqrt(self.variance) > _MOST_REACH:
            raise InfeasibleError(
                f"Noise of mean {self.mean:.3g} and deviation {math.sqrt(self.variance):.3g} is too much to compute "
                f"with: mean and twelve deviations must stay below {_MOST_REACH:g}. Use a larger epsilon.",
                shape=self.shape,
                ratio=self.ratio,
            )

    @cached_property
    def mean(self) -> float:
        """The expected value."""
        return float(self.shape * self.ratio.fraction / self.ratio.complement.fraction)

    @cached_property
    def variance(self) -> float:
        """The variance."""
        return self.mean / float(self.ratio.complement)

    def window(self, cut: float) -> tuple[int, Floats, float]:
        """The first k, the masses from there on, and an upper bound (at most ``cut``) on the mass elsewhere.

        Logarithms of the quotients Pr[k + 1] / Pr[k] are summed up in extended precision from k = 0.
        """
        reach = int(self.mean + 12 * math.sqrt(self.variance)) + 64
        while True:
            masses = self._masses(reach)
            last_quotient = float(self.ratio) * max(1.0, (reach + float(self.shape)) / (reach + 1))
            beyond = float(masses[-1]) * last_quotient / (1 - last_quotient) if last_quotient < 1 else math.inf
            if beyond <= cut / 4:
                break
            reach *= 2
            if reach > _MOST_WINDOW:
                raise InfeasibleError(
                    f"Noise of mean {self.mean:.3g} reaches too far to compute with; use a larger epsilon.",
                    shape=self.shape,
                    ratio=self.ratio,
                )
        beyond += check_masses(masses, left_out=beyond)
        mode = int(np.argmax(masses))
        # left of the mode masses rise, so that all before an index are at most its own times their number
        rising = np.arange(1, mode + 1) * masses[:mode]
        first = int(np.searchsorted(rising, cut / 4))
        left_out = beyond + (float(rising[first - 1]) if first else 0.0)
        falling = np.cumsum(masses[mode:][::-1]) + beyond
        dropped = int(np.searchsorted(falling, cut / 4))
        if dropped:
            left_out += float(falling[dropped - 1])
        return first, masses[first : len(masses) - dropped], left_out * _UP

    def _masses(self, reach: int) -> Floats:
        shape, rest = float(self.shape), float(self.ratio.complement)
        k = np.arange(reach, dtype=np.float64)
        logs = np.empty(reach + 1)
        logs[0] = shape * _log_of_complement(self.ratio)
        if float(self.ratio) < 0.5:
            logs[1:] = np.log(float(self.ratio) * (k + shape) / (k + 1))
        else:  # Pr[k + 1] / Pr[k] - 1, which is small where masses are large
            centre = float(self.ratio.fraction * self.shape - 1)
            with np.errstate(divide="ignore"):  # of the first, which is replaced
                logs[1:] = np.log1p((centre - rest * k) / (k + 1))
            logs[1] = math.log(float(self.ratio) * shape)  # near -1 it would not be accurate
        return np.exp(np.cumsum(logs, dtype=np.longdouble).astype(np.float64))


@dataclass(frozen=True)
class NegativeBinomialDifference:
    """The distribution of G1 - G2, two independent numbers of the same negative binomial distribution."""

    each: NegativeBinomial

    @property
    def mean(self) -> float:
        """The distribution is symmetric."""
        return 0.0

    @property
    def variance(self) -> float:
        """Of both together."""
        return 2 * self.each.variance

    def upper_tail(self, k: int) -> float:
        """Pr[G1 - G2 >= k], from above."""
        if k <= 0:  # all but what lies below, which is counted from below
            return 1.0 - self._counted(1 - k) / _UP
        return as_delta(self._counted(k) * _UP + self._tables[2])

    def lower_tail(self, k: int) -> float:
        """Pr[G1 - G2 <= k], from above."""
        return self.upper_tail(-k)

    def _counted(self, k: int) -> float:
        """Pr[G1 - G2 >= k] for k > 0 without what the tables leave out."""
        masses, tails, _ = self._tables
        return float(masses[: max(0, len(tails) - k)] @ tails[k:])

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, float]:
        _, masses, left_out = self.each.window(_TAIL_CUT)  # where it begins cancels in the difference
        return masses, np.cumsum(masses[::-1])[::-1], 2 * left_out


@dataclass(frozen=True)
class NegativeBinomialDistribution:
    """A count or sum with negative binomial noise on it (Ghazi et al. 2020), moved by up to ``sensitivity``."""

    noise: NegativeBinomial
    sensitivity: int = 1

    def delta_at(self, epsilon: float) -> float:
        """The least delta at which the release is (epsilon, delta)-private, from above."""
        moves = [self.sensitivity] if self.noise.shape >= 1 else range(1, self.sensitivity + 1)
        worst = 0.0
        for move in moves:  # with shape >= 1 the distribution is log-concave, and the largest move the worst
            pair = self.pair(move, _USUAL_CUT)
            worst = max(worst, pair.delta(epsilon), pair.reversed.delta(epsilon))
        return worst

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per direction of the replacement, the pair of distributions that is seen, for the largest move."""
        pair = self.pair(self.sensitivity, cut)
        return (pair,), (pair.reversed,)

    def pair(self, move: int, cut: float) -> DiscretePair:
        """The noise, and the noise moved up."""
        _, masses, left_out = self.noise.window(cut)
        nothing = np.zeros(move)
        return DiscretePair(np.concatenate((masses, nothing)), np.concatenate((nothing, masses)), left_out)


def _log_of_complement(ratio: Dyadic) -> float:
    """ln(1 - ratio), accurate for small ratios too."""
    return math.log1p(-float(ratio)) if 2 * ratio.fraction < 1 else math.log(float(ratio.complement))
