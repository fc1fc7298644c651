"""Paths and patterns of data files: the files that they name, without duplicates."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shuffledp.errors import DataError, ParameterError

STANDARD_INPUT = "-"
Paths = str | Path | Sequence[str | Path]
_STATUS = {
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
    stat.S_ISDIR: "a directory",
}


@dataclass(frozen=True)
class DataFile:
    """A file of data, or standard input."""

    path: Path | None
    """None for standard input."""

    @property
    def name(self) -> str:
        """The name for messages."""
        return "standard input" if self.path is None else str(self.path)

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name in lower case."""
        return [] if self.path is None else [suffix.lower() for suffix in self.path.suffixes]

    @cached_property
    def size(self) -> int:
        """The number of bytes; 0 for standard input."""
        return 0 if self.path is None else self.path.stat().st_size

    def identity(self) -> tuple[int, ...] | None:
        """Device, inode, size and time of change; None for standard input. Raises DataError if it cannot be read."""
        if self.path is None:
            return None
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise self.error("there is no such file") from None
        except OSError as error:
            raise self.error(error.strerror or "the operating system refused access") from None
        except ValueError:
            raise self.error("that is not a valid path") from None
        if not stat.S_ISREG(status.st_mode):
            kind = next((kind for is_kind, kind in _STATUS.items() if is_kind(status.st_mode)), "something else")
            advice = "" if stat.S_ISDIR(status.st_mode) else "; to read from a pipe, use standard input (-)"
            raise self.error(f"it is not a file but {kind}{advice}")
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def error(self, reason: str) -> DataError:
        """The error that this file cannot be read."""
        return DataError(f"Cannot read {self.name}: {reason}.", path=self.name)


def data_files(paths: Paths) -> list[DataFile]:
    """The files in the order given; those of a pattern such as ``data/*.csv`` are sorted by name.

    A file that is named twice is refused, since its users would count twice.
    """
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not listed:
        raise ParameterError("There is no file to read: name at least one.")
    files = [file for path in listed for file in _matching(path)]
    identities: dict[tuple[int, ...] | None, str] = {}
    for file in files:
        identity = file.identity()
        key = identity if identity is None else identity[:2]
        if key in identities:
            same = "" if identities[key] == file.name else f" (it is also {identities[key]})"
            raise ParameterError(f"{file.name} is named twice{same}: its users would count twice.", path=file.name)
        identities[key] = file.name
    return files


def files_shown(files: Sequence[DataFile]) -> str:
    """The name of a single file, or the number of files, for messages."""
    return files[0].name if len(files) == 1 else f"{len(files):,} files"


def _matching(path: str | Path) -> Iterator[DataFile]:
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"A file is named by a string or a path, not by an object of type {type(path).__name__}.")
    if path == STANDARD_INPUT:
        yield DataFile(None)
        return
    pattern = str(path)
    if not glob.has_magic(pattern) or os.path.lexists(pattern):
        yield DataFile(Path(pattern))
        return
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - patterns may be absolute
    if not matches:
        raise DataError(f"No file matches {pattern}.", path=pattern)
    yield from (DataFile(Path(match)) for match in matches)
