"""Atomic writing of files: all of them completely, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from shuffledp.errors import OutputError


def check_writable(path: str | Path) -> Path:
    """Refuse, before any work is done, a path that cannot be written."""
    target = Path(path)
    directory = target.parent
    if target.is_dir():
        raise OutputError(f"Cannot write {target}: it is a directory; name a file.", path=str(target))
    if not directory.is_dir():
        raise OutputError(
            f"Cannot write {target}: there is no directory {directory}; create it first.", path=str(target)
        )
    if not os.access(directory, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise OutputError(f"Cannot write {target}: permission denied.", path=str(target))
    return target


def write_whole(path: str | Path, content: bytes) -> None:
    """Write one file atomically: readers never see a part of it."""
    write_all({Path(path): content})


def write_all(contents: Mapping[Path, bytes | Iterable[bytes]]) -> None:
    """Write all files or none: each to a temporary file beside its target, then all are renamed.

    Contents may be iterables of pieces, of which one at a time is in memory.
    """
    targets = [Path(os.path.realpath(check_writable(path))) for path in contents]
    temporaries: list[str] = []
    target = targets[0] if targets else Path()
    try:
        for target, content in zip(targets, contents.values(), strict=True):
            temporaries.append(_write_beside(target, content))
        for target, temporary in zip(targets, temporaries, strict=True):
            os.replace(temporary, target)
    except OSError as error:
        raise OutputError(f"Cannot write {target}: {error.strerror or error}.", path=str(target)) from None
    finally:
        for temporary in temporaries:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _write_beside(target: Path, content: bytes | Iterable[bytes]) -> str:
    """Write a temporary file beside the target, with the mode that the target has or would get; returns its name."""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
        os.chmod(name, mode)
    except BaseException:
        os.unlink(name)
        raise
    return name


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
