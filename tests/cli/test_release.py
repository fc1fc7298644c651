"""``shuffledp release``: what an analyzer published, checked against the task, shown and kept."""

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import shuffledp as sdp
from shuffledp.collection.rehearsal import Rehearsal
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.keys import SealingKey, SigningKey

DOMAINS = {
    "histogram": {"categories": sdp.Categories.of(["bus", "a\u0378b"])},
    "count": {},
    "sum": {"domain": sdp.Interval(0, 9)},
    "quantiles": {"domain": sdp.Bins(0, 9, 8)},
}
PROTOCOLS = {"histogram": "balcer-cheu", "count": "balcer-cheu", "sum": "cheu", "quantiles": "uniform-blanket"}


class Analyzer:
    """Answers with what it is given, and with a problem before that."""

    def __init__(self):
        self.contents, self.seen, self.empty = {}, [], 0
        analyzer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                analyzer.seen.append(self.path)
                analyzer.empty -= 1
                body = (
                    None if analyzer.empty >= 0 else analyzer.contents.get(self.path.rpartition("/releases/")[2][64:])
                )
                status = 404 if body is None else 200
                body = json.dumps({"type": "urn:shuffledp:problem:no-release"}).encode() if body is None else body
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def analyzer():
    made = Analyzer()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def release(shuffledp, analyzer):
    def run(*arguments, url=None):
        given = ("--task", "task.json", "--author", "author.pub", "--server", url or analyzer.url)
        return shuffledp("release", *given, *arguments)

    return run


@pytest.fixture
def publish(tmp_path, analyzer):
    """Make a task of a question and a release of it, with some changes."""
    author = SigningKey.create()
    author.public.save(tmp_path / "author.pub")

    def make(question="histogram", **changes):
        now = datetime.now(UTC).replace(microsecond=0)
        task = Task.create(
            kind=sdp.find(question, PROTOCOLS[question]),
            settings={"users": 1000, **DOMAINS[question]},
            epsilon=1.0,
            delta=1e-6,
            maximum_users=5000,
            name="Commuting",
            description="",
            population="city",
            opens=now - timedelta(hours=1),
            closes=now + timedelta(hours=1),
            analyzer=SealingKey.create().public,
            shuffler=SigningKey.create().public,
        )
        (tmp_path / "task.json").write_bytes(task.signed(author).to_bytes())
        values = {
            "histogram": ["bus"] * 600 + ["a\u0378b"] * 400,
            "count": [0] * 600 + [1] * 400,
            "sum": [3.5] * 1000,
            "quantiles": [3.5] * 1000,
        }[question]
        document = task.protocol.run(values).to_json(0.95)
        document["guarantee"] |= {"epsilon": 1.0, "delta": 1e-6}
        document |= {"task": task.id.hex(), "reports": 1000, "messages": {"rejected": 7}} | changes
        analyzer.contents = {"": json.dumps(document).encode(), ".csv": b"a,b\n", "/page": b"<html>"}
        return document

    return make


@pytest.mark.parametrize("question", DOMAINS)
def test_it_is_shown(question, publish, release):
    document = publish(question)
    done = release()
    assert done.status == 0
    assert "1,000 reports were counted, and 7 messages rejected." in done.out
    assert "changes the probability of any outcome" in done.out
    if question == "histogram":
        assert "a?b" in done.out  # nothing that steers a terminal
        assert f"{document['counts'][0]:,.0f}" in done.out
    elif question == "quantiles":
        told = " ".join(done.out.split())
        assert "quantile ┃ estimate ┃ 95% interval" in told or "quantile │ estimate │ 95% interval" in told
        assert (
            len([line for line in done.out.splitlines() if " to " in line and line.lstrip("│ ").startswith("0.")]) == 5
        )
    else:
        assert f"The {question} is" in done.out
    assert release("--json").json == document


def test_negative_and_withheld_counts(publish, release):
    numbers = {"standard_errors": [9.0, 9.0], "intervals": [[0, 11], [580, 620]], "withheld_below": None}
    publish(counts=[-6.2, 601.0], **numbers)
    told = " ".join(release().out.split())
    assert "│ 0 │ 0 to 11 │ 0.00% │" in told
    assert "│ 601 │ 580 to 620 │ 60.10% │" in told
    publish(counts=[0.0, 601.0], **numbers | {"withheld_below": 64, "standard_errors": [50.0, 9.0]})
    told = " ".join(release().out.split())
    assert "│ < 64 │ 0 to 11 │ < 6.40% │" in told
    assert "is withheld with a probability of at most 2.5%" in told
    assert "up to 50" in told


