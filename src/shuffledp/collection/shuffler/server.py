"""The parts of a shuffler, made from its settings: key, tasks, store, and the scheduler of rounds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from shuffledp.collection.server.application import Server
from shuffledp.collection.server.batches import Batches
from shuffledp.collection.server.bodies import MemoryLimit
from shuffledp.collection.server.directories import check_directory, lock_directory
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.server.settings import read_secret
from shuffledp.collection.server.task_directory import KEPT, log_refused
from shuffledp.collection.server.tls import check_certificate
from shuffledp.collection.shuffler.admission import Admissions, Enrolled, Everybody, Issued
from shuffledp.collection.shuffler.clock import RoundClock
from shuffledp.collection.shuffler.commit_queue import CommitQueue
from shuffledp.collection.shuffler.delivery import Delivery
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.ingest import IngestScheduler
from shuffledp.collection.shuffler.intake import RateLimit
from shuffledp.collection.shuffler.operator import ShufflerOperator
from shuffledp.collection.shuffler.rounds import RoundScheduler
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.shuffler.shuffling import RoundShuffler
from shuffledp.collection.shuffler.store import check_store, is_shared, open_store
from shuffledp.collection.shuffler.store.interface import Store, UnreachableStoreError
from shuffledp.collection.shuffler.tasks import ServedTask, ShufflerTasks
from shuffledp.collection.shuffler.traps import TrapDirectory
from shuffledp.collection.transport.connection import backoff_seconds, tls_context
from shuffledp.collection.wire.key_command import KeyReader
from shuffledp.collection.wire.keys import SigningKey, VerifyingKey
from shuffledp.collection.wire.privacy_pass import TokenIssuer
from shuffledp.errors import DataError, ParameterError

Result = TypeVar("Result")

_MEGABYTE = 1 << 20
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 5.0
_ATTEMPTS_PER_LOG_LINE = 12
_TRAPS = ".traps"
_RECEIVED = ".received"  # the directory of batches of shufflers before this one


class Shuffler(Server):
    """All parts of a shuffler, apart from its web application."""

    def __init__(
        self,
        settings: ShufflerSettings,
        *,
        store: Store | None = None,
        clock: Callable[[], float] | None = None,
        tick: float = 1.0,
    ) -> None:
        super().__init__("shuffler")
        key, self.tasks = check_shuffler(settings)
        log_refused(self.tasks.refused)
        self.settings = settings
        self._lock = lock_directory(settings.work)
        self.clock = clock or RoundClock(settings.work / ".clock")
        if isinstance(self.clock, RoundClock):
            self.clock.export(self.metrics)
        is_new = settings.store_folder is not None and not (settings.store_folder / "index.db").exists()
        self.store = open_when_reachable(settings) if store is None else store
        if is_new and store is None:
            event("store-created", level=logging.WARNING)
        self.tokens = TokenDirectory(settings.enrolment) if settings.enrolment is not None else None
        self.admissions = _admissions(settings, self.tokens)
        self.rate = RateLimit(settings.reports_per_second, settings.burst)
        self.memory = MemoryLimit(
            max_reports=settings.waiting_reports,
            max_bytes=settings.waiting_megabytes * _MEGABYTE,
            wait_seconds=settings.waiting_seconds,
        )
        self.commit_queue = CommitQueue(self.store, self.metrics)
        self.received: Batches | None = None
        round_shuffler: RoundShuffler | None = None
        self.scheduler: RoundScheduler | IngestScheduler
        if isinstance(key, SigningKey):
            received = settings.work / _RECEIVED
            received.mkdir(mode=0o700, exist_ok=True)
            (settings.work / _TRAPS).mkdir(mode=0o700, exist_ok=True)
            self.received = Batches(received, states="batches.db")
            round_shuffler, self.scheduler = self._mixing(key, tick)
        else:
            self.scheduler = IngestScheduler(
                self.tasks, self.store, self.metrics, tokens=self.tokens, clock=self.clock, tick=tick
            )
        self.operator = ShufflerOperator(
            settings,
            _public(key).id,
            self.tasks,
            self.store,
            round_shuffler,
            self.scheduler,
            self.metrics,
            self.clock,
        )
        self.tasks.keep_copies()
        self.tasks.resume(when_reachable(self.store.rounds), self.clock, _admit_with_tokens(settings))
        when_reachable(self.scheduler.open_rounds)

    def _mixing(self, key: SigningKey, tick: float) -> tuple[RoundShuffler, RoundScheduler]:
        """What opens, closes, shuffles and delivers rounds."""
        settings = self.settings
        if settings.analyzer is None:
            raise ParameterError("A shuffler that mixes needs the URL of its analyzer.")
        round_shuffler = RoundShuffler(
            self.store,
            key,
            settings.work,
            settings.permutation_megabytes * _MEGABYTE,
            lambda: self.stopping,
            RoundKeyDirectory(settings.round_keys, KeyReader(settings.key_command), key, self.clock),
            self.received,
            TrapDirectory(
                settings.work / _TRAPS, settings.first_shuffler, settings.first_shuffler_ca, settings.trap_tokens
            ),
        )
        delivery = Delivery(settings.analyzer, settings.analyzer_ca, settings.delivery_seconds, lambda: self.stopping)
        scheduler = RoundScheduler(
            self.tasks,
            self.store,
            round_shuffler,
            delivery,
            self.metrics,
            tokens=self.tokens,
            grace_seconds=settings.grace_seconds,
            clock=self.clock,
            tick=tick,
            next_delivery=None if settings.next_shuffler is None else self._delivery_to_next(settings.next_shuffler),
        )
        return round_shuffler, scheduler

    def _delivery_to_next(self, address: str) -> Delivery:
        settings = self.settings
        return Delivery(
            address,
            settings.next_shuffler_ca,
            settings.delivery_seconds,
            lambda: self.stopping,
            receiver="next shuffler",
        )

    def close(self) -> None:
        """Close the store and release the lock of the work directory."""
        self.store.close()
        if self.received is not None:
            self.received.close()
        self._lock.release()


def check_shuffler(settings: ShufflerSettings) -> tuple[SigningKey | VerifyingKey, ShufflerTasks]:
    """Check everything that the settings name, without changes, and return the key and the tasks.

    The key is the public one for the role ``ingest``. Invalid tasks are listed in ``refused``; they do not fail it.
    """
    key = _load_key(settings)
    authors = [VerifyingKey.load(path) for path in settings.authors]
    if settings.analyzer is not None and settings.analyzer.startswith("https:"):
        tls_context(settings.analyzer_ca)
    for url, authorities in (
        (settings.next_shuffler, settings.next_shuffler_ca),
        (settings.first_shuffler, settings.first_shuffler_ca),
    ):
        if url is not None and url.startswith("https:"):
            tls_context(authorities)
    if settings.store_dsn_file is not None:
        _read_database_url(settings.store_dsn_file)
    check_certificate(settings.tls_certificate, settings.tls_key)
    check_directory(settings.work)
    if settings.round_keys is not None:
        check_directory(settings.round_keys)
    tasks = ShufflerTasks(settings.tasks, authors, _public(key), kept=settings.work / KEPT)
    _admissions(settings, None)
    if settings.enrolment is None:
        tasks.load()
    else:
        check_directory(settings.enrolment, writable=False)
        tasks.load(_admit_with_tokens(settings))
    return key, tasks


def _admit_with_tokens(settings: ShufflerSettings) -> Callable[[ServedTask], None]:
    """A function that raises a DataError if the list of tokens of a task is not valid; nothing is stored."""
    tokens = None if settings.enrolment is None else TokenDirectory(settings.enrolment)

    def admit(served: ServedTask) -> None:
        if tokens is not None and served.hop == 0:
            tokens.load_new(served.name, lambda _: None)

    return admit


def _admissions(settings: ShufflerSettings, tokens: TokenDirectory | None) -> Admissions:
    """Who may report, by the settings."""
    if settings.token_issuer is not None:
        return Issued([TokenIssuer.load(settings.token_issuer, path) for path in settings.token_issuer_keys])
    return Everybody() if tokens is None else Enrolled(tokens)


def _load_key(settings: ShufflerSettings) -> SigningKey | VerifyingKey:
    if settings.signing_key is not None:
        return KeyReader(settings.key_command).signing(settings.signing_key)
    if settings.verifying_key is not None:
        return VerifyingKey.load(settings.verifying_key)
    raise ParameterError("A shuffler needs its signing_key, or for the role ingest its verifying_key.")


def _public(key: SigningKey | VerifyingKey) -> VerifyingKey:
    return key.public if isinstance(key, SigningKey) else key


def store_of(settings: ShufflerSettings) -> Store:
    """Open the store of the settings."""
    return open_store(_location(settings), cache_bytes=settings.store_cache_megabytes * _MEGABYTE)


def open_when_reachable(settings: ShufflerSettings, *, sleep: Callable[[float], None] = time.sleep) -> Store:
    """Open the store of the settings; while its database does not answer, log that and retry."""
    return when_reachable(lambda: store_of(settings), sleep=sleep)


def when_reachable(work: Callable[[], Result], *, sleep: Callable[[float], None] = time.sleep) -> Result:
    """The result of idempotent work with the store, at the start; while its database does not answer, log and retry."""
    logged, attempts = "", 0
    while True:
        try:
            result = work()
        except UnreachableStoreError as error:
            if str(error) != logged or attempts % _ATTEMPTS_PER_LOG_LINE == 0:
                event("database-unreachable", level=logging.ERROR, reason=str(error), attempts=attempts + 1)
            logged = str(error)
            sleep(backoff_seconds(attempts, first=_FIRST_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS))
            attempts += 1
        else:
            if attempts:
                event("database-reachable", attempts=attempts + 1)
            return result


def check_store_of(settings: ShufflerSettings) -> None:
    """Raise StoreError if opening the store would fail, as far as can be checked without changing anything."""
    check_store(_location(settings))


def _location(settings: ShufflerSettings) -> str:
    if settings.store_dsn_file is not None:
        return _read_database_url(settings.store_dsn_file)
    return str(settings.store_folder)


def _read_database_url(file: Path) -> str:
    url = read_secret(file)
    if not is_shared(url):
        raise DataError(f"{file} must contain the URL of a database: postgresql://...", path=str(file))
    return url
