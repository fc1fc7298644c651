"""Composition: the privacy curve of several releases about the same users, as the minimum of upper bounds.

One bound convolves the privacy losses, which are computed from pairs of distributions or, where these are unknown or
looser, from the privacy curve (that of capped reports includes the cost of the cap). Small deltas, which are lost in
the rounding of that, are computed by ``tilted_composition``. Another bound adds proved pairs (epsilon, delta). Releases
whose worst-case data depend on epsilon are composed by ``adaptive_composition``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.errors import ParameterError
from shuffledp.privacy.adaptive_composition import MAX_ADAPTIVE_RELEASES, AdaptiveComposition
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.guarantee import AlternativesCurve, ComposableCurve, PrivacyCurve
from shuffledp.privacy.loss_grid import GridLosses, grid_width, largest_loss, on_grid
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.tilted_composition import TiltedSum, connected

CERTIFIED_DOWN_TO = 1e-40
"""Least composed delta: outcomes of less mass are left out of distributions, and count in full."""

MAX_RELEASES = 10_000

_CUT = 1e-16
_TINY_CUT = 1e-46  # for tilted losses
_ACCURATE = 300.0  # deltas below so many times the rounding error are computed with tilted losses too
_NOT_PRIVATE = 1 - 1e-9  # a larger delta at the largest epsilon counts as no privacy
_ROUNDING_PER_RELEASE = 1e-14  # rounding error of the Fourier transforms, added to delta
_ROUNDING = 1e-13
_MAX_JOINT_CELLS = 30_000  # of a common grid, up to the largest loss
_CURVE_POINTS = 1000  # grid cells up to the largest loss of a curve
_CURVE_NODES = 32  # initial number of points at which a curve is evaluated
_MAX_CURVE_NODES = 160
_TRIED = 12  # points at which two curves are compared
_CURVE_ERROR = 0.01  # relative, of a chord above the curve
_SHARES_OF_DELTA = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-15)
_DOWN = 1 - 2e-15  # so that the sum of rounded parts does not exceed epsilon
_PLAUSIBLE = 1.1  # added pairs whose approximate delta is within this factor are computed exactly


def compose(curve: PrivacyCurve, releases: int) -> PrivacyCurve:
    """The privacy curve of ``releases`` independent releases that each have the given privacy curve.

    >>> guarantee = sdp.BalcerCheuCount.calibrate(users=10_000, epsilon=0.1, delta=1e-8).guarantee
    >>> sdp.compose(guarantee.curve, 4).delta_at(0.3) < 1e-6
    True
    """
    _check_releases(releases)
    return curve if releases == 1 else _released([(curve, releases)])


def compose_all(curves: Iterable[PrivacyCurve]) -> PrivacyCurve:
    """The privacy curve of one independent release with each of these privacy curves, over the same users."""
    return _released([(curve, 1) for curve in curves])


def followed_by(curve: PrivacyCurve, more: PrivacyCurve) -> PrivacyCurve:
    """The same as ``compose_all([curve, more])``, where ``curve`` may already be composed of many releases.

    The convolution for ``curve`` is reused if both fit one grid, so that one more release costs one more convolution.
    The bounds are the same except for rounding.
    """
    composed = compose_all([curve, more])
    if not (isinstance(curve, JointCurve) and isinstance(composed, JointCurve)):
        return composed
    return replace(composed, reused=_continued(curve.convolved, _parts_of(more)))


def _continued(convolved: _Convolved, parts: _Parts) -> _Convolved | None:
    """The convolution with further releases; None if they need another grid."""
    added = [(_losses_of(part), times) for part, times in parts]
    finest = min(convolved.finest, *(losses.width for losses, _ in added))
    largest = max(convolved.largest, *(losses.largest for losses, _ in added))
    if _joint_width(finest, largest) != convolved.width:
        return None
    return _Convolved(finest, largest, _convolve(convolved.distribution, added, convolved.width))


def _released(curves: Iterable[tuple[PrivacyCurve, int]]) -> PrivacyCurve:
    """The curve of these releases with their multiplicities; equal ones are merged."""
    counts: dict[PrivacyCurve, int] = {}
    for curve, releases in curves:
        for part, times in _parts_of(curve):
            counts[part] = counts.get(part, 0) + releases * times
    _check_releases(sum(counts.values()))
    if any(curve.delta_at(LARGEST_EPSILON) > _NOT_PRIVATE for curve in counts):
        return PureCurve(math.inf)  # delta is 1 at every epsilon; there is no finite loss to convolve
    return _joined(tuple(counts.items()))


def _joined(parts: _Parts) -> PrivacyCurve:
    if len(parts) > 1:
        return JointCurve(parts)
    curve, releases = parts[0]
    return curve if releases == 1 else ComposedCurve(curve, releases)


def _parts_of(curve: PrivacyCurve) -> _Parts:
    """The curves that a composed curve consists of, with their multiplicities."""
    if isinstance(curve, ComposedCurve):
        return ((curve.curve, curve.releases),)
    return curve.parts if isinstance(curve, JointCurve) else ((curve, 1),)


def _check_releases(releases: int) -> None:
    if not 1 <= releases <= MAX_RELEASES:
        raise ParameterError(
            f"The number of releases must lie between 1 and {MAX_RELEASES:,}, not {releases:,}.", releases=releases
        )


_Parts = tuple[tuple["PrivacyCurve", int], ...]


@dataclass(frozen=True)
class ComposedCurve:
    """Several independent releases of one distribution, as privacy loss distributions of dp-accounting."""

    curve: PrivacyCurve
    releases: int

    @cached_property
    def _distribution(self) -> Any:
        losses = _losses_of(self.curve)
        return losses.on_grid(losses.width).self_compose(self.releases)

    @cached_property
    def _adaptive(self) -> AdaptiveComposition | None:
        if self.releases > MAX_ADAPTIVE_RELEASES or not isinstance(self.curve, AlternativesCurve):
            return None
        return AdaptiveComposition(self.curve.alternatives(), self.releases)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta: the minimum of several bounds."""
        return self.delta_above(epsilon, 0.0)

    def delta_above(self, epsilon: float, least: float) -> float:
        """The same; values of at most ``least`` may be larger than need be, which is faster."""
        check_epsilon(epsilon)
        if epsilon >= _added_epsilon([(self.curve, self.releases)]):
            return 0.0
        if self._adaptive is not None:  # other bounds need many points of a curve that takes long to compute
            return max(self._adaptive.delta_at(epsilon), _ROUNDING)
        convolved = _delta_of(self._distribution, self.releases, epsilon)
        return _least_bound(convolved, self._parts, epsilon, least)

    @property
    def _parts(self) -> _Parts:
        return ((self.curve, self.releases),)


