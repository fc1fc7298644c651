"""Privacy curves as 151 numbers, composed by convolution in NumPy alone: the form in which a device keeps a release."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.guarantee import PrivacyCurve

STEPS_PER_UNIT = 50
POINTS = 151
"""A curve is sampled at epsilon = 0, 0.02, ..., 3."""

LAST_EPSILON = (POINTS - 1) / STEPS_PER_UNIT
_MAX_EVALUATIONS = 48
_NEGLIGIBLE = 1e-15  # smaller deltas need no further points: those of all releases add up to less than any budget
_CUT = 1e-14  # mass of a tail that one convolution may cut
_ROUNDING = 1e-14  # per release, added to delta
_GROWTHS = np.exp(np.arange(1 - POINTS, POINTS) / STEPS_PER_UNIT)  # e^epsilon from epsilon = -3 to 3


@dataclass(frozen=True, eq=False)
class SampledCurve:
    """Upper bounds on the delta of one release at fixed epsilons; one proved (epsilon, delta) for basic composition."""

    deltas: NDArray[np.float32]
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        deltas = self.deltas
        if deltas.shape != (POINTS,) or not bool(np.all((deltas >= 0) & (deltas <= 1))):  # false for NaN too
            raise ParameterError(f"A sampled privacy curve needs {POINTS} probabilities.")
        if not (0 <= self.epsilon < math.inf and 0 <= self.delta <= 1):
            raise ParameterError(
                f"A release needs a finite epsilon and a delta of at most 1, not {self.epsilon} and {self.delta}."
            )

    @classmethod
    def of(cls, curve: PrivacyCurve, *, epsilon: float, delta: float) -> Self:
        """The samples of a curve that has ``delta`` at ``epsilon``, rounded up to single precision."""
        return cls(_rounded_up(_samples(curve)), epsilon, delta)

    def losses(self) -> tuple[int, NDArray[np.float64], float]:
        """A dominating loss distribution: the index of its first cell, the masses of cells, and the mass at infinity.

        Divergences are convex in e^epsilon, so the chords between samples are upper bounds. They are exactly the
        divergence of the losses that are returned (Doroshenko et al. 2022, "Connect the dots"). The curve covers both
        directions, so its mirror image bounds it at negative epsilons. Where rounding made the samples concave, a mass
        would be negative; it is set to 0, which only adds mass. A release whose proved epsilon lies beyond the samples
        counts with that epsilon as its loss: basic composition.
        """
        if self.epsilon > LAST_EPSILON:
            return math.ceil(self.epsilon * STEPS_PER_UNIT), np.ones(1), self.delta
        positive = np.minimum.accumulate(self.deltas.astype(np.float64))
        negative = 1 - _GROWTHS[: POINTS - 1] * (1 - positive[:0:-1])
        deltas = np.concatenate((negative, positive))
        last = float(deltas[-1])
        slopes = np.concatenate(([last - 1.0], np.diff(deltas) / np.diff(_GROWTHS), [0.0]))
        return 1 - POINTS, np.maximum(np.diff(slopes), 0.0) * _GROWTHS, last


def _samples(curve: PrivacyCurve) -> NDArray[np.float64]:
    """Upper bounds at all points; some curves are slow, so only some points are evaluated: chords bound the others."""
    last = POINTS - 1
    growth = _GROWTHS[last:].tolist()
    deltas: dict[int, float] = {}

    def evaluate(index: int) -> float:
        return deltas.setdefault(index, as_delta(curve.delta_at(index / STEPS_PER_UNIT)))

    gaps = [(-1.0, 0, last)]
    for index in (0, last):
        evaluate(index)
    while gaps and len(deltas) < _MAX_EVALUATIONS:
        _, left, right = heapq.heappop(gaps)
        if right - left < 2 or deltas[left] <= _NEGLIGIBLE:
            continue
        middle = (left + right) // 2
        x, a, b = growth[middle], growth[left], growth[right]
        chord = (deltas[left] * (b - x) + deltas[right] * (x - a)) / (b - a)
        actual = max(evaluate(middle), _NEGLIGIBLE)
        error = (chord - actual) / math.sqrt(actual)  # between absolute and relative: tails matter, the middle more
        for gap in ((left, middle), (middle, right)):
            heapq.heappush(gaps, (-error, *gap))
    nodes = sorted(deltas)
    values: NDArray[np.float64] = np.interp(growth, [growth[i] for i in nodes], [deltas[i] for i in nodes])
    return values * (1 + 1e-15)


def _rounded_up(values: NDArray[np.float64]) -> NDArray[np.float32]:
    single = values.astype(np.float32)
    raised = np.where(single < values, np.nextafter(single, np.float32(2)), single)
    return np.minimum(raised, np.float32(1))


def _without_tails(masses: NDArray[np.float64]) -> tuple[int, NDArray[np.float64], float]:
    """The masses without negligible tails, the index of the first, and the mass to count at infinity instead."""
    above = np.cumsum(masses[::-1])[::-1]  # mass at or above a cell
    end = max(1, int(np.count_nonzero(above > _CUT)))
    start = min(int(np.count_nonzero(np.cumsum(masses[:end]) < _CUT)), end - 1)
    kept = masses[start:end].copy()
    kept[0] += masses[:start].sum()  # these losses are raised
    return start, kept, float(above[end]) if end < len(masses) else 0.0


@dataclass(frozen=True, eq=False)
class SampledTotal:
    """The composition of several releases: a convolved loss distribution, and added pairs."""

    first: int
    masses: NDArray[np.float64]
    infinite: float
    epsilon: float
    delta: float
    """Sums of epsilon and delta: basic composition."""

    @classmethod
    def of(cls, curves: Iterable[SampledCurve] = ()) -> Self:
        """The total of these releases."""
        total = cls(0, np.ones(1), 0.0, 0.0, 0.0)
        for curve in curves:
            total = total.followed_by(curve)
        return total

    def followed_by(self, curve: SampledCurve) -> Self:
        """The total with one more release. All numbers are positive, so that nothing cancels."""
        first, masses, infinite = curve.losses()
        start, masses, cut = _without_tails(masses)
        offset, kept, cut_again = _without_tails(np.convolve(self.masses, masses))
        return type(self)(
            self.first + first + start + offset,
            kept,
            self.infinite + infinite + cut + cut_again + _ROUNDING,
            self.epsilon + curve.epsilon,
            self.delta + curve.delta,
        )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of the convolved losses."""
        losses = (self.first + np.arange(len(self.masses))) / STEPS_PER_UNIT
        beyond = losses > epsilon
        convolved = float((self.masses[beyond] * -np.expm1(epsilon - losses[beyond])).sum()) + self.infinite
        return as_delta(convolved * (1 + 1e-12))

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether (epsilon, delta) holds by either method; the sums of basic composition may exceed it by rounding."""
        added = self.epsilon <= epsilon * (1 + 1e-12) and self.delta <= delta * (1 + 1e-12)
        return added or self.delta_at(epsilon) <= delta

    def epsilon_at(self, delta: float) -> float:
        """Upper bound on the least epsilon at this delta, infinite if there is none: the smaller of both methods."""
        added = self.epsilon if self.delta <= delta * (1 + 1e-12) else math.inf
        low, high = 0.0, max(0, self.first + len(self.masses)) / STEPS_PER_UNIT
        if self.delta_at(0.0) <= delta:
            return 0.0
        if self.delta_at(high) > delta:
            return added
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta_at(middle) <= delta else (middle, high)
        return min(high, added)
