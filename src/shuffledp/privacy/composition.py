"""Several releases over the same people: privacy losses convolved, never epsilons added."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.privacy.capping import CappedLaw
from shuffledp.privacy.divergence import LARGEST_EPSILON, DiscretePair, as_delta, positive_part
from shuffledp.privacy.guarantee import PrivacyLaw, ReleaseLaw
from shuffledp.privacy.pure import PureLaw

__all__ = ["CERTIFIED_DOWN_TO", "MOST_RELEASES", "ComposedLaw", "JointLaw", "compose", "compose_all", "followed_by"]

CERTIFIED_DOWN_TO = 1e-12
"""Composed deltas below this drown in the rounding of fast Fourier transforms; none smaller is claimed."""

MOST_RELEASES = 10_000

_CUT = 1e-16
_HIDES_NOTHING = 1 - 1e-9  # a delta above it at the largest epsilon
_ROUNDING_PER_RELEASE = 1e-14  # of the Fourier transforms, added to delta
_CELLS_PER_DEVIATION = 250
_MOST_CELLS = 200_000
_MOST_CELLS_OF_ALL = 30_000  # where pairs differ much in how far their losses spread
_CURVE_REACH = 60.0
_CURVE_POINTS = 1000
_CURVE_NODES = 100


def compose(law: PrivacyLaw, releases: int) -> PrivacyLaw:
    """The privacy law of ``releases`` independent releases, each with the given law."""
    _check_releases(releases)
    return law if releases == 1 else _released([(law, releases)])


def compose_all(laws: Iterable[PrivacyLaw]) -> PrivacyLaw:
    """The privacy law of one independent release of each of these laws, over the same people."""
    return _released([(law, 1) for law in laws])


def followed_by(law: PrivacyLaw, more: PrivacyLaw) -> PrivacyLaw:
    """The same as ``compose_all`` of these two, where one of them may be that of many releases.

    What was convolved for the first is taken up where both are on one grid, so that one more release costs one more
    convolution. The bounds are the same but for the rounding that is allowed for.
    """
    composed = compose_all([law, more])
    before, joint = _uncapped(law), _uncapped(composed)
    if not (isinstance(before, JointLaw) and isinstance(joint, JointLaw)):
        return composed
    begun, added = before.convolved, [(_losses_of(part), times) for part, times in _parts_of(more)[0]]
    finest = min(begun.finest, *(losses.width for losses, _ in added))
    largest = max(begun.largest, *(losses.largest for losses, _ in added))
    if _joint_width(finest, largest) != begun.width:
        return composed
    convolved = _Convolved(finest, largest, _convolve(begun.distribution, added, begun.width))
    joint = replace(joint, known=convolved)
    return replace(composed, law=joint) if isinstance(composed, CappedLaw) else joint


def _uncapped(law: PrivacyLaw) -> PrivacyLaw:
    return _uncapped(law.law) if isinstance(law, CappedLaw) else law


def _released(laws: Iterable[tuple[PrivacyLaw, int]]) -> PrivacyLaw:
    """Each law so often; equal ones are taken together.

    What caps do is added up, not convolved: total variations of independent releases add, so that all together
    differ from releases without caps like one user whose report is drawn again with the sum of all chances.
    """
    counts: dict[PrivacyLaw, int] = {}
    slack = 0.0
    for law, releases in laws:
        parts, exceeded = _parts_of(law)
        slack += releases * exceeded
        for part, times in parts:
            counts[part] = counts.get(part, 0) + releases * times
    _check_releases(sum(counts.values()))
    if any(law.delta_at(LARGEST_EPSILON) > _HIDES_NOTHING for law in counts):
        return PureLaw(math.inf)  # delta is 1 at every epsilon; there is no finite loss to convolve
    every = tuple(counts.items())
    joint: PrivacyLaw = JointLaw(every)
    if len(every) == 1:
        law, releases = every[0]
        joint = law if releases == 1 else ComposedLaw(law, releases)
    return CappedLaw(joint, 1, as_delta(slack * (1 + 1e-12))) if slack else joint


def _parts_of(law: PrivacyLaw) -> tuple[tuple[tuple[PrivacyLaw, int], ...], float]:
    """The laws that are released, how often, and by how much caps change what is seen, in total variation."""
    if isinstance(law, CappedLaw):
        parts, exceeded = _parts_of(law.law)
        return parts, exceeded + law.users * law.chance
    if isinstance(law, ComposedLaw):
        return ((law.law, law.releases),), 0.0
    return (law.parts if isinstance(law, JointLaw) else ((law, 1),)), 0.0


def _check_releases(releases: int) -> None:
    if not 1 <= releases <= MOST_RELEASES:
        raise ParameterError(
            f"The number of releases must lie between 1 and {MOST_RELEASES:,}, not {releases:,}.", releases=releases
        )


@dataclass(frozen=True)
class ComposedLaw:
    """Several independent releases of one law, as privacy loss distributions of dp-accounting."""

    law: PrivacyLaw
    releases: int

    @cached_property
    def _distribution(self) -> Any:
        losses = _losses_of(self.law)
        return losses.on_grid(losses.width).self_compose(self.releases)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        if epsilon >= _added_epsilon([(self.law, self.releases)]):
            return 0.0
        return _delta_of(self._distribution, self.releases, epsilon)


@dataclass(frozen=True)
class _Convolved:
    """Privacy losses of several releases on one grid."""

    finest: float
    """The least width that a law asks for."""
    largest: float
    """The largest loss of a single release."""
    distribution: Any

    @property
    def width(self) -> float:
        """Of the grid."""
        return _joint_width(self.finest, self.largest)


def _joint_width(finest: float, largest: float) -> float:
    """A grid that shows the finest of them, though of a bounded number of cells."""
    return max(finest, largest / _MOST_CELLS_OF_ALL)


def _convolve(begun: Any | None, added: Iterable[tuple[_Pairs | _Curve, int]], width: float) -> Any:
    """What is convolved already, and then each of these so often."""
    for losses, times in added:
        more = losses.on_grid(width).self_compose(times)
        begun = more if begun is None else begun.compose(more)
    return begun


@dataclass(frozen=True)
class JointLaw:
    """Independent releases of different laws, all on one grid of privacy losses."""

    parts: tuple[tuple[PrivacyLaw, int], ...]
    """Each law, and how often it is released."""
    known: _Convolved | None = field(default=None, compare=False, repr=False)
    """Their losses, if they are convolved already."""

    @property
    def releases(self) -> int:
        """How many in all."""
        return sum(times for _, times in self.parts)

    @cached_property
    def convolved(self) -> _Convolved:
        """The losses of all of them."""
        if self.known is not None:
            return self.known
        every = [(_losses_of(law), times) for law, times in self.parts]
        finest, largest = min(losses.width for losses, _ in every), max(losses.largest for losses, _ in every)
        return _Convolved(finest, largest, _convolve(None, every, _joint_width(finest, largest)))

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        if epsilon >= _added_epsilon(self.parts):
            return 0.0
        return _delta_of(self.convolved.distribution, self.releases, epsilon)


def _added_epsilon(parts: Iterable[tuple[PrivacyLaw, int]]) -> float:
    """The epsilons of laws without any delta add up; infinite where a law has one."""
    epsilons = [law.epsilon * times if isinstance(law, PureLaw) else math.inf for law, times in parts]
    return math.fsum(epsilons) * (1 + 1e-15)


def _delta_of(distribution: Any, releases: int, epsilon: float) -> float:
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
    found = float(distribution.get_delta_for_epsilon(min(epsilon, LARGEST_EPSILON)))
    rounding = releases * _ROUNDING_PER_RELEASE + CERTIFIED_DOWN_TO / 10
    return as_delta(as_delta(found) * (1 + 1e-6 + releases * 1e-9) + rounding)


def _losses_of(law: PrivacyLaw) -> _Pairs | _Curve:
    if isinstance(law, PureLaw):  # randomized response is the worst of them
        truth = 1 / (1 + math.exp(-law.epsilon))
        lie = truth * math.exp(-law.epsilon)  # 1 - truth, also where that would round to 0
        return _Pairs(((DiscretePair.of([truth, lie], [lie, truth]),),))
    return _Pairs(law.directions(_CUT)) if isinstance(law, ReleaseLaw) else _Curve(law)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The privacy losses of one release of which the pairs of laws are known."""

    directions: tuple[tuple[DiscretePair, ...], ...]

    @cached_property
    def _every(self) -> list[DiscretePair]:
        return [pair for pairs in self.directions for pair in pairs]

    @cached_property
    def largest(self) -> float:
        """The largest finite loss of a pair."""
        return max(map(_largest_loss, self._every))

    @cached_property
    def width(self) -> float:
        """A grid that shows the finest of them, though of a bounded number of cells."""
        return max(min(map(_grid_width, self._every)), self.largest / _MOST_CELLS_OF_ALL)

    def on_grid(self, width: float) -> Any:
        """A loss distribution on multiples of the width that dominates, whatever the direction."""
        once = [
            reduce(lambda a, b: a.compose(b), [_on_grid(pair, width) for pair in pairs]) for pairs in self.directions
        ]
        return once[0].distribution() if len(once) == 1 else _worst_of(once, _reach(self.directions, width), width)


