"""The public domain of a histogram: listed on the command line, read from a file, or taken from the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shuffledp.domain import Categories
from shuffledp.errors import DomainError, ParameterError


@dataclass(frozen=True)
class ChosenDomain:
    """The categories, and their source: ``given`` on the command line, a ``file``, or the ``data``."""

    categories: Categories
    source: str


def choose_domain(
    listed: str | None, file: Path | None, distinct: Callable[[], Categories] | None = None, other: str | None = None
) -> ChosenDomain:
    """The domain from the one source that is given; ``distinct`` takes it from the data.

    None is refused: the data must not decide the domain silently.
    """
    if sum(source is not None for source in (listed, file, distinct)) > 1:
        raise ParameterError("Name the domain once: --domain, --domain-file or --domain-from-data.")
    if listed is not None:
        return ChosenDomain(_with_other(_listed(listed), other), "given")
    if file is not None:
        return ChosenDomain(_with_other(_from_file(file), other), "file")
    if distinct is not None:
        return ChosenDomain(_with_other(distinct(), other), "data")
    raise ParameterError(
        "The domain is missing: which values are possible must be public, since taking them from the data would "
        "reveal rare ones. Use --domain a,b,c or --domain-file FILE; --domain-from-data takes them from the data "
        "anyway, outside the guarantee."
    )


def _listed(listed: str) -> Categories:
    names = [name.strip() for name in listed.split(",")]
    if not all(names):
        raise DomainError(f"The domain {listed!r} has an empty name between its commas.")
    return Categories.of(names)


def _from_file(path: Path) -> Categories:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DomainError(f"Cannot read the domain file {path}: {reason}.", path=str(path)) from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise DomainError(f"The domain file {path} names no category; put one on each line.", path=str(path))
    return Categories.of(names)


def _with_other(categories: Categories, other: str | None) -> Categories:
    if other is not None and not other.strip():
        raise DomainError("The category for other values needs a name; --other is empty.")
    if other is None or other in categories.names:
        return categories
    return Categories.of([*categories.names, other])
