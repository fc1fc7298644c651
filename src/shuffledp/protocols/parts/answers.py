"""Base of protocols in which every user sends one index by randomized response, local or shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, check_counts, check_index, check_indices
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.parts.response import respond, response_analysis, response_pmf, sample_responses
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.protocol import Pmf
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource


class _Answer(SingleMessageProtocol):
    """One index below ``domain_size``: the true one, or with probability ``blanket`` a uniform one."""

    if TYPE_CHECKING:  # a field of the protocol, or derived from one

        @property
        def blanket(self) -> Dyadic: ...

        @property
        def domain_size(self) -> int: ...

    @property
    def message_format(self) -> MessageFormat:
        """An index."""
        return MessageFormat((self.domain_size,))

    def report_pmf(self, value: int) -> Pmf:
        """One message: the true index, or a uniform one."""
        return response_pmf(check_index(value, self.domain_size), self.domain_size, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        answers = respond(check_indices(values, self.domain_size), self.domain_size, self.blanket, source)
        return one_message_each(answers.astype(self.message_format.dtype), source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The tally of all answers, without drawing them one by one."""
        return sample_responses(check_counts(counts, self.domain_size), self.blanket, source)


@dataclass(frozen=True)
class AnswerHistogram(_Answer, HistogramProtocol):
    """Answers about a category."""

    blanket: Dyadic
    """The probability of sending a uniform category instead of the true one."""
    domain_size: int
    categories: Categories | None = None

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    def analysis(self, users: int) -> LinearAnalysis:
        """From the probabilities that a user sends their own category, and that they send another one."""
        return response_analysis(users, self.domain_size, self.blanket)


class AnswerCount(_Answer, CountProtocol):
    """Answers about a bit."""

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of ones."""
        return tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """Linear in the number of ones; the variance is the same for every true count."""
        return response_analysis(users, 2, self.blanket, numbers=1)
