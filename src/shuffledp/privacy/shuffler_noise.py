"""Privacy accounting of an augmented shuffler, which may sample the messages of users and adds dummies.

Murakami, Sei and Eriguchi (2025). Users send their value, sealed; the analyzer sees how often each value occurs among
the messages that were kept and the dummies.

- ``TruncatedLaplace``: z dummies of a category with Pr[z = k] proportional to ratio^|k - shift|, k >= 0. Replacing a
  user changes two categories. The likelihood ratio of one (without the user over with the user) is 1/ratio for k =
  1..shift, ratio above, and infinite at 0.
- ``SampledGeometric``: every report is kept with probability ``keep``, and the dummies are geometric. The likelihood
  ratio of a category with and without the user is 1 - keep at 0 and 1 - keep + keep/ratio elsewhere, so that the two
  outcomes "none" and "some" contain all information. Other users' reports only add independent noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_epsilon
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, check_ratio, decay_of, least_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.randomness import Dyadic
from shuffledp.randomness.dyadic import check_uncertain
from shuffledp.search import least_integer

Floats = NDArray[np.float64]

MAX_SHIFT = 1 << 24
"""Largest mean number of dummies per category."""
_DIRECT = 1 << 11  # masses that are convolved directly; longer lists by Fourier transforms
_ABSOLUTE = 1e-14  # rounding error of a sum of convolved masses, with a margin
_ROUNDING = 1e-12  # relative rounding error of a closed form, with a margin
_NEGLIGIBLE_BITS = 80  # an honest draw of dummies is above its bound with a probability of at most 2^-80


@dataclass(frozen=True)
class TruncatedLaplace:
    """Pr[z = k] proportional to ratio^|k - shift| for k >= 0, up to 2 shift if ``bounded``: a number of dummies."""

    ratio: Dyadic
    shift: int
    bounded: bool = False

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if not 1 <= self.shift <= MAX_SHIFT:
            raise ParameterError(
                f"The mean number of dummies per category must lie between 1 and {MAX_SHIFT:,}, not {self.shift}.",
                shift=self.shift,
            )

    @cached_property
    def _weights(self) -> Floats:
        """ratio^k for k = 0 .. shift: the weights of shift - k, and of shift + k."""
        weights: Floats = np.exp(-decay_of(self.ratio) * np.arange(self.shift + 1))
        return weights

    @cached_property
    def _total(self) -> float:
        """The sum of all weights; pairwise summation has a relative error below 1e-14."""
        if self.bounded:
            return 2 * float(self._weights.sum()) - 1
        return float(self._weights.sum()) + float(self.ratio) / float(self.ratio.complement)

    @cached_property
    def _lower_sums(self) -> Floats:
        """The sum of the weights of 0 .. k, for k up to the shift."""
        sums: Floats = np.cumsum(self._weights[::-1])
        return sums

    @cached_property
    def least_mass(self) -> float:
        """Pr[z = 0]."""
        return math.exp(-decay_of(self.ratio) * self.shift) / self._total

    @cached_property
    def masses_below(self) -> float:
        """Pr[1 <= z <= shift]."""
        return float(self._weights[:-1].sum()) / self._total

    @cached_property
    def mass_above(self) -> float:
        """Pr[z > shift]."""
        return (
            self.masses_below + self.least_mass - 1 / self._total
            if self.bounded
            else (float(self.ratio) / float(self.ratio.complement) / self._total)
        )

    @cached_property
    def mean(self) -> float:
        """The expected number."""
        if self.bounded:
            return float(self.shift)
        below = float(np.arange(self.shift + 1) @ self._weights)
        above = float(self.ratio) / float(self.ratio.complement) ** 2
        return self.shift + (above - below) / self._total

    @cached_property
    def variance(self) -> float:
        """The variance."""
        squares = float(np.square(np.arange(self.shift + 1, dtype=np.float64)) @ self._weights)
        if self.bounded:
            return 2 * squares / self._total
        ratio, rest = float(self.ratio), float(self.ratio.complement)
        return (squares + ratio * (1 + ratio) / rest**3) / self._total - (self.mean - self.shift) ** 2

    def upper_tail(self, k: int) -> float:
        """Pr[z >= k]."""
        if k <= 0:
            return 1.0
        if k <= self.shift:
            return 1.0 - self.lower_tail(k - 1)
        if self.bounded:
            return self.lower_tail(2 * self.shift - k)
        return math.exp(-decay_of(self.ratio) * (k - self.shift)) / float(self.ratio.complement) / self._total

    def lower_tail(self, k: int) -> float:
        """Pr[z <= k]."""
        if k < 0:
            return 0.0
        if k <= self.shift:
            return float(self._lower_sums[k]) / self._total
        return 1.0 - self.upper_tail(k + 1)

    def masses(self, last: int) -> Floats:
        """Pr[z = 0], ..., Pr[z = last]."""
        k = np.arange((min(last, 2 * self.shift) if self.bounded else last) + 1)
        masses: Floats = np.exp(-decay_of(self.ratio) * np.abs(k - self.shift)) / self._total
        return masses


@dataclass(frozen=True)
class SummedLaplace:
    """The sum of the numbers of dummies that several shufflers of a chain draw independently of each other."""

    noise: TruncatedLaplace
    draws: int

    @property
    def mean(self) -> float:
        """The expected number."""
        return self.draws * self.noise.mean

    @property
    def variance(self) -> float:
        """The variance."""
        return self.draws * self.noise.variance

    @cached_property
    def _last(self) -> int:
        """The largest listed number of one draw; larger ones have a probability below 1e-18."""
        if self.noise.bounded:
            return 2 * self.noise.shift
        return self.noise.shift + math.ceil(45 / decay_of(self.noise.ratio))

    @cached_property
    def _masses(self) -> Floats:
        from scipy.signal import fftconvolve  # slow to import, and not needed by devices

        one = self.noise.masses(self._last)
        masses = one
        for _ in range(self.draws - 1):
            masses = fftconvolve(masses, one) if len(one) > _DIRECT else np.convolve(masses, one)
        return np.maximum(masses, 0.0)

    @property
    def _slack(self) -> float:
        """Absolute rounding error of Fourier transforms; the error of a direct convolution is a relative one."""
        return _ABSOLUTE if self._last >= _DIRECT else 0.0

    @cached_property
    def _upper(self) -> Floats:
        """Pr[sum >= k], rounded up, without numbers that are not listed."""
        sums: Floats = np.cumsum(self._masses[::-1])[::-1] * (1 + _ROUNDING) + self._slack
        return sums

    @cached_property
    def _lower(self) -> Floats:
        """Pr[sum <= k], rounded up."""
        sums: Floats = np.cumsum(self._masses) * (1 + _ROUNDING) + self._slack
        return sums

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[sum >= k]."""
        if k <= 0:
            return 1.0
        listed = float(self._upper[k]) if k < len(self._upper) else 0.0
        if self.noise.bounded:
            return as_delta(listed)
        # one of the draws is beyond the list, or above its share of k
        beyond = self.draws * self.noise.upper_tail(max(self._last + 1, -(-k // self.draws)))
        return as_delta(listed + beyond)

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[sum <= k]."""
        if k < 0:
            return 0.0
        return as_delta(float(self._lower[k])) if k < len(self._lower) else 1.0


@dataclass(frozen=True)
class ShufflerLaplaceCurve:
    """Counts with truncated Laplace dummies: the exact joint divergence of both changed categories, or of one count.

    For a histogram (``coordinates`` = 2) each category has independent dummies. For a count (1) the dummies of both
    values have the fixed total 2 shift, so that the number of ones contains all information.
    """

    ratio: Dyadic
    shift: int
    coordinates: int = 2

    def __post_init__(self) -> None:
        if self.coordinates not in (1, 2):
            raise ParameterError(f"coordinates must be 1 or 2, not {self.coordinates}.", coordinates=self.coordinates)
        self.noise  # noqa: B018 - checks the parameters

    @cached_property
    def noise(self) -> TruncatedLaplace:
        """The number of dummies of a category, or of ones."""
        return TruncatedLaplace(self.ratio, self.shift, bounded=self.coordinates == 1)

    @cached_property
    def largest_loss(self) -> float:
        """The largest finite privacy loss, rounded up."""
        return DiscreteLaplaceCurve(self.ratio, coordinates=self.coordinates).pure_epsilon

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta: Pr[z = 0] from the largest loss on, and more below it."""
        check_epsilon(epsilon)
        noise = self.noise
        delta = noise.least_mass
        if epsilon < self.largest_loss:
            likely = noise.masses_below
            if self.coordinates == 2:
                likely *= noise.mass_above / float(self.ratio)
            delta -= likely * math.expm1(epsilon - self.largest_loss)
        return as_delta(delta * (1 + _ROUNDING))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One direction; the other is its mirror image. Outcomes of equal likelihood ratio are added up."""
        noise, ratio = self.noise, float(self.ratio)
        above = noise.mass_above
        if self.coordinates == 1:  # the count with the user, then without: 0, up to the shift, above, beyond the end
            first = np.array([0.0, above, noise.masses_below, noise.least_mass])
            pair = DiscretePair(first, first[::-1].copy(), ordered=True)
            return ((pair,),)
        first = np.array([above, noise.masses_below, noise.least_mass])
        pair = DiscretePair(first, np.array([above / ratio, noise.masses_below * ratio, 0.0]))
        return ((pair, pair.reversed),)


@dataclass(frozen=True)
class SampledGeometric:
    """Sampled counts with geometric dummies: a privacy curve of pure privacy, for both changed categories."""

    keep: Dyadic
    """The probability that a report is kept."""
    ratio: Dyadic
    """k dummies have a probability proportional to ratio^k."""

    def __post_init__(self) -> None:
        check_uncertain("keep", self.keep)
        check_ratio(self.ratio)

    @cached_property
    def pure_epsilon(self) -> float:
        """The epsilon that holds with delta = 0, rounded up."""
        dropped = self.keep.complement.fraction
        present = dropped + self.keep.fraction / self.ratio.fraction
        return (
            log_ratio_above(dropped.denominator, dropped.numerator)
            + log_ratio_above(present.numerator, present.denominator)
        ) * (1 + 4e-16)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; 0 from the pure epsilon on."""
        check_epsilon(epsilon)
        return 0.0 if epsilon >= self.pure_epsilon else self._pair.delta_with_reversed_twin(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:  # noqa: ARG002
        """One direction; the other is its mirror image."""
        return ((self._pair, self._pair.reversed),)

    @cached_property
    def _pair(self) -> DiscretePair:
        """The outcomes "none" and "some" of a category, with the user and without."""
        empty = self.ratio.complement.fraction
        with_user = empty * self.keep.complement.fraction
        return DiscretePair(
            np.array([float(with_user), float(1 - with_user)]), np.array([float(empty), float(1 - empty)])
        )


def most_geometric(ratio: Dyadic, draws: int) -> int:
    """A number that the sum of so many independent geometric numbers exceeds with a probability of at most 2^-80.

    Chernoff's bound: Pr[sum >= k] <= (1 - f)^-draws (1 + f (1 - ratio)/ratio)^-k for every f between 0 and 1. A
    ``TruncatedLaplace`` number exceeds its shift by j or more with a probability of at most ratio^j, as a geometric
    number is j or more, so that the bound also holds for what such numbers have above their shifts.
    """
    odds = float(ratio.complement) / float(ratio)
    shares = (*(2.0 ** -(half / 2) for half in range(1, 81)), *(1 - 2.0**-bits for bits in range(1, 41)))
    allowed = _NEGLIGIBLE_BITS * math.log(2)
    least = min((allowed - draws * math.log1p(-share)) / math.log1p(share * odds) for share in shares)
    return math.ceil(least * (1 + _ROUNDING))


def least_shift(epsilon: float, delta: float, *, coordinates: int = 2) -> tuple[Dyadic, int]:
    """The ratio of the dummies for epsilon, and the least shift at which delta holds."""
    ratio = least_ratio(epsilon, coordinates=coordinates)

    def holds(shift: int) -> bool:
        return ShufflerLaplaceCurve(ratio, shift, coordinates).delta_at(epsilon) <= delta

    needed = math.log(1 / delta) / decay_of(ratio)
    shift = least_integer(holds, limit=MAX_SHIFT) if needed < MAX_SHIFT / 2 else None
    if shift is None:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} need about {needed:.3g} dummies per category; at most "
            f"{MAX_SHIFT // 2:,} are possible. Use a larger epsilon or delta.",
            epsilon=epsilon,
            delta=delta,
        )
    return ratio, shift


def least_sampling(epsilon: float) -> tuple[Dyadic, Dyadic]:
    """The largest probability of keeping a report, and the least ratio of geometric dummies, that are epsilon-private.

    They are 1 - e^(-epsilon/2) and 1 / (1 + e^(epsilon/2)), rounded towards more privacy.
    """
    half = epsilon / 2
    keep = Dyadic.at_least(max(math.exp(-half), 2.0**-64)).complement
    ratio = Dyadic.at_least(1 / (1 + math.exp(min(half, 40.0))))
    while ratio.numerator < 1 << ratio.bits:
        if not keep.is_certain and SampledGeometric(keep, ratio).pure_epsilon <= epsilon:
            return keep, ratio
        keep = Dyadic.at_least(math.nextafter(float(keep.complement), 2.0)).complement
        ratio = Dyadic.at_least(math.nextafter(float(ratio), 2.0))
    raise InfeasibleError(f"epsilon = {epsilon:g} is too small for sampling reports.", epsilon=epsilon)
