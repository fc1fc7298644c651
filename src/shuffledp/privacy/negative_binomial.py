"""The negative binomial distribution: infinitely divisible, so that every user can add a share of it."""

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
_MAX_REACH = 1e6
_ROUNDED_UP = 1 + 1e-9  # larger than the rounding error of masses
_LEAST_SHAPE = Fraction(1, 1 << 200)
_MAX_WINDOW = 1 << 23


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
        if self.mean + 12 * math.sqrt(self.variance) > _MAX_REACH:
            raise InfeasibleError(
                f"Noise with mean {self.mean:.3g} and deviation {math.sqrt(self.variance):.3g} is too large to "
                f"compute: the mean plus twelve deviations must be below {_MAX_REACH:g}. Use a larger epsilon.",
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
        """The first k, the masses from there on, and an upper bound, at most ``cut``, on the mass outside.

        The logarithms of the masses are cumulative sums of ln(Pr[k + 1] / Pr[k]) in extended precision.
        """
        reach = int(self.mean + 12 * math.sqrt(self.variance)) + 64
        while True:
            masses = self._masses(reach)
            last_quotient = float(self.ratio) * max(1.0, (reach + float(self.shape)) / (reach + 1))
            beyond = float(masses[-1]) * last_quotient / (1 - last_quotient) if last_quotient < 1 else math.inf
            if beyond <= cut / 4:
                break
            reach *= 2
            if reach > _MAX_WINDOW:
                raise InfeasibleError(
                    f"Noise with mean {self.mean:.3g} has too long a tail to compute; use a larger epsilon.",
                    shape=self.shape,
                    ratio=self.ratio,
                )
        beyond += check_masses(masses, left_out=beyond)
        mode = int(np.argmax(masses))
        # below the mode the masses increase: the sum of all up to an index is at most their number times the last one
        rising = np.arange(1, mode + 1) * masses[:mode]
        first = int(np.searchsorted(rising, cut / 4))
        left_out = beyond + (float(rising[first - 1]) if first else 0.0)
        falling = np.cumsum(masses[mode:][::-1]) + beyond
        dropped = int(np.searchsorted(falling, cut / 4))
        if dropped:
            left_out += float(falling[dropped - 1])
        return first, masses[first : len(masses) - dropped], left_out * _ROUNDED_UP

    def _masses(self, reach: int) -> Floats:
        shape, rest = float(self.shape), float(self.ratio.complement)
        k = np.arange(reach, dtype=np.float64)
        logs = np.empty(reach + 1)
        logs[0] = shape * _log_of_complement(self.ratio)
        if float(self.ratio) < 0.5:
            logs[1:] = np.log(float(self.ratio) * (k + shape) / (k + 1))
        else:  # Pr[k + 1] / Pr[k] - 1, which is small where masses are large
            centre = float(self.ratio.fraction * self.shape - 1)
            with np.errstate(divide="ignore"):  # for the first entry, which is replaced below
                logs[1:] = np.log1p((centre - rest * k) / (k + 1))
            logs[1] = math.log(float(self.ratio) * shape)  # log1p is not accurate near -1
        return np.exp(np.cumsum(logs, dtype=np.longdouble).astype(np.float64))


@dataclass(frozen=True)
class NegativeBinomialDifference:
    """The distribution of G1 - G2 for two independent draws from the same negative binomial distribution."""

    term: NegativeBinomial

    @property
    def mean(self) -> float:
        """The expected value: 0, since the distribution is symmetric."""
        return 0.0

    @property
    def variance(self) -> float:
        """The variance."""
        return 2 * self.term.variance

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[G1 - G2 >= k]."""
        if k <= 0:  # one minus a lower bound on Pr[G1 - G2 < k]
            return 1.0 - self._tail_in_tables(1 - k) / _ROUNDED_UP
        return as_delta(self._tail_in_tables(k) * _ROUNDED_UP + self._tables[2])

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[G1 - G2 <= k]."""
        return self.upper_tail(-k)

    def _tail_in_tables(self, k: int) -> float:
        """Pr[G1 - G2 >= k] for k > 0, of the mass in the tables."""
        masses, tails, _ = self._tables
        return float(masses[: max(0, len(tails) - k)] @ tails[k:])

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, float]:
        _, masses, left_out = self.term.window(_TAIL_CUT)  # the offset of the window cancels in the difference
        return masses, np.cumsum(masses[::-1])[::-1], 2 * left_out


@dataclass(frozen=True)
class NegativeBinomialCurve:
    """The privacy curve of a count or sum with negative binomial noise (Ghazi et al. 2020), for a given sensitivity."""

    noise: NegativeBinomial
    sensitivity: int = 1

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the release is (epsilon, delta)-private."""
        shifts = [self.sensitivity] if self.noise.shape >= 1 else range(1, self.sensitivity + 1)
        worst = 0.0
        for shift in shifts:  # with shape >= 1 the noise is log-concave, and the largest shift is the worst
            pair = self.pair(shift, _USUAL_CUT)
            worst = max(worst, pair.delta(epsilon), pair.reversed.delta(epsilon))
        return worst

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per direction of the replacement, the pair of distributions of the release, for the largest shift."""
        pair = self.pair(self.sensitivity, cut)
        return (pair,), (pair.reversed,)

    def pair(self, shift: int, cut: float) -> DiscretePair:
        """The noise, and the noise shifted up."""
        _, masses, left_out = self.noise.window(cut)
        zeros = np.zeros(shift)
        return DiscretePair(np.concatenate((masses, zeros)), np.concatenate((zeros, masses)), left_out)


def _log_of_complement(ratio: Dyadic) -> float:
    """ln(1 - ratio), accurate for small ratios too."""
    return math.log1p(-float(ratio)) if 2 * ratio.fraction < 1 else math.log(float(ratio.complement))
