"""The guarantee of a release: epsilon, delta, the privacy curve behind them, and their conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from shuffledp.checks import LARGEST_EPSILON, check_delta
from shuffledp.errors import ParameterError
from shuffledp.notebook import card, facts, note
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.search import Bracket, Excess
from shuffledp.tabular import data_frame

if TYPE_CHECKING:
    import pandas as pd

REPLACE_ONE = "replace-one"
REPLACE_ONE_USER = "replace-one-user"
WITHIN_GROUP = {
    REPLACE_ONE: "replace-one-within-group",
    REPLACE_ONE_USER: "replace-one-user-within-group",
}
"""The same for data sets in which every user is in the same group: groups and their sizes are public."""
_REPLACED = {
    REPLACE_ONE: "one person's answer",
    REPLACE_ONE_USER: "all rows of one person",
    WITHIN_GROUP[REPLACE_ONE]: "one person's answer, but not the person's group,",
    WITHIN_GROUP[REPLACE_ONE_USER]: "all rows of one person, but not the person's group,",
}
_LEAST_EPSILON = 1e-290
_THREE_DIGITS, _NINE_DIGITS = 1e-3, 1e-9
_FAR, _NEAR = (2.0, 8.0), (1.5, 1.5)
_FURTHEST_FROM_GUESS = 0.5  # in the logarithm of epsilon
WEAK_EPSILON = 10.0
"""A guarantee with a larger epsilon protects one person so little that it carries a warning."""


class PrivacyCurve(Protocol):
    """The privacy of a mechanism: from every epsilon to a delta."""

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy."""


@runtime_checkable
class QuickCurve(Protocol):
    """A curve with a quicker upper bound, for few points of which only the chords between them are used."""

    def quick_delta_at(self, epsilon: float) -> float:
        """Upper bound on ``delta_at``, near to it while delta is not small."""


@runtime_checkable
class RoughCurve(PrivacyCurve, Protocol):
    """A privacy curve with a looser bound that is faster to compute, from which a search starts."""

    def rough_delta_at(self, epsilon: float) -> float:
        """A number near ``delta_at``."""

    def likely_epsilon(self, delta: float) -> float:
        """An epsilon in the vicinity of the least one, above 0."""


@runtime_checkable
class LeastCurve(PrivacyCurve, Protocol):
    """A privacy curve that is the minimum of several."""

    @property
    def curves(self) -> tuple[PrivacyCurve, ...]:
        """The curves, usually the best one first; empty if this curve is not a minimum."""


@runtime_checkable
class ComposableCurve(PrivacyCurve, Protocol):
    """A privacy curve that also gives the distributions behind it, so that releases can be composed exactly."""

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per direction of the replacement, independent pairs of distributions; the outcome is one draw from each.

        Empty if they have too many outcomes to list.
        """


@runtime_checkable
class ResolvingCurve(PrivacyCurve, Protocol):
    """A privacy curve whose small deltas take long to compute."""

    def delta_above(self, epsilon: float, least: float) -> float:
        """``delta_at``, but values of at most ``least`` may be larger than need be."""


@runtime_checkable
class CheckableCurve(PrivacyCurve, Protocol):
    """A privacy curve for which it is often faster to check a delta than to compute it."""

    def delta_to_check(self, epsilon: float, claimed: float) -> float:
        """``delta_at``, or any other upper bound that is at most ``claimed``."""


def is_within(curve: PrivacyCurve, epsilon: float, delta: float) -> bool:
    """Whether the curve has at most this delta at this epsilon."""
    return delta_to_check(curve, epsilon, delta) <= delta


def delta_to_check(curve: PrivacyCurve, epsilon: float, claimed: float) -> float:
    """An upper bound on delta; if it exceeds ``claimed``, the one of ``delta_at``."""
    if isinstance(curve, CheckableCurve):
        return as_delta(curve.delta_to_check(epsilon, claimed))
    return _delta_to_compare(curve, epsilon, claimed)


def _delta_to_compare(curve: PrivacyCurve, epsilon: float, delta: float) -> float:
    achieved = curve.delta_above(epsilon, delta) if isinstance(curve, ResolvingCurve) else curve.delta_at(epsilon)
    return as_delta(achieved)


@runtime_checkable
class AlternativesCurve(PrivacyCurve, Protocol):
    """A privacy curve of one release whose worst-case data depend on epsilon."""

    def alternatives(self) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per independent part of the outcome, pairs of distributions, one of which dominates for any data."""


