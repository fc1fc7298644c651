"""Probabilities that a sampler can meet exactly: a whole number over a power of two."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shuffledp.errors import ParameterError

__all__ = ["Dyadic"]

_FLOAT_BITS = 53
_MOST_BITS = 1 << 16


@dataclass(frozen=True, slots=True)
class Dyadic:
    """The probability ``numerator / 2**bits``."""

    numerator: int
    bits: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= _MOST_BITS or not 0 <= self.numerator <= 1 << self.bits:
            raise ParameterError(
                f"{self.numerator}/2^{self.bits} is not a probability: "
                f"the numerator must lie between 0 and 2^{self.bits}.",
                numerator=self.numerator,
                bits=self.bits,
            )

    @classmethod
    def at_least(cls, value: float | Fraction, *, bits: int = 64) -> Dyadic:
        """The least probability over ``2**bits`` that is >= ``value`` and exact as a float.

        Being exact as a float means that accounting and sampling speak of the same number.
        """
        if not 0 <= value <= 1:
            raise ParameterError(f"{value} is not a probability between 0 and 1.", value=value)
        scaled = Fraction(value) * (1 << bits)
        numerator = -(-scaled.numerator // scaled.denominator)
        excess = max(0, numerator.bit_length() - _FLOAT_BITS)
        return cls(-(-numerator >> excess) << excess, bits)

    @classmethod
    def of(cls, value: float | Dyadic) -> Dyadic:
        """Exactly ``value``: every float in [0, 1] is a whole number over a power of two."""
        if isinstance(value, Dyadic):
            return value
        if not 0 <= value <= 1:
            raise ParameterError(f"{value} is not a probability between 0 and 1.", value=value)
        numerator, denominator = float(value).as_integer_ratio()
        return cls(numerator, denominator.bit_length() - 1)

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
