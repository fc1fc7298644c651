"""P^zsum of Balcer and Cheu (2020), Figure 1 and Theorem 11: a binary sum from two messages.

Every user sends one token if their value is 1, and a noise token with probability p close to 1. If nobody holds a 1,
there are never more tokens than users, so a count of zero is estimated as exactly zero.

Accounting: ``shuffledp.privacy.balcer_cheu`` and ``shuffledp.privacy.binomial_noise``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts, check_index, check_indices
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.guarantee import ComposableCurve
from shuffledp.privacy.smoothness import corollary_24_mean
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.postprocessing import TokenAnalysis
from shuffledp.protocols.parts.tokens import TokenProtocol
from shuffledp.protocols.protocol import Cost
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomial


@dataclass(frozen=True)
class BalcerCheuCount(TokenProtocol, CountProtocol):
    """A count with exact zeros, from two messages per user (Balcer and Cheu 2020, Theorem 11); shuffled.

    Options of ``calibrate``:

    - ``padded``: send zeros in place of tokens that are left out, so that the number of messages is always two.
    """

    name: ClassVar[str] = "balcer-cheu"
    theorem: ClassVar[str] = "Theorem 11"
    changed_categories: ClassVar[int] = 1

    padded: bool = True
    """Send a zero instead of each token that is left out, so that the number of messages is constant."""

    @classmethod
    def for_target(cls, target: Target, *, padded: bool = True) -> Self:
        """The least noise that is (epsilon, delta)-private for this many users."""
        return cls(target, cls.least_absence(target), padded)

    @classmethod
    def of_absence(cls, target: Target, absence: Dyadic) -> Self:
        """The protocol with this noise."""
        return cls(target, absence)

    @classmethod
    def curve_of(cls, noise: Binomial) -> ComposableCurve:
        """The exact divergence of the number of tokens."""
        return BinomialCount(noise)

    @property
    def cost(self) -> Cost:
        """Two messages of one bit if padded; otherwise at most two (expected number for a user who holds a 1)."""
        expected = 2.0 if self.padded else 1 + float(self.absence.complement)
        return Cost(messages_per_user=expected, max_messages_per_user=2, bits_per_message=1)

    @property
    def min_messages_per_user(self) -> int:
        """Two if padded; otherwise none, for a 0 whose noise token is left out."""
        return 2 if self.padded else 0

    @property
    def message_format(self) -> MessageFormat:
        """Messages are 1, a token, and 0, its padding."""
        return MessageFormat((2,))

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""
        return self._noise_parameters() | {"padded": self.padded}

    def report_pmf(self, index: int) -> dict[tuple[int, ...], Fraction]:
        """The exact distribution of one report: its numbers of zeros and of tokens."""
        absence = self.absence.fraction
        pmf: dict[tuple[int, ...], Fraction] = {}
        for noise_tokens, share in ((0, absence), (1, 1 - absence)):
            tokens = check_index(index, 2) + noise_tokens
            pmf[(2 - tokens if self.padded else 0, tokens)] = share
        return pmf

    def randomize(self, index: int, *, source: RandomSource = SYSTEM) -> NDArray[np.uint8]:
        """The randomizer of Figure 1 on one user's bit."""
        noise_token = not bernoulli(self.absence, 1, source)[0]
        tokens = check_index(index, 2) + int(noise_token)
        padding = 2 - tokens if self.padded else 0
        return np.array([1] * tokens + [0] * padding, dtype=np.uint8)

    def randomize_all(self, indices: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        bits = check_indices(indices, 2)
        users = len(bits)
        tokens = bits + 1 - bernoulli(self.absence, users, source)
        if self.padded:
            values = (tokens[:, None] > np.arange(2)).astype(np.uint8).ravel()
            return Messages(values, users, np.arange(0, 2 * users + 1, 2, dtype=np.int64), source.secure)
        offsets = np.concatenate(([0], np.cumsum(tokens)))
        return Messages(np.ones(offsets[-1], dtype=np.uint8), users, offsets, source.secure)

    def tally(self, messages: Messages) -> Tally:
        """The numbers of zeros and ones among the messages."""
        bits = check_indices(messages.values, 2)
        tokens = int(np.count_nonzero(bits))
        return Tally(np.array([len(bits) - tokens, tokens], dtype=np.int64), messages.users, messages.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A tally with the distribution of the whole round, from the true numbers of zeros and ones."""
        zeros, ones = (int(count) for count in check_counts(counts, 2))
        users = zeros + ones
        tokens = ones + users - int(binomial(users, self.absence, 1, source)[0])
        zeros = 2 * users - tokens if self.padded else 0
        return Tally(np.array([zeros, tokens], dtype=np.int64), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: two messages from each user if padded, at most two otherwise."""
        if len(tally.counts) != 2 or not (tally.counts[1] <= 2 * tally.users):
            raise ParameterError(f"This is not a tally of zeros and ones from {tally.users:,} users.")
        if self.padded and int(tally.counts.sum()) != 2 * tally.users:
            raise ParameterError(
                f"{tally.users:,} users send {2 * tally.users:,} padded messages, not {int(tally.counts.sum()):,}."
            )

    def observed(self, tally: Tally) -> NDArray[np.int64]:
        """The number of tokens."""
        return tally.counts[1:]

    def analysis(self, users: int) -> TokenAnalysis:
        """The analyzer of Figure 1."""
        return self.analysis_by(self.estimators[0], users)

    def analysis_by(self, estimator: str, users: int) -> TokenAnalysis:
        """The analyzer of Figure 1, or another estimator by name; thresholds are compared as integers."""
        return self.token_analysis(users, 1, estimator)


def theorem_11_alpha(users: int, epsilon: float, delta: float, beta: float) -> float:
    """Theorem 11 (ii): a bound on the error, as a fraction of the users, that holds except with probability beta.

    Conditions: those of the theorem, and beta >= delta^25.
    """
    mean = corollary_24_mean(users, epsilon, delta)
    if not (beta < 1 and math.log(beta) >= 25 * math.log(delta)):
        raise ConditionError(f"Theorem 11 (ii) needs delta^25 <= beta < 1; given beta = {beta:g}.", beta=beta)
    return (mean + math.sqrt(200 * math.log(2 / delta) * math.log(2 / beta)) / epsilon) / users
