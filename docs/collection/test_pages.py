"""These pages say what the code does: settings, statuses, metrics, events, numbers; their commands and Python run."""

import dataclasses
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from typer.testing import CliRunner

from shuffledp.cli.main import command_line
from shuffledp.collection import SealingKey, ShufflerKeys, SignedTask, SigningKey, Task, WireVersion2
from shuffledp.collection.analyzer.settings import AnalyzerSettings
from shuffledp.collection.device import Patience, Policy
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.domain import Strings
from shuffledp.errors import ParameterError
from shuffledp.messages import Messages
from shuffledp.planning import Count, FrequentStrings, Histogram, Quantiles, Sum
from shuffledp.protocols.parts.tree import TreeFit
from shuffledp.protocols.registry import PROTOCOLS, find

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "shuffledp" / "collection"
PAGES = sorted(HERE.glob("*.md"))
SYBIL = Sybil(parsers=[PythonCodeBlockParser()], pattern="*.md")


def page(name):
    return (HERE / f"{name}.md").read_text(encoding="utf-8")


def section(name, heading):
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def source(*directories):
    files = [file for directory in directories for file in (SOURCE / directory).glob("*.py")]
    assert files, directories
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in SYBIL.parse(path).examples():
        example.evaluate()


@pytest.mark.parametrize(("name", "kind"), [("shuffler", ShufflerSettings), ("analyzer", AnalyzerSettings)])
def test_settings(name, kind):
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", section(name, "Settings"), re.MULTILINE))
    assert rows == {each.name: _shown(each.default) for each in dataclasses.fields(kind)}


def _shown(default):
    if default is dataclasses.MISSING:
        return "required"
    return "" if default in (None, "") else f"`{default}`"


def test_problems():
    rows = re.findall(r"^\| (\d+) \| `([\w-]+)` \| (\w+) \|", section("wire-format", "HTTP"), re.MULTILINE)
    documented = {"shuffler": set(), "analyzer": set()}
    for status, name, of in rows:
        for role in documented if of == "both" else [of]:
            documented[role].add((status, name))
    for role, found in documented.items():
        real = set(re.findall(r'problem\(\s*(\d+),\s*"([\w-]+)"', source(role, "server")))
        assert found == real, role


def test_events():
    rows = re.findall(r"^\| (`.+?`) \| (\w+) \|", section("operations", "Logs"), re.MULTILINE)
    documented = {"shuffler": {"library"}, "analyzer": {"library"}}
    for names, of in rows:
        for role in documented if of == "both" else [of]:
            documented[role] |= set(re.findall(r"`([\w-]+)`", names))
    for role, found in documented.items():
        directories = (role, "server", "shuffler/store") if role == "shuffler" else (role, "server")
        real = set(re.findall(r'event\(\s*"([\w-]+)"', source(*directories)))
        assert found == real | {"library"}, role


def test_metrics():
    rows = dict(re.findall(r"^\| `(shuffledp_\w+)` \| (\w+) \|", section("operations", "Watching"), re.MULTILINE))
    real = {}
    for role in ("shuffler", "analyzer"):
        for kind, name in re.findall(r'metrics\.(counter|gauge|histogram)\(\s*"(\w+)"', source(role, "server")):
            real[f"shuffledp_{role}_{name}{'_total' if kind == 'counter' else ''}"] = kind
        for name in re.findall(r'self\.counter\("(\w+)"', source("server")):
            real[f"shuffledp_{role}_{name}_total"] = "counter"
    assert rows == real
    assert set(re.findall(r"shuffledp_(?:shuffler|analyzer)_\w+", section("operations", "Watching"))) == set(real)


def test_policy():
    policy, rows = Policy(), section("client", "What a device refuses")
    assert f"| `max_epsilon`, `max_delta` | {policy.max_epsilon}, 1e-5 |" in rows
    assert policy.max_delta == 1e-5
    assert f"| `min_users` | {policy.min_users} |" in rows
    assert f"| `max_messages` | {policy.max_messages:,} |" in rows
    assert f"| `max_report_bytes` | {policy.max_report_bytes >> 20} MiB |" in rows
    assert f"| `allow_augmented` | {str(policy.allow_augmented).lower()} |" in rows


