"""Settings, budgets and the command: what is wrong is said in one line, before anything begins."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from shuffledp.collection.analyzer.overview import overview
from shuffledp.collection.analyzer.server import Analyzer, check_analyzer
from shuffledp.collection.analyzer.settings import Budget, read_budgets
from shuffledp.collection.keys import SealingKey, SigningKey
from shuffledp.errors import DataError, ParameterError

COMMAND = """
import sys
from shuffledp.cli import main
from shuffledp.cli.serve_analyzer import serve_analyzer
main.app.command("analyzer")(serve_analyzer)
sys.exit(main._run(sys.argv[1:]))
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, "analyzer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"authors": ()}, "authors"),
        ({"sealing_keys": ()}, "sealing_keys"),
        ({"processes": -1}, "processes"),
        ({"confidence": 1.0}, "confidence"),
        ({"arriving_megabytes": 0}, "arriving_megabytes"),
        ({"port": 70_000}, "port"),
    ],
)
def test_settings_that_mean_nothing(collection, changes, told):
    with pytest.raises(ParameterError, match=told):
        collection.settings(**changes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[people]\nepsilon = 1", "epsilon and delta"),
        ("[people]\nepsilon = 1\ndelta = 1e-6\nmore = 1", "epsilon and delta"),
        ("people = 3", "epsilon and delta"),
        ('[people]\nepsilon = "1"\ndelta = 1e-6', "must be a number"),
        ("[people]\nepsilon = true\ndelta = 1e-6", "must be a number"),
        ("[people]\nepsilon = -1\ndelta = 1e-6", "positive"),
        ("[people]\nepsilon = 1\ndelta = 0", "delta"),
        ("[people", "no TOML"),
    ],
)
def test_budgets_that_mean_nothing(tmp_path, text, told):
    (tmp_path / "budgets.toml").write_text(text)
    with pytest.raises(ParameterError, match=told):
        read_budgets(tmp_path / "budgets.toml")


def test_budgets_of_several_populations(tmp_path):
    (tmp_path / "budgets.toml").write_text(
        '[people]\nepsilon = 2\ndelta = 1e-6\n["all of us"]\nepsilon = 1\ndelta = 0.5'
    )
    assert read_budgets(tmp_path / "budgets.toml") == {"people": Budget(2.0, 1e-6), "all of us": Budget(1.0, 0.5)}
    with pytest.raises(DataError, match="Cannot read"):
        read_budgets(tmp_path / "none.toml")


def test_tasks_that_are_not_this_analyzers(collection):
    check_analyzer(collection.settings())
    wrong = {
        "not here": {"analyzer": SealingKey.create().public},
        "without a budget": {"population": "somebody"},
    }
    for told, changes in wrong.items():
        task = collection.task("histogram/k-rr", **changes)
        with pytest.raises(ParameterError, match=told):
            check_analyzer(collection.settings())
        (collection.folder / "tasks" / f"{task.id.hex()}.json").unlink()
    task = collection.task("histogram/k-rr", publish=False)
    (collection.folder / "tasks" / "t.json").write_bytes(task.signed(SigningKey.create()).to_bytes())
    with pytest.raises(ParameterError, match="not signed by a key that is trusted"):
        check_analyzer(collection.settings())


def test_a_key_that_others_can_read_is_refused(collection):
    (collection.folder / "analyzer.key").chmod(0o644)
    with pytest.raises(DataError, match="chmod 600"):
        check_analyzer(collection.settings())


def test_one_analyzer_in_a_folder(collection):
    first = collection.open()
    with pytest.raises(DataError, match="Another analyzer"):
        Analyzer(collection.settings())
    first.close()
    collection.open().close()


def test_a_key_that_replaces_another(collection, deliver):
    old = collection.task("histogram/k-rr")
    collection.analyzer = SealingKey.create()
    collection.analyzer.save(collection.folder / "new.key")
    new = collection.task("histogram/k-rr")
    keys = tuple(collection.folder / name for name in ("analyzer.key", "new.key"))
    analyzer = collection.open(sealing_keys=keys)
    for task in (old, new):
        deliver(analyzer, collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int))))
        analyzer.releaser.release(task.id)
        assert json.loads(analyzer.releases.read(task.id, "json"))["rejected"] == {}
    analyzer.close()


def test_the_operator_sees_how_far_everything_is(collection, deliver):
    collection.budgets(people=(1.5, 1e-6), nobody=(1.0, 1e-6))
    tasks = [collection.task("histogram/k-rr", name=name) for name in ("first", "second", "third")]
    assert [task["state"] for task in overview(collection.settings())["tasks"]] == ["waiting"] * 3
    analyzer = collection.open()
    for task in tasks[:2]:
        deliver(analyzer, collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int))))
        analyzer.releaser.release(task.id)
    told = overview(collection.settings())  # also while it runs
    states = {task["name"]: (task["state"], task["reason"]) for task in told["tasks"]}
    assert states["first"] == ("released", "")
    assert states["second"][0] == "refused"
    assert "the budget of the population is 1.5" in states["second"][1]
    assert states["third"] == ("waiting", "")
    assert told["populations"]["people"]["releases"] == 1
    assert told["populations"]["people"]["spent_epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert told["populations"]["nobody"]["spent_epsilon"] == 0.0
    analyzer.close()


def test_the_command_checks_and_says_what_is_wrong(collection):
    collection.task("histogram/k-rr", name="commute")
    config = str(collection.config())
    good = run("--config", config, "--check")
    assert (good.returncode, good.stderr) == (0, "")
    assert "1 tasks" in good.stdout
    assert "commute: waiting." in good.stdout
    told = json.loads(run("--config", config, "--check", "--json").stdout)
    assert set(told) == {"tasks", "populations"}
    wrong = run("--config", config, "--check", SHUFFLEDP_ANALYZER_COLOUR="red")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: Unknown setting 'colour'")
    missing = run("--check", SHUFFLEDP_ANALYZER_WORK=str(collection.folder / "work"))
    assert missing.returncode == 2
    assert "Missing settings of the analyzer" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1
    assert "--config" in run("--help").stdout
