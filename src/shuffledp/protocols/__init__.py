"""One file per published protocol, by the question it answers.

Every class of the registry can be imported from here, and is loaded on first use:
``shuffledp.protocols.BalcerCheuHistogram``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shuffledp.protocols.registry import class_names, find_class

if TYPE_CHECKING:
    from shuffledp.protocols.protocol import Protocol


def __getattr__(name: str) -> type[Protocol]:
    if name not in class_names():
        raise AttributeError(f"module 'shuffledp.protocols' has no attribute {name!r}")
    return find_class(name)


def __dir__() -> list[str]:
    return sorted(class_names())
