"""Ranges of the number K of ones among the other users' bits, tail bounds, and checks of parameters."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_number_of_users
from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import LEAST_PROBABILITY_BITS
from shuffledp.privacy.pure import log_ratio_above
from shuffledp.randomness import Dyadic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_FLIP = 0.4999
"""Largest flip probability of a calibration; with a larger one hardly any information about a bit is left."""
MAX_FLIPPED_BITS = 1 << 50
"""Maximum number of bits of all users; its product with the number of cells is below 2^63."""


def check_bits(users: int, flip: Dyadic, bits: int = 1) -> None:
    """Reject too few users, too many bits, or a flip probability outside (0, 1/2]."""
    check_number_of_users(users, min_users=2)
    if bits < 1:
        raise ParameterError(f"A user holds at least one bit, not {bits}.", bits=bits)
    if users * bits > MAX_FLIPPED_BITS:
        raise ParameterError(
            f"{users:,} users with {bits:,} bits each have too many bits: at most 2^50 are supported.", users=users
        )
    if flip.numerator << LEAST_PROBABILITY_BITS < 1 << flip.bits:
        raise ParameterError(
            f"The flip probability must be at least 2^-{LEAST_PROBABILITY_BITS}, to be exact as a double."
        )
    if not 0 < flip.numerator <= 1 << (flip.bits - 1):
        raise ParameterError(f"The flip probability must be above 0 and at most 1/2, not {flip}.", flip=flip)


def bit_epsilon(flip: Dyadic) -> float:
    """The epsilon of one flipped bit without shuffling, rounded up."""
    return log_ratio_above(flip.complement.numerator, flip.numerator)


def edges(last: int, parts: int) -> Integers:
    """Boundaries of about equal ranges that cover 0 .. last; the final one is last + 1."""
    return np.unique(np.arange(parts + 1) * (last + 1) // parts)


def reach(variance: Floats | float, cut: float) -> Floats:
    """A distance from the mean beyond which a binomial distribution has a mass of at most ``cut`` (Bernstein 1924)."""
    log_cut = math.log(2 / cut)
    result: Floats = log_cut / 3 + np.sqrt(log_cut**2 / 9 + 2 * log_cut * variance)
    return result
