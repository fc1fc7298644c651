"""The plan of a search for strings of one length: scores, thresholds, and the predicted recall.

On each level the search sees a symbol of every prefix, the capped count of its cell. A prefix is scored by its
log-likelihood ratio minus the logarithm of the number of prefixes of its depth (Fano 1963), which sequential decoders
use for codes. Scores are integers from 0, where prefixes are dropped, to a ceiling. So the
distributions of the scores of a wrong string, and of a string that c users hold, follow from the distribution of the
count of a cell. They are exact except that the counts of different cells are dependent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCALE = 4
"""Scores are in units of 1/SCALE nats."""
CEILING = 120
"""The largest score; with gains of at least -127, one cell can drop any prefix."""
_BRANCHING_CEILINGS = (120, 96, 80, 68, 60, 54, 48, 44, 40)
"""Maximum scores of prefixes that are extended, tried in this order; a maximum limits how far prefixes of a frequent
string with wrong last bits are extended."""
_CREDITS = np.arange(0, 105, 2)
"""Initial credits that are tried. With more credit fewer right prefixes are dropped and more wrong ones extended, so
that a higher final score is needed. No search evaluates the e^26 prefixes of the largest credit."""
LEAST_GAIN, LARGEST_GAIN = -127, 127
_STEP = 1.04  # between the counts that are tried
_MAX_SYMBOLS = 4096


@dataclass(frozen=True, eq=False)
class Cells:
    """The symbols of the cells of each level: 0 for an erased cell, 1 + t for a count of t."""

    shares: Floats
    """Per level, the share of buckets with each symbol: its distribution in the cell of a wrong string."""

    @classmethod
    def of(cls, symbols: NDArray[Any]) -> Cells:
        """From the symbol of each bucket, per level."""
        width = int(symbols.max(initial=1)) + 1
        return cls(np.stack([np.bincount(row, minlength=width) for row in symbols]) / symbols.shape[1])

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self.shares)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """The mean and the variance of the counts of cells that are not erased."""
        counted = self.shares[:, 1:].sum(axis=0)
        total = float(counted.sum())
        if total <= 0:
            return 0.0, 0.0
        counts = np.arange(len(counted))
        mean = float(counted @ counts) / total
        return mean, float(counted @ (counts - mean) ** 2) / total

    @property
    def mean(self) -> float:
        """The mean count of cells that are not erased."""
        return self.moments[0]

    def capped(self, cap: int) -> Floats:
        """``shares`` with all counts from ``cap`` on as one symbol."""
        width = cap + 2
        if self.shares.shape[1] <= width:
            return np.pad(self.shares, ((0, 0), (0, width - self.shares.shape[1])))
        shares = self.shares[:, :width].copy()
        shares[:, -1] += self.shares[:, width:].sum(axis=1)
        return shares


def expected_cells(mean: float, levels: int) -> Cells:
    """Cells of a round in which no string is frequent: counts with a Poisson distribution."""
    width = math.ceil(mean + 12 * math.sqrt(mean)) + 12
    return Cells(np.tile(np.concatenate(([0.0], _poisson(mean, width))), (levels, 1)))


def with_holders(shares: Floats, mean: float) -> Floats:
    """The distribution of the symbols of a right string, to whose cell its holders add a Poisson number of messages."""
    width = shares.shape[1] - 1  # counts 0 .. cap
    added = _poisson(mean, width)
    right = np.empty_like(shares)
    right[:, 0] = shares[:, 0]
    for row, result in zip(shares[:, 1:], right[:, 1:], strict=True):
        total = np.convolve(row, added)
        result[:] = total[:width]
        result[-1] = row.sum() - total[: width - 1].sum()
    return np.maximum(right, 0.0)


@lru_cache(maxsize=4096)
def _poisson(mean: float, width: int) -> Floats:
    counts = np.arange(width)
    logs = counts * math.log(mean) - mean - np.array([math.lgamma(count + 1.0) for count in counts]) if mean else None
    masses: Floats = np.exp(logs) if logs is not None else (counts == 0).astype(np.float64)
    masses.flags.writeable = False
    return masses


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """How strings of one length are searched, and which are found."""

    length: int
    count: float
    """The least count that is found with the planned probability."""
    cap: int
    gains: NDArray[np.int64]
    """The score of each symbol."""
    costs: NDArray[np.int64]
    """The cost of the new bits of each level; on the first level, minus the initial credit."""
    ceiling: int
    """The largest score of prefixes that are extended."""
    accepted_from: int
    """The least final score of an accepted string."""
    work: float
    """The expected number of evaluated prefixes, if no string is frequent."""
    cells: Cells

    def table(self, level: int, symbols: NDArray[Any]) -> NDArray[np.int8]:
        """The gain minus the cost of every bucket of a level; the initial score has the cost of the first level."""
        cost = int(self.costs[level]) if level else 0
        gains = np.clip(self.gains - cost, LEAST_GAIN, LARGEST_GAIN).astype(np.int8)
        largest = int(np.iinfo(symbols.dtype).max)
        table: NDArray[np.int8] = np.pad(gains, (0, max(0, largest + 1 - len(gains))), mode="edge")[symbols]
        return table

    def recall(self, count: float) -> float:
        """The predicted probability that a string that this many users hold is found."""
        if count <= 0:
            return 0.0
        shares = with_holders(self.cells.capped(self.cap), count / self.cells.levels)
        final = _final_scores(shares, self.gains, self.costs, self.ceiling)[0]
        return float(min(1.0, final[self.accepted_from :].sum()))

    @property
    def ceilings(self) -> list[int]:
        """The largest score after each level."""
        return _ceilings(self.costs, self.ceiling)


@dataclass(frozen=True)
class SearchSettings:
    """Limits of the search for strings, and when a string is accepted.

    ``evaluations`` bounds the expected number of evaluated prefixes per length; the default takes about a tenth of
    a second. ``nodes`` bounds how many prefixes are extended per level, and ``evaluations_per_string`` the number of
    wrong prefixes evaluated beside a frequent string. Strings that at least ``found_from`` users hold are found with
    this ``probability``; ``false_strings`` is the expected number of false strings per length.
    """

    evaluations: float = 1e7
    nodes: int = 2_000_000
    evaluations_per_string: float = 5e4
    probability: float = 0.95
    false_strings: float = 1e-3


def plan_search(
    cells: Cells,
    length: int,
    depths: Sequence[int],
    *,
    settings: SearchSettings,
    least_count: float,
    largest_count: float,
) -> SearchPlan | None:
    """The plan with the least count that is found with the settings' probability; None if no count suffices."""
    count = max(least_count, 1.0)
    while count <= largest_count:
        draft = _Draft(cells, depths, settings, count)
        if draft.best is not None:
            plan = draft.plan(length)
            recall = 0.0 if plan is None else plan.recall(count)
            if plan is not None and recall >= settings.probability:
                return plan
        else:
            recall = 0.0
        count *= 1.2 if recall < 0.3 * settings.probability else 1.08 if recall < 0.8 * settings.probability else _STEP
    return None


