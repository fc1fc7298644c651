"""The plan of a search for strings of one length: scores, thresholds, and the predicted recall.

On each level the search sees a symbol of every prefix, the capped count of its cell. The score of a prefix is its
log-likelihood ratio minus the logarithm of the number of prefixes of its depth, as in sequential decoding (Fano 1963):
the logarithm of the odds that it is right. It is extended if these odds, times the probability that the search then
succeeds, exceed a price times the expected work below a wrong prefix. A backward recursion over the levels finds the
floor of each, the least score that is extended. Scores are stored as integers above the floor, up to a ceiling. So the
distributions of scores, of a wrong string and of one that c users hold, follow from the distributions of one cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.protocols.strings.recall import ScoreWalk

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SCALE = 4
"""Scores are in units of 1/SCALE nats."""
_LOWEST, _HIGHEST = -112, 80
"""The range of scores: nobody searches e^28 prefixes."""
_SCORES = np.arange(_LOWEST, _HIGHEST + 1)
_ODDS = np.exp(_SCORES / SCALE)
_CEILINGS = (-36, -30, -24, -18, -12, -6, 0, 8, 16, 28)
"""Maximum scores of prefixes that are extended. A higher maximum loses fewer strings that have few messages on some
levels, but prefixes of a frequent string with wrong last bits are extended farther."""
_PRICE_STEPS = (-1.2, -0.9, -0.6, -0.3, 0.0, 0.3)
"""Logarithms of the prices that are compared, relative to that of a similar plan."""
_WORTHWHILE = 1e-3
"""The least rise of the recall for which more work is done."""
_LEAST_GAIN, _LARGEST_GAIN = -127, 127
_MAX_SYMBOLS = 4096
_MAX_DRAFTS = 80
_LEAST_RECALL, _LARGEST_RECALL = 0.88, 0.98
"""The recall to aim at, of strings of the count that the scores are made for."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The symbols of the cells of all levels: 0 for an erased cell, 1 + t for a count of t."""

    levels: int
    shares: Floats
    """The share of buckets with each symbol: its distribution in the cell of a wrong string."""

    @classmethod
    def of(cls, symbols: NDArray[Any]) -> Cells:
        """From the symbol of each bucket, per level."""
        return cls(len(symbols), np.bincount(symbols.ravel(), minlength=2) / symbols.size)

    @cached_property
    def moments(self) -> tuple[float, float]:
        """The mean and the variance of the counts of cells that are not erased."""
        counted = self.shares[1:]
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
        if len(self.shares) <= width:
            return np.pad(self.shares, (0, width - len(self.shares)))
        return np.append(self.shares[: width - 1], self.shares[width - 1 :].sum())


def expected_cells(mean: float, levels: int) -> Cells:
    """Cells of a round in which no string is frequent: counts with a Poisson distribution."""
    width = math.ceil(mean + 12 * math.sqrt(mean)) + 12
    return Cells(levels, np.concatenate(([0.0], _poisson(mean, width))))


def with_holders(shares: Floats, mean: float) -> Floats:
    """The distribution of the symbols of a right string, to whose cell its holders add a Poisson number of messages."""
    width = len(shares) - 1  # counts 0 .. cap
    total = np.convolve(shares[1:], _poisson(mean, width))
    right = np.concatenate((shares[:1], total[:width]))
    right[-1] = shares[1:].sum() - total[: width - 1].sum()
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
    design_count: float
    """The count that the scores are made for."""
    gains: Integers
    """The score of each symbol; larger symbols have that of the last."""
    costs: Integers
    """What each level costs: its new bits, and the rise of the floor."""
    ceilings: tuple[int, ...]
    """The largest score after each level."""
    work: float
    """The expected number of evaluated prefixes, if no string is frequent."""
    shares: Floats
    """The distribution of the symbols of a wrong string."""
    probability: float
    """The probability with which strings of at least ``count`` users are found."""
    log_price: float
    """The logarithm of the price of an evaluation, in probability of finding the string."""
    ceiling: int
    """The largest logarithm of the odds of prefixes that are extended, in units of scores."""
    last_floor: int
    """The logarithm of the odds, in units of scores, from which on a string is accepted."""

    @cached_property
    def _walk(self) -> ScoreWalk:
        return ScoreWalk(self.shares, self.gains, self.costs, self.ceilings)

    def recall(self, count: float) -> float:
        """The predicted probability that a string that this many users hold is found."""
        return self._walk.recall(count)

    @cached_property
    def count(self) -> float:
        """The least count that is found with the planned probability; infinite if none is."""
        return self._walk.least_count(self.probability, self.design_count)

    def tables(self, symbols: int) -> NDArray[np.int16]:
        """What each symbol adds to the score, per level; ``symbols`` is the number of symbols."""
        gains = np.pad(self.gains, (0, max(0, symbols - len(self.gains))), mode="edge")[:symbols]
        tables: NDArray[np.int16] = (gains - self.costs[:, None]).astype(np.int16)
        return tables


