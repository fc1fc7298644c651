"""Two shufflers on one PostgreSQL database: together they are one."""

import importlib.util
import threading
from collections import Counter
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("store_fixtures", Path(__file__).parent / "store" / "conftest.py")
_store_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_store_fixtures)
postgres_server, postgres_location = _store_fixtures.postgres_server, _store_fixtures.postgres_location


@pytest.fixture
def pair(place, start, postgres_location):
    """Two processes, each with a work folder of its own."""
    secret = place.folder / "dsn"
    secret.touch(mode=0o600)
    secret.write_text(postgres_location + "\n")

    def run(**changes):
        both = []
        for name in ("work-1", "work-2"):
            (place.folder / name).mkdir(exist_ok=True)
            settings = {"store": "postgres", "store_folder": None, "store_dsn_file": secret, **changes}
            both.append(start(work=place.folder / name, **settings))
        return both

    return run


def test_a_report_is_accepted_once_across_both(place, pair, until):
    form = place.task(users=5, maximum=200)
    both = pair()
    reports = [place.report(form) for _ in range(200)]
    answers: dict[bytes, list[int]] = {each: [] for each in reports}

    def send(process, bodies) -> None:
        for body in bodies:
            answers[body].append(process.post(form, body))

    threads = [threading.Thread(target=send, args=(process, reports)) for process in both]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # each report was new to one of them; the other may have come when the round was full and closed
    assert all(statuses.count(201) == 1 for statuses in answers.values())
    assert {status for statuses in answers.values() for status in statuses} <= {200, 201, 410}
    name = form.task_id.hex()
    until(lambda: any(process.event("delivered", task=name) for process in both))
    assert Counter(place.analyzer.messages(name)) == Counter(place.messages_of(form, reports))
    assert [process.stop() for process in both] == [0, 0]
    delivered = [process for process in both if process.event("delivered", task=name)]
    shuffled = [process for process in both if process.event("shuffled", task=name)]
    assert len(delivered) == len(shuffled) == 1
    left = {each.name for name in ("work-1", "work-2") for each in (place.folder / name).iterdir()}
    assert left == {".clock", ".lock", ".received", ".traps"}


def test_one_is_killed_with_the_batch_and_delivers_it_later(place, pair, start, until):
    form = place.task(users=5, maximum=50)
    both = pair()
    place.analyzer.refuse = {"PUT": 503}
    reports = [place.report(form) for _ in range(50)]
    assert {both[place_ % 2].post(form, body) for place_, body in enumerate(reports)} == {201}
    name = form.task_id.hex()
    until(lambda: any(process.event("shuffled", task=name) for process in both))
    (owner,) = [process for process in both if process.event("shuffled", task=name)]
    owner.kill()
    place.analyzer.refuse = {}
    other = both[1 - both.index(owner)]
    until(lambda: other.event("round-fails", task=name))  # it says that it does not have the batch
    assert name not in place.analyzer.manifests
    assert other.stop() == 0
    again = pair()
    until(lambda: any(process.event("delivered", task=name) for process in again))
    assert Counter(place.analyzer.messages(name)) == Counter(place.messages_of(form, reports))
    assert [process.stop() for process in again] == [0, 0]
