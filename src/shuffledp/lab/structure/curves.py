"""Exact privacy curves of a randomizer and of its shuffled protocol, with the worst case as a witness.

An observer of the randomizer sees one user's messages in order. An observer of the shuffled protocol sees how often
each message was sent by all users together. Both distributions are compared over all neighbouring data sets (one
user's value is replaced), outcome by outcome, in integer arithmetic.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations

from shuffledp.checks import check_number_of_users
from shuffledp.lab.structure.channels import Channel, Message, Value
from shuffledp.lab.structure.exact_ratios import Exact, Ratio, check_ratio, epsilon_above, float_above, growth_below
from shuffledp.privacy.amplification.multisets import (
    MAX_ENUMERATED_USERS,
    Numbering,
    check_enumerable,
    data_set_pmfs,
    data_sets,
)

DataSet = tuple[Value, ...]
Outcome = tuple[Message, ...]
Rows = tuple[int, ...]  # a data set as the row numbers of its values
Weights = Mapping[int, int]


@dataclass(frozen=True)
class Witness:
    """Two neighbouring data sets and an event that distinguishes them, with its exact probability under each."""

    first: DataSet
    second: DataSet
    event: tuple[Outcome, ...]
    """The outcomes of the event: one user's messages in the order sent, or all shuffled messages, sorted."""
    first_probability: Fraction
    second_probability: Fraction

    @property
    def ratio(self) -> Ratio:
        """The probability under the first data set divided by that under the second; infinite if the latter is 0."""
        return self.first_probability / self.second_probability if self.second_probability else math.inf

    def excess(self, ratio: Exact) -> Fraction:
        """A lower bound on delta at e^epsilon = ratio that this event proves; it may be negative."""
        return self.first_probability - check_ratio(ratio) * self.second_probability


