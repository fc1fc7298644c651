"""The ledger: granted once, refused for good, never more than the budget, in any order and however often asked."""

import sqlite3
import threading

import pytest

from shuffledp.collection.analyzer.ledger import Ledger, spent_in
from shuffledp.collection.analyzer.settings import Budget
from shuffledp.errors import DataError
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import least_epsilon

AMPLE = Budget(100.0, 1e-4)
BATCH, OTHER = bytes(32), bytes([1] * 32)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def tasks_of(collection, *names, **changes):
    return [collection.task(name, publish=False, **changes) for name in names]


NAMES = ("count/balcer-cheu", "histogram/uniform-blanket", "histogram/k-rr", "histogram/correlated-noise")


def test_what_is_spent_is_the_composition_of_all_laws(shared_collection, ledger, tmp_path):
    tasks = tasks_of(shared_collection, *NAMES, "count/balcer-cheu")
    previous = 0.0
    for place, task in enumerate(tasks):
        entry = ledger.reserve(task, AMPLE, BATCH)
        assert entry.granted
        assert entry.releases == place + 1
        assert entry.spent_epsilon > previous
        previous = entry.spent_epsilon
    law = compose_all([task.guarantee.law for task in tasks])
    assert previous == pytest.approx(least_epsilon(law, AMPLE.delta), rel=1e-9)
    assert previous < len(tasks) * 1.0
    assert spent_in(tmp_path / "ledger.db", "people", AMPLE.delta) == (len(tasks), pytest.approx(previous, rel=1e-9))
    assert spent_in(tmp_path / "ledger.db", "others", AMPLE.delta) == (0, 0.0)
    assert spent_in(tmp_path / "none.db", "people", AMPLE.delta) == (0, 0.0)


def test_a_release_beyond_the_budget_is_refused_and_stays_refused(shared_collection, tmp_path):
    first, second, third = tasks_of(shared_collection, *["histogram/uniform-blanket"] * 3)
    budget = Budget(1.1, 1e-6)
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.reserve(first, budget, BATCH).granted
    refused = ledger.reserve(second, budget, BATCH)
    assert not refused.granted
    assert refused.spent_epsilon > 1.1
    assert "the budget of the population is 1.1" in refused.reason
    assert len(refused.reason.splitlines()) == 1
    ledger.close()
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.reserve(second, AMPLE, BATCH) == refused
    assert ledger.entry(second.id) == refused
    assert ledger.entry(third.id) is None
    more = ledger.reserve(third, AMPLE, BATCH)
    assert more.granted
    assert more.releases == 2, "what was refused spent nothing"
    ledger.close()


def test_a_budget_of_just_one_release_allows_it(shared_collection, ledger):
    for name in NAMES:
        (task,) = tasks_of(shared_collection, name, population=f"of {name}")
        entry = ledger.reserve(task, Budget(task.epsilon, task.delta), BATCH)
        assert entry.granted
        assert entry.spent_epsilon <= task.epsilon


def test_populations_do_not_touch_each_other(shared_collection, ledger):
    one, other = (tasks_of(shared_collection, "count/balcer-cheu", population=name)[0] for name in ("one", "other"))
    budget = Budget(1.0, 1e-6)
    assert ledger.reserve(one, budget, BATCH).granted
    assert ledger.reserve(other, budget, BATCH).granted


def test_asked_from_many_threads_each_task_is_reserved_once(shared_collection, tmp_path):
    tasks = tasks_of(shared_collection, *["count/balcer-cheu"] * 4)
    budget = Budget(1.5, 1e-6)
    ledger = Ledger(tmp_path / "ledger.db")
    answers: dict[bytes, list] = {task.id: [] for task in tasks}

    def ask():
        for task in tasks:
            answers[task.id].append(ledger.reserve(task, budget, BATCH))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(set(told)) == 1 for told in answers.values())
    granted = [task for task in tasks if answers[task.id][0].granted]
    assert 1 < len(granted) < len(tasks)
    law = compose_all([task.guarantee.law for task in granted])
    assert law.delta_at(budget.epsilon) <= budget.delta
    one_more = compose_all([task.guarantee.law for task in [*granted, tasks[0]]])
    assert one_more.delta_at(budget.epsilon) > budget.delta, "the budget is used up"
    ledger.close()


def test_a_budget_with_too_small_a_delta_is_never_enough(shared_collection, ledger):
    (task,) = tasks_of(shared_collection, "sum/split-and-mix", settings={"domain": _unit()})
    entry = ledger.reserve(task, Budget(600.0, 1e-12), BATCH)
    assert not entry.granted
    assert entry.spent_epsilon == float("inf")
    assert ledger.entry(task.id) == entry


def test_a_ledger_of_another_version_is_refused(tmp_path):
    Ledger(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(DataError, match="version 7"):
        Ledger(tmp_path / "ledger.db")


def _unit():
    from shuffledp.domain import Interval

    return Interval(0.0, 1.0)
