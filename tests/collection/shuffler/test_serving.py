"""``shuffledp serve``: settings, --check, tokens; and the folder of tasks."""

import json
import os
import subprocess
import sys

import pytest

from shuffledp.cli import main
from shuffledp.cli.serve import serve_app
from shuffledp.collection.keys import SigningKey
from shuffledp.collection.shuffler.enrolment import token_hash
from shuffledp.collection.shuffler.rate import RateLimit
from shuffledp.errors import DataError, ParameterError


@pytest.fixture
def shuffledp(capfd, monkeypatch):
    if not any(group.name == "serve" for group in main.app.registered_groups):
        main.app.add_typer(serve_app, name="serve")
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
    assert not (place.folder / "store").exists()


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [
        ({"colour": "red"}, 2, "'colour'"),
        ({"authors": ()}, 2, "authors"),
        ({"analyzer": "analyzer.example"}, 2, "https://analyzer.example"),
        ({"analyzer": "https://user:secret@analyzer.example"}, 2, "without a user name"),
        ({"store": "oracle"}, 2, "'oracle'"),
        ({"store": "postgres"}, 2, "store_dsn_file"),
        ({"permutation_megabytes": 1}, 2, "permutation_megabytes"),
        ({"reports_per_second": -1.0}, 2, "reports_per_second"),
        ({"burst": 0}, 2, "burst"),
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
    with pytest.raises(DataError, match="Another process works in"):
        place.shuffler(store_folder=place.folder / "other")
    assert not (place.folder / "other").exists()
    shuffler.close()
    place.shuffler().close()


class TestTasks:
    def test_of_an_unknown_author(self, place):
        place.task(author=SigningKey.create())
        with pytest.raises(ParameterError, match="not signed by a key that is trusted"):
            place.shuffler()

    def test_for_another_shuffler(self, place):
        place.task(shuffler=SigningKey.create())
        with pytest.raises(ParameterError, match="is for the shuffler's key"):
            place.shuffler()

    def test_changed_after_it_was_signed(self, place):
        place.task(file="one.json")
        file = place.folder / "tasks" / "one.json"
        file.write_bytes(file.read_bytes().replace(b'"population":"tests"', b'"population":"tesTs"'))
        with pytest.raises(ParameterError, match="signature"):
            place.shuffler()

    def test_not_json(self, place):
        (place.folder / "tasks" / "one.json").write_text("{")
        with pytest.raises(ParameterError):
            place.shuffler()
        assert not (place.folder / "store").exists()

    def test_a_bad_one_that_comes_later_is_left_out(self, place, serve, until):
        good = place.task()
        here = serve()
        (place.folder / "tasks" / "bad.json").write_text("{")
        new = place.task()
        until(lambda: here.get(f"/v1/tasks/{new.task_id.hex()}").status_code == 200)
        assert here.get(f"/v1/tasks/{good.task_id.hex()}").status_code == 200
        assert len(here.shuffler.book) == 2


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
        assert len(set(made)) == 5
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

    def test_a_file_that_is_no_list_of_hashes(self, place):
        form = place.task()
        (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text("a token in clear\n")
        with pytest.raises(DataError, match="is not the SHA-256") as caught:
            place.shuffler(enrolment=place.folder / "enrolment")
        assert "in clear" not in str(caught.value)


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
    assert all(unlimited.take() for _ in range(100))


def test_the_shuffler_needs_no_analyzer_to_be_imported():
    code = (
        "import sys, shuffledp.collection.shuffler.app, shuffledp.cli.serve\n"
        "print([each for each in sys.modules if 'opening' in each or 'collection.analyzer' in each])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
