"""A series of rounds on a simulated clock: both servers as processes, devices with directories of their own."""

import json
import math
import multiprocessing
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import shuffledp as sdp
from shuffledp.collection.analyzer.directory import initialize
from shuffledp.collection.device.budget import DeviceBudget
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.device.sending import Patience
from shuffledp.collection.device.series import SeriesClient
from shuffledp.collection.rehearsal import free_ports
from shuffledp.collection.task.series import Cancellation, RoundKeys, Series
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.transport.connection import Connection
from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey, SigningKey

SERVER = ""
"""The program of a server process; the fixture sets it."""
WEEK, OPEN = 7 * 86_400, 6 * 86_400
POPULATION_BUDGET = (10.0, 1e-6)
CLOCK = """
from shuffledp.collection.shuffler import clock

def simulated(self):
    return time.time() + float(open(folder + "/offset").read())

clock.RoundClock.__call__ = simulated
"""


def composed_epsilon(epsilon: float, releases: int, delta: float) -> float:
    """The least total epsilon of randomized responses, by their definition: a sum over all outcomes.

    Every release with pure epsilon is at most as revealing as one randomized bit, so this is what composition gives.
    """
    flip = 1 / (1 + math.exp(epsilon))

    def delta_at(total: float) -> float:
        weights = (
            (math.comb(releases, lies), (1 - flip) ** (releases - lies) * flip**lies, lies)
            for lies in range(releases + 1)
        )
        mirrored = lambda lies: (1 - flip) ** lies * flip ** (releases - lies)  # noqa: E731
        return sum(count * max(0.0, p - math.exp(total) * mirrored(lies)) for count, p, lies in weights)

    low, high = 0.0, epsilon * releases
    if releases == 0 or delta_at(0.0) <= delta:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


