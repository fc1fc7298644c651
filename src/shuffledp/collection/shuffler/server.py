"""A shuffler from its settings: keys, tasks, store, and what looks after the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from shuffledp.collection.keys import SigningKey, VerifyingKey
from shuffledp.collection.service.folders import FolderLock, check_folder
from shuffledp.collection.service.metrics import Metrics
from shuffledp.collection.service.settings import read_secret
from shuffledp.collection.shuffler.book import TaskBook
from shuffledp.collection.shuffler.delivery import Delivery, trust
from shuffledp.collection.shuffler.enrolment import TokenFolder
from shuffledp.collection.shuffler.ingest import Ingest
from shuffledp.collection.shuffler.rate import RateLimit
from shuffledp.collection.shuffler.release import Releaser
from shuffledp.collection.shuffler.room import Room
from shuffledp.collection.shuffler.rounds import RoundKeeper
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.store.interface import Store
from shuffledp.collection.store.location import is_shared, open_store
from shuffledp.errors import DataError

__all__ = ["Shuffler", "check_shuffler", "store_of"]

_MEGABYTE = 1 << 20


class Shuffler:
    """Everything that a shuffler consists of, apart from its web application."""

    def __init__(
        self,
        settings: ShufflerSettings,
        *,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
        tick: float = 1.0,
    ) -> None:
        key, self.book = check_shuffler(settings)
        self.settings, self.clock = settings, clock
        self._lock = FolderLock(settings.work)
        self.metrics = Metrics("shuffler")
        self.store = store_of(settings) if store is None else store
        self._stopping = False
        self._when_stopping: list[Callable[[], None]] = []
        self.tokens = TokenFolder(settings.enrolment) if settings.enrolment is not None else None
        self.rate = RateLimit(settings.reports_per_second, settings.burst)
        self.room = Room(
            most_reports=settings.waiting_reports,
            most_bytes=settings.waiting_megabytes * _MEGABYTE,
            patience=settings.waiting_seconds,
        )
        self.ingest = Ingest(self.store, self.metrics)
        releaser = Releaser(
            self.store, key, settings.work, settings.permutation_megabytes * _MEGABYTE, lambda: self._stopping
        )
        delivery = Delivery(settings.analyzer, settings.analyzer_ca, settings.delivery_seconds, lambda: self._stopping)
        self.keeper = RoundKeeper(
            self.book, self.store, releaser, delivery, self.metrics, tokens=self.tokens, clock=clock, tick=tick
        )
        self.keeper.open_rounds()

    def close(self) -> None:
        """Let go of the store and the work folder."""
        self.store.close()
        self._lock.release()

    def when_stopping(self, action: Callable[[], None]) -> None:
        """Have something done when the server is asked to stop."""
        self._when_stopping.append(action)

    def stop(self) -> None:
        """Take no more reports, and break off what can be done again."""
        self._stopping = True
        for action in self._when_stopping:
            action()


def check_shuffler(settings: ShufflerSettings) -> tuple[SigningKey, TaskBook]:
    """The key and the tasks, if everything that the settings name is there and in order."""
    key = SigningKey.load(settings.signing_key)
    authors = [VerifyingKey.load(path) for path in settings.authors]
    if settings.analyzer.startswith("https:"):
        trust(settings.analyzer_ca)
    if settings.store_dsn_file is not None:
        _read_address(settings.store_dsn_file)
    if settings.tls_key is not None:
        read_secret(settings.tls_key)
    for folder in filter(None, (settings.work, settings.enrolment)):
        check_folder(folder)
    book = TaskBook(settings.tasks, authors, key.public)
    book.load()
    return key, book


def store_of(settings: ShufflerSettings) -> Store:
    """The store that the settings name."""
    if settings.store_dsn_file is not None:
        return open_store(_read_address(settings.store_dsn_file))
    return open_store(str(settings.store_folder))


def _read_address(file: Path) -> str:
    address = read_secret(file)
    if not is_shared(address):
        raise DataError(f"{file} must hold the address of a database: postgresql://...", path=str(file))
    return address
