"""Domains of categories, named or numbered."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from shuffledp.domain.domain import DiscreteDomain
from shuffledp.domain.encoded import Indices, check_indices
from shuffledp.domain.values import as_column, displayed, distinct_examples, is_missing, is_number
from shuffledp.errors import DomainError
from shuffledp.text_values import canonical_form, string_of

_NUMERAL = re.compile(r"0|[1-9][0-9]{0,18}")


class _CategoricalDomain(DiscreteDomain):
    """A domain of categories, named or numbered."""

    @abstractmethod
    def find(self, value: object) -> int | None:
        """The index of one value; None if it is not in the domain."""

    def encode(self, value: object) -> int:
        """The index of one value."""
        index = self.find(value)
        if index is None:
            raise DomainError(
                f"{displayed(value)!r} is not one of the {len(self):,} categories.{self._advice([value])}", value=value
            )
        return index

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value."""
        column = as_column(values)
        if isinstance(column, np.ndarray):
            distinct, inverse = np.unique(column, return_inverse=True)
            indices = self._find_all(list(distinct))[inverse]
        else:
            indices = self._find_all(column)
        outside = np.flatnonzero(indices < 0)
        if len(outside):
            examples = distinct_examples(column, outside)
            shown = ", ".join(repr(displayed(value)) for value in examples)
            raise DomainError(
                f"{len(outside):,} of {len(indices):,} values are not in the domain (for example {shown})."
                f"{self._advice(examples)}",
                count=len(outside),
            )
        return indices

    def is_named(self, text: str) -> bool:
        """Whether the string means a category."""
        return self.find(text) is not None

    def _find_all(self, values: list[Any]) -> Indices:
        """The index of each value, -1 if it is not in the domain."""
        indices = (self.find(value) for value in values)
        return np.fromiter((-1 if index is None else index for index in indices), dtype=np.int64, count=len(values))

    def _advice(self, values: list[Any]) -> str:
        """A sentence for the error message: how to avoid values outside the domain; empty if the cause is unclear."""
        if any(map(is_missing, values)):
            return " A missing value belongs to no category: leave it out, or give it a category of its own."
        if others := [value for value in values if not isinstance(value, (str, Decimal)) and not is_number(value)]:
            return (
                " A value is a string, a number or a boolean, not an object of type "
                f"{type(others[0]).__name__}: give the name of a category."
            )
        if any(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values):
            return " The categories have names, so an integer is a value, not an index: give names."
        return ""


@dataclass(frozen=True)
class Categories(_CategoricalDomain):
    """Categories with ``names`` in a fixed public order.

    >>> modes = sdp.Categories.of(["bus", "bike", "car"])
    >>> modes.encode("bike")
    1
    >>> modes.encode_all(["car", "bus"]).tolist()
    [2, 0]
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise DomainError("The domain is empty: name at least one category.")
        for name in self.names:
            if not isinstance(name, str):
                raise DomainError(
                    f"A category must be a string, not {name!r}; numbers are written as strings too, such as '7'.",
                    category=name,
                )
        if len(set(self.names)) < len(self.names):
            name = Counter(self.names).most_common(1)[0][0]
            raise DomainError(f"The category {name!r} appears twice in the domain; name it once.", category=name)

    @classmethod
    def of(cls, names: Iterable[str]) -> Categories:
        """The categories in the order given."""
        if isinstance(names, str):
            raise DomainError(f"Categories are a list of names, not the single string {names!r}.")
        if not isinstance(names, Iterable):
            raise DomainError(f"Categories are a list of names, not an object of type {type(names).__name__}.")
        return cls(tuple(names))

    @classmethod
    def numbered(cls, size: int) -> Categories:
        """Categories "0", "1", ... for a domain of which only the size is given."""
        return cls(tuple(str(i) for i in range(size)))

    def __len__(self) -> int:
        return len(self.names)

    def lookup_names(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _by_canonical_form(self) -> dict[str, int]:
        """The categories whose canonical form no other category has."""
        forms = [canonical_form(name) for name in self.names]
        occurrences = Counter(forms)
        return {form: index for index, form in enumerate(forms) if occurrences[form] == 1}

    def find(self, value: object) -> int | None:
        """The index of the category of this name, or else of the only one with the same canonical form."""
        if isinstance(value, str) and (index := self._by_name.get(value)) is not None:
            return index
        string = string_of(value)
        if string is None:
            return None
        index = self._by_name.get(string)
        return self._by_canonical_form.get(canonical_form(string)) if index is None else index

    def parse(self, text: str) -> str:
        """The name of the category that the string means."""
        return self.names[self.encode(text)]


@dataclass(frozen=True)
class Numbered(_CategoricalDomain):
    """Categories 0 to ``size`` - 1 without names; there may be a billion.

    >>> sdp.Numbered(1000).encode("7")
    7
    """

    size: int

    def __len__(self) -> int:
        return self.size

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers as strings, all of them."""
        return tuple(str(i) for i in range(self.size))

    def lookup_names(self) -> tuple[str, ...]:
        """The numbers as strings, all of them."""
        return self.names

    def find(self, value: object) -> int | None:
        """The value as an index: 3, 3.0 and "3" all mean 3; None if it is not an integer from 0 to ``size`` - 1."""
        string = string_of(value)
        numeral = None if string is None else _NUMERAL.fullmatch(canonical_form(string))
        return int(numeral[0]) if numeral and int(numeral[0]) < self.size else None

    def parse(self, text: str) -> int:
        """The index that the string means."""
        return self.encode(text)

    def encode_all(self, values: Iterable[Any]) -> Indices:
        """The index of each value."""
        column = as_column(values)
        if isinstance(column, np.ndarray) and np.issubdtype(column.dtype, np.integer):
            return check_indices(column, self.size)
        return super().encode_all(column)

    def _advice(self, values: list[Any]) -> str:
        advice = super()._advice([value for value in values if not isinstance(value, (int, np.integer))])
        return f" They are numbered from 0 to {self.size - 1:,}.{advice}"
