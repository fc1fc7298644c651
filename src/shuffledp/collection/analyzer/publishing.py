"""Publishing: one release as JSON, as a table, and as a page. The same round always gives the same bytes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.estimating import Result
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.collection.analyzer.page import release_page
from shuffledp.collection.analyzer.receiving import sync_folder
from shuffledp.output import write_all

__all__ = ["Releases", "published_in", "release_document"]

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_KINDS = ("json", "csv", "html")
_ID = re.compile("[0-9a-f]{64}")


def release_document(result: Result, entry: Entry, confidence: float) -> dict[str, Any]:
    """The documented JSON form: that of ``shuffledp run``, and where it comes from."""
    task, counted = result.task, result.counted
    found: dict[str, Any] = result.estimate.to_json(confidence)
    return found | {
        "task": task.id.hex(),
        "name": task.name,
        "description": task.description,
        "question": task.protocol.question,
        "population": task.population,
        "opens": task.opens.strftime(_TIME),
        "closes": task.closes.strftime(_TIME),
        "manifest": entry.manifest.hex() if entry.manifest else "",
        "reports": result.reports,
        "messages": {"counted": counted.messages, "dummies": counted.dummies, "rejected": counted.refused},
        "rejected": dict(sorted(counted.rejected.items())),
        "budget": {
            "epsilon": entry.budget.epsilon,
            "delta": entry.budget.delta,
            "spent_epsilon": entry.spent_epsilon,
            "releases": entry.releases,
        },
    }


@dataclass(frozen=True)
class Releases:
    """The published results, in a folder. They are public, and keep the access rights that new files get."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        for left in self.folder.glob(".*"):  # of a process that was killed
            left.unlink()

    def publish(self, result: Result, entry: Entry, confidence: float) -> None:
        """Write all forms, durably; they are served once the batch is said to be released."""
        contents = _contents(result, entry, confidence)
        files = {self.file(result.task.id, kind): content for kind, content in contents.items()}
        write_all(files)
        for file in files:
            _sync(file)
        sync_folder(self.folder)

    def file(self, task_id: bytes, kind: str) -> Path:
        """Where a form of a release is: json, csv or html."""
        return self.file_in(self.folder, task_id, kind)

    @staticmethod
    def file_in(folder: Path, task_id: bytes, kind: str) -> Path:
        """Where it is in a folder."""
        return folder / f"{task_id.hex()}.{kind}"

    def read(self, task_id: bytes, kind: str) -> bytes | None:
        """A form of a release, if it is there."""
        try:
            return self.file(task_id, kind).read_bytes()
        except FileNotFoundError:
            return None


def published_in(folder: Path) -> set[bytes]:
    """The tasks whose release is in a folder, whatever the analyzer knows about it; reads only."""
    return {bytes.fromhex(file.stem) for file in folder.glob("*.json") if _ID.fullmatch(file.stem)}


def _contents(result: Result, entry: Entry, confidence: float) -> Mapping[str, bytes]:
    import pyarrow as pa
    import pyarrow.csv

    document = release_document(result, entry, confidence)
    table = pa.BufferOutputStream()
    pa.csv.write_csv(result.estimate.to_table(confidence), table)
    content = (
        json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n",
        table.getvalue().to_pybytes(),
        release_page(result, entry, confidence),
    )
    return dict(zip(_KINDS, content, strict=True))


def _sync(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())