@dataclass(frozen=True)
class SearchSettings:
    """Limits of the search for strings, and when a string is accepted.

    ``evaluations`` bounds the expected number of evaluated prefixes per length; the default takes about a twentieth of
    a second. ``nodes`` bounds how many prefixes are extended per level, and ``evaluations_per_string`` the number of
    wrong prefixes evaluated beside a frequent string. Strings that at least ``found_from`` users hold are found with
    this ``probability``; ``false_strings`` is the expected number of false strings per length.
    """

    evaluations: float = 2e7
    nodes: int = 2_000_000
    evaluations_per_string: float = 2e6
    probability: float = 0.95
    false_strings: float = 1e-4


def plan_search(
    cells: Cells,
    length: int,
    depths: Sequence[int],
    *,
    settings: SearchSettings,
    largest_count: float,
    similar: Sequence[SearchPlan] = (),
) -> SearchPlan | None:
    """A plan that finds strings of small counts with the settings' probability; None if there is none.

    ``similar`` are the plans of shorter strings, from which this one is extrapolated.
    """
    count = 16.0 if not similar else similar[-1].design_count
    if len(similar) > 1:
        count = max(count, 2 * count - similar[-2].design_count)
    last, falling = similar[-1] if similar else None, True
    for _ in range(_MAX_DRAFTS):
        if count > largest_count:
            return None
        last, recall = _Draft(cells, depths, settings, count).plan(length, last)
        if recall < _LEAST_RECALL:
            falling = False
            count *= 1.3 if recall < 0.1 else 1.12 if recall < 0.6 else 1.04
        elif falling and recall > _LARGEST_RECALL and count > 2:
            count /= 1.06
        else:
            break
    if last is None or (largest_count < 2 * last.design_count and last.count > largest_count):
        return None
    return last


@dataclass(frozen=True, eq=False)
class _Options:
    """Floors for several prices, a row per price, with the recall and the work of each."""

    floors: Integers
    recall: Floats
    work: Floats
    sibling_work: Floats


