"""The SQLite file of one round: its reports and tokens, and isolation of a round whose file cannot be used."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock

from shuffledp.collection.server.databases import DamagedFileError, Migrations, transaction
from shuffledp.collection.shuffler.store.interface import (
    DamagedRoundError,
    Incoming,
    ReportOutcome,
    RoundRecord,
    RoundState,
    StoreError,
)
from shuffledp.collection.shuffler.store.rules import decide
from shuffledp.collection.shuffler.store.sqlite_files import (
    FileIdentity,
    connect,
    is_confined,
    is_damage,
    is_disk_full,
    is_locked,
    remove,
)

SQLITE_ROUND: Migrations = (
    (
        "CREATE TABLE reports (report_id BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
        "CREATE TABLE tokens (hash BLOB PRIMARY KEY, spent INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
    ),
)
_LOG_PAGES = 16_000  # a page of the index is written once for all ids that came between two checkpoints
_RETRY_SECONDS = 30.0

# Many values of one length are passed as one parameter: ?1 is their concatenation, ?2 their number.
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?2)"
_PART = "substr(?1, n * (length(?1) / ?2) + 1, length(?1) / ?2)"
_SELECT_REPORTS = " ".join((_NUMBERS, "SELECT report_id, body FROM numbers CROSS JOIN reports ON report_id =", _PART))
_SELECT_TOKENS = " ".join((_NUMBERS, "SELECT hash, spent FROM numbers CROSS JOIN tokens ON hash =", _PART))
_SPEND_TOKENS = " ".join(
    ("UPDATE tokens SET spent = 1 WHERE spent = 0 AND hash IN (", _NUMBERS, "SELECT", _PART, "FROM numbers)")
)
_INSERT_REPORTS = " ".join((_NUMBERS, "INSERT INTO reports SELECT", _PART, ", substr(?3, n * ?4 + 1, ?4) FROM numbers"))


@dataclass
class SqliteRound:
    """The state of a round in memory, and its file. ``lock`` guards all of it; callers of every method hold it."""

    task_id: bytes
    file: Path
    maximum: int
    tokens: bool
    state: RoundState
    count: int
    has_reports: bool
    """Whether the reports have not been destroyed."""
    stored: int = 0
    """The number of reports that the file must contain at least, according to the index."""
    connection: sqlite3.Connection | None = None
    """Open while the round collects."""
    identity: FileIdentity | None = None
    cache_bytes: int = 0
    error: str | None = None
    """Why the reports cannot be used at the moment."""
    damaged: bool = False
    """Whether the error is permanent until the process restarts."""
    failed_at: float = 0.0
    uncertain: bool = False
    """Whether it is unclear if the last transaction was committed, so that the reports must be counted."""
    lock: RLock = field(default_factory=RLock)
    claimed: Lock = field(default_factory=Lock)

    def fail(self, error: Exception) -> None:
        """Record an error of the file."""
        self.damaged = self.damaged or is_damage(error)
        self.failed_at, self.uncertain = time.monotonic(), True
        advice = (
            "Restore it and restart the shuffler, or abandon the round"
            if self.damaged
            else "It is retried automatically"
        )
        reason = str(error).rstrip(".") if isinstance(error, DamagedFileError) else f"cannot be used: {error}"
        self.error = f"The reports of round {self.task_id.hex()} are not available: {self.file} {reason}. {advice}."

    def check_usable(self) -> None:
        """Refuse a round whose file is damaged; after another error, count its reports again."""
        if self.damaged:
            raise DamagedRoundError(self.error or "The reports of this round are damaged.")
        if self.uncertain and self.connection is not None:
            self.count = count_reports(self.connection)
            self.uncertain = False

    def open(self) -> None:
        """Open the file of a collecting round; of a closed round, check only that the file exists."""
        if self.state is RoundState.COLLECTING:
            connection = connect(self.file, SQLITE_ROUND, create=False, exclusive=True, log_pages=_LOG_PAGES)
            try:
                count = count_reports(connection)
                if count < self.stored:
                    raise DamagedFileError(f"contains {count:,} reports, but {self.stored:,} were stored in it")
            except BaseException:
                connection.close()
                raise
            self.connection, self.identity, self.count = connection, FileIdentity(self.file), count
        elif self.state is RoundState.CLOSED and not self.file.exists():
            raise DamagedFileError("does not exist")

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self.connection is not None:
            with suppress(sqlite3.Error) if self.damaged else nullcontext():
                self.connection.close()
            self.connection, self.identity, self.cache_bytes = None, None, 0

    def share_cache(self, size: int) -> None:
        """Limit the memory for pages of an open file to ``size`` bytes."""
        if self.connection is not None and self.cache_bytes != size:
            with suppress(sqlite3.Error):  # an unusable round is reported elsewhere
                set_cache(self.connection, size)
                self.cache_bytes = size

    def inspect(self) -> RoundRecord:
        """State, number of reports and damage; a temporary error is cleared after 30 seconds."""
        if not self.damaged and time.monotonic() > self.failed_at + _RETRY_SECONDS:
            self.error = None
        self.check_file()
        return RoundRecord(self.state, self.count, self.error)

    def check_file(self) -> None:
        """Detect that the file was deleted or replaced."""
        if self.damaged or not self.has_reports:
            return
        try:
            if self.identity is not None:
                self.identity.check()
            elif self.state is RoundState.CLOSED and not self.file.exists():
                raise DamagedFileError("does not exist")
        except (OSError, DamagedFileError) as error:
            self.fail(error)

    def delete_leftovers(self) -> None:
        """Delete the file of a finished round; a failure is recorded and does not affect the other rounds."""
        try:
            remove(self.file)
        except OSError as error:
            self.error = f"The reports of round {self.task_id.hex()} cannot be deleted: {error}. Delete {self.file}."
            self.failed_at = math.inf  # there is no automatic retry

    def accept(self, reports: Sequence[Incoming]) -> list[ReportOutcome]:
        """Accept reports; UNAVAILABLE if the file fails for a reason that does not concern the whole disk."""
        unavailable = [ReportOutcome.UNAVAILABLE] * len(reports)
        self.check_file()  # a truncated log has its old length again after the next report
        if self.damaged:
            return unavailable
        try:
            self.check_usable()
            before = self.count
            outcomes = self._accept(reports)
            self.error = None
        except sqlite3.Error as error:
            if not is_confined(error):
                raise
            self.fail(error)
            return unavailable
        self.check_file()  # what was written to a deleted file is not durable
        if self.error:
            self.count = before
            return unavailable
        return outcomes

    def _accept(self, reports: Sequence[Incoming]) -> list[ReportOutcome]:
        """Decide and store in one transaction."""
        connection = self.connection
        if connection is None:  # not CLOSED: devices would give up
            raise StoreError("The store was closed.")
        free_slots = self.maximum - self.count
        if len(reports) <= free_slots and _store_all(connection, reports, self.tokens):
            self.count += len(reports)
            return [ReportOutcome.NEW] * len(reports)
        with transaction(connection):
            ids = [report.report_id for report in reports]
            stored_bodies = dict(connection.execute(_SELECT_REPORTS, _joined(ids)).fetchall())
            spent: dict[bytes, bool] | None = None
            if self.tokens:
                hashes = [report.token_hash for report in reports if report.token_hash is not None]
                spent = dict(connection.execute(_SELECT_TOKENS, _joined(hashes)).fetchall())
            outcomes = decide(reports, stored_bodies=stored_bodies, spent=spent, free_slots=free_slots)
            new = [report for report, outcome in zip(reports, outcomes, strict=True) if outcome is ReportOutcome.NEW]
            _store(connection, new, self.tokens)
        self.count += len(new)
        return outcomes

    def add_tokens(self, hashes: Iterable[bytes]) -> None:
        """Add the hashes of tokens in one transaction; existing ones are unchanged."""
        self.check_usable()
        if self.connection is None or not self.tokens:
            raise StoreError("Tokens can be added only to a round that collects and requires them.")
        with transaction(self.connection):
            self.connection.executemany("INSERT OR IGNORE INTO tokens (hash) VALUES (?)", ((h,) for h in hashes))

    def bodies(self) -> Iterator[bytes]:
        """The bodies of all reports of a closed round; the file is opened at once."""
        if self.state is RoundState.COLLECTING or not self.has_reports:
            raise StoreError(f"The reports of a round that is {self.state.value} cannot be read.")
        self.check_usable()
        with self._isolated():
            connection = connect(self.file, SQLITE_ROUND, create=False)
        return self._read(connection)

    def _read(self, connection: sqlite3.Connection) -> Iterator[bytes]:
        number = 0
        with closing(connection), self._isolated():
            for (body,) in connection.execute("SELECT body FROM reports"):
                number += 1
                yield body
            if number != self.count:
                raise DamagedFileError(f"contains {number:,} reports, but {self.count:,} were accepted")

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        """Record errors of the file, and raise them as StoreErrors that name it."""
        try:
            yield
        except (sqlite3.Error, OSError, DamagedFileError) as error:
            if is_disk_full(error) or is_locked(error):
                raise StoreError(f"Cannot read {self.file}: {str(error).rstrip('.')}.") from None
            self.fail(error)
            raise DamagedRoundError(self.error or str(error)) from None


def create_round_file(file: Path) -> sqlite3.Connection:
    """Create the file of a new round; a DamagedRoundError if an unusable file exists under its name."""
    try:
        return connect(file, SQLITE_ROUND, create=True, exclusive=True, log_pages=_LOG_PAGES)
    except sqlite3.Error as error:
        if is_locked(error) or not is_confined(error):
            raise
        raise DamagedRoundError(
            f"The round cannot be opened: {file}, which index.db does not list, cannot be used: {error}. Remove it."
        ) from None


def count_reports(connection: sqlite3.Connection) -> int:
    """The number of reports in the file of a round."""
    return int(connection.execute("SELECT count(*) FROM reports").fetchone()[0])


def set_cache(connection: sqlite3.Connection, size: int) -> None:
    """Limit the memory of a connection for pages to ``size`` bytes."""
    connection.execute(f"PRAGMA cache_size = {-(size >> 10)}")


def _store_all(connection: sqlite3.Connection, reports: Sequence[Incoming], tokens: bool) -> bool:
    """Store all reports, or none if one of them is not new; duplicates are rare, so they are not looked up first."""
    is_single_statement = (
        not tokens and len({len(report.body) for report in reports}) == 1
    )  # one statement is its own transaction
    try:
        with nullcontext() if is_single_statement else transaction(connection):
            _store(connection, reports, tokens)
    except sqlite3.IntegrityError:
        return False
    return True


def _store(connection: sqlite3.Connection, reports: Sequence[Incoming], tokens: bool) -> None:
    """Store reports with few statements: after each one this thread has to reacquire the interpreter lock."""
    if tokens:
        hashes = [report.token_hash for report in reports if report.token_hash is not None]
        if connection.execute(_SPEND_TOKENS, _joined(hashes)).rowcount != len(reports):
            raise sqlite3.IntegrityError
    by_size: dict[int, list[Incoming]] = {}
    for report in reports:
        by_size.setdefault(len(report.body), []).append(report)
    for size, same_size in by_size.items():  # devices of a round send one size, or two if there are carriers
        ids, count = _joined([report.report_id for report in same_size])
        connection.execute(_INSERT_REPORTS, (ids, count, b"".join([report.body for report in same_size]), size))


def _joined(parts: Sequence[bytes]) -> tuple[bytes, int]:
    """Byte strings of one length as two parameters of a statement: their concatenation and their number."""
    return b"".join(parts), len(parts)