class Year:
    """A series, its servers and its devices, in a directory."""

    population_delta = POPULATION_BUDGET[1]
    composed_epsilon = staticmethod(composed_epsilon)

    def __init__(
        self,
        folder: Path,
        *,
        rounds: int,
        per_device: int,
        devices: int,
        users: int,
        hops: int = 1,
        traps: int = 0,
        protocol: str = "k-rr",
        options: dict | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.folder, self.rounds, self.traps, self.policy = folder, rounds, traps, policy or Policy()
        self.kind, self.options = sdp.find("histogram", protocol), {"users": users, "domain_size": 3, **(options or {})}
        self.suffixes = ["", "-2", "-3"][:hops]
        self.roles = ["analyzer", *(f"shuffler{suffix}" for suffix in self.suffixes)]
        of_hops = [f"{name}{suffix}" for name in ("shuffler", "reports", "shuffler-keys") for suffix in self.suffixes]
        for name in ("tasks", "analyzer", "analyzer-keys", "devices", *of_hops):
            (folder / name).mkdir(mode=0o700)
        initialize(folder / "analyzer")
        self.author, self.successor = SigningKey.create(), SigningKey.create()
        self.author.public.save(folder / "author.pub")
        self.signing = [SigningKey.create() for _ in self.suffixes]
        for key, suffix in zip(self.signing, self.suffixes, strict=True):
            key.save(folder / f"shuffler{suffix}.key")
        self.start_of_first = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
        self.series = self._series(per_device)
        self.signed = self.series.signed(self.author)
        self.ports = free_ports(1 + hops)
        for hop, suffix in enumerate(self.suffixes):
            (folder / f"shuffler{suffix}.toml").write_text(self._shuffler_settings(hop, suffix))
        (folder / "analyzer.toml").write_text(self._analyzer_settings())
        epsilon, delta = POPULATION_BUDGET
        (folder / "budgets.toml").write_text(f"[people]\nepsilon = {epsilon!r}\ndelta = {delta!r}\n")
        self.budgets = {0: DeviceBudget(epsilon=1.2, delta=1e-6)}  # for one report of epsilon 1
        self.names = [folder / "devices" / f"{index}" for index in range(devices)]
        self.processes = {}
        self.refusals = []
        self.at(self.start_of_first - timedelta(minutes=90))

    def _new_key(self, directory: str) -> SealingPublicKey:
        key = SealingKey.create()
        key.save(self.folder / directory / f"{key.public.id}.key")
        return key.public

    def _series(self, per_device: int) -> Series:
        keys = [
            RoundKeys(
                self._new_key("analyzer-keys"), tuple(self._new_key(f"shuffler-keys{each}") for each in self.suffixes)
            )
            for _ in range(self.rounds)
        ]
        shufflers = zip(self.signing, keys[0].shufflers, strict=True)
        task = Task.create(
            kind=self.kind,
            settings=self.options,
            epsilon=1.0,
            delta=1e-8,
            maximum_users=10_000,
            name="Weekly",
            description="",
            population="people",
            opens=self.start_of_first,
            closes=self.start_of_first + timedelta(seconds=OPEN),
            analyzer=keys[0].analyzer,
            shuffler=self.signing[-1].public,
            wire=WireVersion2(tuple(ShufflerKeys(key.public, each) for key, each in shufflers), traps=self.traps),
        )
        return Series(task, period=WEEK, keys=tuple(keys), rounds_per_device=per_device)

    def path(self, name: str) -> str:
        return json.dumps(str(self.folder / name))

    def _shuffler_settings(self, hop: int, suffix: str) -> str:
        first, analyzer, *later = self.ports
        further = f'next_shuffler = "http://127.0.0.1:{later[hop]}"' if hop < len(later) else ""
        return f"""
[shuffler]
port = {(first, *later)[hop]}
tasks = {self.path("tasks")}
authors = [{self.path("author.pub")}]
signing_key = {self.path(f"shuffler{suffix}.key")}
round_keys = {self.path(f"shuffler-keys{suffix}")}
analyzer = "http://127.0.0.1:{analyzer}"
work = {self.path(f"shuffler{suffix}")}
store_folder = {self.path(f"reports{suffix}")}
grace_seconds = 0.0
{further}
{f'first_shuffler = "http://127.0.0.1:{first}"' if hop else ""}
"""

    def _analyzer_settings(self) -> str:
        return f"""
[analyzer]
port = {self.ports[1]}
tasks = {self.path("tasks")}
authors = [{self.path("author.pub")}]
round_keys = {self.path("analyzer-keys")}
budgets = {self.path("budgets.toml")}
work = {self.path("analyzer")}
processes = 1
"""

    def publish(self, name: str, content: bytes) -> None:
        """Put a document into the directory of tasks."""
        new = self.folder / "tasks" / f"{name}.new"
        new.write_bytes(content)
        new.rename(self.folder / "tasks" / f"{name}.json")

    def at(self, moment: datetime) -> None:
        """Set the clock of the shuffler."""
        new = self.folder / "offset.new"
        new.write_text(repr(moment.timestamp() - time.time()))
        new.rename(self.folder / "offset")

    def start(self, role: str, fault: str = "") -> None:
        values = {
            "role": role.partition("-")[0],
            "seconds": 0.0,
            "steps": 0,
            "late": False,
            "shared": False,
            "environment": {},
            "folder": str(self.folder),
            "config": str(self.folder / f"{role}.toml"),
            "log": str(self.folder / f"{role}.log"),
            "fault": CLOCK + fault,
            "__name__": "server",
        }
        process = multiprocessing.get_context("forkserver").Process(target=exec, args=(SERVER, values), daemon=True)
        process.start()
        self.processes[role] = process

    def kill(self, role: str) -> None:
        self.processes[role].kill()
        self.processes[role].join()

    def stop(self) -> None:
        for role in list(self.processes):
            self.kill(role)

    def get(self, server: int, path: str):
        with Connection(f"http://127.0.0.1:{self.ports[server]}", timeout=10) as connection:
            answer, content = connection.download(path, max_bytes=1 << 24)
        return answer.status, content

    def reaches(self, server: int, path: str, wanted) -> bool:
        try:
            status, content = self.get(server, path)
        except Exception:  # the server was killed or starts
            return False
        return wanted(status, content)

    def current_round(self, status: int, content: bytes):
        return json.loads(content)["round"] if status == 200 else None

    def device(self, index: int) -> SeriesClient:
        """A device as it starts: everything it knows is in its directory."""
        return SeriesClient(
            self.signed,
            author=self.author.public,
            state=self.names[index],
            policy=self.policy,
            budget=self.budgets.get(index),
        )

    def send(self, device: SeriesClient, index: int) -> None:
        with Connection(f"http://127.0.0.1:{self.ports[0]}", timeout=10) as connection:
            device.client(index).send(connection, patience=Patience(attempts=400, first_pause=0.05, longest_pause=0.2))

    def cancel(self, from_round: int, author: SigningKey) -> bytes:
        return Cancellation(self.series.id, from_round, "Asked in another way.").signed(author)

    def other_series(self, **changes) -> Series:
        """The same series with other keys, for example one that replaces it."""
        return replace(self.series, **changes)
