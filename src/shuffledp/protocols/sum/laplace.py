"""A sum in the central model with Laplace noise: Dwork, McSherry, Nissim and Smith (2006), drawn by OpenDP.

Numbers are fixed-point: rounded at random to a multiple of 2^-bits of the interval, so finely that the rounding is
negligible. Their sum is an integer, and OpenDP adds Laplace noise on the same grid with integer arithmetic (Canonne,
Kamath and Steinke 2020), so that floating-point digits leak nothing. OpenDP's privacy map is checked before every
release. OpenDP draws from the operating system and does not take a seed.

Accounting: ``shuffledp.privacy.pure``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from shuffledp.domain import Interval
from shuffledp.errors import InfeasibleError, MissingPackageError, ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.sum.levels import CentralLevels, check_levels
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, RandomSource

_MAX_BITS = 39
_SUM_BITS = 61
_NOISE_BITS = 55  # noise beyond 2^62, where OpenDP clips it, has a probability below e^-120


@dataclass(frozen=True)
class LaplaceSum(CentralLevels):
    """A sum with Laplace noise drawn by OpenDP (Dwork and others 2006); central, delta 0.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded.
    """

    name: ClassVar[str] = "laplace"
    trust: ClassVar[str] = "central"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    levels: int
    """Number of steps of the interval; by default a power of two."""
    scale: int
    """The noise x, in steps, has a probability proportional to e^(-|x| / scale)."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.levels, users=self.target.users)
        if not 1 <= self.scale <= 1 << _NOISE_BITS:
            raise ParameterError(f"The scale {self.scale} must lie between 1 and 2^{_NOISE_BITS}.", scale=self.scale)

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None) -> Self:
        """The least noise that is epsilon-private; delta is not needed."""
        if levels is None:
            noise_limit = math.floor(_NOISE_BITS - 1 + math.log2(target.epsilon))
            levels = 1 << max(0, min(_MAX_BITS, _SUM_BITS - target.users.bit_length(), noise_limit))
        check_levels(levels, users=target.users)
        scale = math.ceil(levels / Fraction(target.epsilon))
        if scale > 1 << _NOISE_BITS:
            raise InfeasibleError(
                f"epsilon = {target.epsilon:g} with {levels:,} levels needs noise beyond 64-bit numbers; "
                "use a larger epsilon or fewer levels.",
                epsilon=target.epsilon,
            )
        while max(_epsilon_above(levels, scale), _measurement(scale).map(levels)) > target.epsilon:
            scale += 1
        return cls(target.pure(), levels, scale, domain)

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy of the released sum, which one user changes by at most ``levels``."""
        curve = PureCurve(_epsilon_above(self.levels, self.scale))
        return self.target.guarantee(
            curve, theorem="Dwork, McSherry, Nissim and Smith 2006, Theorem 1", trust="central"
        )

    @property
    def decay(self) -> float:
        """Decay of the noise per level."""
        return 1 / self.scale

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """The sum with OpenDP's noise."""
        if not source.secure:
            raise ParameterError(
                "OpenDP draws its noise from the operating system and takes no seed; "
                "use the protocol discrete-laplace for a seeded run."
            )
        if tally.released:
            raise ParameterError("This tally is already released; noise is added once.")
        self.check_tally(tally)
        measurement = _measurement(self.scale)
        if measurement.map(self.levels) > self.target.epsilon:
            raise ParameterError(
                f"OpenDP's map gives epsilon = {measurement.map(self.levels)!r}, more than {self.target.epsilon!r}."
            )
        noisy = np.array([measurement(int(tally.counts[0]))], dtype=np.int64)
        return Tally(noisy, tally.users, tally.secure, released=True)


def _epsilon_above(levels: int, scale: int) -> float:
    """levels / scale, rounded up."""
    quotient = levels / scale
    return quotient if Fraction(quotient) >= Fraction(levels, scale) else math.nextafter(quotient, math.inf)


@lru_cache(maxsize=16)
def _measurement(scale: int) -> Any:
    """OpenDP's Laplace mechanism on integers."""
    try:
        from opendp.domains import atom_domain  # not opendp.prelude, which imports scikit-learn and others if it can
        from opendp.measurements import make_laplace
        from opendp.metrics import absolute_distance
        from opendp.mod import enable_features
    except ImportError:
        raise MissingPackageError(
            "The protocol laplace needs OpenDP: pip install 'shuffledp[opendp]'; discrete-laplace does not need it."
        ) from None
    enable_features("contrib")
    return make_laplace(atom_domain(T="i64"), absolute_distance(T="i64"), float(scale))