def test_patience():
    documented = " ".join(section("client", "How it is sent").split())
    patience = Patience()
    assert f"({patience.first_pause} s, doubling up to a minute" in documented
    assert patience.longest_pause == 60
    assert f"{patience.attempts} times" in documented


def test_keys_of_a_task():
    rows = re.findall(r"^\| (`.+?`) \|", section("task", "What a task says"), re.MULTILINE)
    documented = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert documented == set(_task("count", "cheu").to_document())


QUESTIONS = {
    "count": Count(10_000),
    "histogram": Histogram(10_000, 16),
    "sum": Sum(10_000, 0.0, 100.0, False),
    "quantiles": Quantiles(10_000, 0.0, 100.0, 16),
    "strings": FrequentStrings(10_000, Strings("a-z", 8)),
}


def _task(question, name):
    now = datetime.now(UTC).replace(microsecond=0)
    shuffler = SigningKey.create().public
    wire = WireVersion2((ShufflerKeys(shuffler, SealingKey.create().public),))
    return Task.create(
        kind=find(question, name),
        settings=QUESTIONS[question].settings(),
        epsilon=1.0,
        delta=1e-6,
        maximum_users=100_000,
        name="a",
        description="",
        population="b",
        opens=now,
        closes=now + timedelta(hours=1),
        analyzer=SealingKey.create().public,
        shuffler=shuffler,
        wire=wire if find(question, name).trust == "augmented" else None,
    )


ROWS = re.findall(r"^\| `(\w+)/([\w-]+)` \| (\d+) \| (\S+) \| (\S+) \|", page("threat-model"), re.MULTILINE)
NEVER_PADDED = {("sum", "almost-central")}
"""Its reports would need more messages than a report may have, to hide how many there are."""


def _contributions(protocol):
    """What one message of any kind adds to the number that the first estimate is linear in; none or more."""
    form, generator = protocol.message_format, random.Random(1)
    if form.codes <= 20_000:
        messages = form.message(np.arange(form.codes))
    else:  # kinds that matter are common: a bit set or not, a bucket hit or missed
        places = np.arange(4000)
        # half of the users hold the first category: about 20 of 3000 messages of hadamard-blanket are theirs
        categories = np.where(places % 2, places % protocol.domain_size, 0)
        values = np.array([0.0, 1.0] * 500) if protocol.question == "sum" else categories
        messages = protocol.randomize_all(values).values
        messages = messages[generator.sample(range(len(messages)), min(len(messages), 3000))]

    def observed(some):
        tally = protocol.tally(Messages(some, 1))
        return float(protocol.observed(tally)[0])

    nothing = observed(messages[:0])
    return [observed(messages[place : place + 1]) - nothing for place in range(len(messages))]


def _largest_spread(protocol):
    """The most that one message moves the number of users below an edge, up or down; a dummy moves nothing."""
    fit = TreeFit(protocol.tree, tuple(noise.variance for noise in protocol.noises(protocol.users)))
    moved = np.concatenate(fit.coefficients(np.tri(protocol.domain_size - 1, protocol.domain_size)), axis=1)
    if protocol.message_format.flags:  # a message has either sign
        return float(2 * np.abs(moved).max())
    return float((moved.max(axis=1) - np.minimum(moved.min(axis=1), 0.0)).max())


def _moved_by_one_report(task):
    """The largest minus the smallest estimate that one report can cause, all of its messages being alike."""
    protocol = task.protocol
    if protocol.question == "strings":  # all messages in cells of one string
        return float(task.messages_per_report)
    if protocol.question == "quantiles":
        return task.messages_per_report * _largest_spread(protocol)
    added = _contributions(protocol)
    least = min(added) if task.messages_per_report == 1 else min(0.0, *added)  # dummies add nothing
    width = protocol.domain.width if protocol.question == "sum" else 1.0
    slope = getattr(protocol.analysis(protocol.users), "slope", 1.0)
    return task.messages_per_report * (max(added) - least) / slope * width


