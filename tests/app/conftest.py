"""The planner's page, served by a thread of this process; nothing of it is left when the tests of a file have run."""

import gc
import http.client
import json
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import threading
import time
from email.message import Message
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
import uvicorn

from shuffledp.app.server import PlannerApp
from shuffledp.app.workers import Workers
from shuffledp.collection.server.running import listen


class Reply(NamedTuple):
    status: int
    headers: Message
    body: str


class Served:
    """A page that is served."""

    def __init__(self, workers=2, **options):
        self.workers = Workers(workers)
        self.app = PlannerApp(self.workers, **{"request_seconds": 600} | options)
        self._socket = listen("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        config = uvicorn.Config(self.app.app(), ws="none", lifespan="on", log_config=None)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)

    def request(self, path, *, method="GET", headers=None, **query):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path + (f"?{urlencode(query)}" if query else ""), headers=headers or {})
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.headers, answer.read().decode())
        connection.close()
        return reply

    def get(self, path, **query):
        reply = self.request(path, **query)
        return reply.status, reply.body

    def events(self, **query):
        """All events of a stream: names and documents."""
        status, text = self.get("/api/plan", **query)
        assert status == 200, text
        blocks = [block.split("\n") for block in text.strip().split("\n\n")]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]

    def close(self):
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._socket.close()


def _of_this_process():
    """Its processes, threads and sockets."""
    children = {f"process {each}" for task in Path("/proc/self/task").iterdir() for each in _children(task)}
    threads = {thread.name for thread in threading.enumerate()}
    return children | threads | {name for name in map(_target, Path("/proc/self/fd").iterdir()) if "socket" in name}


def _children(task):
    try:
        return (task / "children").read_text().split()
    except OSError:  # the thread has ended
        return []


def _target(descriptor):
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    """Processes, threads and sockets end with the tests of a file; other tests look at those of this process.

    The process that forks workers lives as long as its parent, and it blocks SIGINT: other tests need their own.
    """
    forks, tracker = multiprocessing.forkserver._forkserver, multiprocessing.resource_tracker._resource_tracker
    shared, preloaded = forks._forkserver_pid is not None, list(forks._preload_modules)
    tracked = tracker._fd is not None
    before = _of_this_process()
    yield
    if not shared:
        forks._stop()
        forks.set_forkserver_preload(preloaded)
    if not tracked:
        tracker._stop()
    deadline = time.monotonic() + 60
    while left := _of_this_process() - before:
        assert time.monotonic() < deadline, left
        gc.collect()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def served():
    page = Served()
    yield page
    page.close()


@pytest.fixture
def serve():
    """Serve a page with settings of its own, until the end of the test."""
    pages = []

    def start(**options):
        pages.append(Served(**options))
        return pages[-1]

    yield start
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def assembled():
    """The document of ``shuffledp plan --json``, from the events of a stream."""

    def assemble(events):
        documents = {data["id"]: data["plan"] for name, data in events if name == "candidate" and "plan" in data}
        (ranking,) = [data for name, data in events if name == "ranked"]
        plans = [documents[entry["id"]] | {"why": entry["why"]} for entry in ranking["plans"]]
        keys = ("question", "target", "releases", "warnings")
        return {key: ranking[key] for key in keys} | {"plans": plans, "rejected": ranking["rejected"]}

    return assemble
