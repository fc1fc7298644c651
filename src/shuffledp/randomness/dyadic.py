"""Dyadic probabilities, which samplers realize exactly: an integer over a power of two."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shuffledp.errors import ParameterError

_FLOAT_BITS = 53
_MAX_BITS = 1 << 16


@dataclass(frozen=True, slots=True)
class Dyadic:
    """The probability ``numerator / 2**bits``."""

    numerator: int
    bits: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.numerator, int) or not isinstance(self.bits, int):
            raise ParameterError(
                f"numerator and bits must be integers; got {self.numerator!r} and {self.bits!r}. "
                "Dyadic.of converts other exact numbers.",
                numerator=self.numerator,
                bits=self.bits,
            )
        if not 0 <= self.bits <= _MAX_BITS or not 0 <= self.numerator <= 1 << self.bits:
            raise ParameterError(
                f"{self.numerator}/2^{self.bits} is not a probability: "
                f"the numerator must lie between 0 and 2^{self.bits}.",
                numerator=self.numerator,
                bits=self.bits,
            )

    @classmethod
    def at_least(cls, value: float | Fraction, *, bits: int = 64) -> Dyadic:
        """The smallest multiple of ``2**-bits`` that is >= ``value`` and exact as a float.

        Because it is exact as a float, accounting and sampling use the same number.
        """
        if not 0 <= value <= 1:
            raise ParameterError(f"{value} is not a probability between 0 and 1.", value=value)
        scaled = Fraction(value) * (1 << bits)
        numerator = -(-scaled.numerator // scaled.denominator)
        excess = max(0, numerator.bit_length() - _FLOAT_BITS)
        return cls(-(-numerator >> excess) << excess, bits)

    @classmethod
    def of(cls, value: Probability) -> Dyadic:
        """Exactly ``value``: every float in [0, 1] is dyadic; a fraction is if its denominator is a power of two."""
        if isinstance(value, Dyadic):
            return value
        numerator, denominator = _exact_ratio(value)
        bits = denominator.bit_length() - 1
        if denominator != 1 << bits or bits > _MAX_BITS:
            raise ParameterError(
                f"A fraction near {float(value):.6g} is not an integer over a power of two up to 2^{_MAX_BITS}; "
                "Dyadic.at_least rounds it up to one.",
                value=value,
            )
        return cls(numerator, bits)

    @property
    def is_certain(self) -> bool:
        """Whether the event never happens or always happens."""
        return self.numerator in (0, 1 << self.bits)

    @property
    def fraction(self) -> Fraction:
        """The probability as an exact rational."""
        return Fraction(self.numerator, 1 << self.bits)

    @property
    def complement(self) -> Dyadic:
        """One minus this probability, exactly."""
        return Dyadic((1 << self.bits) - self.numerator, self.bits)

    def __float__(self) -> float:
        return self.numerator / (1 << self.bits)

    def __str__(self) -> str:
        return f"{float(self):.6g}"


def check_uncertain(name: str, probability: Dyadic) -> None:
    """Reject the probabilities 0 and 1."""
    if probability.is_certain:
        raise ParameterError(f"The {name} must lie strictly between 0 and 1, not {probability}.", **{name: probability})


Probability = Dyadic | Fraction | float
"""The types that samplers accept as a probability; the denominator of a fraction must be a power of two."""


def _exact_ratio(value: Fraction | float) -> tuple[int, int]:
    """Numerator and denominator of a Python or numpy number between 0 and 1."""
    if not isinstance(value, int | float | Fraction | np.integer | np.floating):
        raise ParameterError(
            f"A probability is a number between 0 and 1, not an object of type {type(value).__name__}.", value=value
        )
    if not 0 <= value <= 1:  # also rejects NaN
        raise ParameterError(f"{value} is not a probability between 0 and 1.", value=value)
    if isinstance(value, float | np.floating):
        return value.as_integer_ratio()
    return int(value.numerator), int(value.denominator)
