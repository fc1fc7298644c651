"""The ledger: granted once, refused for good, never more than the budget, in any order and however often asked."""

import json
import math
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from shuffledp.collection.analyzer import ledger as ledger_module
from shuffledp.collection.analyzer.ledger import Ledger, spent_in
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.task.canonical import canonical
from shuffledp.errors import DataError
from shuffledp.privacy import composition, sampled_curves
from shuffledp.privacy.capping import CappedCurve
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.sampled_curves import SampledCurve, SampledTotal

AMPLE = PopulationBudget(100.0, 1e-4)
BATCH, OTHER = bytes(32), bytes([1] * 32)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def tasks_of(collection, *names, **changes):
    return [collection.task(name, publish=False, **changes) for name in names]


NAMES = ("count/balcer-cheu", "histogram/uniform-blanket", "histogram/k-rr", "histogram/correlated-noise")


def test_what_is_spent_is_the_composition_of_all_distributions(shared_collection, ledger, tmp_path):
    tasks = tasks_of(shared_collection, *NAMES, "count/balcer-cheu")
    previous = 0.0
    for place, task in enumerate(tasks):
        entry = ledger.reserve(task, AMPLE, BATCH)
        assert entry.granted
        assert entry.releases == place + 1
        assert entry.spent_epsilon > previous
        previous = entry.spent_epsilon
    curve = compose_all([task.guarantee.curve for task in tasks])
    assert previous == pytest.approx(least_epsilon(curve, AMPLE.delta), rel=1e-9)
    assert previous < len(tasks) * 1.0
    assert spent_in(tmp_path / "ledger.db", "people", AMPLE.delta) == (len(tasks), pytest.approx(previous, rel=1e-9))
    assert spent_in(tmp_path / "ledger.db", "others", AMPLE.delta) == (0, 0.0)
    assert spent_in(tmp_path / "none.db", "people", AMPLE.delta) == (0, 0.0)


def test_twelve_capped_releases_cost_less_than_basic_composition(shared_collection, ledger, monkeypatch):
    """At (1, 1e-8) each, 10.65 at 1e-6; with all caps added to the total, no epsilon would hold."""
    (task,) = tasks_of(shared_collection, "histogram/correlated-noise", users=25_000, delta=1e-8)
    curve = task.guarantee.curve
    assert isinstance(curve, CappedCurve)
    tasks = [replace(task, name=f"Week {week}") for week in range(12)]
    spent = [ledger.reserve(each, PopulationBudget(12.0, 1e-6), BATCH) for each in tasks][-1]
    assert spent.granted
    assert spent.spent_epsilon == pytest.approx(10.65, abs=0.01)
    monkeypatch.setattr(sampled_curves, "_MAX_EVALUATIONS", 1000)  # chords between neighbouring points only
    once = SampledCurve.of(curve, epsilon=1.0, delta=1e-8)
    assert spent.spent_epsilon <= SampledTotal.of([once] * 12).epsilon_at(1e-6) <= 12.0
    # chords raise a privacy loss by less than one cell, so that losses of one cell less are below the truth
    raised = SampledTotal.of([once] * 12)
    lower = replace(raised, first=raised.first - 12, epsilon=math.inf)
    assert lower.epsilon_at(1e-6) <= spent.spent_epsilon
    outside = 12 * curve.users * curve.chance * (1 + math.exp(spent.spent_epsilon))
    assert outside > 1e-6  # the planted fault


def test_a_release_beyond_the_budget_is_refused_and_stays_refused(shared_collection, tmp_path):
    first, second, third = tasks_of(shared_collection, *["histogram/uniform-blanket"] * 3)
    budget = PopulationBudget(1.1, 1e-6)
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
        entry = ledger.reserve(task, PopulationBudget(task.epsilon, task.delta), BATCH)
        assert entry.granted
        assert entry.spent_epsilon <= task.epsilon


def test_populations_do_not_touch_each_other(shared_collection, ledger):
    one, other = (tasks_of(shared_collection, "count/balcer-cheu", population=name)[0] for name in ("one", "other"))
    budget = PopulationBudget(1.0, 1e-6)
    assert ledger.reserve(one, budget, BATCH).granted
    assert ledger.reserve(other, budget, BATCH).granted


