"""Rounds whose release tells what was counted, and their servers as processes that are easily started and die."""

import contextlib
import http.client
import itertools
import json
import multiprocessing
import random
import secrets
import sqlite3
import threading
import time
from collections import defaultdict
from typing import ClassVar

import numpy as np
import psycopg

import shuffledp as sdp
from shuffledp.collection.device.sending import Patience, deliver, reports_path
from shuffledp.collection.rehearsal import ROUND_KEYS, Rehearsal, free_ports
from shuffledp.collection.shuffler.enrolment import create_tokens
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import HybridKey, RoundKey, SealingKey, SigningKey
from shuffledp.collection.wire.layers import add_layers
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import RefusedError, UnreachableError
from shuffledp.messages import Tally

USERS, DEVICES = 200, 220
THREADS = 8
ACCEPTED = {"200", "201"}
LOADED = [
    "shuffledp.cli.main",
    "shuffledp.cli.serve",
    "shuffledp.collection.analyzer.app",
    "shuffledp.collection.server.running",
    "shuffledp.collection.shuffler.app",
    "shuffledp.collection.shuffler.store.postgres",
    "shuffledp.collection.shuffler.store.sqlite",
    "encodings.idna",
    "numpy.random",
    "pyarrow.csv",
    "pydantic.type_adapter",
    "statistics",
    "uvicorn.main",
    "uvloop",
]
"""What the process has loaded that servers are forked from."""
_CHILDREN = threading.Lock()
"""To start a process asks after all others; of two threads that ask after one, the second reads a wrong status."""
_SERVER = """
import os, signal, sys, threading, time

os.environ.update(environment)
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
left, lock, counting = steps, threading.Lock(), not late

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_once():  # for planted faults: in the first life alone
    try:
        os.mkdir(log + ".died")
    except FileExistsError:
        return
    die()

def step(*_):
    global left
    with lock:
        left -= counting
        if left == 0:
            die()

def begin_to_count():
    global counting
    counting = True

def look(name, arguments):
    if name in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect", "shutil.rmtree"):
        if folder in str(arguments[0]):
            step()

def synchronize(descriptor, original=os.fsync):
    step()
    original(descriptor)
    step()

def around(method, before, after=lambda: None):
    def changed(self, *arguments, **settings):
        before()
        result = method(self, *arguments, **settings)
        after()
        return result
    return changed

if steps:  # die at a step of the work on files or in a database, before or after it is durable
    sys.addaudithook(look)
    os.fsync = synchronize
    if shared:
        from psycopg import Connection
        Connection.commit, Connection.execute = (
            around(each, step, step) for each in (Connection.commit, Connection.execute)
        )
if seconds:
    timer = threading.Timer(seconds, die)
    timer.daemon = True
    timer.start()

from shuffledp.cli.main import _run
from shuffledp.collection.analyzer.server import Analyzer
from shuffledp.collection.shuffler import shuffling
from shuffledp.collection.shuffler.server import Shuffler

for server in (Analyzer, Shuffler):
    server.__init__.__kwdefaults__["tick"] = 0.05  # nobody waits long, not even after a failure
shuffling._CHUNK_BYTES = 4000  # so that a small round has several chunks
shuffling.RoundShuffler.shuffle, shuffling.RoundShuffler.batch = (
    around(each, begin_to_count) for each in (shuffling.RoundShuffler.shuffle, shuffling.RoundShuffler.batch)
)
exec(fault)
sys.exit(_run(["serve", role, "--config", config]))
"""


class Balancer:
    """A connection to several servers, as through a load balancer: every request goes to the next of them."""

    def __init__(self, urls: list[str]):
        self._servers = [Connection(url, timeout=10) for url in urls]
        self._turn = random.randrange(len(urls))
        self.url = " or ".join(urls)

    def request(self, *arguments):
        self._turn = (self._turn + 1) % len(self._servers)
        return self._servers[self._turn].request(*arguments)

    def close(self) -> None:
        for each in self._servers:
            each.close()


