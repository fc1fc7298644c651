"""Durable files: atomic writes, directory synchronization, locks; reading files of bounded size, and TOML."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from shuffledp.errors import DataError, ParameterError


def write_durably(
    path: Path,
    content: bytes | Iterable[bytes | memoryview],
    *,
    mode: int = 0o600,
    temporary: Path | None = None,
    replace: bool = True,
    preserve_access: bool = False,
) -> None:
    """Write a file so that it appears complete and survives a power failure, or does not appear at all.

    The content, which may come in parts, goes to a temporary file beside the target, is synchronized and renamed, and
    the directory is synchronized. Without ``replace``, FileExistsError if the file exists. With ``preserve_access``
    an existing file keeps its owner and mode, and a new one gets exactly ``mode``, whatever the umask.
    """
    temporary = temporary or path.with_name(f".{path.name}.{threading.get_native_id()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            if preserve_access:
                _copy_access(path, file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # unlike a rename this fails if the target exists
            os.unlink(temporary)
    except Exception:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def _copy_access(path: Path, descriptor: int, mode: int) -> None:
    try:
        existing = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, mode)
        return
    with suppress(PermissionError):
        os.fchown(descriptor, existing.st_uid, existing.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable: files created, renamed or deleted in it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_directory(directory: Path, *, mode: int = 0o700) -> None:
    """Create a directory and its missing parents, each durable in its own parent."""
    if directory.is_dir():
        return
    create_directory(directory.parent, mode=mode)
    directory.mkdir(mode=mode, exist_ok=True)
    sync_directory(directory.parent)


class FileLock:
    """An exclusive lock (flock) on a file, which is created, or on a directory.

    It is held until it is released or the process ends. Without ``wait``, BlockingIOError if it is already locked.
    """

    def __init__(self, path: Path, *, wait: bool = True) -> None:
        if path.is_dir():
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def read_limited(path: Path, limit: int, kind: str) -> bytes:
    """The content of a file of at most ``limit`` bytes; DataError if it is larger or cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise DataError(f"Cannot read the {kind} {path}: {error.strerror or error}.", path=str(path)) from None
    if len(content) > limit:
        raise DataError(f"{path} is too large for a {kind}; the limit is {limit:,} bytes.", path=str(path))
    return content


def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """The document of these bytes of TOML, whose integers have 64 bits at most; ParameterError if it is not valid."""
    import tomllib  # programs that read no settings do not load it

    try:
        document = tomllib.loads(content.decode())
        _check_integers(document)
    except (ValueError, RecursionError) as error:  # of bytes, of TOML, or of an integer of thousands of digits
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ParameterError(f"{name} is not valid TOML: {' '.join(reason.split()).rstrip('.')}.") from None
    return document


def _check_integers(value: Any) -> None:
    """ValueError if there is an integer of more than 64 bits, which TOML excludes and no float may be able to hold."""
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError(f"an integer has {value.bit_length():,} bits, more than 64")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_integers(part)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError for anything else, since reading a pipe would block."""
    _require_regular(path.stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _require_regular(os.fstat(descriptor))  # it may have been replaced
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
