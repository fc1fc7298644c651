"""Balcer and Cheu (2020), Claim 18: with one message per user and pure privacy, shuffling hides nothing.

If a single-message shuffled protocol is epsilon-private for some number of users, its randomizer is
epsilon-private already. The other direction is post-processing, so both have the same epsilon for every number of
users. With a delta something may be gained, but never more than ln(users): Theorem 6.2 of Cheu and others (2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.lab.structure.channels import Channel, Message, Value
from shuffledp.lab.structure.curves import DataSet, RandomizerCurve, ShuffledCurve
from shuffledp.lab.structure.growth import Exact, Ratio, check_epsilon, check_ratio, exceeds
from shuffledp.privacy.amplification.multisets import check_users


def check_single_message(channel: Channel, statement: str) -> None:
    """Refuse a channel that may send no message, or several, with a ConditionError."""
    if not channel.is_single_message:
        wrong = next(output for output in channel.outputs if len(output) != 1)
        raise ConditionError(
            f"{statement} needs exactly one message per user, but the randomizer can send {len(wrong)}: {wrong!r}. "
            "Claims 19 and 20 (shuffledp.lab.structure.counterexamples) show that it fails otherwise.",
            output=wrong,
            messages=len(wrong),
        )


@dataclass(frozen=True)
class RepeatedMessages:
    """The event of the proof: that all ``users`` messages lie in a set, when everybody holds ``value``.

    The neighbour is the data set in which one user holds ``other`` instead. The event does not depend on the order
    of the messages, so the shuffler does not change its probability, and the others' factors cancel in the ratio.
    """

    channel: Channel
    value: Value
    other: Value
    messages: tuple[Message, ...]
    users: int

    def __post_init__(self) -> None:
        check_single_message(self.channel, "Claim 18")
        check_users(self.users)
        self.channel.index(self.value)
        self.channel.index(self.other)

    @property
    def first(self) -> DataSet:
        """The data set (x, ..., x)."""
        return (self.value,) * self.users

    @property
    def second(self) -> DataSet:
        """The data set (x', x, ..., x)."""
        return (self.other, *(self.value,) * (self.users - 1))

    @property
    def first_probability(self) -> Fraction:
        """The exact probability of the event under the first data set."""
        return self._chance(self.value) ** self.users

    @property
    def second_probability(self) -> Fraction:
        """The exact probability of the event under the second data set."""
        return self._chance(self.other) * self._chance(self.value) ** (self.users - 1)

    @property
    def ratio(self) -> Ratio:
        """How many times likelier the event is under the first data set."""
        return self.first_probability / self.second_probability if self.second_probability else math.inf

    def _chance(self, value: Value) -> Fraction:
        return self.channel.probability(value, ((message,) for message in self.messages))


def claim_18_witness(
    channel: Channel, users: int, *, ratio: Exact | None = None, epsilon: float | None = None
) -> RepeatedMessages | None:
    """None if the randomizer is epsilon-private; otherwise the proof that the shuffled protocol is not either.

    Give epsilon, or e^epsilon as an exact ``ratio``; both are compared exactly. The set of the returned event is the
    single message that tells two values apart best: no set has a larger ratio.
    """
    check_single_message(channel, "Claim 18")
    if (ratio is None) == (epsilon is None):
        raise ParameterError("Give either epsilon or the exact ratio e^epsilon.", ratio=ratio, epsilon=epsilon)
    check_users(users)
    worst = RandomizerCurve(channel).witness
    if worst is None:  # a single value: there is nothing to tell apart
        return None
    found = RepeatedMessages(channel, worst.first[0], worst.second[0], worst.event[0], users)
    if epsilon is not None:
        return found if exceeds(found.ratio, epsilon) else None
    return found if found.ratio > check_ratio(ratio) else None


def pure_epsilons_agree(channel: Channel, users: int) -> bool:
    """Whether the shuffled protocol has exactly the pure epsilon of its randomizer.

    Claim 18 says so of every single-message channel. One of several messages is tested all the same, and may fail.
    """
    return ShuffledCurve(channel, users).ratio == RandomizerCurve(channel).ratio


def theorem_6_2_epsilon(epsilon: float, users: int) -> float:
    """The local epsilon, at the same delta, of a single-message protocol that is (epsilon, delta)-private if shuffled.

    Cheu and others (2019), Theorem 6.2: epsilon + ln(users). All users hold x', one is replaced by x, and the event is
    that some message lies in the set Y. Its probability is at least R(x)(Y) after, and at most users R(x')(Y) before.
    """
    check_epsilon(epsilon)
    check_users(users)
    total = epsilon + math.log(users)
    return math.nextafter(math.nextafter(total, math.inf), math.inf) if users > 1 else epsilon


@dataclass(frozen=True)
class LocalAgainstShuffled:
    """Both sides of Theorem 6.2, exact."""

    shuffled_ratio: Fraction
    """e^epsilon of the shuffled protocol."""
    shuffled_delta: Fraction
    """Its least delta there."""
    local_ratio: Fraction
    """The same times the users."""
    local_delta: Fraction
    """The least delta of the randomizer at that ratio."""

    @property
    def holds(self) -> bool:
        """Whether the randomizer is as private as the theorem says."""
        return self.local_delta <= self.shuffled_delta


def compare_theorem_6_2(channel: Channel, users: int, ratio: Exact) -> LocalAgainstShuffled:
    """Theorem 6.2 on one channel, at e^epsilon = ratio: the two deltas that it compares."""
    check_single_message(channel, "Theorem 6.2")
    shuffled = check_ratio(ratio)
    return LocalAgainstShuffled(
        shuffled,
        ShuffledCurve(channel, users).delta_at_ratio(shuffled),
        shuffled * users,
        RandomizerCurve(channel).delta_at_ratio(shuffled * users),
    )
