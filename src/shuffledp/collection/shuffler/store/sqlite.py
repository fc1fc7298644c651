"""A store in a directory, for one process: a small index of all rounds, and for each round a file of its own.

Destroying a round deletes its file. SQLite's write-ahead log is synced at every commit, so that what was accepted
survives the end of the process or of the machine at any moment. A round whose file is damaged or missing is isolated:
its reports get UNAVAILABLE, its survey names the file, and the other rounds go on.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock

from shuffledp.collection.server.databases import DamagedFileError, database_version, read_database, transaction
from shuffledp.collection.shuffler.store.interface import (
    DamagedRoundError,
    Incoming,
    ReportOutcome,
    RoundRecord,
    RoundState,
    StoreError,
    Survey,
)
from shuffledp.collection.shuffler.store.migrations import SQLITE_INDEX, SQLITE_ROUND, missing_steps
from shuffledp.collection.shuffler.store.rules import (
    check_advance,
    check_destroy,
    check_give_up,
    check_tokens,
    decide,
    places_of_rounds,
)
from shuffledp.collection.shuffler.store.sqlite_files import (
    DiskReserve,
    FileIdentity,
    connect,
    is_confined,
    is_damage,
    is_disk_full,
    is_locked,
    remove,
    sqlite_failures,
)

CACHE_BYTES = 1 << 27
_LEAST_CACHE_BYTES = 1 << 16
_INDEX_CACHE_BYTES = 1 << 21
_LOG_PAGES = 16_000  # a page of the index is written once however many of its ids came
_INDEX_LOG_PAGES = 500  # less than the reserve
_RESERVE_BYTES = 1 << 23
_STORED_SECONDS = 10.0
_RETRY_SECONDS = 30.0

# Many values of one length come as one parameter: ?1 has all of them, ?2 is how many they are.
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?2)"
_PART = "substr(?1, n * (length(?1) / ?2) + 1, length(?1) / ?2)"
_SELECT_REPORTS = " ".join((_NUMBERS, "SELECT report_id, body FROM numbers CROSS JOIN reports ON report_id =", _PART))
_SELECT_TOKENS = " ".join((_NUMBERS, "SELECT hash, spent FROM numbers CROSS JOIN tokens ON hash =", _PART))
_SPEND_TOKENS = " ".join(
    ("UPDATE tokens SET spent = 1 WHERE spent = 0 AND hash IN (", _NUMBERS, "SELECT", _PART, "FROM numbers)")
)
_INSERT_REPORTS = " ".join((_NUMBERS, "INSERT INTO reports SELECT", _PART, ", substr(?3, n * ?4 + 1, ?4) FROM numbers"))


@dataclass
class _Round:
    """What is known of a round without reading files; ``lock`` guards all of it."""

    task_id: bytes
    file: Path
    maximum: int
    tokens: bool
    state: RoundState
    count: int
    kept: bool
    stored: int = 0
    """The number of reports that the index says the file must hold at least."""
    connection: sqlite3.Connection | None = None
    identity: FileIdentity | None = None
    cache_bytes: int = 0
    error: str | None = None
    """Why its reports cannot be used at the moment."""
    damaged: bool = False
    """Whether that cannot change while the process runs."""
    failed_at: float = 0.0
    uncertain: bool = False
    """Whether the last transaction may or may not have been committed, so that the reports must be counted."""
    lock: RLock = field(default_factory=RLock)
    claimed: Lock = field(default_factory=Lock)

    def fail(self, error: Exception) -> None:
        """Note an error of the file."""
        self.damaged = self.damaged or is_damage(error)
        self.failed_at, self.uncertain = time.monotonic(), True
        advice = "Restore it and restart the shuffler, or abandon the round" if self.damaged else "It is tried again"
        reason = str(error).rstrip(".") if isinstance(error, DamagedFileError) else f"cannot be used: {error}"
        self.error = f"The reports of round {self.task_id.hex()} are not available: {self.file} {reason}. {advice}."

    def check_usable(self) -> None:
        """Refuse a round whose file is damaged; after another error, count its reports anew."""
        if self.damaged:
            raise DamagedRoundError(self.error or "The reports of this round are damaged.")
        if self.uncertain and self.connection is not None:
            self.count = _count(self.connection)
            self.uncertain = False


class SqliteStore:
    """The store of the interface, in one directory that only its owner can read; one process at a time.

    ``cache_bytes`` is the memory for pages of all rounds together; the rounds that collect share it equally.
    """

    def __init__(self, folder: str | Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._folder = Path(folder)
        self._lock = RLock()
        self._cache_bytes = cache_bytes
        self._rounds: dict[bytes, _Round] = {}
        self._stored_at = -_STORED_SECONDS
        with sqlite_failures(f"Cannot open the store {self._folder}"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._folder / "index.db"
            _refuse_lost_index(self._folder)
            self._reserve = DiskReserve(self._folder / "reserve", _RESERVE_BYTES)
            self._index = connect(file, SQLITE_INDEX, create=True, alone=True, log_pages=_INDEX_LOG_PAGES)
            _set_cache(self._index, _INDEX_CACHE_BYTES)
            try:
                self._load()
            except BaseException:
                self.close()
                raise
        self._share_cache()

    def _load(self) -> None:
        query = "SELECT task_id, state, maximum, tokens, reports, kept, stored FROM rounds"
        rows = self._index.execute(query).fetchall()
        for task_id, state, maximum, tokens, reports, kept, stored in rows:
            here = _Round(
                task_id, self._file(task_id), maximum, bool(tokens), RoundState(state), reports or stored, bool(kept)
            )
            here.stored = stored
            self._rounds[task_id] = here
            if not kept:
                _remove_again(here)  # the process ended between saying so and doing it
                continue
            try:
                _open_file(here)
            except (sqlite3.Error, OSError, DamagedFileError) as error:
                if is_locked(error):
                    raise
                here.damaged = True
                here.fail(error)

    def _file(self, task_id: bytes) -> Path:
        return self._folder / f"round-{task_id.hex()}.db"

    def _round(self, task_id: bytes) -> _Round:
        try:
            return self._rounds[task_id]
        except KeyError:
            raise StoreError(f"The round {task_id.hex()} was never opened in this store.") from None

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """See the interface."""
        with self._lock, sqlite_failures("Cannot open the round"):
            known = self._rounds.get(task_id)
            if known is not None:
                check_tokens(known.state, known.tokens, tokens)
                return
            file = self._file(task_id)
            connection = _create_file(file)
            try:
                if _count(connection):  # a file that was made just before the process ended is empty
                    raise StoreError(f"{file} has reports of a round that index.db does not know; restore index.db.")
                row = (task_id, RoundState.COLLECTING.value, maximum, tokens)
                self._write_index("INSERT INTO rounds (task_id, state, maximum, tokens) VALUES (?, ?, ?, ?)", row)
            except BaseException:
                connection.close()
                raise
            here = _Round(task_id, file, maximum, tokens, RoundState.COLLECTING, 0, True)
            here.connection, here.identity = connection, FileIdentity(file)
            self._rounds[task_id] = here
        self._share_cache()

    def _share_cache(self) -> None:
        """Give every round that collects an equal part of the memory for pages; not to be called with the lock."""
        with self._lock:
            rounds = list(self._rounds.values())
        collecting = [each for each in rounds if each.connection is not None]
        share = max(_LEAST_CACHE_BYTES, self._cache_bytes // max(1, len(collecting)))
        for here in collecting:
            with here.lock:
                if here.connection is not None and here.cache_bytes != share:
                    with suppress(sqlite3.Error):  # a round that cannot be used says so elsewhere
                        _set_cache(here.connection, share)
                        here.cache_bytes = share

    def accept(self, batch: Sequence[Incoming]) -> list[ReportOutcome]:
        """See the interface."""
        self._require_space()
        outcomes = [ReportOutcome.CLOSED] * len(batch)
        for task_id, places in places_of_rounds(batch).items():
            here = self._rounds.get(task_id)
            if here is None:
                continue
            with here.lock, sqlite_failures("Cannot store reports"):
                if here.state is not RoundState.COLLECTING:
                    continue
                decided = _accept_isolated(here, [batch[place] for place in places])
                for place, outcome in zip(places, decided, strict=True):
                    outcomes[place] = outcome
        return outcomes

    def _require_space(self) -> None:
        if not self._reserve.held:
            raise StoreError(
                f"The disk of {self._folder} is full: what is left of it is for closing rounds. Free "
                f"{_RESERVE_BYTES >> 20} MiB or more."
            )

    def count(self, task_id: bytes) -> int:
        """See the interface."""
        return self._round(task_id).count

    def state(self, task_id: bytes) -> RoundState:
        """See the interface."""
        return self._round(task_id).state

    def rounds(self) -> Mapping[bytes, RoundState]:
        """See the interface."""
        with self._lock:
            return {task_id: each.state for task_id, each in self._rounds.items()}

    def survey(self) -> Survey:
        """See the interface."""
        with self._lock:
            rounds = list(self._rounds.items())
        with self._lock, sqlite_failures("Cannot reserve disk space"):
            self._reserve.restore()
        self._record_stored([here for _, here in rounds])
        return Survey({task_id: _inspect(here) for task_id, here in rounds})

    def _record_stored(self, rounds: Sequence[_Round], *, now: bool = False) -> None:
        """Write to the index now and then how many reports the files must hold, so that lost ones are noticed."""
        changed = [
            each
            for each in rounds
            if each.state is RoundState.COLLECTING and not each.error and each.count != each.stored
        ]
        due = now or time.monotonic() >= self._stored_at + _STORED_SECONDS or any(not each.stored for each in changed)
        if not changed or not due or not self._reserve.held:
            return
        counts = [(each.count, each.task_id) for each in changed]
        with suppress(sqlite3.Error), self._lock, transaction(self._index):  # it is a lower bound: late is no harm
            self._index.executemany("UPDATE rounds SET stored = ? WHERE task_id = ?", counts)
            for each, (count, _) in zip(changed, counts, strict=True):
                each.stored = count
            self._stored_at = time.monotonic()

    def note(self, task_id: bytes) -> bytes:
        """See the interface."""
        self._round(task_id)
        with self._lock, sqlite_failures("Cannot read the note"):
            row = self._index.execute("SELECT note FROM rounds WHERE task_id = ?", (task_id,)).fetchone()
            return bytes(row[0])

    def close_round(self, task_id: bytes) -> int:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, sqlite_failures("Cannot close the round"):
            if here.state is RoundState.COLLECTING:
                _check_files(here)
                here.check_usable()
                change = "UPDATE rounds SET state = ?, reports = ? WHERE task_id = ?"
                self._write_index(change, (RoundState.CLOSED.value, here.count, task_id))
                here.state = RoundState.CLOSED
                _close_connection(here)
        self._share_cache()
        return here.count

    @contextmanager
    def claim(self, task_id: bytes) -> Iterator[bool]:
        """See the interface."""
        claimed = self._round(task_id).claimed
        mine = claimed.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                claimed.release()

    def advance(self, task_id: bytes, to: RoundState, note: bytes = b"") -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, sqlite_failures("Cannot advance the round"):
            before = self.note(task_id)
            if check_advance(here.state, to, before, note):
                change = "UPDATE rounds SET state = ?, note = ? WHERE task_id = ?"
                self._write_index(change, (to.value, note or before, task_id))
                here.state = to

    def reports(self, task_id: bytes) -> Iterator[bytes]:
        """See the interface."""
        here = self._round(task_id)
        with here.lock:
            if here.state is RoundState.COLLECTING or not here.kept:
                raise StoreError(f"The reports of a round that is {here.state.value} cannot be read.")
            here.check_usable()
            with _isolated(here):
                connection = connect(here.file, SQLITE_ROUND, create=False)
        return _read(here, connection)

    def destroy(self, task_id: bytes) -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, sqlite_failures("Cannot destroy the round"):
            self._discard(here, check_destroy(here.state))
        self._share_cache()

    def give_up(self, task_id: bytes, to: RoundState) -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, sqlite_failures("Cannot give up the round"):
            if check_give_up(here.state, to):
                self._discard(here, to)
            else:
                remove(here.file)  # that may have failed the last time
                here.error = None
        self._share_cache()

    def _discard(self, here: _Round, state: RoundState) -> None:
        """Delete the file of a round after the index says so."""
        if here.kept or here.state is not state:
            change = "UPDATE rounds SET state = ?, kept = 0, reports = ? WHERE task_id = ?"
            self._write_index(change, (state.value, here.count, here.task_id))
            here.state, here.kept, here.error, here.damaged = state, False, None, False
            _close_connection(here)
        remove(here.file)

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, sqlite_failures("Cannot add tokens"):
            here.check_usable()
            if here.connection is None or not here.tokens:
                raise StoreError("Tokens can be added only to a round that collects and wants them.")
            with transaction(here.connection):
                here.connection.executemany("INSERT OR IGNORE INTO tokens (hash) VALUES (?)", ((h,) for h in hashes))

    def check(self) -> None:
        """See the interface."""
        self._require_space()
        with sqlite_failures("The store cannot be written"), self._lock, transaction(self._index):
            self._index.execute("UPDATE checks SET number = number + 1")

    def close(self) -> None:
        """See the interface."""
        self._record_stored(list(self._rounds.values()), now=True)
        for each in self._rounds.values():
            with each.lock:
                _close_connection(each)
        with self._lock:
            self._index.close()

    def _write_index(self, statement: str, values: tuple[object, ...]) -> None:
        """Change the state of a round; if the disk is full, with the space that is reserved for this."""
        with self._lock:
            try:
                with transaction(self._index):
                    self._index.execute(statement, values)
            except (sqlite3.Error, OSError) as error:
                if not is_disk_full(error) or not self._reserve.release():
                    raise
                with transaction(self._index):
                    self._index.execute(statement, values)


def check_directory(folder: Path) -> None:
    """A StoreError if a store could not be opened in a directory, as far as that shows; it may be in use."""
    with sqlite_failures(f"Cannot open the store {folder}"):
        existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise StoreError(
                f"Cannot open the store {folder}: {existing} is not a directory that can be read and written."
            )
        _refuse_lost_index(folder)
    for pattern, steps in (("index.db", SQLITE_INDEX), ("round-*.db", SQLITE_ROUND)):
        for file in sorted(folder.glob(pattern)):
            with sqlite_failures(f"Cannot open {file}"):
                missing_steps(database_version(file), steps, str(file))
    with sqlite_failures(f"Cannot read {folder / 'index.db'}"):
        _refuse_damaged_rounds(folder)


def _refuse_damaged_rounds(folder: Path) -> None:
    """Refuse files that a start would isolate; not while the store is in use, or was not closed in order."""
    index = folder / "index.db"
    if not index.exists() or index.with_name("index.db-wal").exists():
        return
    with closing(read_database(index)) as connection:
        query = "SELECT task_id FROM rounds WHERE kept AND state IN (?, ?)"
        rows = connection.execute(query, (RoundState.COLLECTING.value, RoundState.CLOSED.value)).fetchall()
    for (task_id,) in rows:
        file = folder / f"round-{task_id.hex()}.db"
        if not file.exists() or database_version(file) == 0:
            raise StoreError(
                f"The reports of round {task_id.hex()} are not available: {file} is missing or empty. Restore it, or "
                "start the shuffler, which serves the other rounds, and abandon the round."
            )


def _refuse_lost_index(folder: Path) -> None:
    if not (folder / "index.db").exists() and any(folder.glob("round-*.db")):
        raise StoreError(f"{folder} has reports but no index.db, which says whose they are; restore it.")


def _remove_again(here: _Round) -> None:
    """Delete what is left of a finished round; if that fails, the round says so, and the others go on."""
    try:
        remove(here.file)
    except OSError as error:
        here.error = f"The reports of round {here.task_id.hex()} cannot be deleted: {error}. Delete {here.file}."
        here.failed_at = math.inf  # it is not tried again by itself


def _create_file(file: Path) -> sqlite3.Connection:
    """Make the file of a new round; a DamagedRoundError if something is in its place that cannot be used."""
    try:
        return connect(file, SQLITE_ROUND, create=True, alone=True, log_pages=_LOG_PAGES)
    except sqlite3.Error as error:
        if is_locked(error) or not is_confined(error):
            raise
        raise DamagedRoundError(
            f"The round cannot be opened: {file}, which index.db does not know, cannot be used: {error}. Remove it."
        ) from None


def _open_file(here: _Round) -> None:
    """Open the file of a round that collects, or see that there is one for a round that is closed."""
    if here.state is RoundState.COLLECTING:
        connection = connect(here.file, SQLITE_ROUND, create=False, alone=True, log_pages=_LOG_PAGES)
        try:
            count = _count(connection)
            if count < here.stored:
                raise DamagedFileError(f"holds {count:,} reports, but {here.stored:,} were stored in it")
        except BaseException:
            connection.close()
            raise
        here.connection, here.identity, here.count = connection, FileIdentity(here.file), count
    elif here.state is RoundState.CLOSED and not here.file.exists():
        raise DamagedFileError("does not exist")


def _inspect(here: _Round) -> RoundRecord:
    with here.lock:
        if not here.damaged and time.monotonic() > here.failed_at + _RETRY_SECONDS:
            here.error = None  # it is tried again
        _check_files(here)
        return RoundRecord(here.state, here.count, here.error)


def _check_files(here: _Round) -> None:
    """Notice that the file of a round was deleted or replaced."""
    if here.damaged or not here.kept:
        return
    try:
        if here.identity is not None:
            here.identity.check()
        elif here.state is RoundState.CLOSED and not here.file.exists():
            raise DamagedFileError("does not exist")
    except (OSError, DamagedFileError) as error:
        here.fail(error)


@contextmanager
def _isolated(here: _Round) -> Iterator[None]:
    """Note errors of the round's file, and raise StoreErrors that name it."""
    try:
        yield
    except (sqlite3.Error, OSError, DamagedFileError) as error:
        if is_disk_full(error) or is_locked(error):
            raise StoreError(f"Cannot read {here.file}: {str(error).rstrip('.')}.") from None
        here.fail(error)
        raise DamagedRoundError(here.error or str(error)) from None


