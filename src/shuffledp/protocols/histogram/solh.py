"""SOLH of Wang, Ding, Xu and others (2020): shuffled randomized response on a hash of the category.

Each user draws a hash function to hundreds of buckets or more, and sends it with the bucket of their category,
randomized by randomized response. The size of a message does not grow with the domain. Two categories in the same
bucket are indistinguishable, so the privacy is at least that of shuffled randomized response on the buckets, for every
family of hash functions.

Accounting: ``shuffledp.privacy.amplification.privacy_blanket``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_index, check_indices
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.messages import Messages
from shuffledp.privacy.amplification import BlanketCurve
from shuffledp.privacy.amplification.blanket_search import excess_of, typical_mean
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.shuffled_k_rr import theorem_31_mean
from shuffledp.protocols.parts.hashed_reports import HashedHistogram
from shuffledp.protocols.parts.hashing import AffineHashes, least_prime
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.response import respond, response_epsilon
from shuffledp.protocols.parts.single_message import (
    SingleMessageProtocol,
    check_listed,
    one_message_each,
    single_message_pmf,
)
from shuffledp.protocols.parts.supports import support_analysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource
from shuffledp.randomness.dyadic import check_uncertain
from shuffledp.search import find_bracket, narrow

_MAX_LISTED = 100_000
_LARGEST_LOGIT = math.log(999)  # a blanket of 0.999, with which hardly any report is true
_LEAST_LOGIT = -42.0
_MAX_BUCKETS = 1 << 30
_TRIAL_EPSILON = 1.0
_TRIAL_USERS = 2_000  # the best number of buckets per user hardly depends on the number of users
_FIRST_TRIAL = 0.05  # buckets per user


@dataclass(frozen=True)
class ShuffledLocalHashing(SingleMessageProtocol, HashedHistogram):
    """A histogram by randomized response on a hash, one message per user (Wang and others 2020); shuffled.

    Options of ``calibrate``:

    - ``buckets``: the range of the hash functions; by default the one with the least error.
    """

    name: ClassVar[str] = "solh"

    blanket: Dyadic
    """The probability of sending a uniform bucket instead of the true one."""
    buckets: int
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.hashes  # raises an error if the domain cannot be hashed
        check_uncertain("blanket", self.blanket)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, buckets: int | None = None) -> Self:
        """The least blanket for the number of buckets, which is chosen for the least error unless given."""
        size, named = cls.domain_fields(domain)
        if target.calibration == "paper":
            chosen, blanket = _paper_parameters(target, buckets)
        else:
            chosen = buckets or _best_buckets(target, size)
            least = _least_blanket(target.honest_users, chosen, target)
            if least is None:
                raise InfeasibleError(
                    f"{target.honest_users:,} users are too few for hashes in {chosen:,} buckets with "
                    f"epsilon = {target.epsilon:g} and delta = {target.delta:g}: nearly every answer would be random. "
                    "More users or a larger epsilon help.",
                    users=target.honest_users,
                    buckets=chosen,
                )
            blanket = least
        return cls(target, blanket, chosen, size, named)

    @cached_property
    def hashes(self) -> AffineHashes:
        """The public family of hash functions."""
        return AffineHashes.for_domain(self.domain_size, self.buckets)

    @cached_property
    def guarantee(self) -> Guarantee:
        """That of randomized response on the buckets, by the privacy blanket; collisions only improve it."""
        curve = BlanketCurve(self.target.honest_users, self.blanket, self.buckets)
        local = response_epsilon(self.buckets, self.blanket)
        return self.target.guarantee(curve, theorem=curve.theorem, local_epsilon=local)

    def report_pmf(self, value: int) -> Pmf:
        """A uniform hash function, with the value's bucket or a uniform one."""
        owned = np.array([check_index(value, self.domain_size)])
        codes = self.message_format.codes
        check_listed(codes, max_codes=_MAX_LISTED)
        factor, shift, bucket = self.message_format.message(np.arange(codes)).T
        own = self.hashes.apply(factor, shift, owned) == bucket
        other = self.blanket.fraction / codes
        added = self.blanket.complement.fraction * self.buckets / codes
        return single_message_pmf([other + (added if own[code] else 0) for code in range(codes)], max_codes=_MAX_LISTED)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        factor, shift = self.hashes.draw(len(owned), source)
        own = self.hashes.apply(factor, shift, owned).astype(np.int64)
        sent = self.message_format.empty(len(owned))
        sent[:, 0], sent[:, 1] = factor, shift
        sent[:, 2] = respond(own, self.buckets, self.blanket, source)
        return one_message_each(sent, source)

    def analysis(self, users: int) -> LinearAnalysis:
        """From the exact probabilities that a report agrees with its user's category, and with another one."""
        own, other = _agreement(float(self.blanket), self.buckets, float(self.hashes.collision))
        return support_analysis(users, self.domain_size, own, other)


