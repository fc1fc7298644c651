"""Calibration for several releases about the same users: the least noise with which all together meet a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, cast

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, MAX_RELEASES, compose, followed_by
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.guarantee import AlternativesCurve, Guarantee, PrivacyCurve, is_within, least_epsilon
from shuffledp.privacy.quick_composition import QuickComposition
from shuffledp.protocols.protocol import Protocol
from shuffledp.search import bisect_ratio, find_bracket, narrow

MONTHS = 12
_ROUGHLY = 1e-5  # relative rounding of an epsilon that is a few per cent above the exact one anyway
"""Number of releases in a year, one every month."""

_TOLERANCE = 0.005  # relative, of the epsilon of one release
_GUESS = 1.005  # correction of the Gaussian guess, which is usually this factor too small
_COARSE_EXCESS = 1.0185  # ratio of coarsely to finely composed epsilon, if losses are nearly Gaussian
_ALTERNATIVES_EXCESS = 1.08  # ratio of coarsely to exactly composed epsilon, if the worst-case data depend on epsilon
_LEAST_BY_POINTS = 6  # fewer releases are always composed exactly
_NEAR = 0.3  # up to this excess, composed epsilons are nearly proportional to that of one release
_STEEPEST = 2.0  # the excess decreases by at most about this much per unit of noise
_AIM = 0.002  # added to the noise of the next step, to end inside the tolerance with enough noise
_FAR = 3.0  # excesses are clipped to this; that of an infinite epsilon is infinite
_MAX_STEPS = 10
_SLIGHTLY_LESS = 1 - 1e-8  # epsilons are rounded up to nine digits
_TINY = 1e-11  # delta, below which less is left out of distributions
_DOWN = 1 - 1e-12  # so that the sum of rounded parts does not exceed the total


def calibrate_within(
    kind: type[Protocol],
    settings: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    releases: int = 1,
    before: PrivacyCurve | None = None,
    honest_fraction: float = 1.0,
    calibration: str = "tight",
    **options: Any,
) -> Protocol:
    """The protocol with the least noise for which all releases together satisfy (epsilon, delta).

    These are ``releases`` independent releases of the protocol, after earlier ones about the same users with the
    composed privacy curve ``before``. ``settings`` are those of a question; ``options`` are passed to ``calibrate``.
    The privacy curves are composed exactly, or without earlier releases by an upper bound within about 0.5 % in
    epsilon where exact composition takes long; the composition of the result is checked. Composition is certified
    down to delta = 1e-40; for a smaller delta, pairs (epsilon, delta) are added up.

    InfeasibleError if there is no such protocol.
    """
    check_target(epsilon, delta)
    check_releases(releases)

    @cache
    def calibrated(epsilon: float, delta: float) -> Protocol:
        return kind.calibrate(
            **settings,
            epsilon=epsilon,
            delta=delta,
            honest_fraction=honest_fraction,
            calibration=calibration,
            **options,
        )

    if releases == 1 and before is None:
        return calibrated(epsilon, delta)
    total = _Total(epsilon, delta, releases, before)
    if before is not None and not as_delta(before.delta_at(epsilon)) < delta:
        raise InfeasibleError(
            f"The earlier releases alone have delta = {as_delta(before.delta_at(epsilon)):.4g} at epsilon = "
            f"{epsilon:g}, and {delta:g} is allowed for all: no further release is possible.",
            epsilon=epsilon,
            delta=delta,
        )
    if delta < CERTIFIED_DOWN_TO:
        return _calibrated_by_adding(calibrated, total)
    # the error depends little on the delta of one release; a larger one helps only where the first is out of reach
    try:
        return _calibrated_by_composition(calibrated, total, delta / (2 * releases))
    except InfeasibleError as failure:
        try:
            return _calibrated_by_composition(calibrated, total, delta)
        except InfeasibleError:
            raise failure from None


def check_releases(releases: int) -> None:
    """Reject a number of releases that is not an integer from 1 to 10,000."""
    if not isinstance(releases, int) or isinstance(releases, bool) or not 1 <= releases <= MAX_RELEASES:
        raise ParameterError(
            f"The number of releases must be an integer between 1 and {MAX_RELEASES:,}, not {releases!r}.",
            releases=releases,
        )


def guarantee_of_releases(guarantee: Guarantee, releases: int, *, delta: float) -> Guarantee:
    """The guarantee of this many releases at ``delta``: composed, or added up below the least certified delta."""
    check_releases(releases)
    if delta >= CERTIFIED_DOWN_TO or delta == 0 or releases == 1:
        return guarantee.after(releases, delta=delta)
    curve = AddedCurve(guarantee.curve, releases)
    return Guarantee(
        epsilon=releases * least_epsilon(guarantee.curve, delta / releases * _DOWN) * (1 + 1e-12),
        delta=delta,
        users=guarantee.users,
        honest_users=guarantee.honest_users,
        curve=curve,
        theorem=f"{guarantee.theorem}; {releases} releases added up",
        local_epsilon=releases * guarantee.local_epsilon,
        trust=guarantee.trust,
        neighbours=guarantee.neighbours,
        releases=releases * guarantee.releases,
    )


def guarantee_of_planned(guarantee: Guarantee, releases: int, *, delta: float) -> Guarantee:
    """The same as ``guarantee_of_releases``; where that takes long, an upper bound, usually within 0.5 %."""
    if delta >= CERTIFIED_DOWN_TO and _composed_by_points(guarantee.curve, releases):
        return _composed_quickly(guarantee, releases, delta, fine=True)
    return guarantee_of_releases(guarantee, releases, delta=delta)


def guarantee_of_a_year(guarantee: Guarantee, *, delta: float, fine: bool = False) -> Guarantee:
    """The guarantee of twelve releases at ``delta``: a quick upper bound, usually within 4 %, or 0.5 % if ``fine``."""
    return quick_guarantee(guarantee, MONTHS, delta=delta, fine=fine)


def quick_guarantee(guarantee: Guarantee, releases: int, *, delta: float, fine: bool = False) -> Guarantee:
    """The guarantee of several releases at ``delta``: a quick upper bound, usually within 4 %, or 0.5 % if ``fine``."""
    if delta < CERTIFIED_DOWN_TO or releases == 1:
        return guarantee_of_releases(guarantee, releases, delta=delta)
    return _composed_quickly(guarantee, releases, delta, fine=fine)


def _composed_quickly(guarantee: Guarantee, releases: int, delta: float, *, fine: bool) -> Guarantee:
    epsilon = _quick_epsilon(cast("Hashable", guarantee.curve), releases, delta, fine)
    if guarantee.delta == 0 and releases * guarantee.epsilon <= epsilon:
        return replace(guarantee.after(releases), delta=delta)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        users=guarantee.users,
        honest_users=guarantee.honest_users,
        curve=_quick(guarantee.curve, releases, delta, fine=fine),
        theorem=f"{guarantee.theorem}; {releases} releases composed by points of their privacy curve",
        local_epsilon=releases * guarantee.local_epsilon,
        trust=guarantee.trust,
        neighbours=guarantee.neighbours,
        releases=releases * guarantee.releases,
    )


@lru_cache(maxsize=256)
def _quick_epsilon(curve: Hashable, releases: int, delta: float, fine: bool) -> float:
    """The epsilon of the composition; cached, since protocols with different messages may share a privacy curve."""
    composed = _quick(cast("PrivacyCurve", curve), releases, delta, fine=fine)
    return least_epsilon(composed, delta) if fine else least_epsilon(composed, delta, digits=_ROUGHLY)


def _quick(curve: PrivacyCurve, releases: int, delta: float, *, fine: bool = False) -> QuickComposition:
    """The quick bound, with as little left out as this delta allows."""
    return QuickComposition(curve, releases, fine, tiny=delta < _TINY)


def _composed_by_points(curve: PrivacyCurve, releases: int) -> bool:
    """Whether a few points of the curve are composed, since exact composition takes long and is hardly better.

    With few releases, the tail of a single one matters, which takes many points to represent.
    """
    if releases < _LEAST_BY_POINTS or isinstance(curve, AlternativesCurve):
        return False
    return QuickComposition(curve, releases).by_points


@dataclass(frozen=True)
class AddedCurve:
    """Basic composition: ``releases`` equal pairs (epsilon, delta) added up, at any delta."""

    curve: PrivacyCurve
    releases: int

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta."""
        delta_each = as_delta(self.curve.delta_at(epsilon / self.releases * _DOWN))
        return as_delta(min(1.0, self.releases * delta_each * (1 + 1e-12)))


