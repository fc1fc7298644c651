"""Writing a result as JSON, CSV or Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shuffledp.errors import OutputError
from shuffledp.extras import check_extra, extra
from shuffledp.output import check_writable

__all__ = ["FORMATS", "check_result_path", "result_content"]

FORMATS = (".json", ".csv", ".parquet")
_PURPOSE = "Writing a CSV or Parquet file"


def check_result_path(path: Path) -> None:
    """Refuse, before any work is done, a result that cannot be written."""
    check_writable(path)
    if path.suffix.lower() not in FORMATS:
        raise OutputError(
            f"Cannot write {path}: a result ends in {', '.join(FORMATS)}, not {path.suffix or 'nothing'!r}."
        )
    if path.suffix.lower() != ".json":
        check_extra("files", _PURPOSE, "pyarrow")


def result_content(suffix: str, result: dict[str, Any], table: Any) -> bytes:
    """The result as the content of a file with that suffix: all of it as JSON, or its numbers as a table."""
    if suffix == ".json":
        return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    with extra("files", _PURPOSE):
        import pyarrow as pa

    sink = pa.BufferOutputStream()
    if suffix == ".csv":
        import pyarrow.csv

        pa.csv.write_csv(table, sink)
    else:
        import pyarrow.parquet

        pa.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content
