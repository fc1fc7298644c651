"""The central tree: a trusted party adds discrete Laplace noise to the count of every cell of every level.

Hay, Rastogi, Miklau and Suciu (2010), with all levels accounted for jointly.

Accounting: ``shuffledp.privacy.quantile_trees`` and ``shuffledp.privacy.discrete_laplace``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Bins, check_counts
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.discrete_laplace import check_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.quantile_trees import laplace_tree_curve, least_tree_ratio
from shuffledp.protocols.histogram.discrete_laplace import independent_noise_pmf
from shuffledp.protocols.parts.clear import ClearProtocol
from shuffledp.protocols.parts.thresholded import check_unreleased
from shuffledp.protocols.parts.weighted_noise import LaplaceCells
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.quantiles.protocol import QuantilesProtocol, branchings
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace


@dataclass(frozen=True)
class DiscreteLaplaceQuantiles(ClearProtocol, QuantilesProtocol):
    """Quantiles from a tree of counts with discrete Laplace noise, added by a trusted party; central.

    ``branching`` is the number of children of a node on each level.
    """

    name: ClassVar[str] = "discrete-laplace"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.ratio)

    @classmethod
    def for_target(cls, target: Target, domain: Bins, *, branching: tuple[int, ...] | None = None) -> Self:
        """The least noise, the same on every cell, that meets the target; of several trees the most accurate one."""
        trees = branchings(domain.bins) if branching is None else [tuple(branching)]
        for tree in trees:
            cls.tree_of(domain, tree)
        ratios = {levels: least_tree_ratio(levels, target.epsilon, target.delta) for levels in set(map(len, trees))}
        protocols = [cls(target, domain, tree, ratios[len(tree)]) for tree in trees]
        return min(protocols, key=lambda protocol: protocol.expected_error().rmse)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of the release; the collecting party sees every value."""
        curve = laplace_tree_curve(self.ratio, len(self.branching))
        theorem = "composition over the levels of the exact divergence of the noise"
        return self.target.guarantee(curve, theorem=theorem, trust="central")

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """The counts of all cells with noise."""
        check_unreleased(tally, self.domain_size)
        noise = discrete_laplace(self.ratio, self.tree.nodes, source)
        counts = self.tree.counts_of(tally.counts) + noise
        return Tally(counts, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """Independent noise on every cell."""
        return independent_noise_pmf(self.ratio, self.tree.counts_of(tally.counts))

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true counts of all cells with noise."""
        true = check_counts(counts, self.domain_size)
        return self.release(Tally(true, int(true.sum()), source.secure), source=source)

    def check_tally(self, tally: Tally) -> None:
        """Check that there is a count of every cell."""
        if len(tally.counts) != self.tree.nodes:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} cells does not fit a tree of {self.tree.nodes:,}.",
                cells=len(tally.counts),
            )

    def noises(self, users: int, tally: Tally | None = None) -> tuple[LaplaceCells, ...]:  # noqa: ARG002 - the same
        """The same noise on every level."""
        return (LaplaceCells(self.ratio),) * len(self.branching)
