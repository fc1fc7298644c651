"""The abstract domain: the public set of possible values of one user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from shuffledp.errors import ParameterError


class Domain(ABC):
    """The public set of possible values of one user."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The value that a string means, for ``encode``; DomainError if it means none."""

    @abstractmethod
    def encode(self, value: Any) -> Any:
        """One value as randomizers take it; DomainError if it is not in the domain."""

    @abstractmethod
    def encode_all(self, values: Iterable[Any]) -> NDArray[Any]:
        """Many values as randomizers take them; DomainError if any is not in the domain."""

    def is_named(self, text: str) -> bool:  # noqa: ARG002 - most domains have no names
        """Whether the string is the name of a value, so that it cannot be a marker for missing values."""
        return False

    def check_missing_markers(self, markers: Iterable[str]) -> None:
        """Refuse a marker for missing values, such as NA, that is the name of a value."""
        for marker in markers:
            if self.is_named(marker):
                raise ParameterError(
                    f"{marker!r} cannot be both a value and a marker for missing values.", value=marker
                )


class DiscreteDomain(Domain):
    """A domain of finitely many values, each with an index from 0 on."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of values."""

    @abstractmethod
    def lookup_names(self) -> tuple[str, ...]:
        """Strings that mean the indices 0, 1, ..., for fast lookup; other strings may mean them too."""

    @abstractmethod
    def find(self, value: Any) -> int | None:
        """The index that a string means; None if it is not in the domain."""
