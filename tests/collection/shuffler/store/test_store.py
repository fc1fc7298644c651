"""One suite for every kind of store: what becomes of reports, and how rounds go forward."""

import hashlib
import os
import sqlite3
import threading
import time
from contextlib import closing, suppress

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shuffledp.collection.shuffler.store import (
    Incoming,
    ReportOutcome,
    RoundState,
    StoreError,
    open_store,
    sqlite_round,
)
from shuffledp.collection.shuffler.store.postgres_schema import check_durable
from shuffledp.collection.shuffler.store.sqlite import SqliteStore

NEW, SAME, CONFLICT, CLOSED, FULL = (
    ReportOutcome.NEW,
    ReportOutcome.SAME,
    ReportOutcome.CONFLICT,
    ReportOutcome.CLOSED,
    ReportOutcome.FULL,
)
MANIFEST = b'{"batch":"signed"}'


def report(task: bytes, number: int = 0, body: bytes | None = None, token: int | None = None) -> Incoming:
    report_id = number.to_bytes(16, "big")
    body = hashlib.shake_256(report_id).digest(300) if body is None else body
    return Incoming(task, report_id, body, None if token is None else token_hash(token))


def token_hash(number: int) -> bytes:
    return hashlib.sha256(b"token %d" % number).digest()


@pytest.fixture
def task(store) -> bytes:
    """A round of at most 100 reports without tokens."""
    task_id = os.urandom(32)
    store.open_round(task_id, maximum=100, tokens=False)
    return task_id


def test_reports_of_two_lengths(store, task):
    """As carriers and others send them, in one group and in several; a short one is read first."""
    long = [report(task, number, body=os.urandom(200_000)) for number in range(1, 60, 2)]
    short = [report(task, number) for number in range(0, 60, 2)]
    assert set(store.accept([each for pair in zip(short[:20], long[:20], strict=True) for each in pair])) == {NEW}
    assert set(store.accept(short[20:])) == {NEW}
    assert set(store.accept(long[20:])) == {NEW}
    assert store.accept([report(task, 1, body=short[0].body)]) == [CONFLICT]
    assert store.close_round(task) == 60
    assert sorted(store.reports(task)) == sorted(each.body for each in (*long, *short))


def test_a_report_is_new_once_then_the_same_and_another_one_conflicts(store, task):
    assert store.accept([report(task)]) == [NEW]
    assert store.accept([report(task)]) == [SAME]
    assert store.accept([report(task, body=b"other")]) == [CONFLICT]
    assert store.count(task) == 1
    assert store.close_round(task) == 1
    assert list(store.reports(task)) == [report(task).body]


def test_one_batch_can_hold_copies_and_several_rounds(store, task):
    other = os.urandom(32)
    store.open_round(other, maximum=100, tokens=False)
    unknown = os.urandom(32)
    batch = [
        report(task, 1),
        report(other, 1),
        report(task, 1),
        report(task, 1, b"x"),
        report(unknown),
        report(other, 2),
    ]
    assert store.accept(batch) == [NEW, NEW, SAME, CONFLICT, CLOSED, NEW]
    assert (store.count(task), store.count(other)) == (1, 2)
    assert store.accept([]) == []


def test_a_full_round_takes_no_more_but_knows_what_it_has(store):
    task = os.urandom(32)
    store.open_round(task, maximum=3, tokens=False)
    assert store.accept([report(task, number) for number in range(5)]) == [NEW, NEW, NEW, FULL, FULL]
    assert store.accept([report(task, 4), report(task, 1)]) == [FULL, SAME]
    assert store.close_round(task) == 3


