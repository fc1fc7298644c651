"""A group of reports is few statements in SQLite, whatever it holds, and each finds its rows by an index."""

import os
import sqlite3

import pytest

from shuffledp.collection.shuffler.store import Incoming, ReportOutcome, open_store, sqlite_round
from shuffledp.collection.shuffler.store.sqlite_round import SQLITE_ROUND


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "store"))
    yield store
    store.close()


def reports(task: bytes, count: int, *, size: int = 50, tokens: list[bytes] | None = None) -> list[Incoming]:
    shown = tokens or [None] * count
    return [Incoming(task, os.urandom(16), os.urandom(size), token) for token in shown]


def statements(store, task: bytes, batch: list[Incoming]) -> tuple[list[str], list[ReportOutcome]]:
    """The first words of what SQLite was asked to do, and what became of the reports."""
    said: list[str] = []
    connection = store._rounds[task].connection
    connection.set_trace_callback(lambda text: said.append(text.split()[0]))
    outcomes = store.accept(batch)
    connection.set_trace_callback(None)
    return said, outcomes


def test_new_reports_are_one_statement(store):
    task = os.urandom(32)
    store.open_round(task, maximum=1000, tokens=False)
    said, outcomes = statements(store, task, reports(task, 100))
    assert (said, outcomes) == (["WITH"], [ReportOutcome.NEW] * 100)
    said, outcomes = statements(store, task, reports(task, 5) + reports(task, 5, size=60))
    assert (said, outcomes) == (["BEGIN", "WITH", "WITH", "COMMIT"], [ReportOutcome.NEW] * 10)


def test_one_that_is_known_is_a_few_more(store):
    task = os.urandom(32)
    store.open_round(task, maximum=1000, tokens=False)
    old = reports(task, 1)
    store.accept(old)
    batch = reports(task, 50) + old + reports(task, 50) + [Incoming(task, old[0].report_id, b"other")]
    said, outcomes = statements(store, task, batch)
    assert len(said) <= 7
    assert outcomes == [ReportOutcome.NEW] * 50 + [ReportOutcome.SAME] + [ReportOutcome.NEW] * 50 + [
        ReportOutcome.CONFLICT
    ]
    assert store.count(task) == store.close_round(task) == 101


@pytest.mark.parametrize("known", [True, False])
def test_tokens_are_spent_together(store, known):
    task = os.urandom(32)
    store.open_round(task, maximum=1000, tokens=True)
    tokens = [os.urandom(32) for _ in range(100)]
    store.add_tokens(task, tokens if known else tokens[1:])
    said, outcomes = statements(store, task, reports(task, 100, tokens=tokens))
    assert len(said) <= (4 if known else 9)
    assert outcomes == [ReportOutcome.NEW if known else ReportOutcome.TOKEN_UNKNOWN] + [ReportOutcome.NEW] * 99
    again = store.accept(reports(task, 100, tokens=tokens))
    assert (
        again
        == [ReportOutcome.TOKEN_SPENT if known else ReportOutcome.TOKEN_UNKNOWN] + [ReportOutcome.TOKEN_SPENT] * 99
    )


def test_rows_are_found_by_an_index():
    connection = sqlite3.connect(":memory:")
    for statement in SQLITE_ROUND[0]:
        connection.execute(statement)
    for statement in (sqlite_round._SELECT_REPORTS, sqlite_round._SELECT_TOKENS, sqlite_round._SPEND_TOKENS):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", (b"", 1))]
        assert any(each.startswith("SEARCH ") for each in plan)
        assert not [each for each in plan if each.startswith("SCAN ") and each.split()[1] in ("reports", "tokens")]
    connection.close()
