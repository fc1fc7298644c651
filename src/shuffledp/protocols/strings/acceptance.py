"""Which words that a search returned are strings of users: each is judged on the cells that no better one explains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shuffledp.protocols.strings.tree import StringTree

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Word = tuple[int, int]
"""The length and the scrambled word of a string."""

_CHANCE = 1e-6
"""The largest probability with which a wrong string that shares cells may have the counts of its other cells."""
_SIBLING_MARGIN = 4.0
"""The least log-likelihood ratio of a string to all of its siblings, if they are too many to compare one by one."""
_FEW_BITS = 8
_CLEAR_MARGIN = 10.0
"""The log-likelihood ratio from which on a string need not be compared with its siblings."""
_SIBLING_ODDS = 0.02
"""The largest odds that one of the siblings is right instead of the string."""
_LEAST_CELLS = 3


@dataclass(frozen=True)
class Credit:
    """What is known about a word before its cells are judged."""

    least_count: float
    """Strings of fewer users are not accepted."""
    log_prior: float = 0.0
    """The logarithm of its prior probability over that of a random word of its length."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Words, best first, with the flat positions of their cells, what these hold, a least count and a prior."""

    words: list[Word]
    cells: Counts
    seen: Counts
    least_counts: Floats
    log_priors: Floats

    @classmethod
    def of(cls, tree: StringTree, counts: Counts, words: dict[Word, Credit]) -> Candidates:
        """Words with their least counts, ordered by the messages in the cells that they share with no other word.

        So a sibling of a frequent string comes after the strings with which it shares cells.
        """
        listed = list(words)
        buckets = tree.cells(listed)
        seen = counts[np.arange(tree.levels), buckets]
        cells = buckets + np.arange(tree.levels) * tree.buckets
        own = ~_shared(cells)
        order = np.lexsort((-seen.sum(axis=1), -np.where(own, seen, 0).sum(axis=1) / np.maximum(own.sum(axis=1), 1)))
        least = np.array([credit.least_count for credit in words.values()], dtype=np.float64)
        priors = np.array([credit.log_prior for credit in words.values()], dtype=np.float64)
        return cls(listed, cells, seen, least, priors).chosen(order)

    def chosen(self, positions: NDArray[np.int64]) -> Candidates:
        """Some of the words."""
        words = [self.words[position] for position in positions.tolist()]
        return Candidates(
            words,
            self.cells[positions],
            self.seen[positions],
            self.least_counts[positions],
            self.log_priors[positions],
        )