@dataclass(frozen=True)
class _Total:
    """What all releases together have to satisfy."""

    epsilon: float
    delta: float
    releases: int
    before: PrivacyCurve | None

    def curve(self, protocol: Protocol) -> PrivacyCurve:
        """The privacy curve of the earlier releases and of all releases of the protocol."""
        curve = protocol.guarantee.curve
        if self.before is not None:
            return followed_by(self.before, compose(curve, self.releases))
        if _composed_by_points(curve, self.releases):
            return _quick(curve, self.releases, self.delta, fine=True)
        return compose(curve, self.releases)

    def infeasible(self, reason: str) -> InfeasibleError:
        """The error if the target cannot be met."""
        several = f"{self.releases:,} releases" if self.releases > 1 else "A release"
        earlier = " with the earlier ones" if self.before is not None else ""
        return InfeasibleError(
            f"{several} cannot have epsilon = {self.epsilon:g} and delta = {self.delta:g} together{earlier}: {reason}",
            epsilon=self.epsilon,
            delta=self.delta,
            releases=self.releases,
        )


_Calibrate = Callable[[float, float], Protocol]
_CurveOf = Callable[[Protocol], PrivacyCurve]


def _calibrated_by_composition(calibrated: _Calibrate, total: _Total, delta_each: float) -> Protocol:
    """Search for the largest epsilon of one release, given its delta, at which the composition meets the target."""
    guess, share = _gaussian_guess(total, delta_each)
    if total.before is None:
        guess = _quick_guess(calibrated, total, guess, delta_each)
    tried = _search(calibrated, total, total.curve, guess, delta_each, share)
    least_noise = min((noise for noise, attempt in tried.items() if attempt.meets(total)), default=None)
    if least_noise is not None and (protocol := tried[least_noise].protocol) is not None:
        return protocol
    failure = next((attempt.failure for attempt in tried.values() if attempt.failure), "No noise is enough.")
    raise total.infeasible(f"each would need epsilon = {math.exp(-max(tried)):.3g}. {failure}")


