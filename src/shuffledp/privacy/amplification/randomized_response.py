"""Shuffled randomized response on k values: the least of all bounds that are proved for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from shuffledp.errors import ParameterError
from shuffledp.privacy.amplification.clones import ClonesCurve, fewest_clones
from shuffledp.privacy.amplification.exact import two_response_delta
from shuffledp.privacy.amplification.privacy_blanket import BlanketCurve
from shuffledp.randomness import Dyadic

_ENUMERATED_USERS = 200
_TINY = 1e-30


@dataclass(frozen=True)
class RandomizedResponseCurve:
    """Each of ``users`` sends a uniform one of ``values`` with probability ``blanket``, else the truth."""

    users: int
    blanket: Dyadic
    values: int

    def __post_init__(self) -> None:
        _ = self._blanket_pmf  # checks the numbers

    @cached_property
    def _blanket_pmf(self) -> BlanketCurve:
        return BlanketCurve(self.users, self.blanket, self.values)

    @property
    def local_epsilon(self) -> float:
        """What each report is private for on its own, which is left if shuffler and analyzer collude."""
        return self._blanket_pmf.local_epsilon

    @property
    def theorem(self) -> str:
        """What proves it."""
        if self._is_enumerated:
            return "exact enumeration of shuffled randomized response on two values"
        return (
            "the least of the privacy blanket (Balle, Bell, Gascon and Nissim 2019, Lemma 5.3, summed exactly) and of "
            "hiding among clones (Feldman, McMillan and Talwar 2023, proved for randomized response)"
        )

    @property
    def _is_enumerated(self) -> bool:
        return self.values == 2 and self.users <= _ENUMERATED_USERS

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta of (epsilon, delta)-privacy."""
        if not epsilon >= 0:
            raise ParameterError(f"epsilon must be at least 0, not {epsilon}.", epsilon=epsilon)
        if self._is_enumerated:
            flip = Dyadic(self.blanket.numerator, self.blanket.bits + 1)
            found = two_response_delta(self.users, flip, epsilon)
            # the bounds cap what is tiny: exact zeros are not lost to rounding
            return found if found > _TINY else min(found, self._blanket_pmf.delta_at(epsilon))
        return min([self._blanket_pmf.delta_at(epsilon), *(curve.delta_at(epsilon) for curve in self.clone_pmfs)])

    @cached_property
    def clone_pmfs(self) -> tuple[ClonesCurve, ...]:
        """Stronger clones; and reports on the two values only, where they happen (the others are common)."""
        ratio = self.local_epsilon
        if not 0 < ratio < 700:
            return ()
        small = math.exp(-ratio)
        strong = fewest_clones(self.users - 1, 2 * small / (1 + small) * (1 - 2.0**-48), ratio * (1 + 1e-15))
        each = self.blanket.fraction / self.values
        weight = min(1.0, float(each) * (1 + math.exp(ratio)) * (1 + 1e-12))
        revealed = fewest_clones(self.users - 1, 2 * each, ratio * (1 + 1e-15), weight=weight)
        return (strong,) if self.values == 2 else (strong, revealed)
