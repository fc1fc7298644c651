"""A sum from one message per user: Balle, Bell, Gascon and Nissim (2019), Algorithms 2 and 3.

A number is rounded at random to a level 0 .. k, and sent by randomized response on the k + 1 levels: with probability
``blanket`` a uniform level. The uniform messages of all users are the blanket that hides the true ones. The error grows
as n^(1/6), which is optimal for one message.

Accounting: ``shuffledp.privacy.amplification.randomized_response``.
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
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.amplification.randomized_response import RandomizedResponseCurve, least_blanket
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.response import respond, response_epsilon, response_pmf, sample_responses
from shuffledp.protocols.parts.single_message import one_message_each
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.sum.levels import AffineReports, SummedAnswers, level_pmf, to_levels
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource
from shuffledp.randomness.dyadic import check_uncertain

_MAX_LEVELS = 1 << 16
_MAX_LISTED = 512


@dataclass(frozen=True)
class PrivacyBlanketSum(SummedAnswers):
    """A sum by randomized response on levels, one message per user (Balle and others 2019); shuffled.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded; by default the one with the least error.
    """

    name: ClassVar[str] = "privacy-blanket"

    levels: int
    """Numbers are rounded at random to one of levels + 1 points."""
    blanket: Dyadic
    """The probability of sending a uniform level instead of the true one."""
    domain: Interval

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        check_uncertain("blanket", self.blanket)

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None) -> Self:
        """The least blanket that meets the target, or the paper's; by default the levels of least error."""
        if levels is None:
            return cls(target, *_best(target, domain), domain)
        return cls(target, _check_levels(levels), _blanket(target, levels), domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Computed from the blanket that is sampled."""
        curve = RandomizedResponseCurve(self.target.honest_users, self.blanket, self.levels + 1)
        local = response_epsilon(self.levels + 1, self.blanket)
        return self.target.guarantee(curve, theorem=curve.theorem, local_epsilon=local)

    @property
    def message_format(self) -> MessageFormat:
        """A level."""
        return MessageFormat((self.levels + 1,))

    def report_pmf(self, value: float) -> Pmf:
        """Randomized response on the rounded level."""
        if self.levels >= _MAX_LISTED:
            raise ParameterError(f"{self.levels + 1:,} messages are too many to list; at most {_MAX_LISTED}.")
        pmf: dict[tuple[int, ...], Any] = {}
        for level, share in level_pmf(value, self.levels, self.domain).items():
            for sent, probability in response_pmf(level, self.levels + 1, self.blanket).items():
                pmf[sent] = pmf.get(sent, Fraction(0)) + share * probability
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = to_levels(values, self.levels, self.domain, source)
        answers = respond(owned, self.levels + 1, self.blanket, source)
        return one_message_each(answers.astype(self.message_format.dtype), source)

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """The tally of all answers, from the number of users at each level."""
        owned = to_levels(values, self.levels, self.domain, source)
        return sample_responses(np.bincount(owned, minlength=self.levels + 1), self.blanket, source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one message per user."""
        if len(tally.counts) != self.levels + 1 or int(tally.counts.sum()) != tally.users:
            raise ParameterError(f"{tally.users:,} users send {tally.users:,} levels, not {int(tally.counts.sum()):,}.")

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The sum of the received levels."""
        return np.array([tally.counts @ np.arange(self.levels + 1)])

    @cached_property
    def reports(self) -> AffineReports:
        """The mean and the variance of randomized response at each level."""
        return _reports_of(self.levels, float(self.blanket), float(self.blanket.complement), self.domain)


def _check_levels(levels: int) -> int:
    if not 1 <= levels <= _MAX_LEVELS:
        raise ParameterError(f"levels must lie between 1 and {_MAX_LEVELS:,}, not {levels:,}.", levels=levels)
    return levels


def _reports_of(levels: int, blanket: float, truth: float, domain: Interval) -> AffineReports:
    """Mean and variance of an answer, which is a mixture of the true level and a uniform one."""
    own = np.arange(levels + 1, dtype=np.float64) - levels / 2  # relative to the mean of a uniform level
    uniform_square = levels * (levels + 2) / 12
    variances: NDArray[np.float64] = blanket * (uniform_square + truth * own**2)
    return AffineReports(
        start=levels / 2 - truth * levels / 2,
        slope=truth,
        variances=variances,
        largest_term=levels,
        domain=domain,
    )


def _blanket(target: Target, levels: int) -> Dyadic:
    """The least blanket over the levels, or that of the paper."""
    users, values = target.honest_users, levels + 1
    if target.calibration != "paper":
        return least_blanket(users, values, target.epsilon, target.delta)
    epsilon = target.epsilon
    if epsilon > 1:
        raise ConditionError(
            f"Theorem 3.1 of Balle, Bell, Gascon and Nissim (2019) needs epsilon <= 1, not {epsilon:g}. "
            "The tight calibration has no such limit.",
            epsilon=epsilon,
        )
    mean = _paper_mean(target)
    if mean * values >= users - 1:
        raise ConditionError(
            f"Theorem 3.1 of Balle, Bell, Gascon and Nissim (2019) needs more than {math.ceil(mean * values) + 1:,} "
            f"honest users for {values:,} levels; given {users:,}. The tight calibration needs fewer.",
            users=users,
            levels=levels,
        )
    return Dyadic.at_least(mean * values / (users - 1))


def _best(target: Target, domain: Interval) -> tuple[int, Dyadic]:
    """The feasible number of levels with about the least error, and its blanket."""
    mean = _typical_mean(target)
    levels = min(_candidates(target, domain, mean), key=lambda candidate: _error(candidate, mean, target, domain))
    while True:
        try:
            return levels, _blanket(target, levels)
        except (InfeasibleError, ConditionError):
            if levels == 1:
                raise
            levels //= 2


def _typical_mean(target: Target) -> float:
    """Approximate number of uniform messages that each level needs; the best number of levels hardly depends on it."""
    if target.calibration == "paper":
        return _paper_mean(target)
    return math.log(1 / target.delta) * max(1.0, 2.1 / target.epsilon**2 + 0.6 / target.epsilon + 0.4)


def _paper_mean(target: Target) -> float:
    """Expected number of uniform messages of each level by Theorem 3.1 of the paper."""
    return max(14 * math.log(2 / target.delta) / target.epsilon**2, 27 / target.epsilon)


def _candidates(target: Target, domain: Interval, mean: float) -> list[int]:
    """Numbers of levels around the best one for real numbers, and the number of steps of integers."""
    typical = (target.honest_users / mean) ** (1 / 3)
    largest = max(1, min(math.ceil(3 * typical), math.floor(0.99 * target.honest_users / mean) - 1, _MAX_LEVELS))
    candidates = {*np.unique(np.geomspace(1, largest, 80).round().astype(int)).tolist()}
    if domain.steps is not None and domain.steps <= largest:
        candidates.add(domain.steps)
    return sorted(candidates)


def _error(levels: int, mean: float, target: Target, domain: Interval) -> float:
    """The worst variance of one user if every level needs ``mean`` uniform messages."""
    blanket = min(0.999, mean * (levels + 1) / target.honest_users)
    return _reports_of(levels, blanket, 1 - blanket, domain).worst_variance()