def test_a_token_pays_for_one_report(store):
    task = os.urandom(32)
    store.open_round(task, maximum=4, tokens=True)
    store.add_tokens(task, [token_hash(number) for number in range(5)])
    unknown, spent = ReportOutcome.TOKEN_UNKNOWN, ReportOutcome.TOKEN_SPENT
    assert store.accept([report(task, 1), report(task, 1, token=99), report(task, 1, token=0)]) == [
        unknown,
        unknown,
        NEW,
    ]
    assert store.accept([report(task, 2, token=0), report(task, 1, token=0)]) == [spent, SAME]
    assert store.accept([report(task, 3, token=1), report(task, 4, token=1)]) == [NEW, spent]
    store.add_tokens(task, [token_hash(0), token_hash(5)])
    assert store.accept([report(task, 5, token=0), report(task, 5, token=5)]) == [spent, NEW]
    assert store.accept([report(task, 6, token=2), report(task, 7, token=3)]) == [NEW, FULL]
    assert store.count(task) == 4


def test_a_token_of_a_report_that_was_refused_stays_good(store):
    task = os.urandom(32)
    store.open_round(task, maximum=9, tokens=True)
    store.add_tokens(task, [token_hash(0), token_hash(1)])
    assert store.accept([report(task, 1, token=0), report(task, 1, b"other", token=1)]) == [NEW, CONFLICT]
    assert store.accept([report(task, 2, token=1)]) == [NEW]


def test_rounds_go_forward_once(store, task):
    store.accept([report(task)])
    assert store.state(task) is RoundState.COLLECTING
    for step in (lambda: store.advance(task, RoundState.SHUFFLED, MANIFEST), lambda: store.destroy(task)):
        with pytest.raises(StoreError, match="collecting"):
            step()
    with pytest.raises(StoreError, match="cannot be read"):
        store.reports(task)
    assert store.close_round(task) == 1
    assert store.close_round(task) == 1
    with pytest.raises(StoreError, match="manifest"):
        store.advance(task, RoundState.SHUFFLED)
    with pytest.raises(StoreError, match="closed cannot become delivered"):
        store.advance(task, RoundState.DELIVERED)
    store.advance(task, RoundState.SHUFFLED, MANIFEST)
    store.advance(task, RoundState.SHUFFLED, MANIFEST)
    with pytest.raises(StoreError, match="another note"):
        store.advance(task, RoundState.SHUFFLED, b"another permutation")
    assert store.note(task) == MANIFEST
    store.destroy(task)
    assert store.state(task) is RoundState.SHUFFLED
    store.advance(task, RoundState.DELIVERED)
    for back in (RoundState.SHUFFLED, RoundState.CLOSED, RoundState.COLLECTING, RoundState.DESTROYED):
        with pytest.raises(StoreError):
            store.advance(task, back, MANIFEST)
    assert store.state(task) is RoundState.DELIVERED
    assert store.note(task) == MANIFEST


def test_a_round_never_opens_again(store, reopen, task):
    store.accept([report(task)])
    store.close_round(task)
    store.destroy(task)
    store.destroy(task)
    for open_again in (lambda: store, reopen):
        again = open_again()
        again.open_round(task, maximum=100, tokens=False)
        assert again.state(task) is RoundState.DESTROYED
        assert again.accept([report(task, 1)]) == [CLOSED]
        assert again.close_round(task) == again.count(task) == 1
        with pytest.raises(StoreError, match="cannot be read"):
            again.reports(task)
        with pytest.raises(StoreError, match="destroyed cannot become shuffled"):
            again.advance(task, RoundState.SHUFFLED, MANIFEST)


def test_everything_is_there_after_reopening(store, reopen):
    tasks = [os.urandom(32) for _ in range(3)]
    for task in tasks:
        store.open_round(task, maximum=3, tokens=True)
        store.add_tokens(task, [token_hash(number) for number in range(9)])
        store.accept([report(task, number, token=number) for number in range(2)])
    store.close_round(tasks[1])
    store.close_round(tasks[2])
    store.advance(tasks[2], RoundState.SHUFFLED, MANIFEST)
    again = reopen()
    states = [RoundState.COLLECTING, RoundState.CLOSED, RoundState.SHUFFLED]
    assert again.rounds() == dict(zip(tasks, states, strict=True))
    assert [again.count(task) for task in tasks] == [2, 2, 2]
    assert [again.note(task) for task in tasks] == [b"", b"", MANIFEST]
    more = [
        report(tasks[0], 0),
        report(tasks[0], 5, token=1),
        report(tasks[0], 6, token=7),
        report(tasks[0], 7, token=8),
    ]
    assert again.accept(more) == [SAME, ReportOutcome.TOKEN_SPENT, NEW, FULL]
    assert set(again.reports(tasks[1])) == {report(tasks[1], number).body for number in range(2)}


