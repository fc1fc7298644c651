"""Uniform blanket messages that every user adds: their number, and the cost and distribution of reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.amplification import Slots, least_slots
from shuffledp.protocols.protocol import Cost, Pmf, Protocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, RandomSource, bernoulli
from shuffledp.search import bisect_integers

BLANKET_THEOREM = "exact sum over the number of blanket messages that hit either value (Luo, Wang and Yi 2022)"

_MAX_LISTED = 200_000
_TYPICAL_MESSAGES = 50  # per bucket; where the search for the number of buckets starts


class BlanketProtocol(Protocol):
    """A protocol whose reports consist of the user's own message and uniform blanket messages."""

    blanket: Slots

    @property
    def cost(self) -> Cost:
        """The user's own message and the blanket messages."""
        max_messages = 1 + self.blanket.whole + (self.blanket.rest.numerator > 0)
        return Cost(1 + self.blanket.mean, max_messages, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """The user's own message and the messages that are always added."""
        return 1 + self.blanket.whole


def blanket_offsets(users: int, blanket: Slots, source: RandomSource) -> NDArray[np.int64]:
    """Where each report starts among all messages; a report has 1 + ``whole`` messages, or one more with ``rest``."""
    lengths = 1 + blanket.whole + bernoulli(blanket.rest, users, source).astype(np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def blanket_report_pmf(own: Mapping[int, Fraction], codes: int, blanket: Slots) -> Pmf:
    """The pmf of a report of one message with the distribution ``own`` and blanket messages uniform over all codes."""
    longest = blanket.whole + (blanket.rest.numerator > 0)
    if len(own) * math.comb(codes + longest - 1, longest) > _MAX_LISTED:
        raise ParameterError(f"Reports of {longest + 1} messages out of {codes:,} are too many to list.")
    pmf: dict[tuple[int, ...], Fraction] = {}
    rest = blanket.rest.fraction
    for added, chance in ((blanket.whole, 1 - rest), (blanket.whole + 1, rest)):
        if not chance:
            continue
        for drawn in combinations_with_replacement(range(codes), added):
            copies = [0] * codes
            for code in drawn:
                copies[code] += 1
            orders = math.factorial(added) // math.prod(math.factorial(count) for count in copies)
            for code, mass in own.items():
                report = tuple(count + (other == code) for other, count in enumerate(copies))
                pmf[report] = pmf.get(report, Fraction(0)) + chance * mass * Fraction(orders, codes**added)
    return pmf


def slots_of(mean: float) -> Slots:
    """The number of blanket messages per user, with an expected value of at least ``mean``."""
    whole = math.floor(mean)
    return Slots(whole, Dyadic.at_least(mean - whole))


def paper_blanket_mean(epsilon: float, delta: float) -> float:
    """Uniform messages that each cell needs by Luo, Wang and Yi (2022): 32 ln(2/delta)/epsilon^2, epsilon <= 3."""
    if epsilon > 3:
        raise ConditionError(
            f"The constants of Luo, Wang and Yi 2022 need epsilon <= 3, not {epsilon:g}; "
            "the tight calibration has no such limit.",
            epsilon=epsilon,
        )
    return 32 * math.log(2 / delta) / epsilon**2


def most_buckets(
    target: Target, added: int, largest: int, collision_of: Callable[[int], Fraction] | None = None
) -> int:
    """The most buckets for which ``added`` messages per user meet the target; 1 if not even 2 do.

    With more buckets fewer messages hit each of them, which is less private. ``collision_of`` gives the probability
    that two values share one of so many buckets, if they can. The search starts from the number of messages per bucket
    that a similar number of buckets needs, and from the buckets that suffice without collisions.
    """
    slots, users = Slots(added, Dyadic(0)), target.honest_users

    def surely_enough(buckets: int) -> bool:
        return slots.curve(users, buckets).delta_at(target.epsilon) <= target.delta

    def enough(buckets: int) -> bool:
        if collision_of is None:
            return surely_enough(buckets)
        curve = slots.hashed_curve(users, buckets, collision_of(buckets))
        return curve.delta_at(target.epsilon) <= target.delta

    similar = max(2, min(largest, added * users // _TYPICAL_MESSAGES))
    messages_per_bucket = least_slots(users, similar, target.epsilon, target.delta).mean / similar
    low = min(max(2, math.floor(added / messages_per_bucket)), largest)
    step = 1
    while low > 2 and not surely_enough(low):
        low, step = max(2, low - step), 2 * step
    if low == 2 and not enough(2):
        return 1
    high, step = low + 1, max(1, low // 200)
    while high <= largest and enough(high):
        low, high, step = high, high + step, 2 * step
    high = min(high, largest + 1)
    return bisect_integers(lambda buckets: not enough(buckets), low, high) - 1


def too_few_users(users: int, most_messages: int, needed: int) -> InfeasibleError:
    """The error for a target that not even two buckets meet."""
    return InfeasibleError(
        f"{users:,} users with at most {most_messages} messages each are too few even for 2 buckets; "
        f"allow {needed:,} messages (most_messages) or collect from more users.",
        users=users,
        most_messages=most_messages,
        needed=needed,
    )
