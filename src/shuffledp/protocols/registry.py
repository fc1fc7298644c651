"""All protocols by question and name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from shuffledp.errors import UnknownNameError

__all__ = ["PROTOCOLS", "Entry", "find", "find_qualified"]

Entry = Any
"""The class of a protocol: with ``calibrate`` and everything of shuffledp.model.Protocol."""


class _Shelf(Mapping[str, Entry]):
    """Protocols of one question by name, each loaded from its file on first use."""

    def __init__(self, homes: dict[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> Entry:
        module, _, kind = self._homes[name].rpartition(".")
        return getattr(import_module(f"shuffledp.protocols.{module}"), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


PROTOCOLS: Mapping[str, Mapping[str, Entry]] = {
    "count": _Shelf(
        {
            "balcer-cheu": "counting.balcer_cheu.BalcerCheuCount",
        }
    ),
    "histogram": _Shelf(
        {
            "balcer-cheu": "histogram.balcer_cheu.BalcerCheuHistogram",
            "k-rr": "histogram.k_rr.KRandomizedResponse",
        }
    ),
    "sum": _Shelf(
        {
            "duchi": "summing.duchi.DuchiSum",
        }
    ),
}
"""By question and name; a new protocol is one line here."""


def find(question: str, name: str) -> Entry:
    """The protocol of that name for that question."""
    name = name.removeprefix(f"{question}/")
    named = PROTOCOLS.get(question)
    if named is None:
        raise UnknownNameError(f"There is no question {question!r}; choose one of {', '.join(PROTOCOLS)}.")
    if name not in named:
        raise UnknownNameError(
            f"There is no protocol {name!r} for a {question}; choose one of {', '.join(named)}.",
            question=question,
            protocol=name,
        )
    return named[name]


def find_qualified(name: str) -> Entry:
    """The protocol named ``question/name``, or ``name`` where that says enough."""
    question, slash, rest = name.partition("/")
    if slash:
        return find(question, rest)
    homes = [question for question, named in PROTOCOLS.items() if name in named]
    if len(homes) == 1:
        return PROTOCOLS[homes[0]][name]
    if homes:
        choices = " or ".join(f"{question}/{name}" for question in homes)
        raise UnknownNameError(f"{name} answers several questions; say {choices}.", protocol=name)
    known = ", ".join(f"{question}/{each}" for question, named in PROTOCOLS.items() for each in named)
    raise UnknownNameError(f"There is no protocol {name!r}; choose one of {known}.", protocol=name)
