"""What the count and the histogram with correlated noise have in common: shares of noise, of all users or of carriers.

Without carriers every user adds a share. With carriers each user tosses a coin that does not depend on the value: a
carrier adds a larger share, and everybody else sends the own message only (``shuffledp.privacy.carriers``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import Messages
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.carriers import (
    DELTA_FOR_SHORTAGE,
    CarrierCurve,
    CarrierRoles,
    KnownCarriers,
    plan_carriers,
    shortage,
)
from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import View
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.linear import NoiseDistribution
from shuffledp.protocols.parts.noise_shares import Flood, NoiseShares, curve_of, flat_flood, nested_flood
from shuffledp.protocols.parts.sparse import check_cells, messages_of_cells
from shuffledp.protocols.protocol import Cost, Pmf, Protocol, Value
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, bernoulli_indices, binomial

_ROLES = ("carrier_probability", "honest_carriers")
_UNLIKELY = 1e-12
_UP = 1 + 1e-14


class CorrelatedNoiseProtocol(Protocol):
    """A protocol whose users, or the carriers among them, add shares of correlated noise to each of ``bins`` bins."""

    if TYPE_CHECKING:  # fields of the protocols

        @property
        def ratio(self) -> Dyadic:
            """Ratio of the geometric noise that remains."""

        @property
        def flood(self) -> Flood:
            """The pairs that cancel."""

        @property
        def carriers(self) -> CarrierRoles | None:
            """Who adds noise; None for all users."""

    @property
    @abstractmethod
    def bins(self) -> int:
        """The number of bins to which noise is added."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The view in which the noise is accounted for."""

    @property
    def carrier_roles(self) -> CarrierRoles | None:
        """Who adds noise; None for all users."""
        return self.carriers

    def best_carriers(self, *, users: int, delta: float, delta_of_cap: float) -> float | None:
        """The probability of being a carrier with the fewest messages, for at most ten per cent more variance."""
        flood, ratio, bins = self.flood, self.ratio, self.bins
        if self.min_messages_per_user != 1 or not isinstance(flood, PairClusters) or flood.singles:
            return None
        try:
            terms = plan_carriers(
                users=users,
                honest_users=self.target.honest_users,
                epsilon=self.target.epsilon,
                delta_of_shortage=DELTA_FOR_SHORTAGE * delta,
                delta_of_cap=delta_of_cap,
                chance_of_more=lambda carriers, messages: NoiseShares(ratio, flood, carriers).chance_of_more(
                    messages, bins
                ),
            )
        except InfeasibleError:
            return None
        probability = float(terms.probability)
        return None if probability == 1 else probability

    def given_carriers(self, number: int) -> Self:
        """The protocol in a round with this many carriers, whose noise is therefore known better."""
        roles = self.carriers
        if roles is None:
            return super().given_carriers(number)
        if number < 1:
            raise ParameterError(f"A round needs at least one carrier, not {number:,}.", carriers=number)
        known = KnownCarriers(roles.carrier_probability, roles.honest_carriers, number)
        return cast("Self", replace(cast("Any", self), carriers=known))

    @property
    def shares(self) -> NoiseShares:
        """The noise, in as many shares as there are honest users or honest carriers; further ones add more."""
        sharers = self.target.honest_users if self.carriers is None else self.carriers.honest_carriers
        return NoiseShares(self.ratio, self.flood, sharers)

    @property
    def document_version(self) -> int:
        """Version 2 has clusters of pairs, version 3 carriers too."""
        if self.carriers is not None:
            return 3
        return 2 if isinstance(self.flood, PairClusters) else 1

    @classmethod
    def document_of(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The parameters of the flood and of carriers beside the others."""
        roles = fields["carriers"] or {}
        return flat_flood({name: value for name, value in fields.items() if name != "carriers"}) | roles

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inverse of ``document_of``."""
        if "carriers" in document:
            raise ParameterError(f"The parameters of carriers are {' and '.join(_ROLES)}, not carriers.")
        roles = {name: value for name, value in document.items() if name in _ROLES}
        others = {name: value for name, value in document.items() if name not in _ROLES}
        return nested_flood(others) | {"carriers": roles or None}

    def noise_guarantee(self, *, theorem: str) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        curve, roles = curve_of(self.ratio, self.flood, self.view), self.carriers
        if roles is None:
            return self.target.guarantee(curve, theorem=theorem)
        missing = shortage(self.target.honest_users, roles.carrier_probability, roles.honest_carriers)
        return self.target.guarantee(
            CarrierCurve(curve, missing),
            theorem=f"{theorem}, from {roles.honest_carriers:,} carriers, plus the probability of fewer",
        )

    @property
    def cost(self) -> Cost:
        """One message (in the unary encoding only for a 1), and the shares of noise, which do not depend on it."""
        shared = self.bins * self.shares.mean_messages
        return Cost(1 + self._chance_of_noise * shared, None, self.message_format.bits)

    @property
    def draws_per_report(self) -> float:
        """Those of a carrier, if there are carriers."""
        return (1 + self.bins * self.shares.mean_messages) * self.message_format.columns

    @property
    def share_ratios(self) -> tuple[Dyadic, ...]:
        """The ratios of the noise that remains and of pairs in a negative binomial number."""
        return (self.ratio,) if isinstance(self.flood, PairClusters) else (self.ratio, self.flood.flood_ratio)

    def chance_of_more_messages(self, messages: int) -> float:
        """Upper bound on the probability that a report has more than ``messages`` messages."""
        with_noise = self.shares.chance_of_more(messages - 1, self.bins)
        if self.carriers is None or messages < 1:
            return with_noise
        return min(1.0, self._chance_of_noise * with_noise * _UP)

    @property
    def _chance_of_noise(self) -> float:
        return 1.0 if self.carriers is None else float(self.carriers.carrier_probability)

    @abstractmethod
    def own_cells(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The users' own messages, as cells: the number of the user times that of different messages, plus the code."""

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: only shares that are not zero are drawn."""
        users = len(values)
        if self.carriers is None:
            return self._randomized(values, np.arange(users, dtype=np.int64), source)
        return self._randomized(values, bernoulli_indices(self.carriers.carrier_probability, users, source), source)

    def randomize_in_role(self, value: Value, *, carrier: bool, source: RandomSource = SYSTEM) -> NDArray[Any]:
        """The messages of one user whose role is known: the own message, and of a carrier a share of noise."""
        if self.carriers is None:
            return super().randomize_in_role(value, carrier=carrier, source=source)
        return self._randomized(np.array([value]), np.arange(int(carrier), dtype=np.int64), source).values

    def _randomized(self, values: NDArray[Any], sharers: NDArray[np.int64], source: RandomSource) -> Messages:
        """The messages of users with these values, of whom ``sharers`` add noise."""
        check_cells(len(values), self.message_format)
        own = self.own_cells(values)
        noise = self.shares.draw(len(sharers) * self.bins, source)  # as if there were no other users
        if len(sharers) < len(values):
            sharer, message = np.divmod(noise, self.message_format.codes)
            noise = sharers[sharer] * self.message_format.codes + message
        return messages_of_cells(np.concatenate((own, noise)), len(values), self.message_format, source)

    def mixed_pmf(self, own: tuple[int, ...], with_noise: Mapping[tuple[int, ...], float]) -> Pmf:
        """The distribution of a report, from the copies of each message without noise, and their pmf with noise."""
        if self.carriers is None:
            return with_noise
        chance = self._chance_of_noise
        pmf = {copies: chance * mass for copies, mass in with_noise.items()}
        pmf[own] = pmf.get(own, 0.0) + 1 - chance
        return pmf

    def draw_totals(self, users: int, source: RandomSource) -> tuple[NDArray[Any], NDArray[Any]]:
        """The numbers of "+1" and "-1" of the noise in each bin, drawn from the distribution of the sum."""
        sharers = users
        if self.carriers is not None:
            sharers = int(binomial(users, self.carriers.carrier_probability, 1, source)[0])
        if sharers == 0:
            return np.zeros(self.bins, dtype=np.int64), np.zeros(self.bins, dtype=np.int64)
        return self.shares.totals(sharers, self.bins, source)

    def remaining(self, users: int) -> NoiseDistribution:
        """The noise of ``users`` users after pairs cancel.

        It is discrete Laplace if there are as many users, or carriers, as planned. If the number of carriers is not
        known, the tails are those of the largest likely number.
        """
        roles, shares = self.carriers, self.shares
        if roles is None:
            return shares.remaining(users)
        if isinstance(roles, KnownCarriers):
            return shares.remaining(roles.number)
        return NoiseOfCarriers(shares, roles.carrier_probability, users)


@dataclass(frozen=True)
class NoiseOfCarriers:
    """The noise that remains in a round of ``users`` users, whose number of carriers M is not known.

    Given M it is symmetric and unimodal, and further carriers add independent noise of the same kind, so its tails grow
    with M. The upper bounds on tails are those of a number that M exceeds with a probability of at most 1e-12. The
    variance is linear in M, hence exactly that of the expected number.
    """

    shares: NoiseShares
    probability: Dyadic
    users: int

    @property
    def mean(self) -> float:
        """The expected value, which is 0."""
        return 0.0

    @cached_property
    def variance(self) -> float:
        """The variance."""
        expected = Fraction(self.users) * self.probability.fraction
        return float(expected / self.shares.planned) * self.shares.remaining(self.shares.planned).variance

    @cached_property
    def _likely(self) -> NoiseDistribution:
        """The noise of the largest likely number of carriers."""
        others = Binomial(self.users, self.probability.complement)  # users who are no carriers
        fewest = others.least_with_lower_tail(_UNLIKELY / 2, strictly=True) - 1
        return self.shares.remaining(max(1, self.users - max(0, fewest)))

    @cached_property
    def _largest(self) -> NoiseDistribution:
        """The noise if all users are carriers."""
        return self.shares.remaining(self.users)

    def upper_tail(self, k: int) -> float:
        """Upper bound on Pr[N >= k]."""
        tail = float(self._likely.upper_tail(k))
        return as_delta(tail + _UNLIKELY if tail > _UNLIKELY else min(tail + _UNLIKELY, self._largest.upper_tail(k)))

    def lower_tail(self, k: int) -> float:
        """Upper bound on Pr[N <= k], by symmetry."""
        return self.upper_tail(-k)


def check_roles(carriers: CarrierRoles | None, flood: Flood, target: Target) -> None:
    """Refuse carriers of noise that is not symmetric or has no clusters, and more of them than users."""
    if carriers is None:
        return
    if not isinstance(flood, PairClusters) or flood.singles:
        raise ParameterError("Carriers add clusters of pairs without singles; other noise is added by all users.")
    if carriers.honest_carriers > target.honest_users:
        raise ParameterError(
            f"honest_carriers must be at most the {target.honest_users:,} honest users, not "
            f"{carriers.honest_carriers:,}."
        )


def roles_for(target: Target, probability: float | None) -> tuple[CarrierRoles | None, float]:
    """The roles for a probability of being a carrier, None for none, and the delta that is left for the noise."""
    if probability is None:
        return None, target.delta
    if not 0 < probability < 1:
        raise ParameterError(f"The probability of being a carrier must lie between 0 and 1, not {probability}.")
    reserved = DELTA_FOR_SHORTAGE * target.delta
    roles = CarrierRoles.planned(Dyadic.at_least(probability), target.honest_users, reserved)
    return roles, target.delta - reserved