class Round(Rehearsal):
    """A round whose reports all hold something else, so that the release tells which were counted, and how often.

    Report i holds the category i as often as an honest report has messages at least, and dummies.
    """

    shufflers = ("shuffler",)
    copies = 1
    """How many reports each device has."""
    version = 1
    """Of the wire format."""
    configs: ClassVar[dict[str, str]] = {}
    """Settings files of servers with one of their own."""
    protocol = "uniform-blanket"
    hops = 1
    """Shufflers that a report passes."""
    traps = 0
    options: ClassVar[dict[str, float]] = {}
    """Of the calibration."""
    round_key: type[RoundKey] = SealingKey

    @classmethod
    def begin(cls, folder, **settings) -> "Round":
        size = {"users": USERS, "domain_size": cls.copies * DEVICES} | cls.options
        kind = sdp.find("histogram", cls.protocol)
        here = cls.prepare(
            folder,
            kind=kind,
            settings=size,
            epsilon=4.0,
            delta=0.1,
            version=cls.version,
            hops=cls.hops,
            traps=cls.traps,
            round_key=cls.round_key,
        )
        task = here.task.task
        here.form, here.times = ReportFormat.of(task), cls.messages_of(task.protocol)
        here.name = task.id.hex()
        sealer = Sealer(task.analyzer, task.id, task.message_size, task.version)
        packed = task.protocol.message_format.pack(here.own_messages())
        here.sealed = [
            sealer.seal([each.tobytes()] * here.times, here.length(place)) for place, each in enumerate(packed)
        ]
        keys = task.wire.round_keys if task.wire else ()
        layered = [add_layers(each, keys, task.id, after=0) for each in here.sealed]
        here.reports = [here.form.build(secrets.token_bytes(16), each) for each in layered]
        here.tokens = [None] * len(here.reports)
        here.answers = defaultdict(list)
        here.documents = set()
        here.processes = []
        here.users, here.given_up = USERS, False
        here.environments = {each: {} for each in ("analyzer", *cls.shufflers)}
        here.urls, here.works = [here.shuffler_url], [folder / "shuffler"]
        here.equip(**settings)
        return here

    def own_messages(self) -> np.ndarray:
        """The message of each report."""
        return np.arange(self.copies * DEVICES, dtype=self.task.task.protocol.message_format.dtype)

    def length(self, place: int) -> int:
        """The number of messages of a report, dummies included."""
        return self.form.messages

    def equip(self) -> None:
        """Make what else the servers of this kind of round need."""

    @staticmethod
    def messages_of(protocol) -> int:
        """How often a report holds its category."""
        return 1 + protocol.blanket.whole

    @property
    def acknowledged(self) -> set[int]:
        """The reports of which a shuffler said that it has them."""
        return {place for place, answers in self.answers.items() if ACCEPTED & set(answers)}

    def start(
        self, server: str, *, seconds: float = 0.0, steps: int = 0, late: bool = False, fault: str = ""
    ) -> multiprocessing.process.BaseProcess:
        """A server that is killed after so many seconds or at a step of its durable work, if not 0.

        ``late`` steps are those of a release alone. A ``fault`` is code that runs before the server does.
        """
        values = {
            "role": server.partition("-")[0],
            "seconds": seconds,
            "steps": steps,
            "late": late,
            "shared": len(self.shufflers) > self.hops,
            "environment": self.environments[server],
            "folder": str(self.directory),
            "config": str(self.directory / self.configs.get(server, "servers.toml")),
            "log": str(self.directory / f"{server}.log"),
            "fault": fault,
            "__name__": "server",
        }
        process = multiprocessing.get_context("forkserver").Process(target=exec, args=(_SERVER, values), daemon=True)
        with _CHILDREN:
            process.start()
        self.processes.append(process)
        return process

    def lives(self, process: multiprocessing.process.BaseProcess) -> bool:
        """Whether a server still runs; to be asked this way by threads that start others meanwhile."""
        with _CHILDREN:
            return process.is_alive()

    def devices(self, places, *, pause: float = 0.0) -> list[threading.Thread]:
        """Threads that send some reports, about in this order."""
        return [
            threading.Thread(target=self.send, args=(places[i::THREADS],), kwargs={"pause": pause}, daemon=True)
            for i in range(THREADS)
        ]

    def send(self, places, *, pause: float = 0.0) -> None:
        """Some devices report as devices do: again and again, until they are answered."""
        patience = Patience(attempts=1000, first_pause=0.02, longest_pause=0.1)
        path = reports_path(self.task.task)

        def wait(seconds: float) -> None:
            if self.given_up:
                raise UnreachableError("The test is over.")
            time.sleep(min(seconds, 0.2))

        with contextlib.closing(Balancer(self.urls)) as connection:
            for place in places:
                if self.given_up:
                    return
                report, token = self.reports[place], self.tokens[place]
                answer = None
                while answer is None:  # a refusal that was cut off by a kill does not tell its problem
                    try:
                        got = deliver(connection, path, report, token=token, patience=patience, wait=wait)
                        answer = f"{got.status}"
                    except RefusedError as refusal:
                        answer = refusal.values["problem"]
                    except UnreachableError:
                        answer = "none"
                self.answers[place].append(answer)
                time.sleep(pause)

    def look(self) -> str:
        """How far the analyzer is, by its files; what is published is kept, to see whether it ever changes."""
        batch, file = (
            self.directory / "analyzer" / name for name in (f"batches/{self.name}", f"releases/{self.name}.json")
        )
        with contextlib.suppress(FileNotFoundError):
            self.documents.add(file.read_bytes())
            return "publishing" if batch.exists() else "released"
        if not (batch / "manifest").exists():
            return "waiting"
        try:
            chunks = len(json.loads((batch / "manifest").read_bytes())["batch"]["chunks"])
            return "opening" if len(list(batch.glob("[0-9]*.chunk"))) == chunks else "receiving"
        except FileNotFoundError:  # released just now
            return self.look()

    def events(self, role: str) -> list[dict]:
        """What a server has logged in all its lives; the last line of a killed one may be cut."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.directory / f"{role}.log").read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    found.append(json.loads(line))
        return found

    def left_over(self) -> set[str]:
        """What the shuffler still has of the round: files of reports, of the permutation, of the batch, its key."""
        work = {
            each.name
            for folder in self.works
            for each in folder.iterdir()
            if not each.name.startswith((".lock", ".clock", ".received", ".traps", "operator.sock"))
        }
        keys = {each.name for each in (self.directory / ROUND_KEYS).glob("*.key")}
        return work | keys | {each.name for each in (self.directory / "reports").glob("round-*")}

    def document(self, counts: list[int]) -> dict:
        """The part of a release that says what was counted."""
        return {"counts": self.task.task.protocol.estimate(Tally(np.array(counts), USERS)).counts.tolist()}

    def counted(self, document: dict) -> dict[int, int]:
        """How many of each report's messages were counted: estimates are linear in counts."""
        protocol, messages = self.task.task.protocol, USERS * self.times
        known = np.zeros(len(self.reports), dtype=np.int64)
        known[0] = messages
        high, low = protocol.estimate(Tally(known, USERS)).counts[:2]
        counts = (np.asarray(document["counts"]) - low) / (high - low) * messages
        assert np.abs(counts - np.round(counts)).max() < 1e-6
        return dict(enumerate(np.round(counts).astype(int).tolist()))

    def check_store(self) -> None:
        """What the store says in the end of a round that was released."""


