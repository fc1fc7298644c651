"""Single-message protocols: Claim 18 of Balcer and Cheu (2020) and Theorem 6.2 of Cheu and others (2019).

Claim 18: if a single-message shuffled protocol is epsilon-private for some number of users, so is its randomizer
alone. The converse holds by post-processing, so both have the same epsilon for every number of users. With a positive
delta shuffling can reduce epsilon, but by at most ln(users) (Theorem 6.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shuffledp.checks import check_epsilon, check_number_of_users
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.lab.structure.channels import Channel, Message, Value
from shuffledp.lab.structure.curves import DataSet, RandomizerCurve, ShuffledCurve
from shuffledp.lab.structure.exact_ratios import Exact, Ratio, check_ratio, exceeds
from shuffledp.privacy.amplification.multisets import MAX_ENUMERATED_USERS


def check_single_message(channel: Channel, statement: str) -> None:
    """Raise a ConditionError unless every output of the channel is exactly one message."""
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
    """The event of the proof of Claim 18: all ``users`` messages lie in a set, and all users hold ``value``.

    In the neighbouring data set one user holds ``other`` instead. The event does not depend on the order of the
    messages, so shuffling does not change its probability, and the other users' factors cancel in the ratio.
    """

    channel: Channel
    value: Value
    other: Value
    messages: tuple[Message, ...]
    users: int

    def __post_init__(self) -> None:
        check_single_message(self.channel, "Claim 18")
        check_number_of_users(self.users, max_users=MAX_ENUMERATED_USERS)
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
        return self._probability(self.value) ** self.users

    @property
    def second_probability(self) -> Fraction:
        """The exact probability of the event under the second data set."""
        return self._probability(self.other) * self._probability(self.value) ** (self.users - 1)

    @property
    def ratio(self) -> Ratio:
        """The probability of the event under the first data set divided by that under the second."""
        return self.first_probability / self.second_probability if self.second_probability else math.inf

    def _probability(self, value: Value) -> Fraction:
        return self.channel.probability(value, ((message,) for message in self.messages))


def claim_18_witness(
    channel: Channel, users: int, *, ratio: Exact | None = None, epsilon: float | None = None
) -> RepeatedMessages | None:
    """None if the randomizer is epsilon-private, else an event that proves that the shuffled protocol is not either.

    Give epsilon, or e^epsilon as an exact ``ratio``; both are compared exactly. The set of the returned event is the
    single message with the largest probability ratio of two values; no other set has a larger one.
    """
    check_single_message(channel, "Claim 18")
    if (ratio is None) == (epsilon is None):
        raise ParameterError("Give either epsilon or the exact ratio e^epsilon.", ratio=ratio, epsilon=epsilon)
    check_number_of_users(users, max_users=MAX_ENUMERATED_USERS)
    worst = RandomizerCurve(channel).witness
    if worst is None:  # a single value: there are no neighbouring data sets
        return None
    event = RepeatedMessages(channel, worst.first[0], worst.second[0], worst.event[0], users)
    if epsilon is not None:
        return event if exceeds(event.ratio, epsilon) else None
    return event if event.ratio > check_ratio(ratio) else None


def pure_epsilons_agree(channel: Channel, users: int) -> bool:
    """Whether the shuffled protocol has exactly the pure epsilon of its randomizer.

    By Claim 18 this holds for every single-message channel. It may be false for channels with several messages.
    """
    return ShuffledCurve(channel, users).ratio == RandomizerCurve(channel).ratio


def theorem_6_2_epsilon(epsilon: float, users: int) -> float:
    """The local epsilon, at the same delta, of a single-message protocol that is (epsilon, delta)-private if shuffled.

    Cheu and others (2019), Theorem 6.2: epsilon + ln(users). Proof: all users hold x', then one value is replaced by
    x. The probability that some message lies in a set Y is at most users R(x')(Y) before, and at least R(x)(Y) after.
    """
    check_epsilon(epsilon)
    check_number_of_users(users, max_users=MAX_ENUMERATED_USERS)
    total = epsilon + math.log(users)
    return math.nextafter(math.nextafter(total, math.inf), math.inf) if users > 1 else epsilon


@dataclass(frozen=True)
class LocalAgainstShuffled:
    """The exact deltas that Theorem 6.2 compares, and the ratios e^epsilon at which they hold."""

    shuffled_ratio: Fraction
    """e^epsilon of the shuffled protocol."""
    shuffled_delta: Fraction
    """The smallest delta of the shuffled protocol at that ratio."""
    local_ratio: Fraction
    """``shuffled_ratio`` times the number of users."""
    local_delta: Fraction
    """The smallest delta of the randomizer at that ratio."""

    @property
    def holds(self) -> bool:
        """Whether the inequality of the theorem holds."""
        return self.local_delta <= self.shuffled_delta


def compare_theorem_6_2(channel: Channel, users: int, ratio: Exact) -> LocalAgainstShuffled:
    """The two deltas that Theorem 6.2 compares, for one channel at e^epsilon = ratio."""
    check_single_message(channel, "Theorem 6.2")
    shuffled = check_ratio(ratio)
    return LocalAgainstShuffled(
        shuffled,
        ShuffledCurve(channel, users).delta_at_ratio(shuffled),
        shuffled * users,
        RandomizerCurve(channel).delta_at_ratio(shuffled * users),
    )
