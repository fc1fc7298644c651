"""A release that takes long keeps nothing else from happening: tasks are discovered and batches are taken in."""

import threading
import time

import numpy as np
import pytest

from shuffledp.collection.analyzer import publishing

DEADLINE = 60.0


@pytest.fixture
def slow(monkeypatch):
    """Pages of releases are not finished until they may be: the tasks under way, in order, and what lets them go on."""
    begun: list[bytes] = []
    go_on = threading.Event()

    def page(result, *_):
        begun.append(result.task.id)
        assert go_on.wait(DEADLINE)
        return b"a page"

    monkeypatch.setattr(publishing, "release_page", page)
    yield begun, go_on
    go_on.set()


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def new_batch(collection):
    task = collection.task("histogram/k-rr")
    return collection.batch(task, collection.sealed(task, np.arange(220) % 4), chunk_records=60)


def test_tasks_and_batches_arrive_during_a_slow_release(collection, serve, slow):
    begun, go_on = slow
    first = new_batch(collection)
    here = serve()
    here.deliver(first)
    wait_until(lambda: begun == [first.task.id])
    later = [new_batch(collection) for _ in range(2)]  # of tasks that are not known until now
    for batch in later:
        path = f"/v1/batches/{batch.task.id.hex()}"
        wait_until(lambda path=path, batch=batch: here.put(path, batch.signed).status == 201)
        here.deliver(batch)
        assert here.get(path).json()["state"] == "complete"
    wait_until(lambda: 'batches{state="complete"} 3.0' in here.get("/metrics").text)
    assert here.get("/readyz").status == 200
    assert begun == [first.task.id], "the first release was not over yet, and the others wait for their turn"
    go_on.set()
    for batch in (first, *later):
        here.wait(batch)
    assert sorted(begun) == sorted(batch.task.id for batch in (first, *later)), "each was made once"
    entries = [here.analyzer.ledger.entry(task_id) for task_id in begun]
    assert [entry.releases for entry in entries] == [1, 2, 3], "one after the other"
