"""Numbers as levels: a position in an interval rounded at random to one of k + 1 equally spaced points.

The mean of the rounded level is the position, so that sums of levels are unbiased estimates of sums of numbers. If the
number of levels is a multiple of the number of steps of an integer interval, nothing is rounded.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval, check_positions
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each, single_message_pmf
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.sum.noise_tails import exact_radius
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.randomness import SYSTEM, RandomSource, round_randomly, sum_rounded_randomly

Floats = NDArray[np.float64]

MAX_LEVELS = 1 << 39  # positions are multiplied by the number of levels; rounding is exact up to this factor
_MAX_SUM_BITS = 62
MAX_LISTED = 512
_CHUNK = 1 << 20
_CHUNK_IN_CACHE = 1 << 15
_SLOPES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


def levels_for(domain: Interval, *, min_levels: float, max_levels: float) -> int:
    """The number of steps of an integer interval if these are at most ``max_levels``, else ``min_levels``."""
    steps = domain.steps
    if steps is not None and steps <= max(max_levels, min_levels):
        return steps
    return max(1, math.ceil(min_levels))


def check_levels(levels: int, *, users: int = 1) -> int:
    """Reject a number of levels for which rounding or the sum over all users would overflow."""
    if not 1 <= levels <= MAX_LEVELS or (users * levels).bit_length() > _MAX_SUM_BITS:
        raise ParameterError(
            f"{levels:,} levels with {users:,} users are not supported: use 1 to {MAX_LEVELS:,} levels, such that "
            f"users times levels is below 2^{_MAX_SUM_BITS}.",
            levels=levels,
            users=users,
        )
    return levels


def _on_levels(domain: Interval, levels: int) -> bool:
    """Whether every number of the interval is a level."""
    return domain.steps is not None and levels % domain.steps == 0


def _scaled(values: NDArray[Any], levels: int, domain: Interval) -> Floats:
    """Positions in units of a level; exact integers if every number is a level."""
    scaled: Floats = check_positions(values) * levels
    return np.rint(scaled) if _on_levels(domain, levels) else scaled


def to_levels(values: NDArray[Any], levels: int, domain: Interval, source: RandomSource) -> NDArray[np.int64]:
    """Each position rounded at random to a level 0 .. levels, with the position as its mean."""
    return round_randomly(_scaled(values, levels, domain), source)


def sum_of_levels(values: NDArray[Any], levels: int, domain: Interval, source: RandomSource) -> int:
    """A draw with the distribution of the sum of ``to_levels``."""
    parts = (values[start : start + _CHUNK_IN_CACHE] for start in range(0, len(values), _CHUNK_IN_CACHE))
    return sum(sum_rounded_randomly(_scaled(part, levels, domain), source) for part in parts)


def level_pmf(value: float, levels: int, domain: Interval) -> dict[int, Fraction]:
    """The distribution of the level of one position."""
    scaled = Fraction(float(_scaled(np.array([value]), levels, domain)[0]))
    lower = math.floor(scaled)
    pmf = {lower: 1 - (scaled - lower), lower + 1: scaled - lower}
    return {level: share for level, share in pmf.items() if share}


def rounding_variance(values: Floats, levels: int, domain: Interval) -> float:
    """The variance that rounding adds to the sum of these positions."""
    scaled = _scaled(values, levels, domain)
    fractions = scaled - np.floor(scaled)
    return float(np.sum(fractions * (1 - fractions))) / levels**2


def worst_rounding_variance(users: int, levels: int, domain: Interval) -> float:
    """The largest variance that rounding can add: all users half-way between two levels."""
    return 0.0 if _on_levels(domain, levels) else users / 4 / levels**2


@dataclass(frozen=True, eq=False)
class AffineReports:
    """One number per user whose mean is ``start + slope * level``, with a given variance at each level."""

    start: float
    slope: float
    variances: Floats
    """Variances at the levels 0, 1, ..., k."""
    largest_term: float
    """Bound on the distance of a number from its mean; or on the ratio of its third absolute moment to its variance."""
    domain: Interval
    heaviest_tail: float | None = None
    """Bernstein's constant of the numbers, if they are unbounded."""

    @property
    def _per_position(self) -> float:
        """Increase of the expected number from the lower to the upper end of the interval."""
        return self.slope * (len(self.variances) - 1)

    def variance(self, values: Floats) -> float:
        """The variance of the estimated sum of these positions: of the numbers at their levels, and of the levels."""
        levels = len(self.variances) - 1
        scaled = _scaled(values, levels, self.domain)
        lower = np.minimum(np.floor(scaled), levels - 1).astype(np.int64)
        part = scaled - lower
        of_numbers = (1 - part) * self.variances[lower] + part * self.variances[lower + 1]
        of_levels = self.slope**2 * part * (1 - part)
        return float(np.sum(of_numbers + of_levels)) / self._per_position**2

    def worst_variance(self) -> float:
        """The largest variance of one position; between two levels it is a parabola that opens downward."""
        levels = len(self.variances) - 1
        steps = self.domain.steps
        if steps is not None and _on_levels(self.domain, levels):
            return float(self.variances[:: levels // steps].max()) / self._per_position**2
        below, above, spread = self.variances[:-1], self.variances[1:], self.slope**2
        part = np.clip((above - below + spread) / (2 * spread), 0.0, 1.0)
        variances = (1 - part) * below + part * above + spread * part * (1 - part)
        return float(variances.max()) / self._per_position**2

    def analysis(self, users: int) -> LinearAnalysis:
        """Estimates the sum of the positions of ``users`` users from the sum of their numbers."""
        scale = self._per_position
        tail = None if self.heaviest_tail is None else self.heaviest_tail / scale
        error = IndependentTerms(users * self.worst_variance(), 0.0, self.largest_term / scale, tail)
        return LinearAnalysis(offset=users * self.start, slope=scale, error=error, largest=users)


def sum_of_messages(form: MessageFormat, messages: Messages) -> Tally:
    """The sum of all messages."""
    total = 0
    for start in range(0, len(messages), _CHUNK):
        total += int(form.check(messages.values[start : start + _CHUNK]).sum(dtype=np.int64))
    return Tally(np.array([total], dtype=np.int64), messages.users, messages.secure)


def noise_table(decay: float, omitted_mass: float) -> dict[int, float]:
    """The distribution Pr[x] proportional to e^(-decay |x|), except for tails of ``omitted_mass``."""
    reach = math.ceil(-math.log(omitted_mass / 2) / decay)
    if reach > 1_000_000:
        raise ParameterError("The noise has too many values to list; use fewer levels or a larger epsilon.")
    scale = math.tanh(decay / 2)
    return {x: scale * math.exp(-decay * abs(x)) for x in range(-reach, reach + 1)}


@dataclass(frozen=True)
class RoundedNoise:
    """The error of a sum of levels: noise that decays as e^(-decay |x|) per level, and rounding.

    The noise is the difference of two negative binomial numbers with the given shape; discrete Laplace for shape 1.
    """

    decay: float
    levels: int
    rounded_users: int
    """Number of users whose numbers are rounded; 0 if all numbers are levels."""
    shape: float = 1.0

    def noise_variance(self) -> float:
        """Variance of the noise alone, in positions: 2 a / (1 - a)^2 with a = e^-decay, times the shape."""
        return self.shape / (2 * math.sinh(self.decay / 2) ** 2) / self.levels**2

    def variance(self, truth: Floats) -> Floats:
        """The worst case: the noise, and all users half-way between two levels."""
        return np.full(np.shape(truth), self.noise_variance() + self.rounded_users / 4 / self.levels**2)

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """Independent of the true sum: the noise does not depend on it, and the rounding is bounded."""
        radius = self.radius(risk, 0.0)
        return estimate - radius, estimate + radius

    def radius(self, risk: float, largest_truth: float) -> float:  # noqa: ARG002
        """The least of several Chernoff bounds and of a bound from the exact tail of the noise.

        Rounding multiplies the expectation of e^(s error) by at most e^(s^2 / 8) per user (Hoeffding). For discrete
        Laplace noise N, Pr[N >= x] <= a^x / (1 + a) for every real x, so the tail may be averaged over the rounding.
        """
        exponents = []
        for part in _SLOPES:
            slope = part * self.decay
            moments = -math.log1p(-((math.sinh(slope / 2) / math.sinh(self.decay / 2)) ** 2))
            exponents.append((slope, math.log(2 / risk) + self.shape * moments))
        if self.shape == 1:
            exponents.append((self.decay, math.log(2 / (1 + math.exp(-self.decay)) / risk)))
        radius = min((needed + slope**2 * self.rounded_users / 8) / slope for slope, needed in exponents)
        if self.shape != 1:
            radius = min(radius, exact_radius(self.decay, self.shape, self.rounded_users, risk))
        return radius / self.levels


class SummedAnswers(SingleMessageProtocol, SumProtocol):
    """Users send one answer each, a level whose mean is an affine function of the user's number."""

    @property
    @abstractmethod
    def reports(self) -> AffineReports:
        """The mean and the variance of an answer at each level."""

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message adds its number."""
        return 0.0, float(self.message_format.codes - 1)

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the sum of the answers."""
        return self.reports.analysis(users)

    def variance(self, values: Floats) -> float:
        """The variance of the answers to these numbers."""
        return self.reports.variance(values)


class CentralLevels(SingleMessageProtocol, SumProtocol):
    """Users send their level; a trusted party releases the sum with noise."""

    levels: int

    @property
    @abstractmethod
    def decay(self) -> float:
        """The noise x has a probability proportional to e^(-decay |x|)."""

    @property
    def message_format(self) -> MessageFormat:
        """A level."""
        return MessageFormat((self.levels + 1,))

    def report_pmf(self, value: float) -> Pmf:
        """One of the two levels next to the number."""
        pmf = level_pmf(value, self.levels, self.domain)
        levels = range(min(self.levels, MAX_LISTED) + 1)
        return single_message_pmf([pmf.get(level, Fraction(0)) for level in levels], max_codes=MAX_LISTED)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The rounded numbers; the trusted party adds the noise."""
        owned = to_levels(values, self.levels, self.domain, source)
        return one_message_each(owned.astype(self.message_format.dtype), source)

    def tally(self, messages: Messages) -> Tally:
        """The sum of the levels."""
        return sum_of_messages(self.message_format, messages)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one sum."""
        if len(tally.counts) != 1:
            raise ParameterError(f"A released sum is one number, not {len(tally.counts)}.")

    def release_pmf(self, tally: Tally) -> Pmf:
        """The sum plus noise, except for tails of 1e-14."""
        total = int(tally.counts[0])
        return {(total + x,): share for x, share in noise_table(self.decay, 1e-14).items()}

    def analysis(self, users: int) -> LinearAnalysis:
        """The released sum, in units of a level."""
        rounded = users if worst_rounding_variance(users, self.levels, self.domain) else 0
        error = RoundedNoise(self.decay, self.levels, rounded)
        return LinearAnalysis(offset=0.0, slope=self.levels, error=error, largest=users)

    def variance(self, values: Floats) -> float:
        """The variance of the noise, and of the rounding of these numbers."""
        noise = RoundedNoise(self.decay, self.levels, 0).noise_variance()
        return noise + rounding_variance(values, self.levels, self.domain)