def _accept_isolated(here: _Round, reports: Sequence[Incoming]) -> list[ReportOutcome]:
    """Accept reports of one round; UNAVAILABLE if its file fails, for whatever reason that is not the whole disk's."""
    unavailable = [ReportOutcome.UNAVAILABLE] * len(reports)
    _check_files(here)  # a log that was truncated has its old length again after the next report
    if here.damaged:
        return unavailable
    try:
        here.check_usable()
        before = here.count
        outcomes = _accept(here, reports)
        here.error = None
    except sqlite3.Error as error:
        if not is_confined(error):
            raise
        here.fail(error)
        return unavailable
    _check_files(here)  # what went to a file that was deleted is not durable
    if here.error:
        here.count = before
        return unavailable
    return outcomes


def _accept(here: _Round, reports: Sequence[Incoming]) -> list[ReportOutcome]:
    """Decide and store in one transaction."""
    connection = here.connection
    if connection is None:  # not the same as a closed round, whose devices give up
        raise StoreError("The store was closed.")
    if len(reports) <= here.maximum - here.count and _store_all(connection, reports, here.tokens):
        here.count += len(reports)
        return [ReportOutcome.NEW] * len(reports)
    with transaction(connection):
        known = dict(connection.execute(_SELECT_REPORTS, _joined([each.report_id for each in reports])).fetchall())
        spent: dict[bytes, bool] | None = None
        if here.tokens:
            hashes = [each.token_hash for each in reports if each.token_hash is not None]
            spent = dict(connection.execute(_SELECT_TOKENS, _joined(hashes)).fetchall())
        outcomes = decide(reports, known=known, spent=spent, room=here.maximum - here.count)
        new = [each for each, outcome in zip(reports, outcomes, strict=True) if outcome is ReportOutcome.NEW]
        _store(connection, new, here.tokens)
    here.count += len(new)
    return outcomes


