"""A shuffled binary sum with delta = 0: Ghazi, Golowich, Kumar, Manurangsi, Pagh and Velingker (2020).

Every user sends ``size`` bits, size odd: (size - 1)/2 + x ones, or with probability ``mix`` a number of ones
from a distribution that is symmetric about size/2. With a single message, delta = 0 would need the error of the
local model (Balcer and Cheu 2020, Theorem 17).

Accounting: ``shuffledp.privacy.pure_sum``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.pure_sum import PureSum
from shuffledp.privacy.pure_sum_search import least_error_sum
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, integers

_ONE = 1 << 64


@dataclass(frozen=True)
class PureSumCount(CountProtocol):
    """A count with delta 0, from several bits per user (Ghazi, Golowich and others 2020); shuffled."""

    name: ClassVar[str] = "pure-sum"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    weights: tuple[int, ...]
    """Probabilities of 0, 1, ... ones in a noisy report, over 2^64."""
    mix: Dyadic
    """The probability of a noisy report."""
    certified_users: int
    """Number of honest users for which the guarantee is certified; it also holds with more."""

    def __post_init__(self) -> None:
        if self.certified_users > self.target.honest_users:
            raise ParameterError(
                f"The guarantee is certified for {self.certified_users:,} honest users and does not hold for fewer.",
                certified_users=self.certified_users,
            )

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """The parameters of least error that are certified to be epsilon-private; delta is not needed.

        Rounds of up to 10^9 honest users are certified. With more the probability of a noisy report is the same:
        further reports are independent of the replaced user's, so the guarantee still holds.
        """
        curve = least_error_sum(target.honest_users, target.epsilon)
        return cls(target.pure(), curve.weights, curve.mix, curve.users)

    @cached_property
    def _curve(self) -> PureSum:
        return PureSum(self.certified_users, self.weights, self.mix)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy, for all data sets."""
        return self.target.guarantee(
            self._curve, theorem="certified numerically for all data sets", local_epsilon=self._curve.local_epsilon
        )

    @property
    def size(self) -> int:
        """Number of bits per user."""
        return len(self.weights) - 1

    @property
    def cost(self) -> Cost:
        """A constant number of bits."""
        return Cost(float(self.size), self.size, 1)

    @property
    def message_format(self) -> MessageFormat:
        """A bit."""
        return MessageFormat((2,))

    def report_pmf(self, value: int) -> Pmf:
        """The numbers of zeros and ones."""
        bit = check_index(value, 2)
        pmf: dict[tuple[int, ...], Fraction] = {}
        for ones, weight in enumerate(self.weights):
            true = self.mix.complement.fraction if ones == (self.size - 1) // 2 + bit else 0
            pmf[self.size - ones, ones] = true + self.mix.fraction * Fraction(weight, _ONE)
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        bits = check_indices(values, 2)
        ones = bits + (self.size - 1) // 2
        noisy = np.flatnonzero(bernoulli(self.mix, len(bits), source))
        ends = np.array(list(accumulate(self.weights))[:-1], dtype=np.uint64)
        ones[noisy] = np.searchsorted(ends, integers(_ONE, len(noisy), source), side="right")
        sent = (np.arange(self.size) < ones[:, None]).astype(np.uint8).ravel()
        return Messages(sent, len(bits), np.arange(len(bits) + 1, dtype=np.int64) * self.size, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: every user sends ``size`` bits."""
        if len(tally.counts) != 2 or int(tally.counts.sum()) != tally.users * self.size:
            sent = int(tally.counts.sum())
            raise ParameterError(f"{tally.users:,} users send {tally.users * self.size:,} bits, not {sent:,}.")

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the number of ones; the variance is the same for every true count."""
        mix, slope = float(self.mix), float(self.mix.complement)
        spread = sum(weight * (ones - self.size / 2) ** 2 for ones, weight in enumerate(self.weights)) / _ONE
        return LinearAnalysis(
            offset=users * (slope * (self.size - 1) / 2 + mix * self.size / 2),
            slope=slope,
            error=_NoisyReports(
                base_variance=users * (mix * spread + mix * slope / 4) / slope**2,
                variance_per_holder=0.0,
                largest_term=(self.size + 1) / 2 / slope,
                users=users,
                weights=self.weights,
                mix=self.mix,
            ),
            largest=users,
        )


@dataclass(frozen=True)
class _NoisyReports(IndependentTerms):
    """The error of all reports; its width is the least of Chernoff's bound and of those for bounded terms."""

    users: int = 0
    weights: tuple[int, ...] = ()
    mix: Dyadic = field(default=Dyadic(0))

    def _width(self, truth: NDArray[np.float64], risk: float) -> NDArray[np.float64]:
        return np.minimum(super()._width(truth, risk), self._chernoff(math.log(2 / risk)))

    def _chernoff(self, level: float) -> float:
        """The least (cumulant + level)/tilt over some tilts, for any number of holders.

        Reports with and without a 1 are mirror images, so the larger one of their two cumulants bounds both.
        """
        size, mix = len(self.weights) - 1, float(self.mix)
        noise = np.array(self.weights, dtype=np.float64) / _ONE
        moved = np.arange(size + 1) - (size - 1) / 2  # by noise, of a report without a 1; 1/2 on average
        usual = math.sqrt(2 * level / max(float(self.base_variance), 1e-300))
        tilts = np.minimum(usual * np.geomspace(1 / 32, 8, 97), 600 / (size + 1))
        cumulants = [np.log1p(mix * (np.exp(np.outer(sign * tilts, moved)) @ noise - 1)) for sign in (1, -1)]
        centred = self.users * np.maximum(cumulants[0] - tilts * mix / 2, cumulants[1] + tilts * mix / 2)
        return float(np.min((centred + level) / tilts)) * (1 + 1e-9) / float(self.mix.complement)
