"""Settings, budgets and the command: what is wrong is said in one line, before anything begins."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer.overview import directory_overview
from shuffledp.collection.analyzer.server import Analyzer, check_analyzer
from shuffledp.collection.analyzer.settings import PopulationBudget, read_budgets, read_hidden_strings
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.errors import DataError, ParameterError


@pytest.fixture
def run(monkeypatch, capsys):
    """The command, in this process."""

    def command(*arguments: str, **environment: str) -> tuple[int, str, str]:
        with monkeypatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            status = main._run(["serve", "analyzer", *arguments])
        return status, *capsys.readouterr()

    return command


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"authors": ()}, "authors"),
        ({"sealing_keys": ()}, "sealing_keys"),
        ({"processes": -1}, "processes"),
        ({"engine": "dask"}, "engine must be local or spark"),
        ({"spark_master": "local[2]"}, "engine is not"),
        ({"confidence": 1.0}, "confidence"),
        ({"arriving_megabytes": 0}, "arriving_megabytes"),
        ({"port": 70_000}, "port"),
    ],
)
def test_settings_that_mean_nothing(collection, changes, told):
    with pytest.raises(ParameterError, match=told):
        collection.settings(**changes)


def test_hidden_strings(collection, tmp_path):
    file = tmp_path / "hidden.txt"
    file.write_bytes("\ufeffone\r\n\n two \na\u2028b\n".encode())
    assert read_hidden_strings(file) == {"one", " two ", "a\u2028b"}
    assert read_hidden_strings(None) == frozenset()
    assert collection.open(hidden_strings=file).releaser.hidden_strings == read_hidden_strings(file)
    file.write_bytes(b"\xff\n")
    with pytest.raises(ParameterError, match="not a list of strings in UTF-8"):
        collection.open(hidden_strings=file)
    with pytest.raises(DataError, match="missing"):
        collection.open(hidden_strings=tmp_path / "missing.txt")


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
        ("[people", "not valid TOML"),
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
    assert read_budgets(tmp_path / "budgets.toml") == {
        "people": PopulationBudget(2.0, 1e-6),
        "all of us": PopulationBudget(1.0, 0.5),
    }
    with pytest.raises(DataError, match="Cannot read"):
        read_budgets(tmp_path / "none.toml")


def test_a_key_that_others_can_read_is_refused(collection):
    (collection.folder / "analyzer.key").chmod(0o644)
    with pytest.raises(DataError, match="chmod 600"):
        check_analyzer(collection.settings())


def test_one_analyzer_in_a_folder(collection):
    first = collection.open()
    with pytest.raises(DataError, match="Another process"):
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
        assert json.loads(analyzer.releases.file(task.id, "json").read_bytes())["rejected"] == {}
    analyzer.close()


def test_the_operator_sees_how_far_everything_is(collection, deliver):
    collection.budgets(people=(1.5, 1e-6), nobody=(1.0, 1e-6))
    tasks = [collection.task("histogram/k-rr", name=name) for name in ("first", "second", "third")]
    assert [task["state"] for task in directory_overview(collection.settings())["rounds"]] == ["waiting"] * 3
    analyzer = collection.open()
    for task in tasks[:2]:
        deliver(analyzer, collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int))))
        analyzer.releaser.release(task.id)
    told = directory_overview(collection.settings())  # also while it runs
    states = {task["name"]: (task["state"], task["reason"]) for task in told["rounds"]}
    assert states["first"] == ("released", "")
    assert states["second"][0] == "refused"
    assert "the budget of the population is 1.5" in states["second"][1]
    assert states["third"] == ("waiting", "")
    people, nobody = told["populations"]
    assert (people["name"], people["releases"]) == ("people", 1)
    assert people["spent_epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert (people["next"], people["fits"]) == (tasks[2].id.hex(), False)
    assert people["after_next"] == pytest.approx(2.0, rel=0.1)
    assert nobody["spent_epsilon"] == 0.0
    assert (nobody["next"], nobody["after_next"], nobody["fits"]) == (None, None, None)
    analyzer.close()


def test_the_command_checks_and_says_what_is_wrong(collection, run):
    collection.task("histogram/k-rr", name="commute")
    config = str(collection.config())
    status, told, complaint = run("--config", config, "--check")
    assert (status, complaint) == (0, "")
    assert "1 task," in told
    assert "commute: waiting." in told
    document = json.loads(run("--config", config, "--check", "--json")[1])
    assert set(document) == {"tasks", "populations", "refused", "connections", "alerts"}
    status, _, complaint = run("--config", config, "--check", SHUFFLEDP_ANALYZER_COLOUR="red")
    assert status == 2
    assert complaint.startswith("error: Unknown setting 'colour'")
    status, _, complaint = run("--check", SHUFFLEDP_ANALYZER_WORK=str(collection.folder / "work"))
    assert status == 2
    assert "Missing settings of the analyzer" in complaint
    assert len(complaint.splitlines()) == 1
    assert "--config" in run("--help")[1]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_read_what_is_kept(collection, deliver):
    """Whatever the mask of the process and the folder's rights were; results are public."""
    task = collection.task("histogram/k-rr")
    batch = collection.batch(task, collection.sealed(task, np.zeros(200, dtype=int)))
    work = collection.folder / "work"
    work.chmod(0o755)
    for name in ("ledger.db", "analyzer.db"):
        (work / name).touch(0o644)
        (work / name).chmod(0o644)
    before = os.umask(0o002)
    try:
        analyzer = collection.open()
        deliver(analyzer, batch)
        assert {mode(each) for each in work.rglob("*") if each.is_dir() and each.name != "releases"} == {0o700}
        files = {each.relative_to(work): mode(each) for each in work.rglob("*") if each.is_file()}
        assert mode(work) == 0o700
        assert set(files.values()) == {0o600}, files
        assert {"ledger.db", "ledger.db-wal", "analyzer.db", "analyzer.db-shm", "0.chunk", ".lock"} <= {
            file.name for file in files
        }
        analyzer.releaser.release(task.id)
        analyzer.close()
        assert mode(work / "releases" / f"{task.id.hex()}.json") == 0o664
    finally:
        os.umask(before)


def test_a_folder_that_stays_open_to_others_is_refused(collection, monkeypatch):
    (collection.folder / "work").chmod(0o750)

    def not_yours(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", not_yours)
    with pytest.raises(DataError, match=r"is accessible to other users.*chmod go="):
        collection.open()