def test_what_makes_no_sense_is_refused(store, task):
    unknown = os.urandom(32)
    for call in (store.count, store.state, store.note, store.close_round, store.reports, store.destroy):
        with pytest.raises(StoreError, match="never opened"):
            call(unknown)
    with pytest.raises(StoreError, match="without tokens"):
        store.open_round(task, maximum=100, tokens=True)
    with pytest.raises(StoreError, match="requires them"):
        store.add_tokens(task, [token_hash(1)])
    store.open_round(unknown, maximum=1, tokens=True)
    store.close_round(unknown)
    with pytest.raises(StoreError, match="requires them"):
        store.add_tokens(unknown, [token_hash(1)])
    store.open_round(unknown, maximum=1, tokens=False)  # it collects no more: whether tokens are wanted is the same


def test_one_claims_a_round_at_a_time(store, task):
    other = os.urandom(32)
    store.open_round(other, maximum=1, tokens=False)
    with store.claim(task) as mine:
        assert mine
        with store.claim(task) as again, store.claim(other) as another:
            assert not again
            assert another
    with store.claim(task) as mine, suppress(RuntimeError):
        assert mine
        raise RuntimeError
    with store.claim(task) as mine:
        assert mine


def test_large_reports_come_back_whole(store):
    task = os.urandom(32)
    store.open_round(task, maximum=100, tokens=False)
    bodies = [os.urandom(700_000) for _ in range(12)]
    assert store.accept([report(task, number, body) for number, body in enumerate(bodies)]) == [NEW] * 12
    assert store.accept([report(task, 3, bodies[3]), report(task, 3, bodies[3][:-1] + b"?")]) == [SAME, CONFLICT]
    store.close_round(task)
    assert sorted(store.reports(task)) == sorted(bodies)


def test_a_store_that_was_closed_says_so(store, task):
    store.check()
    store.close()
    with pytest.raises(StoreError):
        store.check()
    with pytest.raises(StoreError):
        store.accept([report(task)])


steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 4) | st.none()), max_size=12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(steps, max_size=5), maximum=st.integers(1, 5), tokens=st.booleans())
def test_batches_do_what_reports_one_by_one_would(store, batches, maximum, tokens):
    """Against a model that takes one report at a time: however they are grouped, the outcomes are the same."""
    task = os.urandom(32)
    store.open_round(task, maximum=maximum, tokens=tokens)
    good = {token_hash(number) for number in range(4)}
    if tokens:
        store.add_tokens(task, good)
    held: dict[bytes, bytes] = {}

    def expected(each: Incoming) -> ReportOutcome:
        if each.report_id in held:
            return SAME if held[each.report_id] == each.body else CONFLICT
        if tokens and each.token_hash not in good:
            wrong = each.token_hash is None or each.token_hash == token_hash(4)
            return ReportOutcome.TOKEN_UNKNOWN if wrong else ReportOutcome.TOKEN_SPENT
        if len(held) == maximum:
            return FULL
        held[each.report_id] = each.body
        good.discard(each.token_hash)
        return NEW

    for batch in batches:
        reports = [report(task, number, bytes((number, body)), token) for number, body, token in batch]
        assert store.accept(reports) == [expected(each) for each in reports]
    assert store.close_round(task) == len(held)
    assert sorted(store.reports(task)) == sorted(held.values())
    store.destroy(task)