def test_an_older_analyzer_withholds_nothing(publish, release, analyzer):
    document = publish()
    for key in ("withheld", "withheld_below"):
        del document[key]
    analyzer.contents[""] = json.dumps(document).encode()
    done = release()
    assert done.status == 0, done.err
    assert "withheld" not in done.out


@pytest.mark.parametrize(("name", "content"), [("r.csv", b"a,b\n"), ("r.html", b"<html>"), ("r.json", None)])
def test_it_is_kept(name, content, publish, release, analyzer, tmp_path):
    publish()
    done = release("--out", name)
    assert (done.status, f"wrote {name}" in done.err) == (0, True)
    assert (tmp_path / name).read_bytes() == (content or analyzer.contents[""])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "0" * 64}, "not a release of this task"),
        ({"guarantee": {"epsilon": 2.0, "delta": 1e-6}}, "not have the guarantee of this task"),
        ({"guarantee": None}, "not have the guarantee of this task"),
        ({"counts": [1]}, "not a release of this version"),
        ({"messages": 3}, "not a release of this version"),
        ({"withheld_below": "\x1b[2J", "counts": [0, 1]}, "not a release of this version"),
        ({"counts": [10**400, 1]}, "not a release of this version"),
        ({"standard_errors": ["a", None]}, "not a release of this version"),
        ({"intervals": [[1], [2, 3, 4]]}, "not a release of this version"),
        ({"users": "many"}, "not a release of this version"),
    ],
)
def test_what_is_no_release_of_the_task(changes, words, publish, release):
    publish(**changes)
    done = release()
    assert (done.status, words in done.error) == (1, True)
    assert done.out == ""


@pytest.mark.parametrize("content", [b"", b"[1]", b"<html>", b"[" * 100_000])
def test_what_is_no_release_at_all(content, publish, release, analyzer):
    publish()
    analyzer.contents[""] = content
    done = release()
    assert (done.status, "not a release of this task" in done.error) == (1, True)


def test_none_yet(publish, release, analyzer):
    publish()
    analyzer.empty = 1
    done = release()
    assert (done.status, "or not yet; its round closes at 20" in done.error) == (1, True)
    analyzer.empty = 2
    assert release("--wait", "30s").status == 0
    assert len(analyzer.seen) == 4


def test_nobody_answers(publish, release):
    publish()
    done = release("--wait", "1s", url="http://127.0.0.1:9")
    assert (done.status, "cannot be reached" in done.error) == (1, True)


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--wait", "soon"), 2, "not a valid duration"),
        (("--out", "r.xlsx"), 1, "can be saved as .json, .csv, .html"),
        (("--out", "nowhere/r.csv"), 1, "nowhere"),
        (("--author", "task.json"), 1, "task.json"),
    ],
)
def test_bad_input(options, status, words, publish, release, analyzer):
    publish()
    done = release(*options)
    assert (done.status, words in done.error) == (status, True)
    assert not analyzer.seen