def _agreement(blanket: float, buckets: int, collision: float) -> tuple[float, float]:
    """The probabilities that a report agrees with its user's category and with another one."""
    return 1 - blanket + blanket / buckets, (1 - blanket) * collision + blanket / buckets


def _best_buckets(target: Target, size: int) -> int:
    """The number of buckets with about the least error, among powers of four times a first guess.

    A small domain is hashed without collisions: the number of buckets is a prime that is not below its size. The error
    depends almost only on the buckets per user times epsilon squared, so the search uses a smaller round with a larger
    epsilon.
    """
    share = _FIRST_TRIAL * min(1.0, target.epsilon) ** 2
    if size <= max(2, share * target.honest_users):
        return least_prime(max(size, 3))
    trial = replace(target, epsilon=max(target.epsilon, _TRIAL_EPSILON))
    users = min(target.honest_users, _TRIAL_USERS)
    scale = target.honest_users / users * (target.epsilon / trial.epsilon) ** 2
    fewest, largest = math.ceil(2 / scale), min(size, _MAX_BUCKETS) / scale

    def rmse(buckets: int) -> float:
        blanket = _least_blanket(users, buckets, trial, precision=0.2)
        if blanket is None:
            return math.inf
        full_scale = round(buckets * scale)
        collision = float(AffineHashes.for_domain(size, full_scale).collision)
        own, other = _agreement(float(blanket), full_scale, collision)
        return support_analysis(target.users, size, own, other).expected_error(0.5).rmse

    best = max(fewest, round(_FIRST_TRIAL * users))
    least = rmse(best)
    for factor in (4, 0.25):
        start = best
        while (following := max(fewest, round(min(best * factor, largest)))) != best:
            error = rmse(following)
            if error > least or (factor > 1 and error == math.inf):
                break
            best, least = following, error
        if best != start:
            break
    return round(best * scale)


def _least_blanket(users: int, buckets: int, target: Target, *, precision: float = 1e-6) -> Dyadic | None:
    """The least blanket, by the privacy blanket alone: other proofs for randomized response do not cover hashes.

    The search ends once delta is within the relative ``precision``; None if no blanket meets the target.
    """
    excess = excess_of(
        lambda logit: BlanketCurve(users, _blanket_at(logit), buckets).delta_at(target.epsilon), target.delta
    )
    share = min(typical_mean(target.epsilon, target.delta) * buckets / users, 0.5)
    guess = math.log(share / (1 - share))
    bracket = find_bracket(excess, guess, _LEAST_LOGIT, _LARGEST_LOGIT, step=0.1, growth=2.0)
    if bracket is None:
        return None
    logit = narrow(
        excess,
        bracket,
        next_point=lambda ends: ends.secant_from_high(0.02, 0.002),
        enough=lambda ends: ends.width <= 1e-8 or -precision < ends.weight_high <= 0,
    )
    return _blanket_at(logit)


def _blanket_at(logit: float) -> Dyadic:
    return Dyadic.at_least(1 / (1 + math.exp(-logit)))


def _paper_parameters(target: Target, buckets: int | None) -> tuple[int, Dyadic]:
    """The number of buckets and the blanket, which is buckets / m, where m = (n - 1) / (least reports per bucket).

    The variance is least at (m + 2)/3 buckets.
    """
    largest = (target.honest_users - 1) / theorem_31_mean(target.epsilon, target.delta)
    chosen = buckets or round((largest + 2) / 3)
    if chosen < 2 or chosen >= largest:
        origin = "would be best" if buckets is None else "were given"
        raise ConditionError(
            "Theorem 3.1 of Balle et al. 2019 on hashes needs 2 or more buckets and fewer than "
            f"(n - 1)/max(14 ln(2/delta)/epsilon^2, 27/epsilon) = {largest:.4g} "
            f"with {target.honest_users:,} honest users; {chosen:,} {origin}.",
            buckets=chosen,
            largest=largest,
        )
    return chosen, Dyadic.at_least(chosen / largest)
