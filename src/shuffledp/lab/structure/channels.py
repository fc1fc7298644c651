"""A randomizer as an explicit finite channel: for every value the exact distribution of what one user sends.

An output is a tuple of messages, in the order in which the user sends them. One message is a tuple of one; a
tuple may be empty, and its length may vary. Probabilities are exact rationals, so that "private" and "not
private" are facts and not matters of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import TypeVar

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.drawing import draw_from
from shuffledp.lab.structure.growth import Exact, check_ratio
from shuffledp.randomness import SYSTEM, RandomSource

Value = Hashable
Message = Hashable
Output = tuple[Message, ...]
Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass(frozen=True)
class Channel:
    """The pmf of the output on each value: ``rows[x][y]`` is the probability of ``outputs[y]`` on ``values[x]``."""

    values: tuple[Value, ...]
    outputs: tuple[Output, ...]
    rows: tuple[tuple[Fraction, ...], ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ParameterError("A channel needs at least one value.")
        if len(self.rows) != len(self.values) or any(len(row) != len(self.outputs) for row in self.rows):
            raise ParameterError(
                "A channel has one row for each value, with one probability for each output.",
                values=len(self.values),
                outputs=len(self.outputs),
                rows=[len(row) for row in self.rows],
            )
        if len(set(self.values)) < len(self.values) or len(set(self.outputs)) < len(self.outputs):
            raise ParameterError("The values of a channel must differ from each other, and so must its outputs.")
        for output in self.outputs:
            if not isinstance(output, tuple):
                raise ParameterError(
                    f"An output is a tuple of messages, not {output!r}; write ({output!r},) for one message.",
                    output=output,
                )
        for value, row in zip(self.values, self.rows, strict=True):
            check_pmf(dict(zip(self.outputs, row, strict=True)), _output_on(value))

    @classmethod
    def of(cls, pmfs: Mapping[Value, Mapping[Output, Exact]]) -> Channel:
        """The channel with these distributions: for every value, its outputs with their probabilities."""
        if not pmfs:
            raise ParameterError("A channel needs at least one value.")
        checked = {value: check_pmf(pmf, _output_on(value)) for value, pmf in pmfs.items()}
        outputs = tuple(dict.fromkeys(output for pmf in checked.values() for output in pmf))
        rows = tuple(tuple(pmf.get(output, Fraction(0)) for output in outputs) for pmf in checked.values())
        return cls(tuple(checked), outputs, rows)

    @classmethod
    def from_matrix(cls, rows: Sequence[Sequence[Exact]]) -> Channel:
        """One message each: row x is the distribution of the message on value x, both numbered from 0."""
        if len({len(row) for row in rows}) > 1:
            raise ParameterError("The rows have different lengths; each needs an entry for every message.")
        return cls.of({value: {(sent,): share for sent, share in enumerate(row)} for value, row in enumerate(rows)})

    @classmethod
    def from_copies(cls, pmfs: Mapping[Value, Mapping[tuple[int, ...], Exact]]) -> Channel:
        """The channel of reports given as copies of each message, as the ``report_pmf`` of a protocol gives them.

        For example ``Channel.from_copies({x: protocol.report_pmf(x) for x in range(protocol.domain_size)})``.
        The order in which a user sends is not part of such a distribution, so the outputs are in order.
        """
        return cls.of({value: _sent(check_pmf(pmf, _output_on(value))) for value, pmf in pmfs.items()})

    @classmethod
    def randomized_response(cls, values: int, ratio: Exact) -> Channel:
        """Send the truth with ``ratio`` times the probability of each other value: epsilon is ln(ratio)."""
        odds = check_ratio(ratio)
        if values < 1:
            raise ParameterError(f"Randomized response needs at least one value, not {values}.", values=values)
        lie = 1 / (odds + values - 1)
        return cls.from_matrix([[odds * lie if sent == x else lie for sent in range(values)] for x in range(values)])

    @property
    def is_single_message(self) -> bool:
        """Whether every output is exactly one message."""
        return all(len(output) == 1 for output in self.outputs)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages that can be sent, in order."""
        return tuple(_in_order({message for output in self.outputs for message in output}))

    @cached_property
    def most_messages(self) -> int:
        """The largest number of messages of one user."""
        return max(len(output) for output in self.outputs)

    @cached_property
    def preshuffled(self) -> Channel:
        """The channel whose user shuffles the own messages before sending.

        A uniformly random order carries nothing, so every output is replaced by its multiset, a sorted tuple.
        """
        place = {message: number for number, message in enumerate(self.messages)}
        pmfs: dict[Value, dict[Output, Fraction]] = {}
        for value in self.values:
            pmfs[value] = {}
            for output, share in self.pmf(value).items():
                multiset = tuple(sorted(output, key=place.__getitem__))
                pmfs[value][multiset] = pmfs[value].get(multiset, Fraction(0)) + share
        return Channel.of(pmfs)

    def pmf(self, value: Value) -> dict[Output, Fraction]:
        """The outputs that are possible on a value, with their probabilities."""
        row = self.rows[self.index(value)]
        return {output: share for output, share in zip(self.outputs, row, strict=True) if share}

    def probability(self, value: Value, event: Iterable[Output]) -> Fraction:
        """The probability that the output on a value is one of ``event``."""
        pmf = self.pmf(value)
        return sum((pmf.get(output, Fraction(0)) for output in set(event)), Fraction(0))

    def index(self, value: Value) -> int:
        """The row of a value, or a ParameterError."""
        if value not in self.values:
            raise ParameterError(f"The channel has no value {value!r}; it has {_listed(self.values)}.", value=value)
        return self.values.index(value)

    def draw(self, value: Value, source: RandomSource = SYSTEM) -> Output:
        """One output on a value, with exactly its probability."""
        return draw_from(self.pmf(value), source)

    @cached_property
    def denominator(self) -> int:
        """The least number that makes every probability whole."""
        return math.lcm(*(share.denominator for row in self.rows for share in row))

    @cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """The probabilities as whole numbers, over ``denominator``."""
        return tuple(tuple(int(share * self.denominator) for share in row) for row in self.rows)


