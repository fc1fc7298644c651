"""Private-coin histogram of Ghazi, Golowich, Kumar, Pagh and Velingker (2019), Algorithm 1: Hadamard codewords.

Category x is represented by the nonzero bit vector x + 1. Its codewords are the vectors that have an even number of
bits in common with it: half of all vectors, and a quarter for any two categories. A message is a tuple of ``hashes``
vectors: codewords of the user's category, or uniform vectors in the added messages. A tuple counts for a category if
all its vectors are codewords of that category.

In the paper vectors have one more bit unless the domain size is a power of two; it suffices that the vectors of the
categories are distinct and not zero.

Accounting: ``shuffledp.privacy.amplification.uniform_blanket`` and ``shuffledp.privacy.amplification.clones``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.amplification import Slots, least_slots
from shuffledp.privacy.guarantee import Guarantee, PrivacyCurve
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.blanket import BLANKET_THEOREM, BlanketProtocol, blanket_offsets, blanket_report_pmf
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.single_message import check_listed
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli, binomial, draw_words, uniform_counts
from shuffledp.shuffling import permute

_MAX_LISTED = 4096
_CHUNK = 1 << 16
_MAX_HASHES = 62
_MAX_BITS = 32
_FEW_TRIALS = 1 << 12

Vectors = NDArray[np.uint32]


@dataclass(frozen=True)
class HadamardBlanketHistogram(BlanketProtocol, HistogramProtocol):
    """A histogram from tuples of parity vectors, for very large domains (Ghazi, Golowich and others 2019); shuffled.

    Options of ``calibrate``:

    - ``hashes``: the number of vectors in a message; log2(users) unless given.
    """

    name: ClassVar[str] = "hadamard-blanket"

    blanket: Slots
    """Number of uniform tuples that each user adds."""
    hashes: int
    """Number of vectors per message."""
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.hashes <= _MAX_HASHES or self.bits > _MAX_BITS:
            raise ParameterError(
                f"Messages of {self.hashes} vectors of {self.bits} bits are not supported: "
                f"at most {_MAX_HASHES} vectors of {_MAX_BITS} bits.",
                hashes=self.hashes,
                bits=self.bits,
            )

    @classmethod
    def for_target(cls, target: Target, domain: Categories | Numbered, *, hashes: int | None = None) -> Self:
        """The fewest uniform tuples that meet the target; of log2(users) vectors, as in the paper, unless given."""
        size, named = cls.domain_fields(domain)
        length = (target.users - 1).bit_length() if hashes is None else hashes
        if not 1 <= length <= _MAX_HASHES:
            raise ParameterError(f"The number of hashes must lie in 1 .. {_MAX_HASHES}, not {length}.", hashes=length)
        if size <= 1:
            slots = Slots(0, Dyadic(0))  # a single category reveals nothing
        elif target.calibration == "tight":
            slots = least_slots(target.honest_users, 1 << length, target.epsilon, target.delta)
        else:
            mean = _paper_mean(target.epsilon, target.delta)
            slots = Slots(math.ceil(mean * 2.0**length / target.honest_users), Dyadic(0))
        return cls(target, slots, length, size, named)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """Shorter tuples, which agree by chance more often and need fewer uniform tuples."""
        length = (int(settings["users"]) - 1).bit_length()
        return [{"hashes": length - fewer} for fewer in (3, 5) if length - fewer >= 2]

    @cached_property
    def bits(self) -> int:
        """Number of bits of a vector: the categories are the vectors 1, 2, ..."""
        return self.domain_size.bit_length()

    @cached_property
    def guarantee(self) -> Guarantee:
        """A uniform tuple agrees with a value with probability 2^-hashes; agreeing with two only improves privacy."""
        if self.domain_size == 1:
            return self.target.guarantee(PureCurve(0.0), theorem="a single category", local_epsilon=0.0)
        curve: PrivacyCurve = self.blanket.curve(self.target.honest_users, 1 << self.hashes)
        return self.target.guarantee(curve, theorem=BLANKET_THEOREM)

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A tuple of vectors as integers."""
        return MessageFormat((1 << self.bits,) * self.hashes)

    def report_pmf(self, value: int) -> Pmf:
        """Uniform over the tuples of codewords, and uniform tuples."""
        owned = check_index(value, self.domain_size)
        codes = self.message_format.codes
        check_listed(codes, max_codes=_MAX_LISTED)
        tuples = self.message_format.message(np.arange(codes)).reshape(codes, self.hashes)
        own = np.flatnonzero((_odd(tuples & tuples.dtype.type(owned + 1)) == 0).all(axis=1))
        return blanket_report_pmf({int(code): Fraction(1, len(own)) for code in own}, codes, self.blanket)

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the number of messages does not depend on the values."""
        owned = check_indices(values, self.domain_size)
        offsets = blanket_offsets(len(owned), self.blanket, source)
        dtype = self.message_format.dtype
        sent = draw_words(int(offsets[-1]) * self.hashes, dtype.type, source).reshape(-1, self.hashes)
        sent &= dtype.type((1 << self.bits) - 1)
        vectors = (owned + 1).astype(dtype)
        lowest = vectors & (~vectors + dtype.type(1))
        own = sent[offsets[:-1]]
        own ^= _odd(own & vectors[:, None]).astype(dtype) * lowest[:, None]  # flipping one bit makes an odd parity even
        sent[offsets[:-1]] = own
        return Messages(sent[:, 0] if self.hashes == 1 else sent, len(owned), offsets, source.secure)

    def tally(self, messages: Messages) -> Tally:
        """The number of tuples that count for each category."""
        sent = self.message_format.check(messages.values).reshape(-1, self.hashes)
        return Tally(count_even(sent, self.bits, self.domain_size), messages.users, messages.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The vectors with even parity for a tuple form a subspace: draw its dimension, then the subspace.

        For uniform tuples all subspaces of one dimension are equally likely; for tuples of codewords of a category, all
        those that contain its vector.
        """
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        counted = np.zeros(1 << self.bits, dtype=np.int64)
        counted[1 : 1 + self.domain_size] = true
        for owned in _in_parts(true):
            _add_own_subspaces(counted, owned + 1, self.hashes, self.bits, source)
        added = users * self.blanket.whole + _successes(users, self.blanket.rest, source)
        _add_subspaces(counted, added, self.hashes, self.bits, source)
        return Tally(counted[1 : 1 + self.domain_size], users, source.secure)

    def analysis(self, users: int) -> LinearAnalysis:
        """Tuples of other users and uniform ones agree by chance."""
        hit = 2.0**-self.hashes
        match_variance, slope = hit * (1 - hit), 1 - hit
        extra_hit = float(self.blanket.rest) * hit
        return LinearAnalysis(
            offset=users * (1 + self.blanket.mean) * hit,
            slope=slope,
            error=IndependentTerms(
                base_variance=users
                * ((1 + self.blanket.whole) * match_variance + extra_hit * (1 - extra_hit))
                / slope**2,
                variance_per_holder=-match_variance / slope**2,
                largest_term=1 / slope,
            ),
            largest=users,
            numbers=self.domain_size,
        )