class OuterRound(Round):
    """A round of wire version 2, whose reports have an outer seal."""

    version = 2

    def exists_key(self) -> bool:
        """Whether the shuffler still has the round key."""
        return any((self.directory / ROUND_KEYS).glob("*.key"))


class ChainRound(OuterRound):
    """A round of two shufflers in a chain: the second takes the batch of the first."""

    hops = 2
    shufflers = ("shuffler", "shuffler-2")
    configs: ClassVar[dict[str, str]] = {"shuffler-2": "shuffler-2.toml"}

    def equip(self) -> None:
        self.works.append(self.directory / "shuffler-2")

    def left_over(self) -> set[str]:
        """Also keys of the second, and messages that it received."""
        keys = {each.name for each in (self.directory / f"{ROUND_KEYS}-2").glob("*.key")}
        received = {each.name for each in (self.directory / "shuffler-2" / ".received" / "batches").glob("*")}
        return super().left_over() | keys | received


class HybridChainRound(ChainRound):
    """A chain of two shufflers whose seals also withstand quantum computers."""

    round_key = HybridKey


class TrappedRound(ChainRound):
    """A chain whose second shuffler sends traps, at once."""

    traps = 16
    at_once = """
from shuffledp.collection.shuffler import traps
traps._SHARE_OF_THE_ROUND = 0.0
"""

    def accepted(self) -> int:
        """How many traps were accepted."""
        return len(list((self.directory / "shuffler-2" / ".traps" / self.name).glob("*.answer")))


