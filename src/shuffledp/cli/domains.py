"""The public domain of a histogram: bins, periods or categories from the command line, a file or the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shuffledp.domain import Categories, DiscreteDomain
from shuffledp.errors import DomainError, ParameterError
from shuffledp.sessions.domains import histogram_domain
from shuffledp.text_values import parse_number


def binned_domain(
    bins: str | None, by: str | None, lower: str | None, upper: str | None, *, listed: bool
) -> DiscreteDomain | None:
    """The domain of numbers in bins or of dates in periods; None if neither is asked for.

    ``listed`` says that the categories are listed, or taken from the data.
    """
    if bins is None and by is None:
        if lower is not None or upper is not None:
            raise ParameterError("--lower and --upper belong to --bins and --by.")
        return None
    if listed or (bins is not None and by is not None):
        raise ParameterError("Give the domain in one way: listed categories, --bins or --by.")
    edges = None if bins is None else [_edge(edge) for edge in bins.split(",")]
    number = int(edges[0]) if edges is not None and len(edges) == 1 and edges[0].is_integer() else None
    return histogram_domain(bins=edges if number is None else number, by=by, lower=lower, upper=upper)


def _edge(text: str) -> float:
    number = parse_number(text)
    if number is None:
        raise ParameterError(f"--bins is a number of bins or their edges, such as 0,18,65; {text!r} is not a number.")
    return number


def choose_domain(
    listed: str | None, file: Path | None, distinct: Callable[[], Categories] | None = None, other: str | None = None
) -> tuple[Categories, str]:
    """The categories from the one source that is given, and its name: given, file or data (``distinct``).

    A domain without a source is refused: the data must not decide it silently.
    """
    if sum(source is not None for source in (listed, file, distinct)) > 1:
        raise ParameterError("Name the domain once: --domain, --domain-file or --domain-from-data.")
    if listed is not None:
        return _with_other(_listed(listed), other), "given"
    if file is not None:
        return _with_other(_from_file(file), other), "file"
    if distinct is not None:
        return _with_other(distinct(), other), "data"
    raise ParameterError(
        "The domain is missing: which values are possible must be public, since taking them from the data would "
        "reveal rare ones. Use --domain a,b,c or --domain-file FILE, --bins for numbers or --by for dates; "
        "--domain-from-data takes them from the data anyway, outside the guarantee."
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
