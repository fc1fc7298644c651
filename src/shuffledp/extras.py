"""Optional packages: importing them, with one error line that names the extra to install when one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from shuffledp.errors import MissingPackageError


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import packages of the extra ``name`` inside this block.

    A missing one raises MissingPackageError, which says what it is needed for and how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "shuffledp"):
            raise
        raise _missing(name, purpose, package) from None


def check_extra(name: str, purpose: str, *packages: str) -> None:
    """Raise MissingPackageError if one of the packages is not installed; imports none of them."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(name, purpose, package)


def _missing(name: str, purpose: str, package: str) -> MissingPackageError:
    return MissingPackageError(
        f"{purpose} needs {package}: pip install 'shuffledp[{name}]'.", package=package, extra=name
    )
