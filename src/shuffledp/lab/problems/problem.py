"""The interface of the problems of Balcer and Cheu (2020), section 3.3, and checks that they share.

Every user holds an item drawn uniformly from a small unknown set, the *support*, inside a public domain. The answer is
computed from the identified support. A domain may be too large to enumerate; it is then represented by the logarithm of
its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from shuffledp.errors import ParameterError
from shuffledp.randomness import RandomSource

MAX_LISTED_DIGITS = 20
"""The size of a domain is an exact integer if it has at most this many digits."""
MAX_SUPPORT = 10**6
"""Maximum size of a support."""


class Instance(Protocol):
    """One support, and the answer to the problem for it."""

    @property
    def problem(self) -> Problem:
        """The problem that this is an instance of."""

    @property
    def support(self) -> tuple[Any, ...]:
        """The items that users hold, each with the same probability; those needed for the answer come first."""

    @property
    def answer(self) -> Any:
        """The true answer."""

    def answer_from(self, reported: Sequence[Any]) -> Any:
        """The answer computed from reported items alone, or None if they do not determine it."""


class Problem(Protocol):
    """A family of supports of one size in one domain."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def support_size(self) -> int:
        """The number of items in the support, h in the paper."""

    @property
    def needed(self) -> int:
        """The number of items, from the start of the support, that determine the answer."""

    @property
    def log_domain_size(self) -> float:
        """The natural logarithm of the number of possible items; infinite if too large for a float."""

    @property
    def domain_size(self) -> int | None:
        """The number of possible items, or None if it has more than twenty digits."""

    def parameters(self) -> dict[str, int]:
        """The parameters of the problem by name."""

    def describe(self) -> str:
        """A short description of the problem."""

    def instance(self, source: RandomSource) -> Instance:
        """A random instance."""

    def random_item(self, source: RandomSource) -> Any:
        """A uniform item of the domain."""

    def item(self, index: int) -> Any:
        """The item with this index in the enumerated domain."""

    def index(self, item: Any) -> int:
        """The index of an item in the enumerated domain."""


def check_integer(name: str, value: int, *, maximum: int | None = None) -> None:
    """Reject a parameter that is not an integer of at least 1 and at most ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{name} must be an integer, not {value!r}.", value=value)
    if value < 1:
        raise ParameterError(f"{name} must be at least 1, not {value}.", value=value)
    if maximum is not None and value > maximum:
        raise ParameterError(f"{name} can be at most {maximum:,}, not {value:,}.", value=value)


def check_listed(problem: Problem) -> int:
    """The size of a domain whose items can be numbered; larger domains are rejected."""
    size = problem.domain_size
    if size is None:
        raise ParameterError(
            f"The domain of {problem.describe()} has {describe_domain_size(problem)} items, too many to number; "
            f"its size may have at most {MAX_LISTED_DIGITS} digits."
        )
    return size


def check_index(index: int, size: int) -> None:
    """Reject an index outside the domain."""
    if not 0 <= index < size:
        raise ParameterError(f"There is no item {index} in a domain of {size:,}; indices start at 0.", index=index)


def log_empty_items(problem: Problem) -> float:
    """The natural logarithm of the number of items outside the support; minus infinity if there are none."""
    size = problem.domain_size
    if size is not None:
        return math.log(size - problem.support_size) if size > problem.support_size else -math.inf
    return problem.log_domain_size  # subtracting a support from so large a size does not change the logarithm


def describe_domain_size(problem: Problem) -> str:
    """The size of the domain for messages: exact, or as a power of ten."""
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