@pytest.mark.parametrize(("question", "name", "messages", "moved", "left"), ROWS, ids=lambda each: each)
def test_messages_of_a_report_what_they_move_and_what_is_left(question, name, messages, moved, left):
    task = _task(question, name)
    assert task.messages_per_report == int(messages)
    if moved == "**anything**":
        assert task.protocol.fragile
        assert task.protocol.moved_by_report(task.messages_per_report) == float("inf")
    else:
        computed = task.protocol.moved_by_report(task.messages_per_report)
        assert computed == pytest.approx(_moved_by_one_report(task), rel=1e-9)
        assert float(moved.replace(",", "")) == pytest.approx(_moved_by_one_report(task), rel=0.005)
    local = task.protocol.guarantee.local_epsilon
    assert left == "nothing" if local == float("inf") else float(left) == pytest.approx(local, rel=0.01)


def test_every_protocol_that_a_task_may_have_is_listed():
    allowed = {
        (question, name)
        for question, protocols in PROTOCOLS.items()
        for name, kind in protocols.items()
        if kind.trust != "central" and not kind.trusts_shuffler
    }
    assert {(question, name) for question, name, *_ in ROWS} == allowed - NEVER_PADDED
    for question, name in NEVER_PADDED:
        with pytest.raises(ParameterError, match="would have to be padded to more than"):
            _task(question, name)


def test_local_links_lead_somewhere():
    for path in PAGES:
        for target, _, anchor in (
            link.partition("#") for link in re.findall(r"\]\(([^)\s]+\.md(?:#[\w-]+)?|#[\w-]+)\)", path.read_text())
        ):
            file = (HERE / target) if target else path
            assert file.is_file(), f"{path.name}: {target}"
            assert not anchor or anchor in _anchors(file), f"{path.name}: {target}#{anchor}"


