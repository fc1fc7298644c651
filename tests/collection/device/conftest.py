"""A server that answers as it is told, and notes what it was sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shuffledp.collection.device import Client, Patience, Policy


class Script:
    """Answers requests with what was put into ``answers``, then with 201."""

    def __init__(self, context=None):
        self.answers: list = []
        """Each a status, (status, headers, body), or a function of the handler."""
        self.bodies: list[bytes] = []
        self.headers: list[dict] = []
        self.paths: list[str] = []
        self.connections = 0
        self.lock = threading.Lock()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                with script.lock:
                    script.connections += 1

            def log_message(self, *_):
                pass

            def answer(self, status, headers=(), body=b""):
                self.send_response(status)
                for key, value in dict(headers).items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed between its headers and its body
                    self.close_connection = True
                    return
                with script.lock:
                    script.bodies.append(body)
                    script.headers.append(dict(self.headers))
                    script.paths.append(self.path)
                    told = script.answers.pop(0) if script.answers else 201
                if callable(told):
                    told(self)
                elif isinstance(told, int):
                    self.answer(told)
                else:
                    self.answer(*told)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        self.port = self.server.server_port
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @staticmethod
    def problem(status: int, name: str, detail: str = "why", **headers):
        """As a shuffler says it."""
        document = {"type": f"urn:shuffledp:problem:{name}", "title": "No", "status": status, "detail": detail}
        return status, {"Content-Type": "application/problem+json", **headers}, json.dumps(document).encode()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server():
    script = Script()
    yield script
    script.close()


@pytest.fixture
def start_server():
    """Further servers, for example with TLS."""
    started = []

    def start(**options) -> Script:
        started.append(Script(**options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(scope="session")
def task(parties):
    return parties.task("histogram/balcer-cheu")


@pytest.fixture(scope="session")
def content(parties, task) -> bytes:
    return task.signed(parties.author).to_bytes()


@pytest.fixture
def device(tmp_path, parties, content):
    """The same device, as often as it starts."""

    def start(folder: str = "device", **options) -> Client:
        return Client(content, author=parties.author.public, state=tmp_path / folder, **{"policy": Policy(), **options})

    return start


@pytest.fixture
def pauses():
    """Called instead of sleeping."""

    class Pauses(list):
        __call__ = list.append

    return Pauses()


@pytest.fixture
def quick() -> Patience:
    return Patience(attempts=5, first_pause=0.5, longest_pause=2.0)
