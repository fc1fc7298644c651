"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from shuffledp.errors import OutputError

__all__ = ["check_writable", "write_whole"]


def check_writable(path: str | Path) -> Path:
    """Refuse, before any work is done, a path that cannot be written."""
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise OutputError(f"Cannot write {target}: it is a folder; name a file.", path=str(target))
    if not folder.is_dir():
        raise OutputError(f"Cannot write {target}: there is no folder {folder}; create it first.", path=str(target))
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise OutputError(f"Cannot write {target}: permission denied.", path=str(target))
    return target


def write_whole(path: str | Path, content: bytes) -> None:
    """Write to a temporary file beside the target, then rename: readers never see half a file."""
    target = check_writable(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = file.name
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise OutputError(f"Cannot write {target}: {error.strerror or error}.", path=str(target)) from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
