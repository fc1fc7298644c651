"""Multi-party pointer jumping MPJ(s, h): Definition 16 of Balcer and Cheu (2020).

In a complete s-ary tree every node of the levels 1 .. h is labelled with one of its s children. A user holds all labels
of one level; the answer is the path from the root that follows the labels. There are s^(s^(i-1)) labelings of level i,
but only h of all labelings occur.

Large labelings cannot be stored. A *lazy* labeling is a random key and a few explicit labels; every other label is a
pseudorandom function of key and node. This does not change the experiment: randomizers and shuffler treat items as
opaque, a protocol that never reports an empty item behaves the same for any names of the items, and the answer is
computed from labels of reported items only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from shuffledp.errors import ParameterError
from shuffledp.lab.problems.problem import (
    MAX_LISTED_DIGITS,
    check_index,
    check_integer,
    check_listed,
)
from shuffledp.randomness import SYSTEM, RandomSource, draw_bytes
from shuffledp.randomness.samplers import uniform_below

Node = tuple[int, ...]
"""A node, given by the children on the path from the root; the root is ()."""

_KEY_BYTES = 16
_WORD_BYTES = 8
_MAX_BRANCHING = 1 << 62
_MAX_LEVELS = 5000  # a node is stored as its path, so time grows with the square of the height
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class ListedLabeling:
    """All labels of a level, stored in the order of its nodes."""

    level: int
    branching: int
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        nodes = self.branching ** (self.level - 1)
        if len(self.labels) != nodes or not all(0 <= label < self.branching for label in self.labels):
            raise ParameterError(
                f"Level {self.level} of a tree with s = {self.branching} needs {nodes:,} labels from 0 to "
                f"{self.branching - 1}; the {len(self.labels):,} given ones are not valid."
            )

    def label(self, node: Node) -> int:
        """The child that the node points to."""
        _check_node(node, self.level, self.branching)
        index = 0
        for child in node:
            index = index * self.branching + child
        return self.labels[index]


@dataclass(frozen=True)
class LazyLabeling:
    """Labels that are computed on demand: explicit overrides, else a pseudorandom function of the key and the node.

    Labelings are equal if their level, key and overrides are.
    """

    level: int
    branching: int
    key: bytes
    overrides: tuple[tuple[Node, int], ...] = ()

    def __post_init__(self) -> None:
        if len(self.key) != _KEY_BYTES:
            raise ParameterError(f"A key has {_KEY_BYTES} bytes, not {len(self.key)}.")
        for node, label in self.overrides:
            _check_node(node, self.level, self.branching)
            if not 0 <= label < self.branching:
                raise ParameterError(f"A label lies between 0 and {self.branching - 1}, not at {label}.", label=label)

    def label(self, node: Node) -> int:
        """The child that the node points to: uniform on 0 .. s - 1 by rejection."""
        _check_node(node, self.level, self.branching)
        for labelled_node, label in self.overrides:
            if labelled_node == node:
                return label
        largest = (1 << 8 * _WORD_BYTES) // self.branching * self.branching
        path = b"".join(child.to_bytes(_WORD_BYTES, "big") for child in node)
        attempt = 0
        while True:
            message = attempt.to_bytes(_WORD_BYTES, "big") + path
            word = hashlib.blake2b(message, key=self.key, digest_size=_WORD_BYTES).digest()
            drawn = int.from_bytes(word, "big")
            if drawn < largest:
                return drawn % self.branching
            attempt += 1


Labeling = ListedLabeling | LazyLabeling


@dataclass(frozen=True)
class PointerJumping:
    """The problem MPJ(s, h)."""

    name: ClassVar[str] = "pointer-jumping"

    branching: int
    """The number of children of every node, s in the paper."""
    height: int
    """The number of levels with labels, h in the paper."""

    def __post_init__(self) -> None:
        check_integer("The number of children of a node (s)", self.branching, maximum=_MAX_BRANCHING)
        check_integer("The height of the tree (h)", self.height, maximum=_MAX_LEVELS)

    @property
    def support_size(self) -> int:
        """One labeling for every level."""
        return self.height

    @property
    def needed(self) -> int:
        """The path passes every level, so all items are needed."""
        return self.height

    @property
    def log_domain_size(self) -> float:
        """ln of the sum over i of s^(s^(i-1)); infinite if that has more than 10^300 digits."""
        if self.branching == 1:
            return math.log(self.height)
        size = self.domain_size
        if size is not None:
            return math.log(size)
        exponent = (self.height - 1) * math.log(self.branching)
        return math.log(self.branching) * math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf

    @property
    def domain_size(self) -> int | None:
        """The sum over i of s^(s^(i-1)), if it has at most twenty digits."""
        if self.branching == 1:
            return self.height
        total, nodes = 0, 1
        for _ in range(self.height):
            if nodes * math.log10(self.branching) >= MAX_LISTED_DIGITS:
                return None
            total += self.branching**nodes
            nodes *= self.branching
        return total if total < 10**MAX_LISTED_DIGITS else None

    def parameters(self) -> dict[str, int]:
        """s and h."""
        return {"branching": self.branching, "height": self.height}

    def describe(self) -> str:
        """A short description of the problem."""
        return f"pointer jumping with s = {self.branching:,} and h = {self.height:,}"

    def instance(self, source: RandomSource = SYSTEM) -> PointerJumpingInstance:
        """Random labels on every level."""
        return PointerJumpingInstance(self, tuple(self._random_level(level, source) for level in self._levels))

    def instance_with(self, overrides: Mapping[Node, int], source: RandomSource = SYSTEM) -> PointerJumpingInstance:
        """A random instance in which the labels of some nodes are given."""
        for node in overrides:
            _check_node(node, len(node) + 1, self.branching)
            if len(node) >= self.height:
                raise ParameterError(f"The node {node} lies below level h = {self.height}.", node=node)
        levels = []
        for level in self._levels:
            chosen = tuple(sorted((node, label) for node, label in overrides.items() if len(node) == level - 1))
            levels.append(LazyLabeling(level, self.branching, _random_key(source), chosen))
        return PointerJumpingInstance(self, tuple(levels))

    def random_item(self, source: RandomSource = SYSTEM) -> Labeling:
        """A uniform item of the domain; in a domain too large to number, of its last level (all but a 10^-9 share)."""
        size = self.domain_size
        if size is not None:
            return self.item(uniform_below(size, source))
        return self._random_level(self.height, source)

    def item(self, index: int) -> ListedLabeling:
        """The item with this index: by level, then in lexicographic order of the labels."""
        check_index(index, check_listed(self))
        for level in self._levels:
            if index < self._labelings(level):
                break
            index -= self._labelings(level)
        labels = []
        for _ in range(self.branching ** (level - 1)):
            index, label = divmod(index, self.branching)
            labels.append(label)
        return ListedLabeling(level, self.branching, tuple(reversed(labels)))

    def index(self, item: Labeling) -> int:
        """The index of an item: by level, then in lexicographic order of the labels."""
        check_listed(self)
        if not isinstance(item, ListedLabeling):
            raise ParameterError("Only a ListedLabeling has an index in the enumerated domain.")
        before = sum(self._labelings(level) for level in range(1, item.level))
        rank = 0
        for label in item.labels:
            rank = rank * self.branching + label
        return before + rank

    @property
    def _levels(self) -> range:
        return range(1, self.height + 1)

    def _labelings(self, level: int) -> int:
        """The number of labelings of a level."""
        nodes: int = self.branching ** (level - 1)
        return int(self.branching**nodes)

    def _random_level(self, level: int, source: RandomSource) -> Labeling:
        if self.domain_size is None:
            return LazyLabeling(level, self.branching, _random_key(source))
        labels = (uniform_below(self.branching, source) for _ in range(self.branching ** (level - 1)))
        return ListedLabeling(level, self.branching, tuple(labels))


@dataclass(frozen=True)
class PointerJumpingInstance:
    """A labeling for every level."""

    problem: PointerJumping
    support: tuple[Labeling, ...]

    def __post_init__(self) -> None:
        levels = [(item.level, item.branching) for item in self.support]
        if levels != [(level, self.problem.branching) for level in range(1, self.problem.height + 1)]:
            raise ParameterError(
                f"An instance needs one labeling of each level 1 .. {self.problem.height} of a tree with "
                f"s = {self.problem.branching}, in this order."
            )

    @property
    def answer(self) -> Node:
        """The children on the path from the root to a leaf."""
        return _path(self.support)

    def answer_from(self, reported: Sequence[Labeling]) -> Node | None:
        """The path, if exactly one labeling of every level was reported; else None."""
        items = sorted(set(reported), key=lambda item: item.level)
        if [item.level for item in items] != list(range(1, self.problem.height + 1)):
            return None
        return _path(items)


def _path(levels: Sequence[Labeling]) -> Node:
    node: Node = ()
    for item in levels:
        node = (*node, item.label(node))
    return node


def _random_key(source: RandomSource) -> bytes:
    return draw_bytes(_KEY_BYTES, source).tobytes()


def _check_node(node: Node, level: int, branching: int) -> None:
    if len(node) != level - 1 or not all(0 <= child < branching for child in node):
        raise ParameterError(
            f"A node of level {level} is a tuple of {level - 1} children from 0 to {branching - 1}, not {node}."
        )
