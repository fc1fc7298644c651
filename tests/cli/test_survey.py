"""``shuffledp survey``: sites are built, tried and linked to results; bad input gets one line, nothing half-written."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shuffledp.collection.survey.site import NOT_SERVED


@pytest.fixture
def task(shuffledp, tmp_path):
    for role in ("author", "shuffler", "analyzer"):
        assert shuffledp("keys", "create", role, "--out", f"{role}.key").status == 0
    create = "task create histogram --name Commuting --population city --domain bus,bike,car --epsilon 1 --delta 1e-6"
    keys = "--author author.key --analyzer analyzer.key.pub --shuffler shuffler.key.pub"
    made = shuffledp(*create.split(), "--users", 1000, "--closes", "2h", *keys.split(), "--out", "task.json")
    assert made.status == 0
    return tmp_path / "task.json"


BUILD = [
    *("survey", "build", "--task", "task.json", "--author", "author.key.pub"),
    *("--server", "https://shuffler.example", "--asker", "City"),
]
OUT = ["--out", "site"]


def test_build(shuffledp, task, tmp_path):
    done = shuffledp(*BUILD, *OUT)
    assert done.status == 0
    fingerprint = re.search("[0-9a-f]{64}", done.out.replace("\n", ""))[0]
    built = shuffledp(*BUILD, "--out", "again", "--json")
    assert built.json["fingerprint"] == fingerprint  # the same site
    written = {path.name for path in (tmp_path / "again").iterdir()}
    assert {file["name"] for file in built.json["files"]} == written - {NOT_SERVED}
    assert len(built.json["warnings"]) == 2
    assert "warning: " in built.err


def test_documented_json(shuffledp, task):
    document = shuffledp(*BUILD, *OUT, "--json").json
    keys = {key for key in document if key != "files"} | {f"files[].{key}" for key in document["files"][0]}
    assert documented("build") == keys


def documented(command):
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = re.search(rf"^### JSON of `survey {command}`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)[1]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def test_publish(shuffledp, task, monkeypatch):
    from shuffledp.collection.device import release

    shuffledp(*BUILD, *OUT)
    monkeypatch.setattr(release, "fetch_release", lambda *_: object())  # a real release is in the tests of the browser
    published = shuffledp("survey", "publish", "site", "--server", "https://analyzer.example/", "--json").json
    assert documented("publish") == set(published)
    assert published["url"] == f"https://analyzer.example/v1/releases/{published['task']}/page"
    assert json.loads((task.parent / "site" / "result.json").read_bytes()) == {"url": published["url"]}


class TestSeries:
    BUILD = ("survey", "build", "--author", "author.key.pub", "--server", "https://shuffler.example", "--asker", "City")

    @pytest.fixture
    def series(self, shuffledp, task, tmp_path):
        """Three rounds, each open for an hour of every day, the first one from now on."""
        for role in ("shuffler", "analyzer"):
            made = shuffledp("keys", "schedule", "--rounds", 3, "--out", f"{role}-keys", "--public", f"{role}-public")
            assert made.status == 0
        create = "series create count --name Tea --population city --epsilon 1 --delta 1e-8 --users 1000 --rounds 3"
        rounds = "--rounds-per-device 2 --period 1d --open-for 1h --author author.key --shuffler shuffler.key.pub"
        keys = "--analyzer-keys analyzer-public --shuffler-keys shuffler-public --out series.json"
        assert shuffledp(*f"{create} {rounds} {keys}".split()).status == 0
        return shuffledp("series", "show", "series.json", "--json").json

    def test_build_and_publish(self, shuffledp, series, tmp_path, monkeypatch):
        from shuffledp.collection.device import release

        built = shuffledp(*self.BUILD, "--series", "series.json", *OUT, "--json")
        assert built.json["task"] == series["id"]
        assert {"series.json", "client-series.js"} <= {file["name"] for file in built.json["files"]}
        publish = ("survey", "publish", "site", "--server", "https://analyzer.example", "--json")
        asked = []
        monkeypatch.setattr(release, "fetch_release", lambda _, task: asked.append(task.id.hex()))
        failed = shuffledp(*publish)
        assert (failed.status, asked) == (1, series["tasks"][:1])
        assert "no release of any round of this series" in failed.error.replace("\n", " ")
        monkeypatch.setattr(release, "fetch_release", lambda *_: object())
        assert shuffledp(*publish).json["task"] == series["tasks"][0]

    def test_tokens_of_a_round(self, shuffledp, series, tmp_path):
        (tmp_path / "enrolment").mkdir()
        tokens = ("serve", "tokens", "series.json", "--enrolment", "enrolment", "--count", 3, "--out")
        made = shuffledp(*tokens, "tokens.txt", "--round", 1, "--json")
        assert made.json["task"] == series["tasks"][1]
        assert len((tmp_path / "enrolment" / f"{series['tasks'][1]}.tokens").read_text().splitlines()) == 3
        for options, message in (([], "Give --round I"), (["--round", 3], "there is no round 3")):
            assert message in shuffledp(*tokens, "more.txt", *options).error.replace("\n", " ")
        given = shuffledp("serve", "tokens", "task.json", *tokens[3:], "more.txt", "--round", 0)
        assert "--round belongs to a series" in given.error
        assert not (tmp_path / "more.txt").exists()

    def test_refused(self, shuffledp, series, tmp_path):
        cases = {
            "--series series.json --task task.json": "Give --task FILE, or --series FILE",
            "": "Give --task FILE, or --series FILE",
            "--series task.json": "task.json",
            "--task series.json": "series.json",
            "--series missing.json": "missing.json",
            "--series series.json --kiosk": "cannot be a kiosk",
        }
        for options, message in cases.items():
            failed = shuffledp(*self.BUILD, *OUT, *options.split())
            assert failed.status in (1, 2), options
            assert message in failed.error.replace("\n", " "), options
            assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-epsilon", 0.5], "allows epsilon = 0.5"),
        (["--server", "http://shuffler.example"], "shuffler must be https"),
        (["--server", "shuffler"], "not a valid server URL"),
        (["--asker", "  "[:0]], "1 to 200 characters"),
        (["--language", "fr"], "language"),
        (["--author", "shuffler.key.pub"], "not signed by a key"),
        (["--task", "author.key.pub"], "author.key.pub"),
        (["--task", "missing.json"], "missing.json"),
        (["--out", "no/site"], "create it first"),
        (["--out", "task.json"], "not an empty directory"),
    ],
)
def test_refused(shuffledp, task, tmp_path, options, message):
    before = set(tmp_path.iterdir())
    failed = shuffledp(*BUILD, *OUT, *options)
    assert failed.status in (1, 2)
    assert message in failed.error
    assert set(tmp_path.iterdir()) == before


def test_publish_without_a_release(shuffledp, task):
    shuffledp(*BUILD, *OUT)
    failed = shuffledp("survey", "publish", "site", "--server", "http://127.0.0.1:9")
    assert failed.status == 1
    assert "cannot be reached" in failed.error
    assert json.loads((task.parent / "site" / "result.json").read_bytes()) == {"url": None}


@contextmanager
def serving(task, **streams):
    """``survey serve`` in a process of its own, and its address."""
    command = [sys.executable, "-m", "shuffledp", "survey", "serve", str(task.parent / "site"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **streams) as process:
        yield process, re.match(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]


def check_notes(err, address):
    assert f'origins = ["{address.rstrip("/")}"]' in err.replace("\n", " ")
    assert "ended" in err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serve(shuffledp, task, stop):
    shuffledp(*BUILD, *OUT)
    with serving(task, stderr=subprocess.PIPE) as (process, address):
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"Commuting" in answer.read()
        process.send_signal(stop)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    check_notes(err, address)


def test_an_interrupt_while_serve_still_prints(shuffledp, task):
    """Its second line cannot be written yet: standard error is a full pipe."""
    shuffledp(*BUILD, *OUT)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writing, b"." * 4096)
    os.set_blocking(writing, True)
    with serving(task, stderr=writing) as (process, address):
        os.close(writing)
        process.send_signal(signal.SIGINT)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            err = pipe.read()[filled:]
        assert process.wait(60) == 0, err
    check_notes(err, address)