@dataclass(frozen=True, eq=False)
class _Masses:
    """The masses of losses on a grid: the first at ``first`` widths."""

    first: int
    masses: NDArray[np.float64]
    infinite: float
    width: float

    def compose(self, other: _Masses) -> _Masses:
        """The losses of two independent outcomes, added."""
        from scipy.signal import fftconvolve

        masses = positive_part(fftconvolve(self.masses, other.masses))
        infinite = self.infinite + other.infinite * (1 - self.infinite)
        return _Masses(self.first + other.first, masses, infinite, self.width)

    def deltas(self, reach: int) -> NDArray[np.float64]:
        """The divergence at all multiples of the width from -reach to reach.

        With T(i) the mass above cell i, the divergence D is infinite + d with d(i) = r d(i + 1) + (1 - r) T(i) for
        r = e^-width: a sum of positive numbers, so that nothing cancels.
        """
        from scipy.signal import lfilter

        above = np.cumsum(self.masses[::-1])[::-1]
        first, last = min(self.first, -reach), max(self.first + len(above), reach) + 1
        over = np.zeros(last - first)  # T of first .. last - 1
        over[: self.first - first] = above[0]
        over[self.first - first : self.first - first + len(above) - 1] = above[1:]
        keep = math.exp(-self.width)
        found = lfilter([-math.expm1(-self.width)], [1.0, -keep], over[::-1])[::-1]
        return self.infinite + np.asarray(found[-reach - first : reach - first + 1], dtype=np.float64)

    def distribution(self) -> Any:
        """The same for dp-accounting."""
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        grid = {self.first + int(i): float(self.masses[i]) for i in np.flatnonzero(self.masses)}
        return PrivacyLossDistribution.create_from_rounded_probability(
            grid, self.infinite, self.width, pessimistic_estimate=True
        )


