"""A count in the central model: a trusted party adds discrete Laplace noise (the geometric mechanism).

Ghosh, Roughgarden and Sundararajan (2009) show that this noise is optimal for everyone who uses the result.

Accounting: ``shuffledp.privacy.discrete_laplace``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts, check_index, check_indices
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplace, DiscreteLaplaceCurve, least_ratio
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, discrete_laplace

_OMITTED_MASS = 1e-14


@dataclass(frozen=True)
class DiscreteLaplaceCount(SingleMessageProtocol, CountProtocol):
    """A count with discrete Laplace noise (Ghosh and others 2009); central, delta 0."""

    name: ClassVar[str] = "discrete-laplace"
    trust: ClassVar[str] = "central"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    ratio: Dyadic
    """The noise x has a probability proportional to ratio^|x|."""

    @classmethod
    def for_target(cls, target: Target) -> Self:
        """The least noise that is epsilon-private; delta is not needed."""
        return cls(target.pure(), least_ratio(target.epsilon))

    @cached_property
    def guarantee(self) -> Guarantee:
        """Pure privacy with respect to everyone except the collecting party."""
        curve = DiscreteLaplaceCurve(self.ratio)
        return self.target.guarantee(curve, theorem="exact divergence of the noise", trust="central")

    @property
    def message_format(self) -> MessageFormat:
        """A bit."""
        return MessageFormat((2,))

    def report_pmf(self, value: int) -> Pmf:
        """The true bit."""
        bit = check_index(value, 2)
        return {(1 - bit, bit): 1.0}

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The true bits: the collecting party is trusted with them."""
        return one_message_each(check_indices(values, 2).astype(np.uint8), source)

    def tally(self, messages: Messages) -> Tally:
        """The number of ones."""
        bits = self.message_format.check(messages.values)
        return Tally(np.array([np.count_nonzero(bits)], dtype=np.int64), messages.users, messages.secure)

    def release(self, tally: Tally, *, source: RandomSource = SYSTEM) -> Tally:
        """The number of ones with noise."""
        noisy = tally.counts + discrete_laplace(self.ratio, 1, source)
        return Tally(noisy, tally.users, tally.secure and source.secure, released=True)

    def release_pmf(self, tally: Tally) -> Pmf:
        """The distribution of the number of ones plus noise."""
        ratio = float(self.ratio)
        reach = DiscreteLaplace(self.ratio).radius(_OMITTED_MASS)
        ones = int(tally.counts[0])
        return {(ones + noise,): (1 - ratio) / (1 + ratio) * ratio ** abs(noise) for noise in range(-reach, reach + 1)}

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The true number of ones with noise."""
        true = check_counts(counts, 2)
        return self.release(Tally(true[1:], int(true.sum()), source.secure), source=source)

    def analysis(self, users: int) -> LinearAnalysis:
        """The released number has noise with mean 0."""
        return LinearAnalysis(offset=0.0, slope=1.0, error=FixedNoise(DiscreteLaplace(self.ratio)), largest=users)
