"""A tree of histograms with correlated noise: nearly the error of the central tree, with few levels.

On every level a user sends "+1" for their cell, and for every cell a share of noise: a few "+1" and "-1", and pairs of
both, which cancel in the estimate and flood the analyzer (Ghazi, Kumar, Manurangsi and Pagh 2020). The sum of all
shares is geometric, so that the error of a cell is exactly discrete Laplace. All levels are accounted for jointly.

Accounting: ``shuffledp.privacy.quantile_trees`` and ``shuffledp.privacy.correlated_noise``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Bins, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.quantile_trees import correlated_tree_curve, least_tree_flooding
from shuffledp.protocols.parts.noise_shares import NoiseShares
from shuffledp.protocols.parts.sparse import check_cells, messages_of_cells
from shuffledp.protocols.parts.tree import Tree, TreeFit
from shuffledp.protocols.parts.weighted_noise import LaplaceCells
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.quantiles.protocol import Floats, QuantilesProtocol, branchings
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

_OMITTED_MASS = 1e-5
_LEAST_WORTH_TRYING = 0.1  # epsilon from which on other splits are tried
_NEARLY_LEAST = 1.05  # factor on the least error that is accepted for fewer levels
_MAX_LISTED = 2_000_000


@dataclass(frozen=True)
class CorrelatedNoiseQuantiles(QuantilesProtocol):
    """Quantiles from every user's cell on each level of a tree, with correlated noise; shuffled.

    ``branching`` is the number of children of a node on each level. Options of ``calibrate``:

    - ``split``: part of epsilon for the noise that changes the counts; the rest is for the pairs that cancel.
    """

    name: ClassVar[str] = "correlated-noise"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """Ratio of the geometric noise that remains: k messages have a probability proportional to ratio^k."""
    flood_shape: Fraction
    """Shape of the negative binomial number of pairs that cancel."""
    flood_ratio: Dyadic

    @classmethod
    def for_target(
        cls, target: Target, domain: Bins, *, branching: tuple[int, ...] | None = None, split: float = 0.9
    ) -> Self:
        """The least flooding, the same on every cell, that meets the target; by default on an accurate tree.

        ``split`` is the fraction of epsilon for the noise that remains; a larger one means less error and more
        messages.
        """
        chosen = accurate_branching(domain.bins) if branching is None else tuple(branching)
        cls.tree_of(domain, chosen)
        return cls(target, domain, chosen, *least_tree_flooding(len(chosen), target.epsilon, target.delta, split))

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """Other splits, with less error or fewer messages, and a single level, with fewer messages."""
        bins = settings["domain"].bins
        usual, single = accurate_branching(bins), (bins,)
        worth_trying = settings.get("epsilon", 1.0) >= _LEAST_WORTH_TRYING
        if worth_trying:
            yield from ({"branching": usual, "split": split} for split in (0.96, 0.7))
        if single != usual:
            yield {"branching": single}
            if worth_trying:
                yield {"branching": single, "split": 0.7}

    @property
    def shares(self) -> NoiseShares:
        """The noise of a cell, in as many shares as there are honest users; further users add more."""
        flood = NegativeBinomialPairs(self.flood_shape, self.flood_ratio)
        return NoiseShares(self.ratio, flood, self.target.honest_users)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        curve = correlated_tree_curve(self.ratio, self.flood_shape, self.flood_ratio, len(self.branching))
        theorem = "composition over the levels of the exact divergence of the noise of both changed cells"
        return self.target.guarantee(curve, theorem=theorem)

    @property
    def cost(self) -> Cost:
        """One message per level and the shares of noise, which do not depend on the value."""
        mean = len(self.branching) + self.tree.nodes * self.shares.mean_messages
        return Cost(mean, None, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """The "+1" for the user's cell of each level."""
        return len(self.branching)

    def most_users(self, tally: Tally, messages: int) -> int:  # noqa: ARG002
        """Every user sends at least one "+1" on each level."""
        return min(int(counts.sum()) for counts in self.tree.levels_of(tally.counts[::2]))

    @property
    def share_ratios(self) -> tuple[Dyadic, ...]:
        """The ratios of the noise that remains and of the pairs that cancel."""
        return self.ratio, self.flood_ratio

    def chance_of_more_messages(self, messages: int) -> float:
        """Upper bound on the probability that a report has more than ``messages`` messages."""
        return self.shares.chance_of_more(messages - len(self.branching), self.tree.nodes)

    @property
    def message_format(self) -> MessageFormat:
        """The number of a cell, and a sign: 0 for "+1", 1 for "-1"; cells are numbered level by level."""
        return MessageFormat((self.tree.nodes,), flags=1)

    def report_pmf(self, value: int) -> Pmf:
        """The user's "+1" and the noise of every cell, except for a tail of 1e-5; for few outcomes only."""
        owned = self.tree.nodes_of(np.array([check_index(value, self.domain_size)]))[0]
        noise = self.shares.pmf(_OMITTED_MASS / self.tree.nodes)
        if len(noise) ** self.tree.nodes > _MAX_LISTED:
            raise ParameterError(f"A report over {self.tree.nodes:,} cells has too many outcomes to list.")
        pmf: dict[tuple[int, ...], float] = {}
        for drawn in product(noise.items(), repeat=self.tree.nodes):
            copies = [count for signs, _ in drawn for count in signs]
            for node in owned.tolist():
                copies[2 * node] += 1
            pmf[tuple(copies)] = math.prod(mass for _, mass in drawn)
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: only shares that are not zero are drawn."""
        owned = self.tree.nodes_of(check_indices(values, self.domain_size))
        check_cells(len(owned), self.message_format)
        own = 2 * (np.arange(len(owned), dtype=np.int64)[:, None] * self.tree.nodes + owned)
        noise = self.shares.draw(len(owned) * self.tree.nodes, source)
        return messages_of_cells(np.concatenate((own.ravel(), noise)), len(owned), self.message_format, source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The sums of all shares, which are negative binomial again."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        if users == 0:
            return Tally.zero(2 * self.tree.nodes)
        plus, minus = self.shares.totals(users, self.tree.nodes, source)
        return Tally(np.column_stack((self.tree.counts_of(true) + plus, minus)).ravel(), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: counts of both signs per cell, and on every level at least one "+1" per user."""
        if len(tally.counts) != 2 * self.tree.nodes:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} different messages does not fit a tree of {self.tree.nodes:,} cells."
            )
        for level, counts in enumerate(self.tree.levels_of(tally.counts[::2]), start=1):
            positive = int(counts.sum())
            if positive < tally.users:
                raise ParameterError(
                    f"Messages about level {level} are missing: {tally.users:,} users cannot send only "
                    f'{positive:,} "+1".'
                )

    def noises(self, users: int, tally: Tally | None = None) -> tuple[LaplaceCells, ...]:  # noqa: ARG002 - the same
        """The noise that remains: discrete Laplace, or wider if there are more users than planned."""
        return (LaplaceCells(self.ratio, users / self.target.honest_users),) * len(self.branching)

    def centred(self, tally: Tally) -> list[Floats]:
        """The number of "+1" minus the number of "-1" of each cell."""
        return self.tree.levels_of((tally.counts[::2] - tally.counts[1::2]).astype(np.float64))


def accurate_branching(bins: int) -> tuple[int, ...]:
    """The tree of fewest levels with nearly the least error, where epsilon is divided equally among the levels.

    >>> accurate_branching(1024)
    (32, 32)
    """
    errors = {}
    for branching in branchings(bins):  # from the most levels to one
        levels = len(branching)
        variances = TreeFit(Tree(bins, branching), (float(levels**2),) * levels).variances_below_edges
        errors[branching] = math.sqrt(float(np.mean(variances)))
    enough = _NEARLY_LEAST * min(errors.values())
    return [branching for branching, error in errors.items() if error <= enough][-1]
