"""Killed at any moment, the analyzer goes on where it was: one release, the same bytes, nothing left behind."""

import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.analyzer import ledger as ledger_module
from shuffledp.collection.analyzer import publishing
from shuffledp.collection.analyzer.directory import initialize
from shuffledp.collection.server import batches as batches_module
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.domain import Strings

FORMS = ("json", "csv", "html")
FEW, MANY = 2, 40
STRIDE = 4


@pytest.fixture
def batch(collection):
    return batch_of(collection, collection.task("histogram/k-rr"))  # whose distribution is computed in no time


def batch_of(collection, task):
    sealed = collection.sealed(task, np.arange(220) % 4)
    sealed[:3] = [os.urandom(task.sealed_size) for _ in range(3)]
    return collection.batch(task, sealed, chunk_records=60)


def published(work: Path, task_id: bytes) -> dict[str, bytes]:
    return {form: (work / "releases" / f"{task_id.hex()}.{form}").read_bytes() for form in FORMS}


def check_clean(work: Path, task_id: bytes) -> None:
    """Exactly one release in the ledger, three files of results, and no messages."""
    with closing(sqlite3.connect(work / "ledger.db")) as ledger, ledger:
        assert ledger.execute("SELECT task, granted, earlier FROM releases").fetchall() == [(task_id, 1, 0)]
    assert {file.name for file in (work / "releases").iterdir()} == {f"{task_id.hex()}.{form}" for form in FORMS}
    assert list((work / "batches").iterdir()) == []


def test_stopped_in_the_search_for_strings(collection, deliver):
    """Nothing is spent or published before the search ends; after the next start there is one release."""
    task = collection.task("strings/tree-blanket", settings={"domain": Strings("ab", 2)})
    batch = collection.batch(task, collection.sealed(task, np.arange(220) % 2))
    stops = iter([False] * len(batch.chunks) + [True])  # once per piece that is counted, then in the search
    with closing(collection.open()) as analyzer:
        deliver(analyzer, batch)
        with pytest.raises(ShutdownError):
            replace(analyzer.releaser, stopping=lambda: next(stops)).release(task.id)
        assert next(stops, None) is None
        assert list((collection.folder / "work" / "releases").iterdir()) == []
    with closing(collection.open()) as analyzer:
        assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    document = json.loads(published(collection.folder / "work", task.id)["json"])
    assert {"", "a"} <= set(document["strings"])  # not found with probability below 1e-12
    assert document["budget"]["releases"] == 1
    check_clean(collection.folder / "work", task.id)


class Killed(BaseException):
    """Stands for the end of the process."""


class Countdown:
    """Ends the process at its n-th step, before or after what that step does."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def around(self, function):
        def called(*arguments, **options):
            self.step()
            result = function(*arguments, **options)
            self.step()
            return result

        return called


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # what a kill leaves open (Python 3.13 warns)
@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_and_after_every_durable_step(collection, batch, deliver, monkeypatch, stride):
    """Every sync, rename, removal and change of a database, one after the other; or some of them, others each time."""
    monkeypatch.setattr(publishing, "release_page", lambda *_: b"a page")  # its bytes are the other test's
    reference = None
    steps = -random.randrange(stride)
    while True:
        steps += stride
        countdown = Countdown(steps)
        shutil.rmtree(collection.folder / "work")
        initialize(collection.folder / "work")
        analyzer = None
        with monkeypatch.context() as patched:
            for place, name in ((os, "fsync"), (os, "replace"), (shutil, "rmtree"), (Path, "rename")):
                patched.setattr(place, name, countdown.around(getattr(place, name)))
            patched.setattr(batches_module.Batches, "_change", countdown.around(batches_module.Batches._change))
            patched.setattr(ledger_module.Ledger, "reserve", countdown.around(ledger_module.Ledger.reserve))
            try:
                analyzer = collection.open()
                deliver(analyzer, batch)
                analyzer.releaser.release(batch.task.id)
                finished = True
            except Killed:
                finished = False
        if analyzer is not None:
            analyzer.close()
        analyzer = collection.open()
        known = analyzer.batches.get(batch.task.id)
        assert not finished or known.state is BatchState.RELEASED
        if known is None or known.state is not BatchState.RELEASED:
            deliver(analyzer, batch)
            assert analyzer.releaser.release(batch.task.id) is BatchState.RELEASED
        analyzer.close()
        collection.open().close()  # what was left behind is removed at the next start at the latest
        found = published(collection.folder / "work", batch.task.id)
        reference = reference or found
        assert found == reference, f"killed at step {steps}"
        check_clean(collection.folder / "work", batch.task.id)
        if finished:
            break
    gc.collect()  # while the filter holds
    assert steps > 60


NURSERY = """
import os, signal, socket, sys, threading
import anyio._backends._asyncio, jinja2, numpy, uvicorn.lifespan.on, uvicorn.loops.uvloop, uvicorn.main, uvloop
import scipy.special, scipy.stats, dp_accounting.pld.privacy_loss_distribution
import shuffledp.collection.analyzer.app, shuffledp.collection.server.running
import shuffledp.privacy.balcer_cheu, shuffledp.protocols.histogram.k_rr, shuffledp.protocols.registry
from shuffledp.cli.serve import serve_analyzer
from pathlib import Path

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        port, config = line.split(maxsplit=1)
        serve_analyzer(config=Path(config.strip()), host=None, port=int(port), check=False, as_json=False)
        os._exit(0)
    print(child, flush=True)
