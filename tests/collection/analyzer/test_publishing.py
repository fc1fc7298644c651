"""What is published: the same bytes for the same round, nothing that a browser would run, for every question."""

import csv
import io
import json
import re

import numpy as np
import pytest

from shuffledp.collection.analyzer.estimating import estimate_round
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.collection.analyzer.publishing import Releases, release_document
from shuffledp.collection.analyzer.settings import Budget
from shuffledp.collection.analyzer.tallying import Counted
from shuffledp.domain import Interval
from shuffledp.messages import Messages

ENTRY = Entry(True, Budget(3.0, 1e-6), 2, 1.4142)
NAMES = ("histogram/k-rr", "count/balcer-cheu", "sum/duchi")


def result_of(collection, protocol, /, users=500, **changes):
    settings = {"domain": Interval(-5.0, 5.0)} if protocol.startswith("sum/") else {}
    task = collection.task(protocol, publish=False, settings=settings, **changes)
    values = np.full(users, 0.25) if protocol.startswith("sum/") else np.arange(users) % 2
    messages = task.protocol.randomize_all(values)
    tally = task.protocol.tally(Messages(messages.values, 0))
    return estimate_round(task, Counted(tally, len(messages.values), 0), users)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_round_gives_the_same_bytes(shared_collection, tmp_path, name):
    result = result_of(shared_collection, name)
    contents = []
    for folder in ("one", "two"):
        releases = Releases(tmp_path / folder)
        assert releases.read(result.task.id, "json") is None
        releases.publish(result, ENTRY, 0.95)
        releases.publish(result, ENTRY, 0.95)
        contents.append({kind: releases.read(result.task.id, kind) for kind in ("json", "csv", "html")})
    assert contents[0] == contents[1]
    document = json.loads(contents[0]["json"])
    assert document == json.loads(json.dumps(release_document(result, ENTRY, 0.95)))
    assert document["budget"] == {"epsilon": 3.0, "delta": 1e-6, "spent_epsilon": 1.4142, "releases": 2}
    rows = list(csv.DictReader(io.StringIO(contents[0]["csv"].decode())))
    assert len(rows) == (4 if name.startswith("histogram") else 1)
    page = contents[0]["html"].decode()
    assert result.estimate.guarantee.sentence().split(",")[0] in page
    assert "1.414 is spent of 3" in page
    assert "No message was rejected." in page


def test_a_page_needs_nothing_and_runs_nothing(shared_collection, tmp_path):
    evil = "</title><script>alert(1)</script>"
    result = result_of(
        shared_collection,
        "histogram/k-rr",
        name=evil,
        description='"><img src=x onerror=alert(1)>',
        categories=["<script>alert(2)</script>", "javascript:alert(3)", "&amp;", "</svg>"],
    )
    Releases(tmp_path / "r").publish(result, ENTRY, 0.95)
    page = Releases(tmp_path / "r").read(result.task.id, "html").decode()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert not re.search(r'(src|href|srcset)="(?!data:image/svg)', page)
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "prefers-color-scheme: dark" in page


def test_many_categories_are_cut_on_the_page_and_whole_elsewhere(shared_collection, tmp_path):
    result = result_of(shared_collection, "histogram/k-rr", categories=[f"c{i}" for i in range(300)])
    releases = Releases(tmp_path / "r")
    releases.publish(result, ENTRY, 0.9)
    assert "and 100 more" in releases.read(result.task.id, "html").decode()
    assert len(json.loads(releases.read(result.task.id, "json"))["counts"]) == 300


def test_half_written_files_of_a_killed_process_are_removed(shared_collection, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".abc.json.xyz").write_bytes(b"{")
    Releases(tmp_path / "r")
    assert list((tmp_path / "r").iterdir()) == []
