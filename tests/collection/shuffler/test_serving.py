"""``shuffledp serve``: settings, --check and tokens."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shuffledp.cli import main
from shuffledp.collection.server.settings import read_settings
from shuffledp.collection.shuffler import enrolment
from shuffledp.collection.shuffler.enrolment import TokenDirectory, create_tokens
from shuffledp.collection.shuffler.intake import RateLimit
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.collection.wire.tokens import token_hash, token_id
from shuffledp.errors import DataError, OutputError, ParameterError


@pytest.fixture
def shuffledp(capfd, monkeypatch):
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def run(*arguments) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main._run(["serve", *map(str, arguments)])
        told = capfd.readouterr()
        return status, told.out, told.err

    return run


def test_check(place, shuffledp):
    form = place.task(name="How do you commute?")
    config = place.config()
    status, out, err = shuffledp("shuffler", "--config", config, "--check")
    assert (status, err) == (0, "")
    assert "How do you commute?" in out
    assert place.key.public.id in out
    status, out, _ = shuffledp("shuffler", "--config", config, "--check", "--json")
    told = json.loads(out)
    assert told["key"] == place.key.public.id
    assert [each["task"] for each in told["tasks"]] == [form.task_id.hex()]
    assert told["refused"] == []
    assert not (place.folder / "store").exists()


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [
        ({"colour": "red"}, 2, "'colour'"),
        ({"authors": ()}, 2, "authors"),
        ({"token_issuer": "issuer.example"}, 2, "token_issuer and token_issuer_keys belong together"),
        ({"role": "both"}, 2, "role must be one of all, ingest, mixer, not 'both'"),
        ({"role": "mixer"}, 2, 'The role mixer needs a shared store: set store = "postgres"'),
        ({"role": "ingest"}, 2, "Missing settings of the shuffler: verifying_key; the role ingest needs them"),
        ({"role": "ingest", "verifying_key": "author.pub"}, 2, "has no keys and delivers nothing: remove signing_key"),
        ({"analyzer": "analyzer.example"}, 2, "https://analyzer.example"),
        ({"analyzer": "https://user:secret@analyzer.example"}, 2, "without a user name"),
        ({"analyzer": "ftp://user:secret@analyzer.example"}, 2, "without a user name"),
        ({"analyzer": "https://user:secret/x@analyzer.example"}, 2, "without a user name"),
        ({"analyzer": "https://analyzer.example:99999"}, 2, "99999"),
        ({"analyzer": "https://analyzer.example:0"}, 2, ":0"),
        ({"analyzer": "https://analyzer.example:http"}, 2, ":http"),
        ({"analyzer": "https://[::1"}, 2, "[::1"),
        ({"analyzer": "http://analyzer.example:8081"}, 2, 'analyzer_plain_http = "analyzer.example"'),
        ({"analyzer": "http://10.0.0.2", "analyzer_plain_http": "10.0.0.3"}, 2, "without TLS"),
        ({"analyzer": "http://localhost.example"}, 2, "without TLS"),
        ({"store": "oracle"}, 2, "'oracle'"),
        ({"store": "postgres"}, 2, "store_dsn_file"),
        ({"permutation_megabytes": 1}, 2, "permutation_megabytes"),
        ({"reports_per_second": -1.0}, 2, "reports_per_second"),
        ({"burst": 0}, 2, "burst"),
        ({"waiting_seconds": 0}, 2, "waiting_seconds"),
        ({"work": "/nowhere/at/all"}, 1, "/nowhere/at/all"),
        ({"tasks": "/nowhere/at/all"}, 1, "/nowhere/at/all"),
        ({"signing_key": "/nowhere"}, 1, "/nowhere"),
        ({"analyzer": "https://analyzer.example", "analyzer_ca": "/nowhere"}, 1, "/nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(place, shuffledp, changes, status, named):
    found, out, err = shuffledp("shuffler", "--config", place.config(**changes), "--check")
    assert (found, out) == (status, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert named in err
    assert "secret" not in err


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("http://localhost:8081", None),
        ("http://[::1]:8081", None),
        ("http://127.0.0.2", None),
        ("http://analyzer:8081", "Analyzer"),
        ("https://analyzer.example", None),
    ],
)
def test_where_batches_may_go(place, address, allowed):
    assert place.settings(analyzer=address, analyzer_plain_http=allowed).analyzer == address


class TestWhichStore:
    """The file names one, the environment another."""

    def read(self, place, environment, **changes):
        names = {f"SHUFFLEDP_SHUFFLER_{name.upper()}": value for name, value in environment.items()}
        return read_settings(
            ShufflerSettings, role="shuffler", file=place.config(**changes), environment=names, options={}
        )

    def test_postgres_instead_of_sqlite(self, place):
        found = self.read(place, {"store": "postgres", "store_dsn_file": "/run/dsn"}, store="sqlite")
        assert (found.store, found.store_folder, found.store_dsn_file) == ("postgres", None, Path("/run/dsn"))

    def test_sqlite_instead_of_postgres(self, place):
        changes = {"store": "postgres", "store_folder": None, "store_dsn_file": "dsn"}
        found = self.read(place, {"store": "sqlite", "store_folder": "/store"}, **changes)
        assert (found.store, found.store_folder, found.store_dsn_file) == ("sqlite", Path("/store"), None)

    @pytest.mark.parametrize(
        "environment",
        [
            {"store": "postgres"},
            {"store_dsn_file": "/run/dsn"},
            {"store": "postgres", "store_dsn_file": "/run/dsn", "store_folder": "/store"},
        ],
    )
    def test_half_of_it_is_refused(self, place, environment):
        with pytest.raises(ParameterError, match="store must be"):
            self.read(place, environment, store="sqlite")


def test_secrets_that_others_can_read(place, shuffledp):
    (place.folder / "shuffler.key").chmod(0o644)
    status, _, err = shuffledp("shuffler", "--config", place.config(), "--check")
    assert status == 1
    assert "chmod 600" in err
    (place.folder / "shuffler.key").chmod(0o600)
    dsn = place.folder / "dsn"
    dsn.write_text("host=x password=hidden")
    dsn.chmod(0o644)
    config = place.config(store="postgres", store_folder=None, store_dsn_file=dsn)
    status, _, err = shuffledp("shuffler", "--config", config, "--check")
    assert status == 1
    assert "chmod 600" in err
    dsn.chmod(0o600)
    status, _, err = shuffledp("shuffler", "--config", config, "--check")
    assert (status, "postgresql://" in err, "hidden" in err) == (1, True, False)


def test_help_has_an_example(shuffledp):
    for name in ("shuffler", "analyzer", "tokens"):
        status, out, _ = shuffledp(name, "--help")
        assert status == 0
        assert f"Example: shuffledp serve {name}" in " ".join(out.split())


def test_one_process_a_work_folder(place):
    shuffler = place.shuffler()
    with pytest.raises(DataError, match="Another process uses"):
        place.shuffler(store_folder=place.folder / "other")
    assert not (place.folder / "other").exists()
    shuffler.close()
    place.shuffler().close()


class TestTokens:
    def test_tokens_are_made_for_devices_and_hashes_for_the_shuffler(self, place, shuffledp):
        form = place.task(file="task.json")
        hashes = place.folder / "enrolment" / f"{form.task_id.hex()}.tokens"
        made = []
        for count, name in ((3, "a.txt"), (2, "b.txt")):
            out = place.folder / name
            status, _, err = shuffledp(
                "tokens", place.folder / "tasks" / "task.json", "--count", count,
                "--enrolment", place.folder / "enrolment", "--out", out,
            )  # fmt: skip
            assert (status, err) == (0, "")
            assert out.stat().st_mode & 0o777 == 0o600
            made += out.read_text().split()
        out = place.folder / "c.txt"
        arguments = ("--enrolment", place.folder / "enrolment", "--out", out, "--json")
        _, told, _ = shuffledp("tokens", place.folder / "tasks" / "task.json", *arguments)
        assert json.loads(told) == {"task": form.task_id.hex(), "tokens": 1, "out": str(out)}
        made += out.read_text().split()
        assert len(set(made)) == 6
        assert hashes.read_text().split() == [token_hash(each.encode()).hex() for each in made]
        assert not any(each in hashes.read_text() for each in made)

    def test_what_is_refused(self, place, shuffledp):
        place.task(file="task.json")
        task, folder = place.folder / "tasks" / "task.json", place.folder / "enrolment"
        taken = place.folder / "taken.txt"
        taken.write_text("")
        assert shuffledp("tokens", task, "--enrolment", folder, "--out", taken)[0] == 1
        assert shuffledp("tokens", task, "--count", 0, "--enrolment", folder, "--out", folder / "x")[0] == 2
        assert shuffledp("tokens", folder / "no", "--enrolment", folder, "--out", folder / "x")[0] == 1
        assert list(folder.iterdir()) == []

    def test_several_at_once_lose_nothing(self, tmp_path):
        threads = [
            threading.Thread(
                target=create_tokens, args=("task", 20), kwargs={"directory": tmp_path, "out": tmp_path / f"{n}.txt"}
            )
            for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        made = [token for n in range(8) for token in (tmp_path / f"{n}.txt").read_text().split()]
        hashes = (tmp_path / "task.tokens").read_text().split()
        assert len(made) == 160
        assert sorted(hashes) == sorted(token_hash(each.encode()).hex() for each in made)

    def test_hashes_are_durable_before_tokens_are_there(self, tmp_path, monkeypatch):
        steps = []
        replace, link, sync = os.replace, os.link, os.fsync
        monkeypatch.setattr(os, "replace", lambda *each: (steps.append("hashes"), replace(*each)))
        monkeypatch.setattr(os, "link", lambda *each: (steps.append("tokens"), link(*each)))
        monkeypatch.setattr(os, "fsync", lambda each: (steps.append("sync"), sync(each)))
        create_tokens("task", 2, directory=tmp_path, out=tmp_path / "out.txt")
        monkeypatch.undo()
        assert steps[:3] == ["sync", "hashes", "sync"]
        assert steps[-3:] == ["sync", "tokens", "sync"]
        assert (tmp_path / "out.txt").stat().st_mode & 0o777 == 0o600
        assert sorted(each.name for each in tmp_path.iterdir()) == ["out.txt", "task.tokens"]

    @pytest.mark.parametrize(("step", "named"), [("replace", "No token was created"), ("link", "have no effect")])
    def test_a_step_that_fails_is_said_in_one_line(self, place, shuffledp, monkeypatch, step, named):
        place.task(file="task.json")

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, step, fail)
        folder, out = place.folder / "enrolment", place.folder / "out.txt"
        status, _, err = shuffledp("tokens", place.folder / "tasks" / "task.json", "--enrolment", folder, "--out", out)
        assert (status, err.count("\n")) == (1, 1)
        assert "No space left on device" in err
        assert named in err
        assert not out.exists()
        assert len(list(folder.iterdir())) == (step == "link")
        assert not list(place.folder.glob(".out*"))

    def test_more_than_a_file_can_have(self, place, shuffledp):
        """Refused before any token is created: they would be in memory."""
        place.task(file="task.json")
        folder, out = place.folder / "enrolment", place.folder / "out.txt"
        task = place.folder / "tasks" / "task.json"
        for count, shown in ((1_000_001, "1,000,001"), (10**20, f"{10**20:,}"), (0, "0")):
            done = shuffledp("tokens", task, "--enrolment", folder, "--out", out, "--count", count)
            assert (done[0], f"1,000,000 tokens, not {shown}" in done[2]) == (2, True)
        assert not out.exists()
        assert not list(folder.iterdir())

    def test_a_file_that_appeared_meanwhile_is_not_overwritten(self, tmp_path, monkeypatch):
        out = tmp_path / "out.txt"
        create = enrolment.create_token
        monkeypatch.setattr(enrolment, "create_token", lambda: (out.write_text("of another"), create())[1])
        with pytest.raises(OutputError, match="was created meanwhile"):
            create_tokens("task", 1, directory=tmp_path, out=out)
        assert out.read_text() == "of another"

    def test_the_mode_of_the_hashes_stays(self, tmp_path):
        for mode in (0o644, 0o640):
            create_tokens("task", 1, directory=tmp_path, out=tmp_path / f"{mode}.txt")
            assert (tmp_path / "task.tokens").stat().st_mode & 0o777 == mode
            (tmp_path / "task.tokens").chmod(0o640)

    def test_which_tokens_are_known(self, tmp_path):
        folder = TokenDirectory(tmp_path)
        create_tokens("task", 50, directory=tmp_path, out=tmp_path / "out.txt")
        hashes = [token_hash(each.encode()) for each in (tmp_path / "out.txt").read_text().split()]
        assert not any(folder.find("task", token_id(each)) for each in hashes)
        folder.load_new("task", lambda _: None)
        assert [folder.find("task", token_id(each)) for each in hashes] == hashes
        assert not any(folder.find("task", each[:16]) for each in hashes)
        assert folder.find("other", token_id(hashes[0])) is None


def test_the_rate_limit():
    now = 0.0
    rate = RateLimit(2.0, 3, lambda: now)
    assert [rate.take() for _ in range(5)] == [True] * 3 + [False] * 2
    now = 0.5
    assert [rate.take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [rate.take() for _ in range(5)] == [True] * 3 + [False] * 2
    assert rate.retry_after == 1
    assert RateLimit(0.1, 1).retry_after == 10
    unlimited = RateLimit(0.0, 1)
    for each in (unlimited, unlimited.tenth()):
        assert all(each.take() for _ in range(100))
    tenth = RateLimit(20.0, 35, lambda: now).tenth()
    assert [tenth.take() for _ in range(5)] == [True] * 4 + [False]
    now = 101.0
    assert [tenth.take() for _ in range(3)] == [True, True, False]


def test_the_shuffler_needs_no_analyzer_to_be_imported():
    code = (
        "import sys, shuffledp.collection.shuffler.app, shuffledp.cli.serve\n"
        "print([each for each in sys.modules if 'opening' in each or 'collection.analyzer' in each])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
