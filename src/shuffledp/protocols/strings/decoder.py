"""The decoder of tree-blanket: from counts of cells to the frequent strings and their estimated counts.

A quick first pass finds the most frequent strings, whose cells are erased: what is left looks like noise, so that a
second, thorough pass finds less frequent ones. Whether a string is accepted depends on the counts of its cells that no
string accepted before it shares. All of this is post-processing and may change without any effect on privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.protocols.strings.acceptance import Candidates, Credit, Judge, Word
from shuffledp.protocols.strings.counting import StringCounts, estimate_counts
from shuffledp.protocols.strings.protocol import SearchProgress
from shuffledp.protocols.strings.search import search
from shuffledp.protocols.strings.search_plan import Cells, SearchPlan, SearchSettings, plan_search
from shuffledp.protocols.strings.tree import StringTree

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_QUICK_SHARE = 0.1  # of the evaluations that the first pass may use
_QUICK_PER_STRING = 1e4
_LEAST_CELLS = 3  # that a listed string needs
_MAX_LISTED = 2_000_000
_SMALL_MEAN = 64


@dataclass(frozen=True, eq=False)
class FoundString:
    """An accepted string: its ``index`` in the domain, and its count, as estimated from its own cells."""

    index: int
    word: Word
    count: float
    cells: float
    """How many cells of its own would give the same precision."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """What the decoder found in one tally."""

    found: tuple[FoundString, ...]
    """In decreasing order of their counts."""
    background: float
    """The mean number of messages per cell that come from no found string."""
    variance: float
    """The variance of the number of messages in such a cell."""
    plans: tuple[SearchPlan | None, ...]
    """The plan of the thorough pass for each length; None for lengths at which nothing can be found."""
    listed_from: float | None
    """The least count found with the planned probability among candidates that were listed; None without a list."""
    evaluated: int
    complete: bool

    def found_from(self, length: int) -> float | None:
        """The least count of a string of this length that is found with the planned probability."""
        plan = self.plans[length]
        return None if plan is None or plan.count == math.inf else plan.count

    def recall(self, length: int, count: float) -> float:
        """The predicted probability that a string of this length that this many users hold is found."""
        plan = self.plans[length]
        return 0.0 if plan is None else plan.recall(count)


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
    _indices: dict[Word, int | None] = field(default_factory=dict, init=False, repr=False)

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
        accepted = self._accepted(words, first.cells)
        second = _Pass(self, self._without(accepted), self.settings)
        words |= second.run(0.25, 1.0)
        listed_from = None
        if len(candidates):
            listed = self._listed(second, [self.tree.word(index) for index in candidates])
            words |= listed.words
            listed_from = listed.least_count
        final = self._accepted(words, second.cells)
        found = [
            FoundString(index, word, count, cells)
            for index, word, count, cells in zip(
                map(self._index, final.candidates.words),
                final.candidates.words,
                final.counts.counts.tolist(),
                final.counts.cells.tolist(),
                strict=True,
            )
            if index is not None
        ]
        lengths = range(self.tree.domain.max_length + 1)
        plans = tuple(second.plans[length] or first.plans[length] for length in lengths)
        self.progress(1.0)
        return Decoded(
            tuple(sorted(found, key=lambda string: (-string.count, string.index))),
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
        symbols.reshape(-1)[accepted.candidates.cells.ravel()] = 0
        return symbols

    def _index(self, word: Word) -> int | None:
        """The index of the string with this word; None if there is none, or its bytes are not text."""
        if word not in self._indices:
            index, domain = self.tree.string_index(*word), self.tree.domain
            is_text = index is not None and (domain.symbols is not None or domain.string(index) is not None)
            self._indices[word] = index if is_text else None
        return self._indices[word]

    def _accepted(self, words: dict[Word, Credit], cells: Cells) -> _Accepted:
        """The accepted words, determined twice: the second time, messages of accepted strings are not background."""
        listed = {word: credit for word, credit in words.items() if self._index(word) is not None}
        candidates, sent = Candidates.of(self.tree, self.counts, listed), 0.0
        for thorough in (False, True):
            background = max(float(self.counts.sum()) - sent, 0.0) / self.counts.size
            judge = Judge(self.tree, self.counts, background, self.settings.false_strings, thorough)
            chosen = candidates.chosen(judge.accepted(candidates))
            variance = max(cells.moments[1], background)
            counts = estimate_counts(chosen.cells, chosen.seen, background=background, variance=variance)
            sent = float(counts.counts.sum())
        return _Accepted(chosen, counts, background)

    def _listed(self, last: _Pass, words: list[Word]) -> _Listed:
        """The listed words whose cells hold more messages than noise explains; a longer list requires more messages."""
        from scipy.special import gammainc

        least = self.settings.false_strings / max(1, len(words))
        buckets = self.tree.cells(words)
        symbols = np.stack([last.symbols[level][buckets[:, level]] for level in range(self.tree.levels)], axis=1)
        usable = symbols > 0
        totals = np.where(usable, symbols - 1, 0).sum(axis=1).astype(np.float64)
        free = usable.sum(axis=1)
        chance = np.where(totals > 0, gammainc(np.maximum(totals, 1), np.maximum(last.cells.mean * free, 1e-12)), 1.0)
        likely = np.flatnonzero((chance <= least) & (free >= _LEAST_CELLS)).tolist()
        log_number = math.log(len(words))
        priors = [self.tree.domain.word_bits(words[position][0]) * math.log(2) - log_number for position in likely]
        return _Listed(
            {words[position]: Credit(0.0, prior) for position, prior in zip(likely, priors, strict=True)},
            _least_listed_count(last.cells.mean * self.tree.levels, least, self.settings.probability),
        )


@dataclass(frozen=True)
class _Listed:
    words: dict[Word, Credit]
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

    def run(self, start: float, end: float) -> dict[Word, Credit]:
        """The words that were found, each with the least count that makes it credible."""
        decoder, tree = self._decoder, self._decoder.tree
        words: dict[Word, Credit] = {}
        lengths = tree.domain.max_length + 1
        for length in range(lengths):
            plan = plan_search(
                self.cells,
                length,
                tree.depths(length),
                settings=self._settings,
                largest_count=max(2.0, float(decoder.users)),
                similar=[plan for plan in self.plans[-2:] if plan is not None],
            )
            self.plans.append(plan)
            if plan is not None:
                words |= self._search(plan)
            decoder.progress(start + (end - start) * (length + 1) / lengths)
        return words

    def _search(self, plan: SearchPlan) -> dict[Word, Credit]:
        result = search(self._decoder.tree, plan, self.symbols, nodes=self._settings.nodes, native=self._decoder.native)
        self.evaluated += result.evaluated
        self.complete = self.complete and result.complete
        numbers = (int.from_bytes(row.astype("<u8").tobytes(), "little") for row in result.words)
        return {(plan.length, number): Credit(plan.design_count / 3) for number in numbers}


@dataclass(frozen=True, eq=False)
class _Accepted:
    """Accepted words, and the mean number of messages per cell that come from none of them."""

    candidates: Candidates
    counts: StringCounts
    background: float


def _symbols(counts: Counts) -> NDArray[Any]:
    """The symbol of each cell, in as few bytes as the mean allows; larger counts are clipped."""
    kind = "u1" if counts.mean() < _SMALL_MEAN else "u2"
    symbols: NDArray[Any] = np.minimum(counts, (1 << 8 * int(kind[1])) - 2)
    symbols += 1
    return symbols.astype(kind)
