"""Exponential backoff with jitter: the pauses between attempts of devices and servers."""

from __future__ import annotations

from random import SystemRandom

_MAX_EXPONENT = 1000
_RANDOM = SystemRandom()


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Seconds to wait after so many failures: up to ``first`` after none, doubled with each, at most ``longest``.

    The pause is uniform between half of that and all of it, so that those who failed together do not retry together.
    """
    return min(longest, first * 2.0 ** min(failures, _MAX_EXPONENT)) * _RANDOM.uniform(0.5, 1.0)
