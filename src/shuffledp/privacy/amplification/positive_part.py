"""Upper bounds on the expected positive part of a sum of many independent draws, accurate down to tiny values.

The distribution of the sum is computed by a fast Fourier transform of its exponentially tilted distribution, whose mass
is concentrated around 0. So even an expectation of 1e-30 has a small relative error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON
from shuffledp.errors import ConditionError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.divergence import positive_part
from shuffledp.search import bisect

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TAIL = math.log(1e24)  # -ln of the mass of the tilted distribution that is left out on either side, and added
_LEAST_LOG_AMPLITUDE = -60.0  # frequencies with a smaller amplitude are ignored
_NOISE_CUT = 1e-40
_FARTHEST_STEP = 2.0**50  # beyond, floating-point numbers have no digits left for positions between two steps
MAX_POINTS = 1 << 22
"""Maximum number of points of a Fourier transform: about a second of processor time and 150 MB of memory."""


class TooManyPointsError(ConditionError):
    """A sum has too many possible values on its grid; a coarser grid has fewer and gives a looser bound."""

    def __init__(self, points: float) -> None:
        super().__init__(
            f"The privacy of these parameters would take a Fourier transform of {points:.3g} points; at most "
            f"{MAX_POINTS:,} are computed. Choose fewer users or a blanket that is less extreme.",
            points=points,
        )
        self.points = points


@dataclass(frozen=True, eq=False)
class Draws:
    """The sum of ``trials`` independent draws; a draw is ``steps[i]`` with probability ``mass[i]``, else 0."""

    trials: int
    steps: Integers
    mass: Floats

    def cumulant(self, tilt: float) -> float:
        """ln E[e^(tilt sum)]."""
        return self.trials * math.log1p(float(self.mass @ np.expm1(tilt * self.steps)))

    def size(self, tilt: float) -> float:
        """The sum of absolute values of the terms of the cumulant, which bounds its rounding error."""
        return self.trials * float(self.mass @ np.abs(np.expm1(tilt * self.steps)))

    def moments(self, tilt: float) -> tuple[float, float]:
        """Mean and variance of the sum under the tilted distribution."""
        tilted = self._tilted(tilt)
        mean = float(tilted @ self.steps)
        return self.trials * mean, self.trials * (float(tilted @ self.steps.astype(np.float64) ** 2) - mean * mean)

    def spectrum(self, tilt: float, length: int) -> tuple[NDArray[np.complex128], float]:
        """The Fourier transform of the tilted distribution, and a bound on the effect of its rounding on a mass."""
        tilted = self._tilted(tilt)
        frequency = np.arange(length // 2 + 1, dtype=np.float64)
        real, imaginary = np.zeros(len(frequency)), np.zeros(len(frequency))
        for step, mass in zip(self.steps.tolist(), tilted.tolist(), strict=True):
            turns = frequency * (step % length)  # exact in floating point, and so is its remainder
            half_angle = (turns - length * np.rint(turns / length)) * (math.pi / length)
            sine = np.sin(half_angle)
            real -= 2 * mass * sine * sine
            cosine = np.sqrt((1 - sine) * (1 + sine))  # at least 0, since the half angle is at most a right angle
            imaginary -= 2 * mass * sine * cosine  # numpy's sign convention
        excess = 2 * real + real**2 + imaginary**2
        size = self.trials / 2 * np.log1p(np.maximum(excess, -0.5))
        low = excess < -0.5  # here the logarithm of the size itself is accurate
        size[low] = self.trials * np.log(np.maximum(np.hypot(1 + real[low], imaginary[low]), 1e-300))
        spectrum = np.zeros(len(frequency), dtype=np.complex128)
        significant = np.flatnonzero(size > _LEAST_LOG_AMPLITUDE)
        angle = self.trials * np.arctan2(imaginary[significant], 1 + real[significant])
        spectrum[significant] = np.exp(size[significant] + 1j * angle)
        error = 2.0**-50 * (1 + self.trials * (np.abs(real[significant]) + np.abs(imaginary[significant])))
        rounding = float((np.abs(spectrum[significant]) * error).sum()) * 2 / length + math.exp(_LEAST_LOG_AMPLITUDE)
        if low.any() and self.trials < 200:
            rounding += 2.0**-50
        return spectrum, rounding

    def _tilted(self, tilt: float) -> Floats:
        grown = np.exp(tilt * self.steps)
        tilted: Floats = self.mass * grown / (1 + float(self.mass @ np.expm1(tilt * self.steps)))
        return tilted


def on_grid(values: Floats, mass: Floats, width: float) -> tuple[Integers, Floats]:
    """Split the mass of each value between the two adjacent grid points such that the mean is preserved.

    Such a spread can only increase the expectation of a convex function of the sum.
    """
    scaled = values / width
    farthest = float(np.abs(scaled).max(initial=0.0))
    if not farthest <= _FARTHEST_STEP:
        raise TooManyPointsError(farthest)
    below = np.floor(scaled + 1e-9)  # values that are on the grid except for rounding
    up = np.clip(scaled - below, 0.0, 1.0)
    steps = np.concatenate((below, below + 1)).astype(np.int64)
    masses = np.concatenate((mass * (1 - up), mass * up))
    return steps[masses > 0], masses[masses > 0]


@dataclass(frozen=True, eq=False)
class ScaledNoise:
    """scale (mean - N) with N binomial, discretized on the grid with its mean preserved."""

    curve: Binomial
    scale: float
    """In grid steps."""

    @cached_property
    def _points(self) -> tuple[Integers, Floats]:
        first = self.curve.least_with_lower_tail(_NOISE_CUT)
        last = self.curve.trials - self.curve.mirrored.least_with_lower_tail(_NOISE_CUT)
        if not (last - first) * max(self.scale, 1.0) <= MAX_POINTS:
            raise TooManyPointsError((last - first) * max(self.scale, 1.0))
        counts = np.arange(first, last + 1, dtype=np.int64)
        positions = np.asarray((self.curve.mean - counts) * self.scale, dtype=np.float64)
        steps, mass = on_grid(positions, self.curve.pmf(counts), 1.0)
        lowest = int(steps.min())
        total: Floats = np.asarray(np.bincount(steps - lowest, weights=mass), dtype=np.float64)
        return lowest + np.arange(len(total)), total

    @property
    def left_out(self) -> float:
        """Bound on the mass that is left out."""
        return 4 * _NOISE_CUT

    def cumulant(self, tilt: float) -> float:
        """ln E[e^(tilt noise)] of the mass that is not left out."""
        steps, mass = self._points
        peak = float(np.max(tilt * steps))
        return peak + math.log(float((mass * np.exp(tilt * steps - peak)).sum()))

    def moments(self, tilt: float) -> tuple[float, float]:
        """Mean and variance under the tilted distribution."""
        steps, tilted = self._points[0], self._tilted(tilt)
        mean = float((tilted * steps).sum())
        return mean, float((tilted * (steps - mean) ** 2).sum())

    def spectrum(self, tilt: float, length: int) -> NDArray[np.complex128]:
        """The Fourier transform of the tilted distribution."""
        wrapped = np.bincount(self._points[0] % length, weights=self._tilted(tilt), minlength=length)
        return np.fft.rfft(wrapped)

    def _tilted(self, tilt: float) -> Floats:
        steps, mass = self._points
        exponent = tilt * steps
        tilted = mass * np.exp(exponent - exponent.max())
        result: Floats = tilted / tilted.sum()
        return result


def expected_positive_part(draws: Draws, offset: float, noise: ScaledNoise | None = None) -> float:
    """Upper bound on E[max(sum + noise + offset, 0)] in grid steps; the noise is independent.

    The mass that the noise leaves out is not included.
    """
    tilt = _turning_tilt(draws, offset, noise)

    def cumulant(at: float) -> float:
        return draws.cumulant(at) + (noise.cumulant(at) if noise else 0.0)

    _, variance = _moments(draws, tilt, noise)
    log_norm, reach = cumulant(tilt), min(8 / math.sqrt(max(variance, 1e-300)), _largest_tilt(draws))
    highest = (cumulant(tilt + reach) - log_norm + _TAIL) / reach  # Chernoff: mass beyond is below e^-_TAIL
    lowest = -(cumulant(tilt - reach) - log_norm + _TAIL) / reach
    start = math.floor(min(lowest, -offset)) - 1
    if not highest - start <= MAX_POINTS:
        raise TooManyPointsError(highest - start)
    length = _even_fast_length(math.ceil(highest) - start + 2)
    spectrum, error = draws.spectrum(tilt, length)
    if noise:
        error += 2.0**-48 * float(np.abs(spectrum).sum()) * 2 / length
        spectrum = spectrum * noise.spectrum(tilt, length)
    tilted = np.fft.irfft(spectrum, length)
    norm = math.sqrt(float((spectrum.real**2 + spectrum.imag**2).sum()))
    slack = 2 * error + 20 * 2.0**-50 * norm / length
    sums = start + np.arange(length)
    height = sums + offset
    positive = (height > 0) & (tilt * height < 600)
    weight = height[positive] * np.exp(-tilt * height[positive])
    total = float(((positive_part(np.roll(tilted, -start % length)[positive]) + slack) * weight).sum())
    total += 2 * math.exp(-_TAIL) / (math.e * tilt)  # bound on the weight of mass that wraps around or lies beyond
    rounding = 1e-9 + 2.0**-50 * (draws.size(tilt) + abs(tilt * offset) + abs(log_norm))
    exponent = log_norm + tilt * offset
    if not exponent < LARGEST_EPSILON:
        raise ConditionError("The privacy of these parameters cannot be computed in floating point.", exponent=exponent)
    return total * math.exp(exponent) * (1 + rounding)


def _moments(draws: Draws, tilt: float, noise: ScaledNoise | None) -> tuple[float, float]:
    mean, variance = draws.moments(tilt)
    if noise:
        noise_mean, noise_variance = noise.moments(tilt)
        mean, variance = mean + noise_mean, variance + noise_variance
    return mean, variance


def _turning_tilt(draws: Draws, offset: float, noise: ScaledNoise | None) -> float:
    """The tilt under which the mean of the sum is 0, or a small one if the mean is positive without tilting."""
    largest = _largest_tilt(draws)
    least = min(1 / math.sqrt(max(_moments(draws, 0.0, noise)[1], 1e-300)), largest)
    low, high = least, least
    while high < largest and _moments(draws, high, noise)[0] + offset < 0:
        low, high = high, min(2 * high, largest)
    return bisect(lambda tilt: not _moments(draws, tilt, noise)[0] + offset < 0, low, high, steps=20)


def _largest_tilt(draws: Draws) -> float:
    """The largest tilt for which exponentials of twice the tilt are finite."""
    return 300 / max(1, int(np.abs(draws.steps).max()))


def _even_fast_length(size: int) -> int:
    """An even length for which Fourier transforms are fast."""
    return 2 * fast_length(max(8, (size + 1) // 2))


def fast_length(size: int) -> int:
    """The least product of powers of 2, 3 and 5 that is at least ``size``, for which Fourier transforms are fast."""
    best = 1 << max(0, size - 1).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            quotient = -(-size // threes)
            best = min(best, threes << max(0, quotient - 1).bit_length())
            threes *= 3
        fives *= 5
    return best
