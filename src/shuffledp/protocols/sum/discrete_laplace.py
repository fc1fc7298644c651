"""A sum in the central model: discrete Laplace noise on the sum of rounded numbers.

Ghosh, Roughgarden and Sundararajan (2009) for integers; other numbers are first rounded at random to enough levels
that the rounding is negligible. All random numbers are integers, so that floating-point digits leak nothing (Mironov
2012).

Accounting: ``shuffledp.privacy.discrete_laplace``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.sum.levels import CentralLevels, check_levels, levels_for
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace

_ROUNDING_SHARE = 10  # rounding adds about a thousandth to the variance
_LEAST_DECAY = 1e-6  # for smaller decays the noise takes long to draw


@dataclass(frozen=True)
class DiscreteLaplaceSum(CentralLevels):
    """A sum with discrete Laplace noise on integers (Ghosh and others 2009); central, delta 0.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded.
    """

    name: ClassVar[str] = "discrete-laplace"
    trust: ClassVar[str] = "central"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    levels: int
    """Numbers are rounded at random to one of levels + 1 points."""
    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.levels, users=self.target.users)

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None) -> Self:
        """The least noise that is epsilon-private; delta is not needed."""
        if levels is None:
            max_levels = target.epsilon / _LEAST_DECAY
            min_levels = min(_ROUNDING_SHARE * target.epsilon * math.sqrt(target.users), max(1.0, max_levels))
            levels = levels_for(domain, min_levels=min_levels, max_levels=max_levels)
        check_levels(levels, users=target.users)
        return cls(target.pure(), levels, least_ratio(target.epsilon, sensitivity=levels), domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy of the released sum, which one user changes by at most ``levels``."""
        curve = DiscreteLaplaceCurve(self.ratio, sensitivity=self.levels)
        return self.target.guarantee(curve, theorem="exact divergence of the noise", trust="central")

    @property
    def decay(self) -> float:
        """Decay of the noise per level."""
        return decay_of(self.ratio)

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """The sum plus noise."""
        if tally.released:
            raise ParameterError("This tally is already released; noise is added once.")
        noise = discrete_laplace(self.ratio, 1, source)
        return Tally(tally.counts + noise, tally.users, tally.secure and source.secure, released=True)