def _least_bound(convolved: float, parts: _Parts, epsilon: float, least: float) -> float:
    """The least of all bounds; those that take long are computed only if they may be the least one and matter."""
    if convolved <= least:
        return convolved
    added = _added_pairs(parts)
    is_small = convolved < _ACCURATE * _rounding(sum(times for _, times in parts))
    if is_small or added.rough(epsilon) <= _PLAUSIBLE * convolved:
        convolved = min(convolved, as_delta(added.exact(epsilon)))
    return min(convolved, _tilted_sum(parts).delta_at(epsilon)) if is_small and convolved > least else convolved


@lru_cache(maxsize=64)
def _tilted_sum(parts: _Parts) -> TiltedSum:
    """The losses of all releases with tiny tails, on one grid."""
    losses = [(_losses_of(curve, _TINY_CUT), times) for curve, times in parts]
    width = _joint_width(min(part.width for part, _ in losses), max(part.largest for part, _ in losses))
    return TiltedSum([(grid, times) for part, times in losses for grid in part.grids(width)])


@lru_cache(maxsize=256)
def _added_pairs(parts: _Parts) -> _AddedPairs:
    return _AddedPairs(parts)


class _AddedPairs:
    """Basic composition: (epsilon_i, delta_i) of all releases add up to (sum epsilon_i, sum delta_i).

    Every division of epsilon is valid. Several are tried, in proportion to the epsilons of the releases at a common
    delta.
    """

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    @cached_property
    def _curves(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Per privacy curve, approximate points: increasing e^epsilon, and deltas."""
        return [_points_of(cast("Hashable", curve)) for curve, _ in self._parts]

    @cached_property
    def _divisions(self) -> list[list[float]]:
        """Candidate divisions: the fraction of epsilon per single release of each curve."""
        divisions = [[1 / sum(times for _, times in self._parts)] * len(self._parts)]
        for share in _SHARES_OF_DELTA if len(self._parts) > 1 else ():
            epsilons = []
            for growths, deltas in self._curves:
                reached = np.flatnonzero(deltas <= max(share, 1.01 * float(deltas[-1])))
                epsilons.append(math.log(growths[reached[0]]))
            total = math.fsum(epsilon * times for epsilon, (_, times) in zip(epsilons, self._parts, strict=True))
            if total > 0:
                divisions.append([epsilon / total for epsilon in epsilons])
        return divisions

    def _rough(self, division: Sequence[float], epsilon: float) -> float:
        """Approximate bound with one division."""
        total = 0.0
        for part, (_, times), points in zip(division, self._parts, self._curves, strict=True):
            total += times * float(np.interp(math.exp(part * epsilon), *points))
        return total

    def rough(self, epsilon: float) -> float:
        """Approximate bound with the best division."""
        epsilon = min(epsilon, LARGEST_EPSILON)
        return min(self._rough(division, epsilon) for division in self._divisions)

    def exact(self, epsilon: float) -> float:
        """The bound, with the best division."""
        epsilon = min(epsilon, LARGEST_EPSILON)
        division = min(self._divisions, key=lambda candidate: self._rough(candidate, epsilon))
        deltas = [
            times * curve.delta_at(part * epsilon * _DOWN)
            for part, (curve, times) in zip(division, self._parts, strict=True)
        ]
        return as_delta(math.fsum(deltas) * (1 + 1e-15 * len(deltas)))


@dataclass(frozen=True)
class _Convolved:
    """Privacy losses of several releases on one grid."""

    finest: float
    """The least grid width of any release."""
    largest: float
    """The largest loss of a single release."""
    distribution: Any

    @property
    def width(self) -> float:
        """The grid width."""
        return _joint_width(self.finest, self.largest)


def _joint_width(finest: float, largest: float) -> float:
    """The least grid width of any release, or a larger one so that the number of cells is bounded."""
    return max(finest, largest / _MAX_JOINT_CELLS)


def _convolve(distribution: Any | None, added: Iterable[tuple[_Pairs | _Curve, int]], width: float) -> Any:
    """The convolution of a distribution, if there is one, with these losses and their multiplicities."""
    for losses, times in added:
        more = losses.on_grid(width).self_compose(times)
        distribution = more if distribution is None else distribution.compose(more)
    return distribution


@dataclass(frozen=True)
class JointCurve:
    """Independent releases of different distributions, all on one grid of privacy losses."""

    parts: _Parts
    """Each privacy curve, and the number of its releases."""
    reused: _Convolved | None = field(default=None, compare=False, repr=False)
    """The convolution of their losses, if it is available."""

    @property
    def releases(self) -> int:
        """The total number of releases."""
        return sum(times for _, times in self.parts)

    @cached_property
    def convolved(self) -> _Convolved:
        """The convolution of all losses."""
        return _convolved(self.parts) if self.reused is None else self.reused

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta: the minimum of several bounds."""
        return self.delta_above(epsilon, 0.0)

    def delta_above(self, epsilon: float, least: float) -> float:
        """The same; values of at most ``least`` may be larger than need be, which is faster."""
        check_epsilon(epsilon)
        if epsilon >= _added_epsilon(self.parts):
            return 0.0
        convolved = _delta_of(self.convolved.distribution, self.releases, epsilon)
        return _least_bound(convolved, self.parts, epsilon, least)


def _convolved(parts: _Parts) -> _Convolved:
    losses = [(_losses_of(curve), times) for curve, times in parts]
    finest, largest = min(part.width for part, _ in losses), max(part.largest for part, _ in losses)
    return _Convolved(finest, largest, _convolve(None, losses, _joint_width(finest, largest)))


def _added_epsilon(parts: Iterable[tuple[PrivacyCurve, int]]) -> float:
    """The sum of the epsilons of releases with delta = 0; infinite if any release has a delta."""
    epsilons = [curve.epsilon * times if isinstance(curve, PureCurve) else math.inf for curve, times in parts]
    return math.fsum(epsilons) * (1 + 1e-15)


def _delta_of(distribution: Any, releases: int, epsilon: float) -> float:
    delta = float(distribution.get_delta_for_epsilon(min(epsilon, LARGEST_EPSILON)))
    return as_delta(as_delta(delta) * (1 + 1e-6 + releases * 1e-9) + _rounding(releases))


def _rounding(releases: int) -> float:
    return releases * _ROUNDING_PER_RELEASE + _ROUNDING


@lru_cache(maxsize=256)
def _curve_of(curve: Hashable, cut: float = _CUT) -> _Curve:
    """The privacy losses of the curve; cached, because its points take long to compute."""
    return _Curve(cast("PrivacyCurve", curve), cut)


@lru_cache(maxsize=1024)
def _points_of(curve: Hashable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Approximate deltas of one release, at increasing e^epsilon from 1 on."""
    return _losses_of(cast("PrivacyCurve", curve)).points()


def _losses_of(curve: PrivacyCurve, cut: float = _CUT) -> _Pairs | _Curve:
    """The privacy losses of one release, without outcomes of a total mass of about ``cut``."""
    if isinstance(curve, PureCurve):  # randomized response attains it at every epsilon
        truth = 1 / (1 + math.exp(-curve.epsilon))
        lie = truth * math.exp(-curve.epsilon)  # 1 - truth, also where that would round to 0
        return _Pairs(((DiscretePair(np.array([truth, lie]), np.array([lie, truth])),),))
    if not isinstance(curve, ComposableCurve):
        return _curve_of(cast("Hashable", curve), cut)
    directions = curve.directions(cut)
    if not directions or (cut == _TINY_CUT and len(directions) > 1 and any(len(pairs) > 1 for pairs in directions)):
        return _curve_of(cast("Hashable", curve), cut)
    return _Pairs(directions, _curve_of(cast("Hashable", curve)) if len(directions) > 1 else None)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The privacy losses of one release, given its pairs of distributions."""

    directions: tuple[tuple[DiscretePair, ...], ...]
    curve: _Curve | None = None
    """The privacy curve, if pairs that cover several data sets may be looser than it."""

    @cached_property
    def _all_pairs(self) -> list[DiscretePair]:
        return [pair for pairs in self.directions for pair in pairs]

    @cached_property
    def largest(self) -> float:
        """The largest finite loss of a pair."""
        return max(map(largest_loss, self._all_pairs))

    @cached_property
    def width(self) -> float:
        """The least grid width of any pair, or a larger one so that the number of cells is bounded."""
        return max(min(map(grid_width, self._all_pairs)), self.largest / _MAX_JOINT_CELLS)

    def grids(self, width: float) -> list[GridLosses]:
        """Independent losses on multiples of ``width`` that dominate, accurate relative to themselves.

        Several directions must have one pair each.
        """
        if len(self.directions) == 1:
            return [on_grid(pair, width) for pair in self.directions[0]]
        reach = _reach(self.directions, width)
        deltas = np.max([on_grid(pair, width).deltas(reach) for (pair,) in self.directions], axis=0)
        growth = np.exp(np.arange(-reach, reach + 1) * width)
        return [connected(width, -reach, _lower_hull(growth, np.minimum(deltas * (1 + 1e-12), 1.0)))]

    def on_grid(self, width: float) -> Any:
        """A loss distribution on multiples of ``width`` that dominates in every direction."""
        once = [
            reduce(lambda a, b: a.compose(b), [on_grid(pair, width) for pair in pairs]) for pairs in self.directions
        ]
        if len(once) == 1:
            return once[0].distribution()
        return _worst_of(once, _reach(self.directions, width), width, self.curve)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Approximate deltas of one release at increasing e^epsilon from 1 on, without what the grid adds."""
        reach = max(math.fsum(map(largest_loss, pairs)) for pairs in self.directions) + self.width
        epsilons = np.linspace(0.0, min(reach, LARGEST_EPSILON), _CURVE_POINTS)
        deltas = self.on_grid(self.width).get_delta_for_epsilon(epsilons + 2 * self.width)
        return np.exp(epsilons), np.asarray(deltas, dtype=np.float64)


def _worst_of(directions: list[GridLosses], reach: int, width: float, curve: _Curve | None) -> Any:
    """A loss distribution whose delta at every epsilon is the largest of the given ones, or that of the curve if less.

    A person may be replaced in one direction in one release and in the other in the next, so composing each direction
    with itself is not enough. The maximum of several privacy curves is a privacy curve (Zhu, Dong and Wang 2022), and
    its loss distribution is computed by connecting the dots.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    losses = np.arange(-reach, reach + 1)
    deltas: NDArray[np.float64] = np.clip(np.max([pmf.deltas(reach) for pmf in directions], axis=0), 0.0, 1.0)
    if curve is not None and curve.is_below(np.asarray(losses[reach:] * width, dtype=np.float64), deltas[reach:]):
        growth = np.exp(losses * width)
        deltas = _lower_hull(growth, np.minimum(deltas, curve.both_directions(growth)))
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, losses, deltas))