def test_threads_that_accept_while_another_closes(store):
    """Each thread sends what the others send too. What was new is there once, and after the close nothing is."""
    task = os.urandom(32)
    store.open_round(task, maximum=10**6, tokens=False)
    accepted: list[list[int]] = [[], [], []]
    late: list[ReportOutcome] = []
    closed = threading.Event()

    def send(mine: list[int]) -> None:
        for start in range(0, 10**6, 8):
            was_closed = closed.is_set()
            outcomes = store.accept([report(task, number) for number in range(start, start + 8)])
            mine.extend(start + place for place, outcome in enumerate(outcomes) if outcome is NEW)
            if was_closed:
                late.extend(outcomes)
                return

    threads = [threading.Thread(target=send, args=(mine,)) for mine in accepted]
    for thread in threads:
        thread.start()
    while store.count(task) < 200:
        closed.wait(0.001)
    number = store.close_round(task)
    closed.set()
    for thread in threads:
        thread.join()
    everything = sorted(number for mine in accepted for number in mine)
    assert set(late) == {CLOSED}
    assert len(everything) == len(set(everything)) == number == store.count(task)
    assert sorted(store.reports(task)) == sorted(report(task, each).body for each in everything)


def test_sessions_that_the_server_ends_are_replaced(postgres_server, postgres_location):
    store = open_store(postgres_location)
    task = os.urandom(32)
    store.open_round(task, maximum=100, tokens=False)
    with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as connection:
        for number in range(3):
            database = postgres_location.split("/")[3].split("?")[0]
            query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
            assert connection.execute(query, (database,)).fetchone()[0] > 0
            assert store.accept([report(task, number)]) == [NEW]
    store.close()


def test_a_server_that_forgets_is_refused():
    class Forgetful:
        def execute(self, _):
            return self

        def fetchone(self):
            return ("off",)

    with pytest.raises(StoreError, match="fsync"):
        check_durable(Forgetful())


def test_a_server_that_is_not_there_is_one_readable_line(tmp_path):
    with pytest.raises(StoreError) as caught:
        open_store(f"postgresql://someone:secret@/nothing?host={tmp_path}")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def break_round(store, task: bytes) -> None:
    """Let the stored reports of a round vanish behind the back of the store."""
    if isinstance(store, SqliteStore):
        store._rounds[task].file.unlink()
        return
    with psycopg.connect(store._address, autocommit=True) as connection:
        query = "SELECT number FROM shuffledp.rounds WHERE task_id = %s"
        (number,) = connection.execute(query, (task,)).fetchone()
        connection.execute(f"DROP TABLE shuffledp.reports_{number}")


def test_a_round_that_is_damaged_harms_no_other(store, reopen):
    tasks = [os.urandom(32) for _ in range(3)]
    for task in tasks:
        store.open_round(task, maximum=100, tokens=False)
        store.accept([report(task)])
    store.snapshot()
    break_round(store, tasks[1])
    for number, open_again in ((1, lambda: store), (2, reopen)):
        again = open_again()
        outcomes = again.accept([report(task, number) for task in tasks])
        assert outcomes == [NEW, ReportOutcome.UNAVAILABLE, NEW]
        rounds = again.snapshot().rounds
        assert [rounds[task].error is None for task in tasks] == [True, False, True]
        assert tasks[1].hex() in rounds[tasks[1]].error
        assert [rounds[task].reports for task in tasks] == [number + 1, 1, number + 1]
    for to in (RoundState.ABANDONED, RoundState.ABANDONED):
        again.give_up(tasks[1], to)
    last = reopen()
    assert last.snapshot().rounds[tasks[1]].error is None
    assert last.rounds()[tasks[1]] is RoundState.ABANDONED
    assert last.accept([report(task, 3) for task in tasks]) == [NEW, CLOSED, NEW]
    last.open_round(tasks[1], maximum=100, tokens=False)
    assert last.state(tasks[1]) is RoundState.ABANDONED


