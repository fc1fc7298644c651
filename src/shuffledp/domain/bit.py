"""Domains of yes and no: ``Bit``, and ``EqualTo`` for whether a value is a given one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shuffledp.domain.categories import Categories
from shuffledp.domain.domain import DiscreteDomain
from shuffledp.domain.encoded import Indices
from shuffledp.domain.values import as_numeric_array, describe_non_number, is_real
from shuffledp.errors import DomainError
from shuffledp.text_values import canonical_form

_YES = ("1", "true", "yes", "y", "t")
_NO = ("0", "false", "no", "n", "f")


@dataclass(frozen=True)
class Bit(DiscreteDomain):
    """Yes or no: index 1 or 0.

    >>> sdp.Bit().parse("yes"), sdp.Bit().encode(False)
    (1, 0)
    """

    def __len__(self) -> int:
        return 2

    def lookup_names(self) -> tuple[str, ...]:
        """The digits 0 and 1."""
        return ("0", "1")

    def find(self, value: str) -> int | None:
        """1 for yes, y, true, t or 1, and 0 for no, n, false, f or 0, in upper or lower case; else None."""
        form = canonical_form(value).lower()
        return int(form in _YES) if form in _YES + _NO else None

    def parse(self, text: str) -> int:
        """1 for yes, y, true, t or 1, and 0 for no, n, false, f or 0, in upper or lower case."""
        index = self.find(text)
        if index is None:
            raise DomainError(f"A count needs yes/no, true/false or 1/0, not {text!r}.", value=text)
        return index

    def encode(self, value: bool | int) -> int:
        """The index of one value: a boolean, or the number 0 or 1."""
        return int(self.encode_all([value])[0])

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value: a boolean, or the number 0 or 1."""
        array = as_numeric_array(values)
        if len(array) == 0:
            return np.empty(0, dtype=np.int64)
        if array.ndim != 1 or not is_real(array.dtype):
            raise DomainError(f"A count needs 0 or 1 from each user{describe_non_number(values)}.")
        wrong = (array != 0) & (array != 1)
        if wrong.any():
            raise DomainError(
                f"{int(wrong.sum()):,} of {len(array):,} values are neither 0 nor 1 (for example {array[wrong][0]}).",
                count=int(wrong.sum()),
            )
        return array.astype(np.int64)


BIT = Bit()


@dataclass(frozen=True)
class EqualTo(Bit):
    """Whether a user's value is the given one: index 1 if it is, 0 if it is any other.

    >>> from shuffledp.domain import EqualTo
    >>> EqualTo("1").parse("1.0"), EqualTo("1").parse("bus")
    (1, 0)
    """

    value: str

    @cached_property
    def _category(self) -> Categories:
        return Categories.of([self.value])

    def lookup_names(self) -> tuple[str, ...]:
        """Empty: there is no string for all other values."""
        return ()

    def find(self, value: str) -> int:
        """1 if the string means the given value, else 0."""
        return int(self._category.find(value) is not None)

    def is_named(self, text: str) -> bool:
        """Whether the string means the given value."""
        return self.find(text) == 1