@dataclass(frozen=True, eq=False)
class Judge:
    """Judges words, given the mean number of messages per cell that come from no string."""

    tree: StringTree
    counts: Counts
    """Per level and bucket."""
    background: float
    false_strings: float
    """The expected number of false strings per length."""
    thorough: bool = True
    """Whether doubtful words are compared with each of their siblings."""

    def accepted(self, candidates: Candidates) -> NDArray[np.int64]:
        """The positions of the words that are accepted; the cells of an accepted word do not count for later ones."""
        shared = _shared(candidates.cells)
        alone = np.logical_not(shared.any(axis=1))
        likely = self._likely(candidates, np.ones_like(shared))
        accepted: list[int] = []
        taken: set[int] = set()
        for position, (is_alone, is_likely) in enumerate(zip(alone.tolist(), likely.tolist(), strict=True)):
            if not is_alone:
                cells = candidates.cells[position]
                free = ~shared[position] | np.array([cell not in taken for cell in cells.tolist()])
                is_likely = is_likely if free.all() else self._stands_out(candidates, position, free, len(accepted))
                if is_likely:
                    taken.update(cells[shared[position]].tolist())
            if is_likely:
                accepted.append(position)
        return np.array(accepted, dtype=np.int64)

    def _likely(self, candidates: Candidates, free: Flags) -> Flags:
        """Whether the free cells make the string more likely than its siblings, the words that share its first cells.

        For every level, its log-likelihood ratio on the cells from that level on must exceed the logarithm of the
        number of words that differ only from that level on. Otherwise the string may be a sibling of one that was not
        found. If there are few such words, the string is compared with each of them.
        """
        seen, levels = candidates.seen, self.tree.levels
        limits = 3 * _medians(seen, free)[:, None] + 12
        used = free & (seen <= limits)
        shares = np.where(used, seen, 0).sum(axis=1) / np.maximum(used.sum(axis=1), 1) - self.background
        likely: Flags = levels * shares >= np.maximum(candidates.least_counts, 1.0)
        shares = np.maximum(shares, 0.0)[:, None]
        ratios = np.minimum(seen, limits) * np.log1p(shares / max(self.background, 1e-9)) - shares
        after = np.cumsum(np.where(free, ratios, 0.0)[:, ::-1], axis=1)[:, ::-1]
        depths = np.array([(0, *self.tree.depths(length)) for length, _ in candidates.words]).reshape(-1, levels + 1)
        bits = depths[:, -1:] - depths[:, :-1]
        # before its first free cell the string equals an accepted one; on levels without new bits it has no siblings
        compared = (np.diff(depths, axis=1) > 0) & (np.cumsum(free, axis=1) > 0)
        margins = np.where(compared, after - bits * math.log(2) + candidates.log_priors[:, None], np.inf)
        few = bits <= _FEW_BITS
        likely &= np.where(few, np.inf, margins).min(axis=1) >= _SIBLING_MARGIN
        doubtful = self.thorough & likely & (np.where(few, margins, np.inf).min(axis=1) < _CLEAR_MARGIN)
        groups: dict[tuple[int, int], list[int]] = {}
        for position in np.flatnonzero(doubtful).tolist():
            first = int(np.argmax(few[position] & compared[position]))
            groups.setdefault((candidates.words[position][0], first), []).append(position)
        for (length, first), positions in groups.items():
            numbers = [candidates.words[position][1] for position in positions]
            odds = self._sibling_odds(length, first, numbers, shares[positions], limits[positions])
            likely[positions] = np.log(odds) <= math.log(_SIBLING_ODDS) + candidates.log_priors[positions]
        return likely

    def _sibling_odds(self, length: int, first: int, words: list[int], shares: Floats, limits: Floats) -> Floats:
        """The odds that another word with the same prefix before level ``first`` is right, if all priors are equal."""
        depths = self.tree.depths(length)
        bits = depths[-1] - (depths[first - 1] if first else 0)
        limbs = np.repeat(self.tree.as_limbs(length, words), 1 << bits, axis=0)
        own = np.array([word & ((1 << bits) - 1) for word in words])
        limbs[:, 0] -= np.repeat(own, 1 << bits).astype(np.uint64)
        limbs[:, 0] += np.tile(np.arange(1 << bits, dtype=np.uint64), len(words))
        totals = np.zeros((len(words), 1 << bits))
        logs = np.log1p(shares / max(self.background, 1e-9))
        for level in range(first, self.tree.levels):
            buckets = self.tree.bucket_of(length, level, self.tree.prefixes(length, level, limbs))
            seen = self.counts[level, buckets].reshape(totals.shape)
            totals += np.where(seen <= limits, seen * logs - shares, 0.0)  # larger counts come from a frequent string
        ratios = np.exp(np.minimum(totals - totals[np.arange(len(words)), own][:, None], 500.0))
        odds: Floats = np.maximum(ratios.sum(axis=1) - 1, 1e-300)
        return odds

    def _stands_out(self, candidates: Candidates, position: int, free: Flags, accepted: int) -> bool:
        """Whether the free cells alone hold more than a wrong string has by chance."""
        number = int(free.sum())
        if number < min(_LEAST_CELLS, self.tree.levels):
            return False
        values = np.sort(candidates.seen[position][free])
        length = candidates.words[position][0]
        if self._chance(_trimmed(values)) > _CHANCE or self._chance(values) > self._largest_chance(
            length, free, accepted
        ):
            return False
        return bool(self._likely(candidates.chosen(np.array([position])), free[None, :])[0])

    def _chance(self, values: Counts) -> float:
        """The probability that this many cells of a wrong string hold at least as many messages in total."""
        from scipy.special import gammainc

        total = int(values.sum())
        return float(gammainc(total, max(self.background, 1e-9) * len(values))) if total > 0 else 1.0

    def _largest_chance(self, length: int, free: Flags, accepted: int) -> float:
        """The largest probability with which a wrong string may have the counts of its free cells.

        The search compared the string with all words of its length, but it used cells of accepted strings too. A string
        that shares its first cells with an accepted one is one of the many siblings of that string.
        """
        shared = int(np.argmax(free))
        depths = self.tree.depths(length)
        bits = depths[-1] - (depths[shared - 1] if shared else 0)
        siblings = 2.0**bits * (max(1, accepted) if shared else 1)
        return min(1.0, self.false_strings / siblings)


def _shared(cells: Counts) -> Flags:
    """Whether each cell occurs in another row, too."""
    _, inverse, owners = np.unique(cells, return_inverse=True, return_counts=True)
    shared: Flags = (owners > 1)[inverse].reshape(cells.shape)
    return shared


def _medians(seen: Counts, free: Flags) -> Floats:
    """The median of the free cells of each row."""
    ordered = np.sort(np.where(free, seen, np.iinfo(np.int64).max), axis=1)
    number, rows = np.maximum(free.sum(axis=1), 1), np.arange(len(seen))
    medians: Floats = (ordered[rows, (number - 1) // 2] + ordered[rows, number // 2]) / 2
    return medians


def _trimmed(values: Counts) -> Counts:
    """Increasing values without the largest eighth, which may come from collisions with frequent strings."""
    number = values.shape[-1]
    return values[..., : number - number // 8]
