"""Composition of releases from the distributions of their noise, without the accountant of the package.

The privacy losses of each release are listed, rounded to a grid, and convolved. Rounded up, they give an upper bound of
epsilon, rounded down a lower one.
"""

import math
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
from scipy.signal import fftconvolve
from scipy.stats import binom

WIDTH = 2e-4


@dataclass
class Losses:
    """Masses of privacy losses on multiples of WIDTH, the first one at ``first``."""

    first: int
    masses: np.ndarray

    @classmethod
    def of(cls, p, q, rounding):
        p, q = np.asarray(p, dtype=float).ravel(), np.asarray(q, dtype=float).ravel()
        seen = (p > 0) & (q > 0)  # what only one of them can show has next to no mass in these tests
        cells = rounding(np.log(p[seen] / q[seen]) / WIDTH).astype(int)
        return cls(cells.min(), np.bincount(cells - cells.min(), weights=p[seen]))

    def and_then(self, other):
        return Losses(self.first + other.first, np.maximum(fftconvolve(self.masses, other.masses), 0.0))

    def delta(self, epsilon):
        losses = (self.first + np.arange(len(self.masses))) * WIDTH
        above = losses > epsilon
        return float(self.masses[above] @ -np.expm1(epsilon - losses[above]))

    def epsilon(self, delta):
        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high


def pairs_of(protocol):
    """The distributions of what is seen of two neighbouring data sets, one pair per independent part."""
    name = f"{protocol.question}/{protocol.name}"
    honest = protocol.target.honest_users
    if name == "count/discrete-laplace":
        return [_two_sided_geometric(float(protocol.ratio))]
    if name == "histogram/discrete-laplace":
        return [_two_sided_geometric(float(protocol.ratio))] * 2
    if name == "count/randomized-response":
        lie = float(protocol.blanket) / 2
        return [((1 - lie, lie), (lie, 1 - lie))]
    if name == "count/balcer-cheu":
        noise = _binomial(honest, float(protocol.absence))
        return [(np.append(noise, 0.0), np.append(0.0, noise))]
    if name == "histogram/uniform-blanket":
        return [_blanket(honest, protocol.blanket, protocol.domain_size)]
    raise KeyError(name)


def agrees(spent, protocols, delta):
    """Whether the spent epsilon is at least the independent one and at most 1 % above it."""
    lower, upper = composed_epsilons(tuple(protocols), delta)
    return lower <= spent <= 1.01 * upper


@cache
def composed_epsilons(protocols, delta):
    """A lower and an upper bound of the least epsilon of one release by each of the protocols."""
    return tuple(
        max(_composed(protocols, rounding, turned).epsilon(delta) for turned in (False, True))
        for rounding in (np.floor, np.ceil)
    )


def _composed(protocols, rounding, turned):
    pairs = [pair[::-1] if turned else pair for protocol in protocols for pair in pairs_of(protocol)]
    return reduce(Losses.and_then, [Losses.of(p, q, rounding) for p, q in pairs])


def _two_sided_geometric(ratio):
    reach = math.ceil(60 / -math.log(ratio))
    noise = ratio ** np.abs(np.arange(-reach, reach + 1)) * (1 - ratio) / (1 + ratio)
    return np.append(noise, 0.0), np.append(0.0, noise)


def _binomial(trials, probability):
    return binom.pmf(np.arange(_largest(trials, probability) + 1), trials, probability)


def _largest(trials, probability):
    mean = trials * probability
    return min(trials, math.ceil(mean + 12 * math.sqrt(mean + 1) + 30))


def _blanket(honest, blanket, domain_size):
    """The counts of both values among the uniform messages, one of them with the user's own value."""
    assert blanket.whole == 0
    hits = _binomial(honest, float(blanket.rest) * 2 / domain_size)
    total = np.flatnonzero(hits > 1e-18)[:, None]
    own = np.arange(len(hits) + 1)[None, :]
    chosen = binom.pmf(own, total, 0.5) * hits[total]
    return np.pad(chosen, ((0, 0), (1, 0))), np.pad(chosen, ((0, 0), (0, 1)))
