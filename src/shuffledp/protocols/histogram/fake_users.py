"""FLIP of Cheu and Zhilyaev (2022): a histogram in which every user also reports for fake users without a value.

A user sends their category as a one-hot row of bits, and ``fake_rows`` rows of zeros. Every bit of every row is flipped
with a small probability. The flipped bits of the fake rows hide the real ones.

Accounting: ``shuffledp.privacy.fake_users``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.privacy.fake_users import FakeRows, least_row_flip, paper_row_flip
from shuffledp.privacy.guarantee import Guarantee, PrivacyCurve
from shuffledp.privacy.pure import PureCurve, log_ratio_above
from shuffledp.protocols.parts.bit_rows import BitRowHistogram
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials

_MAX_LISTED = 100_000


@dataclass(frozen=True)
class FakeUsersHistogram(BitRowHistogram):
    """A histogram from flipped rows of bits, with rows of fake users (Cheu and Zhilyaev 2022); shuffled.

    Options of ``calibrate``:

    - ``fake_rows``: number of fake users that each user adds.
    """

    name: ClassVar[str] = "fake-users"
    grows_with_domain: ClassVar[bool] = True

    flip: Dyadic
    """The probability that a bit is flipped."""
    fake_rows: int
    """Number of rows of zeros that each user adds."""
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fake_rows < 1:
            raise ParameterError(f"At least one fake row is needed, not {self.fake_rows}.", fake_rows=self.fake_rows)
        if 2 * self.flip.numerator >= 1 << self.flip.bits:
            raise ParameterError(f"The flip probability must lie below 1/2, not {self.flip}.", flip=self.flip)

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, fake_rows: int = 1) -> Self:
        """The least flip probability that meets the target, or the paper's."""
        size, named = cls.domain_fields(domain)
        if fake_rows < 1:
            raise ParameterError(f"At least one fake row is needed, not {fake_rows}.", fake_rows=fake_rows)
        if size <= 1:
            return cls(target, Dyadic(0), fake_rows, size, named)  # a single category reveals nothing
        least = least_row_flip if target.calibration == "tight" else paper_row_flip
        return cls(target, least(target.honest_users * fake_rows, target.epsilon, target.delta), fake_rows, size, named)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """More fake rows, fewer flips."""
        return ({"fake_rows": 2}, {"fake_rows": 4})

    @cached_property
    def guarantee(self) -> Guarantee:
        """From the fake rows of the honest users.

        The local guarantee holds for one report: replacing the value changes two bits of the real row, so the
        likelihoods differ by at most a factor of ((1 - flip) / flip)^2, for every position of the real row.
        """
        if self.domain_size == 1:
            return self.target.guarantee(PureCurve(0.0), theorem="a single category", local_epsilon=0.0)
        curve: PrivacyCurve = FakeRows(self.target.honest_users * self.fake_rows, self.flip)
        local = (
            2 * log_ratio_above(self.flip.complement.numerator, self.flip.numerator)
            if self.flip.numerator
            else math.inf
        )
        return self.target.guarantee(curve, theorem="exact divergence of the fake rows", local_epsilon=local)

    @property
    def cost(self) -> Cost:
        """The real row and the fake ones."""
        return Cost(float(self._rows), self._rows, self.message_format.bits)

    @property
    def _rows(self) -> int:
        return 1 + self.fake_rows

    def report_pmf(self, value: int) -> Pmf:
        """Every multiset of rows."""
        owned = check_index(value, self.domain_size)
        if 1 << self.domain_size * self._rows > _MAX_LISTED:
            raise ParameterError(f"Reports of {self._rows} rows of {self.domain_size} bits are too many to list.")
        codes = self.message_format.codes
        real = 1 << (self.domain_size - 1 - owned)  # the first bit is the most significant one of a code
        pmf: dict[tuple[int, ...], Fraction] = {}
        for rows in product(range(codes), repeat=self._rows):
            flips = (rows[0] ^ real).bit_count() + sum(row.bit_count() for row in rows[1:])
            unchanged = self._rows * self.domain_size - flips
            copies = [0] * codes
            for row in rows:
                copies[row] += 1
            mass = self.flip.fraction**flips * self.flip.complement.fraction**unchanged
            pmf[tuple(copies)] = pmf.get(tuple(copies), Fraction(0)) + mass
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the real row comes first, until the messages are shuffled."""
        owned = check_indices(values, self.domain_size)
        rows, size = self._rows * len(owned), self.domain_size
        bits = bernoulli(self.flip, rows * size, source).view(np.uint8).reshape(rows, size)
        bits[np.arange(len(owned)) * self._rows, owned] ^= 1
        offsets = np.arange(len(owned) + 1, dtype=np.int64) * self._rows
        sent = bits.astype(self.message_format.dtype, copy=False)
        return Messages(sent[:, 0] if size == 1 else sent, len(owned), offsets, source.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """A count is the number of 1 bits that are not flipped plus that of 0 bits that are; flips are independent."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        flipped_ones = binomials(true, self.flip, source)
        flipped_zeros = binomials(users * self._rows - true, self.flip, source)
        return Tally(true - flipped_ones + flipped_zeros, users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: no count exceeds the number of rows."""
        if len(tally.counts) != self.domain_size or int(tally.counts.max()) > tally.users * self._rows:
            raise ParameterError(
                f"{tally.users:,} users of this protocol set each of {self.domain_size:,} bits in at most "
                f"{tally.users * self._rows:,} rows.",
                users=tally.users,
            )

    def analysis(self, users: int) -> LinearAnalysis:
        """All bits have the same flip probability, so the variance does not depend on the true counts."""
        flip, slope = float(self.flip), 1 - 2 * float(self.flip)
        rows = users * self._rows
        return LinearAnalysis(
            offset=rows * flip,
            slope=slope,
            error=IndependentTerms(rows * flip * (1 - flip) / slope**2, 0.0, (1 - flip) / slope),
            largest=users,
            numbers=self.domain_size,
        )