@dataclass(frozen=True, repr=False)
class Guarantee:
    """(epsilon, delta)-differential privacy of a release, with everything it depends on.

    ``users`` is the number of reports that the round needs, ``honest_users`` of whom follow the protocol. ``curve``
    gives delta at every epsilon, ``theorem`` names the proof, ``trust`` who is trusted, ``neighbours`` which data sets
    are compared, ``releases`` how many are covered. ``local_epsilon`` remains if the shuffler and the analyzer collude.

    >>> guarantee = sdp.BalcerCheuCount.calibrate(users=10_000, epsilon=1.0, delta=1e-6).guarantee
    >>> guarantee.delta_at(1.0) <= 1e-6 and guarantee.after(12).epsilon < 12
    True
    """

    epsilon: float
    delta: float
    users: int
    """Minimum number of reports; a round with fewer is not released."""
    honest_users: int
    """Number of users who must follow the protocol."""
    curve: PrivacyCurve
    theorem: str
    """The proof."""
    local_epsilon: float = math.inf
    """The epsilon that remains if shuffler and analyzer collude; infinite if there is no guarantee then."""
    trust: str = "shuffled"
    """Who is trusted: the shuffler (shuffled), also with adding dummies (augmented), nobody (local), or the party that
    collects (central)."""
    neighbours: str = REPLACE_ONE
    """Which data sets are compared: those in which one user's value, or all rows of one user, are replaced."""
    releases: int = 1

    def __post_init__(self) -> None:
        if self.neighbours not in _REPLACED:
            raise ParameterError(
                f"There are no neighbours {self.neighbours!r}; choose one of {', '.join(_REPLACED)}.",
                neighbours=self.neighbours,
            )
        if not self.epsilon >= 0 or not 0 <= self.delta < 1 or not self.local_epsilon >= 0:
            raise ParameterError(
                "A guarantee needs epsilon >= 0, delta in [0, 1) and a local epsilon >= 0; got "
                f"epsilon={self.epsilon}, delta={self.delta}, local_epsilon={self.local_epsilon}.",
                epsilon=self.epsilon,
                delta=self.delta,
                local_epsilon=self.local_epsilon,
            )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta that holds with this epsilon."""
        return as_delta(self.curve.delta_at(epsilon))

    def epsilon_at(self, delta: float) -> float:
        """Upper bound on the least epsilon that holds with this delta; infinite if none does."""
        check_delta(delta)
        return least_epsilon(self.curve, delta)

    @property
    def pure_epsilon(self) -> float:
        """Upper bound on the least epsilon that holds with delta = 0; infinite if none does."""
        return least_epsilon(self.curve, 0.0)

    @property
    def least_delta(self) -> float:
        """Upper bound on the least delta for which there is a finite epsilon."""
        return least_delta(self.curve)

    def after(self, releases: int, *, delta: float | None = None) -> Guarantee:
        """The guarantee of this many independent releases about the same users, at the same delta or a given one.

        Two bounds are computed, by convolving the privacy losses and by adding proved pairs (epsilon, delta), and the
        lower one is used. If no epsilon holds at this delta, epsilon is infinite; see ``least_delta``.
        """
        from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, compose

        delta = self.delta if delta is None else delta
        if delta == 0:
            return self._after_pure(releases)
        if releases > 1 and delta < CERTIFIED_DOWN_TO:
            raise ParameterError(
                f"The composition of releases is certified for delta >= {CERTIFIED_DOWN_TO:g}; got {delta:g}.",
                delta=delta,
            )
        curve = compose(self.curve, releases)
        epsilon = least_epsilon(curve, delta)
        if self.delta == 0 and releases * self.epsilon <= epsilon:
            return replace(self._after_pure(releases), delta=delta)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            users=self.users,
            honest_users=self.honest_users,
            curve=curve,
            theorem=f"{self.theorem}; {releases} releases composed by their privacy loss distribution",
            local_epsilon=releases * self.local_epsilon,
            trust=self.trust,
            neighbours=self.neighbours,
            releases=releases * self.releases,
        )

    def _after_pure(self, releases: int) -> Guarantee:
        """With delta = 0 the epsilons add up, and no smaller epsilon holds."""
        from shuffledp.privacy.pure import PureCurve

        if releases < 1:
            raise ParameterError(f"The number of releases must be at least 1, not {releases}.", releases=releases)
        if not as_delta(self.curve.delta_at(self.epsilon)) == 0:
            raise ParameterError(
                f"No epsilon is proved with delta = 0: this guarantee holds at delta = {self.delta:g}. Give a delta "
                "above 0.",
                delta=self.delta,
            )
        total = releases * self.epsilon
        return replace(
            self,
            epsilon=total,
            delta=0.0,
            curve=PureCurve(total) if releases > 1 else self.curve,
            theorem=f"{self.theorem}; {releases} releases added up" if releases > 1 else self.theorem,
            local_epsilon=releases * self.local_epsilon,
            releases=releases * self.releases,
        )

    def __repr__(self) -> str:
        releases = f"; {self.releases:,} releases" if self.releases > 1 else ""
        return (
            f"Guarantee(epsilon = {self.epsilon:.4g}, delta = {self.delta:.2g}; {self.trust}, {self.neighbours}; "
            f"{self.users:,} users, at least {self.honest_users:,} honest{releases})"
        )

    def _repr_html_(self) -> str:
        """The guarantee as notebooks show it: what it promises, on which conditions, and the proof."""
        remaining = "no guarantee" if math.isinf(self.local_epsilon) else f"epsilon = {self.local_epsilon:.4g}"
        held = (
            f"Guarantee: epsilon = {self.epsilon:.4g}" if math.isfinite(self.epsilon) else "No guarantee: epsilon = inf"
        )
        return card(
            f"{held}, delta = {self.delta:.2g}",
            facts(
                [
                    ("trust", self.trust),
                    ("neighbouring data sets", self.neighbours),
                    ("users", f"{self.users:,}"),
                    ("of whom must follow the protocol", f"{self.honest_users:,}"),
                    *(
                        [("if shuffler and analyzer collude", remaining)]
                        if self.trust in ("shuffled", "augmented")
                        else []
                    ),
                    ("releases", f"{self.releases:,}"),
                    ("proof", self.theorem),
                ]
            ),
            note(self.statement()),
            warnings=self.warnings,
        )

    def columns(self) -> dict[str, list[Any]]:
        """The guarantee as named columns of one row."""
        names = ("epsilon", "delta", "users", "honest_users", "local_epsilon", "trust", "neighbours", "releases")
        return {name: [getattr(self, name)] for name in (*names, "theorem")}

    def to_frame(self) -> pd.DataFrame:
        """The guarantee as a pandas data frame of one row; needs the extra ``pandas``."""
        return data_frame(self.columns())

    def sentence(self) -> str:
        """The guarantee in plain words, with its warnings."""
        warnings = self.warnings if math.isfinite(self.epsilon) else ()
        return "".join((self.statement(), *(f" Warning: {warning}" for warning in warnings)))

    def statement(self) -> str:
        """The guarantee in plain words, without warnings."""
        times = "the release" if self.releases == 1 else f"the {self.releases} releases together"
        if not math.isfinite(self.epsilon):
            return (
                f"No epsilon holds for {times} with delta = {self.delta:.2g}: there is no guarantee. "
                f"{least_delta_sentence(self.least_delta)}"
            )
        exception = f", except with probability {self.delta:.2g} (delta)" if self.delta > 0 else ""
        return (
            f"Changing {_REPLACED[self.neighbours]} changes the probability of any outcome of {times} by at most a "
            f"factor of {math.exp(min(self.epsilon, LARGEST_EPSILON)):.4g} (epsilon = {self.epsilon:.4g}){exception}"
            f"{self._condition()}{self._public()}"
        )

    def _public(self) -> str:
        """What is public beside the number of users."""
        if self.neighbours not in WITHIN_GROUP.values():
            return ""
        return " Who belongs to which group, and the number of users in each, is public."

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about a large epsilon or delta, a sentence each; usually empty."""
        return target_warnings(self.epsilon, self.delta, self.users)

    def _condition(self) -> str:
        """Who must follow the protocol, and what remains if parties collude."""
        if self.trust == "local":
            return ", even if everybody else colludes."
        if self.trust == "central":
            return ", for everyone except the party that collects the data, which sees every value."
        if self.trust == "augmented":
            return (
                ", whatever the other users do, as long as the shuffler samples and adds dummies as planned. The "
                "shuffler reads no value, but it knows its dummies, so a published estimate shows it the exact "
                "counts. If the shuffler and the analyzer collude, there is no guarantee."
            )
        group = " of the group" if self.neighbours in WITHIN_GROUP.values() else ""
        condition = f", as long as {self.honest_users:,} of {self.users:,} users{group} follow the protocol."
        if math.isinf(self.local_epsilon):
            return f"{condition} If the shuffler and the analyzer collude, there is no guarantee."
        return f"{condition} If the shuffler and the analyzer collude, epsilon = {self.local_epsilon:.4g} remains."

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form; infinite values become null."""
        return {
            "epsilon": _finite(self.epsilon),
            "delta": self.delta,
            "users": self.users,
            "honest_users": self.honest_users,
            "local_epsilon": _finite(self.local_epsilon),
            "trust": self.trust,
            "neighbours": self.neighbours,
            "releases": self.releases,
            "theorem": self.theorem,
            "warnings": list(self.warnings),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def target_warnings(epsilon: float, delta: float, users: int) -> tuple[str, ...]:
    """Warnings if delta exceeds 1/users or epsilon exceeds 10; empty otherwise."""
    warnings = []
    if users > 0 and delta > 1 / users:
        warnings.append(
            f"delta {delta:.4g} is above 1/users ({1 / users:.4g}): a mechanism that publishes one random user's value "
            "in full could satisfy this guarantee. Choose a delta well below 1/users."
        )
    if WEAK_EPSILON < epsilon < math.inf:
        warnings.append(
            f"epsilon {epsilon:.4g} is above {WEAK_EPSILON:g}: one person's value may make an outcome "
            f"{math.exp(min(epsilon, LARGEST_EPSILON)):.4g} times as likely, which hardly protects that person. "
            "Choose an epsilon around 1."
        )
    return tuple(warnings)


def least_epsilon(curve: PrivacyCurve, delta: float, *, digits: float = _NINE_DIGITS) -> float:
    """The least epsilon with curve.delta_at(epsilon) <= delta, rounded up to nine digits; infinite if none.

    With larger ``digits``, a relative error, it is rounded up to fewer.
    """
    check_delta(delta, allow_zero=True)
    if isinstance(curve, LeastCurve) and curve.curves:
        best = least_epsilon(curve.curves[0], delta)
        for other in curve.curves[1:]:
            if math.isinf(best) or is_within(other, best, delta):  # otherwise it has no smaller epsilon
                best = min(best, least_epsilon(other, delta))
        return best
    excess = partial(_excess, lambda epsilon: _delta_to_compare(curve, epsilon, delta), delta)
    if isinstance(curve, RoughCurve) and delta > 0:
        rough = partial(_excess, curve.rough_delta_at, delta)
        guess = _least(rough, curve.likely_epsilon(delta), growth=_NEAR, digits=_THREE_DIGITS)
        bracket = _bracket_near(excess, guess, rough) if 0 < guess < math.inf else None
        if bracket is not None:
            return _crossing(excess, *bracket, digits=_NINE_DIGITS)
    return _least(excess, 1.0, growth=_FAR, digits=digits)


def _least(excess: Excess, start: float, *, growth: tuple[float, float], digits: float) -> float:
    """Near the least epsilon; the steps from the start multiply by ``growth`` upwards and divide by it downwards."""
    if excess(0.0) <= 0:
        return 0.0
    low, high = start, start  # to become a bracket: too small, large enough
    above = below = excess(start)
    while below > 0:
        if high >= LARGEST_EPSILON:
            return math.inf
        low, above, high = high, below, min(growth[0] * high, LARGEST_EPSILON)
        below = excess(high)
    while above <= 0:
        if low < _LEAST_EPSILON:
            return low
        high, below, low = low, above, low / growth[1]
        above = excess(low)
    return _crossing(excess, (low, above), (high, below), digits=digits)


def _bracket_near(
    excess: Excess, guess: float, rough: Excess
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Two epsilons near the guess, too small and large enough, with their excess; None if they are not near."""
    slope = (rough(guess) - rough(guess * (1 - _THREE_DIGITS))) / _THREE_DIGITS  # per ln(epsilon), and negative
    epsilon, value = guess, excess(guess)
    if not (math.isfinite(value) and -math.inf < slope < -0.01):
        return None
    step = -1.02 * abs(value) / slope + _NINE_DIGITS / 4
    while step < _FURTHEST_FROM_GUESS:
        following = epsilon * math.exp(step if value > 0 else -step)
        if following > LARGEST_EPSILON:
            return None
        reached = excess(following)
        if (reached > 0) != (value > 0):
            pair = (following, reached), (epsilon, value)
            return pair if value <= 0 else pair[::-1]
        epsilon, value, step = following, reached, 4 * step
    return None


