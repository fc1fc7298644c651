"""What the files of test vectors hold, a module a file; everything in them follows from fixed labels."""

from typing import Any

__all__ = ["Document"]

Document = dict[str, Any]