def _anchors(file):
    headings = re.findall(r"^#{1,3} (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def documented_json(heading):
    """The keys below a heading of the command-line page."""
    text = (HERE.parent / "command-line.md").read_text(encoding="utf-8")
    found = re.search(rf"^### JSON of `{heading}`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return set(re.findall(r"^\| `([^`]+)` \| all \|", found[1], re.MULTILINE))


def leaves(value, path=""):
    """``a.b`` for a key in an object, ``a[].b`` for a key in a list of objects."""
    if path in ("alerts", "tasks[].rejected"):
        return {path}
    if isinstance(value, dict) and path != "task":
        return set().union(*(leaves(inner, f"{path}.{key}" if path else key) for key, inner in value.items()))
    if isinstance(value, list) and value:
        return set().union(*(leaves(each, f"{path}[]") for each in value))
    return {path}


def test_json_of_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for directory in ("tasks", "work"):
        Path(directory).mkdir()
    Path("budgets.toml").write_text("[NAME]\nepsilon = 3\ndelta = 1e-5\n")
    Path("servers.toml").write_text(
        '[shuffler]\ntasks = "tasks"\nauthors = ["author.pub"]\nsigning_key = "shuffler"\nwork = "work"\n'
        'analyzer = "http://127.0.0.1:8081"\nstore_folder = "store"\n'
        '[analyzer]\ntasks = "tasks"\nauthors = ["author.pub"]\nsealing_keys = ["analyzer"]\nwork = "work"\n'
        'budgets = "budgets.toml"\n'
    )

    def keys_printed(command):
        words = command.split()
        result = CliRunner().invoke(command_line(words[0]), [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return leaves(json.loads(result.stdout))

    for role in ("author", "shuffler", "analyzer"):
        assert keys_printed(f"keys create {role} --out {role}") == documented_json("keys create")
    assert keys_printed("keys show author") == documented_json("keys show")
    keys = "--author author --analyzer analyzer.pub --shuffler shuffler.pub"
    task = "--name a --population NAME --epsilon 1 --delta 1e-6 --users 500 --closes 1h --protocol balcer-cheu"
    shown = documented_json("task create` and `task show")
    assert keys_printed(f"task create count {task} {keys} --out tasks/a.json") == shown
    assert keys_printed("task show tasks/a.json") == shown
    assert keys_printed("task verify tasks/a.json --author author.pub") == documented_json("task verify")
    assert keys_printed("init analyzer --config servers.toml") == documented_json("init analyzer")
    assert keys_printed("backup analyzer --config servers.toml --out backup") == documented_json("backup analyzer")
    shutil.rmtree("work")
    restoring = (
        "restore analyzer --config servers.toml --from backup --released "
        + SignedTask.load(Path("tasks/a.json")).task.id.hex()
    )
    assert keys_printed(restoring) == documented_json("restore analyzer")
    for role in ("shuffler", "analyzer"):
        assert keys_printed(f"serve {role} --config servers.toml --check") == documented_json(f"serve {role} --check")


_TRIAL_SECONDS = 240
"""It takes some ten seconds; the machine may be busy."""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A ``shuffledp`` on the path that is this one."""
    directory = tmp_path / "bin"
    directory.mkdir()
    script = directory / "shuffledp"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shuffledp "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    for name in [each for each in os.environ if each.startswith("SHUFFLEDP_")]:
        monkeypatch.delenv(name)


def _trial():
    blocks = re.findall(r"^```sh\n(.*?)^```", section("index", "Try it on one machine"), re.MULTILINE | re.DOTALL)
    return "".join(blocks)


def test_the_trial_until_servers_start(tmp_path, shuffledp):
    """What comes before the first server: keys, a task, settings, and the checks of both servers.

    The slow test runs each command in a process of its own; here they run in this one.
    """
    before = _trial().partition("shuffledp serve analyzer --config analyzer.toml 2>")[0].replace("\\\n", "")
    documented = ""
    for part in re.split(r"^(shuffledp .*\n)", before, flags=re.MULTILINE):
        if part.startswith("shuffledp "):
            done = shuffledp(*shlex.split(part)[1:])
            assert done.status == 0, part + done.err
            documented += done.out
        else:
            subprocess.run(["bash", "-c", f"set -e\n{part}"], cwd=tmp_path, timeout=_TRIAL_SECONDS, check=True)
    assert documented.count("Commuting") >= 2  # in the checks of both


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_the_trial_on_one_machine(tmp_path):
    """All shell blocks, one after the other, as a reader would type them, but without waiting longer than need be."""
    ports = {"8080": str(_free_port()), "8081": str(_free_port())}
    script = _trial()
    for shown, real in ports.items():
        script = script.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{real}")
    for role, shown in (("shuffler", "8080"), ("analyzer", "8081")):
        script = script.replace(f"--config {role}.toml 2>", f"--config {role}.toml --port {ports[shown]} 2>")
    script = script.replace("sleep 5\n", f'"{sys.executable}" {_waiting(tmp_path, ports.values())}\n')
    directory = tmp_path / "trial"
    directory.mkdir()
    careful = "set -e\ntrap 'kill $(jobs -p); wait' EXIT\n"
    result = subprocess.run(
        ["bash", "-c", careful + script],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=_TRIAL_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "499 of 499 reports were delivered" in result.stdout
    assert "Commuting: released." in result.stdout
    assert "1 releases" in result.stdout
    (table,) = (directory / "analyzer-work" / "releases").glob("*.csv")
    assert table.read_text(encoding="utf-8") in result.stdout
    assert not list((directory / "shuffler-store").glob("round-*"))
    for log in ("shuffler.log", "analyzer.log"):
        assert '"level": "error"' not in (directory / log).read_text(encoding="utf-8")


def _waiting(directory, ports):
    """A program that waits until servers answer at the ports."""
    program = directory / "waiting.py"
    program.write_text(
        "import time, urllib.request\n"
        f"for port in {list(ports)}:\n"
        "    while True:\n"
        "        try:\n"
        "            urllib.request.urlopen(f'http://127.0.0.1:{port}/readyz')\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.1)\n"
    )
    return program