class _Draft:
    """Plans for strings of one count."""

    def __init__(self, cells: Cells, depths: Sequence[int], settings: SearchSettings, count: float) -> None:
        self._settings, self._count = settings, count
        mean = count / cells.levels
        rate = cells.mean + mean
        self._wrong = cells.capped(min(math.ceil(rate + 4 * math.sqrt(rate)) + 1, _MAX_SYMBOLS))
        self._right = with_holders(self._wrong, mean)
        self._gains = _gains(self._wrong, self._right, mean, cells.mean)
        bits = np.array(depths, dtype=np.float64)
        whole: Integers = np.rint(SCALE * math.log(2) * bits).astype(np.int64)
        self._steps: Integers = np.diff(whole, prepend=0)
        self._children = np.exp2(np.diff(bits, prepend=0.0))
        extended = np.flatnonzero(np.diff(bits) > 0)
        self._branching = int(extended[-1]) + 1 if len(extended) else 0  # number of levels before the last new bits
        self._moves = {
            step: (_moves(self._wrong, self._gains - step), _moves(self._right, self._gains - step))
            for step in set(self._steps[1:].tolist())
        }

    def plan(self, length: int, similar: SearchPlan | None) -> tuple[SearchPlan, float]:
        """The plan that most likely finds a string of this count within the limits, and that probability."""
        limit = max(self._settings.evaluations, 2.0 * float(self._children[0]))
        price = similar.log_price if similar else -math.log(limit) - 4.0
        last = similar.last_floor if similar else 2 * SCALE
        position = _CEILINGS.index(similar.ceiling if similar else 0)
        steps: set[int] = set()
        for _ in range(_MAX_DRAFTS):
            prices = price + np.array(_PRICE_STEPS)
            options = self._options(prices, _CEILINGS[position], last)
            feasible = np.flatnonzero(options.work <= limit)
            best = int(feasible[0]) if len(feasible) else len(prices) - 1
            step = self._ceiling_step(float(options.sibling_work[best]))
            if not len(feasible):
                price += 1.2
            elif best == 0 and options.recall[0] > options.recall[-1] + _WORTHWHILE and options.work[0] < limit / 2:
                price -= 1.2
            elif 0 <= position + step < len(_CEILINGS) and step and -step not in steps:
                steps.add(step)
                position += step
            else:
                break
        best = int(np.flatnonzero(options.recall >= options.recall[best] - _WORTHWHILE)[-1])
        plan = self._finished(length, options.floors[best], _CEILINGS[position], float(prices[best]))
        return plan, float(options.recall[best])

    def _ceiling_step(self, sibling_work: float) -> int:
        """-1 or 1 if a lower or a higher ceiling fits the limit on work beside frequent strings better, else 0."""
        limit = self._settings.evaluations_per_string
        return -1 if sibling_work > limit else 1 if sibling_work < limit / 2.5 else 0

    def _options(self, log_prices: Floats, ceiling: int, last: int) -> _Options:
        """The floors of each level for each price, from the last level to the first."""
        rows, levels, end = len(log_prices), len(self._steps), ceiling - _LOWEST
        prices = np.exp(log_prices)[:, None]
        floors = np.full((rows, levels), last)
        found = np.tile((last <= _SCORES).astype(np.float64), (rows, 1))
        work = np.zeros_like(found)
        siblings = np.zeros(rows)
        for level in range(levels - 1, 0, -1):
            wrong, right = self._moves[int(self._steps[level])]
            children = float(self._children[level])
            below = work @ wrong
            siblings += children + (children - 1) * below[:, end]
            found, work = found @ right, children * (1 + below)
            worthwhile = found * _ODDS >= prices * work
            first = np.where(worthwhile[:, -1], worthwhile.argmax(axis=1), len(_SCORES) - 1)
            floors[:, level - 1] = first + _LOWEST
            dropped = np.arange(len(_SCORES)) < first[:, None]
            found[dropped] = work[dropped] = 0.0
            if level <= self._branching:
                found[:, end + 1 :] = found[:, end : end + 1]
                work[:, end + 1 :] = work[:, end : end + 1]
        starts = self._gains - int(self._steps[0]) - _LOWEST
        inside = starts >= 0
        starts = np.minimum(starts[inside], len(_SCORES) - 1)
        first_children = float(self._children[0])
        return _Options(
            floors,
            found[:, starts] @ self._right[inside],
            first_children * (1 + work[:, starts] @ self._wrong[inside]),
            siblings,
        )

    def _finished(self, length: int, floors: Integers, ceiling: int, log_price: float) -> SearchPlan:
        """The plan with these floors; the last one is replaced according to the expected number of false strings."""
        floors = np.minimum(floors, _HIGHEST - 1)
        floors[: self._branching] = np.minimum(floors[: self._branching], ceiling)
        tops = [ceiling if level < self._branching else _HIGHEST for level in range(len(floors))]
        scores = np.zeros(len(_SCORES))  # of wrong strings, times their number
        work = float(self._children[0])
        for level, (children, step, floor, top) in enumerate(
            zip(self._children.tolist(), self._steps.tolist(), floors.tolist(), tops, strict=True)
        ):
            if level == 0:
                moved = _start(self._wrong, self._gains - step)
            else:
                work += float(scores.sum()) * children
                moved = self._moves[step][0] @ scores
            scores = moved * children
            scores[top - _LOWEST] += scores[top - _LOWEST + 1 :].sum()
            scores[top - _LOWEST + 1 :] = 0.0
            if level < len(floors) - 1:
                scores[: floor - _LOWEST] = 0.0
        above = np.cumsum(scores[::-1])[::-1]
        last = _LOWEST + int(np.argmax(above <= self._settings.false_strings))
        if above[-1] > self._settings.false_strings:
            last = _HIGHEST
        floors[-1] = last
        costs = self._steps + np.diff(floors, prepend=0)
        ceilings = tuple(top - floor for top, floor in zip(tops, floors.tolist(), strict=True))
        return SearchPlan(
            length,
            self._count,
            self._gains,
            costs,
            ceilings,
            work,
            self._wrong,
            self._settings.probability,
            log_price,
            ceiling,
            last,
        )


def _moves(share: Floats, changes: Integers) -> Floats:
    """The probabilities of the next score (row) by the present one (column)."""
    states = len(_SCORES)
    reached = np.arange(states)[None, :] + changes[:, None]
    symbols, present = np.nonzero(reached >= 0)
    flat = np.minimum(reached[symbols, present], states - 1) * states + present
    moves = np.bincount(flat, weights=share[symbols], minlength=states**2).astype(np.float64)
    return moves.reshape(states, states)


def _start(share: Floats, scores: Integers) -> Floats:
    """The distribution of the score after the first level."""
    inside = scores >= _LOWEST
    reached = np.minimum(scores[inside] - _LOWEST, len(_SCORES) - 1)
    return np.bincount(reached, weights=share[inside], minlength=len(_SCORES)).astype(np.float64)


def _gains(wrong: Floats, right: Floats, mean: float, background: float) -> Integers:
    """The log-likelihood ratio of each symbol in the cell of a string that users hold, against that of a wrong one."""
    counts = np.arange(len(wrong) - 1)
    model = counts * math.log1p(mean / max(background, 1e-3)) - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((wrong[1:] > 0) & (right[1:] > 0), np.log(right[1:] / wrong[1:]), model)
    ratio = np.maximum.accumulate(np.minimum(ratio, np.maximum(model, ratio[0])))
    return np.concatenate(([0], np.clip(np.rint(SCALE * ratio), _LEAST_GAIN, _LARGEST_GAIN))).astype(np.int64)
