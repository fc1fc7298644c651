"""What the problems of Balcer and Cheu (2020), section 3.3, share: a support to identify, and an answer read off it.

Every user holds an item that was drawn uniformly from a small unknown set, the *support*, inside a public domain that
may be astronomically large. Domains are therefore known by the logarithm of their size, and listed only if small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from shuffledp.errors import ParameterError
from shuffledp.randomness import RandomSource, draw_bytes

MOST_LISTED_DIGITS = 20
"""Domains of at most so many digits are counted exactly."""
MOST_SUPPORT = 10**6
"""Supports of more items are refused: they would not fit a table."""


class Instance(Protocol):
    """One support, and what is asked about it."""

    @property
    def problem(self) -> Problem:
        """Whose instance it is."""

    @property
    def support(self) -> tuple[Any, ...]:
        """The items that users hold, each with the same probability; those that the answer needs come first."""

    @property
    def answer(self) -> Any:
        """The true answer."""

    def answer_from(self, reported: Sequence[Any]) -> Any:
        """The answer that follows from reported items, or None; nothing else of the instance is looked at."""


class Problem(Protocol):
    """A family of supports of one size in one domain."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def support_size(self) -> int:
        """How many items users hold, h in the paper."""

    @property
    def needed(self) -> int:
        """So many of them, the first ones, determine the answer."""

    @property
    def log_domain_size(self) -> float:
        """The natural logarithm of the number of possible items; infinite if too large for a float."""

    @property
    def domain_size(self) -> int | None:
        """The number of possible items, unless it has more than twenty digits."""

    def parameters(self) -> dict[str, int]:
        """What the problem was made with, by name."""

    def words(self) -> str:
        """The problem in a few words."""

    def instance(self, source: RandomSource) -> Instance:
        """A random instance."""

    def random_item(self, source: RandomSource) -> Any:
        """A uniform item of the domain."""

    def item(self, index: int) -> Any:
        """The item at a place of the listed domain."""

    def index(self, item: Any) -> int:
        """The place of an item in the listed domain."""


def check_whole(name: str, value: int, least: int = 1, most: int | None = None) -> None:
    """Refuse a parameter that is not a whole number in its range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{name} must be a whole number, not {value!r}.", value=value)
    if value < least:
        raise ParameterError(f"{name} must be at least {least}, not {value}.", value=value)
    if most is not None and value > most:
        raise ParameterError(f"{name} can be at most {most:,}, not {value:,}.", value=value)


def check_listed(problem: Problem) -> int:
    """The size of a domain whose items can be numbered; refuse others."""
    size = problem.domain_size
    if size is None:
        raise ParameterError(
            f"The domain of {problem.words()} has {domain_words(problem)} items, too many to number; "
            f"at most {MOST_LISTED_DIGITS} digits can be."
        )
    return size


def check_place(index: int, size: int) -> None:
    """Refuse a place outside the domain."""
    if not 0 <= index < size:
        raise ParameterError(f"There is no item {index} in a domain of {size:,}; places begin at 0.", index=index)


def uniform_below(bound: int, source: RandomSource) -> int:
    """A whole number that is exactly uniform on 0 .. bound - 1, however large the bound."""
    bits = (bound - 1).bit_length()
    excess = -bits % 8
    while True:
        drawn = int.from_bytes(draw_bytes(-(-bits // 8), source).tobytes(), "big") >> excess
        if drawn < bound:
            return drawn


def log_empty_items(problem: Problem) -> float:
    """ln of the number of items outside the support; minus infinity if there are none."""
    size = problem.domain_size
    if size is not None:
        return math.log(size - problem.support_size) if size > problem.support_size else -math.inf
    return problem.log_domain_size  # twenty digits and more: a support makes no difference to a float's logarithm


def domain_words(problem: Problem) -> str:
    """The size of the domain as a person reads it: exactly, or as a power of ten."""
    size = problem.domain_size
    if size is not None and size < 10**6:
        return f"{size:,}"
    exponent = problem.log_domain_size / math.log(10)
    if math.isinf(exponent):
        return "more than 10^(10^300)"
    if exponent < 1e15:
        return f"10^{exponent:,.1f}" if exponent < 1e6 else f"10^{exponent:,.0f}"
    mantissa, _, power = f"{exponent:.2e}".partition("e+")
    return f"10^({mantissa} x 10^{int(power)})"