def test_asked_from_many_threads_each_task_is_reserved_once(shared_collection, tmp_path):
    tasks = tasks_of(shared_collection, *["count/balcer-cheu"] * 3)
    budget = PopulationBudget(1.5, 1e-6)
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
    curve = compose_all([task.guarantee.curve for task in granted])
    assert curve.delta_at(budget.epsilon) <= budget.delta
    one_more = compose_all([task.guarantee.curve for task in [*granted, tasks[0]]])
    assert one_more.delta_at(budget.epsilon) > budget.delta, "the budget is used up"
    ledger.close()


def test_nobody_waits_while_losses_are_convolved(shared_collection, ledger, monkeypatch):
    """A manifest arrives while a release is judged: the ledger must answer at once."""
    first, second = tasks_of(shared_collection, *["count/balcer-cheu"] * 2)
    ledger.reserve(first, AMPLE, BATCH)
    judging, go_on, answers = threading.Event(), threading.Event(), []

    def slowly(curve, delta):
        judging.set()
        assert go_on.wait(60)
        return least_epsilon(curve, delta)

    monkeypatch.setattr(ledger_module, "least_epsilon", slowly)
    release = threading.Thread(target=lambda: answers.append(ledger.reserve(second, AMPLE, BATCH)))
    request = threading.Thread(target=lambda: answers.append(ledger.manifest(first.id)))
    release.start()
    assert judging.wait(60)
    request.start()
    request.join(10)
    assert answers == [BATCH], "it waited"
    go_on.set()
    release.join(60)
    assert answers[1].granted


@pytest.mark.parametrize("ledgers", [1, 2], ids=["one ledger", "two processes' ledgers"])
def test_of_two_releases_at_the_same_time_only_one_passes_a_budget_for_one(
    shared_collection, tmp_path, monkeypatch, ledgers
):
    tasks = tasks_of(shared_collection, *["count/balcer-cheu"] * 2)
    opened = [Ledger(tmp_path / "ledger.db") for _ in range(ledgers)]
    both, judged, true = threading.Barrier(2), [], ledger_module._decide

    def judge(*told):
        entry = true(*told)
        judged.append(entry)
        if len(judged) <= 2:
            both.wait(60)  # both would pass by what they have read
        return entry

    monkeypatch.setattr(ledger_module, "_decide", judge)
    found = {}

    def ask(place):
        found[place] = opened[place % ledgers].reserve(tasks[place], PopulationBudget(1.1, 1e-6), BATCH)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [entry.granted for entry in judged] == [True, True, False]
    assert sorted(entry.granted for entry in found.values()) == [False, True]
    assert sorted(entry.releases for entry in found.values()) == [1, 2]
    for each in opened:
        assert [each.entry(task.id) for task in tasks] == [found[0], found[1]]
        each.close()