def _excess(delta_at: Callable[[float], float], delta: float, epsilon: float) -> float:
    """ln(delta_at(epsilon) / delta): above 0 if and only if the delta of the curve is larger."""
    achieved = as_delta(delta_at(epsilon))
    if delta == 0:
        return math.inf if achieved > 0 else -math.inf
    difference = math.log(achieved) - math.log(delta) if achieved > 0 else -math.inf
    return max(difference, 1e-300) if achieved > delta else min(difference, 0.0)  # rounding must not decide


def _crossing(excess: Excess, low: tuple[float, float], high: tuple[float, float], *, digits: float) -> float:
    """An epsilon that is large enough, within ``digits`` of one that is not, by the Illinois method in logarithms.

    ``low`` and ``high`` are a bracket: two epsilons with their excess. If three steps do not shorten the bracket to a
    quarter, as at a jump of the curve, the fourth step halves it.
    """
    bracket = Bracket(*low, *high)
    steps, width = 0, math.inf
    while bracket.width > digits * bracket.high:
        length = math.log(bracket.high / bracket.low)
        steps += 1
        share = 0.5
        if math.isfinite(bracket.weight_high) and not (steps % 4 == 0 and length > width / 4):
            # keep this distance from both ends, so that the last step closes the bracket from the other side
            margin = min(0.5, 0.4 * digits / length)
            share = bracket.weight_low / (bracket.weight_low - bracket.weight_high)
            share = min(max(share, margin), 1 - margin)
        width = length if steps % 4 == 0 else width
        epsilon = bracket.low * math.exp(share * length)
        if not bracket.low < epsilon < bracket.high:
            break
        bracket.move(epsilon, excess(epsilon))
    return bracket.high


def least_delta(curve: PrivacyCurve) -> float:
    """Upper bound on the least delta for which ``least_epsilon`` is finite."""
    return as_delta(curve.delta_at(LARGEST_EPSILON))


def least_delta_sentence(delta: float) -> str:
    """A sentence: the least delta with a finite epsilon, rounded up to two digits."""
    if delta >= 1:
        return "None holds at any delta below 1."
    if delta <= 0:
        return "One holds at every delta above 0."
    unit = 10.0 ** (math.floor(math.log10(delta)) - 1)
    return f"One holds from delta = {math.ceil(delta / unit * (1 - 1e-9)) * unit:.2g} on."
