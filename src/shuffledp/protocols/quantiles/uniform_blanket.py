"""A tree of FE0 histograms: a user's cell of every level in clear, hidden by uniform cells that all users add.

The tree is that of RM2 of Luo et al. (2025); all levels are accounted for jointly, so that they need several times
less noise than with epsilon and delta divided among them. How many messages were added on each level is public, so that
the noise of a level is exactly multinomial.

Accounting: ``shuffledp.privacy.quantile_trees``, ``shuffledp.privacy.mirrored_composition``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Bins, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.quantile_trees import blanket_tree_curve, least_tree_blankets
from shuffledp.protocols.parts.blanket import blanket_offsets, blanket_report_pmf
from shuffledp.protocols.parts.weighted_noise import UniformMessages
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.quantiles.protocol import Floats, QuantilesProtocol, usual_branching
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, RandomSource, binomial, integers, uniform_counts
from shuffledp.search import least_integer

TREE_THEOREM = "composition over the levels of the exact sum over blanket messages that hit either cell"


@dataclass(frozen=True)
class UniformBlanketQuantiles(QuantilesProtocol):
    """Quantiles from every user's cell on each level of a tree, in clear among uniform cells; shuffled.

    ``branching`` is the number of children of a node on each level.
    """

    name: ClassVar[str] = "uniform-blanket"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    blankets: tuple[Slots, ...]
    """Per level, how many uniform cells each user adds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.blankets) != len(self.branching):
            raise ParameterError(f"{len(self.blankets)} blankets do not fit {len(self.branching)} levels.")

    @classmethod
    def for_target(cls, target: Target, domain: Bins, *, branching: tuple[int, ...] | None = None) -> Self:
        """The fewest noise messages that meet the target; their mean number per cell is the same on every level."""
        chosen = usual_branching(domain.bins) if branching is None else tuple(branching)
        sizes = cls.tree_of(domain, chosen).sizes
        blankets = least_tree_blankets(target.honest_users, sizes, target.epsilon, target.delta)
        return cls(target, domain, chosen, blankets)

    @cached_property
    def guarantee(self) -> Guarantee:
        """From the noise messages of the honest users on all levels together."""
        curve = blanket_tree_curve(self.blankets, self.target.honest_users, self.tree.sizes)
        return self.target.guarantee(curve, theorem=TREE_THEOREM)

    @property
    def cost(self) -> Cost:
        """Per level the user's cell and the uniform ones."""
        mean = math.fsum(1 + blanket.mean for blanket in self.blankets)
        max_messages = sum(1 + blanket.whole + (blanket.rest.numerator > 0) for blanket in self.blankets)
        return Cost(mean, max_messages, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """Per level the user's cell and the uniform ones that everybody adds."""
        return sum(1 + blanket.whole for blanket in self.blankets)

    def most_users(self, tally: Tally, messages: int) -> int:  # noqa: ARG002
        """Everybody sends their cell of each level, and the uniform ones that everybody adds."""
        levels = zip(self.tree.levels_of(tally.counts), self.blankets, strict=True)
        return min(int(counts.sum()) // (1 + blanket.whole) for counts, blanket in levels)

    def without_excess(self, tally: Tally) -> Tally:
        """The tally without uniform messages in excess of what users send per level; estimates stay the same."""
        levels = self.tree.levels_of(tally.counts)
        limits = [limit for _, limit in self._sent_by(tally.users)]
        if all(int(counts.sum()) <= limit for counts, limit in zip(levels, limits, strict=True)):
            return tally
        parts = [
            less_uniform(counts, max(0, int(counts.sum()) - limit))
            for counts, limit in zip(levels, limits, strict=True)
        ]
        return replace(tally, counts=np.concatenate(parts))

    def _sent_by(self, users: int) -> list[tuple[int, int]]:
        """Per level, the minimum and the maximum number of messages of this number of users."""
        fewest = [users * (1 + blanket.whole) for blanket in self.blankets]
        added = [users * (blanket.rest.numerator > 0) for blanket in self.blankets]
        return [(least, least + more) for least, more in zip(fewest, added, strict=True)]

    def report_pmf(self, value: int) -> Pmf:
        """Per level the user's cell and every multiset of uniform ones."""
        owned = self.tree.nodes_of(np.array([check_index(value, self.domain_size)]))[0] - np.array(
            self.tree.offsets[:-1]
        )
        levels: list[Mapping[tuple[int, ...], Fraction | float]] = [
            blanket_report_pmf({int(cell): Fraction(1)}, size, blanket)
            for cell, size, blanket in zip(owned, self.tree.sizes, self.blankets, strict=True)
        ]
        return {
            sum((copies for copies, _ in parts), ()): math.prod(mass for _, mass in parts)
            for parts in product(*(level.items() for level in levels))
        }

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; the number of messages does not depend on the values."""
        owned = self.tree.nodes_of(check_indices(values, self.domain_size))
        starts = [blanket_offsets(len(owned), blanket, source) for blanket in self.blankets]
        lengths = np.stack([np.diff(start) for start in starts], axis=1)  # per user and level
        ends = np.cumsum(lengths.ravel())
        first = np.concatenate(([0], ends[:-1])).reshape(lengths.shape).astype(np.int64)
        sent = np.empty(int(ends[-1]) if len(ends) else 0, dtype=self.message_format.dtype)
        for level, (size, start) in enumerate(zip(self.tree.sizes, starts, strict=True)):
            cells = integers(size, int(start[-1]), source) + self.tree.offsets[level]
            within = np.arange(int(start[-1])) - np.repeat(start[:-1], lengths[:, level])
            sent[np.repeat(first[:, level], lengths[:, level]) + within] = cells
        sent[first.ravel()] = owned.ravel()
        offsets = np.concatenate(([0], np.cumsum(lengths.sum(axis=1)))).astype(np.int64)
        return Messages(sent, len(owned), offsets, source.secure)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts of all cells, and all uniform cells of a level at once."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        noise = [
            uniform_counts(users * blanket.whole + int(binomial(users, blanket.rest, 1, source)[0]), size, source)
            for size, blanket in zip(self.tree.sizes, self.blankets, strict=True)
        ]
        return Tally(self.tree.counts_of(true) + np.concatenate(noise), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: on every level, everybody sends their cell, ``whole`` more, and maybe another one."""
        if len(tally.counts) != self.tree.nodes:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} cells does not fit a tree of {self.tree.nodes:,}.",
                cells=len(tally.counts),
            )
        levels = zip(self.tree.levels_of(tally.counts), self._sent_by(tally.users), strict=True)
        for level, (counts, (fewest, limit)) in enumerate(levels):
            sent = int(counts.sum())
            if not fewest <= sent <= limit:
                raise ParameterError(
                    f"{tally.users:,} users of this protocol send {fewest:,} to {limit:,} messages about level "
                    f"{level + 1}, not {sent:,}.",
                    messages=sent,
                )

    def noises(self, users: int, tally: Tally | None = None) -> tuple[UniformMessages, ...]:
        """The noise of the expected number of uniform cells, or of the number that was added."""
        if tally is None:
            messages = [users * blanket.mean for blanket in self.blankets]
        else:
            messages = [float(counts.sum() - users) for counts in self.tree.levels_of(tally.counts)]
        return tuple(UniformMessages(*level) for level in zip(messages, self.tree.sizes, strict=True))

    def centred(self, tally: Tally) -> list[Floats]:
        """Counts minus the mean number of uniform messages per cell, which follows from their public number."""
        levels = self.tree.levels_of(tally.counts.astype(np.float64))
        return [counts - (float(counts.sum()) - tally.users) / len(counts) for counts in levels]


def less_uniform(counts: NDArray[np.int64], excess: int) -> NDArray[np.int64]:
    """The counts with ``excess`` fewer messages, removed equally from every cell that has enough.

    >>> less_uniform(np.array([0, 2, 9, 9]), 7).tolist()
    [0, 0, 6, 7]
    """
    if excess == 0:
        return counts
    level = least_integer(lambda level: int(np.minimum(counts, level).sum()) >= excess)
    reduced = counts - np.minimum(counts, level - 1)
    rest = excess - int((counts - reduced).sum())
    reduced[np.flatnonzero(reduced)[:rest]] -= 1
    return reduced
