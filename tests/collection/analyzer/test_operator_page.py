"""The operator's page of an analyzer: budgets and releases, progress, and no result before its release."""

import http.client
import json
import re

import numpy as np
import pytest

from shuffledp.collection.analyzer import publishing


@pytest.fixture
def page(serve, caplog, monkeypatch):
    """An analyzer with a page: the server, and what the page answers."""
    monkeypatch.setattr(publishing, "release_page", lambda *_: b"a page")
    caplog.set_level("INFO", "shuffledp.collection")

    def run():
        served = serve(operator_port=0, port=8081)
        (port,) = [record.fields["port"] for record in caplog.records if record.getMessage() == "operator-page"]

        def get(path="/operator"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path)
            body = connection.getresponse().read().decode()
            connection.close()
            return body

        return served, get

    return run


def test_budgets_progress_and_releases(collection, page):
    collection.budgets(people=(1.5, 1e-5))
    tasks = [collection.task("histogram/k-rr", name=name) for name in ("first", "second <b>")]
    first, second = (
        collection.batch(task, collection.sealed(task, np.arange(220) % 4), chunk_records=60) for task in tasks
    )
    served, get = page()
    path = f"/v1/batches/{second.task.id.hex()}"
    served.put(path, second.signed)
    served.put(f"{path}/chunks/0", second.chunks[0])
    served.deliver(first)
    served.wait(first, "released")
    document = json.loads(get("/operator/v1/overview"))
    rounds = {entry["name"]: entry for entry in document["rounds"]}
    done, waiting = rounds["first"], rounds["second <b>"]
    metrics = served.get("/metrics").text
    counted = sum(float(number) for number in re.findall(r"^shuffledp_analyzer_messages_total\S* (\S+)", metrics, re.M))
    assert done["opened"] == counted == 220
    assert (done["rejected"], done["predicted_error"]) == ({}, None)
    assert (waiting["reports"], waiting["messages"], waiting["opened"], waiting["missing"]) == (220, 220, None, 3)
    assert waiting["predicted_error"] == {"users": 220} | second.task.predicted_error(220).to_json()
    (population,) = document["populations"]
    assert (population["next"], population["fits"]) == (second.task.id.hex(), False)
    assert [alert["level"] for alert in document["alerts"]] == ["act"]
    shown = get()
    assert "1 of 4 chunks have arrived." in shown
    assert "second &lt;b&gt;" in shown
    assert f"http://127.0.0.1:8081/v1/releases/{first.task.id.hex()}/page" in shown
    assert "A release about 220 users would have a typical error of" in shown
    assert shown.index("will be refused") < shown.index('id="budgets"') < shown.index('id="rounds"')
    released = served.get(f"/v1/releases/{first.task.id.hex()}").json()
    numbers = {f"{count:.1f}" for count in released["counts"]}
    assert not any(number in shown for number in numbers), "results are where they are published"