class EnumeratedCurve(ABC):
    """Exact privacy over finitely many pairs of neighbours, each with finitely many outcomes."""

    channel: Channel

    @cached_property
    def witness(self) -> Witness | None:
        """The neighbours and the outcome with the largest ratio, or None if there are no neighbours."""
        likelier, less_likely, worst = 0, 1, None
        for first, second in self._neighbours():
            other = self._table(second)
            for seen, weight in self._table(first).items():
                other_weight = other.get(seen, 0)
                # an infinite ratio exceeds every finite one; among infinite ratios the most probable outcome wins
                better = (
                    weight > likelier
                    if other_weight == less_likely == 0
                    else weight * less_likely > likelier * other_weight
                )
                if better:
                    likelier, less_likely, worst = weight, other_weight, (first, second, seen)
        return None if worst is None else self._witness(worst[0], worst[1], (worst[2],))

    @property
    def ratio(self) -> Ratio:
        """e^epsilon of pure privacy: the largest ratio of an outcome's probabilities, exact or infinite."""
        return Fraction(1) if self.witness is None else self.witness.ratio

    @property
    def epsilon(self) -> float:
        """The smallest epsilon of pure privacy, rounded up; infinite if there is none."""
        return epsilon_above(self.ratio)

    def witness_at_ratio(self, ratio: Exact) -> Witness | None:
        """The neighbours and the event that require the largest delta at e^epsilon = ratio, or None if delta is 0."""
        factor = check_ratio(ratio)
        _, worst = self._largest_excess(factor)
        if worst is None:
            return None
        other = self._table(worst[1])
        event = (seen for seen, mass in self._table(worst[0]).items() if mass > factor * other.get(seen, 0))
        return self._witness(*worst, tuple(event))

    def delta_at_ratio(self, ratio: Exact) -> Fraction:
        """The smallest delta that holds with e^epsilon = ratio, exactly."""
        return self._largest_excess(check_ratio(ratio))[0]

    def _largest_excess(self, factor: Fraction) -> tuple[Fraction, tuple[Rows, Rows] | None]:
        """The largest hockey-stick divergence of order ``factor`` between neighbours, and the neighbours."""
        scale, growth = factor.denominator, factor.numerator
        largest, worst = 0, None
        for first, second in self._neighbours():
            other = self._table(second)
            excess = 0
            for seen, weight in self._table(first).items():
                more = scale * weight - growth * other.get(seen, 0)
                if more > 0:
                    excess += more
            if excess > largest:
                largest, worst = excess, (first, second)
        return Fraction(largest, scale * self._total), worst

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the smallest delta that holds with this epsilon; the difference is rounding only."""
        return float_above(self.delta_at_ratio(growth_below(epsilon)))

    def _witness(self, first: Rows, second: Rows, event: tuple[int, ...]) -> Witness:
        mass, other = (
            Fraction(sum(self._table(data).get(seen, 0) for seen in event), self._total) for data in (first, second)
        )
        return Witness(self._data(first), self._data(second), tuple(map(self._outcome, event)), mass, other)

    def _data(self, rows: Rows) -> DataSet:
        return tuple(self.channel.values[row] for row in rows)

    @abstractmethod
    def _table(self, data: Rows) -> Weights:
        """The outcomes of a data set by number, with integer weights that sum to ``_total``."""

    @property
    @abstractmethod
    def _total(self) -> int: ...

    @abstractmethod
    def _neighbours(self) -> Iterator[tuple[Rows, Rows]]:
        """All ordered pairs of neighbouring data sets."""

    @abstractmethod
    def _outcome(self, seen: int) -> Outcome: ...


@dataclass(frozen=True)
class RandomizerCurve(EnumeratedCurve):
    """The exact privacy of one user's messages in the order sent, that is, without a shuffler.

    ``RandomizerCurve(channel.preshuffled)`` is the privacy if each user shuffles their own messages before sending.
    """

    channel: Channel

    def _table(self, data: Rows) -> Weights:
        return self._tables[data[0]]

    @cached_property
    def _tables(self) -> list[Weights]:
        values, outputs = len(self.channel.values), len(self.channel.outputs)
        check_enumerable(users=1, values=values, outcomes=outputs)
        return [{output: weight for output, weight in enumerate(row) if weight} for row in self.channel.weights]

    @property
    def _total(self) -> int:
        return self.channel.denominator

    def _neighbours(self) -> Iterator[tuple[Rows, Rows]]:
        for first, second in permutations(range(len(self.channel.values)), 2):
            yield (first,), (second,)

    def _outcome(self, seen: int) -> Outcome:
        return self.channel.outputs[seen]


@dataclass(frozen=True)
class ShuffledCurve(EnumeratedCurve):
    """The exact privacy of the shuffled messages of ``users`` users, over all data sets.

    Epsilon does not increase with the number of users: one more user's messages are independent of the others, so
    adding them is post-processing.
    """

    channel: Channel
    users: int

    def __post_init__(self) -> None:
        check_number_of_users(self.users, max_users=MAX_ENUMERATED_USERS)

    @cached_property
    def outcomes(self) -> int:
        """Upper bound on the number of possible multisets of messages."""
        channel, kinds = self.channel, max(1, len(self.channel.messages))
        sent = self.users * channel.max_messages
        if any(len(output) < channel.max_messages for output in channel.outputs):
            kinds += 1  # stands for a message that is not sent
        of_messages = math.comb(sent + kinds - 1, sent)
        different = len(channel.preshuffled.outputs)
        return min(of_messages, math.comb(self.users + different - 1, self.users))

    def _table(self, data: Rows) -> Weights:
        return self._tables[tuple(sorted(data))]  # the shuffler hides the order of the users

    @cached_property
    def _tables(self) -> dict[Rows, dict[int, int]]:
        check_enumerable(users=self.users, values=len(self.channel.values), outcomes=self.outcomes)
        kind = {message: number for number, message in enumerate(self.channel.messages)}
        reports: list[dict[int, int]] = []
        for row in self.channel.weights:
            report: dict[int, int] = {}
            for output, weight in zip(self.channel.outputs, row, strict=True):
                if weight:
                    number = self._numbering.number(kind[message] for message in output)
                    report[number] = report.get(number, 0) + weight
            reports.append(report)
        return data_set_pmfs(reports, self.users)

    @property
    def _numbering(self) -> Numbering:
        return Numbering(len(self.channel.messages), self.users * self.channel.max_messages)

    @cached_property
    def _total(self) -> int:
        total: int = self.channel.denominator**self.users
        return total

    def _neighbours(self) -> Iterator[tuple[Rows, Rows]]:
        values = len(self.channel.values)
        for others in data_sets(values, self.users - 1):
            yield from permutations([(row, *others) for row in range(values)], 2)

    def _outcome(self, seen: int) -> Outcome:
        return tuple(self.channel.messages[kind] for kind in self._numbering.messages(seen))


@dataclass(frozen=True)
class PureRatios:
    """The exact e^epsilon of pure privacy against three observers."""

    randomizer: Ratio
    """The observer sees one user's messages in order."""
    preshuffled: Ratio
    """The observer sees one user's messages, shuffled by the user."""
    shuffled: Mapping[int, Ratio]
    """The observer sees the shuffled messages of all users; by the number of users."""


def pure_ratios(channel: Channel, users: Iterable[int]) -> PureRatios:
    """The ratios of a channel for all three observers, the last one for each number of users."""
    return PureRatios(
        RandomizerCurve(channel).ratio,
        RandomizerCurve(channel.preshuffled).ratio,
        {count: ShuffledCurve(channel, count).ratio for count in users},
    )