class AugmentedRound(OuterRound):
    """A round whose shuffler adds dummies; the test lets it write down every draw, outside of its own directories."""

    protocol = "shuffler-laplace"
    record_draws = """
import json
from pathlib import Path
from shuffledp.collection.server.batches import Batches
from shuffledp.protocols.histogram.shuffler_laplace import ShufflerLaplaceHistogram
draw, put = ShufflerLaplaceHistogram.draw_dummy_counts, Batches.put_manifest

def write(name, line):
    with open(Path(folder, name), "a") as file:
        file.write(line + "\\n")
        file.flush()
        os.fdatasync(file.fileno())

def draw_and_record(self, source):
    counts = draw(self, source)
    write("draws-of-" + Path(log).stem, json.dumps(counts.tolist()))
    return counts

def put_and_record(self, manifest, content):
    write("manifests", content.hex())
    return put(self, manifest, content)

ShufflerLaplaceHistogram.draw_dummy_counts = draw_and_record
Batches.put_manifest = put_and_record
"""

    @staticmethod
    def messages_of(protocol) -> int:
        return 1

    def draws(self, server: str = "shuffler") -> list[np.ndarray]:
        """The numbers of dummies that a shuffler drew, also in processes that were killed meanwhile."""
        return [np.array(json.loads(line)) for line in self._lines(f"draws-of-{server}")]

    def manifests(self) -> set[str]:
        """The manifests that ever reached the analyzer."""
        return set(self._lines("manifests"))

    def _lines(self, name: str) -> list[str]:
        file = self.directory / name
        return [line for line in file.read_text().split("\n")[:-1] if line] if file.exists() else []

    def tally(self, document: dict) -> np.ndarray:
        """How many messages of each category the analyzer counted; the total of estimates is that of the users."""
        protocol, messages = self.task.task.protocol, document["messages"]["counted"]
        mean, size = self.hops * protocol.noise.mean, protocol.domain_size
        tally = np.asarray(document["counts"]) + mean + (messages - size * mean - document["users"]) / size
        assert np.abs(tally - np.round(tally)).max() < 1e-6
        assert np.round(tally).sum() == messages
        return np.round(tally).astype(int)

    def counted(self, document: dict) -> dict[int, int]:
        """How many of each report's messages were counted, if one of the draws was added, and once."""
        tally, draws = self.tally(document), [self.draws(each) for each in self.shufflers]
        differences = [tally - sum(chosen) for chosen in itertools.product(*draws)]
        fitting = [difference for difference in differences if set(difference.tolist()) <= {0, 1}]
        assert len(fitting) == 1, f"{len(fitting)} of {len(differences)} draws are in the batch"
        assert len(self.manifests()) == self.hops, f"{len(self.manifests())} batches reached the servers"
        return dict(enumerate(fitting[0].tolist()))


class CarrierRound(OuterRound):
    """A round with carriers: every second report is longer."""

    protocol = "correlated-noise"
    options: ClassVar[dict[str, float]] = {"carriers": 0.5}

    @staticmethod
    def messages_of(protocol) -> int:
        return protocol.min_messages_per_user

    def own_messages(self) -> np.ndarray:
        return np.column_stack((np.arange(DEVICES), np.zeros(DEVICES, dtype=np.int64)))

    def length(self, place: int) -> int:
        return self.form.carrier_messages if place % 2 else self.form.messages

    def document(self, counts: list[int]) -> dict:
        tally = Tally(np.column_stack((counts, np.zeros_like(counts))).ravel(), USERS)
        return {"counts": self.task.task.protocol.estimate(tally).counts.tolist()}

    def counted(self, document: dict) -> dict[int, int]:
        """Estimates are counts, moved by the same amount, so that they sum to the number of users."""
        estimates = np.asarray(document["counts"])
        counts = estimates - estimates.min()
        assert np.abs(counts - np.round(counts)).max() < 1e-6
        return dict(enumerate(np.round(counts).astype(int).tolist()))


class AugmentedChainRound(AugmentedRound, ChainRound):
    """A chain of two shufflers that both add all dummies."""


