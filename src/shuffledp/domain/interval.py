"""Domains of numbers between public bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain.domain import Domain
from shuffledp.domain.values import as_numeric_array, describe_non_number, is_real
from shuffledp.errors import DomainError
from shuffledp.text_values import parse_number

_LARGEST_BOUND = 1e290
"""A sum over a billion users, with a billion times as much noise, is still finite."""


_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Interval(Domain):
    """Numbers from ``lower`` to ``upper``; if ``whole``, only integers.

    >>> sdp.Interval(0, 120).encode_all([30, 150], clip=True).tolist()
    [0.25, 1.0]
    """

    lower: float
    upper: float
    whole: bool = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):  # documents of equal intervals are equal: 0 and 0.0 are the same bound
            object.__setattr__(self, name, _as_bound(getattr(self, name)))
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise DomainError(f"The bounds must be finite numbers, not {self.lower} and {self.upper}.")
        if not self.lower < self.upper:
            raise DomainError(f"The lower bound must lie below the upper one, not {self.lower} and {self.upper}.")
        if max(-self.lower, self.upper) > _LARGEST_BOUND:
            raise DomainError(
                f"The interval from {self.lower} to {self.upper} is too wide: beyond {_LARGEST_BOUND:g} a sum may be "
                "larger than any floating-point number."
            )
        if self.whole and not (self.lower.is_integer() and self.upper.is_integer()):
            raise DomainError(f"Integers need integer bounds, not {self.lower} and {self.upper}.")

    @property
    def width(self) -> float:
        """The sensitivity of a sum: by how much one user can change it."""
        return self.upper - self.lower

    @property
    def steps(self) -> int | None:
        """For integers, the number of steps from the lower to the upper bound."""
        return round(self.width) if self.whole else None

    def parse(self, text: str) -> float:
        """The string as a number; ``encode`` checks that it lies between the bounds."""
        number = parse_number(text)
        if number is None:
            raise DomainError(f"A number is needed, not {text!r}.", value=text)
        return number

    def encode(self, value: float) -> float:
        """The position of one number in the interval, from 0.0 at the lower bound to 1.0 at the upper one."""
        return float(self.encode_all([value])[0])

    @property
    def description(self) -> str:
        """The values of the domain in a few words."""
        return f"{'integers' if self.whole else 'numbers'} from {self.lower:g} to {self.upper:g}"

    def outside(self, numbers: NDArray[np.float64], *, clip: bool = False) -> NDArray[np.bool_]:
        """Which numbers are outside: NaN, non-integers if ``whole``, and numbers beyond a bound unless ``clip``."""
        outside = np.isnan(numbers) if clip else ~((numbers >= self.lower) & (numbers <= self.upper))
        return outside | (numbers != np.floor(numbers)) if self.whole else outside

    def encode_all(self, values: Iterable[Any], *, clip: bool = False) -> NDArray[np.float64]:
        """The position of each number in the interval, from 0.0 at the lower bound to 1.0 at the upper one.

        Numbers outside the bounds are refused, or clipped to the nearer bound with ``clip``.
        """
        return self.positions(self.numbers(values, clip=clip))

    def positions(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """The positions of numbers between the bounds."""
        positions = numbers - self.lower
        positions /= self.width
        return np.clip(positions, 0.0, 1.0, out=positions)

    def numbers(self, values: Iterable[Any], *, clip: bool = False) -> NDArray[np.float64]:
        """The numbers themselves, checked, and clipped to the bounds with ``clip``."""
        array = as_numeric_array(values)
        if array.ndim != 1 or not (is_real(array.dtype) or len(array) == 0):
            raise DomainError(f"The values must be one number from each user{describe_non_number(values)}.")
        numbers = array.astype(np.float64)
        outside = self.outside(numbers, clip=clip)
        if outside.any():
            raise DomainError(
                f"{int(outside.sum()):,} of {len(numbers):,} values are not {self.description} "
                f"(for example {numbers[outside][0]:g}).",
                count=int(outside.sum()),
            )
        return np.clip(numbers, self.lower, self.upper)


def _as_bound(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
        raise DomainError(f"The bounds must be finite numbers, not {shown}.") from None