def _paper_mean(epsilon: float, delta: float) -> float:
    """36 ln(e/(epsilon delta))/epsilon^2 uniform tuples for each codeword; for epsilon <= 1."""
    if epsilon > 1:
        raise ConditionError(
            f"The constants of Ghazi et al. 2019 need epsilon <= 1, not {epsilon:g}; "
            "the tight calibration has no such limit.",
            epsilon=epsilon,
        )
    return 36 * (1 - math.log(epsilon * delta)) / epsilon**2


def _odd(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """1 where the number of set bits is odd."""
    parity: NDArray[np.uint8] = np.bitwise_count(numbers) & np.uint8(1)
    return parity


def count_even(tuples: NDArray[Any], bits: int, domain_size: int) -> NDArray[np.int64]:
    """For each category, the number of tuples all of whose vectors have even parity with its vector.

    For one tuple these are the solutions of linear equations modulo 2, one per vector. Elimination shows that most
    uniform tuples have only the solution zero.
    """
    counts = np.zeros(domain_size + 1, dtype=np.int64)
    step = max(1, _CHUNK >> max(0, bits - tuples.shape[1]))
    for start in range(0, len(tuples), step):
        pivots = _echelon(tuples[start : start + step].T.copy(order="C"), bits)
        underdetermined = pivots[:, pivots[-1] == 0].astype(np.uint32)  # fewer than ``bits`` independent equations
        solutions = _solutions(underdetermined, bits)
        counts += np.bincount(solutions[solutions <= domain_size], minlength=domain_size + 1)
    return counts[1:]


def _echelon(rows: NDArray[Any], bits: int) -> NDArray[Any]:
    """Per column of ``rows`` (overwritten), vectors of the same span with decreasing leading bits, then zeros."""
    pivots = np.empty((bits, rows.shape[1]), dtype=rows.dtype)
    for rank in range(bits):
        np.max(rows, axis=0, out=pivots[rank])
        np.minimum(rows, rows ^ pivots[rank], out=rows)  # clears the leading bit of the pivot
    return pivots


def _solutions(pivots: Vectors, bits: int) -> Vectors:
    """All vectors with even parity for every pivot of one column, for all columns."""
    by_bit = np.zeros((bits, pivots.shape[1]), dtype=np.uint32)
    for pivot in pivots:
        nonzero = np.flatnonzero(pivot)
        by_bit[np.frexp(pivot[nonzero].astype(np.float64))[1] - 1, nonzero] = pivot[nonzero]
    owner = np.arange(pivots.shape[1])
    partial_solution = np.zeros(len(owner), dtype=np.uint32)
    for bit in range(bits):  # a pivot with this leading bit decides it; without one, both values are possible
        pivot = by_bit[bit, owner]
        partial_solution |= _odd(pivot & partial_solution).astype(np.uint32) << np.uint32(bit)
        free = np.flatnonzero(pivot == 0)
        owner = np.concatenate((owner, owner[free]))
        partial_solution = np.concatenate((partial_solution, partial_solution[free] | np.uint32(1 << bit)))
    return partial_solution


def kernel_sizes(matrices: int, rows: int, columns: int, source: RandomSource) -> list[int]:
    """Of uniform matrices of bits, the number with a kernel of dimension 0, 1, 2, ...

    Column by column: a new column lies in the span of the previous ones, of rank s, with probability 2^(s - rows).
    """
    by_rank = [matrices] + [0] * columns
    for _ in range(columns):
        following = [0] * (columns + 1)
        for rank, count in enumerate(by_rank):
            if count:
                stays = _successes(count, Dyadic(1, rows - rank), source)
                following[rank] += stays
                if stays < count:
                    following[rank + 1] += count - stays
        by_rank = following
    return by_rank[::-1]


def _successes(trials: int, probability: Dyadic, source: RandomSource) -> int:
    """One draw of Bin(trials, probability); few trials are drawn one by one, without a table."""
    if trials <= _FEW_TRIALS:
        return int(np.count_nonzero(bernoulli(probability, trials, source)))
    return int(binomial(trials, probability, 1, source)[0])


def _add_subspaces(counted: NDArray[np.int64], tuples: int, hashes: int, bits: int, source: RandomSource) -> None:
    """Count the nonzero vectors with even parity for each of ``tuples`` uniform tuples."""
    for dimension, count in enumerate(kernel_sizes(tuples, hashes, bits, source)):
        if dimension == 1 and count:
            counted[1:] += uniform_counts(count, len(counted) - 1, source)
        elif dimension > 1:
            for start in range(0, count, _CHUNK):
                basis = _bases(min(_CHUNK, count - start), dimension, bits, source)
                for vectors in _spanned(basis):
                    np.add.at(counted, vectors, 1)


def _add_own_subspaces(
    counted: NDArray[np.int64], vectors: NDArray[np.int64], hashes: int, bits: int, source: RandomSource
) -> None:
    """For each of these vectors, count the other vectors with even parity for a tuple of its codewords.

    Modulo the vector itself they are the kernel of a uniform matrix with one column less.
    """
    sizes = kernel_sizes(len(vectors), hashes, bits - 1, source)
    if sizes[0] == len(vectors):
        return
    own = vectors.astype(np.uint32)
    permute(own, source=source)
    start = 0
    for dimension, count in enumerate(sizes):
        group = own[start : start + count]
        start += count
        if dimension == 0 or not count:
            continue
        leading = (np.frexp(group.astype(np.float64))[1] - 1).astype(np.uint32)
        low = (np.uint32(1) << leading) - np.uint32(1)
        for shorter in _spanned(_bases(count, dimension, bits - 1, source)):
            # of the two vectors that differ by the own vector, the one without its leading bit
            other = (shorter & low) | (shorter & ~low) << np.uint32(1)
            np.add.at(counted, other, 1)
            np.add.at(counted, other ^ group, 1)


def _bases(count: int, dimension: int, bits: int, source: RandomSource) -> Vectors:
    """Uniform independent vectors, a basis per column."""
    basis = np.zeros((dimension, count), dtype=np.uint32)
    remaining = np.arange(count)
    while len(remaining):
        drawn = draw_words(dimension * len(remaining), np.uint32, source).reshape(dimension, -1)
        drawn &= np.uint32((1 << bits) - 1)
        basis[:, remaining] = drawn
        remaining = remaining[_echelon(drawn.copy(), dimension)[-1] == 0]
    return basis


def _spanned(basis: Vectors) -> Iterator[Vectors]:
    """The nonzero vectors of the span of each column, one after the other."""
    vectors = np.zeros(basis.shape[1], dtype=np.uint32)
    for step in range(1, 1 << len(basis)):
        vectors = vectors ^ basis[(step & -step).bit_length() - 1]  # in the order of a Gray code
        yield vectors


def _in_parts(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The categories of all users, in parts of bounded size."""
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), _CHUNK):
        users = np.arange(start, min(start + _CHUNK, int(ends[-1])))
        yield np.searchsorted(ends, users, side="right")