def _store_all(connection: sqlite3.Connection, reports: Sequence[Incoming], tokens: bool) -> bool:
    """Store all of them, or nothing if not every one is new; which is so rare that the others are not looked for."""
    alone = not tokens and len({len(each.body) for each in reports}) == 1  # one statement is its own transaction
    try:
        with nullcontext() if alone else transaction(connection):
            _store(connection, reports, tokens)
    except sqlite3.IntegrityError:
        return False
    return True


def _store(connection: sqlite3.Connection, reports: Sequence[Incoming], tokens: bool) -> None:
    """Few statements for many reports: at each one this thread has to wait for its turn to go on."""
    if tokens:
        hashes = [each.token_hash for each in reports if each.token_hash is not None]
        if connection.execute(_SPEND_TOKENS, _joined(hashes)).rowcount != len(reports):
            raise sqlite3.IntegrityError
    sizes: dict[int, list[Incoming]] = {}
    for each in reports:
        sizes.setdefault(len(each.body), []).append(each)
    for size, alike in sizes.items():  # in a round of devices there is one size
        ids, count = _joined([each.report_id for each in alike])
        connection.execute(_INSERT_REPORTS, (ids, count, b"".join([each.body for each in alike]), size))


def _joined(parts: Sequence[bytes]) -> tuple[bytes, int]:
    """Byte strings of one length as two parameters of a statement: all of them, and how many."""
    return b"".join(parts), len(parts)


def _read(here: _Round, connection: sqlite3.Connection) -> Iterator[bytes]:
    number = 0
    with closing(connection), _isolated(here):
        for (body,) in connection.execute("SELECT body FROM reports"):
            number += 1
            yield body
        if number != here.count:
            raise DamagedFileError(f"holds {number:,} reports, but {here.count:,} were accepted")


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM reports").fetchone()[0])


def _set_cache(connection: sqlite3.Connection, size: int) -> None:
    connection.execute(f"PRAGMA cache_size = {-(size >> 10)}")


def _close_connection(here: _Round) -> None:
    if here.connection is not None:
        with suppress(sqlite3.Error) if here.damaged else nullcontext():
            here.connection.close()
        here.connection, here.identity, here.cache_bytes = None, None, 0
