"""Finite channels: randomizers given by the exact distribution of one user's messages for every value.

An output is the tuple of messages in the order in which the user sends them. Its length may vary and may be 0.
Probabilities are exact rationals, so whether a channel is private never depends on rounding.
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
from shuffledp.lab.structure.exact_ratios import Exact, check_ratio
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
                "A channel needs one row for each value, with one probability for each output.",
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
        """The channel given by the probabilities of the outputs on every value."""
        if not pmfs:
            raise ParameterError("A channel needs at least one value.")
        checked = {value: check_pmf(pmf, _output_on(value)) for value, pmf in pmfs.items()}
        outputs = tuple(dict.fromkeys(output for pmf in checked.values() for output in pmf))
        rows = tuple(tuple(pmf.get(output, Fraction(0)) for output in outputs) for pmf in checked.values())
        return cls(tuple(checked), outputs, rows)

    @classmethod
    def from_matrix(cls, rows: Sequence[Sequence[Exact]]) -> Channel:
        """A single-message channel: row x is the distribution of the message on value x, both numbered from 0."""
        if len({len(row) for row in rows}) > 1:
            raise ParameterError("The rows have different lengths; each needs an entry for every message.")
        return cls.of({value: {(sent,): share for sent, share in enumerate(row)} for value, row in enumerate(rows)})

    @classmethod
    def from_copies(cls, pmfs: Mapping[Value, Mapping[tuple[int, ...], Exact]]) -> Channel:
        """The channel of reports given by the number of copies of each message, as in a protocol's ``report_pmf``.

        For example ``Channel.from_copies({x: protocol.report_pmf(x) for x in range(protocol.domain_size)})``.
        Such a distribution does not define the order of the messages, so each output is sorted.
        """
        return cls.of({value: _expand_copies(check_pmf(pmf, _output_on(value))) for value, pmf in pmfs.items()})

    @classmethod
    def randomized_response(cls, values: int, ratio: Exact) -> Channel:
        """Randomized response: the true value is ``ratio`` times as likely as any other; epsilon is ln(ratio)."""
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
        """All messages that can be sent, sorted."""
        return tuple(_sorted({message for output in self.outputs for message in output}))

    @cached_property
    def max_messages(self) -> int:
        """The maximum number of messages per user."""
        return max(len(output) for output in self.outputs)

    @cached_property
    def preshuffled(self) -> Channel:
        """The channel in which each user shuffles their own messages before sending them.

        A uniformly random order carries no information, so every output is replaced by its multiset, a sorted tuple.
        """
        rank = {message: number for number, message in enumerate(self.messages)}
        pmfs: dict[Value, dict[Output, Fraction]] = {}
        for value in self.values:
            pmfs[value] = {}
            for output, share in self.pmf(value).items():
                multiset = tuple(sorted(output, key=rank.__getitem__))
                pmfs[value][multiset] = pmfs[value].get(multiset, Fraction(0)) + share
        return Channel.of(pmfs)

    def pmf(self, value: Value) -> dict[Output, Fraction]:
        """The outputs with positive probability on a value, and their probabilities."""
        row = self.rows[self.index(value)]
        return {output: share for output, share in zip(self.outputs, row, strict=True) if share}

    def probability(self, value: Value, event: Iterable[Output]) -> Fraction:
        """The probability that the output on a value is one of ``event``."""
        pmf = self.pmf(value)
        return sum((pmf.get(output, Fraction(0)) for output in set(event)), Fraction(0))

    def index(self, value: Value) -> int:
        """The row number of a value; unknown values are rejected."""
        if value not in self.values:
            raise ParameterError(f"The channel has no value {value!r}; it has {_listed(self.values)}.", value=value)
        return self.values.index(value)

    def draw(self, value: Value, source: RandomSource = SYSTEM) -> Output:
        """One output on a value, drawn with exactly its probability."""
        return draw_from(self.pmf(value), source)

    @cached_property
    def denominator(self) -> int:
        """The least common denominator of all probabilities."""
        return math.lcm(*(share.denominator for row in self.rows for share in row))

    @cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """The numerators of all probabilities over ``denominator``."""
        return tuple(tuple(int(share * self.denominator) for share in row) for row in self.rows)


def check_pmf(pmf: Mapping[Outcome, Exact], name: str) -> dict[Outcome, Fraction]:
    """Check that exact probabilities sum to one; returns the outcomes with positive probability."""
    for outcome, share in pmf.items():
        if not isinstance(share, Rational):
            raise ParameterError(
                f"The probability {share!r} of {outcome!r} must be exact, such as Fraction(1, 3); "
                "a float is only close to the decimal number as written.",
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


def _expand_copies(pmf: Mapping[tuple[int, ...], Fraction]) -> dict[Output, Fraction]:
    """Replace the number of copies of each message by the messages themselves."""
    outputs: dict[Output, Fraction] = {}
    for copies, share in pmf.items():
        output = tuple(message for message, count in enumerate(copies) for _ in range(count))
        outputs[output] = outputs.get(output, Fraction(0)) + share  # two keys may differ in trailing zeros only
    return outputs


def _sorted(messages: set[Message]) -> list[Message]:
    """The messages in order; by their representation if they cannot be compared."""
    try:
        return sorted(messages)  # type: ignore[type-var]
    except TypeError:
        return sorted(messages, key=repr)


def _listed(values: tuple[Value, ...]) -> str:
    shown = ", ".join(repr(value) for value in values[:6])
    return shown if len(values) <= 6 else f"{shown} and {len(values) - 6} more"
