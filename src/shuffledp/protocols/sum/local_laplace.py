"""A sum in the local model with Laplace noise by each user (Dwork, McSherry, Nissim and Smith 2006).

A number is rounded at random to a level 0 .. k, discrete Laplace noise with ratio e^(-epsilon / k) is added, and the
result is clipped to -M .. k + M to fit into a message. Clipping is post-processing, and M is so large that it never
happens in practice.

Accounting: ``shuffledp.privacy.discrete_laplace`` and ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.single_message import one_message_each, single_message_pmf
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.sum.levels import (
    MAX_LISTED,
    AffineReports,
    SummedAnswers,
    check_levels,
    level_pmf,
    levels_for,
    sum_of_messages,
    to_levels,
)
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace

_ENOUGH_LEVELS = 16  # per unit of epsilon, so that rounding adds less than a thousandth to the variance
_MAX_INTEGER_LEVELS = 1 << 12
_MAX_LEVELS = 1 << 20
_CLIPPING_EXPONENT = 36  # noise is clipped with a probability below e^-36 < 1e-15


@dataclass(frozen=True)
class LocalLaplaceSum(SummedAnswers):
    """A sum with discrete Laplace noise on each number (Dwork and others 2006); local, delta 0.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded.
    """

    name: ClassVar[str] = "local-laplace"
    trust: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    levels: int
    """Numbers are rounded at random to one of levels + 1 points."""
    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""
    margin: int
    """Answers are clipped to -margin .. levels + margin."""
    domain: Interval

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= _MAX_LEVELS or not 0 <= self.margin < 1 << 62:
            raise ParameterError(
                f"levels must lie between 1 and {_MAX_LEVELS:,} and margin between 0 and 2^62; "
                f"got levels={self.levels:,}, margin={self.margin:,}.",
                levels=self.levels,
                margin=self.margin,
            )

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None) -> Self:
        """Locally epsilon-private; delta is not needed."""
        if levels is None:
            levels = levels_for(
                domain,
                min_levels=max(_ENOUGH_LEVELS, _ENOUGH_LEVELS * target.epsilon),
                max_levels=_MAX_INTEGER_LEVELS,
            )
        ratio = least_ratio(target.epsilon, sensitivity=check_levels(levels))
        return cls(target.pure(), levels, ratio, math.ceil(_CLIPPING_EXPONENT / decay_of(ratio)), domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy; the ends of the interval are the worst case."""
        curve = DiscreteLaplaceCurve(self.ratio, sensitivity=self.levels)
        return self.target.local_guarantee(curve.pure_epsilon, theorem="exact ratio")

    @property
    def draws_per_report(self) -> float:
        """The expected size of two geometric numbers, whose difference is the noise."""
        return 2 / float(self.ratio.complement)

    @property
    def message_format(self) -> MessageFormat:
        """A noisy level, as its distance from the lowest possible one."""
        return MessageFormat((self.levels + 2 * self.margin + 1,))

    def report_pmf(self, value: float) -> Pmf:
        """The rounded level plus noise, clipped at the margins."""
        last = self.levels + 2 * self.margin
        pmf = [Fraction(0)] * (min(last, 1024) + 1)
        for level, share in level_pmf(value, self.levels, self.domain).items():
            centre = level + self.margin
            for answer in range(len(pmf)):
                pmf[answer] += share * self._noise(answer - centre, clipped=answer in (0, last))
        return single_message_pmf(pmf, max_codes=MAX_LISTED)

    def _noise(self, x: int, *, clipped: bool) -> Fraction:
        """The probability of the noise x; if ``clipped``, of x and all noise beyond it."""
        ratio = self.ratio.fraction
        beyond = ratio ** abs(x) / (1 + ratio)
        if clipped:
            return beyond if x else 1 / (1 + ratio)
        return (1 - ratio) * beyond

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = to_levels(values, self.levels, self.domain, source)
        noisy = owned + discrete_laplace(self.ratio, len(owned), source) + self.margin
        clipped = np.clip(noisy, 0, self.levels + 2 * self.margin)
        return one_message_each(clipped.astype(self.message_format.dtype), source)

    def tally(self, messages: Messages) -> Tally:
        """The sum of the noisy levels."""
        return sum_of_messages(self.message_format, messages)

    @cached_property
    def reports(self) -> AffineReports:
        """The distribution of the noise is the same at all levels.

        E|X|^3 / E[X^2] = (1 + 4 a + a^2) / (1 - a^2), and 1/decay + 1/3 is a constant for Bernstein's inequality.
        """
        a = float(self.ratio)
        return AffineReports(
            start=self.margin,
            slope=1.0,
            variances=np.full(self.levels + 1, DiscreteLaplace(self.ratio).variance),
            largest_term=(1 + 4 * a + a * a) / (1 + a) / float(self.ratio.complement),
            domain=self.domain,
            heaviest_tail=1 / decay_of(self.ratio) + 1 / 3,
        )
