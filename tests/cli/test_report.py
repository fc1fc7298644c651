"""``shuffledp report``: one device that reports once, or many simulated ones, against a real shuffler."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SealingKey, SigningKey, VerifyingKey
from tests.collection.transport.gateway import Gateway


class Server:
    """Takes every report, or answers as told."""

    def __init__(self):
        self.bodies, self.tokens, self.answers = [], [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                server.tokens.append(self.headers["Authorization"])
                status, name = server.answers.pop(0) if server.answers else (201, "")
                document = {"type": f"urn:shuffledp:problem:{name}", "title": f"It is {name}."}
                body = json.dumps(document).encode() if name else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


class Place:
    """A folder with keys and a task."""

    def __init__(self, folder):
        self.folder = folder
        self.author, self.shuffler, self.analyzer = SigningKey.create(), SigningKey.create(), SealingKey.create()
        self.author.public.save(folder / "author.pub")

    def task(self, protocol="histogram/balcer-cheu", *, users=1000, closes=3600, epsilon=1.0, **settings) -> Task:
        question, name = protocol.split("/")
        domain = {
            "histogram": {"domain_size": 3, "categories": sdp.Categories.of(["bus", "bike", "car"])},
            "count": {},
            "sum": {"domain": sdp.Interval(0, 120)},
            "quantiles": {"domain": sdp.Bins(0, 120, 12)},
        }[question]
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=sdp.find(question, name),
            settings={"users": users, **domain},
            epsilon=epsilon,
            delta=1e-6,
            maximum_users=5 * users,
            name="Commuting",
            description="",
            population="city",
            opens=now - timedelta(hours=1),
            closes=now + timedelta(seconds=closes),
            analyzer=self.analyzer.public,
            shuffler=self.shuffler.public,
            **settings,
        )
        (self.folder / "task.json").write_bytes(task.signed(self.author).to_bytes() + b"\n")
        return task

    def csv(self, *rows, header="mode"):
        (self.folder / "data.csv").write_text("\n".join([f"row,{header}", *(f"{i},{r}" for i, r in enumerate(rows))]))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def report(shuffledp, server):
    def run(*arguments, url=None):
        task = ("--task", "task.json", "--author", "author.pub", "--server", url or server.url)
        return shuffledp("report", *task, *arguments)

    return run


ONE = ("--value", "bike", "--state", "device")
MANY = ("--csv", "data.csv", "--column", "mode")


def test_one_device(report, place, server):
    task = place.task()
    done = report(*ONE)
    assert (done.status, "was delivered" in done.out) == (0, True)
    assert len(server.bodies[0]) == ReportFormat.of(task).size
    again = report(*ONE)
    assert again.status == 1
    assert "reported to this task already (delivered)" in again.error
    assert len(server.bodies) == 1


def test_json_of_one_device(report, place):
    task = place.task()
    assert report(*ONE, "--json").json == {"task": task.id.hex(), "state": "delivered"}


def test_what_could_not_be_sent_is_sent_unchanged(report, place, server):
    place.task()
    server.answers = [(503, "overloaded")]
    failed = report(*ONE, "--attempts", 1)
    assert failed.status == 1
    assert "could not be delivered" in failed.error
    assert report("--value", "car", "--state", "device").status == 0  # the value is not looked at any more
    assert server.bodies[0] == server.bodies[1]


def test_it_can_be_sent_without_a_value(report, place, server):
    place.task()
    server.answers = [(503, "overloaded")]
    report(*ONE, "--attempts", 1)
    assert report("--state", "device").status == 0
    nothing = report("--state", "other")
    assert (nothing.status, "no report to send" in nothing.error) == (2, True)


def test_what_is_decided_stays_so_without_a_value(report, place, server):
    place.task()
    report(*ONE)
    again = report("--state", "device", "--json")
    assert (again.status, again.json["state"]) == (0, "delivered")
    server.answers = [(410, "closed")]
    assert report("--value", "bus", "--state", "other").status == 1
    again = report("--state", "other")
    assert (again.status, again.error) == (
        1,
        "error: The report of this device was rejected, and is not sent again: closed.",
    )
    assert len(server.bodies) == 2


def test_an_interrupt_tells_what_was_sent(place, server, tmp_path):
    task = place.task()
    place.csv(*["bus"] * 20_000)
    arguments = ["report", "--task", "task.json", "--author", "author.pub", "--server", server.url, *MANY, "--json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "shuffledp", *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while len(server.bodies) < 50 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    out, errors = running.communicate(timeout=60)
    told = json.loads(out)
    assert running.returncode == 130
    assert told["task"] == task.id.hex()
    assert 50 <= told["delivered"] == len(server.bodies) == 20_000 - told["unsent"] < 20_000
    assert f"interrupted; {told['delivered']:,} reports were confirmed by the shuffler" in errors.decode()


def test_through_a_relay(report, place, server, tmp_path):
    place.task()
    gateway = Gateway()
    (tmp_path / "gateway.keys").write_bytes(gateway.keys)
    through = ("--relay", f"{server.url}/relay", "--gateway-keys", "gateway.keys", "--attempts", "1")
    refused = report(*ONE, *through, url="https://shuffler.example")  # the server answers 201 in the clear
    assert (refused.status, "instead of an answer of the gateway" in refused.error) == (1, True)
    request, _ = gateway.open(server.bodies[0])
    assert b"shuffler.example" in request
    assert (tmp_path / "device").exists()
    for arguments in (through[:2], through[2:4]):
        wrong = report(*ONE, *arguments)
        assert (wrong.status, wrong.error) == (2, "error: --relay URL and --gateway-keys FILE belong together.")
    (tmp_path / "gateway.keys").write_bytes(b"<html>not found</html>")
    assert "is not a list of gateway keys" in report(*ONE, *through, url="https://shuffler.example").error


def test_refused(report, place, server):
    place.task()
    server.answers = [(410, "closed")]
    refused = report(*ONE)
    assert (refused.status, "410 It is closed." in refused.error) == (1, True)
    assert "already (closed)" in report(*ONE).error


def test_tokens(report, place, server, tmp_path):
    place.task()
    tokens = [f"token-of-device-{i}" for i in range(4)]
    (tmp_path / "tokens").write_text("\n".join(tokens))
    (tmp_path / "tokens").chmod(0o644)
    assert "chmod 600" in report(*ONE, "--token-file", "tokens").error
    (tmp_path / "tokens").chmod(0o600)
    assert report(*ONE, "--token-file", "tokens").status == 0
    place.csv("bus", "bike", "car", "bus")
    assert report(*MANY, "--token-file", "tokens").status == 0
    assert server.tokens[0] == f"Bearer {tokens[0]}"
    assert sorted(server.tokens[1:]) == [f"Bearer {each}" for each in tokens]
    place.csv(*["bus"] * 5)
    (tmp_path / "junk").write_text("short\n")
    (tmp_path / "junk").chmod(0o600)
    done = report("--value", "bike", "--state", "another-device", "--token-file", "junk")
    assert (done.status, "junk: A token must consist of" in done.err) == (1, True)
    assert not (tmp_path / "another-device").exists()  # nothing is randomized, nothing charged
    assert "4 tokens are too few for 5 devices" in report(*MANY, "--token-file", "tokens").error


def test_many_devices(report, place, server):
    task = place.task()
    place.csv(*["bus", "bike", "car"] * 20)
    done = report(*MANY, "--connections", 3)
    assert (done.status, "60 of 60 reports were delivered" in done.out) == (0, True)
    form = ReportFormat.of(task)
    assert len({form.report_id(each) for each in server.bodies}) == 60
    limited = report(*MANY, "--devices", 7, "--json").json
    assert {key: limited[key] for key in ("task", "devices", "delivered", "refused", "unsent")} == {
        "task": task.id.hex(),
        "devices": 7,
        "delivered": 7,
        "refused": {},
        "unsent": 0,
    }
    assert set(limited) == {"task", "devices", "delivered", "refused", "unsent", "seconds"}


def test_refusals_are_shown_by_reason(report, place, server):
    place.task()
    place.csv(*["bus"] * 50)
    server.answers = [(403, "token-spent")] * 2 + [(201, "")] * 20 + [(410, "full")] * 50
    done = report(*MANY, "--connections", 2)
    assert done.status == 1
    shown = " ".join(done.out.split())
    assert "20 of 50 reports were delivered" in shown
    for words in ("403 token-spent │ 2", "410 full", "not sent"):
        assert words in shown


@pytest.mark.parametrize(
    ("protocol", "rows", "options"),
    [
        ("count/cheu", ("yes", "No", "1", "0", "TRUE", "f"), ()),
        ("count/cheu", ("bus", "car", "bus"), ("--equals", "bus")),
        ("sum/split-and-mix", ("0", "120", "1.5", "1e2"), ()),
        ("quantiles/uniform-blanket", ("0", "120", "1.5", "1e2"), ()),
        ("histogram/balcer-cheu", ("bus", "", "car"), ("--drop-missing",)),
    ],
)
def test_questions(protocol, rows, options, report, place, server):
    place.task(protocol)
    place.csv(*rows)
    assert report(*MANY, *options).status == 0
    assert len(server.bodies) == len([row for row in rows if row])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "Give --value and --state DIR"),
        (("--value", "bus"), 2, "Give --value and --state DIR"),
        ((*ONE, "--column", "mode"), 2, "belong to --csv"),
        ((*MANY, "--value", "bus"), 2, "without --value, --state and --budget"),
        ((*ONE, "--budget", "none.toml"), 1, "Cannot read the budget file"),
        ((*ONE, "--budget", "data.csv"), 2, "data.csv is not valid TOML"),
        (("--csv", "data.csv"), 2, "--column"),
        (("--value", "plane", "--state", "device"), 2, "'plane' is not one of the 3 categories"),
        ((*ONE, "--max-epsilon", 0.5), 1, "this device allows"),
        ((*ONE, "--max-epsilon", 0), 2, "A policy needs"),
        ((*ONE, "--min-users", 2000), 1, "requires 2,000"),
        ((*ONE, "--attempts", 0), 2, "at least one attempt"),
        ((*ONE, "--ca", "none.pem", "--server", "https://shuffler.example"), 1, "Cannot read the certificates"),
        ((*ONE, "--server", "http://shuffler.example"), 2, "not encrypted"),
        ((*ONE, "--server", "shuffler"), 2, "not a valid server URL"),
        ((*ONE, "--token-file", "none"), 1, "Cannot read the tokens"),
        ((*ONE, "--task", "none.json"), 1, "Cannot read the task"),
        ((*ONE, "--task", "data.csv"), 1, "data.csv: "),
        ((*ONE, "--author", "none.pub"), 1, "Cannot read the key"),
        ((*ONE, "--state", "data.csv"), 1, "data.csv"),
        ((*MANY, "--devices", 0), 2, "--devices must be at least 1, not 0"),
        ((*MANY, "--equals", "bus"), 2, "--equals belongs to a count"),
        (("--csv", "data.csv", "--column", "none"), 2, "has no column 'none'"),
        (("--csv", "none.csv", "--column", "mode"), 1, "no such file"),
        (MANY, 1, "1 value is outside the domain (for example 'plane'). 'plane' is not one"),
        ((*MANY, "--max-epsilon", 0.1), 1, "this device allows"),
    ],
)
def test_bad_input(arguments, status, words, report, place, server, tmp_path):
    place.task()
    place.csv("bus", "plane")
    before = {each.name for each in tmp_path.iterdir()}
    done = report(*arguments)
    assert done.status == status
    assert words in done.error
    assert server.bodies == []
    assert {each.name for each in tmp_path.iterdir()} - {"device"} == before


def test_missing_values(report, place):
    place.task()
    place.csv("bus", "", "car")
    assert "1 value is missing. Use --drop-missing" in report(*MANY).error
    place.csv("")
    assert "no rows" in report(*MANY, "--drop-missing").error
    place.csv("bus")
    assert "number of connections must be at least 1" in report(*MANY, "--connections", 0).error


def test_the_same_rules_as_run(report, place, server):
    for name in ("sum/duchi", "quantiles/uniform-blanket"):
        place.task(name)
        for text in ("1_0", "\uff11\uff10", "inf", "nan", "0x10"):
            place.csv("5", text)
            assert "A number is needed" in report(*MANY).error
            done = report("--value", text, "--state", "device")
            assert (done.status, "A number is needed" in done.error) == (2, True)
    done = report("--value", "120.5", "--state", "device")
    assert (done.status, "are not numbers from 0 to 120" in done.error) == (2, True)
    place.task()
    place.csv("bus", "NA", "car")
    assert "If 'NA' stands for a missing value, use --missing NA." in report(*MANY).error
    assert "1 value is missing. Use --drop-missing" in report(*MANY, "--missing", "NA").error
    assert "cannot be both a value and a marker for missing values" in report(*MANY, "--missing", "NA,bus").error
    assert "an empty name" in report(*MANY, "--missing", "NA,").error
    assert server.bodies == []
    done = report(*MANY, "--missing", "NA", "--drop-missing", "--json")
    assert (done.json["devices"], done.json["delivered"]) == (2, 2)
    assert "belong to --csv" in report(*ONE, "--missing", "NA").error


def test_devices_of_files_in_another_dialect(report, place, server):
    place.task()
    rows = "1;bus\n2;car\n3;bike\n"
    (place.folder / "part-1.csv").write_bytes(rows.encode("utf-16"))
    (place.folder / "part-2.csv.gz").write_bytes(gzip.compress(rows.encode("utf-16")))
    dialect = ("--delimiter", ";", "--encoding", "utf-16", "--no-header")
    done = report("--csv", "part-*", "--column", "2", *dialect, "--json")
    assert (done.status, done.json["delivered"]) == (0, 6), done.err
    assert "belong to --csv" in report(*ONE, "--no-header").error
    assert "belong to --csv" in report(*ONE, "--encoding", "utf-16").error


def test_an_empty_line_is_a_device_without_a_value(report, place):
    place.task()
    (place.folder / "data.csv").write_text("mode\nbus\n\ncar\n\nbus\n")
    assert "2 values are missing. Use --drop-missing" in report(*MANY).error
    assert report(*MANY, "--drop-missing", "--json").json["devices"] == 3


def test_what_looks_missing_and_is_counted_is_pointed_out(report, place):
    place.task("count/cheu")
    place.csv("bus", "NA", "car")
    done = report(*MANY, "--equals", "bus", "--json")
    assert done.json["delivered"] == 3
    assert "'NA' is counted as a value; if it stands for a missing one, use --missing NA" in done.err


@pytest.fixture
def stdin(monkeypatch):
    """What standard input holds."""

    def hold(content):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    return hold


@pytest.mark.parametrize("content", [b"bike", b"bike\n", b" bike \r\n", b"\xef\xbb\xbfbike\n"])
def test_a_value_from_standard_input(report, place, server, stdin, content):
    """A command line is visible to other users of the machine."""
    place.task()
    stdin(content)
    assert report("--value", "-", "--state", "device").status == 0
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no value on standard input"),
        (b" \n", "no value on standard input"),
        (b"bus\nbike\n", "one value: a single line"),
        (b"x" * 100_000, "one value: a single line"),
        (b"\xff\xfe", "not UTF-8"),
        (b"plane\n", "'plane' is not one of the 3 categories"),
        (b"-\n", "'-' is not one of the 3 categories"),
    ],
)
def test_what_is_no_value_on_standard_input(report, place, server, stdin, content, words):
    place.task()
    stdin(content)
    assert words in report("--value", "-", "--state", "device").error
    assert server.bodies == []


def test_help_has_an_example(shuffledp):
    assert "Example: shuffledp report --task" in " ".join(shuffledp("report", "--help").out.split())


def test_an_early_task_is_not_answered(report, place):
    task = place.task()
    assert task.opens < datetime.now(UTC)
    place.task(closes=-60)
    assert "The round is open from" in report(*ONE).error


@pytest.fixture
def shuffler(place, tmp_path):
    """The real one, in a process of its own."""
    pytest.importorskip("uvicorn")
    place.task()
    place.shuffler.save(tmp_path / "shuffler.key")
    for name in ("tasks", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "tasks" / "task.json").write_bytes((tmp_path / "task.json").read_bytes())
    (tmp_path / "shuffler.toml").write_text(
        '[shuffler]\nport = 0\ntasks = "tasks"\nauthors = ["author.pub"]\nsigning_key = "shuffler.key"\n'
        'analyzer = "http://127.0.0.1:9"\nwork = "work"\nstore_folder = "store"\n'
    )
    command = [sys.executable, "-m", "shuffledp", "serve", "shuffler", "--config", "shuffler.toml"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ})
    lines, port = [], None
    for line in process.stderr:
        lines.append(line)
        found = re.search(r'"port": ?([0-9]+)', line)
        if found and "listening" in line:
            port = int(found[1])
            break
    assert port, lines
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.communicate()


def test_a_real_shuffler(place, shuffler, report):
    place.csv(*["bus", "bike", "car"] * 30)
    assert report(*MANY, "--json", url=shuffler).json["delivered"] == 90
    assert report(*ONE, url=shuffler).status == 0
    assert "already (delivered)" in report(*ONE, url=shuffler).error


BUDGET = """
[total]
epsilon = 1.2
delta = 1e-6
window_days = 30