_PROCESSES = """
import json, os, random, sys
from pathlib import Path
import dp_accounting.pld.privacy_loss_distribution  # what takes long to load is loaded once, then the processes part
from shuffledp.collection.analyzer.ledger import Ledger
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.task.task import SignedTask
path, processes = sys.argv[1], int(sys.argv[2])
tasks = [SignedTask.load(each).task for each in sys.argv[3:]]
(are_ready, ready), (may_begin, begin) = os.pipe(), os.pipe()
for number in range(processes):
    if os.fork() == 0:
        os.close(begin)
        random.seed()
        random.shuffle(tasks)
        ledger = Ledger(Path(path))
        os.write(ready, b".")
        os.read(may_begin, 1)  # until all have closed the other end
        entries = {task.id.hex(): ledger.reserve(task, PopulationBudget(1.5, 1e-6), bytes(32)) for task in tasks}
        told = json.dumps({task: entry.granted for task, entry in entries.items()})
        Path(f"{path}.{number}.json").write_text(told)
        os._exit(0)
os.close(ready)
heard = 0
while heard < processes and (some := os.read(are_ready, processes)):
    heard += len(some)
os.close(begin)
for _ in range(processes):
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize(("processes", "releases"), [(2, 3), pytest.param(3, 5, marks=pytest.mark.slow)])
def test_processes_that_ask_at_the_same_time_agree_and_keep_the_budget(
    shared_collection, tmp_path, processes, releases
):
    tasks = tasks_of(shared_collection, *["count/balcer-cheu"] * releases)
    files = []
    for task in tasks:
        files.append(tmp_path / f"{task.id.hex()}.json")
        files[-1].write_bytes(task.signed(shared_collection.author).to_bytes())
    Ledger(tmp_path / "ledger.db").close()
    command = [sys.executable, "-c", _PROCESSES, tmp_path / "ledger.db", str(processes), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"ledger.db.{number}.json").read_text()) for number in range(processes)]
    assert all(each == told[0] for each in told)
    granted = [task for task in tasks if told[0][task.id.hex()]]
    assert 1 < len(granted) < len(tasks)
    assert compose_all([task.guarantee.curve for task in granted]).delta_at(1.5) <= 1e-6
    assert compose_all([task.guarantee.curve for task in [*granted, tasks[0]]]).delta_at(1.5) > 1e-6


def test_one_more_release_costs_one_more_convolution(shared_collection, tmp_path, monkeypatch):
    tasks = tasks_of(shared_collection, *NAMES, *NAMES)
    ledger = Ledger(tmp_path / "ledger.db")
    for task in tasks[:-1]:
        ledger.reserve(task, AMPLE, BATCH)
    computed, true = [], composition._losses_of
    monkeypatch.setattr(composition, "_losses_of", lambda curve: computed.append(curve) or true(curve))
    last = ledger.reserve(tasks[-1], AMPLE, BATCH)
    assert len(computed) == 1
    ledger.close()
    monkeypatch.undo()
    curve = compose_all([task.guarantee.curve for task in tasks])
    assert last.spent_epsilon == pytest.approx(least_epsilon(curve, AMPLE.delta), rel=1e-8)


class FullDisk:
    """A connection on which nothing that was inserted can be committed."""

    def __init__(self, connection):
        self._connection, self._inserted = connection, False

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, statement, *rest):
        if statement == "COMMIT" and self._inserted:
            raise sqlite3.OperationalError("database or disk is full")
        self._inserted |= statement.startswith("INSERT")
        return self._connection.execute(statement, *rest)


def test_an_entry_that_did_not_become_durable_spends_nothing(shared_collection, ledger, monkeypatch):
    first, second = tasks_of(shared_collection, *["count/balcer-cheu"] * 2)
    budget = PopulationBudget(1.1, 1e-6)
    monkeypatch.setattr(ledger, "_connection", FullDisk(ledger._connection))
    with pytest.raises(sqlite3.OperationalError, match="full"):
        ledger.reserve(first, budget, BATCH)
    monkeypatch.undo()
    assert ledger.entry(first.id) is None
    assert ledger.reserve(second, budget, BATCH).releases == 1
    assert not ledger.reserve(first, budget, BATCH).granted


def test_a_budget_with_too_small_a_delta_is_never_enough(shared_collection, ledger):
    (task,) = tasks_of(shared_collection, "sum/split-and-mix", settings={"domain": _unit()})
    entry = ledger.reserve(task, PopulationBudget(600.0, 1e-12), BATCH)
    assert not entry.granted
    assert entry.spent_epsilon == float("inf")
    assert ledger.entry(task.id) == entry


def test_twelve_releases_of_capped_noise_have_an_epsilon(shared_collection, ledger):
    """It was infinite when what caps cost was added outside the convolution, and every later release was refused."""
    tasks = tasks_of(shared_collection, *["histogram/correlated-noise"] * 12, epsilon=1.0, delta=1e-8)
    spent = [ledger.reserve(task, PopulationBudget(12.0, 1e-6), BATCH) for task in tasks]
    assert all(entry.granted for entry in spent)
    assert 10.5 < spent[-1].spent_epsilon < 10.8


def test_a_ledger_of_another_version_is_refused(tmp_path):
    Ledger(tmp_path / "ledger.db").close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(DataError, match="version 7"):
        Ledger(tmp_path / "ledger.db")


def _unit():
    from shuffledp.domain import Interval

    return Interval(0.0, 1.0)


def test_a_release_that_cannot_be_verified_spends_everything(shared_collection, tmp_path):
    """Entered by an earlier version: a task without noise, whose probability of 1,100 bits underflowed to a proof."""
    first, second = tasks_of(shared_collection, *["count/balcer-cheu"] * 2)
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.reserve(first, AMPLE, BATCH).granted
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        (content,) = connection.execute("SELECT law FROM releases").fetchone()
        document = json.loads(content)
        document["protocol"]["parameters"]["noise"]["absence"] = {"bits": 1100, "numerator": 1}
        connection.execute("UPDATE releases SET law = ?", (canonical(document),))
    assert spent_in(tmp_path / "ledger.db", "people", AMPLE.delta) == (1, math.inf)
    ledger = Ledger(tmp_path / "ledger.db")
    refused = ledger.reserve(second, AMPLE, BATCH)
    ledger.close()
    assert not refused.granted
    assert refused.spent_epsilon == math.inf
