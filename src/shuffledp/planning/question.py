"""What can be asked of the users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shuffledp.domain import Categories
from shuffledp.errors import DomainError

__all__ = ["Count", "Histogram", "Question"]


@dataclass(frozen=True)
class Count:
    """How many of the users hold a 1?"""

    name: ClassVar[str] = "count"
    users: int

    def settings(self) -> dict[str, Any]:
        """What a protocol's calibration needs to know of the question."""
        return {"users": self.users}

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users}


@dataclass(frozen=True)
class Histogram:
    """How many of the users hold each category?"""

    name: ClassVar[str] = "histogram"
    users: int
    domain_size: int | None = None
    categories: Sequence[str] | Categories | None = None

    def __post_init__(self) -> None:
        if self.categories is not None and not isinstance(self.categories, Categories):
            object.__setattr__(self, "categories", Categories.of(self.categories))
        if self.domain_size is None:
            if self.categories is None:
                raise DomainError("A histogram needs its domain: give categories or domain_size.")
            object.__setattr__(self, "domain_size", len(self.categories))
        if self.categories is not None and self.domain_size != len(self.categories):
            raise DomainError(f"{len(self.categories)} categories do not make a domain of {self.domain_size}.")
        if self.domain_size is not None and self.domain_size < 1:
            raise DomainError(f"The domain needs at least one category, not {self.domain_size}.")

    def settings(self) -> dict[str, Any]:
        """What a protocol's calibration needs to know of the question."""
        return {"users": self.users, "domain_size": self.domain_size, "categories": self.categories}

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {"kind": self.name, "users": self.users, "domain_size": self.domain_size}


Question = Count | Histogram
