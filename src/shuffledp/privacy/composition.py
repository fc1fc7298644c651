"""Several releases over the same people: privacy losses convolved, never epsilons added."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import LARGEST_EPSILON, DiscretePair
from shuffledp.privacy.guarantee import PrivacyLaw

__all__ = ["CERTIFIED_DOWN_TO", "ComposedLaw", "compose"]

CERTIFIED_DOWN_TO = 1e-12
"""Composed deltas below this drown in the rounding of fast Fourier transforms; none smaller is claimed."""

_CUT = 1e-16
_ROUNDING_PER_RELEASE = 1e-14  # of the Fourier transforms, added to delta
_CELLS_PER_DEVIATION = 250
_MOST_CELLS = 200_000


def compose(law: PrivacyLaw, releases: int) -> PrivacyLaw:
    """The privacy law of ``releases`` independent releases, each with the given law."""
    if releases < 1:
        raise ParameterError(f"The number of releases must be at least 1, not {releases}.", releases=releases)
    return law if releases == 1 else ComposedLaw(law, releases)


@dataclass(frozen=True)
class ComposedLaw:
    """Several independent releases of one law, as privacy loss distributions of dp-accounting."""

    law: PrivacyLaw
    releases: int

    @cached_property
    def _distributions(self) -> list[Any]:
        return [
            reduce(lambda a, b: a.compose(b), _loss_distributions(pairs)).self_compose(self.releases)
            for pairs in self.law.directions(_CUT)
        ]

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, not less than the resolution of the method."""
        if epsilon < 0:
            raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
        worst = max(float(d.get_delta_for_epsilon(min(epsilon, LARGEST_EPSILON))) for d in self._distributions)
        return min(1.0, max(0.0, worst) * (1 + 1e-9) + self.releases * _ROUNDING_PER_RELEASE + CERTIFIED_DOWN_TO / 10)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """The pairs of one release, repeated."""
        return tuple(pairs * self.releases for pairs in self.law.directions(cut))


def _loss_distributions(pairs: tuple[DiscretePair, ...]) -> list[Any]:
    """Each pair's privacy loss on a common grid."""
    width = min(_grid_width(pair) for pair in pairs)
    return [_on_grid(pair, width) for pair in pairs]


def _grid_width(pair: DiscretePair) -> float:
    """A grid much finer than the spread of the loss, though of a bounded number of cells."""
    loss = pair.loss
    finite = np.isfinite(loss)
    weight = pair.p[finite] + pair.q[finite]
    mean = float(np.average(loss[finite], weights=weight))
    deviation = math.sqrt(float(np.average((loss[finite] - mean) ** 2, weights=weight)))
    extent = float(np.ptp(loss[finite])) if finite.any() else 1.0
    return max(deviation / _CELLS_PER_DEVIATION, extent / _MOST_CELLS, 1e-12)


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
