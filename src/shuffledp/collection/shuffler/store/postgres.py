"""A store in a PostgreSQL database, for several shuffler processes at once, also on several machines.

Every round has its own tables, which are dropped when it is destroyed. Accepting reports of a round and closing it
hold the lock on its row until the commit: a report is accepted once across all processes, and none after the close. The
server's write-ahead log contains dropped reports until it is recycled; so do archives and backups of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from psycopg import Connection, Error, OperationalError, connect, errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from shuffledp.collection.shuffler.store.interface import (
    Incoming,
    ReportOutcome,
    RoundRecord,
    RoundState,
    StoreError,
    StoreSnapshot,
)
from shuffledp.collection.shuffler.store.postgres_errors import log_pool, postgres_failures
from shuffledp.collection.shuffler.store.postgres_schema import WAIT_SECONDS, Row, check_durable, migrate
from shuffledp.collection.shuffler.store.rules import (
    check_advance,
    check_destroy,
    check_give_up,
    check_tokens,
    decide,
    indices_by_round,
)

_CONNECTIONS = 4
_READ_BYTES = 1 << 22
_IDLE_SECONDS = 5.0
"""How long a transaction may wait for this process, less than others wait for its locks (WAIT_SECONDS)."""
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""Both ends notice within a minute that the machine at the other end is gone.

By default that takes the server two hours, for which a process on a lost machine would keep its claims and locks.
"""
_USER_TIMEOUT_MILLISECONDS = 60_000

Result = TypeVar("Result")


class _Round(NamedTuple):
    """The row of a round, in the order in which it is selected."""

    number: int
    state: str
    maximum: int
    tokens: bool
    reports: int
    has_reports: bool

    @property
    def reports_table(self) -> sql.Identifier:
        return sql.Identifier("shuffledp", f"reports_{self.number}")

    @property
    def tokens_table(self) -> sql.Identifier:
        return sql.Identifier("shuffledp", f"tokens_{self.number}")


