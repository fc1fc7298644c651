"""Privacy accounting of capped reports: the cost of redrawing a report that has too many messages.

A report longer than the cap is redrawn until it fits. Let c be a bound on the probability that a report is too long,
for every value. The report that is sent has the distribution of a report conditioned on its length, which differs from
the planned distribution by at most c in total variation. Users draw independently, so the reports of n users, and every
function of them, differ by at most s = n c. If the planned round is (epsilon, delta)-private, P and Q are the
distributions of its outcome for two neighbouring data sets, and P' and Q' those with the cap, then for every event E

    P'(E) <= P(E) + s <= e^epsilon Q(E) + delta + s <= e^epsilon (Q'(E) + s) + delta + s,

so the round with the cap is (epsilon, delta + (1 + e^epsilon) n c)-private.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import LARGEST_EPSILON, check_epsilon
from shuffledp.errors import ParameterError
from shuffledp.privacy.divergence import as_delta
from shuffledp.privacy.guarantee import PrivacyCurve

_STEP = 1e-3  # distance in epsilon at which an increase of the bound is tested
_PRECISION = 1e-4  # relative precision of the epsilon at which the bound is least
_GOLDEN = (math.sqrt(5) - 1) / 2
_UP = 1 + 1e-9  # rounding: the relative error of a mass is at most (shares + 5) 2^-53 per message, below 4e-10 in total
_NEGLIGIBLE = 1e-40
_MAX_MASSES = 1 << 17
_MAX_TERMS = 1 << 19  # masses times shares
_LEAST_START = 1e-250
_TINIEST = 1e-300  # a probability that underflows is not 0
_PARTS = sorted({part for step in range(2, 36) for part in (2.0 ** (-step / 2), 1 - 2.0 ** (-step / 2))})
"""Values of t to try first, as fractions of the largest one; dense near 0 and 1."""
_FINER = 12  # divisions of the interval around the best of these
_LOG_ROUNDING = 2.0**-46
_GROUP_ROUNDING = 1e-12
_LARGEST_EXPONENT = 300.0


@dataclass(frozen=True)
class CappedCurve:
    """The privacy curve of a protocol whose reports are redrawn if they exceed a cap."""

    curve: PrivacyCurve
    users: int
    """Maximum number of users."""
    chance: float
    """Upper bound on the probability that one report exceeds the cap, for every value."""

    def __post_init__(self) -> None:
        if not (0 <= self.chance <= 1 and self.users >= 1):
            raise ParameterError(
                f"A cap needs at least one user and a probability, not {self.users} and {self.chance}.",
                users=self.users,
                chance=self.chance,
            )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta.

        The computed bound increases again for large epsilons. A delta that holds at a smaller epsilon also holds at a
        larger one, so beyond the minimum of the bound its minimum is returned.
        """
        check_epsilon(epsilon)
        if self.chance == 0:
            return self.curve.delta_at(epsilon)
        epsilon = min(epsilon, LARGEST_EPSILON)
        here = self._bound(epsilon)
        if self._bound(epsilon + _STEP) >= here:  # the bound, which is convex in e^epsilon, increases here
            best, least = self._best
            here = least if epsilon >= best else max(here, least)
        return as_delta(here)

    def _bound(self, epsilon: float) -> float:
        exceeded = (1 + math.exp(epsilon)) * self.users * self.chance
        return (as_delta(self.curve.delta_at(epsilon)) + exceeded) * (1 + 1e-14)

    @cached_property
    def _best(self) -> tuple[float, float]:
        """The epsilon at which the bound is least, and its value there, by golden-section search.

        The search evaluates few points, because a curve may take long to compute. For e^epsilon >= 1 / (users chance)
        the bound is above 1.
        """
        if self.users * self.chance >= 1:
            return 0.0, self._bound(0.0)
        low, high = 0.0, min(LARGEST_EPSILON, -math.log(self.users * self.chance))
        bounds = {point: self._bound(point) for point in (low, high)}
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        while high - low > _PRECISION * max(high, _PRECISION):
            for point in (left, right):
                if point not in bounds:
                    bounds[point] = self._bound(point)
            if bounds[left] <= bounds[right]:
                high, left, right = right, right - _GOLDEN * (right - low), left
            else:
                low, left, right = left, right, left + _GOLDEN * (high - left)
        best = min(bounds, key=bounds.__getitem__)
        return best, bounds[best]


@dataclass(frozen=True)
class Share:
    """A negative binomial number of groups of ``weight`` messages.

    Pr[k groups] = C(k + shape - 1, k) (1 - ratio)^shape ratio^k.
    """

    shape: float
    ratio: float
    weight: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.shape < math.inf and 0 < self.ratio < 1 and self.weight >= 1):
            raise ParameterError(
                f"A share needs a positive shape, a ratio between 0 and 1 and a weight of at least 1, not "
                f"{self.shape}, {self.ratio} and {self.weight}.",
                shape=self.shape,
                ratio=self.ratio,
                weight=self.weight,
            )


