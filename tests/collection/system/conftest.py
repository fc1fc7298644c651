"""The whole system under test: both servers as processes that are easily started, and die when they should."""

import contextlib
import json
import multiprocessing
import multiprocessing.forkserver
import secrets
import time

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.collection.client.connection import Connection
from shuffledp.collection.client.sending import Patience, deliver, reports_path
from shuffledp.collection.rehearsal import Rehearsal
from shuffledp.collection.sealing import Sealer
from shuffledp.collection.wire import ReportFormat
from shuffledp.errors import RefusedError, UnreachableError
from shuffledp.model import Tally

WAIT_SECONDS = 90.0
USERS, DEVICES = 200, 220
_LOADED = [
    "shuffledp.cli.main",
    "shuffledp.collection.analyzer.app",
    "shuffledp.collection.service.running",
    "shuffledp.collection.shuffler.app",
    "shuffledp.collection.store.sqlite",
    "encodings.idna",
    "numpy.random",
    "pyarrow.csv",
    "pydantic.type_adapter",
    "statistics",
    "uvicorn.main",
    "uvloop",
]
_SERVER = """
import os, signal, sys, threading, time

os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
left, lock = steps, threading.Lock()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def step(*_):
    global left
    with lock:
        left -= 1
        if left == 0:
            die()

def look(name, arguments):
    if name in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect", "shutil.rmtree"):
        if folder in str(arguments[0]):
            step()

def synchronize(descriptor, original=os.fsync):
    step()
    original(descriptor)
    step()

if steps:  # die at a step of the work on files, before or after it is durable
    sys.addaudithook(look)
    os.fsync = synchronize
if seconds:
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()

from shuffledp.cli.main import _run
from shuffledp.collection.analyzer import page
from shuffledp.collection.analyzer.server import Analyzer
from shuffledp.collection.shuffler import release
from shuffledp.collection.shuffler.server import Shuffler

for server in (Analyzer, Shuffler):
    server.__init__.__kwdefaults__["tick"] = 0.05  # nobody waits long, not even after a failure
release._CHUNK_BYTES = 4000  # so that a small round has several chunks
page._picture = lambda *_: ""  # drawing it takes longer than the whole round
exec(fault)
sys.exit(_run(["serve", role, "--config", config]))
"""


def until(condition, seconds: float = WAIT_SECONDS, what: str = "it"):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"{what} took too long"
        time.sleep(0.01)
    return result


class Round(Rehearsal):
    """A round whose reports all hold something else, so that the release tells which were counted, and how often.

    Report i holds the category i as often as an honest report has messages at least, and dummies.
    """

    @classmethod
    def begin(cls, folder) -> "Round":
        kind, size = sdp.find("histogram", "uniform-blanket"), {"users": USERS, "domain_size": DEVICES}
        here = cls.prepare(folder, kind=kind, settings=size, epsilon=4.0, delta=0.1)
        task = here.task.task
        here.form, here.times = ReportFormat.of(task), 1 + task.protocol.blanket.whole
        here.name = task.id.hex()
        sealer = Sealer(task.analyzer, task.id, task.message_size)
        packed = task.protocol.message_format.pack(np.arange(DEVICES, dtype=task.protocol.message_format.dtype))
        here.sealed = [sealer.seal([each.tobytes()] * here.times, here.form.messages) for each in packed]
        here.reports = [here.form.build(secrets.token_bytes(16), each) for each in here.sealed]
        here.acknowledged = set()
        here.documents = set()
        here.processes = []
        here.users, here.given_up = USERS, False
        return here

    def start(
        self, role: str, *, seconds: float = 0.0, steps: int = 0, fault: str = ""
    ) -> multiprocessing.process.BaseProcess:
        """A server that is killed after so many seconds or at a step of its work on files, if not 0."""
        values = {
            "role": role,
            "seconds": seconds,
            "steps": steps,
            "folder": str(self.folder),
            "config": str(self.folder / "servers.toml"),
            "log": str(self.folder / f"{role}.log"),
            "fault": fault,
            "__name__": "server",
        }
        process = multiprocessing.get_context("forkserver").Process(target=exec, args=(_SERVER, values), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def send(self, places, *, pause: float = 0.0) -> None:
        """Some devices report as devices do: again and again, until they are answered."""
        patience = Patience(attempts=1000, first_pause=0.02, longest_pause=0.1)

        def wait(seconds: float) -> None:
            if self.given_up:
                raise UnreachableError("The test is over.")
            time.sleep(min(seconds, 0.2))

        with Connection(self.shuffler_url, timeout=10) as connection:
            for place in places:
                if self.given_up:
                    return
                path, report = reports_path(self.form.task_id), self.reports[place]
                with contextlib.suppress(RefusedError, UnreachableError):  # the round is closed or full
                    deliver(connection, path, report, patience=patience, wait=wait)
                    self.acknowledged.add(place)
                time.sleep(pause)

    def look(self) -> str:
        """How far the analyzer is, by its files; what is published is kept, to see whether it ever changes."""
        batch, file = (
            self.folder / "analyzer" / name for name in (f"batches/{self.name}", f"releases/{self.name}.json")
        )
        with contextlib.suppress(FileNotFoundError):
            self.documents.add(file.read_bytes())
            return "publishing" if batch.exists() else "released"
        if not (batch / "manifest").exists():
            return "waiting"
        try:
            chunks = len(json.loads((batch / "manifest").read_bytes())["batch"]["chunks"])
        except FileNotFoundError:  # released just now
            return self.look()
        return "opening" if len(list(batch.glob("[0-9]*.chunk"))) == chunks else "receiving"

    def events(self, role: str) -> list[dict]:
        """What a server has logged in all its lives; the last line of a killed one may be cut."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / f"{role}.log").read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    found.append(json.loads(line))
        return found

    def left_over(self) -> set[str]:
        """What the shuffler still has of the round: files of reports, of the permutation, of the batch."""
        work = {each.name for each in (self.folder / "shuffler").iterdir() if each.name != ".lock"}
        return work | {each.name for each in (self.folder / "reports").glob("round-*")}

    def document(self, counts: list[int]) -> dict:
        """The part of a release that says what was counted."""
        return {"counts": self.task.task.protocol.estimate(Tally(np.array(counts), USERS)).counts.tolist()}

    def counted(self, document: dict) -> dict[int, int]:
        """How many of each report's messages were counted: estimates are linear in counts."""
        protocol, messages = self.task.task.protocol, USERS * self.times
        known = np.zeros(DEVICES, dtype=np.int64)
        known[0] = messages
        high, low = protocol.estimate(Tally(known, USERS)).counts[:2]
        counts = (np.asarray(document["counts"]) - low) / (high - low) * messages
        assert np.abs(counts - np.round(counts)).max() < 1e-6
        return dict(enumerate(np.round(counts).astype(int).tolist()))


@pytest.fixture(scope="session", autouse=True)
def _loaded():
    """Servers are forked from a process that has loaded everything: a start takes no second."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_LOADED)


@pytest.fixture(name="until")
def _until():
    return until


@pytest.fixture
def new_round(tmp_path):
    """Rounds, each in a folder of its own, whose servers end with the test."""
    rounds: list[Round] = []

    def begin() -> Round:
        folder = tmp_path / str(len(rounds))
        folder.mkdir()
        rounds.append(Round.begin(folder))
        return rounds[-1]

    yield begin
    for process in (process for here in rounds for process in here.processes):
        if process.is_alive():
            process.kill()
        process.join()
        process.close()