def _worst_of(every: list[_Masses], reach: int, width: float) -> Any:
    """One loss distribution whose every delta is the largest of the given ones.

    A person may be replaced in one direction in one release and in the other in the next, so the
    worst of the pure sequences is not enough. The largest of several privacy curves is again one
    (Zhu, Dong and Wang 2022), and its distribution is found by connecting the dots.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    losses = np.arange(-reach, reach + 1)
    deltas = np.max([masses.deltas(reach) for masses in every], axis=0)
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, losses, np.clip(deltas, 0.0, 1.0)))


@dataclass(frozen=True, eq=False)
class _Curve:
    """The privacy losses of one release of which only the curve of deltas is known."""

    law: PrivacyLaw

    @cached_property
    def largest(self) -> float:
        """Beyond this loss there is next to nothing."""
        reach = _CURVE_REACH
        while reach < LARGEST_EPSILON / 2 and self.law.delta_at(reach) > _CUT:
            reach *= 2
        least = max(_CUT, 1.001 * self.law.delta_at(reach))  # bounds that allow for rounding stay above 0
        while reach > 1e-6 and self.law.delta_at(reach / 2) <= least:
            reach /= 2
        return reach

    @property
    def width(self) -> float:
        """A thousandth of the largest."""
        return self.largest / _CURVE_POINTS

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The curve at few points: it is convex in e^epsilon, so that chords between them lie above it."""
        nodes = np.arange(0, _CURVE_POINTS + 1, _CURVE_POINTS // _CURVE_NODES) * self.width
        return np.exp(nodes), np.array([self.law.delta_at(epsilon) for epsilon in nodes.tolist()])

    def on_grid(self, width: float) -> Any:
        """A loss distribution on multiples of the width that dominates.

        Any two outcomes' laws have a curve that is convex in e^epsilon, so the lower convex hull of upper
        bounds on it is an upper bound still; its distribution is found by connecting the dots. The
        curve covers both directions, and so does its mirror image at negative epsilons.
        """
        from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        points = math.ceil(self.largest / width * (1 - 1e-12))
        steps = np.arange(-points, points + 1)
        growth = np.exp(steps * width)
        ahead = np.interp(growth[points:], *self._nodes) * (1 + 1e-12)
        behind = 1 - growth[:points] * (1 - ahead[:0:-1])  # H(P||Q) at -epsilon from H(Q||P) at epsilon
        deltas = _lower_hull(growth, np.clip(np.concatenate((behind, ahead)), 0.0, 1.0))
        return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, steps, deltas))


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The greatest convex function at or below the points, at the points."""
    kept: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and _is_above_chord(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    found: NDArray[np.float64] = np.interp(x, *np.array(kept).T)
    return found


def _is_above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


def _reach(directions: tuple[tuple[DiscretePair, ...], ...], width: float) -> int:
    """How many grid cells the largest finite loss lies from 0, in any direction."""
    largest = max(sum(_largest_loss(pair) for pair in pairs) for pairs in directions)
    return math.ceil(largest / width) + 1


def _largest_loss(pair: DiscretePair) -> float:
    loss = pair.loss
    return float(np.abs(loss[np.isfinite(loss)]).max(initial=0.0))


def _grid_width(pair: DiscretePair) -> float:
    """A grid much finer than the spread of the loss, though of a bounded number of cells."""
    loss = pair.loss
    finite = np.isfinite(loss)
    weight = pair.p[finite] + pair.q[finite]
    if not weight.sum() > 0:  # every outcome gives one of the two away
        return 1.0
    mean = float(np.average(loss[finite], weights=weight))
    deviation = math.sqrt(float(np.average((loss[finite] - mean) ** 2, weights=weight)))
    return max(deviation / _CELLS_PER_DEVIATION, _largest_loss(pair) / _MOST_CELLS, 1e-9)


def _on_grid(pair: DiscretePair, width: float) -> _Masses:
    """Move each outcome to the two grid points around its loss, keeping its mass under both laws.

    That spreads the likelihood ratio, so every divergence becomes an upper bound (Doroshenko et al.
    2022, "Connect the dots"), with an error of second order in the width.
    """
    loss = pair.loss
    finite = np.isfinite(loss)
    p, loss = pair.p[finite], loss[finite]
    infinite_mass = float(pair.p[pair.q == 0].sum()) + pair.cut
    cell = np.floor(loss / width).astype(np.int64)
    share_up = np.clip(np.expm1(cell * width - loss) / math.expm1(-width), 0.0, 1.0)
    first = int(cell.min(initial=0))
    masses = np.bincount(cell - first, weights=p * (1 - share_up), minlength=int(cell.max(initial=0)) - first + 2)
    masses += np.bincount(cell + 1 - first, weights=p * share_up, minlength=len(masses))
    return _Masses(first, masses.astype(np.float64, copy=False), infinite_mass, width)
