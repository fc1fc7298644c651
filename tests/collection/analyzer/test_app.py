"""The analyzer over HTTP: every answer, nothing repeated of what was sent, one release."""

import json
import logging
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.analyzer.estimating import estimate_round
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.wire.formats import digest
from shuffledp.collection.wire.keys import SigningKey

PROBLEM = "application/problem+json"


@pytest.fixture
def batch(collection):
    task = collection.task()
    return collection.batch(task, collection.sealed(task, np.arange(250) % 4))


@pytest.fixture
def client(serve, batch):
    return serve()


def path(batch, chunk=None):
    whole = f"/v1/batches/{batch.task.id.hex()}"
    return whole if chunk is None else f"{whole}/chunks/{chunk}"


def check_problem(answer, status, name):
    assert answer.status == status
    assert answer.headers["content-type"] == PROBLEM
    document = answer.json()
    assert document["type"] == f"urn:shuffledp:problem:{name}"
    assert document["status"] == status
    assert document["title"]


def test_from_the_manifest_to_the_page(client, batch):
    task = batch.task.id.hex()
    for form in ("", ".csv", "/page"):
        check_problem(client.get(f"/v1/releases/{task}{form}"), 404, "no-release")
    check_problem(client.get(path(batch)), 404, "no-batch")
    answer = client.put(path(batch), batch.signed)
    assert (answer.status, answer.json()["state"]) == (201, "receiving")
    assert client.get(path(batch)).json() == {
        "state": "receiving",
        "manifest": digest(batch.signed).hex(),
        "missing": list(range(len(batch.chunks))),
    }
    for place, chunk in enumerate(batch.chunks):
        assert client.put(path(batch), batch.signed).status == 200
        assert client.put(path(batch, place), chunk).status == 201
        assert client.put(path(batch, place), chunk).status == 200
    assert client.wait(batch) == {"state": "released", "manifest": digest(batch.signed).hex(), "missing": []}
    released = client.get(f"/v1/releases/{task}")
    assert released.headers["content-type"] == "application/json"
    document = released.json()
    assert document["task"] == task
    assert document["reports"] == document["users"] == 250
    assert document["rejected"] == {}
    assert document["budget"]["releases"] == 1
    assert sum(document["counts"]) == pytest.approx(250)
    table = client.get(f"/v1/releases/{task}.csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert len(table.text.splitlines()) == 5
    page = client.get(f"/v1/releases/{task}/page")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.put(path(batch), batch.signed).json()["state"] == "released"
    assert client.put(path(batch, 0), batch.chunks[0]).json() == {"state": "released"}
    assert client.get(f"/v1/releases/{task}").content == released.content


def test_manifests_that_are_not_taken(client, collection, batch):
    task = batch.task
    other = collection.batch(task, collection.sealed(task, np.zeros(250, dtype=int)))
    few = collection.batch(task, collection.sealed(task, np.zeros(10, dtype=int)))
    forged = batch.manifest.signed(SigningKey.create())
    check_problem(client.put(f"/v1/batches/{'0' * 64}", batch.signed), 403, "unknown-task")
    for wrong in ("x", "A" * 64, "0" * 63, "%00" * 64, "%C3%A9" * 64):
        check_problem(client.put(f"/v1/batches/{wrong}", batch.signed), 403, "unknown-task")
        check_problem(client.get(f"/v1/batches/{wrong}"), 404, "no-batch")
    check_problem(client.put(path(batch), forged), 403, "bad-signature")
    for content in (b"", b"{}", b"[" * 10_000, batch.signed[:-1], few.signed, b"\xff" * 100):
        answer = client.put(path(batch), content)
        check_problem(answer, 422, "malformed")
        assert "detail" not in answer.json()
    check_problem(client.put(path(batch), b"x" * (1 << 20)), 413, "too-long")
    check_problem(client.put(path(batch), iter([b"x" * (1 << 18)] * 4)), 413, "too-long")
    assert client.get(path(batch)).status == 404, "nothing was begun"
    assert client.put(path(batch), batch.signed).status == 201
    check_problem(client.put(path(batch), other.signed), 409, "other-manifest")
    check_problem(client.put(path(batch), forged), 403, "bad-signature")
    client.deliver(batch)
    client.wait(batch)
    gone = client.put(path(batch), other.signed)
    check_problem(gone, 410, "finished")
    assert "SHA-256" in gone.json()["detail"]


def test_chunks_that_are_not_taken(client, batch):
    check_problem(client.put(path(batch, 0), batch.chunks[0]), 404, "no-batch")
    client.put(path(batch), batch.signed)
    for place in ("x", "-1", "01", "1.0", "99999", "9" * 30, "%C2%B2"):
        check_problem(client.put(path(batch, place), batch.chunks[0]), 404, "no-batch")
    check_problem(client.put(path(batch, 0), batch.chunks[1]), 409, "wrong-chunk")
    check_problem(client.put(path(batch, 0), b""), 409, "wrong-chunk")
    check_problem(client.put(path(batch, 0), batch.chunks[0] + b"x"), 413, "too-long")
    check_problem(client.put(path(batch, 0), iter([batch.chunks[0], b"x"])), 413, "too-long")
    assert client.get(path(batch)).json()["missing"] == list(range(len(batch.chunks)))


def test_other_paths_and_methods(client, batch):
    check_problem(client.get("/"), 404, "not-found")
    check_problem(client.get("/v1/releases/../../etc/passwd"), 404, "not-found")
    check_problem(client.get("/v1/releases/%2e%2e%2f%2e%2e%2fledger.db"), 404, "not-found")
    check_problem(client.request("POST", path(batch), b""), 405, "method-not-allowed")
    check_problem(client.request("DELETE", f"/v1/releases/{batch.task.id.hex()}"), 405, "method-not-allowed")


def test_a_batch_that_cannot_be_estimated_is_refused_and_says_why_to_the_operator_alone(collection, serve):
    task = collection.task()
    sealed = [b"\x07" * task.sealed_size] * (250 * task.messages_per_report)
    batch = collection.batch(task, sealed)
    client = serve()
    analyzer = client.analyzer
    client.deliver(batch)
    assert client.wait(batch, "refused") == {"state": "refused", "manifest": digest(batch.signed).hex(), "missing": []}
    check_problem(client.get(f"/v1/releases/{task.id.hex()}"), 404, "no-release")
    assert client.put(path(batch), batch.signed).json()["state"] == "refused"
    assert "the guarantee requires 200" in analyzer.batches.get(task.id).reason
    assert analyzer.ledger.entry(task.id) is None, "nothing was spent"


def test_a_release_beyond_the_budget_is_refused(collection, serve):
    collection.budgets(people=(1.05, 1e-6))
    first, second = (collection.task() for _ in range(2))
    client = serve()
    analyzer = client.analyzer
    for task, state in ((first, "released"), (second, "refused")):
        batch = collection.batch(task, collection.sealed(task, np.arange(200) % 4))
        client.deliver(batch)
        client.wait(batch, state)
    assert "budget" in analyzer.batches.get(second.id).reason
    assert client.get(f"/v1/releases/{second.id.hex()}").status == 404


def test_a_task_that_comes_later_is_noticed(client, collection):
    task = collection.task()
    batch = collection.batch(task, collection.sealed(task, np.arange(200) % 4))
    (collection.folder / "tasks" / "broken.json").write_text("{}")
    deadline = time.monotonic() + 60
    while client.put(path(batch), batch.signed).status != 201:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_health_and_metrics_tell_nothing_of_anybody(client, batch):
    assert client.get("/healthz").json() == {"state": "alive"}
    assert client.get("/readyz").json() == {"state": "ready"}
    client.deliver(batch)
    client.wait(batch)
    deadline = time.monotonic() + 60
    while 'shuffledp_analyzer_batches{state="released"} 1.0' not in (text := client.get("/metrics").text):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert 'shuffledp_analyzer_manifests_total{outcome="201"} 1.0' in text
    assert f'shuffledp_analyzer_chunks_total{{outcome="201"}} {float(len(batch.chunks))}' in text
    assert 'shuffledp_analyzer_messages_total{result="counted"}' in text
    assert batch.task.id.hex() not in text


def test_too_much_at_once_and_stopping_are_said_with_when_to_come_back(serve, batch):
    client = serve(arriving_megabytes=1)
    analyzer = client.analyzer
    client.put(path(batch), batch.signed)
    endpoints = analyzer._when_stopping[0].__self__
    endpoints.memory.bytes = 1 << 20
    answer = client.put(path(batch, 0), batch.chunks[0])
    check_problem(answer, 503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    endpoints.memory.bytes = 0
    assert client.put(path(batch, 0), batch.chunks[0]).status == 201
    assert endpoints.memory.bytes == 0
    analyzer.stop()
    for answer in (client.put(path(batch), b""), client.put(path(batch, 1), b"")):
        check_problem(answer, 503, "shutting-down")
    check_problem(client.get("/readyz"), 503, "not-ready")


def test_a_disk_that_is_full_is_no_fault_of_the_sender(client, batch, monkeypatch):
    client.put(path(batch), batch.signed)
    from shuffledp.collection.server import batches as batches_module

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(batches_module, "write_durably", full)
    check_problem(client.put(path(batch, 0), batch.chunks[0]), 503, "not-durable")
    monkeypatch.undo()
    assert client.put(path(batch, 0), batch.chunks[0]).status == 201


def test_a_release_that_fails_is_tried_again(client, batch, monkeypatch):
    from shuffledp.collection.analyzer import publishing

    failures = iter([OSError(28, "No space left on device"), RuntimeError("whatever")])
    true = publishing.write_durably

    def write(*arguments, **options):
        if (failure := next(failures, None)) is not None:
            raise failure
        true(*arguments, **options)

    monkeypatch.setattr(publishing, "write_durably", write)
    client.deliver(batch)
    client.wait(batch)
    document = client.get(f"/v1/releases/{batch.task.id.hex()}").json()
    assert document["budget"]["releases"] == 1
    assert "shuffledp_analyzer_release_failures_total 2.0" in client.get("/metrics").text


def test_a_release_that_fails_for_good_says_why_and_spends_nothing(collection, batch, deliver, monkeypatch):
    """An estimate that is no number can never be written down; it was tried for ever, with the budget spent."""
    from shuffledp.collection.analyzer import releasing

    def endless(*arguments, **options):
        result = estimate_round(*arguments, **options)
        return replace(result, estimate=replace(result.estimate, counts=result.estimate.counts * np.inf))

    monkeypatch.setattr(releasing, "estimate_round", endless)
    analyzer = collection.open()
    deliver(analyzer, batch)
    assert analyzer.releaser.release(batch.task.id) is BatchState.REFUSED
    assert "too large for a floating-point number" in analyzer.batches.get(batch.task.id).reason
    assert analyzer.ledger.entry(batch.task.id) is None
    analyzer.close()


def test_a_fault_is_told_in_words_and_without_data(client, batch, monkeypatch, caplog):
    from shuffledp.collection.analyzer import publishing

    failures = iter([ValueError("something of the data")])
    true = publishing.write_durably

    def write(*arguments, **options):
        if (failure := next(failures, None)) is not None:
            raise failure
        true(*arguments, **options)

    monkeypatch.setattr(publishing, "write_durably", write)
    with caplog.at_level(logging.ERROR, "shuffledp.collection"):
        client.deliver(batch)
        client.wait(batch)
    (told,) = [record.fields["reason"] for record in caplog.records if record.msg == "release-fails"]
    assert re.fullmatch(r"Internal error: ValueError at test_app\.py, line \d+\.", told)


def test_forms_of_a_release_as_to_their_length_and_by_head(client, batch):
    client.deliver(batch)
    client.wait(batch)
    for form in ("", ".csv", "/page"):
        address = f"/v1/releases/{batch.task.id.hex()}{form}"
        whole, head = client.get(address), client.request("HEAD", address)
        assert (whole.status, head.status) == (200, 200)
        assert head.content == b""
        assert int(whole.headers["content-length"]) == len(whole.content)
        assert {name: value for name, value in head.headers.items() if name != "date"} == {
            name: value for name, value in whole.headers.items() if name != "date"
        }


def test_readers_of_a_large_release_that_never_read_take_no_memory(client, batch):
    client.deliver(batch)
    client.wait(batch)
    file = client.analyzer.releases.file(batch.task.id, "json")
    os.truncate(file, 100 << 20)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, readers = resident(), []
    for _ in range(10):
        readers.append(socket.create_connection(("127.0.0.1", client.port), timeout=30))
        readers[-1].sendall(f"GET /v1/releases/{batch.task.id.hex()} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    grown, deadline = 0, time.monotonic() + 2
    while time.monotonic() < deadline:
        grown = max(grown, resident() - before)
        time.sleep(0.01)
    for reader in readers:
        assert reader.recv(12) == b"HTTP/1.1 200"
        reader.close()
    assert grown < 50 << 20


def test_the_published_json_has_the_keys_of_run_and_more(client, batch):
    client.deliver(batch)
    client.wait(batch)
    document = json.loads(client.get(f"/v1/releases/{batch.task.id.hex()}").content)
    run = set(batch.task.protocol.run(["bus"] * 200).to_json())
    more = {"task", "name", "description", "question", "population", "opens", "closes", "manifest", "reports"}
    assert set(document) == run | more | {"messages", "rejected", "budget"}


def test_the_shufflers_own_delivery(client, collection, batch):
    from shuffledp.collection.shuffler.delivery import Delivery
    from shuffledp.collection.shuffler.shuffling import ShuffledBatch

    file = collection.folder / "batch"
    file.write_bytes(b"".join(batch.chunks))
    delivery = Delivery(f"http://127.0.0.1:{client.port}")
    assert delivery.deliver(ShuffledBatch(batch.manifest, batch.signed, file)) in ("complete", "released")
    client.wait(batch)
    assert delivery.deliver(ShuffledBatch(batch.manifest, batch.signed, file)) == "released"


def test_not_ready_while_nothing_can_be_written(client, monkeypatch):
    from shuffledp.collection.server import batches as batches_module

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    assert client.get("/readyz").status == 200
    monkeypatch.setattr(batches_module, "write_durably", full)
    check_problem(client.get("/readyz"), 503, "not-ready")


class TestOrigins:
    """Web pages may read releases, and nothing else; the types of bodies are those that a page must ask for."""

    PAGE = "https://survey.example"

    def test_releases_are_for_every_page(self, serve, batch):
        client = serve()
        client.deliver(batch)
        client.wait(batch)
        for form in ("", ".csv", "/page"):
            address = f"/v1/releases/{batch.task.id.hex()}{form}"
            for origin in ({}, {"Origin": self.PAGE}):
                answer = client.request("GET", address, headers=origin)
                assert answer.status == 200
                assert answer.headers["access-control-allow-origin"] == "*"
        assert client.request("GET", f"/v1/releases/{'0' * 64}").headers["access-control-allow-origin"] == "*"
        answer = client.request("OPTIONS", address, headers={"Origin": self.PAGE})
        check_problem(answer, 403, "origin-not-allowed")

    def test_nothing_else_is(self, serve, batch):
        client = serve()
        page = {"Origin": self.PAGE}
        for method, address, content in (
            ("PUT", path(batch), batch.signed),
            ("PUT", path(batch, 0), batch.chunks[0]),
            ("GET", path(batch), None),
            ("GET", "/metrics", None),
        ):
            answer = client.request(method, address, content, page)
            check_problem(answer, 403, "origin-not-allowed")
            assert "access-control-allow-origin" not in answer.headers
        check_problem(client.get(path(batch)), 404, "no-batch")

    def test_other_types_are_refused(self, serve, batch):
        client = serve()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/octet-stream"):
            check_problem(client.request("PUT", path(batch), batch.signed, {"Content-Type": kind}), 415, "wrong-type")
        assert client.put(path(batch), batch.signed).status == 201
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/json"):
            answer = client.request("PUT", path(batch, 0), batch.chunks[0], {"Content-Type": kind})
            check_problem(answer, 415, "wrong-type")
        assert client.put(path(batch, 0), batch.chunks[0]).status == 201
