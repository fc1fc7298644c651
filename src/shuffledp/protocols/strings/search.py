"""The search for strings of one length: from the prefixes of the first level to whole words, level by level.

The compiled kernel and its numpy twin extend prefixes in the same order and with integers only, so their results are
identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.native import ACTIVE
from shuffledp.protocols.strings.search_plan import SearchPlan
from shuffledp.protocols.strings.tree import Limbs, StringTree, hashed_buckets, shifted_left

Scores = NDArray[np.int16]
_CHUNK = 1 << 16
_OUTPUT = 1 << 16


@dataclass(frozen=True, eq=False)
class Search:
    """The words that a search has found, their ``scores``, and the number of ``evaluated`` prefixes."""

    words: Limbs
    scores: Scores
    evaluated: int
    complete: bool
    """Whether every prefix with a score was extended; False if there were more than the limit of nodes."""


def search(tree: StringTree, plan: SearchPlan, symbols: NDArray[Any], *, nodes: int, native: bool = ACTIVE) -> Search:
    """All words with no prefix that is dropped because its score is below 0.

    ``symbols`` has the symbol of each bucket, per level. On each level, at most ``nodes`` prefixes are extended: those
    with the best scores.
    """
    length, depths = plan.length, tree.depths(plan.length)
    words, scores = np.zeros((1, tree.limbs(length)), dtype=np.uint64), np.zeros(1, dtype=np.int16)
    evaluated, complete, depth = 0, True, 0
    tables = plan.tables(int(np.iinfo(symbols.dtype).max) + 1)
    extend = _NativeExtension(tree.limbs(length)) if native else _extend_in_numpy
    for level in range(tree.levels):
        bits = depths[level] - depth
        depth = depths[level]
        evaluated += len(words) << bits
        step = _Step(bits, tree.key(length, level), symbols[level], tables[level], plan.ceilings[level])
        words, scores = extend(words, scores, step)
        if len(words) > nodes:
            complete = False
            words, scores = _best(words, scores, nodes)
        if len(words) == 0:
            break
    return Search(words, scores, evaluated, complete)


def _best(words: Limbs, scores: Scores, nodes: int) -> tuple[Limbs, Scores]:
    """The prefixes with the best scores, in their order."""
    best = np.sort(np.argsort(-scores, kind="stable")[:nodes])
    return words[best], scores[best]


@dataclass(frozen=True, eq=False)
class _Step:
    """One level of a search: the number of new bits, the key of its hash, its symbols, and what each adds."""

    bits: int
    key: int
    symbols: NDArray[Any]
    gains: NDArray[np.int16]
    ceiling: int


class _NativeExtension:
    """The compiled kernel, with memory for its output that stays in the processor's cache."""

    def __init__(self, limbs: int) -> None:
        self._kept, self._scores = np.empty((_OUTPUT, limbs), dtype=np.uint64), np.empty(_OUTPUT, dtype=np.int16)

    def __call__(self, words: Limbs, scores: Scores, step: _Step) -> tuple[Limbs, Scores]:
        from shuffledp.native._prefixes import extend

        kept, kept_scores = self._kept, self._scores
        if 1 << step.bits > len(kept):
            kept, kept_scores = (
                np.empty((1 << step.bits, words.shape[1]), np.uint64),
                np.empty(1 << step.bits, np.int16),
            )
        parts, done = [], 0
        while done < len(words):
            parents, written = extend(
                words, scores, done, step.bits, step.key, step.symbols, step.gains, step.ceiling, kept, kept_scores
            )
            parts.append((kept[:written].copy(), kept_scores[:written].copy()))
            done += parents
        return _joined(parts, words.shape[1])


def _extend_in_numpy(words: Limbs, scores: Scores, step: _Step) -> tuple[Limbs, Scores]:
    parents_at_a_time = max(1, _CHUNK >> step.bits)
    new_bits = np.arange(1 << step.bits, dtype=np.uint64)
    parts = []
    for start in range(0, len(words), parents_at_a_time):
        parents = slice(start, start + parents_at_a_time)
        children = np.repeat(shifted_left(words[parents], step.bits), len(new_bits), axis=0)
        children[:, 0] |= np.tile(new_bits, len(children) // len(new_bits))
        found = step.symbols[hashed_buckets(step.key, children, len(step.symbols))]
        reached = np.repeat(scores[parents], len(new_bits)) + step.gains[found]
        alive = reached >= 0
        parts.append((children[alive], np.minimum(reached[alive], np.int16(step.ceiling))))
    return _joined(parts, words.shape[1])


def _joined(parts: list[tuple[Limbs, Scores]], limbs: int) -> tuple[Limbs, Scores]:
    if not parts:
        return np.empty((0, limbs), dtype=np.uint64), np.empty(0, dtype=np.int16)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([words for words, _ in parts]), np.concatenate([scores for _, scores in parts])
