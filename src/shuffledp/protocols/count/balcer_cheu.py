"""P^zsum of Balcer and Cheu (2020), Figure 1 and Theorem 11: a binary sum from two messages.

Every user sends one token if their value is 1, and one more as noise with probability p close to 1.
If nobody holds a 1 there are never more tokens than users, so the estimate of zero is exactly zero.
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

from shuffledp.domain import BIT, Bit, check_counts, check_index, check_indices
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.model import Cost, CountEstimate, ExpectedError, MessageFormat, Messages, Tally, check_enough_users
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.smooth import corollary_24_mean
from shuffledp.protocols.flow import run_round
from shuffledp.protocols.kinds import Round
from shuffledp.protocols.parts.postprocessing import ESTIMATORS, SurplusAnalysis, surplus_analysis
from shuffledp.protocols.parts.token_noise import TokenNoise
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomial

__all__ = ["BalcerCheuCount", "theorem_11_alpha"]


@dataclass(frozen=True)
class BalcerCheuCount(Round):
    """The protocol with its public parameters."""

    name: ClassVar[str] = "balcer-cheu"
    question: ClassVar[str] = "count"
    domain: ClassVar[Bit] = BIT
    estimators: ClassVar[tuple[str, ...]] = tuple(ESTIMATORS)

    noise: TokenNoise
    """Users, the probability that a noise token is left out, and the target it was calibrated for."""
    padded: bool = True
    """Send zeros in place of tokens left out, so that the number of messages says nothing."""

    @classmethod
    def calibrate(
        cls,
        *,
        users: int,
        epsilon: float,
        delta: float,
        calibration: str = "tight",
        honest_fraction: float = 1.0,
        padded: bool = True,
    ) -> Self:
        """The least noise that is (epsilon, delta)-private for this many users."""
        noise = TokenNoise.calibrate(
            users=users,
            epsilon=epsilon,
            delta=delta,
            calibration=calibration,
            honest_fraction=honest_fraction,
            curve_of=BinomialCount,
            coordinates=1,
        )
        return cls(noise, padded)

    @classmethod
    def with_noise(cls, *, users: int, absence: float | Dyadic, delta: float, honest_fraction: float = 1.0) -> Self:
        """The protocol with a given probability of leaving a noise token out; epsilon follows from delta."""
        return cls(
            TokenNoise.given(
                users=users, absence=absence, delta=delta, honest_fraction=honest_fraction, curve_of=BinomialCount
            )
        )

    @property
    def users(self) -> int:
        """The least number of reports of a round."""
        return self.noise.users

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, computed from the probability that is really sampled."""
        return self.noise.guarantee(BinomialCount, theorem="Theorem 11")

    @property
    def cost(self) -> Cost:
        """Two messages of one bit if padded; else at most two, and here for a user who holds a 1."""
        expected = 2.0 if self.padded else 1 + float(self.noise.absence.complement)
        return Cost(messages_per_user=expected, max_messages_per_user=2, bits_per_message=1)

    @property
    def domain_size(self) -> int:
        """Values are 0 and 1."""
        return 2

    @property
    def message_format(self) -> MessageFormat:
        """Messages are 1, a token, and 0, its padding."""
        return MessageFormat((2,))

    def parameters(self) -> dict[str, Any]:
        """The public parameters, as JSON."""
        return self.noise.parameters() | {"padded": self.padded}

    def report_pmf(self, index: int) -> dict[tuple[int, ...], Fraction]:
        """The exact distribution of one report, as how many zeros and how many tokens it holds."""
        absence = self.noise.absence.fraction
        pmf: dict[tuple[int, ...], Fraction] = {}
        for noise_tokens, share in ((0, absence), (1, 1 - absence)):
            tokens = check_index(index, 2) + noise_tokens
            pmf[(2 - tokens if self.padded else 0, tokens)] = share
        return pmf

    def randomize(self, index: int, *, source: RandomSource = SYSTEM) -> NDArray[np.uint8]:
        """The randomizer of Figure 1 on one user's bit."""
        noise_token = not bernoulli(self.noise.absence, 1, source)[0]
        tokens = check_index(index, 2) + int(noise_token)
        padding = 2 - tokens if self.padded else 0
        return np.array([1] * tokens + [0] * padding, dtype=np.uint8)

    def randomize_all(self, indices: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        bits = check_indices(indices, 2)
        users = len(bits)
        tokens = bits + 1 - bernoulli(self.noise.absence, users, source)
        if self.padded:
            values = (tokens[:, None] > np.arange(2)).astype(np.uint8).ravel()
            return Messages(values, users, np.arange(0, 2 * users + 1, 2, dtype=np.int64), source.secure)
        offsets = np.concatenate(([0], np.cumsum(tokens)))
        return Messages(np.ones(offsets[-1], dtype=np.uint8), users, offsets, source.secure)

    def tally(self, messages: Messages) -> Tally:
        """How many zeros and ones arrived."""
        bits = check_indices(messages.values, 2)
        tokens = int(np.count_nonzero(bits))
        return Tally(np.array([len(bits) - tokens, tokens], dtype=np.int64), messages.users, messages.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A tally with the distribution of the whole round, from the true numbers of zeros and ones."""
        zeros, ones = (int(count) for count in check_counts(counts, 2))
        users = zeros + ones
        tokens = ones + users - int(binomial(users, self.noise.absence, 1, source)[0])
        zeros = 2 * users - tokens if self.padded else 0
        return Tally(np.array([zeros, tokens], dtype=np.int64), users, source.secure)

    def estimate(self, tally: Tally, *, estimator: str = "threshold") -> CountEstimate:
        """The analyzer of Figure 1, or another estimator by name; whole numbers are compared."""
        check_enough_users(tally.users, self.users)
        self._check_tally(tally)
        analysis = self._analysis(tally.users, estimator)
        surplus = tally.counts[1:] - tally.users
        return CountEstimate(
            protocol=self.name,
            estimator=estimator,
            users=tally.users,
            guarantee=self.guarantee,
            intervals=analysis.intervals(surplus),
            secure=tally.secure,
            value=float(analysis.estimate(surplus)[0]),
            standard_error=float(analysis.standard_errors(surplus)[0]),
            threshold_at=analysis.withheld_below,
        )

    def run(
        self,
        values: Iterable[Any],
        *,
        estimator: str = "threshold",
        route: str = "auto",
        source: RandomSource = SYSTEM,
    ) -> CountEstimate:
        """The whole flow in this process, from yes/no values to the estimate."""
        indices = self.domain.encode_all(values)
        estimate: CountEstimate = run_round(self, indices, estimator=estimator, route=route, source=source)
        return estimate

    def expected_error(
        self,
        *,
        estimator: str = "threshold",
        confidence: float = 0.95,
        counts: NDArray[np.int64] | None = None,
    ) -> ExpectedError:
        """The predicted error of the estimated count, or of a given true count of ones."""
        return self._analysis(self.users, estimator, 1 - confidence).expected_error(counts)

    def _check_tally(self, tally: Tally) -> None:
        """Two messages from each user if padded, at most two otherwise."""
        if len(tally.counts) != 2 or not (tally.counts[1] <= 2 * tally.users):
            raise ParameterError(f"This is no tally of zeros and ones from {tally.users:,} users.")
        if self.padded and int(tally.counts.sum()) != 2 * tally.users:
            raise ParameterError(
                f"{tally.users:,} users send {2 * tally.users:,} padded messages, not {int(tally.counts.sum()):,}."
            )

    def _analysis(self, users: int, estimator: str, risk: float = 0.05) -> SurplusAnalysis:
        return surplus_analysis(Binomial(users, self.noise.absence), 1, estimator, risk)


def theorem_11_alpha(users: int, epsilon: float, delta: float, beta: float) -> float:
    """Theorem 11 (ii): the share of users by which the estimate errs at most, except with probability beta.

    Conditions: those of the theorem, and beta >= delta^25.
    """
    mean = corollary_24_mean(users, epsilon, delta)
    if not (beta < 1 and math.log(beta) >= 25 * math.log(delta)):
        raise ConditionError(f"Theorem 11 (ii) needs delta^25 <= beta < 1; given beta = {beta:g}.", beta=beta)
    return (mean + math.sqrt(200 * math.log(2 / delta) * math.log(2 / beta)) / epsilon) / users
