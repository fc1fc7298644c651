"""The shuffled binary sum of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019), Algorithm 1.

Randomized response with much less noise than in the local model: a user sends a fair coin with probability lambda / n,
and the true bit otherwise. About lambda fair coins among n bits hide each single bit.

Accounting: ``shuffledp.privacy.cheu``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.cheu import FlippedCount, least_count_flip, paper_count_flip
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.answers import AnswerCount
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class CheuCount(AnswerCount):
    """A count from one bit per user, flipped with a small probability (Cheu and others 2019); shuffled."""

    name: ClassVar[str] = "cheu"

    flip: Dyadic
    """The probability lambda / (2 n) of sending the opposite bit; a fair coin is sent with twice that probability."""

    def __post_init__(self) -> None:
        if not 0 < 2 * self.flip.numerator <= 1 << self.flip.bits:
            raise ParameterError(f"The flip probability must be above 0 and at most 1/2, not {self.flip}.")

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """The least noise that is (epsilon, delta)-private; with ``paper``, lambda by Lemma 4.8 in either regime."""
        least = paper_count_flip if target.calibration == "paper" else least_count_flip
        return cls(target, least(target.honest_users, target.epsilon, target.delta))

    @property
    def blanket(self) -> Dyadic:
        """The probability lambda / n of sending a fair coin."""
        return Dyadic(self.flip.numerator, self.flip.bits - 1)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Computed from the probability that is sampled, for all data sets."""
        curve = FlippedCount(self.target.honest_users, self.flip)
        theorem = (
            "Cheu et al. 2019, Lemma 4.8" if self.target.calibration == "paper" else "certified for all data by clones"
        )
        return self.target.guarantee(curve, theorem=theorem, local_epsilon=curve.local_epsilon)


def theorem_4_11_error(users: int, noise: float, beta: float) -> float:
    """Theorem 4.11: the error that is exceeded with probability at most beta, for lambda = ``noise``."""
    if not 0 < beta < 1 or not 2 * math.log(2 / beta) <= noise < users:
        raise ConditionError(
            f"Theorem 4.11 needs 2 ln(2/beta) <= lambda < n; given lambda = {noise:g}, n = {users:,}, beta = {beta:g}.",
            noise=noise,
            users=users,
            beta=beta,
        )
    return users / (users - noise) * math.sqrt(2 * noise * math.log(2 / beta))