"""


@pytest.fixture
def nursery():
    """A process that has loaded everything, and starts analyzers in no time."""
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process
        process.stdin.close()
        process.wait(60)


def start(nursery, port: int, config: Path) -> int:
    nursery.stdin.write(f"{port} {config}\n")
    nursery.stdin.flush()
    return int(nursery.stdout.readline())


def end(process: int, how: int) -> None:
    os.kill(process, how)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def deliver_until(client, batch, deadline: float) -> bool:
    """Send what is missing as a shuffler does, again after every break, until released or the time is over."""
    path = f"/v1/batches/{batch.task.id.hex()}"
    while time.monotonic() < deadline:
        try:
            if client.put(path, batch.signed).json().get("state") == "released":
                return True
            for place in client.get(path).json()["missing"]:
                if time.monotonic() >= deadline:
                    break
                assert client.put(f"{path}/chunks/{place}", batch.chunks[place]).status in (200, 201)
        except OSError:
            pass
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("schedules", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_kill_minus_nine_at_random_times(schedules, collection, batch, nursery, free_port, new_client):
    """Each schedule: killed once or twice while chunks arrive or are opened, a budget reserved, results written."""
    run_schedules(schedules, collection, batch, nursery, free_port, new_client)


@pytest.mark.parametrize("schedules", [1, pytest.param(MANY // 4, marks=pytest.mark.slow)])
def test_kill_minus_nine_in_a_round_of_strings(schedules, collection, nursery, free_port, new_client):
    """The same with a search for strings before the budget is reserved; it finds the same strings every time."""
    task = collection.task("strings/tree-blanket", settings={"domain": Strings("ab", 2)})
    reference = run_schedules(schedules, collection, batch_of(collection, task), nursery, free_port, new_client)
    assert json.loads(reference["json"])["strings"]


def run_schedules(schedules, collection, batch, nursery, free_port, new_client) -> dict[str, bytes]:
    """Kill and restart the analyzer; the release is that of an undisturbed one, which is returned."""
    work, config, task_id = collection.folder / "work", collection.config(), batch.task.id
    port = free_port()
    client = new_client(port)
    began = time.monotonic()
    running = start(nursery, port, config)
    assert deliver_until(client, batch, began + 60)
    usual = time.monotonic() - began
    reference = published(work, task_id)
    assert json.loads(reference["json"])["rejected"] == {"cannot-be-opened": 3}
    end(running, signal.SIGTERM)
    kills = 0
    for _ in range(schedules):
        shutil.rmtree(work)
        initialize(work)
        served: set[bytes] = set()
        for _ in range(random.randrange(1, 3)):
            running = start(nursery, port, config)
            released = deliver_until(client, batch, time.monotonic() + random.uniform(0, 1.1 * usual))
            if released:
                served.add(client.get(f"/v1/releases/{task_id.hex()}").content)
            end(running, signal.SIGKILL)
            kills += 1
        running = start(nursery, port, config)
        assert deliver_until(client, batch, time.monotonic() + 60)
        served.add(client.get(f"/v1/releases/{task_id.hex()}").content)
        end(running, signal.SIGTERM)
        assert served == {reference["json"]}
        assert published(work, task_id) == reference
        check_clean(work, task_id)
    assert kills >= schedules
    return reference