def _quick_guess(calibrated: _Calibrate, total: _Total, guess: float, delta_each: float) -> float:
    """A better guess of the epsilon of one release from few points of its curve, where composition takes long."""

    def coarse(protocol: Protocol) -> QuickComposition:
        return _quick(protocol.guarantee.curve, total.releases, total.delta)

    try:
        once = calibrated(guess, delta_each).guarantee.curve
        if not QuickComposition(once, total.releases).by_points:
            return guess
    except (InfeasibleError, ConditionError):
        return guess
    too_much = _ALTERNATIVES_EXCESS if isinstance(once, AlternativesCurve) else _COARSE_EXCESS
    first = _attempt(calibrated, total, coarse, guess, delta_each).excess
    if abs(first) < _NEAR:
        return guess * math.exp(-1.04 * first - _AIM / 2) * too_much
    tried = _search(calibrated, total, coarse, guess, delta_each, 1.0)
    least_noise = min((noise for noise, attempt in tried.items() if attempt.meets(total)), default=None)
    return guess if least_noise is None else math.exp(-least_noise) * too_much


@dataclass(frozen=True)
class _Attempt:
    """A protocol with the curve of all releases, or the reason why there is none at this epsilon."""

    excess: float
    """ln(composed epsilon / epsilon of the target)."""
    protocol: Protocol | None = None
    curve: PrivacyCurve | None = None
    failure: str = ""

    def meets(self, total: _Total) -> bool:
        """Whether all releases together satisfy the target."""
        return self.curve is not None and is_within(self.curve, total.epsilon, total.delta)


def _attempt(calibrated: _Calibrate, total: _Total, curve_of: _CurveOf, epsilon: float, delta: float) -> _Attempt:
    try:
        protocol = calibrated(epsilon, delta)
        curve = curve_of(protocol)
        composed = least_epsilon(curve, total.delta)
    except (InfeasibleError, ConditionError) as failure:  # with less noise there may be a protocol
        return _Attempt(-1.0, failure=str(failure))
    excess = math.log(max(composed, 1e-300) / total.epsilon)
    return _Attempt(min(max(excess, -_FAR), _FAR), protocol, curve)


