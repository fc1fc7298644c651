"""The decoder of tree-blanket: from counts of cells to the frequent strings and their estimated counts.

A quick first pass finds the most frequent strings, whose cells are erased: what is left looks like noise, so that a
second, thorough pass finds less frequent ones. Whether a string is accepted depends on the counts of those of its cells
that no string accepted before has. All of this is post-processing and may change without any effect on privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.protocols.strings.protocol import SearchProgress
from shuffledp.protocols.strings.search import search
from shuffledp.protocols.strings.search_plan import Cells, SearchPlan, SearchSettings, plan_search
from shuffledp.protocols.strings.tree import StringTree

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Word = tuple[int, int]
"""The length and the scrambled word of a string."""

_QUICK_SHARE = 0.1  # of the evaluations, for the first pass
_QUICK_PER_STRING = 2e4
_THOROUGH_PER_STRING = 1e6
_CHANCE = 1e-6
"""The largest probability with which a wrong string has the counts of an accepted one."""
_SIBLING_CHANCE = 1e-4
"""The largest probability with which a right string is taken for a sibling of a frequent one."""
_LEAST_CELLS = 3
_MAX_LISTED = 2_000_000
_SMALL_MEAN = 64


@dataclass(frozen=True, eq=False)
class FoundString:
    """An accepted string: its ``index`` in the domain, and its count, as estimated from its own cells."""

    index: int
    word: Word
    count: float
    cells: int
    """The number of cells that the estimate rests on."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """What the decoder found in one tally."""

    found: tuple[FoundString, ...]
    """In decreasing order of their counts."""
    background: float
    """The mean number of messages per cell that come from no found string."""
    variance: float
    """The variance of the number of messages in such a cell."""
    plans: tuple[tuple[SearchPlan, ...], ...]
    """The plans of both passes for each length; empty for lengths at which nothing can be found."""
    listed_from: float | None
    """The least count found with the planned probability among candidates that were listed; None without a list."""
    evaluated: int
    complete: bool

    def found_from(self, length: int) -> float | None:
        """The least count of a string of this length that is found with the planned probability."""
        return min((plan.count for plan in self.plans[length]), default=None)

    def recall(self, length: int, count: float) -> float:
        """The predicted probability that a string of this length that this many users hold is found."""
        return max((plan.recall(count) for plan in self.plans[length]), default=0.0)


@dataclass(frozen=True, eq=False)
class Decoder:
    """The decoder of one tally."""

    tree: StringTree
    counts: Counts
    """Per level and bucket."""
    users: int
    settings: SearchSettings = field(default_factory=SearchSettings)
    progress: SearchProgress = lambda _: None
    native: bool = ACTIVE

    def decode(self, candidates: Sequence[int] = ()) -> Decoded:
        """All strings found; ``candidates`` are indices of likely strings, for which fewer users suffice."""
        if len(candidates) > _MAX_LISTED:
            raise ParameterError(f"At most {_MAX_LISTED:,} candidates can be listed, not {len(candidates):,}.")
        quick = replace(
            self.settings,
            evaluations=self.settings.evaluations * _QUICK_SHARE,
            evaluations_per_string=min(_QUICK_PER_STRING, self.settings.evaluations_per_string),
        )
        first = _Pass(self, _symbols(self.counts), quick)
        words = first.run(0.0, 0.25)
        accepted = self._accepted(words)
        second = _Pass(self, self._without(accepted), self.settings)
        words |= second.run(0.25, 1.0)
        listed_from = None
        if len(candidates):
            listed = self._listed(second, [self.tree.word(index) for index in candidates])
            words |= listed.words
            listed_from = listed.least_count
        final = self._accepted(words)
        found = tuple(sorted(final.found, key=lambda string: (-string.count, string.index)))
        lengths = range(self.tree.domain.max_length + 1)
        plans = tuple(
            tuple(plan for plan in (first.plans[length], second.plans[length]) if plan is not None)
            for length in lengths
        )
        self.progress(1.0)
        return Decoded(
            found,
            final.background,
            max(second.cells.moments[1], final.background),
            plans,
            listed_from,
            first.evaluated + second.evaluated,
            first.complete and second.complete,
        )

    def _without(self, accepted: _Accepted) -> NDArray[Any]:
        """The symbols of all cells, with those of accepted strings erased."""
        symbols = _symbols(self.counts)
        if len(accepted.found):
            cells = self.tree.cells([string.word for string in accepted.found])
            for level in range(self.tree.levels):
                symbols[level, cells[:, level]] = 0
        return symbols

    def _accepted(self, words: dict[Word, float]) -> _Accepted:
        """The accepted words, determined twice: the second time, messages of accepted strings are not background."""
        first = _Accepted.of(self, words, float(self.counts.sum()))
        sent = sum(string.count for string in first.found)
        return _Accepted.of(self, words, float(self.counts.sum()) - sent)

    def _listed(self, last: _Pass, words: list[Word]) -> _Listed:
        """The listed words whose cells hold more messages than noise explains; more are needed if many are listed."""
        from scipy.special import gammainc

        least = self.settings.false_strings / max(1, len(words))
        buckets = self.tree.cells(words)
        symbols = np.stack([last.symbols[level][buckets[:, level]] for level in range(self.tree.levels)], axis=1)
        usable = symbols > 0
        totals = np.where(usable, symbols - 1, 0).sum(axis=1).astype(np.float64)
        free = usable.sum(axis=1)
        chance = np.where(totals > 0, gammainc(np.maximum(totals, 1), np.maximum(last.cells.mean * free, 1e-12)), 1.0)
        likely = np.flatnonzero((chance <= least) & (free >= _LEAST_CELLS)).tolist()
        return _Listed(
            {words[position]: 0.0 for position in likely},
            _least_listed_count(last.cells.mean * self.tree.levels, least, self.settings.probability),
        )


@dataclass(frozen=True)
class _Listed:
    words: dict[Word, float]
    least_count: float


def _least_listed_count(noise: float, chance: float, probability: float) -> float:
    """The least count at which a listed string is found with this probability among Poisson noise."""
    from scipy.special import pdtr, pdtrc

    needed = int(noise)
    while pdtrc(needed - 1, noise) > chance:
        needed += 1
    count = 1.0
    while 1 - pdtr(needed - 1 - count, noise) < probability and needed > count:
        count += 1.0
    return count


class _Pass:
    """One search over all lengths."""

    def __init__(self, decoder: Decoder, symbols: NDArray[Any], settings: SearchSettings) -> None:
        self._decoder, self._settings = decoder, settings
        self.symbols, self.cells = symbols, Cells.of(symbols)
        self.plans: list[SearchPlan | None] = []
        self.evaluated, self.complete = 0, True

    def run(self, start: float, end: float) -> dict[Word, float]:
        """The words that were found, each with the least count that the search was planned for."""
        decoder, tree = self._decoder, self._decoder.tree
        words: dict[Word, float] = {}
        least = 1.0
        lengths = tree.domain.max_length + 1
        for length in range(lengths):
            plan = plan_search(
                self.cells,
                length,
                tree.depths(length),
                settings=self._settings,
                least_count=least,
                largest_count=max(2.0, float(decoder.users)),
            )
            self.plans.append(plan)
            if plan is not None:
                least = max(least, plan.count / 1.1)
                words |= self._search(plan)
            decoder.progress(start + (end - start) * (length + 1) / lengths)
        return words

    def _search(self, plan: SearchPlan) -> dict[Word, float]:
        result = search(self._decoder.tree, plan, self.symbols, nodes=self._settings.nodes, native=self._decoder.native)
        self.evaluated += result.evaluated
        self.complete = self.complete and result.complete
        numbers = (int.from_bytes(row.astype("<u8").tobytes(), "little") for row in result.words)
        return {(plan.length, number): plan.count for number in numbers}


@dataclass(frozen=True, eq=False)
class _Accepted:
    """Accepted strings, and the mean number of messages per cell that come from none of them."""

    found: tuple[FoundString, ...]
    background: float

    @classmethod
    def of(cls, decoder: Decoder, words: dict[Word, float], background_messages: float) -> _Accepted:
        """Accept words best first: each is judged on the cells that no accepted string has."""
        tree, counts = decoder.tree, decoder.counts
        background = max(background_messages, 0.0) / counts.size
        listed = list(words)
        if not listed:
            return cls((), background)
        buckets = tree.cells(listed)
        seen = counts[np.arange(tree.levels), buckets]
        cells = buckets + np.arange(tree.levels) * tree.buckets
        order = np.argsort(-_trimmed(np.sort(seen, axis=1)).sum(axis=1), kind="stable")
        judge = _Judge(tree, background, decoder.settings.false_strings)
        found: list[FoundString] = []
        positions: list[int] = []
        for position in order.tolist():
            length, word = listed[position]
            estimate = judge.estimate(length, cells[position], seen[position], words[listed[position]])
            if estimate is None:
                continue
            index = tree.string_index(length, word)
            if index is None or tree.domain.string(index) is None:
                continue
            judge.taken.update(cells[position].tolist())
            found.append(FoundString(index, (length, word), *estimate))
            positions.append(position)
        return cls(_estimated_jointly(found, cells[positions], seen[positions], background), background)


def _estimated_jointly(
    found: list[FoundString], cells: Counts, seen: Counts, background: float
) -> tuple[FoundString, ...]:
    """The counts, estimated again from the other strings of each cell.

    What less frequent strings sent to a cell is subtracted; a cell with a more frequent one is left out.
    """
    levels = cells.shape[1] if len(found) else 0
    owners: dict[int, list[int]] = {}
    for position, row in enumerate(cells.tolist()):
        for cell in row:
            owners.setdefault(cell, []).append(position)
    counts = [string.count for string in found]
    estimated = []
    for position, string in enumerate(found):
        values = []
        for cell, value in zip(cells[position].tolist(), seen[position].tolist(), strict=True):
            others = [counts[other] for other in owners[cell] if other != position]
            if all(other <= string.count + levels * background for other in others):
                values.append(value - sum(others) / levels)
        own = np.array(values)
        used = own[own <= 3 * np.median(own) + 12] if len(own) else own
        if len(used) < min(_LEAST_CELLS, levels):
            estimated.append(string)
            continue
        estimated.append(replace(string, count=max(0.0, levels * (float(used.mean()) - background)), cells=len(used)))
    return tuple(estimated)


class _Judge:
    """Judges strings one after the other; ``taken`` are the cells of those that were accepted."""

    def __init__(self, tree: StringTree, background: float, false_strings: float) -> None:
        self._tree, self._background, self._false_strings = tree, background, false_strings
        self.taken: set[int] = set()

    def estimate(self, length: int, cells: Counts, seen: Counts, planned: float) -> tuple[float, int] | None:
        """The estimated count and the number of cells that it rests on; None if the string is not accepted."""
        free = np.array([cell not in self.taken for cell in cells.tolist()])
        number = int(free.sum())
        if number < min(_LEAST_CELLS, self._tree.levels):
            return None
        values = np.sort(seen[free])
        if self._chance(_trimmed(values)) > _CHANCE or self._chance(values) > self._largest_chance(length, free):
            return None
        used = values[values <= 3 * np.median(values) + 12]
        count = float(self._tree.levels * (used.mean() - self._background))
        if count < max(planned / 2, 1.0) or self._is_sibling(count, seen, free):
            return None
        return count, len(used)

    def _chance(self, values: Counts) -> float:
        """The probability that as many cells of a wrong string hold at least as many messages."""
        from scipy.special import gammainc

        total = int(values.sum())
        return float(gammainc(total, max(self._background, 1e-9) * len(values))) if total > 0 else 1.0

    def _largest_chance(self, length: int, free: NDArray[np.bool_]) -> float:
        """The largest probability with which a wrong string may have the counts of its free cells.

        The search compared the string with all words of its length, but it used cells of accepted strings too. A string
        that shares its first cells with an accepted one is one of the many siblings of that string.
        """
        if free.all():
            return 1.0
        shared = int(np.argmax(free))
        depths = self._tree.depths(length)
        bits = depths[-1] - (depths[shared - 1] if shared else 0)
        accepted = max(1.0, len(self.taken) / self._tree.levels) if shared else 1.0
        return min(1.0, self._false_strings / (2.0**bits * accepted))

    def _is_sibling(self, count: float, seen: Counts, free: NDArray[np.bool_]) -> bool:
        """Whether the last cells hold far too few messages: the string only shares a prefix with a frequent one."""
        from scipy.special import gammaincc

        for first in {self._tree.levels - self._tree.tail, self._tree.levels // 2}:
            cells = free[first:]
            number = int(cells.sum())
            expected = number * (self._background + count / self._tree.levels)
            if number and gammaincc(int(seen[first:][cells].sum()) + 1, expected) < _SIBLING_CHANCE:
                return True
        return False


def _trimmed(values: Counts) -> Counts:
    """Increasing values without the largest eighth, which may come from collisions with frequent strings."""
    number = values.shape[-1]
    return values[..., : number - number // 8]


def _symbols(counts: Counts) -> NDArray[Any]:
    """The symbol of each cell, in as few bytes as the mean allows; larger counts are clipped."""
    kind = "u1" if counts.mean() < _SMALL_MEAN else "u2"
    symbols: NDArray[Any] = np.minimum(counts, (1 << 8 * int(kind[1])) - 2)
    symbols += 1
    return symbols.astype(kind)
