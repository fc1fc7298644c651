"""Content of the test vector files, one module per file; all content is derived from fixed labels."""

from typing import Any

__all__ = ["Document"]

Document = dict[str, Any]