@dataclass(frozen=True)
class PoissonGroups:
    """Poisson numbers of groups of messages: the messages of a group and the expected number of such groups."""

    rates: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not all(weight >= 1 and 0 < rate < math.inf for weight, rate in self.rates):
            raise ParameterError("Groups need at least 1 message and a positive rate.", rates=self.rates)

    @cached_property
    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The messages of each group, and the rates."""
        weights, rates = zip(*self.rates, strict=True)
        return np.array(weights, dtype=np.float64), np.array(rates, dtype=np.float64)

    @cached_property
    def kernel(self) -> NDArray[np.float64]:
        """Weight times rate, by weight from the largest down to 1: the terms of the recursion for the masses."""
        kernel = np.zeros(max(weight for weight, _ in self.rates))
        for weight, rate in self.rates:
            kernel[-weight] += weight * rate
        return kernel


def chance_of_more(shares: Sequence[Share], messages: int, groups: PoissonGroups | None = None) -> float:
    """Upper bound on the probability that independent shares and groups have more than ``messages`` messages in total.

    The exact sum of masses plus Chernoff's bound on the tail beyond them; Chernoff's bound alone if there are too many
    masses.
    """
    if messages < 0:
        return 1.0
    if not shares and groups is None:
        return 0.0
    merged = _merged(shares)
    rough = _rough_chance(merged, messages, groups)
    beyond, last = _tails(merged, groups)
    if messages >= len(beyond):
        return rough
    return min(rough, beyond[messages] * _UP + last)


def _merged(shares: Iterable[Share]) -> tuple[Share, ...]:
    """The shares, with those of equal ratio and weight added into one."""
    shapes: dict[tuple[float, int], float] = {}
    for share in shares:
        key = share.ratio, share.weight
        shapes[key] = shapes.get(key, 0.0) + share.shape
    return tuple(Share(shape, ratio, weight) for (ratio, weight), shape in shapes.items())


@lru_cache(maxsize=16)
def _tails(shares: tuple[Share, ...], groups: PoissonGroups | None = None) -> tuple[list[float], float]:
    """Pr[k < M <= last] for k = 0, 1, ..., and a bound on Pr[M > last], where M is the number of messages.

    The list is empty if it would be too long.
    """
    last = 8
    while (beyond := _rough_chance(shares, last, groups)) > _NEGLIGIBLE:
        last *= 2
        if last > min(_MAX_MASSES, _MAX_TERMS // (len(shares) + 1 if groups else len(shares))):
            return [], 1.0
    masses = _masses(shares, groups, last)
    return list(accumulate(masses[:0:-1]))[::-1] if masses else [], beyond


def _masses(shares: tuple[Share, ...], groups: PoissonGroups | None, last: int) -> list[float]:
    """Pr[M = m] for m up to ``last``, as sums of positive terms, which are accurate to nearly all digits.

    The generating function G of M has s G'(s) / G(s) = sum over shares of shape weight (r + r^2 + ...), where
    r = ratio s^weight. So m Pr[M = m] = sum over shares of shape weight A(m), where A(m) = ratio (Pr[M = m - weight] +
    A(m - weight)). Poisson groups add weight rate Pr[M = m - weight] each. The list is empty if Pr[M = 0] is too small
    to start from.
    """
    log_none = sum(share.shape * math.log1p(-share.ratio) for share in shares)
    start = math.exp(log_none - (float(groups.arrays[1].sum()) if groups else 0.0))
    if start < _LEAST_START:
        return []
    masses = [start]
    kernel = groups.kernel if groups else np.zeros(0)
    window = np.zeros(len(kernel) + last + 1)  # the masses again, after as many zeros as the kernel is long
    window[len(kernel)] = start
    parts = [(share.shape * share.weight, share.ratio, share.weight, [0.0] * share.weight) for share in shares]
    for m in range(1, last + 1):
        total = float(kernel @ window[m : m + len(kernel)]) if groups else 0.0
        for factor, ratio, weight, sums in parts:
            slot = m % weight  # holds A(m - weight)
            if m >= weight:
                sums[slot] = ratio * (masses[m - weight] + sums[slot])
                total += factor * sums[slot]
        masses.append(total / m)
        window[len(kernel) + m] = masses[-1]
    return masses


def _rough_chance(shares: tuple[Share, ...], messages: int, groups: PoissonGroups | None = None) -> float:
    """Chernoff's bound on Pr[M > messages] as (E[e^(t M)] - 1) / (e^(t (messages + 1)) - 1), for the best of several t.

    This is Markov's inequality for e^(t M) - 1. Every t > 0 for which the expectation is finite gives a valid bound.
    """
    tried = [_log_chance(shares, groups, messages, part) for part in _PARTS]
    best = min(range(1, len(_PARTS) - 1), key=tried.__getitem__)
    low, high = _PARTS[best - 1], _PARTS[best + 1]
    finer = (_log_chance(shares, groups, messages, low + (high - low) * step / _FINER) for step in range(1, _FINER))
    exponent = min(0.0, *tried, *finer)
    return min(1.0, max(math.exp(exponent), _TINIEST) * _UP)


def _log_chance(shares: tuple[Share, ...], groups: PoissonGroups | None, messages: int, part: float) -> float:
    """The logarithm of the bound, rounded up; t is the fraction ``part`` of the largest t."""
    limits = [-math.log(share.ratio) / share.weight for share in shares]
    t = part * min(limits, default=_LARGEST_EXPONENT)
    growth = 0.0
    for share in shares:
        complement = -math.expm1(math.log(share.ratio) + t * share.weight)  # 1 - ratio e^(t weight)
        growth += share.shape * (math.log1p(-share.ratio) - math.log(complement) + _LOG_ROUNDING / (1 - part))
    if groups:
        weights, rates = groups.arrays
        if t * float(weights.max()) > _LARGEST_EXPONENT:
            return math.inf
        growth += float(rates @ np.expm1(t * weights)) * (1 + _GROUP_ROUNDING)
    return _log_expm1(growth) - _log_expm1(t * (messages + 1))


def _log_expm1(value: float) -> float:
    """ln(e^value - 1)."""
    return value + math.log(-math.expm1(-value)) if value > 0 else -math.inf
