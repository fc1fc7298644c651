"""A real round for survey pages: both servers, a recording proxy before the shuffler, and the sites of its tasks."""

import http.client
import json
import re
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from signed_series import make_series, round_keys

import shuffledp as sdp
from shuffledp.collection.rehearsal import ROUND_KEYS, Rehearsal, free_ports
from shuffledp.collection.survey.serving import SiteServer
from shuffledp.collection.survey.site import BuiltSite, Survey, write_site
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.series import Cancellation, Series
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.keys import SealingKey, SigningKey, to_base64

ANALYZER_KEYS = "analyzer-round-keys"
MODES = ["Walk", "Bicycle", "Bus or tram", "Car"]


@dataclass
class Recorded:
    method: str
    path: str
    headers: dict
    body: bytes
    status: int = 0


@dataclass
class Faults:
    """What the proxy does to reports: the answer of the shuffler is lost, nothing gets through, or a refusal."""

    lose_answers: int = 0
    down: bool = False
    problem: tuple[int, str] | None = None
    series: bytes | None = None
    """What is answered about a series, instead of the answer of the shuffler."""
    hide_browser: bool = False
    """Whether reports are forwarded as if no browser had sent them: the shuffler checks neither type nor origin."""


class RecordingProxy(ThreadingHTTPServer):
    """Forwards to the shuffler, and records what browsers send."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, shuffler_port, port=0):
        super().__init__(("127.0.0.1", port), _Forward)
        self.shuffler_port, self.faults, self.requests = shuffler_port, Faults(), []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def handle_error(self, *_):
        pass

    def reports(self):
        return [request for request in self.requests if request.method == "POST"]

    def stop(self):
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _forward(self):
        proxy, faults = self.server, self.server.faults
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        recorded = Recorded(self.command, self.path, dict(self.headers), body)
        proxy.requests.append(recorded)
        if faults.down:
            self.close_connection = True
            return
        origin = self.headers.get("Origin")
        if self.command == "GET" and faults.series is not None:
            self._answer(
                200, {"Content-Type": "application/json", "Access-Control-Allow-Origin": origin}, faults.series
            )
            return
        if self.command == "POST" and faults.problem:
            recorded.status, name = faults.problem
            content = json.dumps({"type": f"urn:shuffledp:problem:{name}", "title": name}).encode()
            self._answer(
                recorded.status,
                {"Content-Type": "application/problem+json", "Access-Control-Allow-Origin": origin},
                content,
            )
            return
        connection = http.client.HTTPConnection("127.0.0.1", proxy.shuffler_port, timeout=60)
        with closing(connection):
            forwarded = {key: value for key, value in self.headers.items() if key != "Host"}
            if faults.hide_browser:
                forwarded = {"Content-Type": "application/octet-stream"}
            connection.request(self.command, self.path, body, forwarded)
            answer = connection.getresponse()
            content, recorded.status = answer.read(), answer.status
        if self.command == "POST" and faults.lose_answers:
            faults.lose_answers -= 1
            faults.down = faults.lose_answers == 0
            self.close_connection = True
            return
        dropped = ("connection", "transfer-encoding", "content-length")
        self._answer(
            answer.status, {key: value for key, value in answer.getheaders() if key.lower() not in dropped}, content
        )

    def _answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_OPTIONS = _forward  # noqa: N815


@dataclass
class Round:
    """Servers that run, the port of the page, and the keys with which tasks are signed."""

    rehearsal: Rehearsal
    proxy: RecordingProxy
    port: int
    author: SigningKey = field(init=False)
    _server: SiteServer | None = None
    _running: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self):
        self.author = SigningKey.load(self.rehearsal.directory / "author.key")

    @classmethod
    def prepare(cls, directory, *, version=1, hops=1, protocol="correlated-noise", **options):
        (port,) = free_ports(1)
        rehearsal = Rehearsal.prepare(
            directory,
            kind=sdp.find("histogram", protocol),
            settings={"users": 100, "categories": sdp.Categories.of(MODES), **options},
            epsilon=6.0,
            delta=1e-6,
            name="How people get to work",
            description="How did you get to work today?",
            origins=[f"http://127.0.0.1:{port}"],
            version=version,
            hops=hops,
        )
        return cls(rehearsal, RecordingProxy(rehearsal.shuffler_port), port)

    def task(
        self,
        protocol="histogram/uniform-blanket",
        *,
        users=100,
        epsilon=1.0,
        delta=1e-6,
        served=False,
        domain=None,
        version=1,
        **changes,
    ):
        """A task of the same parties, signed; a shuffler that starts later serves it."""
        question, short = protocol.split("/")
        settings = {
            "count": {},
            "histogram": {"categories": sdp.Categories.of(MODES)},
            "sum": {"domain": sdp.Interval(0.0, 120.0, True)},
            "quantiles": {"domain": sdp.Bins(0.0, 120.0, 16)},
            "strings": {"domain": sdp.Strings("a-z", 12, case_fold=True, trim=True)},
        }[question] | (domain or {})
        now = datetime.now(UTC).replace(microsecond=0)
        shuffler = SigningKey.load(self.rehearsal.directory / "shuffler.key").public
        if version == 2:
            round_key = SealingKey.create()
            round_key.save(self.rehearsal.directory / ROUND_KEYS / f"{round_key.public.id}.key")
            changes["wire"] = WireVersion2((ShufflerKeys(shuffler, round_key.public),))
        fields = {
            "name": "How people get to work",
            "description": "How did you get to work today?",
            "population": "rehearsal",
            "opens": now - timedelta(minutes=1),
            "closes": now + timedelta(hours=1),
            "analyzer": SealingKey.load(self.rehearsal.directory / "analyzer.key").public,
            "shuffler": shuffler,
        }
        signed = Task.create(
            kind=sdp.find(question, short),
            settings={"users": users, **settings},
            epsilon=epsilon,
            delta=delta,
            maximum_users=10 * users,
            **(fields | changes),
        ).signed(self.author)
        if served:
            (self.rehearsal.directory / "tasks" / f"{signed.task.id.hex()}.json").write_bytes(signed.to_bytes())
        return signed

    def series(self, *, rounds, per_device, cancelled_from=None, served=True, **changes):
        """A series of the same parties; a shuffler and an analyzer that start later serve it."""
        directory, keys = self.rehearsal.directory, round_keys(rounds)
        analyzer_keys = directory / ANALYZER_KEYS
        if not analyzer_keys.exists():
            analyzer_keys.mkdir(mode=0o700)
            with (directory / "servers.toml").open("a") as settings:  # its last section is that of the analyzer
                settings.write(f"round_keys = {json.dumps(str(analyzer_keys))}\n")
        for analyzer, shuffler in keys:
            analyzer.save(analyzer_keys / f"{analyzer.public.id}.key")
            shuffler.save(directory / ROUND_KEYS / f"{shuffler.public.id}.key")
        given = {"name": "How people get to work", "description": "How did you get to work today?"} | changes
        population = f"series {len(list(analyzer_keys.iterdir()))}"
        series = make_series(
            rounds=rounds,
            per_device=per_device,
            keys=keys,
            shufflers=[SigningKey.load(directory / "shuffler.key").public],
            population=population,
            **given,
        )
        if served:
            with (directory / "budgets.toml").open("a") as budgets:
                budgets.write(f'["{population}"]\nepsilon = 50.0\ndelta = 1e-3\n')
            (directory / "tasks" / f"{series.id.hex()}.json").write_bytes(series.signed(self.author))
            if cancelled_from is not None:
                content = self.cancellation(series, cancelled_from)
                (directory / "tasks" / f"{series.id.hex()}-cancel.json").write_bytes(content)
        return series

    def cancellation(self, series, from_round):
        return Cancellation(series.id, from_round, "Another question is asked.").signed(self.author)

    def accepted(self):
        """Reports of all tasks that the shuffler has stored."""
        text = self._get("/metrics")[1].decode()
        found = re.search(r'^shuffledp_shuffler_reports_total\{status="201"\} ([0-9.]+)$', text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def _get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.rehearsal.shuffler_port, timeout=60)
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def survey(self, signed, **options):
        """The survey of a signed task or of a series, which sends to the proxy."""
        in_series = isinstance(signed, Series)
        content = signed.signed(self.author) if in_series else signed.to_bytes()
        return (Survey.of_series if in_series else Survey.verified)(
            content,
            author=self.author.public,
            server=self.proxy.url,
            asker="City statistics office",
            policy=sdp.collection.Policy(max_epsilon=6.0, allow_augmented=True),
            **options,
        )

    @contextmanager
    def served(self, signed, directory, **options):
        """Build the site of a task and serve it: its origin, and the site. One at a time is served, by one server."""
        write_site(self.survey(signed, **options), directory)
        site = BuiltSite.load(directory)
        if self._server is None:
            self._server = SiteServer(site, self.port)
            self._running.enter_context(self._server.running())
        self._server.site = site
        try:
            yield self._server.origin, site
        finally:
            self._server.site = None  # requests get no answer

    def stop(self):
        self._running.close()
        self.proxy.stop()


def forged(signed, key, **claim):
    """The bytes of a task whose claim was changed, signed again by a key."""
    document = signed.task.to_document()
    document["guarantee"] |= claim
    return resigned(document, key)


def resigned(document, key):
    version = 2 if "shufflers" in document else 1
    signature = key.sign(f"shuffledp task v{version}\n".encode() + canonical(document))
    return canonical({"task": document, "author": key.public.id, "signature": to_base64(signature)})
