"""The search for strings of one length: from the prefixes of the first level to whole words, level by level.

The compiled kernel and its numpy twin extend prefixes in the same order and with integers only, so their results are
identical.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.native import ACTIVE
from shuffledp.protocols.strings.search_plan import SearchPlan
from shuffledp.protocols.strings.tree import Limbs, StringTree, shifted_left

Scores = NDArray[np.int16]
_CHUNK = 1 << 16
_OUTPUT = 1 << 20
_MIN_CAPACITY = 1 << 12


@dataclass(frozen=True, eq=False)
class Search:
    """The words that a search has found, their ``scores``, and the number of ``evaluated`` prefixes."""

    words: Limbs
    scores: Scores
    evaluated: int
    complete: bool
    """Whether every prefix with a score was extended; False if there were more than the limit of nodes."""


def search(tree: StringTree, plan: SearchPlan, symbols: NDArray[Any], *, nodes: int, native: bool = ACTIVE) -> Search:
    """All words whose prefixes have scores of at least 0, and whose final score is at least ``plan.accepted_from``.

    ``symbols`` has the symbol of each bucket, per level. On each level, at most ``nodes`` prefixes are extended: those
    with the best scores.
    """
    length, depths = plan.length, tree.depths(plan.length)
    limbs = tree.limbs(length)
    words, scores = np.zeros((1, limbs), dtype=np.uint64), np.full(1, -int(plan.costs[0]), dtype=np.int16)
    evaluated, complete, depth, ceilings = 0, True, 0, plan.ceilings
    expand = _extend_natively if native else _extend_in_numpy
    for level in range(tree.levels):
        bits = depths[level] - depth
        depth = depths[level]
        evaluated += len(words) << bits
        key = tree.key(length, level)
        words, scores = expand(words, scores, bits, key, plan.table(level, symbols[level]), ceilings[level])
        if len(words) > nodes:
            complete = False
            words, scores = _best(words, scores, nodes)
        if len(words) == 0:
            break
    accepted = scores >= plan.accepted_from
    return Search(words[accepted], scores[accepted], evaluated, complete)


def _best(words: Limbs, scores: Scores, nodes: int) -> tuple[Limbs, Scores]:
    """The prefixes with the best scores, in their order."""
    best = np.sort(np.argsort(-scores, kind="stable")[:nodes])
    return words[best], scores[best]


Extend = Callable[[Limbs, Scores, int, int, NDArray[np.int8], int], tuple[Limbs, Scores]]


def _extend_natively(
    words: Limbs, scores: Scores, bits: int, key: int, gains: NDArray[np.int8], ceiling: int
) -> tuple[Limbs, Scores]:
    from shuffledp.native._prefixes import extend

    capacity = max(_MIN_CAPACITY, 1 << bits, min(_OUTPUT, len(words) << bits))
    children, children_scores = (
        np.empty((capacity, words.shape[1]), dtype=np.uint64),
        np.empty(capacity, dtype=np.int16),
    )
    parts, done = [], 0
    while done < len(words):
        parents, written = extend(words, scores, done, bits, key, gains, ceiling, children, children_scores)
        parts.append((children[:written].copy(), children_scores[:written].copy()))
        done += parents
    return _joined(parts, words.shape[1])


def _extend_in_numpy(
    words: Limbs, scores: Scores, bits: int, key: int, gains: NDArray[np.int8], ceiling: int
) -> tuple[Limbs, Scores]:
    from shuffledp.protocols.strings.tree import hashed_buckets

    step = max(1, _CHUNK >> bits)
    new_bits = np.arange(1 << bits, dtype=np.uint64)
    parts = []
    for start in range(0, len(words), step):
        children = np.repeat(shifted_left(words[start : start + step], bits), len(new_bits), axis=0)
        children[:, 0] |= np.tile(new_bits, len(children) // len(new_bits))
        reached = np.repeat(scores[start : start + step], len(new_bits)) + gains[
            hashed_buckets(key, children, len(gains))
        ].astype(np.int16)
        alive = reached >= 0
        parts.append((children[alive], np.minimum(reached[alive], np.int16(ceiling))))
    return _joined(parts, words.shape[1])


def _joined(parts: list[tuple[Limbs, Scores]], limbs: int) -> tuple[Limbs, Scores]:
    if not parts:
        return np.empty((0, limbs), dtype=np.uint64), np.empty(0, dtype=np.int16)
    return np.concatenate([words for words, _ in parts]), np.concatenate([scores for _, scores in parts])
