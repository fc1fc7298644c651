"""The operator of a running shuffler lists its rounds, and closes, cancels or abandons one."""

import json
import os
import stat

import pytest

from shuffledp.cli import main
from shuffledp.collection.server.operator import SOCKET


@pytest.fixture
def rounds(place, capsys, monkeypatch):
    """``shuffledp rounds``: status, standard output, lines of standard error."""
    for name in list(os.environ):
        if name.startswith("SHUFFLEDP_"):
            monkeypatch.delenv(name)

    def run(*words):
        status = main._run(["rounds", *words, "--config", str(place.config())])
        told = capsys.readouterr()
        return status, told.out, told.err.splitlines()

    return run


@pytest.fixture
def round_of(rounds):
    """A round as the operator sees it."""

    def run(form, *options):
        status, out, lines = rounds("list", "--json", *options)
        assert (status, lines) == (0, [])
        (found,) = [each for each in json.loads(out)["rounds"] if each["task"] == form.task_id.hex()]
        return found

    return run


def send(here, place, form, count):
    for _ in range(count):
        assert here.post(form, place.report(form)).status_code == 201


def test_what_is_listed(place, serve, rounds, round_of, documented_rounds, keys_of):
    form = place.task(users=5, maximum=100, name="commuting")
    here = serve()
    send(here, place, form, 3)
    document = json.loads(rounds("list", "--json")[1])
    assert (document["role"], document["ready"], document["key"]) == ("shuffler", True, place.key.public.id)
    assert keys_of(document) == documented_rounds("shuffler")
    assert document["store"]["kind"] == "sqlite"
    assert document["store"]["free_bytes"] > 0
    told = round_of(form, "--exact")
    assert told["reports"] == 3
    assert told["closes"].endswith("+00:00")
    del told["opens"], told["closes"]
    assert told.pop("predicted_error")["users"] == 5, "a release needs the minimum"
    assert told == {
        "task": form.task_id.hex(), "name": "commuting", "state": "collecting", "minimum_users": 5,
        "maximum_users": 100, "reports": 3, "reached_minimum": False, "record_size": form.sealed_size,
        "messages_per_report": form.messages, "carriers": None, "failures": 0, "error": None, "batch": None,
        "below_minimum": False, "projected_reports": 3, "hop": 0,
    }  # fmt: skip
    assert round_of(form)["reports"] == 0, "below the minimum a number tells whose report came just now"
    send(here, place, form, 3)
    told = round_of(form)
    assert (told["reports"], told["reached_minimum"]) == (6, True)
    shown = " ".join(rounds("list")[1].split())
    assert "The shuffler is ready; 1 round." in shown
    assert f"{form.task_id.hex()[:16]} collecting commuting 6 reports of 5 needed; closes 20" in shown
    path = place.folder / "work" / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert here.get("/operator/v1/overview").status_code == 404, "it is not on the port"


def test_a_round_is_closed_before_its_time(place, serve, rounds, round_of, analyzer, until):
    form = place.task(users=5, maximum=100)
    here = serve()
    send(here, place, form, 4)
    one = form.task_id.hex()[:12]
    status, out, (line,) = rounds("close", one)
    assert (status, out) == (1, "")
    assert "the guarantee requires 5" in line
    send(here, place, form, 1)
    status, out, lines = rounds("close", one, "--json")
    assert (status, lines) == (0, [])
    assert json.loads(out) == {"task": form.task_id.hex(), "state": "closed", "reports": 5}
    until(lambda: analyzer.has(form.task_id.hex()))
    until(lambda: round_of(form)["state"] == "delivered")
    status, _, (line,) = rounds("close", one)
    assert status == 1
    assert "only a collecting round can be closed" in line


def test_a_round_is_cancelled(place, serve, rounds, round_of, analyzer, until):
    form = place.task(users=5, maximum=100)
    here = serve()
    send(here, place, form, 5)
    one = form.task_id.hex()
    status, _, (line,) = rounds("cancel", one)
    assert status == 2
    assert line == "error: rounds cancel permanently destroys the data of the round; add --yes to confirm."
    assert round_of(form)["state"] == "collecting"
    status, out, lines = rounds("cancel", one, "--yes")
    assert (status, lines) == (0, [])
    assert "is cancelled." in out
    assert round_of(form)["state"] == "cancelled"
    assert here.post(form, place.report(form)).status_code != 201
    until(lambda: not place.files())
    assert analyzer.manifests == {}


def test_a_batch_that_the_analyzer_refuses_is_given_up_and_its_alarm_ends(
    place, serve, rounds, round_of, analyzer, until
):
    analyzer.refuse["PUT"] = 403
    form = place.task(users=5, maximum=5)
    here = serve()
    send(here, place, form, 5)
    until(lambda: "refused_batches 1.0" in here.get("/metrics").text)
    told = round_of(form)
    assert told["state"] == "shuffled"
    assert told["batch"] == "refused: The analyzer answered 403 made-up."
    assert told["failures"] > 0
    shown = " ".join(rounds("list")[1].split())
    assert "The analyzer answered 403 made-up." in shown
    status, out, lines = rounds("abandon", form.task_id.hex()[:8], "--yes", "--json")
    assert (status, lines) == (0, [])
    assert json.loads(out) == {"task": form.task_id.hex(), "state": "abandoned"}
    until(lambda: "refused_batches 0.0" in here.get("/metrics").text)
    until(lambda: not place.files())
    told = round_of(form)
    assert (told["state"], told["batch"], told["error"]) == ("abandoned", None, None)


def test_what_is_in_order_is_not_abandoned(place, serve, rounds):
    form = place.task()
    serve()
    status, out, (line,) = rounds("abandon", form.task_id.hex(), "--yes")
    assert (status, out) == (1, "")
    assert "and does not fail; cancel it instead" in line