class _Draft:
    """Approximate plans for strings of one count, for all initial credits at once; all levels have the same cells."""

    def __init__(self, cells: Cells, depths: Sequence[int], settings: SearchSettings, count: float) -> None:
        self._cells, self._settings, self.count = cells, settings, count
        mean = count / cells.levels
        rate = cells.mean + mean
        self._cap = min(math.ceil(rate + 2 * math.sqrt(rate)) + 1, _MAX_SYMBOLS)
        wrong = cells.capped(self._cap)
        self._gains = _gains(wrong, mean, cells.mean)
        bits = np.array(depths, dtype=np.float64)
        whole: NDArray[np.int64] = np.rint(SCALE * math.log(2) * bits).astype(np.int64)
        self._steps: NDArray[np.int64] = whole - np.concatenate(([0], whole[:-1]))
        self._children = np.exp2(np.diff(bits, prepend=0.0))
        pooled = wrong.mean(axis=0)
        self._ceiling = next(
            (c for c in _BRANCHING_CEILINGS if self._sibling_work(pooled, c) <= settings.evaluations_per_string),
            _BRANCHING_CEILINGS[-1],
        )
        self._wrong = pooled
        self._right = with_holders(pooled[None, :], mean)[0]

    @cached_property
    def best(self) -> int | None:
        """The credit with which a string of this count is most likely found within the limits, or None."""
        wrong, work = self._final(self._wrong, self._children)
        right, _ = self._final(self._right, np.ones(len(self._steps)))
        limit = max(self._settings.evaluations, 2.0 * float(self._children[0]))
        above = np.cumsum(wrong[:, ::-1], axis=1)[:, ::-1] <= self._settings.false_strings
        recall = np.where(above, np.cumsum(right[:, ::-1], axis=1)[:, ::-1], 0.0).max(axis=1)
        recall = np.where(work <= limit, recall, 0.0)
        best = int(np.argmax(recall))
        return int(_CREDITS[best]) if recall[best] > 0 else None

    def plan(self, length: int) -> SearchPlan | None:
        """The plan with the best credit and the exact distribution of each level."""
        costs = self._steps.copy()
        costs[0] -= self.best or 0
        wrong = self._cells.capped(self._cap)
        final, work = _final_scores(wrong, self._gains, costs, self._ceiling, self._children)
        accepted = np.flatnonzero(np.cumsum(final[::-1])[::-1] <= self._settings.false_strings)
        if not len(accepted):
            return None
        return SearchPlan(
            length, self.count, self._cap, self._gains, costs, self._ceiling, int(accepted[0]), work, self._cells
        )

    def _final(self, share: Floats, children: Floats) -> tuple[Floats, Floats]:
        """The distribution of the final score for every credit, times the number of strings; the evaluated prefixes."""
        ceilings = _ceilings(self._steps, self._ceiling)
        starts = _CREDITS[:, None] + (self._gains - self._steps[0])[None, :]
        scores = np.zeros((len(_CREDITS), CEILING + 1))
        rows, symbols = np.nonzero(starts >= 0)
        np.add.at(scores, (rows, np.minimum(starts[rows, symbols], ceilings[0])), share[symbols])
        scores *= children[0]
        work = np.full(len(_CREDITS), float(children[0]))
        moves: dict[tuple[int, int], Floats] = {}
        for level in range(1, len(self._steps)):
            key = int(self._steps[level]), ceilings[level]
            if key not in moves:
                moves[key] = _moves(share, self._gains, *key)
            scores *= children[level]
            work += scores.sum(axis=1)
            scores = scores @ moves[key]
        return scores, work

    def _sibling_work(self, wrong: Floats, ceiling: int) -> float:
        """The expected number of wrong prefixes evaluated beside a string with the largest score on every level."""
        ceilings = _ceilings(self._steps, ceiling)
        below = np.zeros(CEILING + 1)  # the work below a wrong prefix, by its score
        total = 0.0
        moves: dict[tuple[int, int], Floats] = {}
        for level in range(len(self._steps) - 1, 0, -1):
            key = int(self._steps[level]), ceilings[level]
            if key not in moves:
                moves[key] = _moves(wrong, self._gains, *key)
            next_work = moves[key] @ below
            children = float(self._children[level])
            total += children + (children - 1) * float(next_work[ceilings[level - 1]])
            below = children * (1 + next_work)
        return total


