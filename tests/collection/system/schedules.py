"""Servers that are killed at random moments of a round and started again, and what must hold after it."""

import json
import random
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing, contextmanager

WAIT_SECONDS = 90.0
LONGEST_LIFE = 1.2  # seconds; a round that nobody disturbs takes about as long
MAX_STEPS = {"shuffler": 70, "analyzer": 150}  # on files, of a server that takes a round from its start to its end
MAX_STEPS_SHARED = 1000  # on files and in the database, which a shuffler asks again and again
MAX_LATE_STEPS = 120  # of those in a release
MAX_KILLS = 4  # of each server, in a round
PAUSES = [0.0, 0.01, 0.03, 0.06]
UNREACHABLE = "The PostgreSQL server cannot be"
PORT_IN_USE = "Cannot listen on"
EARLY_ANSWERS = """
from shuffledp.collection.shuffler.commit_queue import CommitQueue
from shuffledp.collection.shuffler.store.interface import ReportOutcome
submit, submitted = CommitQueue.submit, 0

def answer_early(self, incoming):
    import asyncio
    global submitted
    submitted += 1
    if not 40 < submitted <= 50 or os.path.exists(log + ".died"):
        return submit(self, incoming)
    loop = asyncio.get_running_loop()
    loop.call_later(0.2, submit, self, incoming)
    if submitted == 50:
        loop.call_later(0.1, die_once)
    future = loop.create_future()
    future.set_result(ReportOutcome.NEW)
    return future

CommitQueue.submit = answer_early
"""
"""A fault of the shuffler: to ten reports it says 201, stores them a little later, and is killed in between.

Devices have to pause, or the round is full before these ten are stored.
"""


def until(condition, seconds: float = WAIT_SECONDS, what: str = "it"):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"{what} took too long"
        time.sleep(0.01)
    return result


class Keeper(threading.Thread):
    """Starts a server again whenever it was killed; the last of its lives has no end."""

    def __init__(self, here, server: str, fates: list[dict], *, fault: str = "", outages: "Outages | None" = None):
        super().__init__()
        self.here, self.server, self.fates, self.fault, self.outages = here, server, fates, fault, outages
        self.kills: Counter = Counter()
        self.over = threading.Event()
        self.trouble = ""
        self.start()

    def run(self) -> None:
        try:
            self._keep()
        except Exception as error:  # the test would wait for a server that nobody starts
            self.trouble = f"the {self.server} could not be kept running: {error!r}"

    def _keep(self) -> None:
        fates = deque(self.fates)
        while True:
            process = self.here.start(self.server, fault=self.fault, **(fates[0] if fates else {}))
            while self.here.lives(process) and not self.over.is_set():
                time.sleep(0.01)
            if self.here.lives(process):
                process.terminate()
                self._wait_for_end(process)
                self._check(process, (0, -9, -15))  # killed after all, or asked to stop before it listens
                return
            if self._lacked_its_database(process) or self._lacked_its_port(process):
                time.sleep(0.05)  # it is started again as by a supervisor, with what it has to do in this life
                continue
            if not self._check(process, (-9,)):
                return
            if fates:
                fates.popleft()
            self.kills[self._phase()] += 1
            time.sleep(random.choice([0.0, random.uniform(0.0, 0.1)]))

    def _wait_for_end(self, process) -> None:
        deadline = time.monotonic() + 60
        while self.here.lives(process) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _lacked_its_database(self, process) -> bool:
        return process.exitcode == 1 and self.outages is not None and UNREACHABLE in self._told()[-500:]

    def _lacked_its_port(self, process) -> bool:
        """Whether another program had its port, such as a server of a test that runs at the same time."""
        return process.exitcode == 1 and PORT_IN_USE in self._told()[-500:]

    def _check(self, process, expected) -> bool:
        if process.exitcode not in expected:
            self.trouble = f"the {self.server} ended with {process.exitcode}: {self._told()[-2000:]}"
        return not self.trouble

    def _told(self) -> str:
        return (self.here.directory / f"{self.server}.log").read_text()

    def _phase(self) -> str:
        """What was being done when it was killed; where it stood a moment before is not told by anybody else."""
        if self.server == "analyzer":
            return self.here.look()
        return phase(self.here)


class Outages(threading.Thread):
    """Crashes of the database, each some time after the one before."""

    def __init__(self, here, database, crashes: list[dict]):
        super().__init__()
        self.here, self.database, self.crashes = here, database, crashes
        self.kills: Counter = Counter()
        self.over = threading.Event()
        self.trouble = ""
        self.start()

    def run(self) -> None:
        try:
            for each in self.crashes:
                if self.over.wait(each["after"]):
                    return
                when = phase(self.here)
                self.database.crash(each["way"], each["pause"])
                self.kills[f"{each['way']} {when}"] += 1
        except Exception as error:
            self.trouble = f"the database: {error!r}"