class PostgresStore:
    """The store of the interface, in the schema ``shuffledp`` of a database.

    ``address`` is a connection string or URL of PostgreSQL. It must point to the server itself or to a pool in session
    mode, since claims are advisory locks of sessions.
    """

    def __init__(self, address: str) -> None:
        log_pool()
        with postgres_failures():
            address = self._address = _with_keepalives(address)
            with connect(address, autocommit=True, connect_timeout=int(WAIT_SECONDS)) as connection:
                check_durable(connection)
                migrate(connection)
            self._pool: ConnectionPool[Connection[Row]] = ConnectionPool(
                address,
                min_size=1,
                max_size=_CONNECTIONS,
                timeout=WAIT_SECONDS,
                reconnect_timeout=WAIT_SECONDS,  # pauses between attempts double; the next caller starts over
                configure=_configure,
                open=True,
            )

    def open_round(self, task_id: bytes, *, maximum: int, tokens: bool) -> None:
        """See the interface."""

        def work(connection: Connection[Row]) -> None:
            entry = _find_round(connection, task_id)  # even a failed INSERT would use up a number of the sequence
            inserted = 0
            if entry is None:
                insert = (
                    "INSERT INTO shuffledp.rounds (task_id, maximum, tokens) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
                )
                inserted = connection.execute(insert, (task_id, maximum, tokens)).rowcount
                entry = _lock_round(connection, task_id)
            check_tokens(RoundState(entry.state), entry.tokens, tokens)
            if inserted:
                _create_tables(connection, entry)

        self._run(work)

    def accept(self, batch: Sequence[Incoming]) -> list[ReportOutcome]:
        """See the interface."""
        indices_of = indices_by_round(batch)
        outcomes = [ReportOutcome.CLOSED] * len(batch)
        try:
            decided = self._run(lambda connection: _accept_rounds(connection, batch, indices_of))
        except _TableError:
            decided = {}
            for task_id, indices in indices_of.items():  # one by one, so that reports of intact rounds are stored
                decided |= self._accept_alone(batch, task_id, indices)
        for task_id, results in decided.items():
            for index, outcome in zip(indices_of[task_id], results, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _accept_alone(
        self, batch: Sequence[Incoming], task_id: bytes, indices: list[int]
    ) -> dict[bytes, list[ReportOutcome]]:
        try:
            return self._run(lambda connection: _accept_rounds(connection, batch, {task_id: indices}))
        except _TableError:
            return {task_id: [ReportOutcome.UNAVAILABLE] * len(indices)}

    def count(self, task_id: bytes) -> int:
        """See the interface."""
        return self._read(task_id).reports

    def state(self, task_id: bytes) -> RoundState:
        """See the interface."""
        return RoundState(self._read(task_id).state)

    def rounds(self) -> Mapping[bytes, RoundState]:
        """See the interface."""
        query = "SELECT task_id, state FROM shuffledp.rounds"
        rows = self._run(lambda connection: connection.execute(query).fetchall())
        return {bytes(task_id): RoundState(state) for task_id, state in rows}

    def snapshot(self) -> StoreSnapshot:
        """See the interface."""
        query = (
            "SELECT task_id, state, reports, number, extract(epoch FROM clock_timestamp())::float8, "
            "NOT kept OR to_regclass('shuffledp.reports_' || number) IS NOT NULL "
            "AND to_regclass('shuffledp.tokens_' || number) IS NOT NULL FROM shuffledp.rounds "
            "UNION ALL SELECT NULL, NULL, NULL, NULL, extract(epoch FROM clock_timestamp())::float8, NULL"
        )
        *rows, last = self._run(lambda connection: connection.execute(query).fetchall())
        records = {
            bytes(task_id): RoundRecord(RoundState(state), reports, None if complete else _damage(task_id, number))
            for task_id, state, reports, number, _, complete in rows
        }
        return StoreSnapshot(records, last[4])

    def note(self, task_id: bytes) -> bytes:
        """See the interface."""
        return self._run(lambda connection: _note(connection, task_id))

    def close_round(self, task_id: bytes) -> int:
        """See the interface."""

        def work(connection: Connection[Row]) -> int:
            entry = _lock_round(connection, task_id)
            if entry.state == RoundState.COLLECTING.value:
                _set_state(connection, task_id, RoundState.CLOSED)
            return entry.reports

        return self._run(work)

    @contextmanager
    def claim(self, task_id: bytes) -> Iterator[bool]:
        """See the interface; the claim ends with the session, and therefore with the process.

        It is denied while a transaction on the round is in progress: one whose connection was lost may still commit.
        """
        key = int.from_bytes(task_id[:8], "big", signed=True)
        with postgres_failures():
            connection = connect(self._address, autocommit=True, connect_timeout=int(WAIT_SECONDS))
        claimed = False
        try:
            with postgres_failures():
                _keep_alive(connection)
                row = connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone()
                claimed = bool(row and row[0])
                query = "SELECT 1 FROM shuffledp.rounds WHERE task_id = %s FOR UPDATE SKIP LOCKED"
                unlocked = connection.execute(query, (task_id,)).fetchone() is not None
            yield claimed and unlocked
        finally:
            if claimed:
                with suppress(Error):  # otherwise the server releases it only when it notices the end of the session
                    connection.execute("SELECT pg_advisory_unlock(%s)", (key,))
            connection.close()

    def advance(self, task_id: bytes, to: RoundState, note: bytes = b"") -> None:
        """See the interface."""

        def work(connection: Connection[Row]) -> None:
            entry = _lock_round(connection, task_id)
            before = _note(connection, task_id)
            if check_advance(RoundState(entry.state), to, before, note):
                _set_state(connection, task_id, to)
                change = "UPDATE shuffledp.rounds SET note = %b WHERE task_id = %s"
                connection.execute(change, (note or before, task_id))

        self._run(work)

    def reports(self, task_id: bytes) -> Iterator[bytes]:
        """See the interface."""
        entry = self._read(task_id)
        if entry.state == RoundState.COLLECTING.value or not entry.has_reports:
            raise StoreError(f"The reports of a round that is {entry.state} cannot be read.")
        return self._bodies(entry)

    def _bodies(self, entry: _Round) -> Iterator[bytes]:
        query = sql.SQL("SELECT body FROM {}").format(entry.reports_table)
        largest = sql.SQL("SELECT max(octet_length(body)) FROM {}").format(entry.reports_table)
        number = 0
        with (
            postgres_failures(),
            connect(self._address) as connection,
        ):
            _keep_alive(connection)
            ((size,),) = connection.execute(largest).fetchall()
            group = max(1, _READ_BYTES // max(1, size or 0))
            with connection.cursor("reports", binary=True) as cursor:
                cursor.execute(query)
                while rows := cursor.fetchmany(group):
                    number += len(rows)
                    for (body,) in rows:
                        yield body
        if number != entry.reports:
            raise StoreError(f"The table reports_{entry.number} contains {number:,} of {entry.reports:,} reports.")

    def destroy(self, task_id: bytes) -> None:
        """See the interface."""

        def work(connection: Connection[Row]) -> None:
            entry = _lock_round(connection, task_id)
            state = check_destroy(RoundState(entry.state))
            if entry.has_reports:
                _set_state(connection, task_id, state)
                connection.execute("UPDATE shuffledp.rounds SET kept = false WHERE task_id = %s", (task_id,))
                _drop_tables(connection, entry)

        self._run(work)

    def give_up(self, task_id: bytes, to: RoundState) -> None:
        """See the interface."""

        def work(connection: Connection[Row]) -> None:
            entry = _lock_round(connection, task_id)
            if check_give_up(RoundState(entry.state), to):
                _set_state(connection, task_id, to)
                connection.execute("UPDATE shuffledp.rounds SET kept = false WHERE task_id = %s", (task_id,))
                _drop_tables(connection, entry)

        self._run(work)

    def add_tokens(self, task_id: bytes, hashes: Iterable[bytes]) -> None:
        """See the interface."""
        token_hashes = list(hashes)

        def work(connection: Connection[Row]) -> None:
            entry = _lock_round(connection, task_id)
            if entry.state != RoundState.COLLECTING.value or not entry.tokens:
                raise StoreError("Tokens can be added only to a round that collects and requires them.")
            insert = sql.SQL("INSERT INTO {} (hash) SELECT unnest(%b::bytea[]) ON CONFLICT DO NOTHING")
            connection.execute(insert.format(entry.tokens_table), (token_hashes,))

        self._run(work)

    def check(self) -> None:
        """See the interface."""
        self._run(lambda connection: connection.execute("UPDATE shuffledp.checks SET number = number + 1"))

    def close(self) -> None:
        """See the interface."""
        self._pool.close()

    def _read(self, task_id: bytes) -> _Round:
        return self._run(lambda connection: _require(_find_round(connection, task_id), task_id))

    def _run(self, work: Callable[[Connection[Row]], Result]) -> Result:
        """Run ``work`` in one transaction; again if the connection was lost, since every operation is idempotent."""
        with postgres_failures():
            try:
                return self._once(work)
            except (OperationalError, errors.IdleInTransactionSessionTimeout):
                self._pool.check()  # a restarted server has closed all of them
                return self._once(work)

    def _once(self, work: Callable[[Connection[Row]], Result]) -> Result:
        with self._pool.connection() as connection:
            return work(connection)


class _TableError(Exception):
    """The tables of one round cannot be used; those of other rounds may be intact."""


def _accept_rounds(
    connection: Connection[Row], batch: Sequence[Incoming], indices_of: Mapping[bytes, list[int]]
) -> dict[bytes, list[ReportOutcome]]:
    """Accept the reports of several rounds within one transaction."""
    decided = {}
    for task_id, indices in indices_of.items():
        entry = _find_round(connection, task_id, lock=True)
        if entry is None or entry.state != RoundState.COLLECTING.value:
            continue
        try:
            decided[task_id] = _accept(connection, entry, task_id, [batch[index] for index in indices])
        except (errors.UndefinedTable, errors.DataCorrupted, errors.IndexCorrupted) as error:
            raise _TableError from error
    return decided


def _damage(task_id: bytes, number: int) -> str:
    return (
        f"The reports of round {task_id.hex()} are not available: the tables reports_{number} and tokens_{number} of "
        "the schema shuffledp do not both exist. Restore them, or abandon the round."
    )


def _drop_tables(connection: Connection[Row], entry: _Round) -> None:
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}, {}").format(entry.reports_table, entry.tokens_table))


def _accept(
    connection: Connection[Row], entry: _Round, task_id: bytes, reports: Sequence[Incoming]
) -> list[ReportOutcome]:
    """Decide and store, within the transaction that holds the lock of the round."""
    select = sql.SQL("SELECT report_id, body FROM {} WHERE report_id = ANY(%b::bytea[])").format(entry.reports_table)
    ids = [report.report_id for report in reports]
    stored_bodies: dict[bytes, bytes] = dict(connection.execute(select, (ids,), binary=True).fetchall())
    spent: dict[bytes, bool] | None = None
    if entry.tokens:
        select = sql.SQL("SELECT hash, spent FROM {} WHERE hash = ANY(%b::bytea[])").format(entry.tokens_table)
        hashes = [report.token_hash for report in reports if report.token_hash is not None]
        spent = dict(connection.execute(select, (hashes,), binary=True).fetchall())
    free_slots = entry.maximum - entry.reports
    outcomes = decide(reports, stored_bodies=stored_bodies, spent=spent, free_slots=free_slots)
    new = [report for report, outcome in zip(reports, outcomes, strict=True) if outcome is ReportOutcome.NEW]
    if new:
        _insert(connection, entry, task_id, new)
    return outcomes


def _insert(connection: Connection[Row], entry: _Round, task_id: bytes, new: Sequence[Incoming]) -> None:
    if entry.tokens:
        spend = sql.SQL("UPDATE {} SET spent = true WHERE hash = ANY(%b::bytea[])").format(entry.tokens_table)
        connection.execute(spend, ([report.token_hash for report in new],))
    insert = sql.SQL(  # one statement, for one round trip
        "WITH stored AS (INSERT INTO {} SELECT * FROM unnest(%b::bytea[], %b::bytea[])) "
        "UPDATE shuffledp.rounds SET reports = reports + %s WHERE task_id = %s"
    ).format(entry.reports_table)
    connection.execute(
        insert, ([report.report_id for report in new], [report.body for report in new], len(new), task_id)
    )


def _find_round(connection: Connection[Row], task_id: bytes, *, lock: bool = False) -> _Round | None:
    query = "SELECT number, state, maximum, tokens, reports, kept FROM shuffledp.rounds WHERE task_id = %s"
    row = connection.execute(query + " FOR UPDATE" if lock else query, (task_id,)).fetchone()
    return None if row is None else _Round(*row)


def _lock_round(connection: Connection[Row], task_id: bytes) -> _Round:
    return _require(_find_round(connection, task_id, lock=True), task_id)


def _require(entry: _Round | None, task_id: bytes) -> _Round:
    if entry is None:
        raise StoreError(f"The round {task_id.hex()} was never opened in this store.")
    return entry


def _note(connection: Connection[Row], task_id: bytes) -> bytes:
    row = connection.execute("SELECT note FROM shuffledp.rounds WHERE task_id = %s", (task_id,), binary=True).fetchone()
    if row is None:
        raise StoreError(f"The round {task_id.hex()} was never opened in this store.")
    return bytes(row[0])


def _set_state(connection: Connection[Row], task_id: bytes, state: RoundState) -> None:
    connection.execute("UPDATE shuffledp.rounds SET state = %s WHERE task_id = %s", (state.value, task_id))


def _create_tables(connection: Connection[Row], entry: _Round) -> None:
    make = sql.SQL("CREATE TABLE {} (report_id bytea PRIMARY KEY, body bytea NOT NULL)")
    connection.execute(make.format(entry.reports_table))
    uncompressed = sql.SQL("ALTER TABLE {} ALTER COLUMN body SET STORAGE EXTERNAL")  # sealed bytes cannot be compressed
    connection.execute(uncompressed.format(entry.reports_table))
    make = sql.SQL("CREATE TABLE {} (hash bytea PRIMARY KEY, spent boolean NOT NULL DEFAULT false)")
    connection.execute(make.format(entry.tokens_table))


def _configure(connection: Connection[Row]) -> None:
    row = connection.execute("SHOW synchronous_commit").fetchone()
    if row is not None and row[0] == "off":
        connection.execute("SET synchronous_commit = on")
    connection.execute(f"SET lock_timeout = '{int(WAIT_SECONDS)}s'")
    connection.execute(f"SET idle_in_transaction_session_timeout = '{int(1000 * _IDLE_SECONDS)}ms'")
    _keep_alive(connection)
    connection.commit()


def _with_keepalives(address: str) -> str:
    """The address, with keepalives of this end unless it states its own."""
    stated = conninfo_to_dict(address)
    wanted = {**_KEEPALIVES, "tcp_user_timeout": _USER_TIMEOUT_MILLISECONDS}
    return make_conninfo(address, **{name: value for name, value in wanted.items() if name not in stated})


def _keep_alive(connection: Connection[Row]) -> None:
    """Keepalives of the server's end; they have no effect on UNIX sockets, which need none."""
    for name, value in _KEEPALIVES.items():
        connection.execute(f"SET tcp_{name} = {value}".encode())
