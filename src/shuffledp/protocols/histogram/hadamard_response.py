"""Hadamard response: send a uniform output of a set that depends on the category, or any output.

Acharya, Sun and Zhang (2019). Outputs form ``blocks`` of ``width`` columns of a Hadamard matrix. A category belongs to
a block and has a row r > 0 of the matrix; its set consists of the columns of its block where that row is +1, half of
them. Two rows of a block agree in half of the columns, so that other categories cancel. In the paper the outputs of the
set are e^epsilon times as likely as others; equivalently, a user sends a uniform output with probability ``blanket``,
else a uniform one of the set.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.estimate import HistogramEstimate
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.response import blanket_for, response_epsilon
from shuffledp.protocols.parts.single_message import (
    SingleMessageProtocol,
    check_listed,
    one_message_each,
    single_message_pmf,
)
from shuffledp.protocols.protocol import ExpectedError, Pmf, check_estimator
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomials, integers, uniform_counts

Floats = NDArray[np.float64]

_MAX_OUTPUTS = 1 << 62
_BLOCK_SHARE = 0.1  # share of an interval's risk: that a block has more users than its upper bound


@dataclass(frozen=True)
class HadamardResponse(SingleMessageProtocol, HistogramProtocol):
    """A histogram from columns of a Hadamard matrix (Acharya, Sun and Zhang 2019); local, delta 0.

    Options of ``calibrate``:

    - ``blocks``: number of blocks of the matrix, a power of two; the paper's unless given.
    """

    name: ClassVar[str] = "hadamard-response"
    trust: ClassVar[str] = "local"

    blanket: Dyadic
    """The probability of sending a uniform output, independent of the category."""
    blocks: int
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks < 1 or self.blocks & (self.blocks - 1):
            raise ParameterError(f"The number of blocks must be a power of two, not {self.blocks}.", blocks=self.blocks)
        if self.blocks * self.width > _MAX_OUTPUTS:
            raise ParameterError(
                f"{self.blocks:,} blocks of {self.width:,} columns are more than 2^62 messages.", blocks=self.blocks
            )

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """Half of the paper's blocks, which can be better if e^epsilon is slightly above a power of two."""
        size, _ = cls.sizes(settings.get("domain_size"), settings.get("categories"))
        blocks = _paper_blocks(settings["epsilon"], size)
        return ({"blocks": blocks // 2},) if blocks > 1 else ()

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, blocks: int | None = None) -> Self:
        """Locally epsilon-private; delta is not needed. By default with the paper's number of blocks."""
        size, named = cls.domain_fields(domain)
        chosen = _paper_blocks(target.epsilon, size) if blocks is None else blocks
        return cls(target.pure(), blanket_for(2 * chosen, target.epsilon), chosen, size, named)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure local privacy: an output of the set is 1 + 2 blocks (1 - blanket) / blanket times likelier."""
        return self.target.local_guarantee(response_epsilon(2 * self.blocks, self.blanket), theorem="exact ratio")

    @cached_property
    def width(self) -> int:
        """Columns per block: the least power of two with a row for every category besides row 0."""
        return 1 << (-(-self.domain_size // self.blocks)).bit_length()

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message adds 1 to a category, subtracts 1, or does neither."""
        return -1.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A block and a column, as one number."""
        return MessageFormat((self.blocks * self.width,))

    def report_pmf(self, value: int) -> Pmf:
        """Any output, with a higher probability if it is in the value's set."""
        index = check_index(value, self.domain_size)
        check_listed(self.message_format.codes)
        outputs = self.blocks * self.width
        pmf = np.full(outputs, self.blanket.fraction / outputs, dtype=object)
        pmf[self._set_of(index)] += Fraction(2, self.width) * self.blanket.complement.fraction
        return single_message_pmf(pmf.tolist())

    def _set_of(self, value: int) -> NDArray[np.int64]:
        """The set of outputs of this value."""
        block, row = divmod(value, self.width - 1)
        columns = np.arange(self.width)
        return block * self.width + columns[~odd_parity(columns & (row + 1))]

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once."""
        block, row = np.divmod(check_indices(values, self.domain_size), self.width - 1)
        row += 1
        columns = integers(self.width, len(row), source).astype(np.int64)
        columns ^= (row & -row) * odd_parity(columns & row)  # flipping one bit moves a column into the set
        answers = block * self.width + columns
        uniform = np.flatnonzero(bernoulli(self.blanket, len(answers), source))
        answers[uniform] = integers(self.blocks * self.width, len(uniform), source)
        return one_message_each(answers.astype(self.message_format.dtype), source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """From counts if there are more users than outputs of all sets, else from messages."""
        true = check_counts(counts, self.domain_size)
        if int(true.sum()) <= self.domain_size * self.width // 2:
            return super().sample_tally(true, source=source)
        return sample_from_sets(true, self.blanket, self._set_of, self.blocks * self.width, source)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one output per user."""
        check_total(tally, self.blocks * self.width)

    def observed(self, tally: Tally) -> NDArray[Any]:
        """For each category, the number of outputs in its set minus that of the others in its block."""
        decoded = walsh_hadamard(tally.counts.reshape(self.blocks, self.width))
        return decoded[:, 1:].reshape(-1)[: self.domain_size]

    def analysis(self, users: int) -> LinearAnalysis:
        """The worst case, in which the categories of all users are in one block."""
        return self._analysis(users, self._noise(users, users))

    def _analysis(self, users: int, error: IndependentTerms) -> LinearAnalysis:
        return LinearAnalysis(
            offset=0.0, slope=float(self.blanket.complement), error=error, largest=users, numbers=self.domain_size
        )

    def _noise(self, users: int, in_block: float) -> IndependentTerms:
        """The error of a category if ``in_block`` users have a category of its block."""
        slope, uniform = float(self.blanket.complement), float(self.blanket) / self.blocks
        return IndependentTerms(
            base_variance=(users * uniform + in_block * slope) / slope**2,
            variance_per_holder=-1.0,
            largest_term=1 + 1 / slope,
        )

    def estimate(self, tally: Tally, *, estimator: str = "") -> HistogramEstimate:
        """The estimated counts, with errors computed from the estimated number of users of each block."""
        estimate = super().estimate(tally, estimator=estimator)
        if self.blocks == 1:
            return estimate
        analysis = self._analysis(tally.users, self._block_noise(tally))
        observed = self.observed(tally)
        return replace(
            estimate, intervals=analysis.intervals(observed), standard_errors=analysis.standard_errors(observed)
        )

    def _block_noise(self, tally: Tally) -> _BlockNoise:
        slope, uniform = float(self.blanket.complement), float(self.blanket) / self.blocks
        inside = uniform + slope
        sent = tally.counts.reshape(self.blocks, self.width).sum(axis=1)
        return _BlockNoise(
            base_variance=tally.users * uniform / slope**2,
            variance_per_holder=-1.0,
            largest_term=1 + 1 / slope,
            in_block=(sent - tally.users * uniform) / slope,
            in_block_error=IndependentTerms(
                base_variance=tally.users * uniform * (1 - uniform) / slope**2,
                variance_per_holder=(inside * (1 - inside) - uniform * (1 - uniform)) / slope**2,
                largest_term=1 / slope,
            ),
            block_of=np.arange(self.domain_size) // (self.width - 1),
            users=tally.users,
            variance_per_neighbour=1 / slope,
        )

    def _expected(
        self, estimator: str, confidence: float, truth: NDArray[Any] | None = None, *, users: int | None = None
    ) -> ExpectedError:
        """The exact error for given true counts; without them, for users spread evenly over the categories."""
        check_estimator(estimator or self.estimators[0], self.estimators)
        starts = np.arange(0, self.domain_size, self.width - 1)
        sizes = np.diff(starts, append=self.domain_size)
        reports = (users or self.users) if truth is None else int(np.sum(truth))
        users_in_block = reports * sizes / self.domain_size if truth is None else np.add.reduceat(truth, starts)
        largest = float(reports) if truth is None else float(users_in_block.max())
        neighbours = float(sizes @ users_in_block) / self.domain_size
        variance = self._noise(reports, neighbours).variance(np.array([reports / self.domain_size]))
        worst = self._analysis(reports, self._noise(reports, largest)).expected_error(confidence)
        return replace(worst, rmse=math.sqrt(float(variance[0])))


@dataclass(frozen=True, eq=False, kw_only=True)
class _BlockNoise(IndependentTerms):
    """The errors of all categories: the variance grows with the number of users of the category's block."""

    same_for_all: ClassVar[bool] = False

    in_block: Floats
    """Estimated users per block."""
    in_block_error: IndependentTerms
    block_of: NDArray[np.int64]
    """The block of each category."""
    users: int
    variance_per_neighbour: float

    def variance(self, truth: Floats) -> Floats:
        """The variance at the estimated number of users of each block."""
        neighbours = np.clip(self.in_block, 0.0, self.users)[self.block_of]
        return np.maximum(super().variance(truth) + self.variance_per_neighbour * neighbours, 0.0)

    def interval(self, estimate: Floats, risk: float) -> tuple[Floats, Floats]:
        """Part of the risk is spent on an upper bound on the users of each block, on which the width depends."""
        _, upper = self.in_block_error.interval(self.in_block, 2 * _BLOCK_SHARE * risk)
        assumed = replace(self, in_block=upper)
        return super(_BlockNoise, assumed).interval(estimate, (1 - _BLOCK_SHARE) * risk)


def _paper_blocks(epsilon: float, domain_size: int) -> int:
    """The least power of two that is at least min(e^epsilon / 2, domain_size)."""
    limit, blocks = min(math.exp(min(epsilon, 100.0)), 2.0 * domain_size), 1
    while 2 * blocks < limit:
        blocks *= 2
    return blocks


def odd_parity(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers have odd parity; of row & column, where the Hadamard matrix is -1."""
    odd: NDArray[np.bool_] = (np.bitwise_count(numbers) & 1).astype(np.bool_)
    return odd


def walsh_hadamard(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The product of each row with the Hadamard matrix, by the fast Walsh-Hadamard transform."""
    out = rows.astype(np.int64)
    width, half = rows.shape[-1], 1
    while half < width:
        pairs = out.reshape(-1, 2, half)
        first = pairs[:, 0].copy()
        pairs[:, 0] += pairs[:, 1]
        np.subtract(first, pairs[:, 1], out=pairs[:, 1])
        half *= 2
    return out


def sample_from_sets(
    counts: NDArray[np.int64],
    blanket: Dyadic,
    set_of: Callable[[int], NDArray[np.int64]],
    outputs: int,
    source: RandomSource,
) -> Tally:
    """The tally if each user sends a uniform output of their set or, with probability ``blanket``, any output."""
    uniform = binomials(counts, blanket, source)
    sent = uniform_counts(int(uniform.sum()), outputs, source)
    for value, users in enumerate((counts - uniform).tolist()):
        own = set_of(value)
        sent[own] += uniform_counts(users, len(own), source)
    return Tally(sent, int(counts.sum()), source.secure)


def check_total(tally: Tally, outputs: int) -> None:
    """Reject a tally without exactly one output per user."""
    if len(tally.counts) != outputs or int(tally.counts.sum()) != tally.users:
        raise ParameterError(f"A tally of {tally.users:,} users must have {outputs:,} counts that sum to that number.")
