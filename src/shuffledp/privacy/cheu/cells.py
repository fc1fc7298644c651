"""What all distributions of flipped bits share: the ranges of K that cover all data, and the checks of parameters."""

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
Whole = NDArray[np.int64]

LARGEST_FLIP = 0.4999
"""Beyond this flip probability nothing useful is left of a bit."""
MOST_FLIPPED_BITS = 1 << 50
"""Of all users together: multiples of it by the number of cells stay below 2^63."""


def check_bits(users: int, flip: Dyadic, bits: int = 1) -> None:
    """Refuse too few users or too many bits, or a flip probability that hides nothing or turns bits around."""
    check_number_of_users(users, fewest=2)
    if bits < 1:
        raise ParameterError(f"A user holds at least one bit, not {bits}.", bits=bits)
    if users * bits > MOST_FLIPPED_BITS:
        raise ParameterError(
            f"{users:,} users of {bits:,} bits each hold too many bits to compute with: at most 2^50.", users=users
        )
    if flip.numerator << LEAST_PROBABILITY_BITS < 1 << flip.bits:
        raise ParameterError(
            f"The flip probability must be at least 2^-{LEAST_PROBABILITY_BITS}, where doubles hold it."
        )
    if not 0 < flip.numerator <= 1 << (flip.bits - 1):
        raise ParameterError(f"The flip probability must lie above 0 and at most at 1/2, not {flip}.", flip=flip)


def bit_epsilon(flip: Dyadic) -> float:
    """What holds for one flipped bit even without shuffling, rounded up."""
    return log_ratio_above(flip.complement.numerator, flip.numerator)


def edges(last: int, parts: int) -> Whole:
    """Starts of about equal ranges that cover 0 .. last, and last + 1."""
    return np.unique(np.arange(parts + 1) * (last + 1) // parts)


def reach(variance: Floats | float, cut: float) -> Floats:
    """Bernstein (1924): a binomial distribution has at most ``cut`` of its mass farther than this from its mean."""
    log_cut = math.log(2 / cut)
    result: Floats = log_cut / 3 + np.sqrt(log_cut**2 / 9 + 2 * log_cut * variance)
    return result
