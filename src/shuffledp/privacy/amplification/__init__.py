"""Privacy amplification by shuffling, for reports that are locally private.

One theorem per module. ``METHODS`` lists those that need only the local epsilon; each returns an epsilon that holds
after shuffling, at most the local one. Those named "stronger-clones" hold for randomized response and for channels that
pass ``check_restriction``; the others hold for every randomizer. "exact-2-rr" is not a guarantee but a reference: the
exact epsilon of randomized response on bits if all other users hold a 0, which is not always the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shuffledp.privacy.amplification.clones import (
    ClonesCurve,
    check_clones,
    clones_curve,
    clones_delta,
    clones_epsilon_closed_form,
    revealed_clones_delta,
)
from shuffledp.privacy.amplification.erlingsson import erlingsson_epsilon, erlingsson_simple_epsilon
from shuffledp.privacy.amplification.exact import exact_delta, response_channel, two_response_delta
from shuffledp.privacy.amplification.privacy_blanket import (
    BlanketCurve,
    bennett_delta,
    blanket_delta,
    closed_form_delta,
    hoeffding_delta,
)
from shuffledp.privacy.amplification.randomized_response import RandomizedResponseCurve, least_blanket
from shuffledp.privacy.amplification.stronger_clones import (
    RandomizedResponse,
    check_restriction,
    stronger_clones_curve,
    stronger_clones_delta,
    stronger_clones_epsilon_closed_form,
)
from shuffledp.privacy.amplification.uniform_blanket import Slots, least_slots
from shuffledp.privacy.guarantee import least_epsilon

__all__ = [
    "METHODS",
    "BlanketCurve",
    "ClonesCurve",
    "RandomizedResponse",
    "RandomizedResponseCurve",
    "Slots",
    "bennett_delta",
    "blanket_delta",
    "check_restriction",
    "clones_curve",
    "clones_delta",
    "clones_epsilon_closed_form",
    "closed_form_delta",
    "erlingsson_epsilon",
    "erlingsson_simple_epsilon",
    "exact_delta",
    "hoeffding_delta",
    "least_blanket",
    "least_slots",
    "response_channel",
    "revealed_clones_delta",
    "stronger_clones_curve",
    "stronger_clones_delta",
    "stronger_clones_epsilon_closed_form",
    "two_response_delta",
]

Method = Callable[[int, float, float], float]


@dataclass(frozen=True)
class _Curve:
    """A privacy curve given by a function of epsilon, users and local epsilon."""

    delta_of: Callable[[float, int, float], float]
    users: int
    local_epsilon: float

    def delta_at(self, epsilon: float) -> float:
        return self.delta_of(epsilon, self.users, self.local_epsilon)


def _capped(method: Method) -> Method:
    """The least of the method's epsilon and the local one, which still holds after shuffling."""

    def epsilon(users: int, local_epsilon: float, delta: float) -> float:
        return min(local_epsilon, method(users, local_epsilon, delta))

    return epsilon


def _numeric(delta_of: Callable[[float, int, float], float]) -> Method:
    def epsilon(users: int, local_epsilon: float, delta: float) -> float:
        return least_epsilon(_Curve(delta_of, users, local_epsilon), delta)

    return _capped(epsilon)


def _two_response_without_ones(epsilon: float, users: int, local_epsilon: float) -> float:
    check_clones(users, local_epsilon)
    return two_response_delta(users, 1 / (1 + math.exp(local_epsilon)), epsilon, ones=0)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "erlingsson": _capped(erlingsson_epsilon),
        "erlingsson-simple": _capped(erlingsson_simple_epsilon),
        "privacy-blanket-closed": _numeric(closed_form_delta),
        "privacy-blanket": _numeric(hoeffding_delta),
        "privacy-blanket-bennett": _numeric(bennett_delta),
        "clones-closed": _capped(clones_epsilon_closed_form),
        "clones": _numeric(clones_delta),
        "stronger-clones-closed": _capped(
            lambda users, local_epsilon, delta: stronger_clones_epsilon_closed_form(
                users, RandomizedResponse(local_epsilon), delta
            )
        ),
        "stronger-clones": _numeric(
            lambda epsilon, users, local_epsilon: stronger_clones_delta(
                epsilon, users, RandomizedResponse(local_epsilon)
            )
        ),
        "exact-2-rr": _numeric(_two_response_without_ones),
    }
)
