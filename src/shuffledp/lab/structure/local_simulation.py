"""Local simulation of single-message shuffled protocols: Theorem 17 of Balcer and Cheu (2020).

The local analyzer permutes the messages uniformly at random and then does what the analyzer of the shuffled protocol
does. Its input has the same distribution as the output of the shuffler, so the results have the same distribution on
every data set. By Claim 18 the randomizer alone has the pure epsilon of the shuffled protocol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import Any

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.channels import Channel, Message, Value, check_pmf
from shuffledp.lab.structure.curves import RandomizerCurve, ShuffledCurve
from shuffledp.lab.structure.drawing import draw_from, permuted
from shuffledp.lab.structure.single_message import check_single_message
from shuffledp.randomness import SYSTEM, RandomSource

Messages = tuple[Message, ...]
OutputPmf = dict[Hashable, Fraction]
Analyzer = Callable[[Messages], Any]
"""Maps the messages, in the order received, to an output, or to a mapping that is the distribution of the output."""

_MAX_CALLS = 500_000


@dataclass(frozen=True)
class ShuffledProtocol:
    """A randomizer, a shuffler and an analyzer: Definition 7 of the paper, for any number of messages per user."""

    randomizer: Channel
    analyzer: Analyzer

    def privacy(self, users: int) -> ShuffledCurve:
        """The exact privacy of the shuffled messages."""
        return ShuffledCurve(self.randomizer, users)

    def output_pmf(self, data: Sequence[Value]) -> OutputPmf:
        """The exact distribution of the output: over the multisets of messages, then over their different orders."""
        multisets: dict[Messages, Fraction] = {(): Fraction(1)}
        rank = {message: number for number, message in enumerate(self.randomizer.messages)}
        for value in data:
            report = self.randomizer.preshuffled.pmf(value)
            longer: dict[Messages, Fraction] = {}
            for seen, mass in multisets.items():
                for sent, share in report.items():
                    joined = tuple(sorted(seen + sent, key=rank.__getitem__))
                    longer[joined] = longer.get(joined, Fraction(0)) + mass * share
            multisets = longer
            _check_calls(sum(_number_of_orders(seen) for seen in multisets))
        pmf: OutputPmf = {}
        for seen, mass in multisets.items():
            for order in _different_orders(Counter(seen)):
                _add(pmf, _output_pmf(self.analyzer, order), mass / _number_of_orders(seen))
        return pmf

    def run(self, data: Sequence[Value], source: RandomSource = SYSTEM) -> Hashable:
        """Randomize, shuffle, analyze."""
        sent = [message for value in data for message in self.randomizer.draw(value, source)]
        return _draw_output(self.analyzer, permuted(sent, source), source)


@dataclass(frozen=True)
class PermutedFirst:
    """The analyzer that permutes the messages uniformly at random and then applies ``analyzer``."""

    analyzer: Analyzer

    def __call__(self, messages: Messages) -> OutputPmf:
        """The exact distribution of the output, over all orders."""
        share = Fraction(1, math.factorial(len(messages)))
        pmf: OutputPmf = {}
        for order in permutations(messages):
            _add(pmf, _output_pmf(self.analyzer, order), share)
        return pmf


@dataclass(frozen=True)
class LocalProtocol:
    """A randomizer, and an analyzer that receives the message of each user, in the order of the users."""

    randomizer: Channel
    analyzer: Analyzer

    @property
    def privacy(self) -> RandomizerCurve:
        """The exact privacy of one user's message, whatever the other users and the analyzer do."""
        return RandomizerCurve(self.randomizer)

    def output_pmf(self, data: Sequence[Value]) -> OutputPmf:
        """The exact distribution of the output, over all outputs of all users in their order."""
        reports = [self.randomizer.pmf(value) for value in data]
        orders = math.factorial(len(data)) if isinstance(self.analyzer, PermutedFirst) else 1
        _check_calls(math.prod(len(report) for report in reports) * orders)
        pmf: OutputPmf = {}
        for sent in product(*(report.items() for report in reports)):
            messages = tuple(message for output, _ in sent for message in output)
            mass = math.prod((share for _, share in sent), start=Fraction(1))
            _add(pmf, _output_pmf(self.analyzer, messages), mass)
        return pmf

    def run(self, data: Sequence[Value], source: RandomSource = SYSTEM) -> Hashable:
        """Randomize and analyze; there is no shuffler."""
        sent = tuple(message for value in data for message in self.randomizer.draw(value, source))
        return _draw_output(self.analyzer, sent, source)


def to_local(protocol: ShuffledProtocol) -> LocalProtocol:
    """The local protocol of Theorem 17: the same output distribution on every data set, and the same pure epsilon.

    Raises a ConditionError if users send several messages: then only the output distribution would be the same.
    """
    check_single_message(protocol.randomizer, "Theorem 17")
    return LocalProtocol(protocol.randomizer, PermutedFirst(protocol.analyzer))


def _output_pmf(analyzer: Analyzer, messages: Messages) -> Mapping[Hashable, Fraction]:
    output = analyzer(messages)
    return check_pmf(output, "the analyzer's output") if isinstance(output, Mapping) else {output: Fraction(1)}


def _draw_output(analyzer: Analyzer, messages: Messages, source: RandomSource) -> Hashable:
    if isinstance(analyzer, PermutedFirst):  # draw one order instead of enumerating all
        return _draw_output(analyzer.analyzer, permuted(messages, source), source)
    return draw_from(_output_pmf(analyzer, messages), source)


def _add(pmf: OutputPmf, more: Mapping[Hashable, Fraction], share: Fraction) -> None:
    for output, probability in more.items():
        pmf[output] = pmf.get(output, Fraction(0)) + share * probability


def _number_of_orders(messages: Messages) -> int:
    return math.factorial(len(messages)) // math.prod(map(math.factorial, Counter(messages).values()))


def _different_orders(copies: Counter[Message]) -> Iterator[Messages]:
    """Every distinct order of a multiset, once."""
    if not copies:
        yield ()
    for message in list(copies):
        for rest in _different_orders(copies - Counter((message,))):
            yield (message, *rest)


def _check_calls(calls: int) -> None:
    if calls > _MAX_CALLS:
        raise ParameterError(
            f"The analyzer would be called {calls:,} times, more than {_MAX_CALLS:,}; use fewer users or messages, "
            "or run the protocol instead.",
            calls=calls,
        )