def test_rounds_are_given_up_once_and_for_good(store, reopen):
    ends = {RoundState.CANCELLED: 2, RoundState.ABANDONED: 3}
    tasks = {}
    for end, number in ends.items():
        for steps in range(number):
            task = tasks[end, steps] = os.urandom(32)
            store.open_round(task, maximum=100, tokens=True)
            store.add_tokens(task, [token_hash(1)])
            store.accept([report(task, token=1)])
            store.close_round(task) if steps > 0 else None
            store.advance(task, RoundState.SHUFFLED, MANIFEST) if steps > 1 else None
            if steps > 1:
                with pytest.raises(StoreError, match="can be abandoned"):
                    store.give_up(task, RoundState.CANCELLED)
            with pytest.raises(StoreError, match="cannot become"):
                store.give_up(task, RoundState.DESTROYED)
            store.give_up(task, end)
            store.give_up(task, end)
    for open_again in (lambda: store, reopen):
        again = open_again()
        for (end, _), task in tasks.items():
            assert again.snapshot().rounds[task].state is end
            assert again.count(task) == 1
            assert again.accept([report(task, 2, token=1)]) == [CLOSED]
            with pytest.raises(StoreError, match="cannot be read"):
                again.reports(task)
            for other in {RoundState.CANCELLED, RoundState.ABANDONED} - {end}:
                with pytest.raises(StoreError, match="cannot become"):
                    again.give_up(task, other)
            with pytest.raises(StoreError, match="cannot become"):
                again.advance(task, RoundState.DELIVERED)


def test_a_snapshot_tells_the_time_of_a_database(store):
    told = store.snapshot()
    assert told.rounds == {}
    assert (told.time is None) == isinstance(store, SqliteStore)
    assert told.time is None or abs(told.time - time.time()) < 60


def test_looking_at_a_round_takes_no_number(postgres_location):
    store, task = open_store(postgres_location), os.urandom(32)
    store.open_round(task, maximum=100, tokens=False)
    query = "SELECT last_value FROM shuffledp.rounds_number_seq"
    with psycopg.connect(postgres_location, autocommit=True) as connection:
        before = connection.execute(query).fetchone()
        for _ in range(10):
            store.open_round(task, maximum=100, tokens=False)
        assert connection.execute(query).fetchone() == before
    store.close()


def test_reports_that_are_missing_at_the_end_are_missed(store, task):
    """A batch of fewer reports than were acknowledged is not made."""
    store.accept([report(task, number) for number in range(5)])
    store.close_round(task)
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store._rounds[task].file)) as connection:
            connection.execute("DELETE FROM reports WHERE rowid = 3")
            connection.commit()
    else:
        with psycopg.connect(store._address, autocommit=True) as connection:
            connection.execute("DELETE FROM shuffledp.reports_1 WHERE report_id = %s", ((3).to_bytes(16, "big"),))
    with pytest.raises(StoreError, match="4"):
        list(store.reports(task))


class Faulty:
    """A connection of SQLite whose next statements fail."""

    def __init__(self, connection, *faults: sqlite3.OperationalError):
        self._connection, self.faults = connection, list(faults)

    def execute(self, statement, *values):
        if statement.startswith("WITH RECURSIVE") and self.faults:
            raise self.faults.pop()
        return self._connection.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("later", ["accept", "close"])
def test_an_error_of_the_disk_is_tried_again(tmp_path, monkeypatch, later):
    """It isolates the round for a while, and not for good."""
    store = SqliteStore(tmp_path)
    tasks = [os.urandom(32), os.urandom(32)]
    for task in tasks:
        store.open_round(task, maximum=100, tokens=False)
    fault = sqlite3.OperationalError("disk I/O error")
    fault.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    here = store._rounds[tasks[0]]
    here.connection = Faulty(here.connection, fault)
    assert store.accept([report(task) for task in tasks]) == [ReportOutcome.UNAVAILABLE, NEW]
    assert str(here.file) in store.snapshot().rounds[tasks[0]].error
    if later == "accept":
        assert store.accept([report(task, 1) for task in tasks]) == [NEW, NEW]
    else:
        monkeypatch.setattr(sqlite_round, "_RETRY_SECONDS", 0.0)
    assert store.snapshot().rounds[tasks[0]].error is None
    assert store.close_round(tasks[0]) == (1 if later == "accept" else 0)
    store.close()
