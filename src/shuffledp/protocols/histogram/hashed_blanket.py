"""FE1 of Luo, Wang and Yi (2022): the hash of the true value, hidden by uniform hashes that users add.

A message is a newly drawn hash function and a bucket: that of the user's value, or in the added messages a uniform one.
The number of messages depends on the number of buckets, not on the size of the domain.

Accounting: ``shuffledp.privacy.amplification.hashed_blanket``.
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

from shuffledp.domain import Categories, Numbered, check_index, check_indices
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Messages
from shuffledp.privacy.amplification import Slots, least_slots
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.blanket import (
    BLANKET_THEOREM,
    BlanketProtocol,
    blanket_offsets,
    blanket_report_pmf,
    most_buckets,
    paper_blanket_mean,
    slots_of,
    too_few_users,
)
from shuffledp.protocols.parts.hashed_reports import HashedHistogram
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.single_message import check_listed
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, integers

_LEAST_DOMAIN = 4
_MAX_BUCKETS = 1 << 30
_MAX_LISTED = 10_000
_WORTH_A_COIN = 0.995  # a random number of messages saves at least this share of them


@dataclass(frozen=True)
class HashedBlanketHistogram(BlanketProtocol, HashedHistogram):
    """A histogram of hashed values among uniform ones, for large domains (Luo, Wang and Yi 2022, FE1); shuffled.

    Options of ``calibrate``:

    - ``most_messages``: maximum number of messages per user.
    - ``buckets``: the range of the hash functions; chosen from ``most_messages`` unless given.
    """

    name: ClassVar[str] = "hashed-blanket"

    blanket: Slots
    """Number of uniform messages that each user adds."""
    buckets: int
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.hashes  # raises an error if the domain cannot be hashed

    @classmethod
    def for_target(
        cls, target: Target, domain: Categories | Numbered, *, buckets: int | None = None, most_messages: int = 2
    ) -> Self:
        """The fewest messages for the number of buckets; by default the most buckets that ``most_messages`` allow.

        More buckets have fewer collisions and need more messages.
        """
        size, named = cls.domain_fields(domain)
        largest = min(size // 2, _MAX_BUCKETS)
        if size < _LEAST_DOMAIN or (buckets is not None and not 2 <= buckets <= largest):
            raise InfeasibleError(
                f"Hashing needs 2 or more buckets, and at least twice as many categories; given {buckets or 2:,} "
                f"buckets for {size:,} categories. The protocol uniform-blanket needs no hashes.",
                buckets=buckets,
                domain_size=size,
            )
        if most_messages < 2:
            raise ParameterError(f"At least 2 messages are needed, not {most_messages}.", most_messages=most_messages)
        added = most_messages - 1
        honest = target.honest_users
        if target.calibration == "paper":
            mean = paper_blanket_mean(target.epsilon, target.delta)
            chosen = buckets or min(largest, math.floor(honest * added / mean))
            if chosen < 2:
                raise too_few_users(honest, most_messages, math.ceil(2 * mean / honest) + 1)
            return cls(target, slots_of(mean * chosen / honest), chosen, size, named)

        def collision_of(number: int) -> Fraction:
            return AffineHashes.for_domain(size, number).collision

        chosen = buckets or most_buckets(target, added, largest, collision_of)
        if chosen < 2:
            needed = least_slots(honest, 2, target.epsilon, target.delta, collision=collision_of(2)).mean
            raise too_few_users(honest, most_messages, math.ceil(needed) + 1)
        slots = least_slots(honest, chosen, target.epsilon, target.delta, collision=collision_of(chosen))
        if buckets is None and slots.mean > added * _WORTH_A_COIN:
            slots = Slots(added, Dyadic(0))  # the same number of messages from everybody
        return cls(target, slots, chosen, size, named)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """More messages, fewer collisions."""
        return ({"most_messages": 4}, {"most_messages": 11})

    @cached_property
    def hashes(self) -> AffineHashes:
        """The public family of hash functions."""
        return AffineHashes.for_domain(self.domain_size, self.buckets)

    @cached_property
    def guarantee(self) -> Guarantee:
        """A uniform message agrees with a value with probability 1/buckets, or with two that collide."""
        curve = self.blanket.hashed_curve(self.target.honest_users, self.buckets, self.hashes.collision)
        return self.target.guarantee(curve, theorem=f"{BLANKET_THEOREM}; with the probability of a collision")

    def report_pmf(self, value: int) -> Pmf:
        """A uniform function with the value's bucket, and uniform messages."""
        owned = np.array([check_index(value, self.domain_size)])
        codes = self.message_format.codes
        check_listed(codes, max_codes=_MAX_LISTED)
        factor, shift, bucket = self.message_format.message(np.arange(codes)).T
        own = np.flatnonzero(self.hashes.apply(factor, shift, owned) == bucket)
        return blanket_report_pmf({int(code): Fraction(1, len(own)) for code in own}, codes, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the number of messages does not depend on the values."""
        owned = check_indices(values, self.domain_size)
        offsets = blanket_offsets(len(owned), self.blanket, source)
        sent = self.message_format.empty(int(offsets[-1]))
        sent[:, 0], sent[:, 1] = self.hashes.draw(len(sent), source)
        sent[:, 2] = integers(self.buckets, len(sent), source)
        own = offsets[:-1]
        sent[own, 2] = self.hashes.apply(sent[own, 0], sent[own, 1], owned)
        return Messages(sent, len(owned), offsets, source.secure)

    def analysis(self, users: int) -> LinearAnalysis:
        """Values of other users collide, and uniform messages agree by chance."""
        collision, hit = float(self.hashes.collision), 1 / self.buckets
        collision_variance, slope = collision * (1 - collision), 1 - collision
        extra_hit = float(self.blanket.rest) * hit
        added_variance = self.blanket.whole * hit * (1 - hit) + extra_hit * (1 - extra_hit)
        return LinearAnalysis(
            offset=users * (collision + self.blanket.mean * hit),
            slope=slope,
            error=IndependentTerms(
                base_variance=users * (collision_variance + added_variance) / slope**2,
                variance_per_holder=-collision_variance / slope**2,
                largest_term=1 / slope,
            ),
            largest=users,
            numbers=self.domain_size,
        )