@dataclass(frozen=True, eq=False)
class _Curve:
    """The privacy losses of one release, given its privacy curve only."""

    curve: PrivacyCurve
    cut: float = _CUT
    """Deltas below this one are negligible."""

    @cached_property
    def largest(self) -> float:
        """The largest loss of non-negligible mass."""
        reach = 1.0
        deltas = {reach: self._delta(reach)}
        while min(deltas.values()) > self.cut and reach < LARGEST_EPSILON / 2:
            reach *= 2
            deltas[reach] = self._delta(reach)
        # bounds that allow for rounding stay above 0, and may increase again at a large epsilon
        negligible = max(self.cut, 1.001 * min(deltas.values()))
        reach = next(tried for tried, delta in deltas.items() if delta <= negligible)
        while reach > 1e-6 and self._delta(reach / 2) <= negligible:
            reach /= 2
        return reach

    @property
    def width(self) -> float:
        """The grid width: a thousandth of the largest loss."""
        return self.largest / _CURVE_POINTS

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The curve at some points: it is convex in e^epsilon, so that chords between them lie above it.

        Points are added where the chord was farthest above the curve at the previous point.
        """
        step = _CURVE_POINTS // _CURVE_NODES
        indices = [*range(0, _CURVE_POINTS, step), _CURVE_POINTS]
        deltas = {index: self._delta(index * self.width) for index in indices}
        gaps = [(-math.inf, left, right) for left, right in itertools.pairwise(indices)]
        while gaps and len(deltas) < _MAX_CURVE_NODES:
            error, left, right = heapq.heappop(gaps)
            if -error < _CURVE_ERROR:
                break
            middle = (left + right) // 2
            if middle == left or deltas[left] <= 10 * self.cut:
                continue
            deltas[middle] = self._delta(middle * self.width)
            x, a, b = (math.exp(index * self.width) for index in (middle, left, right))
            chord = (deltas[left] * (b - x) + deltas[right] * (x - a)) / (b - a)
            relative_error = chord / max(deltas[middle], self.cut) - 1
            for gap in ((left, middle), (middle, right)):
                heapq.heappush(gaps, (-relative_error, *gap))
        nodes = np.array(sorted(deltas))
        values = np.array([deltas[index] for index in nodes.tolist()])
        return np.exp(nodes * self.width), np.minimum.accumulate(values)  # delta decreases with epsilon

    def _delta(self, epsilon: float) -> float:
        return as_delta(self.curve.delta_at(epsilon))

    def is_below(self, epsilons: NDArray[np.float64], deltas: NDArray[np.float64]) -> bool:
        """Whether the curve is clearly below ``deltas`` at one of a few of these increasing epsilons."""
        candidates = np.flatnonzero((deltas > 1e-13) & (deltas < 0.5))
        if len(candidates) == 0:
            return False
        tried = candidates[np.linspace(0, len(candidates) - 1, _TRIED).astype(np.int64)]
        return any(self._delta(float(epsilons[index])) < (1 - _CURVE_ERROR) * deltas[index] for index in tried)

    def both_directions(self, growth: NDArray[np.float64]) -> NDArray[np.float64]:
        """Upper bounds on delta at each e^epsilon of ``growth``, for increasing epsilons that are symmetric about 0.

        The curve covers both directions, and so does its mirror image at negative epsilons.
        """
        points = len(growth) // 2
        at_positive = np.interp(growth[points:], *self._nodes) * (1 + 1e-12)
        at_negative = 1 - growth[:points] * (1 - at_positive[:0:-1])  # H(P||Q) at -epsilon from H(Q||P) at epsilon
        return np.clip(np.concatenate((at_negative, at_positive)), 0.0, 1.0)

    def points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Approximate deltas of one release at increasing e^epsilon from 1 on, without what chords add."""
        growths, deltas = self._nodes
        return growths, np.interp(growths * math.exp(2 * self.width), growths, deltas)

    def on_grid(self, width: float) -> Any:
        """A loss distribution on multiples of ``width`` that dominates.

        The curve of any two distributions is convex in e^epsilon, so the lower convex hull of upper bounds on it is
        still an upper bound; its loss distribution is computed by connecting the dots.
        """
        from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        first, deltas = self._hull(width)
        steps = np.arange(first, first + len(deltas))
        return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, steps, deltas))

    def grids(self, width: float) -> list[GridLosses]:
        """The same as ``on_grid``, with masses that are accurate relative to themselves."""
        first, deltas = self._hull(width)
        return [connected(width, first, deltas)]

    def _hull(self, width: float) -> tuple[int, NDArray[np.float64]]:
        """The index of the first grid point, and upper bounds on delta that are convex in e^epsilon."""
        points = math.ceil(self.largest / width * (1 - 1e-12))
        growth = np.exp(np.arange(-points, points + 1) * width)
        return -points, _lower_hull(growth, self.both_directions(growth))


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The greatest convex function at or below the points, at the points."""
    hull: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(hull) > 1 and _is_above_chord(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    values: NDArray[np.float64] = np.interp(x, *np.array(hull).T)
    return values


def _is_above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


def _reach(directions: tuple[tuple[DiscretePair, ...], ...], width: float) -> int:
    """How many grid cells the largest finite loss lies from 0, in any direction."""
    largest = max(sum(largest_loss(pair) for pair in pairs) for pairs in directions)
    return math.ceil(largest / width) + 1
