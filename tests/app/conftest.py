"""The planner's page, served by a thread of this process."""

import http.client
import json
import threading
from email.message import Message
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

    def __init__(self):
        self.workers = Workers(2)
        self._socket = listen("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        config = uvicorn.Config(PlannerApp(self.workers).app(), ws="none", lifespan="on", log_config=None)
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


@pytest.fixture(scope="session")
def served():
    page = Served()
    yield page
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
