"""The parts of an analyzer, made from its settings: keys, tasks, budgets, batches, ledger, releaser."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from shuffledp.collection.analyzer.agreement import LEDGER, RELEASES, check_agreement, restore_from_releases
from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.analyzer.directory import check_initialized, mark_existing
from shuffledp.collection.analyzer.ledger import Ledger
from shuffledp.collection.analyzer.publishing import Releases
from shuffledp.collection.analyzer.releasing import Files, Releaser
from shuffledp.collection.analyzer.settings import AnalyzerSettings, read_budgets, read_hidden_strings
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.server.application import Server
from shuffledp.collection.server.batches import Batches
from shuffledp.collection.server.directories import check_directory, lock_directory, make_private
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.server.task_directory import KEPT, log_refused
from shuffledp.collection.server.tls import check_certificate
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.key_command import KeyReader
from shuffledp.collection.wire.keys import SealingKey, VerifyingKey
from shuffledp.extras import check_extra


@dataclass(frozen=True)
class OpenedCounts:
    """How many messages of a batch were opened, and how many of them were rejected, by reason."""

    messages: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, counted: Counted) -> OpenedCounts:
        """With the result of opening further messages."""
        messages = counted.messages + counted.dummies + counted.total_rejected
        return OpenedCounts(self.messages + messages, self.rejected + counted.rejected)


class Analyzer(Server):
    """All parts of an analyzer, apart from its web application."""

    def __init__(self, settings: AnalyzerSettings, *, tick: float = 1.0) -> None:
        super().__init__("analyzer")
        self.settings, self.tick = settings, tick
        self.tasks = check_analyzer(settings)
        make_private(settings.work)
        self._lock = lock_directory(settings.work)
        try:
            self._open(settings)
        except BaseException:
            self._lock.release()
            raise
        messages = self.metrics.counter("messages", "Messages by the result of opening them", ["result"])

        self.opened: dict[bytes, OpenedCounts] = {}
        """The messages that this process has opened in the present attempt at a release, by task."""

        def progress(task_id: bytes, counted: Counted) -> None:
            self.opened[task_id] = self.opened.get(task_id, OpenedCounts()).add(counted)
            messages.labels("counted").inc(counted.messages)
            messages.labels("dummy").inc(counted.dummies)
            for reason, number in counted.rejected.items():
                messages.labels(reason).inc(number)

        self.releaser = Releaser(
            self.tasks,
            self.batches,
            self.ledger,
            self.releases,
            confidence=settings.confidence,
            processes=settings.processes,
            progress=progress,
            stopping=lambda: self.stopping,
            begin=lambda task_id: self.opened.update({task_id: OpenedCounts()}),
            hidden_strings=read_hidden_strings(settings.hidden_strings),
            count_elsewhere=self._count_on_spark if settings.engine == "spark" else None,
        )

    def _count_on_spark(self, task: Task, files: Files) -> Counted:
        from shuffledp.collection.analyzer.cluster import count_on_spark

        self.tasks.key(task)  # refuses a key that cannot be used
        keys = {SealingKey.load(path).public: path for path in self.settings.sealing_keys}
        return count_on_spark(
            task,
            keys.get(task.analyzer, self.tasks.key_file(task)).absolute(),
            files,
            master=self.settings.spark_master or None,
            stopping=lambda: self.stopping,
        )

    def _open(self, settings: AnalyzerSettings) -> None:
        """Check the work directory, and open its ledger, batches and releases."""
        if settings.restore_from_releases:
            restore_from_releases(settings.work, self.tasks)
        for task in sorted(check_agreement(settings.work)):
            event("release-missing", level=logging.ERROR, task=task.hex())
        mark_existing(settings.work)
        self.ledger = Ledger(settings.work / LEDGER)
        self.batches = Batches(settings.work, self.ledger.manifest)
        self.releases = Releases(settings.work / RELEASES)
        if any(True for _ in self.tasks.series):  # read again, so that each is reserved or refused
            self.tasks = tasks_of(settings)
            self.tasks.attach(self.ledger, self._has_batch)
            self.tasks.load()
        self.tasks.attach(self.ledger, self._has_batch)
        self.tasks.keep_copies()
        log_refused(self.tasks.refused)

    def _has_batch(self, task_id: bytes) -> bool:
        return self.batches.get(task_id) is not None

    def close(self) -> None:
        """Close all files and release the lock of the work directory."""
        self.batches.close()
        self.ledger.close()
        self._lock.release()


def check_analyzer(settings: AnalyzerSettings) -> AnalyzerTasks:
    """Check everything that the settings name, without changes, and return the tasks.

    Invalid tasks do not fail the check; they are listed in ``refused``.
    """
    tasks = tasks_of(settings)
    if settings.engine == "spark":
        check_extra("spark", "Opening messages on a cluster", "pyspark", "pyarrow")
    check_certificate(settings.tls_certificate, settings.tls_key)
    read_hidden_strings(settings.hidden_strings)
    check_directory(settings.work)
    check_initialized(settings.work)
    tasks.load()
    return tasks


def tasks_of(settings: AnalyzerSettings, *, kept: Path | None = None) -> AnalyzerTasks:
    """The tasks, whose files have not been read yet; ``kept`` has copies of documents, by default those in ``work``."""
    reader = KeyReader(settings.key_command)
    keys = [reader.sealing(path) for path in settings.sealing_keys]
    authors = [VerifyingKey.load(path) for path in settings.authors]
    if settings.round_keys is not None:
        check_directory(settings.round_keys)
    signer = None if settings.signing_key is None else reader.signing(settings.signing_key)
    round_keys = RoundKeyDirectory(settings.round_keys, reader, signer)
    return AnalyzerTasks(
        settings.tasks, authors, keys, read_budgets(settings.budgets), round_keys, kept=kept or settings.work / KEPT
    )
