"""All protocols by question and name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shuffledp.errors import UnknownNameError
from shuffledp.protocols.counting.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram

if TYPE_CHECKING:
    Entry = type[BalcerCheuCount] | type[BalcerCheuHistogram]

__all__ = ["PROTOCOLS", "find", "find_qualified"]

PROTOCOLS: dict[str, dict[str, Entry]] = {
    "count": {BalcerCheuCount.name: BalcerCheuCount},
    "histogram": {BalcerCheuHistogram.name: BalcerCheuHistogram},
}


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
