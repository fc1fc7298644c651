"""Several releases over the same people: privacy losses convolved, never epsilons added."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import LARGEST_EPSILON, DiscretePair
from shuffledp.privacy.guarantee import PrivacyLaw, ReleaseLaw

__all__ = ["CERTIFIED_DOWN_TO", "MOST_RELEASES", "ComposedLaw", "compose"]

CERTIFIED_DOWN_TO = 1e-12
"""Composed deltas below this drown in the rounding of fast Fourier transforms; none smaller is claimed."""

MOST_RELEASES = 10_000

_CUT = 1e-16
_ROUNDING_PER_RELEASE = 1e-14  # of the Fourier transforms, added to delta
_CELLS_PER_DEVIATION = 250
_MOST_CELLS = 200_000
_MOST_CELLS_OF_ALL = 30_000  # where pairs differ much in how far their losses spread
_CURVE_REACH = 60.0
_CURVE_POINTS = 1000
_CURVE_NODES = 100


def compose(law: PrivacyLaw, releases: int) -> PrivacyLaw:
    """The privacy law of ``releases`` independent releases, each with the given law."""
    if isinstance(law, ComposedLaw):
        return compose(law.law, law.releases * releases)
    if not 1 <= releases <= MOST_RELEASES:
        raise ParameterError(
            f"The number of releases must lie between 1 and {MOST_RELEASES:,}, not {releases:,}.", releases=releases
        )
    return law if releases == 1 else ComposedLaw(law, releases)


@dataclass(frozen=True)
class ComposedLaw:
    """Several independent releases of one law, as privacy loss distributions of dp-accounting."""

    law: PrivacyLaw
    releases: int

    @cached_property
    def _distribution(self) -> Any:
        if not isinstance(self.law, ReleaseLaw):
            return _from_curve(self.law).self_compose(self.releases)
        directions = self.law.directions(_CUT)
        every = [pair for pairs in directions for pair in pairs]
        width = max(min(map(_grid_width, every)), max(map(_largest_loss, every)) / _MOST_CELLS_OF_ALL)
        once = [reduce(lambda a, b: a.compose(b), [_on_grid(pair, width) for pair in pairs]) for pairs in directions]
        worst = once[0] if len(once) == 1 else _worst_of(once, _reach(directions, width), width)
        return worst.self_compose(self.releases)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        if not epsilon >= 0:
            raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
        found = float(self._distribution.get_delta_for_epsilon(min(epsilon, LARGEST_EPSILON)))
        rounding = self.releases * _ROUNDING_PER_RELEASE + CERTIFIED_DOWN_TO / 10
        return min(1.0, max(0.0, found) * (1 + 1e-6 + self.releases * 1e-9) + rounding)


def _worst_of(distributions: list[Any], reach: int, width: float) -> Any:
    """One loss distribution whose every delta is the largest of the given ones.

    A person may be replaced in one direction in one release and in the other in the next, so the
    worst of the pure sequences is not enough. The largest of several privacy curves is again one
    (Zhu, Dong and Wang 2022), and its distribution is found by connecting the dots.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    losses = np.arange(-reach, reach + 1)
    deltas = np.max([distribution.get_delta_for_epsilon(losses * width) for distribution in distributions], axis=0)
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, losses, np.clip(deltas, 0.0, 1.0)))


def _from_curve(law: PrivacyLaw) -> Any:
    """A loss distribution that dominates a law of which only the curve of deltas is known.

    Any two outcomes' laws have a curve that is convex in e^epsilon, so the lower convex hull of upper
    bounds on it is an upper bound still; its distribution is found by connecting the dots. The
    curve covers both directions, and so does its mirror image at negative epsilons.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    reach = _CURVE_REACH
    while reach < LARGEST_EPSILON / 2 and law.delta_at(reach) > _CUT:
        reach *= 2
    while reach > 1e-6 and law.delta_at(reach / 2) <= _CUT:
        reach /= 2
    width = reach / _CURVE_POINTS
    steps = np.arange(-_CURVE_POINTS, _CURVE_POINTS + 1)
    growth = np.exp(steps * width)
    # the curve is convex in e^epsilon, so that chords between fewer points lie above it
    nodes = steps[_CURVE_POINTS :: _CURVE_POINTS // _CURVE_NODES] * width
    evaluated = [law.delta_at(epsilon) for epsilon in nodes.tolist()]
    ahead = np.interp(growth[_CURVE_POINTS:], np.exp(nodes), evaluated) * (1 + 1e-12)
    behind = 1 - growth[:_CURVE_POINTS] * (1 - ahead[:0:-1])  # H(P||Q) at -epsilon from H(Q||P) at epsilon
    deltas = _lower_hull(growth, np.clip(np.concatenate((behind, ahead)), 0.0, 1.0))
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots(width, steps, deltas))


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The greatest convex function at or below the points, at the points."""
    kept: list[int] = []
    for place in range(len(x)):
        while len(kept) > 1 and _is_above_chord(x, y, kept[-2], kept[-1], place):
            kept.pop()
        kept.append(place)
    return np.interp(x, x[kept], y[kept])


def _is_above_chord(x: NDArray[np.float64], y: NDArray[np.float64], left: int, middle: int, right: int) -> bool:
    return bool((y[middle] - y[left]) * (x[right] - x[left]) >= (y[right] - y[left]) * (x[middle] - x[left]))


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
    mean = float(np.average(loss[finite], weights=weight))
    deviation = math.sqrt(float(np.average((loss[finite] - mean) ** 2, weights=weight)))
    return max(deviation / _CELLS_PER_DEVIATION, _largest_loss(pair) / _MOST_CELLS, 1e-9)


def _on_grid(pair: DiscretePair, width: float) -> Any:
    """Move each outcome to the two grid points around its loss, keeping its mass under both laws.

    That spreads the likelihood ratio, so every divergence becomes an upper bound (Doroshenko et al.
    2022, "Connect the dots"), with an error of second order in the width.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    loss = pair.loss
    finite = np.isfinite(loss)
    p, loss = pair.p[finite], loss[finite]
    infinite_mass = float(pair.p[pair.q == 0].sum()) + pair.cut
    cell = np.floor(loss / width).astype(np.int64)
    share_up = np.clip(np.expm1(cell * width - loss) / math.expm1(-width), 0.0, 1.0)
    first = int(cell.min(initial=0))
    masses = np.bincount(cell - first, weights=p * (1 - share_up), minlength=int(cell.max(initial=0)) - first + 2)
    masses += np.bincount(cell + 1 - first, weights=p * share_up, minlength=len(masses))
    grid = {first + int(i): float(masses[i]) for i in np.flatnonzero(masses)}
    return PrivacyLossDistribution.create_from_rounded_probability(
        grid, infinite_mass, width, pessimistic_estimate=True
    )