[author."{author}"]
series = 2
"""


def test_the_budget_of_a_device(report, shuffledp, place, server, tmp_path):
    place.task()
    author = VerifyingKey.load(tmp_path / "author.pub").id
    (tmp_path / "budget.toml").write_text(BUDGET.format(author=author))
    assert report(*ONE, "--budget", "budget.toml").status == 0
    place.task(closes=7200)  # another one
    refused = report(*ONE, "--budget", "budget.toml")
    assert refused.status == 1
    sentence = r"This device has used 1 of 1\.2 in 30 days; this needs 0\.\d+\. Possible again on 20\d\d-\d\d-\d\d\.$"
    assert re.search(sentence, refused.error)
    assert len(server.bodies) == 1
    shown = shuffledp("budget", "show", "device", "--budget", "budget.toml")
    assert "1 report in 30 days: epsilon = 1 of 1.2 is spent, at delta = 1e-06." in shown.out
    assert re.search(rf"{author} \W+1 \W+1 \W+1 of 2", shown.out)
    document = shuffledp("budget", "show", "device", "--budget", "budget.toml", "--json").json
    assert document["epsilon"] == pytest.approx(1.0, rel=1e-3)
    row = document["authors"][0]
    assert (row["author"], row["reports"], row["series"], row["limit"], row["series_limit"]) == (author, 1, 1, None, 2)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = re.search(r"^### JSON of `budget show`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    keys = {*document, *(f"authors[].{key}" for key in document["authors"][0])} - {"authors"}
    assert set(re.findall(r"^\| `([^`]+)` \|", table[1], re.MULTILINE)) == keys


def test_without_settings_a_device_has_a_budget_too(report, shuffledp, place):
    place.task()
    assert report(*ONE).status == 0
    assert "of 8 is spent, at delta = 1e-05." in shuffledp("budget", "show", "device").out


def test_bad_input_of_budget_show(shuffledp, tmp_path):
    missing = shuffledp("budget", "show", "none")
    assert (missing.status, "none is not a directory" in missing.error) == (1, True)
    (tmp_path / "device").mkdir()
    assert "0 reports in 365 days: epsilon = 0 of 8" in shuffledp("budget", "show", "device").out
    (tmp_path / "device" / "budget").write_text("nothing")
    damaged = shuffledp("budget", "show", "device")
    assert (damaged.status, "is damaged" in damaged.error) == (1, True)


def test_simulated_devices_have_no_budget(report, place, tmp_path):
    place.task()
    place.csv("bus", "bike")
    before = {each.name for each in tmp_path.iterdir()}
    assert report(*MANY).status == 0
    assert {each.name for each in tmp_path.iterdir()} == before
