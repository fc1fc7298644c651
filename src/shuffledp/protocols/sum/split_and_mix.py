"""Sums by splitting and mixing: Balle, Bell, Gascon and Nissim (2020), after Ishai, Kushilevitz, Ostrovsky and Sahai.

A number is rounded at random to a level 0 .. k. Each user adds a share of discrete Laplace noise (the difference of two
Polya numbers, so that the shares of all honest users add up to the noise), and splits the result into m messages that
add up to it modulo g, all but one of them uniform. Shuffled with those of other users, they reveal hardly more than
their sum, which has the error of the central model.

Accounting: ``shuffledp.privacy.split_and_mix``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, decay_of
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.split_and_mix import SplitAndMixCurve, split_and_mix_noise
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.sum.levels import (
    RoundedNoise,
    check_levels,
    level_pmf,
    levels_for,
    rounding_variance,
    sum_of_levels,
    to_levels,
    worst_rounding_variance,
)
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, integers, scattered_negative_binomial
from shuffledp.randomness.logarithmic import LEAST_COMPLEMENT_BITS

_MAX_MODULUS_BITS = 62
_DIGIT_BITS = 24  # sums of digits stay below 2^63 for up to 2^39 messages
_LARGEST_DIGIT = (1 << _DIGIT_BITS) - 1
_CHUNK_USERS = 1 << 20
_OMITTED_MASS = 1e-9
_MAX_LISTED = 200_000


@dataclass(frozen=True)
class SplitAndMixSum(SumProtocol):
    """A sum with nearly the central error, from a few messages per user (Balle and others 2020); shuffled.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded; max(1, epsilon) sqrt(users) unless given.
    """

    name: ClassVar[str] = "split-and-mix"
    modular_tally: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)
    fragile: ClassVar[bool] = True

    levels: int
    """Numbers are rounded at random to one of levels + 1 points."""
    ratio: Dyadic
    """The noise x of all honest users has a probability proportional to ratio^|x|."""
    messages: int
    """Number of messages per user."""
    modulus: int
    """A power of two; messages are smaller integers."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.levels, users=self.target.users)
        bits = self.modulus.bit_length() - 1
        if self.modulus != 1 << bits or not 1 <= bits <= _MAX_MODULUS_BITS or self.messages < 2:
            raise ParameterError(
                f"Shares need a modulus that is a power of two up to 2^{_MAX_MODULUS_BITS} and at least 2 messages, "
                f"not {self.modulus:,} and {self.messages}.",
                modulus=self.modulus,
                messages=self.messages,
            )

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None) -> Self:
        """The least noise and the fewest messages that meet the target.

        By default there are max(1, epsilon) sqrt(users) levels: rounding adds an eighth to the variance at most.
        """
        if levels is None:
            needed = math.ceil(max(1.0, target.epsilon) * math.sqrt(target.users))
            levels = levels_for(domain, min_levels=needed, max_levels=needed)
        curve = split_and_mix_noise(
            epsilon=target.epsilon,
            delta=target.delta,
            users=target.users,
            levels=check_levels(levels, users=target.users),
            honest_users=target.honest_users,
        )
        if curve.ideal.ratio.complement.fraction < Fraction(1, 1 << LEAST_COMPLEMENT_BITS):
            raise InfeasibleError(
                f"The noise for epsilon = {target.epsilon:g} and {levels:,} levels is too wide to be drawn. Use a "
                "larger epsilon.",
                ratio=curve.ideal.ratio,
            )
        return cls(target, levels, curve.ideal.ratio, curve.messages, curve.modulus, domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The noisy sum is private with delta = 0; the shuffled shares reveal more with probability delta."""
        ideal = DiscreteLaplaceCurve(self.ratio, sensitivity=self.levels)
        curve = SplitAndMixCurve(ideal, self.messages, self.modulus, self.target.honest_users)
        theorem = "Balle, Bell, Gascon and Nissim 2020, secure mixing of shares, and the exact divergence of the noise"
        return self.target.guarantee(curve, theorem=theorem)

    @property
    def share(self) -> Fraction:
        """The share of the noise per user, such that the honest users add all of it."""
        return Fraction(1, self.target.honest_users)

    @property
    def cost(self) -> Cost:
        """The shares."""
        return Cost(float(self.messages), self.messages, self.message_format.bits)

    @property
    def share_ratios(self) -> tuple[Dyadic, ...]:
        """The ratio of the noise of the sum."""
        return (self.ratio,)

    @property
    def message_format(self) -> MessageFormat:
        """An integer below the modulus."""
        return MessageFormat((self.modulus,))

    def report_pmf(self, value: float) -> Pmf:
        """All multisets of shares of the noisy level, each weighted by the number of its orders."""
        if math.comb(self.modulus + self.messages - 1, self.messages) > _MAX_LISTED:
            raise ParameterError(f"{self.messages} shares modulo {self.modulus:,} are too many to list.")
        noisy = np.zeros(self.modulus)
        for level, part in level_pmf(value, self.levels, self.domain).items():
            for noise, mass in self._noise_pmf.items():
                noisy[(level + noise) % self.modulus] += float(part) * mass
        pmf: dict[tuple[int, ...], float] = {}
        for shares in combinations_with_replacement(range(self.modulus), self.messages):
            copies = Counter(shares)
            orders = math.factorial(self.messages) // math.prod(math.factorial(n) for n in copies.values())
            mass = noisy[sum(shares) % self.modulus] * orders / self.modulus ** (self.messages - 1)
            pmf[tuple(copies.get(code, 0) for code in range(self.modulus))] = mass
        return pmf

    @cached_property
    def _noise_pmf(self) -> dict[int, float]:
        """The distribution of one user's share of the noise, except for a tail."""
        masses, ratio, shape = [float(self.ratio.complement) ** float(self.share)], float(self.ratio), float(self.share)
        while 1 - math.fsum(masses) > _OMITTED_MASS / 2:
            masses.append(masses[-1] * ratio * (len(masses) - 1 + shape) / len(masses))
        pmf: dict[int, float] = {}
        for plus, first in enumerate(masses):
            for minus, second in enumerate(masses):
                pmf[plus - minus] = pmf.get(plus - minus, 0.0) + first * second
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        noisy = self._noisy_levels(values, source)
        offsets = self.messages * np.arange(len(noisy) + 1, dtype=np.int64)
        return Messages(self._shares(noisy, source).reshape(-1), len(noisy), offsets, source.secure)

    def _noisy_levels(self, values: NDArray[Any], source: RandomSource) -> NDArray[np.uint64]:
        """Each user's level with its share of the noise, modulo the modulus."""
        noisy = to_levels(values, self.levels, self.domain, source)
        for sign in (1, -1):
            senders, sizes = scattered_negative_binomial(self.share, self.ratio, len(noisy), source)
            noisy[senders] += sign * sizes
        return noisy.view(np.uint64) & np.uint64(self.modulus - 1)  # correct for negative numbers too

    def _shares(self, noisy: NDArray[np.uint64], source: RandomSource) -> NDArray[Any]:
        """One row per user that adds up to the noisy level: uniform shares, and the remainder."""
        shares = np.empty((len(noisy), self.messages), dtype=self.message_format.dtype)
        mask = np.uint64(self.modulus - 1)
        remainder = noisy
        for column in range(self.messages - 1):
            drawn = integers(self.modulus, len(noisy), source)
            shares[:, column] = drawn
            remainder = (remainder - drawn) & mask
        shares[:, -1] = remainder
        return shares

    def tally(self, messages: Messages) -> Tally:
        """The sum of the messages modulo the modulus, in digits that can be added up without overflow."""
        total = 0
        step = _CHUNK_USERS * self.messages
        for start in range(0, len(messages), step):
            chunk = self.message_format.check(messages.values[start : start + step]).astype(np.uint64)
            for digit in range(self._digits):
                part = chunk >> np.uint64(digit * _DIGIT_BITS) & np.uint64(_LARGEST_DIGIT)
                total += int(part.sum()) << digit * _DIGIT_BITS
        return Tally(self._in_digits(total), messages.users, messages.secure)

    def _in_digits(self, total: int) -> NDArray[np.int64]:
        """The digits of the sum modulo the modulus, least significant first."""
        reduced = total % self.modulus
        digits = [reduced >> digit * _DIGIT_BITS & _LARGEST_DIGIT for digit in range(self._digits)]
        return np.array(digits, dtype=np.int64)

    @property
    def _digits(self) -> int:
        return -(-(self.modulus.bit_length() - 1) // _DIGIT_BITS)

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """From the levels and the noise of the users: the shares of a user add up to them modulo the modulus."""
        total = sum_of_levels(values, self.levels, self.domain, source)
        for sign in (1, -1):
            _, sizes = scattered_negative_binomial(self.share, self.ratio, len(values), source)
            total += sign * int(sizes.sum())
        return Tally(self._in_digits(total), len(values), source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one sum per digit."""
        if len(tally.counts) != self._digits:
            raise ParameterError(f"A tally of shares has {self._digits} sums of digits, not {len(tally.counts)}.")

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The sum modulo the modulus, as its representative closest to the middle of the possible range."""
        total = sum(int(digits) << _DIGIT_BITS * position for position, digits in enumerate(tally.counts))
        lowest = tally.users * self.levels // 2 - self.modulus // 2
        return np.array([(total - lowest) % self.modulus + lowest])

    def analysis(self, users: int) -> LinearAnalysis:
        """The sum, in units of a level."""
        rounded = users if worst_rounding_variance(users, self.levels, self.domain) else 0
        error = RoundedNoise(decay_of(self.ratio), self.levels, rounded, shape=float(users * self.share))
        return LinearAnalysis(offset=0.0, slope=self.levels, error=error, largest=users)

    def variance(self, values: NDArray[np.float64]) -> float:
        """The noise of all users, and the rounding of these numbers; the wrap-around of sums is neglected."""
        noise = RoundedNoise(decay_of(self.ratio), self.levels, 0, shape=float(len(values) * self.share))
        return noise.noise_variance() + rounding_variance(values, self.levels, self.domain)
