"""A noisy Count-Min sketch: Ghazi, Golowich, Kumar, Pagh and Velingker (2019), Algorithm 2 and Lemma 4.10.

Public hash functions h_1 .. h_tau map categories to s buckets. A user sends the cell (t, h_t(x)) of every row t, and
every cell of all rows once more with probability gamma. Each row has one cell of a category, which contains its count,
the noise Bin(n, gamma), and the counts of other categories with the same hash. The paper's estimate is the minimum over
the rows, which the noise biases downward; the median of the rows has hardly any bias.

Accounting: ``shuffledp.privacy.count_min``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_confidence
from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.estimate import HistogramEstimate
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.count_min import SketchRows, least_gamma, paper_gamma
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.row_statistic import RowStatistic, row_statistic
from shuffledp.protocols.parts.sparse import check_cells, messages_of_cells, scattered_bernoulli
from shuffledp.protocols.protocol import Cost, ExpectedError, Pmf, check_estimator
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, binomial

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BETA = 0.05
"""The paper's probability that hash collisions distort some estimate."""

_MAX_CELLS = 1 << 27
_LARGEST_SIZE = (1 << 31) - 1
_LARGEST_LISTED = 16
_CHUNK_CATEGORIES = 1 << 16
_MAX_CATEGORIES = 300


