"""Certificate of a pure sum of many users: the largest ratio of probabilities from finitely many terms.

Write F for the distribution of what the other users send, P for that of a noisy report, z for a shift by one, and r for
mix / (1 - mix). Up to a factor, F is the sum over s of C(others, s) r^s P^s Q_s(z), where s is the number of noisy
users and Q_s the distribution of the number of ones among them. Epsilon is certified if F (e^epsilon - z + (e^epsilon -
1) r P) has no negative coefficient. That is linear in F, so that two facts bound it by finitely many terms:

- The terms with s > slots have a factor P^(slots + 1); if that power alone meets the condition, so do they all.
- A sample of s users is a sample of s from a sample of ``slots`` users, so for s <= slots the others may be replaced by
  ``slots`` users, J of whom hold a 1; every J = 0 .. slots is tried.

All terms are positive, so that nothing cancels. Both tails are computed with masses times e^(tilt t), which keeps them
within the range of floating-point numbers; what underflows is added to numerators.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SLOTS = 32
_UNDERFLOW = 1e-280  # more than all masses together that underflow
_SAFE = 1e-9  # on logarithms of ratios; sums of positive terms are good to about 1e-11


class SlotCertificate:
    """The noise of one report for a number of other users; ``epsilon(mix)`` for each probability of noise."""

    def __init__(self, others: int, half: Floats, slots: int = _SLOTS) -> None:
        """``half`` has the probabilities of size/2 + 1/2, size/2 + 3/2, ... ones; below size/2 they are the same."""
        self._others = others
        self._slots = min(others, slots)
        tilt = -math.log(2 * float(half[-1])) / len(half)
        with np.errstate(over="ignore", invalid="ignore"):
            powers = _tilted_powers(half, tilt, self._slots + 2)
            # P^s is symmetric about s/2, so that the powers for the other tail are mirror images
            mirrored = [power[::-1] * math.exp(-tilt * count) for count, power in enumerate(powers)]
        reach = len(half) - 1
        self._tails = [_Tail(powers, reach, tilt, 1), _Tail(mirrored, reach, -tilt, -1)]

    def epsilon(self, mix: float, *, ones: tuple[int, ...] | None = None) -> float:
        """Upper bound on epsilon for all data; infinite if none is certified.

        With ``ones``, just for these numbers J of ones in the slots, and the same numbers of zeros: a lower value.
        """
        odds = mix / (1 - mix)
        rates = [(self._others - index) / (index + 1) * odds for index in range(self._slots)]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            terms = np.concatenate(([1.0], np.cumprod(rates)))
            bounds = [
                tail.epsilon(terms, odds, count)
                for tail in self._tails
                for count in (range(self._slots // 2 + 1) if ones is None else ones)  # the others are mirror images
            ]
            if self._slots < self._others:
                bounds += [tail.epsilon_of_last_power(odds) for tail in self._tails]
        return max(bounds)


class _Tail:
    """The powers of P at t >= 0 (sign 1) or t <= 0 (sign -1), times e^(tilt t)."""

    def __init__(self, powers: list[Floats], reach: int, tilt: float, sign: int) -> None:
        self._slots, self._sign, self._reach, self._powers = len(powers) - 3, sign, reach, powers
        self._growth = math.exp(tilt)
        with np.errstate(over="ignore"):
            self._falls = np.exp(-tilt * np.arange(self._slots + 1))  # of a shift by -1 per noisy user who holds a 1

    @cached_property
    def _table(self) -> tuple[Floats, int]:
        """P^0 .. P^(slots + 1) on the side of 0 that is needed, one per row, and the t of the first column."""
        slots, reach = self._slots, self._reach
        first = -1 if self._sign > 0 else -(slots + 1) * reach - slots - 1
        last = (slots + 1) * (reach + 1) if self._sign > 0 else slots
        table = np.zeros((slots + 2, last - first + 1))
        for row, power in enumerate(self._powers[: slots + 2]):
            lowest = -row * reach
            start, end = max(lowest, first), min(lowest + len(power) - 1, last)
            table[row, start - first : end - first + 1] = power[start - lowest : end - lowest + 1]
        return table, first

    def epsilon(self, terms: Floats, odds: float, ones: int) -> float:
        """The largest |ln(ratio)| if ``ones`` of the slots hold a 1."""
        table, first = self._table
        weights = _drawn(self._slots, ones) * terms[:, None] * self._falls[: ones + 1]
        others = _shifted(weights.T @ table[:-1])
        with_noise = _shifted(weights.T @ table[1:])
        low = 0 if self._sign > 0 else -(self._slots + 1) * self._reach - ones
        high = (self._slots + 1) * (self._reach + 1) - ones if self._sign > 0 else 0
        inside = slice(low - first, high - first + 1)
        before = slice(low - first - 1, high - first)
        return _largest_log_ratio(self._growth * others[before], others[inside], odds * with_noise[inside])

    def epsilon_of_last_power(self, odds: float) -> float:
        """The same if the noise of others is P^(slots + 1)."""
        power, with_noise = self._powers[-2], odds * self._powers[-1]
        others = np.zeros(len(with_noise) + 1)  # from one t below the lowest one on
        others[self._reach + 1 : self._reach + 1 + len(power)] = power
        zero = (self._slots + 2) * self._reach
        side = slice(zero, None) if self._sign > 0 else slice(None, zero + 1)
        return _largest_log_ratio((self._growth * others[:-1])[side], others[1:][side], with_noise[side])


def _tilted_powers(half: Floats, tilt: float, largest: int) -> list[Floats]:
    """P^0 .. P^largest times e^(tilt t), from the lowest t on."""
    noise = np.concatenate((half[::-1], half)) * np.exp(tilt * np.arange(1 - len(half), len(half) + 1))
    powers = [np.ones(1)]
    for _ in range(largest):
        powers.append(np.convolve(powers[-1], noise))
    return powers


def _shifted(rows: Floats) -> Floats:
    """The sum of all rows, row i shifted by i to the left; what is left of the first column is not needed."""
    total: Floats = rows[0].copy()
    for shift in range(1, len(rows)):
        total[:-shift] += rows[shift, shift:]
    return total


def _largest_log_ratio(one: Floats, zero: Floats, noise: Floats) -> float:
    """The largest |ln((one + noise) / (zero + noise))|, rounded up; infinite if a mass is 0 or not a number."""
    first, second = one + noise, zero + noise
    ratio = np.maximum((first + _UNDERFLOW) / second, (second + _UNDERFLOW) / first)
    largest = float(ratio.max())  # NaN if any entry is
    return math.log(largest) * (1 + _SAFE) + _SAFE if 1 <= largest < math.inf else math.inf


@lru_cache(maxsize=256)
def _drawn(slots: int, ones: int) -> Floats:
    """Row s: the pmf of the number of ones among s users drawn from ``slots`` users, ``ones`` of whom hold a 1."""
    rows = [
        [
            math.comb(ones, held) * math.comb(slots - ones, count - held) / math.comb(slots, count)
            if held <= count
            else 0.0
            for held in range(ones + 1)
        ]
        for count in range(slots + 1)
    ]
    return np.array(rows)
