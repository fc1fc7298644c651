"""The piecewise mechanism of Wang, Xiao, Yang, Zhao, Hui, Shin, Shin and Yu (2019), on a grid.

A user at level j sends an integer below K = w + k s: with probability 1 - ``outside`` a uniform one in the window of w
integers that starts at j s, else a uniform one outside the window. The expected answer is affine in j, so the estimate
is unbiased. Every answer has one of two probabilities, whose ratio determines epsilon. On a fine grid this is the
paper's mechanism: a window of C - 1 out of 2 C with C = (h + 1)/(h - 1) and h = e^(epsilon/2).

Accounting: ``shuffledp.privacy.pure``.
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
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.protocols.parts.single_message import one_message_each, single_message_pmf
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.sum.levels import (
    MAX_LISTED,
    AffineReports,
    SummedAnswers,
    check_levels,
    level_pmf,
    sum_of_messages,
    to_levels,
)
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, integers

_LEAST_GRID = 1 << 12
_MAX_GRID = 1 << 20
_FINE_WINDOW = 64  # least number of points of a window


@dataclass(frozen=True)
class PiecewiseSum(SummedAnswers):
    """A sum by the piecewise mechanism on a grid (Wang and others 2019); local, delta 0.

    Options of ``calibrate``:

    - ``answers``: the size of the grid; unless given, so large that a window has 64 points or more.
    """

    name: ClassVar[str] = "piecewise"
    trust: ClassVar[str] = "local"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    levels: int
    """Numbers are rounded at random to one of levels + 1 points."""
    step: int
    """Distance between the windows of adjacent levels."""
    window: int
    """Number of answers in a window."""
    outside: Dyadic
    """The probability of an answer outside the window."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if self.step < 1 or self.window < 1 or self.answers > _MAX_GRID:
            raise ParameterError(
                f"step and window must be at least 1 and there can be at most {_MAX_GRID:,} answers; got "
                f"levels={self.levels}, step={self.step}, window={self.window}, hence {self.answers} answers.",
                answers=self.answers,
            )
        if not self.outside.numerator or self._slope <= 0:
            raise ParameterError(
                f"An answer outside the window must be possible and less likely than one in it, not {self.outside}."
            )

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, answers: int | None = None) -> Self:
        """Locally epsilon-private; delta is not needed.

        ``answers`` is the size of the grid; by default it is so large that a window has 64 answers or more.
        """
        share = 1 / (math.exp(target.epsilon / 2) + 1)  # (C - 1) / (2 C)
        if answers is None:
            answers = _LEAST_GRID
            while answers * share < _FINE_WINDOW and answers < _MAX_GRID:
                answers *= 2
        if answers < 2:
            raise ParameterError(f"At least 2 answers are needed, not {answers}.", answers=answers)
        window = min(max(1, round(answers * share)), answers - 1)
        return cls(target.pure(), answers - window, 1, window, _least_outside(answers, window, target.epsilon), domain)

    @property
    def answers(self) -> int:
        """Number of possible answers."""
        return self.window + self.levels * self.step

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy: the ratio of an answer's two probabilities."""
        epsilon = _window_epsilon(self.answers, self.window, self.outside)
        return self.target.local_guarantee(epsilon, theorem="exact ratio")

    @property
    def message_format(self) -> MessageFormat:
        """An answer."""
        return MessageFormat((self.answers,))

    def report_pmf(self, value: float) -> Pmf:
        """Uniform in the window of the rounded level, and uniform outside."""
        inner = self.outside.complement.fraction / self.window
        outer = self.outside.fraction / (self.answers - self.window)
        pmf = [Fraction(0)] * min(self.answers, 1024)
        for level, share in level_pmf(value, self.levels, self.domain).items():
            start = level * self.step
            for answer in range(len(pmf)):
                pmf[answer] += share * (inner if start <= answer < start + self.window else outer)
        return single_message_pmf(pmf, max_codes=MAX_LISTED)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        starts = to_levels(values, self.levels, self.domain, source) * self.step
        answers = starts + integers(self.window, len(starts), source).astype(np.int64)
        outside = np.flatnonzero(bernoulli(self.outside, len(starts), source))
        others = integers(self.answers - self.window, len(outside), source).astype(np.int64)
        answers[outside] = others + self.window * (others >= starts[outside])
        return one_message_each(answers.astype(self.message_format.dtype), source)

    def tally(self, messages: Messages) -> Tally:
        """The sum of the answers."""
        return sum_of_messages(self.message_format, messages)

    @property
    def _slope(self) -> float:
        """Increase of the expected answer per level."""
        outer = float(self.outside) * self.window / (self.answers - self.window)
        return self.step * (float(self.outside.complement) - outer)

    @cached_property
    def reports(self) -> AffineReports:
        """The mean and variance of an answer, measured from the middle of the grid."""
        width, total, middle = self.window, self.answers, (self.answers - 1) / 2
        centres = self.step * np.arange(self.levels + 1) + (width - 1) / 2 - middle
        inner_squares = centres**2 + (width**2 - 1) / 12  # of a uniform answer in the window
        all_squares = (total**2 - 1) / 12
        p, q = float(self.outside.complement), float(self.outside)
        squares = p * inner_squares + q * (total * all_squares - width * inner_squares) / (total - width)
        means = (p - q * width / (total - width)) * centres
        return AffineReports(
            start=middle + float(means[0]),
            slope=self._slope,
            variances=squares - means**2,
            largest_term=total - 1,
            domain=self.domain,
        )


def _window_epsilon(answers: int, window: int, outside: Dyadic) -> float:
    """The logarithm of the ratio of an answer's probability inside and outside the window, rounded up."""
    inner, outer = outside.complement.numerator * (answers - window), outside.numerator * window
    return log_ratio_above(inner, outer)


def _least_outside(answers: int, window: int, epsilon: float) -> Dyadic:
    """The least probability outside the window at which the ratio is at most e^epsilon."""
    outer = answers - window
    guess = Dyadic.at_least(outer / (outer + window * math.exp(epsilon)))
    while _window_epsilon(answers, window, guess) > epsilon:
        guess = Dyadic.at_least(min(Fraction(1), guess.fraction * (1 + Fraction(1, 1 << 48))))
    return guess
