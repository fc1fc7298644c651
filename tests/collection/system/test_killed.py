"""Both servers killed at random moments of a round: what was acknowledged is counted once, and released once."""

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing

import pytest

THREADS = 8
LONGEST_LIFE = 1.2  # seconds; a round that nobody disturbs takes about as long
MOST_STEPS = {"shuffler": 70, "analyzer": 150}  # on files, of a server that takes a round from its start to its end
MOST_KILLS = 4  # of each server, in a round
NORMAL, MANY = 6, 204
LATE = """
from shuffledp.collection.shuffler.ingest import Ingest
from shuffledp.collection.store.interface import Outcome
submit = Ingest.submit

def answer_at_once(self, incoming):
    import asyncio
    loop = asyncio.get_running_loop()
    loop.call_later(0.2, submit, self, incoming)
    future = loop.create_future()
    future.set_result(Outcome.NEW)
    return future

Ingest.submit = answer_at_once
"""


class Keeper(threading.Thread):
    """Starts a server again whenever it was killed; the last of its lives has no end."""

    def __init__(self, here, role: str, fates: list[dict], *, fault: str = ""):
        super().__init__()
        self.here, self.role, self.fates, self.fault = here, role, fates, fault
        self.kills: Counter = Counter()
        self.over = threading.Event()
        self.trouble = ""
        self.start()

    def run(self) -> None:
        for fate in [*self.fates, {}]:
            process = self.here.start(self.role, fault=self.fault, **fate)
            while process.is_alive() and not self.over.is_set():
                process.join(0.01)
            if process.is_alive():
                process.terminate()
                process.join(60)
                self._check(process, (0, -9, -15))  # killed after all, or asked to stop before it listens
                return
            if not self._check(process, (-9,)):
                return
            self.kills[self._phase()] += 1
            time.sleep(random.choice([0.0, random.uniform(0.0, 0.1)]))

    def _check(self, process, expected) -> bool:
        if process.exitcode not in expected:
            told = (self.here.folder / f"{self.role}.log").read_text()
            self.trouble = f"the {self.role} ended with {process.exitcode}: {told[-2000:]}"
        return not self.trouble

    def _phase(self) -> str:
        """What was being done when it was killed; where it stood a moment before is not told by anybody else."""
        if self.role == "analyzer":
            return self.here.look()
        told = {event["event"] for event in self.here.events("shuffler")}
        phases = {"delivered": "delivered", "shuffled": "delivering", "closed": "shuffling", "listening": "collecting"}
        return next((phase for event, phase in phases.items() if event in told), "starting")


def random_fates(role: str) -> list[dict]:
    """When a server dies in each of its lives: after some time, or at some step of its work on files."""
    fates = []
    for _ in range(random.randint(1, MOST_KILLS)):
        if random.random() < 0.5:
            fates.append({"seconds": random.uniform(0.01, LONGEST_LIFE)})
        else:
            fates.append({"steps": random.randint(1, MOST_STEPS[role])})
    return fates


def play(here, until, fates: dict[str, list[dict]], *, fault: str = "", seconds: float = 90.0) -> Counter:
    """A whole round; how often each server was killed, by what it was doing."""
    keepers = [Keeper(here, role, fates[role], fault=fault) for role in ("analyzer", "shuffler")]
    places = random.sample(range(len(here.reports)), len(here.reports))
    pause = random.choice([0.0, 0.01, 0.03, 0.06])
    devices = [
        threading.Thread(target=here.send, args=(places[i::THREADS],), kwargs={"pause": pause}, daemon=True)
        for i in range(THREADS)
    ]
    for each in devices:
        each.start()

    def is_over() -> bool:
        clean = not here.left_over() and not list((here.folder / "analyzer" / "batches").glob("*"))
        done = here.look() == "released" and clean and not any(each.is_alive() for each in devices)
        return done or any(each.trouble for each in keepers)

    try:
        until(is_over, seconds, f"the round with {fates}")
        document = here.release(seconds=seconds)
    finally:
        here.given_up = True
        for each in keepers:
            each.over.set()
        for each in [*keepers, *devices]:
            each.join()
    assert not [each.trouble for each in keepers if each.trouble]
    check(here, document)
    return sum((Counter({f"{each.role} {phase}": n for phase, n in each.kills.items()}) for each in keepers), Counter())


def check(here, document: dict) -> None:
    """Everything that must hold once the round is over."""
    here.look()
    counted = here.counted(document)
    assert Counter(counted.values()) == {here.times: here.users, 0: len(here.reports) - here.users}
    assert not [place for place in here.acknowledged if not counted[place]]
    assert document["reports"] == document["users"] == here.users
    assert document["rejected"] == {}
    assert [json.loads(each) for each in here.documents] == [document]
    released = [event for event in here.events("analyzer") if event["event"] == "released"]
    assert len(released) <= 1  # none, if it was killed before it could say so
    with closing(sqlite3.connect(here.folder / "analyzer" / "ledger.db")) as ledger:
        assert ledger.execute("SELECT task, granted FROM releases").fetchall() == [(here.form.task_id, 1)]
    with closing(sqlite3.connect(here.folder / "analyzer" / "analyzer.db")) as batches:
        assert batches.execute("SELECT task, state FROM batches").fetchall() == [(here.form.task_id, "released")]
    assert here.left_over() == set()
    assert not list((here.folder / "analyzer" / "batches").glob("*"))


@pytest.mark.parametrize(
    "schedules",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_nothing_is_lost_or_counted_twice(new_round, until, schedules):
    """Every acknowledged report is counted once, none twice; one release, one entry of the ledger, nothing left."""
    kills: Counter = Counter()
    for _ in range(schedules):
        kills += play(new_round(), until, {role: random_fates(role) for role in MOST_STEPS})
    assert kills.total() >= schedules - 1  # of one alone, all may come too late
    print(f"{schedules} schedules, {kills.total()} kills: {dict(kills)}")


def test_an_answer_before_it_is_durable_would_be_seen(new_round, until):
    """The same check on a shuffler with a fault: it says 201 and stores a little later."""
    here = new_round()
    with pytest.raises(AssertionError):
        play(here, until, {"analyzer": [], "shuffler": [{"seconds": 0.8}]}, fault=LATE, seconds=5.0)
    assert len(here.acknowledged) > here.users  # more than the round has room for


@pytest.mark.parametrize("moved", [0, 1, 3])
def test_a_report_counted_otherwise_would_be_seen(new_round, moved):
    """A release in which messages of one report are missing and those of another are counted again does not pass."""
    here = new_round()
    counts = [here.times] * here.users + [0] * (len(here.reports) - here.users)
    counts[0] -= moved
    counts[1] += moved
    found = here.counted(here.document(counts))
    assert list(found.values()) == counts
    assert (Counter(found.values()) == {here.times: here.users, 0: len(counts) - here.users}) == (moved == 0)
