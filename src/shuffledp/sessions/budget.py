"""The budget of a session: how much of one (epsilon, delta) the releases about the same users have spent.

By default the privacy curves of all releases are composed exactly. That is valid if each curve was fixed without
looking at earlier results. An adaptive budget adds the pairs (epsilon, delta) of the releases instead, which is valid
even if they depend on earlier results (Rogers, Roth, Ullman and Vadhan 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Self

from shuffledp.checks import check_delta, check_real, check_target, check_users
from shuffledp.errors import BudgetError, ParameterError
from shuffledp.planning import Limits
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, followed_by
from shuffledp.privacy.guarantee import (
    REPLACE_ONE,
    REPLACE_ONE_USER,
    Guarantee,
    PrivacyCurve,
    is_within,
    least_epsilon,
)
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.protocol import Protocol

MAX_RELEASES = 256
"""Maximum number of releases of a session."""

_ROUNDING = 1e-9  # tolerance for sums of shares, so that ten shares of 0.1 add up to the whole budget
_NEIGHBOURS = (REPLACE_ONE, REPLACE_ONE_USER)  # the second also covers users who have one row
_TRUST_ORDER = ("local", "shuffled", "augmented", "central")


@dataclass(frozen=True)
class Release:
    """One release of a session: a ``statistic`` of a ``subject``, computed by a ``protocol``.

    ``share`` is the share of the budget that was asked for, ``limit`` the epsilon that the releases up to this one may
    spend. ``finished`` is False while noise is drawn, and stays False if that fails: such a release counts as spent.
    """

    label: str
    statistic: str
    """``count``, ``histogram``, ``sum``, ``mean``, ``quantiles``, ``variance`` or ``strings``."""
    subject: str
    """The column or expression that the question is about."""
    protocol: Protocol
    limit: float
    """Maximum epsilon of all releases up to this one, at the session's delta."""
    released_at: datetime
    share: float | None = None
    secure: bool = True
    """False if the noise came from a seed: then there is no privacy."""
    finished: bool = False
    neighbours: str = REPLACE_ONE
    """Which data sets the guarantee compares: those that differ in the only row of a user, or in all of them."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this release alone."""
        return replace(self.protocol.guarantee, neighbours=self.neighbours)


@dataclass(frozen=True)
class Allowance:
    """What the next release may spend: together with the earlier ones, or as a target of its own."""

    limit: float
    """Maximum epsilon of all releases, the next one included, at the session's delta."""
    share: float | None
    own: tuple[float, float] | None
    """Epsilon and delta of the release alone; None if only the limit counts."""
    releases: int = 1
    """Number of releases like this one that have to fit under the limit."""


@dataclass(frozen=True)
class Left:
    """What is left of a budget: ``epsilon`` and ``delta``, and the ``share`` that releases can still ask for."""

    epsilon: float
    delta: float
    share: float


