"""An analyzer from its settings: keys, tasks, budgets, batches, ledger, and what makes releases."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shuffledp.collection.analyzer.ledger import Ledger
from shuffledp.collection.analyzer.publishing import Releases
from shuffledp.collection.analyzer.receiving import Batches
from shuffledp.collection.analyzer.releasing import Releaser
from shuffledp.collection.analyzer.settings import AnalyzerSettings, read_budgets
from shuffledp.collection.analyzer.tallying import Counted
from shuffledp.collection.analyzer.tasks import AnalyzerTasks
from shuffledp.collection.keys import SealingKey, VerifyingKey
from shuffledp.collection.service.metrics import Metrics
from shuffledp.collection.service.settings import read_secret
from shuffledp.errors import DataError

__all__ = ["Analyzer", "check_analyzer"]


class Analyzer:
    """Everything that an analyzer consists of, apart from its web application."""

    def __init__(self, settings: AnalyzerSettings, *, tick: float = 1.0) -> None:
        self.settings, self.tick = settings, tick
        self.tasks = check_analyzer(settings)
        self._lock = _Lock.take(settings.work)
        self.metrics = Metrics("analyzer")
        self.batches = Batches(settings.work)
        self.ledger = Ledger(settings.work / "ledger.db")
        self.releases = Releases(settings.work / "releases")
        self.stopping = False
        self._when_stopping: list[Callable[[], None]] = []
        messages = self.metrics.counter("messages", "Messages by what they were found to be", ["result"])

        def progress(counted: Counted) -> None:
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
        )

    def when_stopping(self, action: Callable[[], None]) -> None:
        """Have something done when the server is asked to stop."""
        self._when_stopping.append(action)

    def stop(self) -> None:
        """Take no more chunks, and break off what can be done again."""
        self.stopping = True
        for action in self._when_stopping:
            action()

    def close(self) -> None:
        """Let go of all files."""
        self.batches.close()
        self.ledger.close()
        self._lock.release()


def check_analyzer(settings: AnalyzerSettings) -> AnalyzerTasks:
    """The tasks, if everything that the settings name is there and in order."""
    keys = [SealingKey.load(path) for path in settings.sealing_keys]
    authors = [VerifyingKey.load(path) for path in settings.authors]
    budgets = read_budgets(settings.budgets)
    if settings.tls_key is not None:
        read_secret(settings.tls_key)
    if not settings.work.is_dir():
        raise DataError(f"There is no folder {settings.work}; create it.", path=str(settings.work))
    if not os.access(settings.work, os.W_OK):
        raise DataError(f"The folder {settings.work} cannot be written.", path=str(settings.work))
    tasks = AnalyzerTasks(settings.tasks, authors, keys, budgets)
    tasks.load()
    return tasks


@dataclass(frozen=True)
class _Lock:
    """One analyzer at a time works in a folder; the lock ends with its process."""

    file: Any

    @classmethod
    def take(cls, folder: Path) -> _Lock:
        file = (folder / "lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise DataError(f"Another analyzer works in {folder}; each needs a folder of its own.") from None
        return cls(file)

    def release(self) -> None:
        self.file.close()