def test_quantiles_of_a_real_analyzer(shuffledp, tmp_path):
    """Numbers of 300 devices on 16 bins, through both servers."""
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    users, values = 300, [(7 * i % 120) + 0.5 for i in range(300)]
    rehearsal = Rehearsal.prepare(
        folder,
        kind=sdp.find("quantiles", "uniform-blanket"),
        settings={"users": users, "domain": sdp.Bins(0, 120, 16), "branching": (4, 4)},
        epsilon=4.0,
        delta=1e-4,
        name="Minutes",
    )
    (tmp_path / "data.csv").write_text("minutes\n" + "".join(f"{value}\n" for value in values))
    (tmp_path / "task.json").write_bytes(rehearsal.task.to_bytes())
    given = ("--task", "task.json", "--author", folder / "author.pub", "--server")
    limits = ("--max-epsilon", 4, "--max-delta", 1e-4)
    with rehearsal.servers():
        options = ("--csv", "data.csv", "--column", "minutes", *limits)
        sent = shuffledp("report", *given, rehearsal.shuffler_url, *options)
        assert sent.status == 0, sent.err
        address = f"http://127.0.0.1:{rehearsal.analyzer_port}"
        done = shuffledp("release", *given, address, "--wait", "60s", "--out", "release.json")
        page = rehearsal.published("/page").decode()
        table = rehearsal.published(".csv").decode().splitlines()
    assert done.status == 0, done.err
    assert "300 reports were counted, and 0 messages rejected." in done.out
    document = json.loads((tmp_path / "release.json").read_bytes())
    low, high = document["quantiles"][2]["interval"]
    assert low <= sorted(values)[users // 2 - 1] <= high  # fails with a probability far below 5%: bins are wide
    true_below = sum(value < document["edges"][8] for value in values)
    assert abs(document["below"][7] - true_below) <= 10 * document["standard_errors"][7]
    assert len(table) == 16
    assert "share of users below" in page
    assert page.count("<circle") == 5


def test_strings_of_a_real_analyzer(shuffledp, tmp_path):
    """Strings of 300 devices through both servers; one of them is on the block list."""
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    rehearsal = Rehearsal.prepare(
        folder,
        kind=sdp.find("strings", "tree-blanket"),
        settings={"users": 300, "domain": sdp.Strings("a-c", 3, case_fold=True, other=True), "most_messages": 4},
        epsilon=4.0,
        delta=1e-4,
        name="Words",
    )
    (tmp_path / "hidden.txt").write_text("BA\n")
    with (folder / "servers.toml").open("a") as settings:  # the last table is that of the analyzer
        settings.write(f'hidden_strings = "{tmp_path / "hidden.txt"}"\n')
    words = ["abc"] * 60 + ["ABC"] * 60 + ["ba"] * 90 + ["too long"] * 90
    (tmp_path / "data.csv").write_text("word\n" + "".join(f"{word}\n" for word in words))
    (tmp_path / "task.json").write_bytes(rehearsal.task.to_bytes())
    given = ("--task", "task.json", "--author", folder / "author.pub", "--server")
    with rehearsal.servers():
        options = ("--csv", "data.csv", "--column", "word", "--max-epsilon", 4, "--max-delta", 1e-4)
        sent = shuffledp("report", *given, rehearsal.shuffler_url, *options)
        assert sent.status == 0, sent.err
        address = f"http://127.0.0.1:{rehearsal.analyzer_port}"
        done = shuffledp("release", *given, address, "--wait", "120s", "--out", "release.json")
        page = rehearsal.published("/page").decode()
        table = rehearsal.published(".csv").decode().splitlines()
    assert done.status == 0, done.err
    document = json.loads((tmp_path / "release.json").read_bytes())
    found = len(document["strings"])
    assert f"{found} strings of 300 users were found, and 1 hidden." in " ".join(done.out.split())
    assert "(empty)" in done.out
    assert document["strings"][:2] == ["abc", ""]
    assert ("ba" in document["strings"], document["hidden"]) == (False, 1)
    assert all(
        abs(count - truth) <= 10 * error
        for count, truth, error in zip(document["counts"], (120, 90), document["standard_errors"], strict=False)
    )
    assert len(table) == 1 + found
    assert "1 string is hidden by a block list." in page


def test_of_a_real_analyzer(shuffledp, tmp_path):
    folder = tmp_path / "rehearsal"
    folder.mkdir()
    rehearsal = Rehearsal.prepare(
        folder,
        kind=sdp.find("histogram", "uniform-blanket"),
        settings={"users": 200, "categories": sdp.Categories.of(["bus", "bike"])},
        epsilon=1.0,
        delta=1e-6,
        name="Commuting",
        description="",
    )
    (tmp_path / "data.csv").write_text("mode\n" + "bus\nbus\nbike\nbus\n" * 50)
    (tmp_path / "task.json").write_bytes(rehearsal.task.to_bytes())
    given = ("--task", "task.json", "--author", folder / "author.pub", "--server")
    with rehearsal.servers():
        sent = shuffledp("report", *given, rehearsal.shuffler_url, "--csv", "data.csv", "--column", "mode")
        assert sent.status == 0, sent.err
        address = f"http://127.0.0.1:{rehearsal.analyzer_port}"
        done = shuffledp("release", *given, address, "--wait", "60s", "--out", "page.html")
    assert done.status == 0, done.err
    assert "200 reports were counted, and 0 messages rejected." in done.out
    assert "<html" in (tmp_path / "page.html").read_text()
