"""Writing a result as JSON, CSV or Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shuffledp.errors import OutputError
from shuffledp.output import check_writable, write_whole

__all__ = ["FORMATS", "check_result_path", "write_result"]

FORMATS = (".json", ".csv", ".parquet")


def check_result_path(path: Path) -> None:
    """Refuse, before any work is done, a result that cannot be written."""
    check_writable(path)
    if path.suffix.lower() not in FORMATS:
        raise OutputError(
            f"Cannot write {path}: a result ends in {', '.join(FORMATS)}, not {path.suffix or 'nothing'!r}."
        )


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write the JSON result whole; as a table if the name asks for one."""
    if path.suffix.lower() == ".json":
        write_whole(path, json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        return
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    table = pa.table(_columns(result))
    if path.suffix.lower() == ".csv":
        import pyarrow.csv

        pa.csv.write_csv(table, sink)
    else:
        import pyarrow.parquet

        pa.parquet.write_table(table, sink)
    write_whole(path, sink.getvalue().to_pybytes())


def _columns(result: dict[str, Any]) -> dict[str, list[Any]]:
    if "categories" in result:
        lower, upper = zip(*result["intervals"], strict=True)
        return {
            "category": result["categories"],
            "count": result["counts"],
            "standard_error": result["standard_errors"],
            "lower": list(lower),
            "upper": list(upper),
        }
    lower, upper = result["interval"]
    return {
        "value": [result["value"]],
        "standard_error": [result["standard_error"]],
        "lower": [lower],
        "upper": [upper],
    }