def check_pmf(pmf: Mapping[Outcome, Exact], name: str) -> dict[Outcome, Fraction]:
    """The outcomes that are possible, with exact probabilities that sum to one, or a ParameterError."""
    for outcome, share in pmf.items():
        if not isinstance(share, Rational):
            raise ParameterError(
                f"The probability {share!r} of {outcome!r} must be exact, such as Fraction(1, 3); "
                "a float is not quite the number that is written.",
                probability=share,
            )
        if share < 0:
            raise ParameterError(f"The probability {share} of {outcome!r} is negative.", probability=share)
    total = sum((Fraction(share) for share in pmf.values()), Fraction(0))
    if total != 1:
        raise ParameterError(f"The probabilities of {name} sum to {total}, not to exactly 1.", total=total)
    return {outcome: Fraction(share) for outcome, share in pmf.items() if share}


def _output_on(value: Value) -> str:
    return f"the output on the value {value!r}"


def _sent(pmf: Mapping[tuple[int, ...], Fraction]) -> dict[Output, Fraction]:
    """Copies of each message as the messages themselves."""
    outputs: dict[Output, Fraction] = {}
    for copies, share in pmf.items():
        output = tuple(message for message, count in enumerate(copies) for _ in range(count))
        outputs[output] = outputs.get(output, Fraction(0)) + share  # copies may differ in trailing zeros only
    return outputs


def _in_order(messages: set[Message]) -> list[Message]:
    """Sorted; by how they are written where they cannot be compared."""
    try:
        return sorted(messages)  # type: ignore[type-var]
    except TypeError:
        return sorted(messages, key=repr)


def _listed(values: tuple[Value, ...]) -> str:
    shown = ", ".join(repr(value) for value in values[:6])
    return shown if len(values) <= 6 else f"{shown} and {len(values) - 6} more"
