"""Exact privacy and error probabilities of binomial token noise, computed from Python integers alone.

The studies compare the library's accountant and samplers with these numbers, so this module shares no code with
either: it imports nothing of the package (an import contract checks that). The noise N ~ Bin(n, q) is the number of
omitted tokens of a category, where q is the probability that is actually sampled.

- *Tables*: probabilities relative to that of the mode follow from the ratios Pr[N = k + 1] / Pr[N = k], which are
  rational. They are rounded down and up to multiples of 2^-384, and divided by their sum, so that every result is an
  interval that contains the exact number.
- *Enumeration*: for few users, all data sets, all their neighbours and all multisets of messages, without rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, product

_BITS = 384
_NEGLIGIBLE = 1 << (_BITS - 300)
_RATIO_BITS = 128
_DIGITS = 120


@dataclass(frozen=True)
class Enclosure:
    """An interval that contains the exact number."""

    low: float
    high: float

    @classmethod
    def of(cls, low: Fraction, high: Fraction) -> Enclosure:
        """The interval in floats, rounded outward."""
        return cls(max(0.0, math.nextafter(float(low), -math.inf)), math.nextafter(float(high), math.inf))

    @property
    def middle(self) -> float:
        """The midpoint, for tables and statistical tests."""
        return (self.low + self.high) / 2

    def contains(self, value: float, *, relative: float) -> bool:
        """Whether a number lies in the interval, widened by a relative tolerance at both ends."""
        return self.low * (1 - relative) <= value <= self.high * (1 + relative)


class BinomialTable:
    """Lower and upper bounds of all probabilities of Bin(trials, probability) that are not negligible."""

    def __init__(self, trials: int, probability: Fraction) -> None:
        self.trials = trials
        self.probability = probability
        self._hit, self._miss = probability.numerator, probability.denominator - probability.numerator
        mode = min(trials, math.floor((trials + 1) * probability))
        upward, above = self._walk(mode, 1)
        downward, below = self._walk(mode, -1)
        weights = [*reversed(downward), (1 << _BITS, 1 << _BITS), *upward]
        self.first = mode - len(downward)
        """The smallest value in the table."""
        self.lows = [low for low, _ in weights]
        self.highs = [high for _, high in weights]
        self.below, self.above = below, above
        """Upper bounds on the sum of all weights below the table, and above it."""
        self.cumulative_lows = list(accumulate(self.lows))
        self.cumulative_highs = list(accumulate(self.highs, initial=below))[1:]
        self.total_low = self.cumulative_lows[-1]
        self.total_high = self.cumulative_highs[-1] + above

    def _walk(self, start: int, step: int) -> tuple[list[tuple[int, int]], int]:
        """Bounds on the weights from the mode in one direction, and an upper bound on the sum of the omitted ones."""
        weights: list[tuple[int, int]] = []
        low = high = 1 << _BITS
        k = start
        while True:
            numerator, denominator = self.ratio_to_next(k, step)
            if numerator == 0:
                return weights, 0
            if high < _NEGLIGIBLE:  # ratios decrease, so the omitted weights are at most a geometric sum
                return weights, -(-high * numerator // (denominator - numerator))
            low, high = low * numerator // denominator, -(-high * numerator // denominator)
            weights.append((low, high))
            k += step

    def ratio_to_next(self, k: int, step: int) -> tuple[int, int]:
        """The weight of the next value divided by that of k, as numerator and denominator."""
        if step > 0:
            return (self.trials - k) * self._hit, (k + 1) * self._miss
        return k * self._miss, (self.trials - k + 1) * self._hit

    @property
    def mean(self) -> Fraction:
        """The exact mean."""
        return self.trials * self.probability

    def weight_bounds(self, k: int) -> tuple[int, int]:
        """Bounds on the weight of one value; outside the table, 0 and the sum of all omitted weights."""
        index = k - self.first
        return (self.lows[index], self.highs[index]) if 0 <= index < len(self.lows) else (0, self.below + self.above)

    def cumulative_bounds(self, k: int) -> tuple[int, int]:
        """Bounds of the sum of the weights of all values up to k."""
        index = k - self.first
        if k < 0:
            return 0, 0
        if index < 0:
            return 0, self.below
        if index >= len(self.lows):
            return self.total_low, self.total_high
        return self.cumulative_lows[index], self.cumulative_highs[index]

    def at_most(self, k: int) -> Enclosure:
        """Pr[N <= k]."""
        low, high = self.cumulative_bounds(k)
        return Enclosure.of(Fraction(low, self.total_high), min(Fraction(high, self.total_low), Fraction(1)))

    def at_least(self, k: int) -> Enclosure:
        """Pr[N >= k]."""
        if k <= 0:
            return Enclosure(1.0, 1.0)
        low, high = self.cumulative_bounds(k - 1)
        upper = Fraction(self.total_high - low, self.total_low)
        return Enclosure.of(Fraction(max(self.total_low - high, 0), self.total_high), min(upper, Fraction(1)))

    @cached_property
    def probabilities(self) -> list[float]:
        """The probabilities of the values of the table as floats, accurate to the last digit."""
        shift = max(0, self.total_low.bit_length() - 512)
        total = self.total_low >> shift
        return [(low >> shift) / total for low in self.lows]


@lru_cache(maxsize=32)
def table(trials: int, probability: Fraction) -> BinomialTable:
    """The table, computed once."""
    return BinomialTable(trials, probability)


def exponential_bounds(epsilon: float) -> tuple[int, int]:
    """Integers R and S with R <= 2^128 e^epsilon <= S."""
    with localcontext() as context:
        context.prec = _DIGITS + int(epsilon)
        scaled = Decimal(epsilon).exp() * (1 << _RATIO_BITS)  # correctly rounded, with far more digits than are used
    return int(scaled) - 1, int(scaled) + 2


def count_delta(users: int, absence: Fraction, epsilon: float) -> Enclosure:
    """Delta at epsilon of a count with noise Bin(users, absence), over both neighbours."""
    noise = table(users, absence)
    ratio_low, ratio_high = exponential_bounds(epsilon)
    high = max(_count_sums(noise, ratio_low, shift)[1] for shift in (1, -1))
    low = max(_count_sums(noise, ratio_high, shift)[0] for shift in (1, -1))
    return Enclosure.of(Fraction(low, noise.total_high << _RATIO_BITS), Fraction(high, noise.total_low << _RATIO_BITS))


def _count_sums(noise: BinomialTable, ratio: int, shift: int) -> tuple[int, int]:
    """Bounds of the sum of max(0, P(k) - r P(k + shift)) over all k, times 2^128, for r = ratio / 2^128.

    P(k) / P(k + shift) is a ratio of integers and monotone in k, so that the terms above 0 are found exactly.
    """
    low = high = 0
    for k in range(noise.first, noise.first + len(noise.lows)):
        numerator, denominator = noise.ratio_to_next(k, shift)  # P(k + shift) / P(k)
        if numerator * ratio >= denominator << _RATIO_BITS:
            continue
        here_low, here_high = noise.weight_bounds(k)
        there_low, there_high = noise.weight_bounds(k + shift) if numerator else (0, 0)
        low += max(0, (here_low << _RATIO_BITS) - ratio * there_high)
        high += (here_high << _RATIO_BITS) - ratio * there_low
    return low, high + ((noise.below + noise.above) << _RATIO_BITS)


def histogram_delta(users: int, absence: Fraction, epsilon: float) -> Enclosure:
    """Delta at epsilon of a histogram in which every category has noise Bin(users, absence).

    Replacing a user decrements one count and increments another. With a and b omitted tokens of these, the ratio of the
    probabilities of both data sets is (a + 1)(n + 1 - b) / ((n - a) b), in which q has cancelled. So for each a the
    terms above 0 are those of all b up to a limit, which is found exactly.
    """
    noise = table(users, absence)
    ratio_low, ratio_high = exponential_bounds(epsilon)
    low, high = _histogram_sums(noise, ratio_high)[0], _histogram_sums(noise, ratio_low)[1]
    return Enclosure.of(
        Fraction(max(low, 0), noise.total_high**2 << _RATIO_BITS),
        Fraction(high, noise.total_low**2 << _RATIO_BITS),
    )


def _histogram_sums(noise: BinomialTable, ratio: int) -> tuple[int, int]:
    users = noise.trials
    low = high = 0
    for index, (here_low, here_high) in enumerate(zip(noise.lows, noise.highs, strict=True)):
        a = noise.first + index
        numerator = ((a + 1) * (users + 1)) << _RATIO_BITS
        denominator = ((a + 1) << _RATIO_BITS) + ratio * (users - a)
        last = (numerator - 1) // denominator
        next_low, next_high = noise.weight_bounds(a + 1) if a < users else (0, 0)
        sum_low, sum_high = noise.cumulative_bounds(last)
        shifted_low, shifted_high = noise.cumulative_bounds(last - 1)
        low += ((here_low * sum_low) << _RATIO_BITS) - ratio * next_high * shifted_high
        high += ((here_high * sum_high) << _RATIO_BITS) - ratio * next_low * shifted_low
    return low, high + (((noise.below + noise.above) * noise.total_high) << _RATIO_BITS)


def enumerated_delta(users: int, absence: Fraction, epsilon: float, categories: int, values: int) -> Enclosure:
    """Delta at epsilon over all data sets and neighbours, from all multisets of messages; for few users.

    Every user sends a token of each category except with probability ``absence``, and one more of their own category.
    With as many possible values as categories this is the randomizer of Figure 2; with one category and two values,
    the second of which has no token, that of Figure 1.
    """
    rounds = _rounds(users, absence, categories, values)
    ratio_low, ratio_high = exponential_bounds(epsilon)
    low = high = 0
    for counts, masses in rounds.items():
        for source, target in product(range(values), repeat=2):
            if source == target or not counts[source]:
                continue
            moved = list(counts)
            moved[source] -= 1
            moved[target] += 1
            others = rounds[tuple(moved)]
            for ratio, is_low in ((ratio_low, False), (ratio_high, True)):
                total = sum(max(0, (mass << _RATIO_BITS) - ratio * others.get(key, 0)) for key, mass in masses.items())
                low, high = (max(low, total), high) if is_low else (low, max(high, total))
    scale = absence.denominator ** (users * categories) << _RATIO_BITS
    return Enclosure.of(Fraction(low, scale), Fraction(high, scale))


def _rounds(users: int, absence: Fraction, categories: int, values: int) -> dict[tuple[int, ...], dict[int, int]]:
    """For every data set, as counts, the distribution of the multiset of messages; scaled to integers."""
    base = 2 * users + 1
    omitted, sent = absence.numerator, absence.denominator - absence.numerator
    reports: list[list[tuple[int, int]]] = []
    for own in range(values):
        report = []
        for tokens in product((0, 1), repeat=categories):
            copies = [count + (index == own) for index, count in enumerate(tokens)]
            weight = sent ** sum(tokens) * omitted ** (categories - sum(tokens))
            report.append((sum(count * base**index for index, count in enumerate(copies)), weight))
        reports.append(report)
    distributions: dict[tuple[int, ...], dict[int, int]] = {(0,) * values: {0: 1}}
    for _ in range(users):
        with_user: dict[tuple[int, ...], dict[int, int]] = {}
        for counts, masses in distributions.items():
            for own, report in enumerate(reports):
                extended = (*counts[:own], counts[own] + 1, *counts[own + 1 :])
                if extended in with_user:
                    continue
                joint: dict[int, int] = {}
                for key, mass in masses.items():
                    for code, weight in report:
                        joint[key + code] = joint.get(key + code, 0) + mass * weight
                with_user[extended] = joint
        distributions = with_user
    return distributions


def no_token_omitted(users: int, absence: Fraction) -> Fraction:
    """Pr[N = 0] = (1 - q)^n: then as many tokens of an empty category arrive as there are users."""
    return (1 - absence) ** users


def item_missed(users: int, absence: Fraction, support_size: int, margin: int = 0) -> float:
    """The probability that an item of the support is not reported in support identification (Claim 14).

    Each user holds it with probability 1/h. With c holders it is missed if c - N <= margin; the margin is 0 if every
    item with a positive estimate is reported.
    """
    holders, noise = table(users, Fraction(1, support_size)), table(users, absence)
    missed = (
        probability * noise.at_least(holders.first + index - margin).middle
        for index, probability in enumerate(holders.probabilities)
    )
    return math.fsum(missed)


def both_shown(users: int, absence: Fraction) -> float:
    """The probability that both items of a support of two are reported; each user holds one at random."""
    holders, noise = table(users, Fraction(1, 2)), table(users, absence)
    shown = (
        probability * noise.at_most(first - 1).middle * noise.at_most(users - first - 1).middle
        for first, probability in enumerate(holders.probabilities, start=holders.first)
    )
    return math.fsum(shown)
