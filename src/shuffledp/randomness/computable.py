"""Real numbers that can be bounded to any precision: rationals and multiples of a logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Protocol

from shuffledp.errors import ParameterError
from shuffledp.randomness.dyadic import Dyadic

_DIGITS_PER_BIT = 0.30103  # the decimal logarithm of 2, rounded up


class Real(Protocol):
    """A nonnegative real number, hashable so that tables can be cached by it."""

    def between(self, precision: int) -> tuple[Fraction, Fraction]:
        """A lower and an upper rational bound that differ by at most 2^-precision times the number."""

    def share(self, parts: int) -> Real:
        """The number divided by ``parts``."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Rational:
    """A rational number, which is its own bound at every precision."""

    value: Fraction

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ParameterError(f"The value must be at least 0; got {self.value}.", value=self.value)

    def between(self, precision: int) -> tuple[Fraction, Fraction]:  # noqa: ARG002
        """The number itself as both bounds."""
        return self.value, self.value

    def share(self, parts: int) -> Rational:
        """The number divided by ``parts``."""
        return Rational(self.value / parts)


@dataclass(frozen=True)
class NegativeLogarithm:
    """The number -factor ln(1 - ratio), irrational unless it is zero."""

    factor: Fraction
    ratio: Dyadic

    def __post_init__(self) -> None:
        if self.factor < 0 or self.ratio.numerator == 1 << self.ratio.bits:
            raise ParameterError(
                f"The factor must be at least 0 and the ratio below 1; got {self.factor} and {self.ratio}.",
                factor=self.factor,
                ratio=self.ratio,
            )

    def between(self, precision: int) -> tuple[Fraction, Fraction]:
        """Bounds from a correctly rounded decimal logarithm, widened by one unit in the last digit."""
        if self.factor == 0 or self.ratio.numerator == 0:
            return Fraction(0), Fraction(0)
        digits = int(precision * _DIGITS_PER_BIT) + 4
        context = Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, rounding=ROUND_HALF_EVEN)
        logarithm = context.ln(_exact_decimal(self.ratio.complement)).copy_abs()
        last_digit = Fraction(10) ** (logarithm.adjusted() - digits + 1)
        value = Fraction(logarithm)
        return self.factor * (value - last_digit), self.factor * (value + last_digit)

    def share(self, parts: int) -> NegativeLogarithm:
        """The number divided by ``parts``."""
        return NegativeLogarithm(self.factor / parts, self.ratio)


def _exact_decimal(value: Dyadic) -> Decimal:
    """A dyadic probability as an exact decimal number: n / 2^b = 5^b n / 10^b."""
    exact = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
    return Decimal(value.numerator * 5**value.bits).scaleb(-value.bits, exact)