def _moves(share: Floats, gains: NDArray[np.int64], cost: int, ceiling: int) -> Floats:
    """The probabilities of the next score (column) by the present one (row)."""
    reached = np.arange(CEILING + 1)[:, None] + (gains - cost)[None, :]
    rows, symbols = np.nonzero(reached >= 0)
    flat = rows * (CEILING + 1) + np.minimum(reached[rows, symbols], ceiling)
    moves: Floats = np.bincount(flat, weights=share[symbols], minlength=(CEILING + 1) ** 2).astype(np.float64)
    return moves.reshape(CEILING + 1, CEILING + 1)


def _gains(wrong: Floats, mean: float, background: float) -> NDArray[np.int64]:
    """The log-likelihood ratio of each symbol in the cell of a string that users hold, against that of a wrong one."""
    pooled = wrong.mean(axis=0)
    right = with_holders(pooled[None, :], mean)[0]
    counts = np.arange(len(pooled) - 1)
    model = counts * math.log1p(mean / max(background, 1e-3)) - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((pooled[1:] > 0) & (right[1:] > 0), np.log(right[1:] / pooled[1:]), model)
    ratio = np.maximum.accumulate(np.minimum(ratio, np.maximum(model, ratio[0])))
    return np.concatenate(([0], np.clip(np.rint(SCALE * ratio), LEAST_GAIN, LARGEST_GAIN))).astype(np.int64)


def _final_scores(
    shares: Floats, gains: NDArray[np.int64], costs: NDArray[np.int64], ceiling: int, children: Floats | None = None
) -> tuple[Floats, float]:
    """The distribution of the final score, times the number of such strings, and the number of evaluated prefixes."""
    scores = np.zeros(CEILING + 1)
    work = before = 0.0
    least = int(gains.min())
    ceilings = _ceilings(costs, ceiling)
    for level, (share, cost) in enumerate(zip(shares, costs.tolist(), strict=True)):
        kernel: Floats = np.bincount(gains - least, weights=share).astype(np.float64)
        moved = kernel if level == 0 else np.convolve(scores, kernel)
        scores = _clipped(moved, least - cost, ceilings[level])
        if children is not None:
            count = children[level]
            work += count if level == 0 else before * count
            scores *= count
            before = float(scores.sum())
    return scores, work


def _clipped(masses: Floats, offset: int, ceiling: int) -> Floats:
    """The pmf of scores, from ``masses`` that start at ``offset``; drops scores below 0, clips at the ceiling."""
    scores = np.zeros(CEILING + 1)
    if offset < 0:
        masses, offset = masses[-offset:], 0
    inside = masses[: max(0, ceiling + 1 - offset)]
    scores[offset : offset + len(inside)] = inside
    scores[ceiling] += masses[len(inside) :].sum()
    return scores


def _ceilings(costs: NDArray[np.int64], ceiling: int) -> list[int]:
    """The largest score after each level; ``CEILING`` from the last level that extends prefixes on."""
    extended = np.flatnonzero(costs[1:] > 0)
    last = int(extended[-1]) if len(extended) else -1
    return [ceiling if level <= last else CEILING for level in range(len(costs))]
