"""Sums from randomly flipped bits: Cheu, Smith, Ullman, Zeber and Zhilyaev (2019), Algorithms 5 and 6.

A number is rounded at random to a level j of 0 .. r, and written as r bits of which j are ones. Each bit is flipped
with probability f and sent as an unlabelled message, so that the analyzer sees only the number of ones. With more bits
there is less rounding and less noise in total.

Accounting: ``shuffledp.privacy.cheu``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.cheu import FlippedSum, least_sum_flip, paper_sum_flip
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.sum.levels import AffineReports, check_levels, level_pmf, levels_for, sum_of_levels, to_levels
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomial

_CHUNK_BITS = 1 << 22
_MAX_LISTED = 64
_MAX_BITS = 1 << 20


@dataclass(frozen=True)
class CheuSum(SumProtocol):
    """A sum from flipped bits without labels (Cheu and others 2019); shuffled.

    Options of ``calibrate``:

    - ``bits``: number of bits per user; epsilon times the square root of the number of users unless given.
    """

    name: ClassVar[str] = "cheu"

    bits: int
    """Number of bits per user."""
    flip: Dyadic
    """The probability of flipping each bit."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.bits, users=self.target.users)
        if self.bits > _MAX_BITS:
            raise ParameterError(f"A user sends at most {_MAX_BITS:,} bits, not {self.bits:,}.", bits=self.bits)
        if not 0 < 2 * self.flip.fraction < 1:
            raise ParameterError(f"The flip probability must lie between 0 and 1/2, not {self.flip}.")

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, bits: int | None = None) -> Self:
        """The least flip probability that meets the target, or the paper's; by default epsilon sqrt(users) bits."""
        if bits is None:
            bits = _default_bits(target.users, target.epsilon, domain)
        least = paper_sum_flip if target.calibration == "paper" else least_sum_flip
        return cls(
            target,
            bits,
            least(target.honest_users, check_levels(bits, users=target.users), target.epsilon, target.delta),
            domain,
        )

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """A quarter of the bits, with about 10 % more error."""
        default = _default_bits(settings["users"], settings["epsilon"], settings["domain"])
        return [{"bits": -(-default // 4)}] if default > 1 else []

    @cached_property
    def guarantee(self) -> Guarantee:
        """Computed from the flip probability that is sampled."""
        curve = FlippedSum(self.target.honest_users, self.flip, self.bits)
        theorem = "exact divergence of the flipped bits, bounded over all data sets"
        return self.target.guarantee(curve, theorem=theorem, local_epsilon=curve.local_epsilon)

    @property
    def cost(self) -> Cost:
        """One message per bit."""
        return Cost(float(self.bits), self.bits, 1)

    @property
    def message_format(self) -> MessageFormat:
        """A bit."""
        return MessageFormat((2,))

    def report_pmf(self, value: float) -> Pmf:
        """The numbers of zeros and ones: ones that are not flipped, and zeros that are."""
        if self.bits > _MAX_LISTED:
            raise ParameterError(f"{self.bits:,} bits are too many to list; at most {_MAX_LISTED}.")
        pmf: dict[tuple[int, ...], Fraction] = {}
        for level, share in level_pmf(value, self.bits, self.domain).items():
            unflipped_pmf = _binomial_pmf(level, self.flip.complement.fraction)
            flipped_pmf = _binomial_pmf(self.bits - level, self.flip.fraction)
            for unflipped, first in enumerate(unflipped_pmf):
                for flipped, second in enumerate(flipped_pmf):
                    ones = unflipped + flipped
                    key = (self.bits - ones, ones)
                    pmf[key] = pmf.get(key, Fraction(0)) + share * first * second
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = to_levels(values, self.bits, self.domain, source)
        sent = np.empty((len(owned), self.bits), dtype=np.uint8)
        positions = np.arange(self.bits)
        chunk = max(1, _CHUNK_BITS // self.bits)
        for start in range(0, len(owned), chunk):
            part = owned[start : start + chunk]
            flips = bernoulli(self.flip, len(part) * self.bits, source).reshape(len(part), self.bits)
            np.not_equal(positions < part[:, None], flips, out=sent[start : start + chunk], casting="unsafe")
        offsets = self.bits * np.arange(len(owned) + 1, dtype=np.int64)
        return Messages(sent.reshape(-1), len(owned), offsets, source.secure)

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """Binomial numbers of ones among all bits."""
        ones = sum_of_levels(values, self.bits, self.domain, source)
        total = len(values) * self.bits
        received = int(binomial(ones, self.flip.complement, 1, source)[0])
        received += int(binomial(total - ones, self.flip, 1, source)[0])
        counts = np.array([total - received, received], dtype=np.int64)
        return Tally(counts, len(values), source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: ``bits`` messages per user."""
        if len(tally.counts) != 2 or int(tally.counts.sum()) != tally.users * self.bits:
            raise ParameterError(
                f"{tally.users:,} users send {tally.users * self.bits:,} bits, not {int(tally.counts.sum()):,}."
            )

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    @cached_property
    def _reports(self) -> AffineReports:
        """The variance of the flips is the same at all levels; bits are independent, so each is a separate term."""
        f = float(self.flip)
        return AffineReports(
            start=self.bits * f,
            slope=1 - 2 * f,
            variances=np.full(self.bits + 1, self.bits * f * (1 - f)),
            largest_term=1.0,
            domain=self.domain,
        )

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the number of ones."""
        return self._reports.analysis(users)

    def variance(self, values: NDArray[np.float64]) -> float:
        """The variance of the flips, and of the rounding of these numbers."""
        return self._reports.variance(values)


def _default_bits(users: int, epsilon: float, domain: Interval) -> int:
    """Enough bits that rounding adds less than the noise; for integers at most their number of steps."""
    bits = min(math.ceil(epsilon * math.sqrt(users)), _MAX_BITS)
    return levels_for(domain, min_levels=bits, max_levels=bits)


def _binomial_pmf(trials: int, probability: Fraction) -> list[Fraction]:
    other = 1 - probability
    return [math.comb(trials, k) * probability**k * other ** (trials - k) for k in range(trials + 1)]
