"""A histogram with correlated noise: nearly the error of the central model with about one message per user.

Ghazi, Kumar, Manurangsi and Pagh (2020), Algorithms 3 and 4 and Corollary 2; Ghazi, Kumar, Manurangsi, Pagh and Sinha
(2021), Lemma 9. Users send "+1" for their category, and for every category a share of noise: a few "+1" and "-1", and
pairs of both, which cancel in the estimate and flood the analyzer. The sum of all shares is geometric, so that the
error is exactly discrete Laplace.

Accounting: ``shuffledp.privacy.correlated_noise`` and ``shuffledp.privacy.clusters``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, Numbered, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Tally
from shuffledp.privacy.carriers import CarrierRoles
from shuffledp.privacy.cluster_calibration import least_noise
from shuffledp.privacy.cluster_weights import LEAST_EPSILON_OF_A_TABLE, fewest_messages
from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs, View, paper_flooding
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.protocol import PROJECTED_ESTIMATORS, HistogramProtocol
from shuffledp.protocols.parts.category_noise import LaplaceNoise
from shuffledp.protocols.parts.correlated import CorrelatedNoiseProtocol, check_roles, roles_for
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

_OMITTED_MASS = 1e-5
_LEAST_WORTH_TRYING = 0.1
_MANY_USERS_PER_CATEGORY = 5000  # with so many, noise costs hardly any messages
_LARGEST_LISTED = 2_000_000


@dataclass(frozen=True)
class CorrelatedNoiseHistogram(CorrelatedNoiseProtocol, HistogramProtocol):
    """A histogram with nearly the central error, from few messages per user (Ghazi and others 2020); shuffled.

    Options of ``calibrate``:

    - ``split``: part of epsilon for the noise that changes the counts; the rest is for the pairs that cancel.
    - ``weighted``: whether clusters of each size get a rate of their own, and some of the noise comes as single "+1";
      this saves messages at a small split, and keeps the error.
    - ``carriers``: the probability of being a carrier; by default all users add noise.
    """

    name: ClassVar[str] = "correlated-noise"
    estimators: ClassVar[tuple[str, ...]] = PROJECTED_ESTIMATORS
    exchangeable_noise: ClassVar[bool] = True
    independent_categories: ClassVar[bool] = True
    grows_with_domain: ClassVar[bool] = True

    ratio: Dyadic
    """Ratio of the geometric noise that remains: k messages have a probability proportional to ratio^k."""
    flood: NegativeBinomialPairs | PairClusters
    """The pairs that cancel: clusters, or with the constants of the paper a negative binomial number."""
    domain_size: int
    categories: Categories | None = None
    carriers: CarrierRoles | None = None
    """Who adds noise: users who are chosen by a coin; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_roles(self.carriers, self.flood, self.target)

    @classmethod
    def for_target(
        cls,
        target: Target,
        domain: Categories | Numbered,
        *,
        split: float = 0.9,
        weighted: bool = False,
        carriers: float | None = None,
    ) -> Self:
        """The fewest pairs that are (epsilon, delta)-private overall.

        ``split`` is the fraction of epsilon for the noise that remains; a larger one means less error and more
        messages.
        """
        size, named = cls.domain_fields(domain)
        roles, delta = roles_for(target, carriers)
        if target.calibration == "paper":
            ratio, shape, flood_ratio = paper_flooding(target.epsilon, delta, split, "histogram")
            return cls(target, ratio, NegativeBinomialPairs(shape, flood_ratio), size, named, roles)
        if weighted:
            return cls(target, *fewest_messages(target.epsilon, delta, split), size, named, roles)
        return cls(target, *least_noise(target.epsilon, delta, split, "histogram"), size, named, roles)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:
        """Less error for more messages, and fewer messages for more error; none if epsilon is small."""
        epsilon = settings.get("epsilon", 1.0)
        if epsilon < _LEAST_WORTH_TRYING:
            return ()
        fewest = {"split": 0.655, "weighted": True} if epsilon >= LEAST_EPSILON_OF_A_TABLE else {"split": 0.7}
        few = settings.get("users", 0) >= _MANY_USERS_PER_CATEGORY * (settings.get("domain_size") or math.inf)
        return {"split": 0.98 if few else 0.96}, fewest

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        return self.noise_guarantee(theorem="exact divergence of the noise of both changed categories")

    @property
    def bins(self) -> int:
        """Every category has noise."""
        return self.domain_size

    @property
    def view(self) -> View:
        """The view in which the noise is accounted for."""
        return "histogram"

    @property
    def min_messages_per_user(self) -> int:
        """The "+1" for the user's category."""
        return 1

    def most_users(self, tally: Tally, messages: int) -> int:  # noqa: ARG002
        """Every user sends at least one "+1"; the counts of both signs alternate in the tally."""
        return int(tally.counts[::2].sum())

    @property
    def message_effects(self) -> tuple[float, float]:
        """A message adds 1 to a category, subtracts 1, or does neither."""
        return -1.0, 1.0

    @property
    def message_format(self) -> MessageFormat:
        """A category's index and a sign: 0 for "+1", 1 for "-1"."""
        return MessageFormat((self.domain_size,), flags=1)

    def report_pmf(self, value: int) -> Pmf:
        """The user's "+1" and the noise of every category, except for a tail of 1e-5; for few outcomes only."""
        owned = check_index(value, self.domain_size)
        noise = self.shares.pmf(_OMITTED_MASS / self.domain_size)
        if len(noise) ** self.domain_size > _LARGEST_LISTED:
            raise ParameterError(f"A report over {self.domain_size:,} categories has too many outcomes to list.")
        pmf: dict[tuple[int, ...], float] = {}
        for drawn in product(noise.items(), repeat=self.domain_size):
            copies = [count for signs, _ in drawn for count in signs]
            copies[2 * owned] += 1
            pmf[tuple(copies)] = math.prod(mass for _, mass in drawn)
        own = [0] * (2 * self.domain_size)
        own[2 * owned] = 1
        return self.mixed_pmf(tuple(own), pmf)

    def own_cells(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The "+1" of each user."""
        owned = check_indices(values, self.domain_size)
        return 2 * (np.arange(len(owned), dtype=np.int64) * self.domain_size + owned)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The sums of all shares, which have the same kinds of distributions."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        if users == 0:
            return Tally.zero(2 * self.domain_size)
        plus, minus = self.draw_totals(users, source)
        return Tally(np.column_stack((true + plus, minus)).ravel(), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: counts of both signs per category, and at least one "+1" per user."""
        if len(tally.counts) != 2 * self.domain_size:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} different messages does not fit a domain of {self.domain_size:,}."
            )
        positive = int(tally.counts[::2].sum())
        if positive < tally.users:
            raise ParameterError(f'Messages are missing: {tally.users:,} users cannot send only {positive:,} "+1".')

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of "+1" minus the number of "-1" of each category."""
        return tally.counts[::2] - tally.counts[1::2]

    @property
    def category_noise(self) -> LaplaceNoise | None:
        """The count plus the noise that remains; None if singles are part of it, or if there are carriers."""
        return None if self.shares.singles or self.carriers is not None else LaplaceNoise(self.ratio)

    def analysis(self, users: int) -> LinearAnalysis:
        """The noise that remains: discrete Laplace, or wider if there are more users than planned."""
        return LinearAnalysis(
            offset=float(self.shares.singles * users / self.target.honest_users),
            slope=1.0,
            error=FixedNoise(self.remaining(users)),
            largest=users,
            numbers=self.domain_size,
        )
