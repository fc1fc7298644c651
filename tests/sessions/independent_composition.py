"""Composition of releases from the distributions of their noise, without the accountant of the package.

The privacy losses of each release are listed, rounded to a grid, and convolved. Rounded up, they give an upper bound of
epsilon, rounded down a lower one.
"""

import math
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product

import numpy as np
from scipy.signal import fftconvolve
from scipy.stats import binom, geom, nbinom, poisson

WIDTH = 2e-4
NO_MASS = 1e-19


@dataclass
class Losses:
    """Masses of privacy losses on multiples of WIDTH, the first one at ``first``, and the mass of infinite ones."""

    first: int
    masses: np.ndarray
    infinite: float = 0.0

    @classmethod
    def of(cls, p, q, rounding, revealed=0.0):
        """The losses of p against q; ``revealed`` is the probability that everything is known."""
        p, q = np.asarray(p, dtype=float).ravel(), np.asarray(q, dtype=float).ravel()
        both = (p > NO_MASS) & (q > 0)
        infinite = float(p[(p > NO_MASS) & (q == 0)].sum())
        cells = rounding(np.log(p[both] / q[both]) / WIDTH).astype(int)
        return cls(cells.min(), np.bincount(cells - cells.min(), weights=p[both]), infinite + revealed)

    def and_then(self, other):
        masses = np.maximum(fftconvolve(self.masses, other.masses), 0.0)
        return Losses(self.first + other.first, masses, 1 - (1 - self.infinite) * (1 - other.infinite))

    def delta(self, epsilon):
        losses = (self.first + np.arange(len(self.masses))) * WIDTH
        above = losses > epsilon
        return self.infinite + float(self.masses[above] @ -np.expm1(epsilon - losses[above]))

    def epsilon(self, delta):
        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high


@cache
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
    if name == "count/correlated-noise":
        assert protocol.encoding == "signed"
        seen = _correlated_counts(protocol)
        return [(np.pad(seen, ((1, 0), (0, 1))), np.pad(seen, ((0, 1), (1, 0))))]
    if name == "histogram/correlated-noise":
        return _both_ways(_correlated(protocol))
    if name == "histogram/balcer-cheu":
        noise = _binomial(honest, float(protocol.absence))
        return _both_ways((np.append(noise, 0.0), np.append(0.0, noise)))
    if name == "quantiles/correlated-noise":
        return _both_ways(_correlated(protocol)) * len(protocol.branching)
    if name == "quantiles/uniform-blanket":
        levels = zip(protocol.blankets, protocol.tree.sizes, strict=True)
        return [_blanket(honest, blanket, size) for blanket, size in levels]
    if name == "quantiles/discrete-laplace":
        return [_two_sided_geometric(float(protocol.ratio))] * 2 * len(protocol.branching)
    if name == "sum/split-and-mix":
        return [_two_sided_geometric(float(protocol.ratio), protocol.levels)]
    raise KeyError(name)


def revealed_by(protocol):
    """The probability with which a protocol of one pair may reveal a value, beside that pair."""
    if protocol.name != "split-and-mix":
        return 0.0
    honest = protocol.target.honest_users
    return math.sqrt(protocol.modulus * (math.e / honest) ** (protocol.messages - 2))


def agrees(spent, protocols, delta):
    """Whether the spent epsilon is at least the independent one and at most 1 % above it."""
    lower, upper = composed_epsilons(tuple(protocols), delta)
    return lower <= spent <= 1.01 * upper


@cache
def composed_epsilons(protocols, delta):
    """A lower and an upper bound of the least epsilon of one release by each of the protocols.

    A user's values in different releases are unrelated, so that each release may be changed in either direction.
    """
    return tuple(
        max(
            reduce(Losses.and_then, releases).epsilon(delta)
            for releases in product(*(_losses(protocol, rounding) for protocol in protocols))
        )
        for rounding in (np.floor, np.ceil)
    )


@cache
def _losses(protocol, rounding):
    """The losses of one release in both directions."""
    revealed = revealed_by(protocol)
    directions = []
    for turned in (False, True):
        pairs = pairs_of(protocol)
        of_pair = {id(pair): Losses.of(*(pair[::-1] if turned else pair), rounding, revealed) for pair in pairs}
        directions.append(reduce(Losses.and_then, (of_pair[id(pair)] for pair in pairs)))
    return directions


def _two_sided_geometric(ratio, shift=1):
    reach = math.ceil(60 / -math.log(ratio))
    noise = ratio ** np.abs(np.arange(-reach, reach + 1)) * (1 - ratio) / (1 + ratio)
    return np.append(noise, np.zeros(shift)), np.append(np.zeros(shift), noise)


def _both_ways(pair):
    """A user who moves from one cell to another: one message more in the one, one less in the other."""
    return [pair, pair[::-1]]


def _correlated(protocol):
    """What is seen of a cell with and without one user's "+1"."""
    seen = _correlated_counts(protocol)
    return np.pad(seen, ((1, 0), (0, 0))), np.pad(seen, ((0, 1), (0, 0)))


def _pairs(protocol):
    """The distribution of the number of pairs: of a tree negative binomial, else clusters, size by size."""
    if hasattr(protocol, "flood_shape"):
        shape, flood = float(protocol.flood_shape), float(protocol.flood_ratio)
        return nbinom.pmf(np.arange(int(nbinom.isf(1e-18, shape, 1 - flood)) + 1), shape, 1 - flood)
    pairs = np.ones(1)
    for size, rate in protocol.flood.rates:
        numbers = poisson.pmf(np.arange(int(float(rate) + 12 * math.sqrt(rate)) + 30), float(rate))
        spread = np.zeros((len(numbers) - 1) * size + 1)
        spread[::size] = numbers
        pairs = np.convolve(pairs, spread)
    return pairs[: int(np.flatnonzero(np.cumsum(pairs[::-1])[::-1] > 1e-18)[-1]) + 1]


def _correlated_counts(protocol):
    """The joint distribution of the numbers of "+1" and "-1" that are noise: G1 + F and G2 + F, summed over F."""
    ratio, pairs = float(protocol.ratio), _pairs(protocol)
    largest = len(pairs) - 1
    single = geom.pmf(np.arange(1, math.ceil(42 / -math.log(ratio))), 1 - ratio)
    seen = np.zeros((largest + len(single),) * 2)
    both = np.outer(single, single)
    for number, mass in enumerate(pairs):
        seen[number : number + len(single), number : number + len(single)] += mass * both
    return seen


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
