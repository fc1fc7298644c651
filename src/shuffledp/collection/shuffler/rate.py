"""A limit on reports a second: one token bucket for all senders together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class RateLimit:
    """At most ``per_second`` in the long run and ``burst`` at once.

    It is one limit for everybody on purpose: a limit by sender would need the addresses of senders.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, float(burst), clock
        self._left, self._at = float(burst), clock()

    def tenth(self) -> RateLimit:
        """Another limit, of a tenth of this one; no limit if this is none."""
        return RateLimit(self._per_second / 10, max(1, round(self._burst / 10)), self._clock)

    def take(self) -> bool:
        """Whether one more may come now."""
        if not self._per_second:
            return True
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def retry_after(self) -> int:
        """Whole seconds after which it is worth trying again."""
        return min(3600, max(1, math.ceil(1 / self._per_second))) if self._per_second else 1