def _search(
    calibrated: _Calibrate, total: _Total, curve_of: _CurveOf, guess: float, delta_each: float, share: float
) -> dict[float, _Attempt]:
    """All attempts by their noise; the search ends at the least noise that meets the target, up to the tolerance.

    The noise is ln(1 / epsilon of one release). Without earlier releases, the excess is nearly the step to take, since
    composed epsilons are nearly proportional to that of one release; with them, it is the step times the share of the
    new releases.
    """
    tried: dict[float, _Attempt] = {}

    def excess(noise: float) -> float:
        if noise not in tried:
            tried[noise] = _attempt(calibrated, total, curve_of, math.exp(-noise), delta_each)
        return tried[noise].excess

    lowest = -math.log(total.epsilon)
    # enough noise by basic composition; after earlier releases, more may be needed
    highest = lowest + math.log(total.releases) + (_TOLERANCE if total.before is None else 10.0)
    start = min(max(-math.log(guess), lowest), highest)
    first = excess(start)
    if -_TOLERANCE * share < first <= 0:
        return tried
    bracket = find_bracket(excess, start, lowest, highest, step=1.05 * abs(first) / share + _AIM, growth=2)
    if bracket is not None:
        narrow(
            excess,
            bracket,
            next_point=lambda ends: min(ends.secant_from_low(0.05) + _AIM, ends.high - 0.05 * ends.width),
            enough=lambda ends: (
                ends.width < _TOLERANCE
                or ends.excess_high > -_TOLERANCE * share
                or (bool(tried[ends.high].failure) and ends.excess_low > _STEEPEST * ends.width)
            ),
            steps=_MAX_STEPS,
        )
    return tried


def _gaussian_guess(total: _Total, delta_each: float) -> tuple[float, float]:
    """The epsilon of one release, and the share of all new ones in the total, if losses were Gaussian.

    The variances of Gaussian losses add up.
    """
    all_releases = _deviation(total.epsilon, total.delta) ** 2
    left = all_releases
    if total.before is not None:
        earlier = min(least_epsilon(total.before, total.delta), total.epsilon)
        left -= _deviation(earlier, total.delta) ** 2 if earlier > 0 else 0.0
    share = max(left / all_releases, 0.01)
    deviation = math.sqrt(share * all_releases / total.releases)
    _, epsilon = bisect_ratio(lambda point: _gaussian_delta(point, deviation) <= delta_each, 1e-12, 1e3, ratio=1.001)
    return epsilon * _GUESS, share


def _deviation(epsilon: float, delta: float) -> float:
    """The standard deviation of Gaussian privacy losses that satisfy (epsilon, delta)."""
    return bisect_ratio(lambda deviation: _gaussian_delta(epsilon, deviation) > delta, 1e-14, 1e3, ratio=1.001)[0]


def _gaussian_delta(epsilon: float, deviation: float) -> float:
    """The delta of Gaussian privacy losses (Balle and Wang 2018, theorem 8), not rounded up: for first guesses only."""
    above, below = epsilon / deviation - deviation / 2, epsilon / deviation + deviation / 2
    root = math.sqrt(2)
    return (math.erfc(above / root) - math.exp(epsilon) * math.erfc(below / root)) / 2


def _calibrated_by_adding(calibrated: _Calibrate, total: _Total) -> Protocol:
    """Basic composition: every release gets the same part of what the earlier ones leave."""
    epsilon, delta = total.epsilon, total.delta
    if total.before is not None:
        delta /= 2
        epsilon -= least_epsilon(total.before, delta)
    if not epsilon > 0:
        raise total.infeasible(
            "the earlier releases spend all of it at so small a delta; "
            f"exact composition is available from delta = {CERTIFIED_DOWN_TO:g} on."
        )
    protocol = calibrated(epsilon / total.releases * _SLIGHTLY_LESS, delta / total.releases * _SLIGHTLY_LESS)
    if not AddedCurve(protocol.guarantee.curve, total.releases).delta_at(epsilon) <= delta:
        raise total.infeasible("the sum of the calibrated releases exceeds it.")
    return protocol
