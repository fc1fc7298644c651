"""The published vectors of augmented protocols: signed tasks, and a batch with more messages than reports."""

import json
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.device import authentic_task
from shuffledp.collection.task import task as task_module
from shuffledp.collection.wire import formats
from shuffledp.collection.wire.formats import Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import SealingKey, VerifyingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.errors import ParameterError

FOLDER = Path(__file__).parents[2] / "vectors"
FILE = json.loads((FOLDER / "v2" / "augmented.json").read_bytes())
AUTHOR = VerifyingKey(bytes.fromhex(FILE["author"]["public"]))
SHUFFLER = VerifyingKey(bytes.fromhex(FILE["batch"]["shuffler"]["public"]))
ANALYZER = SealingKey(bytes.fromhex(json.loads((FOLDER / "v1" / "sealing.json").read_bytes())["analyzer"]["private"]))
GOOD = [pytest.param(case, id=case["name"]) for case in FILE["good"]]
BAD = [pytest.param(case, id=case["name"].replace(" ", "-")) for case in FILE["bad"]]


def reason(case):
    try:
        _ = authentic_task(case["content"].encode(), AUTHOR).guarantee
    except ParameterError as error:
        return error.values.get("reason")
    return None


@pytest.mark.parametrize("case", GOOD)
def test_good_tasks(case):
    task = authentic_task(case["content"].encode(), AUTHOR)
    assert (task.id.hex(), ReportFormat.of(task).size) == (case["id"], case["report_size"])
    assert task.guarantee.trust == "augmented"
    assert task.signed_content.startswith(b"shuffledp task v2\n{")


@pytest.mark.parametrize("case", BAD)
def test_bad_tasks(case):
    assert reason(case) == case["reason"]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (task_module, "MAX_DUMMIES_PER_ROUND", 10**12),
        (task_module.Task, "_check_augmented", lambda self: None),
    ],
)
def test_a_missing_check_is_seen(monkeypatch, module, name, value):
    monkeypatch.setattr(module, name, value)
    assert [case for case in FILE["bad"] if reason(case) != case["reason"]]


def task_of_the_batch():
    content = next(case["content"] for case in FILE["good"] if case["id"] == FILE["batch"]["task"])
    return authentic_task(content.encode(), AUTHOR)


def test_the_batch():
    task, batch = task_of_the_batch(), FILE["batch"]
    manifest = Manifest.verified(batch["manifest"].encode(), SHUFFLER, 2)
    manifest.check_task(task)
    assert manifest.messages > manifest.reports
    (chunk,) = map(bytes.fromhex, batch["chunks"])
    assert digest(chunk) == manifest.chunks[0]
    sealed = [chunk[start : start + task.sealed_size] for start in range(0, len(chunk), task.sealed_size)]
    opened = Opener(ANALYZER, task.id, task.message_size, 2).open(sealed)
    packed = np.frombuffer(b"".join(opened.messages), np.uint8).reshape(len(sealed), -1)
    counts = np.bincount(task.protocol.message_format.unpack(packed), minlength=3).tolist()
    assert (counts, opened.dummies, dict(opened.rejected)) == (batch["counts"], 0, {})


def test_batches_that_do_not_fit(monkeypatch):
    (case,) = FILE["batch"]["bad"]
    manifest = Manifest.verified(case["manifest"].encode(), SHUFFLER, 2)
    with pytest.raises(ParameterError, match="size or number"):
        manifest.check_task(task_of_the_batch())
    monkeypatch.setattr(formats.Manifest, "_has_messages_of", lambda self, task, hop: True)
    manifest.check_task(task_of_the_batch())  # only that check finds it
