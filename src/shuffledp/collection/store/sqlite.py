"""A store in a folder, for one process: a small index of all rounds, and for each round a file of its own.

Destroying a round deletes its file. SQLite's write-ahead log is synced at every commit, so that what was accepted
survives the end of the process or of the machine at any moment.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock

from shuffledp.collection.files import database_version
from shuffledp.collection.store.deciding import decide, places_of_rounds
from shuffledp.collection.store.interface import Incoming, Outcome, RoundState, StoreError
from shuffledp.collection.store.migrations import SQLITE_INDEX, SQLITE_ROUND, Steps, missing_steps
from shuffledp.collection.store.transitions import check_advance, check_destroy, check_tokens

__all__ = ["SqliteStore", "check_folder"]

_WAIT_SECONDS = 5.0
_CACHE_KIBIBYTES = 1 << 16  # report ids are random: their index is written all over
_LOG_PAGES = 16_000  # a page of the index is written once however many of its ids came
_COMPANIONS = ("", "-wal", "-shm", "-journal")

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

    file: Path
    maximum: int
    tokens: bool
    state: RoundState
    count: int
    kept: bool
    connection: sqlite3.Connection | None = None
    lock: RLock = field(default_factory=RLock)
    claimed: Lock = field(default_factory=Lock)


class SqliteStore:
    """The store of the interface, in one folder that only its owner can read; one process at a time."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._lock = RLock()
        self._rounds: dict[bytes, _Round] = {}
        with _failures(f"Cannot open the store {self._folder}"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._folder / "index.db"
            _refuse_lost_index(self._folder)
            self._index = _connect(file, SQLITE_INDEX, alone=True)
            try:
                self._load()
            except BaseException:
                self.close()
                raise

    def _load(self) -> None:
        rows = self._index.execute("SELECT task_id, state, maximum, tokens, reports, kept FROM rounds").fetchall()
        for task_id, state, maximum, tokens, reports, kept in rows:
            file = self._file(task_id)
            found = _Round(file, maximum, bool(tokens), RoundState(state), reports or 0, bool(kept))
            self._rounds[task_id] = found
            if not kept:
                _remove(file)  # the process ended between saying so and doing it
            elif not file.exists():
                raise StoreError(f"The reports of a round are missing: there is no {file}. Restore it.")
            elif found.state is RoundState.COLLECTING:
                found.connection = _connect(file, SQLITE_ROUND, alone=True)
                found.count = _count(found.connection)

    def _file(self, task_id: bytes) -> Path:
        return self._folder / f"round-{task_id.hex()}.db"

    def _round(self, task_id: bytes) -> _Round:
        try:
            return self._rounds[task_id]
        except KeyError:
            raise StoreError(f"The round {task_id.hex()} was never opened in this store.") from None

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """See the interface."""
        with self._lock, _failures("Cannot open the round"):
            known = self._rounds.get(task_id)
            if known is not None:
                check_tokens(known.state, known.tokens, tokens)
                return
            file = self._file(task_id)
            connection = _connect(file, SQLITE_ROUND, alone=True)
            try:
                if _count(connection):  # a file that was made just before the process ended is empty
                    raise StoreError(f"{file} has reports of a round that index.db does not know; restore index.db.")
                row = (task_id, RoundState.COLLECTING.value, maximum, tokens)
                self._write_index("INSERT INTO rounds (task_id, state, maximum, tokens) VALUES (?, ?, ?, ?)", row)
            except BaseException:
                connection.close()
                raise
            self._rounds[task_id] = _Round(file, maximum, tokens, RoundState.COLLECTING, 0, True, connection)

    def accept(self, batch: Sequence[Incoming]) -> list[Outcome]:
        """See the interface."""
        outcomes = [Outcome.CLOSED] * len(batch)
        for task_id, places in places_of_rounds(batch).items():
            here = self._rounds.get(task_id)
            if here is None:
                continue
            with here.lock, _failures("Cannot store reports"):
                if here.state is not RoundState.COLLECTING:
                    continue
                decided = _accept(here, [batch[place] for place in places])
                for place, outcome in zip(places, decided, strict=True):
                    outcomes[place] = outcome
        return outcomes

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

    def note(self, task_id: bytes) -> bytes:
        """See the interface."""
        self._round(task_id)
        with self._lock, _failures("Cannot read the note"):
            row = self._index.execute("SELECT note FROM rounds WHERE task_id = ?", (task_id,)).fetchone()
            return bytes(row[0])

    def close_round(self, task_id: bytes) -> int:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, _failures("Cannot close the round"):
            if here.state is RoundState.COLLECTING:
                change = "UPDATE rounds SET state = ?, reports = ? WHERE task_id = ?"
                self._write_index(change, (RoundState.CLOSED.value, here.count, task_id))
                here.state = RoundState.CLOSED
                _close_connection(here)
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
        with here.lock, _failures("Cannot advance the round"):
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
            with _failures("Cannot read the reports"):
                connection = _connect(here.file, SQLITE_ROUND)
        return _read(connection)

    def destroy(self, task_id: bytes) -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, _failures("Cannot destroy the round"):
            state = check_destroy(here.state)
            if here.kept:
                change = "UPDATE rounds SET state = ?, kept = 0 WHERE task_id = ?"
                self._write_index(change, (state.value, task_id))
                here.state, here.kept = state, False
                _close_connection(here)
            _remove(here.file)

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """See the interface."""
        here = self._round(task_id)
        with here.lock, _failures("Cannot add tokens"):
            if here.connection is None or not here.tokens:
                raise StoreError("Tokens can be added only to a round that collects and wants them.")
            with _transaction(here.connection):
                here.connection.executemany("INSERT OR IGNORE INTO tokens (hash) VALUES (?)", ((h,) for h in hashes))

    def check(self) -> None:
        """See the interface."""
        with _failures("The store cannot be written"):
            self._write_index("UPDATE checks SET number = number + 1", ())

    def close(self) -> None:
        """See the interface."""
        for each in self._rounds.values():
            with each.lock:
                _close_connection(each)
        with self._lock:
            self._index.close()

    def _write_index(self, statement: str, values: tuple[object, ...]) -> None:
        with self._lock, _transaction(self._index):
            self._index.execute(statement, values)


def check_folder(folder: Path) -> None:
    """A StoreError if a store could not be opened in a folder, as far as that shows; it may be in use."""
    with _failures(f"Cannot open the store {folder}"):
        existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise StoreError(f"Cannot open the store {folder}: {existing} is no folder that can be read and written.")
        _refuse_lost_index(folder)
    for pattern, steps in (("index.db", SQLITE_INDEX), ("round-*.db", SQLITE_ROUND)):
        for file in sorted(folder.glob(pattern)):
            with _failures(f"Cannot open {file}"):
                missing_steps(database_version(file), steps, str(file))


def _refuse_lost_index(folder: Path) -> None:
    if not (folder / "index.db").exists() and any(folder.glob("round-*.db")):
        raise StoreError(f"{folder} has reports but no index.db, which says whose they are; restore it.")


def _accept(here: _Round, reports: Sequence[Incoming]) -> list[Outcome]:
    """Decide and store in one transaction."""
    connection = here.connection
    if connection is None:  # not the same as a closed round, whose devices give up
        raise StoreError("The store was closed.")
    if len(reports) <= here.maximum - here.count and _store_all(connection, reports, here.tokens):
        here.count += len(reports)
        return [Outcome.NEW] * len(reports)
    with _transaction(connection):
        known = dict(connection.execute(_SELECT_REPORTS, _joined([each.report_id for each in reports])).fetchall())
        spent: dict[bytes, bool] | None = None
        if here.tokens:
            hashes = [each.token_hash for each in reports if each.token_hash is not None]
            spent = dict(connection.execute(_SELECT_TOKENS, _joined(hashes)).fetchall())
        outcomes = decide(reports, known=known, spent=spent, room=here.maximum - here.count)
        new = [each for each, outcome in zip(reports, outcomes, strict=True) if outcome is Outcome.NEW]
        _store(connection, new, here.tokens)
    here.count += len(new)
    return outcomes


def _store_all(connection: sqlite3.Connection, reports: Sequence[Incoming], tokens: bool) -> bool:
    """Store all of them, or nothing if not every one is new; which is so rare that the others are not looked for."""
    alone = not tokens and len({len(each.body) for each in reports}) == 1  # one statement is its own transaction
    try:
        with nullcontext() if alone else _transaction(connection):
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


def _read(connection: sqlite3.Connection) -> Iterator[bytes]:
    with closing(connection), _failures("Cannot read the reports"):
        for (body,) in connection.execute("SELECT body FROM reports"):
            yield body


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM reports").fetchone()[0])


def _connect(file: Path, steps: Steps, *, alone: bool = False) -> sqlite3.Connection:
    """Open or make a database of the newest layout, which only its owner can read."""
    with suppress(FileExistsError):  # never open one that exists: closing it would let go of SQLite's locks on it
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(file, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        if alone:  # the lock is held until the connection is closed or the process ends
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute(f"PRAGMA cache_size = {-_CACHE_KIBIBYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        with _transaction(connection):
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            for version, statements in missing_steps(found, steps, str(file)):
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version}")
        _sync_folder(file.parent)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some failures have ended it already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _failures(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreError(
                f"{what}: another process uses it. SQLite serves one process; take PostgreSQL for several."
            ) from None
        raise StoreError(f"{what}: {str(error).rstrip('.')}.") from None
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{what}: {str(error).rstrip('.')}.") from None


def _close_connection(here: _Round) -> None:
    if here.connection is not None:
        here.connection.close()
        here.connection = None


def _remove(file: Path) -> None:
    for companion in _COMPANIONS:
        file.with_name(file.name + companion).unlink(missing_ok=True)
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    """Make durable which files there are."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
