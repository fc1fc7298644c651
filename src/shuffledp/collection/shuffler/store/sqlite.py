"""A store in a directory, for one process: an index of all rounds (``index.db``), and one file for each round.

Destroying a round deletes its file. SQLite's write-ahead log is synchronized at every commit, so accepted reports
survive a crash of the process or of the machine. A round whose file is damaged or missing is isolated: its reports get
UNAVAILABLE, snapshots name the file, and the other rounds continue.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock

from shuffledp.collection.server.databases import (
    DamagedFileError,
    Migrations,
    database_version,
    pending_migrations,
    read_database,
    transaction,
)
from shuffledp.collection.shuffler.store.interface import (
    Incoming,
    ReportOutcome,
    RoundRecord,
    RoundState,
    StoreError,
    StoreSnapshot,
)
from shuffledp.collection.shuffler.store.rules import (
    check_advance,
    check_destroy,
    check_give_up,
    check_tokens,
    indices_by_round,
)
from shuffledp.collection.shuffler.store.sqlite_files import (
    DiskReserve,
    FileIdentity,
    connect,
    is_disk_full,
    is_locked,
    remove,
    sqlite_failures,
)
from shuffledp.collection.shuffler.store.sqlite_round import (
    SQLITE_ROUND,
    SqliteRound,
    count_reports,
    create_round_file,
    set_cache,
)

SQLITE_INDEX: Migrations = (
    (
        """CREATE TABLE rounds (
            task_id BLOB PRIMARY KEY,
            state TEXT NOT NULL,
            maximum INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            reports INTEGER,                  -- their final number, once the round is closed
            kept INTEGER NOT NULL DEFAULT 1,  -- whether the reports are still here
            note BLOB NOT NULL DEFAULT x''
        ) WITHOUT ROWID""",
        "CREATE TABLE checks (number INTEGER NOT NULL)",
        "INSERT INTO checks VALUES (0)",
    ),
    (
        # a lower bound of the reports that the file of a collecting round must contain; states cancelled and abandoned
        "ALTER TABLE rounds ADD COLUMN stored INTEGER NOT NULL DEFAULT 0",
    ),
)
CACHE_BYTES = 1 << 27
_LEAST_CACHE_BYTES = 1 << 16
_INDEX_CACHE_BYTES = 1 << 21
_INDEX_LOG_PAGES = 500  # less than the reserve
_RESERVE_BYTES = 1 << 23
_STORED_SECONDS = 10.0


class SqliteStore:
    """The store of the interface, in one directory that only its owner can read; one process at a time.

    ``cache_bytes`` is the memory for pages of all rounds together; collecting rounds share it equally.
    """

    def __init__(self, directory: str | Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._directory = Path(directory)
        self._lock = RLock()
        self._cache_bytes = cache_bytes
        self._rounds: dict[bytes, SqliteRound] = {}
        self._stored_at = -_STORED_SECONDS
        with sqlite_failures(f"Cannot open the store {self._directory}"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._directory / "index.db"
            _refuse_lost_index(self._directory)
            self._reserve = DiskReserve(self._directory / "reserve", _RESERVE_BYTES)
            self._index = connect(file, SQLITE_INDEX, create=True, exclusive=True, log_pages=_INDEX_LOG_PAGES)
            set_cache(self._index, _INDEX_CACHE_BYTES)
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
            entry = SqliteRound(
                task_id, self._file(task_id), maximum, bool(tokens), RoundState(state), reports or stored, bool(kept)
            )
            entry.stored = stored
            self._rounds[task_id] = entry
            if not kept:
                entry.delete_leftovers()  # of a process that ended between writing the index and deleting the file
                continue
            try:
                entry.open()
            except (sqlite3.Error, OSError, DamagedFileError) as error:
                if is_locked(error):
                    raise
                entry.damaged = True
                entry.fail(error)

    def _file(self, task_id: bytes) -> Path:
        return self._directory / f"round-{task_id.hex()}.db"

    def _round(self, task_id: bytes) -> SqliteRound:
        try:
            return self._rounds[task_id]
        except KeyError:
            raise StoreError(f"The round {task_id.hex()} was never opened in this store.") from None

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """See the interface."""
        with self._lock, sqlite_failures("Cannot open the round"):
            existing = self._rounds.get(task_id)
            if existing is not None:
                check_tokens(existing.state, existing.tokens, tokens)
                return
            file = self._file(task_id)
            connection = create_round_file(file)
            try:
                if count_reports(connection):  # a file that was created just before a crash is empty
                    raise StoreError(f"{file} has reports of a round that index.db does not list; restore index.db.")
                row = (task_id, RoundState.COLLECTING.value, maximum, tokens)
                self._write_index("INSERT INTO rounds (task_id, state, maximum, tokens) VALUES (?, ?, ?, ?)", row)
            except BaseException:
                connection.close()
                raise
            entry = SqliteRound(task_id, file, maximum, tokens, RoundState.COLLECTING, 0, True)
            entry.connection, entry.identity = connection, FileIdentity(file)
            self._rounds[task_id] = entry
        self._share_cache()

    def _share_cache(self) -> None:
        """Give every collecting round an equal share of the memory for pages; must be called without the lock."""
        with self._lock:
            rounds = list(self._rounds.values())
        collecting = [entry for entry in rounds if entry.connection is not None]
        share = max(_LEAST_CACHE_BYTES, self._cache_bytes // max(1, len(collecting)))
        for entry in collecting:
            with entry.lock:
                entry.share_cache(share)

    def accept(self, batch: Sequence[Incoming]) -> list[ReportOutcome]:
        """See the interface."""
        self._require_space()
        outcomes = [ReportOutcome.CLOSED] * len(batch)
        for task_id, indices in indices_by_round(batch).items():
            entry = self._rounds.get(task_id)
            if entry is None:
                continue
            with entry.lock, sqlite_failures("Cannot store reports"):
                if entry.state is not RoundState.COLLECTING:
                    continue
                decided = entry.accept([batch[index] for index in indices])
                for index, outcome in zip(indices, decided, strict=True):
                    outcomes[index] = outcome
        return outcomes

    def _require_space(self) -> None:
        if not self._reserve.is_reserved:
            raise StoreError(
                f"The disk of {self._directory} is full: the remaining space is reserved for closing rounds. Free "
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
            return {task_id: entry.state for task_id, entry in self._rounds.items()}

    def snapshot(self) -> StoreSnapshot:
        """See the interface."""
        with self._lock:
            rounds = list(self._rounds.items())
        with self._lock, sqlite_failures("Cannot reserve disk space"):
            self._reserve.restore()
        self._record_stored([entry for _, entry in rounds])
        return StoreSnapshot({task_id: self._inspect(entry) for task_id, entry in rounds})

    @staticmethod
    def _inspect(entry: SqliteRound) -> RoundRecord:
        with entry.lock:
            return entry.inspect()

    def _record_stored(self, rounds: Sequence[SqliteRound], *, now: bool = False) -> None:
        """Periodically record in the index how many reports each file must contain, so that lost ones are detected."""
        changed = [
            entry
            for entry in rounds
            if entry.state is RoundState.COLLECTING and not entry.error and entry.count != entry.stored
        ]
        due = now or time.monotonic() >= self._stored_at + _STORED_SECONDS or any(not entry.stored for entry in changed)
        if not changed or not due or not self._reserve.is_reserved:
            return
        counts = [(entry.count, entry.task_id) for entry in changed]
        with suppress(sqlite3.Error), self._lock, transaction(self._index):  # a lower bound, which may be outdated
            self._index.executemany("UPDATE rounds SET stored = ? WHERE task_id = ?", counts)
            for entry, (count, _) in zip(changed, counts, strict=True):
                entry.stored = count
            self._stored_at = time.monotonic()

    def note(self, task_id: bytes) -> bytes:
        """See the interface."""
        self._round(task_id)
        with self._lock, sqlite_failures("Cannot read the note"):
            row = self._index.execute("SELECT note FROM rounds WHERE task_id = ?", (task_id,)).fetchone()
            return bytes(row[0])

    def close_round(self, task_id: bytes) -> int:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock, sqlite_failures("Cannot close the round"):
            if entry.state is RoundState.COLLECTING:
                entry.check_file()
                entry.check_usable()
                change = "UPDATE rounds SET state = ?, reports = ? WHERE task_id = ?"
                self._write_index(change, (RoundState.CLOSED.value, entry.count, task_id))
                entry.state = RoundState.CLOSED
                entry.close()
        self._share_cache()
        return entry.count

    @contextmanager
    def claim(self, task_id: bytes) -> Iterator[bool]:
        """See the interface."""
        lock = self._round(task_id).claimed
        claimed = lock.acquire(blocking=False)
        try:
            yield claimed
        finally:
            if claimed:
                lock.release()

    def advance(self, task_id: bytes, to: RoundState, note: bytes = b"") -> None:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock, sqlite_failures("Cannot advance the round"):
            before = self.note(task_id)
            if check_advance(entry.state, to, before, note):
                change = "UPDATE rounds SET state = ?, note = ? WHERE task_id = ?"
                self._write_index(change, (to.value, note or before, task_id))
                entry.state = to

    def reports(self, task_id: bytes) -> Iterator[bytes]:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock:
            return entry.bodies()

    def destroy(self, task_id: bytes) -> None:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock, sqlite_failures("Cannot destroy the round"):
            self._discard(entry, check_destroy(entry.state))
        self._share_cache()

    def give_up(self, task_id: bytes, to: RoundState) -> None:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock, sqlite_failures("Cannot give up the round"):
            if check_give_up(entry.state, to):
                self._discard(entry, to)
            else:
                remove(entry.file)  # the last attempt may have failed
                entry.error = None
        self._share_cache()

    def _discard(self, entry: SqliteRound, state: RoundState) -> None:
        """Record the new state in the index, then delete the file of the round."""
        if entry.has_reports or entry.state is not state:
            change = "UPDATE rounds SET state = ?, kept = 0, reports = ? WHERE task_id = ?"
            self._write_index(change, (state.value, entry.count, entry.task_id))
            entry.state, entry.has_reports, entry.error, entry.damaged = state, False, None, False
            entry.close()
        remove(entry.file)

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """See the interface."""
        entry = self._round(task_id)
        with entry.lock, sqlite_failures("Cannot add tokens"):
            entry.add_tokens(hashes)

    def check(self) -> None:
        """See the interface."""
        self._require_space()
        with sqlite_failures("The store cannot be written"), self._lock, transaction(self._index):
            self._index.execute("UPDATE checks SET number = number + 1")

    def close(self) -> None:
        """See the interface."""
        self._record_stored(list(self._rounds.values()), now=True)
        for entry in self._rounds.values():
            with entry.lock:
                entry.close()
        with self._lock:
            self._index.close()

    def _write_index(self, statement: str, values: tuple[object, ...]) -> None:
        """Change the state of a round; if the disk is full, in the space that is reserved for this."""
        with self._lock:
            try:
                with transaction(self._index):
                    self._index.execute(statement, values)
            except (sqlite3.Error, OSError) as error:
                if not is_disk_full(error) or not self._reserve.free():
                    raise
                with transaction(self._index):
                    self._index.execute(statement, values)


def check_store_directory(directory: Path) -> None:
    """Raise StoreError if opening a store in a directory would fail, as far as can be read; it may be in use."""
    with sqlite_failures(f"Cannot open the store {directory}"):
        existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            raise StoreError(
                f"Cannot open the store {directory}: {existing} is not a directory that can be read and written."
            )
        _refuse_lost_index(directory)
    for pattern, steps in (("index.db", SQLITE_INDEX), ("round-*.db", SQLITE_ROUND)):
        for file in sorted(directory.glob(pattern)):
            with sqlite_failures(f"Cannot open {file}"):
                pending_migrations(database_version(file), steps, str(file), error=StoreError)
    with sqlite_failures(f"Cannot read {directory / 'index.db'}"):
        _refuse_damaged_rounds(directory)


def _refuse_damaged_rounds(directory: Path) -> None:
    """Refuse files that a start would isolate; not checked while the store is in use or after an unclean shutdown."""
    index = directory / "index.db"
    if not index.exists() or index.with_name("index.db-wal").exists():
        return
    with closing(read_database(index)) as connection:
        query = "SELECT task_id FROM rounds WHERE kept AND state IN (?, ?)"
        rows = connection.execute(query, (RoundState.COLLECTING.value, RoundState.CLOSED.value)).fetchall()
    for (task_id,) in rows:
        file = directory / f"round-{task_id.hex()}.db"
        if not file.exists() or database_version(file) == 0:
            raise StoreError(
                f"The reports of round {task_id.hex()} are not available: {file} is missing or empty. Restore it, or "
                "start the shuffler, which serves the other rounds, and abandon the round."
            )


def _refuse_lost_index(directory: Path) -> None:
    if not (directory / "index.db").exists() and any(directory.glob("round-*.db")):
        raise StoreError(f"{directory} has reports but no index.db, which assigns them to tasks; restore it.")