def phase(here) -> str:
    """What the shufflers were last known to do."""
    told = {event["event"] for server in here.shufflers for event in here.events(server)}
    phases = {"delivered": "delivered", "shuffled": "delivering", "closed": "shuffling", "listening": "collecting"}
    return next((name for event, name in phases.items() if event in told), "starting")


def random_fates(server: str, most_kills: int = MAX_KILLS) -> list[dict]:
    """When a server dies in each of its lives: after some time, or at some step of its durable work."""
    most_steps = MAX_STEPS.get(server, MAX_STEPS_SHARED)
    fates: list[dict] = []
    for _ in range(random.randint(1, most_kills)):
        kind = random.random()
        if kind < 0.5:
            fates.append({"seconds": random.uniform(0.01, LONGEST_LIFE)})
        elif server in MAX_STEPS or kind < 0.75:
            fates.append({"steps": random.randint(1, most_steps)})
        else:
            fates.append({"steps": random.randint(1, MAX_LATE_STEPS), "late": True})
    return fates


@contextmanager
def kept(here, fates: dict[str, list[dict]], *, fault: str = "", crashes=()) -> Iterator[list]:
    """The servers of a round, which are killed as their fates say and started again, until the block ends.

    ``crashes`` are a database and how it crashes. Gives everything that can be in trouble.
    """
    outages = Outages(here, *crashes) if crashes else None
    keepers = [Keeper(here, each, fates.get(each, []), fault=fault, outages=outages) for each in here.environments]
    everything = [*keepers, *([outages] if outages else [])]
    try:
        yield everything
    finally:
        for each in everything:
            each.over.set()
        for each in everything:
            each.join()
    check_servers(everything)


def report(here, keepers, places, *, pause: float) -> None:
    """Have some reports sent, until they are answered."""
    devices = here.devices(places, pause=pause)
    for each in devices:
        each.start()
    try:
        until(lambda: not any(each.is_alive() for each in devices) or in_trouble(keepers), what="reporting")
    finally:
        here.given_up = any(each.is_alive() for each in devices)
        for each in devices:
            each.join()


def in_trouble(keepers) -> list[str]:
    """What else than the kills happened to the servers."""
    return [each.trouble for each in keepers if each.trouble]


def check_servers(keepers) -> None:
    assert not (trouble := in_trouble(keepers)), "; ".join(trouble)


def release(here, keepers) -> dict:
    """What is published, once that is all that is left of the round."""

    def is_over() -> bool:
        clean = not here.left_over() and not list((here.directory / "analyzer" / "batches").glob("*"))
        return (here.look() == "released" and clean) or in_trouble(keepers)

    until(is_over, what="the release")
    check_servers(keepers)
    return here.release(seconds=WAIT_SECONDS)


def kills_of(keepers) -> Counter:
    """How often each server was killed, by what it was doing."""
    return sum(
        (
            Counter({f"{getattr(each, 'server', 'database')} {when}": n for when, n in each.kills.items()})
            for each in keepers
        ),
        Counter(),
    )


def play(here, fates: dict[str, list[dict]], *, fault: str = "", crashes=(), pause: float | None = None) -> Counter:
    """A whole round; how often each server was killed, by what it was doing."""
    places = random.sample(range(len(here.reports)), len(here.reports))
    with kept(here, fates, fault=fault, crashes=crashes) as keepers:
        report(here, keepers, places, pause=random.choice(PAUSES) if pause is None else pause)
        document = release(here, keepers)
    check(here, document)
    return kills_of(keepers)


def check(here, document: dict) -> None:
    """Everything that must hold once the round is over."""
    here.look()
    counted, task = here.counted(document), here.form.task_id
    lost = [place for place in here.acknowledged if not counted[place]]
    assert not lost, f"acknowledged and lost: {lost}"
    times = Counter(counted.values())
    assert times == {here.times: here.users, 0: len(here.reports) - here.users}, f"counted so often: {times}"
    found = (document["reports"], document["users"], document["rejected"])
    assert found == (here.users, here.users, {}), f"released: {found}"
    assert [json.loads(each) for each in here.documents] == [document], "the release changed"
    released = [event for event in here.events("analyzer") if event["event"] == "released"]
    assert len(released) <= 1, f"{len(released)} releases"  # none, if it was killed before it could say so
    with closing(sqlite3.connect(here.directory / "analyzer" / "ledger.db")) as ledger:
        entries = ledger.execute("SELECT task, granted FROM releases").fetchall()
    assert entries == [(task, 1)], f"the ledger has {entries}"
    with closing(sqlite3.connect(here.directory / "analyzer" / "analyzer.db")) as batches:
        states = batches.execute("SELECT task, state FROM batches").fetchall()
    assert states == [(task, "released")], f"the batches are {states}"
    left = [*here.left_over(), *(here.directory / "analyzer" / "batches").glob("*")]
    assert not left, f"left over: {left}"
    here.check_store()
