"""Consistency of an analyzer's directory: the ledger, the states of batches, the releases and the chunks agree.

Every release is entered into the ledger before it is published, and every batch is recorded before its chunks are
stored, so the four agree after any crash. If they do not, data was lost or restored from an older copy. If the
ledger lacks releases, their spent budget would be lost, so the analyzer refuses to start. The operator can restore the
entries: the published releases name their tasks, and the tasks state the cost of each release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.ledger import Entry, Ledger, entries_in
from shuffledp.collection.analyzer.publishing import Releases, published_in
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.server.batches import (
    Batch,
    BatchState,
    ExpectedBatch,
    batches_in,
    restore_batches,
    signed_manifest_in,
    tasks_with_chunks,
)
from shuffledp.collection.server.databases import database_version
from shuffledp.collection.server.logs import event
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import digest
from shuffledp.errors import DataError, ParameterError

LEDGER, RELEASES = "ledger.db", "releases"
_REMEDY = "restore the backup of the whole directory, or start once with restore_from_releases = true"


@dataclass(frozen=True)
class _WorkDirectory:
    """The tasks that each part of a work directory lists."""

    entries: dict[bytes, Entry]
    batches: dict[bytes, Batch]
    released: frozenset[bytes]
    """Tasks whose batch is in the state ``released``, or whose release is published."""
    published: frozenset[bytes]
    chunks: frozenset[bytes]
    """Tasks with chunks on the disk."""

    @classmethod
    def read(cls, work: Path) -> _WorkDirectory:
        """Read all parts, even while an analyzer runs.

        The parts that a task enters last are read first, so a task that advances meanwhile is not reported as lost.
        """
        chunks, published = tasks_with_chunks(work), published_in(work / RELEASES)
        released = {task for task, batch in batches_in(work).items() if batch.state is BatchState.RELEASED}
        entries = entries_in(work / LEDGER)
        return cls(entries, batches_in(work), frozenset(released | published), frozenset(published), frozenset(chunks))

    def without_entry(self) -> set[bytes]:
        """Released, but without an entry in the ledger."""
        return set(self.released - set(self.entries))

    def without_batch(self) -> set[bytes]:
        """In the ledger or on the disk, but without a recorded state, so that another batch would be accepted."""
        decided = {task for task, entry in self.entries.items() if task in self.published or not entry.granted}
        return (decided | self.chunks) - set(self.batches)

    def contradictory(self) -> set[bytes]:
        """Released although the ledger refused it, or the ledger names another manifest than the batch has."""
        tasks = {task for task in self.released if task in self.entries and not self.entries[task].granted}
        for task, batch in self.batches.items():
            entry = self.entries.get(task)
            if entry is not None and entry.manifest and entry.manifest != batch.manifest:
                tasks.add(task)
        return tasks


def check_agreement(work: Path) -> set[bytes]:
    """Refuse a work directory whose parts do not agree, and say how to repair it.

    Releases whose files are lost do not affect the budget; their tasks are returned.
    """
    contents = _WorkDirectory.read(work)
    _refuse_contradictory(contents, work)
    if lost := contents.without_entry():
        raise DataError(
            f"{work / LEDGER} lacks {len(lost):,} of the releases that were made, so that their spent budget "
            f"would be lost: {_REMEDY}."
        )
    if lost := contents.without_batch():
        raise DataError(f"{work / 'analyzer.db'} lacks {len(lost):,} of the batches that were received: {_REMEDY}.")
    if not has_ledger(work):
        raise DataError(_no_ledger(work))
    return set(contents.released - contents.published)


def _no_ledger(work: Path) -> str:
    return (
        f"There is no ledger {work / LEDGER}, and no release from which it could be restored, so that the spent "
        "budget would be lost: restore the backup of the whole directory."
    )


def has_ledger(work: Path) -> bool:
    """Whether there is a ledger with its tables, however few entries it has: every initialized directory has one."""
    try:
        return database_version(work / LEDGER) > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True  # damaged, which opening it reports


def restore_from_releases(work: Path, tasks: AnalyzerTasks) -> None:
    """Restore missing entries of the ledger from the published releases, and missing states of batches."""
    contents = _WorkDirectory.read(work)
    _refuse_contradictory(contents, work)
    lost = contents.without_entry()
    if not lost and not has_ledger(work):
        raise DataError(_no_ledger(work))
    documents = {task: _document(Releases.file_in(work / RELEASES, task, "json")) for task in lost & contents.published}
    needed = {task: _task(tasks, task) for task in lost | (contents.without_batch() & contents.chunks)}
    ledger = Ledger(work / LEDGER)
    try:
        for task in sorted(lost, key=lambda task: (documents[task].position if task in documents else 1 << 62, task)):
            batch, document = contents.batches.get(task), documents.get(task)
            manifest = batch.manifest if batch else document.manifest if document else b""
            budget = document.budget if document else tasks.budget(needed[task])
            series = tasks.series_of(needed[task])
            if series is not None:
                ledger.reserve_series(series, budget, is_past=True)
            ledger.enter_past_release(needed[task], budget, manifest)
            event("restored", task=task.hex(), what="ledger")
    finally:
        ledger.close()
    contents = _WorkDirectory.read(work)
    lost_batches = sorted(contents.without_batch())
    restore_batches(work, [_lost_batch(contents, task, work, needed.get(task)) for task in lost_batches])
    for task in lost_batches:
        event("restored", task=task.hex(), what="batch")


def _refuse_contradictory(contents: _WorkDirectory, work: Path) -> None:
    if tasks := contents.contradictory():
        raise DataError(
            f"The ledger and the batches in {work} contradict each other about {len(tasks):,} tasks: they are "
            "not from the same backup. Restore the backup of the whole directory."
        )


def _lost_batch(contents: _WorkDirectory, task_id: bytes, work: Path, task: Task | None) -> Batch:
    """The state that a lost batch must have had."""
    entry = contents.entries.get(task_id)
    manifest = (entry.manifest if entry else None) or b""
    if task_id in contents.published:
        return Batch(task_id, BatchState.RELEASED, manifest, 0, "")
    if entry is not None and not entry.granted:
        return Batch(task_id, BatchState.REFUSED, manifest, 0, entry.reason)
    try:
        content = signed_manifest_in(work, task_id)
        read = ExpectedBatch.of_last(task).read(content) if task else None
    except (OSError, ParameterError):
        content, read = b"", None
    if read is None or manifest not in (b"", digest(content)):
        raise DataError(f"The manifest of the batch {task_id.hex()} is missing or was replaced: restore the backup.")
    return Batch(task_id, BatchState.RECEIVING, digest(content), len(read.chunks), "")


def _task(tasks: AnalyzerTasks, task_id: bytes) -> Task:
    task = tasks.get(task_id)
    if task is None:
        raise DataError(
            f"The task {task_id.hex()} is needed to restore its release: put its file back into the task directory."
        )
    return task


@dataclass(frozen=True)
class _Published:
    """The fields of a published release from which its entry in the ledger is restored."""

    budget: PopulationBudget
    position: int
    """Its number among the releases about the population."""
    manifest: bytes


def _document(file: Path) -> _Published:
    try:
        document: Any = json.loads(file.read_bytes())
        budget = document["budget"]
        allowed = PopulationBudget(float(budget["epsilon"]), float(budget["delta"]))
        return _Published(allowed, int(budget["releases"]), bytes.fromhex(document.get("manifest", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{file} is not a valid release: restore it from the backup.", path=str(file)) from None