@dataclass(frozen=True)
class CountMinHistogram(HistogramProtocol):
    """A histogram by a noisy Count-Min sketch (Ghazi, Golowich and others 2019); shuffled.

    Options of ``calibrate``:

    - ``rows``, ``buckets``: the size of the sketch.
    - ``hashes``: the public hash functions, one pair per row; drawn unless given.
    """

    name: ClassVar[str] = "count-min"
    estimators: ClassVar[tuple[str, ...]] = ("median", "minimum")
    grows_with_domain: ClassVar[bool] = True

    gamma: Dyadic
    """The probability of one more message for each cell."""
    buckets: int
    hashes: tuple[tuple[int, int], ...]
    """Per row the public function x to ((u x + v) mod prime) mod buckets, as (u - 1, v)."""
    domain_size: int
    categories: Categories | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        factors, shifts = self._family.bounds
        if not self.hashes or any(not (0 <= u < factors and 0 <= v < shifts) for u, v in self.hashes):
            raise ParameterError(
                f"Hash functions are pairs of numbers below {factors:,} and {shifts:,}, one for each row.",
                hashes=self.hashes[:3],
            )

    @classmethod
    def for_target(
        cls,
        target: Target,
        domain: Categories | Numbered,
        *,
        rows: int | None = None,
        buckets: int | None = None,
        hashes: Sequence[tuple[int, int]] | None = None,
    ) -> Self:
        """The least noise that is (epsilon, delta)-private overall, all rows together.

        By default there are log2(2 d / 0.05) rows, rounded up to an odd number for the median, and as many buckets as
        categories but at most 4 n, so that collisions are rare. The paper has 2 n buckets and takes the minimum. Hash
        functions are drawn here, before anybody reports, and are public.
        """
        size, named = cls.domain_fields(domain)
        paper = target.calibration == "paper"
        if buckets is None:
            buckets = max(2, 2 * target.users if paper else min(4 * target.users, size))
        if max(size, buckets) > _LARGEST_SIZE:
            raise InfeasibleError(
                f"Hashing {size:,} categories to {buckets:,} buckets is not supported: at most {_LARGEST_SIZE:,} of "
                "either. Choose fewer buckets.",
                buckets=buckets,
            )
        family = AffineHashes.for_domain(size, buckets)
        if hashes is None:
            if rows is None:
                least = max(1, math.ceil(math.log2(2 * max(size, 1) / BETA)))
                rows = least if paper else least | 1
            drawn = family.draw(rows, SYSTEM)
            hashes = list(zip(*(part.tolist() for part in drawn), strict=True))
        choose = paper_gamma if paper else least_gamma
        gamma = choose(target.honest_users, len(hashes), target.epsilon, target.delta)
        return cls(target, gamma, buckets, tuple((int(u), int(v)) for u, v in hashes), size, named)

    @property
    def rows(self) -> int:
        """Number of rows: one per hash function."""
        return len(self.hashes)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release: two cells change in each row, for all hash functions."""
        return self.target.guarantee(
            SketchRows(self.target.honest_users, self.gamma, self.rows),
            theorem=f"certified numerically: {self.rows} rows composed by their privacy loss distribution",
        )

    @property
    def cost(self) -> Cost:
        """A message for each row, and on average gamma messages for each cell."""
        cells = self.rows * self.buckets
        return Cost(self.rows + cells * float(self.gamma), self.rows + cells, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """A cell of each row."""
        return self.rows

    def most_users(self, tally: Tally, messages: int) -> int:  # noqa: ARG002
        """The least total of a row: every user sends one cell of each row."""
        return int(tally.counts.reshape(self.rows, -1).sum(axis=1).min())

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message counts for a category or not."""
        return 0.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A row and a bucket."""
        return MessageFormat((self.rows, self.buckets))

    def report_pmf(self, value: int) -> Pmf:
        """The cells of the user's category, and a coin for each cell; at most sixteen cells."""
        owned = check_index(value, self.domain_size)
        cells = self.rows * self.buckets
        if cells > _LARGEST_LISTED:
            raise ParameterError(f"A report over {cells:,} cells has too many outcomes to list.")
        real = set(self._cells(np.array([owned]))[:, 0].tolist())
        gamma = self.gamma.fraction
        pmf: dict[tuple[int, ...], Fraction] = {}
        for coins in product((0, 1), repeat=cells):
            copies = tuple(coin + (cell in real) for cell, coin in enumerate(coins))
            pmf[copies] = gamma ** sum(coins) * (1 - gamma) ** (cells - sum(coins))
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: only the coins that show 1 are drawn."""
        owned = check_indices(values, self.domain_size)
        form = self.message_format
        check_cells(len(owned), form)
        real = self._cells(owned) + np.arange(len(owned), dtype=np.int64) * form.codes
        noise = scattered_bernoulli(self.gamma, len(owned) * form.codes, source)
        return messages_of_cells(np.concatenate((real.ravel(), noise)), len(owned), form, source)

    def tally(self, messages: Messages) -> Tally:
        """How often each cell was sent."""
        self._check_memory()
        return super().tally(messages)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The number of holders of each cell plus binomial noise."""
        true = check_counts(counts, self.domain_size)
        self._check_memory()
        users = int(true.sum())
        cells = binomial(users, self.gamma, self.rows * self.buckets, source)
        nonempty = np.flatnonzero(true)
        for row in self._cells(nonempty):
            np.add.at(cells, row, true[nonempty])
        return Tally(cells, users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: at least one cell per user and row."""
        if len(tally.counts) != self.rows * self.buckets:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} cells does not fit {self.rows:,} rows of {self.buckets:,} buckets."
            )
        if int(tally.counts.reshape(self.rows, -1).sum(axis=1).min()) < tally.users:
            raise ParameterError(f"Messages are missing: {tally.users:,} users send at least that many for each row.")

    def estimate(self, tally: Tally, *, estimator: str = "") -> HistogramEstimate:
        """The median of the rows minus the mean of the noise; or the minimum, at least 0 (estimator ``minimum``).

        Intervals hold for every data set that was fixed before the hash functions were drawn.
        """
        estimator = estimator or self.estimators[0]
        analysis = self._checked(tally, estimator)
        sketch = self._sketch(tally.users, estimator)
        raw = analysis.estimate(self._ordered(tally, sketch.order), "unbiased")
        return HistogramEstimate(
            protocol=self.name,
            estimator=estimator,
            users=tally.users,
            guarantee=self.guarantee,
            intervals=partial(sketch.intervals, raw),
            secure=tally.secure,
            categories=self.domain.names,
            counts=np.maximum(raw, 0.0) if estimator == "minimum" else raw,
            standard_errors=np.full(self.domain_size, math.sqrt(sketch.squared_error_alone)),
        )

    def _expected(
        self, estimator: str, confidence: float, truth: NDArray[Any] | None = None, *, users: int | None = None
    ) -> ExpectedError:
        """The exact error at given true counts, over at most 300 categories; or the error without collisions.

        The maximum error includes collisions: it holds for every data set that was fixed before the hash functions were
        drawn.
        """
        estimator = estimator or self.estimators[0]
        check_estimator(estimator, self.estimators)
        check_confidence(confidence)
        users = users or self.users
        sketch = self._sketch(users, estimator)
        if truth is None:
            squared = sketch.squared_error_alone
        else:
            true = check_counts(np.asarray(truth).astype(np.int64), self.domain_size)
            squared = self._mean_squared_error(sketch, true, lowest=0.0 if estimator == "minimum" else -math.inf)
        risk = (1 - confidence) / (2 * self.domain_size)
        return ExpectedError(
            rmse=math.sqrt(squared),
            max_error=min(float(users), max(sketch.overestimate_bound(risk), sketch.underestimate_bound(risk))),
            confidence=confidence,
        )

    def analysis(self, users: int) -> LinearAnalysis:
        """The analysis of one row without collisions."""
        noise = Binomial(users, self.gamma)
        return LinearAnalysis(noise.mean, 1.0, FixedNoise(noise), users, self.domain_size)

    def _mean_squared_error(self, sketch: RowStatistic, true: Integers, *, lowest: float) -> float:
        """The mean over evenly spaced categories; the public hash functions determine the collisions."""
        step = -(-self.domain_size // _MAX_CATEGORIES)
        chosen, nonempty = np.arange(0, self.domain_size, step), np.flatnonzero(true)
        extra = np.empty((len(chosen), self.rows), dtype=np.int64)
        for row, (filled, own) in enumerate(zip(self._cells(nonempty), self._cells(chosen), strict=True)):
            cells, inverse = np.unique(filled, return_inverse=True)
            sums = np.append(np.bincount(inverse, weights=true[nonempty], minlength=len(cells)), 0.0).astype(np.int64)
            positions = np.searchsorted(cells, own)
            occupied = (positions < len(cells)) & (np.append(cells, -1)[positions] == own)
            extra[:, row] = np.where(occupied, sums[positions], 0) - true[chosen]
        extra.sort(axis=1)  # the order of the rows does not matter
        errors: dict[tuple[int, ...], float] = {}
        total = 0.0
        for shared, count in zip(extra, true[chosen].tolist(), strict=True):
            key = (count if math.isfinite(lowest) else 0, *shared.tolist())
            if key not in errors:
                errors[key] = sketch.squared_error(shared, least=lowest - count)
            total += errors[key]
        return total / len(chosen)

    def _ordered(self, tally: Tally, order: int) -> Integers:
        """The ``order``-th smallest of the cells of each category."""
        selected = np.empty(self.domain_size, dtype=np.int64)
        for start in range(0, self.domain_size, _CHUNK_CATEGORIES):
            end = min(self.domain_size, start + _CHUNK_CATEGORIES)
            cells = tally.counts[self._cells(np.arange(start, end))]
            selected[start:end] = np.partition(cells, order - 1, axis=0)[order - 1]
        return selected

    def _cells(self, values: Integers) -> Integers:
        """The cell of each value in every row."""
        factor, shift = (np.array(part, dtype=np.uint64)[:, None] for part in zip(*self.hashes, strict=True))
        buckets = self._family.apply(factor, shift, values[None, :])
        cells: Integers = buckets.astype(np.int64) + np.arange(self.rows)[:, None] * self.buckets
        return cells

    @cached_property
    def _family(self) -> AffineHashes:
        return AffineHashes.for_domain(self.domain_size, self.buckets)

    def _sketch(self, users: int, estimator: str) -> RowStatistic:
        order = 1 if estimator == "minimum" else (self.rows + 1) // 2
        return row_statistic(users, self.gamma, self.rows, order, self.domain_size, float(self._family.collision))

    def _check_memory(self) -> None:
        """Reject a sketch that does not fit into memory."""
        cells = self.rows * self.buckets
        if cells > _MAX_CELLS:
            raise ParameterError(
                f"A sketch of {cells:,} cells does not fit into memory; at most {_MAX_CELLS:,}. Choose fewer buckets.",
                cells=cells,
            )