class EnrolledRound(Round):
    """A round whose devices have a token each, and two reports: with either, only one may ever be accepted."""

    copies = 2

    def equip(self) -> None:
        enrolment, file = self.directory / "enrolment", self.directory / "tokens.txt"
        enrolment.mkdir()
        create_tokens(self.name, DEVICES, directory=enrolment, out=file)
        self.tokens = self.copies * file.read_text().split()
        self.environments["shuffler"] = {"SHUFFLEDP_SHUFFLER_ENROLMENT": str(enrolment)}

    def reports_of(self, devices) -> list[int]:
        """The places of the reports of some devices; those of each stand together."""
        return [device + copy * DEVICES for device in devices for copy in range(self.copies)]

    def spent(self) -> tuple[int, int]:
        """How many reports the store has, and how many tokens are spent; while no server runs."""
        with contextlib.closing(sqlite3.connect(self.directory / "reports" / f"round-{self.name}.db")) as store:
            tables = ("reports", "tokens WHERE spent = 1")
            return tuple(store.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in tables)


class SharedRound(Round):
    """A round of two shufflers, each with a folder of its own, on one PostgreSQL database."""

    shufflers = ("shuffler-1", "shuffler-2")

    def equip(self, *, address: str) -> None:
        self.address = address
        secret = self.directory / "address"
        secret.touch(mode=0o600)
        secret.write_text(address)
        ports = (self.shuffler_port, *free_ports(1))
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.works = [self.directory / "shuffler", self.directory / "shuffler-2"]
        self.works[1].mkdir(mode=0o700)
        for server, port, work in zip(self.shufflers, ports, self.works, strict=True):
            settings = {"PORT": port, "WORK": work, "STORE": "postgres", "STORE_DSN_FILE": secret}
            self.environments[server] = {f"SHUFFLEDP_SHUFFLER_{key}": str(value) for key, value in settings.items()}

    def check_store(self) -> None:
        with psycopg.connect(self.address) as connection:
            rounds = connection.execute("SELECT task_id, state, reports, kept FROM shuffledp.rounds").fetchall()
            assert rounds == [(self.form.task_id, "delivered", self.users, False)], f"rounds: {rounds}"
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'shuffledp'").fetchall()
            assert {name for (name,) in tables} == {"checks", "layout", "rounds"}, f"tables: {tables}"


class SharedCarrierRound(SharedRound, CarrierRound):
    """A round with carriers of two shufflers on one PostgreSQL database."""


class RoleRound(SharedRound):
    """A round of wire version 2 with two processes that receive reports without any key, and one that mixes."""

    version = 2
    shufflers = ("shuffler-1", "shuffler-2", "shuffler-3")
    roles = ("ingest", "ingest", "mixer")
    configs: ClassVar[dict[str, str]] = {"shuffler-1": "ingest.toml", "shuffler-2": "ingest.toml"}

    def equip(self, *, address: str) -> None:
        self.address = address
        secret = self.directory / "address"
        secret.touch(mode=0o600)
        secret.write_text(address)
        SigningKey.load(self.directory / "shuffler.key").public.save(self.directory / "shuffler.pub")
        lines = (self.directory / "servers.toml").read_text(encoding="utf-8").splitlines()
        private = ("signing_key", "round_keys", "analyzer =")
        without_keys = [line for line in lines if not line.startswith(private)]
        without_keys.insert(without_keys.index("[shuffler]") + 1, 'verifying_key = "shuffler.pub"')
        (self.directory / "ingest.toml").write_text("\n".join(without_keys), encoding="utf-8")
        ports = (self.shuffler_port, *free_ports(2))
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[:2]]
        self.works = [self.directory / server for server in self.shufflers]
        for server, role, port, work in zip(self.shufflers, self.roles, ports, self.works, strict=True):
            work.mkdir(mode=0o700)
            settings = {"ROLE": role, "PORT": port, "WORK": work, "STORE": "postgres", "STORE_DSN_FILE": secret}
            self.environments[server] = {f"SHUFFLEDP_SHUFFLER_{key}": str(value) for key, value in settings.items()}
        self.mixer_url = f"http://127.0.0.1:{ports[2]}"

    def served(self) -> bool:
        """Whether both that receive reports serve the task."""
        path = f"/v2/tasks/{self.name}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            return all(self._status(url, path) == 200 for url in self.urls)
        return False

    def _status(self, url: str, path: str) -> int:
        with Connection(url, timeout=10) as connection:
            return connection.request("GET", path).status