@dataclass(frozen=True)
class AddedPairs:
    """The curve of a pair (epsilon, delta) that was proved by adding the pairs of several releases."""

    epsilon: float
    delta: float

    def delta_at(self, epsilon: float) -> float:
        """Delta from this epsilon on; nothing is proved for a smaller one."""
        return self.delta if epsilon >= self.epsilon else 1.0


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) for all releases about the same users, and the releases so far.

    It is immutable: ``with_release`` returns the budget after one more release. ``announced`` is the number of releases
    among which the budget is divided if no share is given.
    """

    users: int
    epsilon: float
    delta: float
    honest_fraction: float = 1.0
    trust: str = "shuffled"
    adaptive: bool = False
    """Whether the parameters of a release may depend on the results of earlier ones: then pairs are added."""
    announced: int | None = None
    releases: tuple[Release, ...] = ()
    composed: PrivacyCurve | None = field(default=None, compare=False, repr=False)
    """The curve of all releases, if it has been computed already."""

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        check_users(self.users, self.honest_fraction)
        Limits(trust=self.trust)
        if not isinstance(self.adaptive, bool):
            raise ParameterError(f"adaptive must be True or False, not {self.adaptive!r}.")
        for name in ("epsilon", "delta", "honest_fraction"):  # other types of numbers are not JSON
            object.__setattr__(self, name, float(getattr(self, name)))
        if not self.adaptive and self.delta < CERTIFIED_DOWN_TO:
            raise ParameterError(
                f"The composition of releases is certified for delta >= {CERTIFIED_DOWN_TO:g}; got {self.delta:g}.",
                delta=self.delta,
            )
        if self.announced is not None:
            if not isinstance(self.announced, int) or isinstance(self.announced, bool):
                raise ParameterError(f"The number of releases must be an integer, not {self.announced!r}.")
            if not 1 <= self.announced <= MAX_RELEASES:
                raise ParameterError(
                    f"A session has 1 to {MAX_RELEASES:,} releases, not {self.announced:,}.", releases=self.announced
                )
        for release in self.releases:
            self._check(release.protocol)

    @cached_property
    def curve(self) -> PrivacyCurve:
        """The privacy curve of all releases together."""
        if self.composed is not None:
            return self.composed
        if self.adaptive:
            epsilon, delta = self._added(*self.releases)
            return AddedPairs(float(epsilon), float(delta))
        curve: PrivacyCurve = PureCurve(0.0)
        for number, release in enumerate(self.releases):
            curve = release.guarantee.curve if number == 0 else followed_by(curve, release.guarantee.curve)
        return curve

    @cached_property
    def spent(self) -> Guarantee:
        """The guarantee of all releases together, with the least epsilon that is proved at the delta of the budget."""
        return self._guarantee(self.curve, tuple(release.guarantee for release in self.releases))

    @property
    def left(self) -> Left:
        """What is left."""
        delta = self.delta
        if self.adaptive:
            delta = float(max(Fraction(self.delta) - self._added(*self.releases)[1], Fraction(0)))
        share = max(0.0, 1 - self.limit / self.epsilon)
        return Left(max(0.0, self.epsilon - self.spent.epsilon), delta, share if share > _ROUNDING else 0.0)

    @property
    def limit(self) -> float:
        """The epsilon that the releases so far may spend, at the delta of the budget."""
        return self.releases[-1].limit if self.releases else 0.0

    @property
    def secure(self) -> bool:
        """False if the noise of a release came from a seed: then there is no privacy."""
        return all(release.secure for release in self.releases)

    def would_spend(self, protocol: Protocol) -> Guarantee:
        """The guarantee of all releases and one more, by this protocol."""
        return self._with(protocol, protocol.guarantee)

    def allow(
        self, *, share: float | None = None, epsilon: float | None = None, delta: float | None = None
    ) -> Allowance:
        """What the next release may spend, by its share of the budget or by its own epsilon (and delta).

        Without either, what is left is divided equally among the announced releases that remain. Raises BudgetError if
        the release exceeds what is left.
        """
        if len(self.releases) >= MAX_RELEASES:
            raise BudgetError(f"A session has at most {MAX_RELEASES:,} releases; start another one with its own users.")
        if share is not None and epsilon is not None:
            raise ParameterError("Give a release either a share or an epsilon, not both.")
        if delta is not None and epsilon is None:
            raise ParameterError("A release with its own delta needs its own epsilon too; a share has no delta.")
        if epsilon is not None:
            return self._allow_own(epsilon, delta)
        return self._allow_equal_part() if share is None else self._allow_share(share)

    def with_release(self, release: Release) -> Self:
        """The budget after this release, which is refused if it does not fit."""
        total = self._with(release.protocol, release.guarantee)
        if not self._fits(total):
            raise BudgetError(self._excess(total), spent=total.epsilon, epsilon=self.epsilon, delta=self.delta)
        if not (math.isfinite(release.limit) and self.limit <= release.limit <= self.epsilon):
            raise ParameterError(
                f"The limit of a release must lie between {self.limit:g} and {self.epsilon:g}, not {release.limit}.",
                limit=release.limit,
            )
        return replace(self, releases=(*self.releases, release), composed=total.curve)

    def finished(self, index: int) -> Self:
        """The same budget, with the release of this index marked as finished."""
        releases = list(self.releases)
        releases[index] = replace(releases[index], finished=True)
        return replace(self, releases=tuple(releases), composed=self.__dict__.get("curve", self.composed))

    def limit_after(self, allowance: Allowance, protocol: Protocol) -> float:
        """The limit of the next release, which takes this allowance with this protocol."""
        if self.adaptive or (allowance.own is None and allowance.releases == 1):
            return allowance.limit
        return min(max(self.limit, self.would_spend(protocol).epsilon), self.epsilon)

    def _with(self, protocol: Protocol, guarantee: Guarantee) -> Guarantee:
        """The guarantee of all releases and one more, by this protocol with this guarantee."""
        self._check(protocol)
        guarantees = (*(release.guarantee for release in self.releases), guarantee)
        return self._guarantee(self._curve_with(guarantee), guarantees)

    def _check(self, protocol: Protocol) -> None:
        """Reject a protocol whose guarantee is not about the users of this budget, or needs more trust."""
        guarantee = protocol.guarantee
        if guarantee.users != self.users:
            raise ParameterError(
                f"Every release of this session is about {self.users:,} users; {protocol.question}/{protocol.name} was "
                f"calibrated for {guarantee.users:,}.",
                users=guarantee.users,
            )
        if guarantee.neighbours != REPLACE_ONE:
            raise ParameterError(
                f"Only guarantees for {REPLACE_ONE} neighbours can be composed, not for {guarantee.neighbours}."
            )
        needs_more = _TRUST_ORDER.index(guarantee.trust) > _TRUST_ORDER.index(self.trust)
        if needs_more or (protocol.trusts_shuffler and self.trust != "central"):
            more = "augmented" if guarantee.trust == "augmented" else "central"
            party = "a shuffler that adds dummies" if more == "augmented" else "a trusted party that sees the values"
            raise ParameterError(
                f"{protocol.question}/{protocol.name} needs {party}; this session is "
                f'{self.trust}. Choose another protocol, or a session with trust="{more}".',
                trust=guarantee.trust,
            )
        if guarantee.trust == "shuffled" and protocol.target.honest_fraction > self.honest_fraction:
            raise ParameterError(
                f"{protocol.question}/{protocol.name} needs {protocol.target.honest_fraction:g} of the users to be "
                f"honest; this session assumes {self.honest_fraction:g}.",
                honest_fraction=protocol.target.honest_fraction,
            )

    def _curve_with(self, more: Guarantee) -> PrivacyCurve:
        if self.adaptive:
            epsilon, delta = self._added(*self.releases)
            return AddedPairs(float(epsilon + Fraction(more.epsilon)), float(delta + Fraction(more.delta)))
        return followed_by(self.curve, more.curve) if self.releases else more.curve

    def _added(self, *releases: Release) -> tuple[Fraction, Fraction]:
        """The sums of the epsilons and of the deltas, exactly."""
        guarantees = [release.guarantee for release in releases]
        epsilons = sum((Fraction(guarantee.epsilon) for guarantee in guarantees), Fraction(0))
        return epsilons, sum((Fraction(guarantee.delta) for guarantee in guarantees), Fraction(0))

    def _guarantee(self, curve: PrivacyCurve, guarantees: tuple[Guarantee, ...]) -> Guarantee:
        """The guarantee of these releases, whose composed curve is given."""
        if not guarantees:
            return Guarantee(0.0, self.delta, self.users, 1, PureCurve(0.0), "nothing was released", 0.0, releases=0)
        if isinstance(curve, AddedPairs):
            epsilon, delta = curve.epsilon, curve.delta
        else:
            epsilon, delta = least_epsilon(curve, self.delta), self.delta
            for bound in (self.limit, self.epsilon):  # least_epsilon rounds up to nine digits; these may hold too
                if bound < epsilon and is_within(curve, bound, self.delta):
                    epsilon = bound
        return Guarantee(
            epsilon=epsilon,
            delta=min(delta, math.nextafter(1.0, 0.0)),
            users=self.users,
            honest_users=max(guarantee.honest_users for guarantee in guarantees),
            curve=curve,
            theorem=self._theorem(guarantees),
            local_epsilon=math.fsum(guarantee.local_epsilon for guarantee in guarantees),
            trust=max((guarantee.trust for guarantee in guarantees), key=_TRUST_ORDER.index),
            neighbours=max((guarantee.neighbours for guarantee in guarantees), key=_NEIGHBOURS.index),
            releases=len(guarantees),
        )

    def _theorem(self, guarantees: tuple[Guarantee, ...]) -> str:
        theorems = "; ".join(dict.fromkeys(guarantee.theorem for guarantee in guarantees))
        if len(guarantees) == 1:
            return theorems
        how = "pairs (epsilon, delta) added" if self.adaptive else "composed by their privacy loss distributions"
        return f"{len(guarantees)} releases, {how}: {theorems}"

    def _fits(self, guarantee: Guarantee) -> bool:
        """Whether releases with this guarantee are within the budget."""
        if self.adaptive:
            return guarantee.epsilon <= self.epsilon and guarantee.delta <= self.delta
        return is_within(guarantee.curve, self.epsilon, self.delta)

    def _excess(self, total: Guarantee) -> str:
        """The message of the error about releases that exceed the budget."""
        number = f"With this release, {total.releases:,} in all, "
        if math.isinf(total.epsilon):
            return f"{number}no epsilon would hold at delta = {self.delta:g}, the delta of the session."
        if self.adaptive and total.epsilon <= self.epsilon:
            return f"{number}delta = {total.delta:.4g} would be spent; the session has delta = {self.delta:g}."
        return (
            f"{number}epsilon = {total.epsilon:.4g} would be spent at delta = {self.delta:g}; the session has "
            f"{self.epsilon:g}, of which {self.left.epsilon:.4g} is left. Nothing was released."
        )

    def _allow_equal_part(self) -> Allowance:
        """An equal part of the rest for each of the announced releases that remain."""
        if self.announced is None:
            if self.left.share == 0:
                raise self._nothing_left()
            raise ParameterError(
                "Give the release its share of the budget (share=0.5) or its own epsilon, or announce the number of "
                "releases when the session starts (releases=4), among which the budget is then divided equally."
            )
        remaining = self.announced - len(self.releases)
        if remaining < 1:
            raise BudgetError(
                f"All {self.announced:,} announced releases were made; for another one, give its share or its epsilon.",
                releases=self.announced,
            )
        if self.left.share == 0:
            raise self._nothing_left()
        if self.adaptive:
            return self._allow_share(self.left.share / remaining)
        return Allowance(self.epsilon, None, None, remaining)

    def _nothing_left(self) -> BudgetError:
        return BudgetError(
            f"The budget is spent: {len(self.releases):,} releases share all of epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}. Nothing was released.",
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def _allow_share(self, share: float) -> Allowance:
        check_real("share", share)
        if not 0 < share <= 1:
            raise ParameterError(f"A share must be above 0 and at most 1, not {share}.", share=share)
        left = self.left.share
        if left == 0:
            raise self._nothing_left()
        if share > left + _ROUNDING:
            raise BudgetError(
                f"A share of {share:g} exceeds what is left: {left:.4g} of epsilon = {self.epsilon:g}, delta = "
                f"{self.delta:g}. Nothing was released.",
                share=share,
                left=left,
            )
        share = float(share)
        limit = self.epsilon if share >= left - _ROUNDING else self.limit + share * self.epsilon
        own = self._part(share) if self.adaptive else None
        return Allowance(min(limit, self.epsilon), share, own)

    def _part(self, share: float) -> tuple[float, float]:
        """Epsilon and delta of this share, rounded down so that the exact sums do not exceed the budget."""
        epsilon, delta = self._added(*self.releases)
        return (
            _at_most(share * self.epsilon, Fraction(self.epsilon) - epsilon),
            _at_most(share * self.delta, Fraction(self.delta) - delta),
        )

    def _allow_own(self, epsilon: float, delta: float | None) -> Allowance:
        check_real("epsilon", epsilon)
        if delta is None:
            delta = min(1.0, epsilon / self.epsilon) * self.delta if self.adaptive else self.delta
        check_delta(delta)
        check_target(epsilon, delta)
        epsilon, delta = float(epsilon), float(delta)
        if epsilon > self.epsilon or delta > self.delta:
            raise BudgetError(
                f"A release with epsilon = {epsilon:g} and delta = {delta:g} exceeds the session's epsilon = "
                f"{self.epsilon:g} and delta = {self.delta:g}. Nothing was released.",
                epsilon=epsilon,
                delta=delta,
            )
        if not self.adaptive:
            return Allowance(self.epsilon, None, (epsilon, delta))
        spent = self._added(*self.releases)
        if Fraction(epsilon) + spent[0] > Fraction(self.epsilon) or Fraction(delta) + spent[1] > Fraction(self.delta):
            raise BudgetError(
                f"A release with epsilon = {epsilon:g} and delta = {delta:g} exceeds what is left: epsilon = "
                f"{self.left.epsilon:.4g} and delta = {self.left.delta:.4g}. Nothing was released.",
                epsilon=epsilon,
                delta=delta,
            )
        return Allowance(min(self.limit + epsilon, self.epsilon), None, (epsilon, delta))


def _at_most(number: float, bound: Fraction) -> float:
    """The number, or the largest float that is not above the bound."""
    number = min(number, float(bound))
    return number if Fraction(number) <= bound else math.nextafter(number, 0.0)
