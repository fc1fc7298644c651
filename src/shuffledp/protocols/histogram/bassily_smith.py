"""The frequency oracle of Bassily and Smith (2015): one randomized sign of a public matrix.

A public matrix of signs has one column per category. A user draws a row, looks up the sign in the column of their
category, and sends the row with the sign, flipped at random. An estimate is the sum, over all reports, of the received
sign times the sign of the category in that row. In the paper the matrix is random, and two columns are orthogonal up to
an error. Here the rows are all 2^m vectors of m bits, and the sign of category x is the parity of the common bits of
the row and x + 1. Over a uniform row the signs of any two categories are independent fair coins, as in the paper, and
any two columns are exactly orthogonal. So the matrix need not be stored, estimates are unbiased, and their error is
exact. A new row for each user also avoids the additional error of the paper's fixed matrix.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.hadamard_response import check_total, odd_parity, sample_from_sets, walsh_hadamard
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.response import blanket_for, respond, response_epsilon
from shuffledp.protocols.parts.single_message import (
    SingleMessageProtocol,
    check_listed,
    one_message_each,
    single_message_pmf,
)
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, integers


@dataclass(frozen=True)
class BassilySmith(SingleMessageProtocol, HistogramProtocol):
    """A histogram from one randomized sign per user (Bassily and Smith 2015); local, delta 0."""

    name: ClassVar[str] = "bassily-smith"
    trust: ClassVar[str] = "local"

    blanket: Dyadic
    """The probability of sending a fair coin as the sign."""
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered) -> Self:
        """Locally epsilon-private; delta is not needed, and the paper's constants are optimal."""
        size, named = cls.domain_fields(domain)
        return cls(target.pure(), blanket_for(2, target.epsilon), size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy: the row is independent of the value, and the sign is randomized response."""
        return self.target.local_guarantee(response_epsilon(2, self.blanket), theorem="exact ratio")

    @cached_property
    def rows(self) -> int:
        """Number of rows of the public matrix: the least power of two above the number of categories."""
        return 1 << self.domain_size.bit_length()

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message adds 1 to a category, subtracts 1, or does neither."""
        return -1.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A row of the matrix, and 1 for the sign -1."""
        return MessageFormat((self.rows,), flags=1)

    def report_pmf(self, value: int) -> Pmf:
        """A uniform row; its sign at the value, or the other one."""
        index = check_index(value, self.domain_size)
        check_listed(self.message_format.codes)
        flipped = self.blanket.fraction / 2
        pmf = np.full(2 * self.rows, flipped / self.rows, dtype=object)
        pmf[self._set_of(index)] = (1 - flipped) / self.rows
        return single_message_pmf(pmf.tolist())

    def _set_of(self, value: int) -> NDArray[np.int64]:
        """The codes of all rows with the value's own sign."""
        rows = np.arange(self.rows)
        return 2 * rows + odd_parity(rows & (value + 1))

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        owned = check_indices(values, self.domain_size)
        rows = integers(self.rows, len(owned), source).astype(np.int64)
        signs = odd_parity(rows & (owned + 1)).astype(np.int64)
        messages = self.message_format.empty(len(owned))
        messages[:, 0], messages[:, 1] = rows, respond(signs, 2, self.blanket, source)
        return one_message_each(messages, source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """From counts if there are more users than entries of the matrix, else from messages."""
        true = check_counts(counts, self.domain_size)
        if int(true.sum()) <= self.domain_size * self.rows:
            return super().sample_tally(true, source=source)
        return sample_from_sets(true, self.blanket, self._set_of, 2 * self.rows, source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one sign per user."""
        check_total(tally, 2 * self.rows)

    def observed(self, tally: Tally) -> NDArray[Any]:
        """For each category, the number of received signs that equal its own minus the number of others."""
        positive, negative = tally.counts.reshape(-1, 2).T
        return walsh_hadamard(positive - negative)[1 : self.domain_size + 1]

    def analysis(self, users: int) -> LinearAnalysis:
        """Every user adds a sign, whose mean is positive for the own category and 0 for any other."""
        slope = float(self.blanket.complement)
        return LinearAnalysis(
            offset=0.0,
            slope=slope,
            error=IndependentTerms(
                base_variance=users / slope**2, variance_per_holder=-1.0, largest_term=1 + 1 / slope
            ),
            largest=users,
            numbers=self.domain_size,
        )
