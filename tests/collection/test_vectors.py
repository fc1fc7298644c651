"""The published vectors: the files are what the tool makes, and this implementation agrees with every case."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.device import authentic_task
from shuffledp.collection.wire.formats import Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import SealingKey, SigningKey, VerifyingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.sealing import sealing_info
from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import MessageFormat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "vectors" / "v1"
TASKS, REPORTS, SEALING, BATCHES = (
    json.loads((FOLDER / f"{name}.json").read_bytes()) for name in ("task", "report", "sealing", "batch")
)
AUTHOR = VerifyingKey(bytes.fromhex(TASKS["author"]["public"]))
SHUFFLER = VerifyingKey(bytes.fromhex(BATCHES["shuffler"]["public"]))
ANALYZER = SealingKey(bytes.fromhex(SEALING["analyzer"]["private"]))

WORDS = {
    "not-canonical": "canonical form|no JSON|occurs twice|write it as a string",
    "bad-signature": "not a valid signature",
    "version": "has version",
    "malformed": r"\w",
    "size": "bytes, not",
    "magic": "SDPR",
    "task": "another task",
    "wrong-task": "another task",
    "wrong-size": "size or number",
    "too-few": "cannot be released",
}


def named(cases):
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def good_task(name: str):
    content = next(case["content"] for case in TASKS["good"] if case["name"] == name)
    return authentic_task(content.encode(), AUTHOR)


def test_the_files_are_what_the_tool_makes(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "make_vectors.py", tmp_path], check=True)
    made = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.glob("*/*")}
    published = FOLDER.parent
    assert {str(path.relative_to(published)) for path in published.glob("*/*")} == set(made)
    for name, content in made.items():
        assert (published / name).read_bytes() == content, f"run tools/make_vectors.py: {name}"


def test_the_keys():
    for case, key in ((TASKS["author"], AUTHOR), (BATCHES["shuffler"], SHUFFLER)):
        assert SigningKey(bytes.fromhex(case["private"])).public == key
        assert key.id == case["key_id"]
    assert ANALYZER.public.raw.hex() == SEALING["analyzer"]["public"]


@pytest.mark.parametrize("case", named(TASKS["good"]))
def test_good_tasks(case):
    task = authentic_task(case["content"].encode(), AUTHOR)
    form = ReportFormat.of(task)
    assert task.id.hex() == case["id"]
    assert (task.minimum_users, task.maximum_users) == (case["minimum_users"], case["maximum_users"])
    assert (form.messages, task.message_size) == (case["messages_per_report"], case["message_size"])
    assert (form.sealed_size, form.size) == (case["sealed_size"], case["report_size"])
    assert sealing_info(task.id).hex() == case["info"]
    assert task.analyzer == ANALYZER.public
    assert task.shuffler == SHUFFLER
    told, tolerance = case["recomputed"], float(TASKS["tolerance"])
    assert task.guarantee.delta_at(float(told["epsilon"])) == pytest.approx(float(told["delta"]), rel=tolerance)


@pytest.mark.parametrize("case", REPORTS["message_formats"])
def test_message_formats(case):
    form = MessageFormat(tuple(int(bound, 16) for bound in case["bounds"]), case["flags"])
    assert (form.bits, form.size) == (case["bits"], case["size"])
    for good in case["good"]:
        parts = [int(part, 16) for part in good["parts"]]
        values = np.array([parts], dtype=form.dtype)
        packed = form.pack(values[:, 0] if form.columns == 1 else values)
        assert packed.tobytes().hex() == good["packed"]
        assert form.unpack(packed).reshape(-1).tolist() == parts
    for bad in case["bad"]:
        with pytest.raises(DomainError):
            form.unpack(np.frombuffer(bytes.fromhex(bad["packed"]), dtype=np.uint8).reshape(1, -1))


@pytest.mark.parametrize("case", named(REPORTS["good"]))
def test_good_reports(case):
    task = good_task(REPORTS["task"])
    form = ReportFormat.of(task)
    assert (form.messages, form.sealed_size, form.size) == tuple(
        REPORTS[key] for key in ("messages", "sealed_size", "report_size")
    )
    sealed = [bytes.fromhex(each) for each in case["sealed"]]
    report = bytes.fromhex(case["report"])
    assert form.build(bytes.fromhex(case["report_id"]), sealed) == report
    assert form.report_id(report).hex() == case["report_id"]
    opener = Opener(ANALYZER, task.id, task.message_size)
    for each, expected in zip(sealed, case["opened"], strict=True):
        opened = opener.open([each])
        if "dummy" in expected:
            assert opened.dummies == 1
        else:
            packed = np.frombuffer(opened.messages[0], dtype=np.uint8).reshape(1, -1)
            assert [hex(part) for part in task.protocol.message_format.unpack(packed)] == expected["parts"]


@pytest.mark.parametrize("case", named(REPORTS["bad"]))
def test_bad_reports(case):
    form = ReportFormat.of(good_task(REPORTS["task"]))
    with pytest.raises(ParameterError, match=WORDS[case["reason"]]):
        form.report_id(bytes.fromhex(case["report"]))


OPENER = Opener(ANALYZER, bytes.fromhex(SEALING["task_id"]), SEALING["message_size"])


@pytest.mark.parametrize("case", named(SEALING["good"]))
def test_good_sealing(case):
    assert sealing_info(OPENER.task_id).hex() == SEALING["info"]
    sealed = bytes.fromhex(case["sealed"])
    assert len(sealed) == SEALING["sealed_size"]
    opened = OPENER.open([sealed])
    assert not opened.rejected
    if "dummy" in case["opened"]:
        assert (opened.messages, opened.dummies) == ([], 1)
    else:
        assert [each.hex() for each in opened.messages] == [case["opened"]["message"]]


@pytest.mark.parametrize("case", named(SEALING["bad"]))
def test_bad_sealing(case):
    opened = OPENER.open([bytes.fromhex(case["sealed"])])
    assert (opened.messages, opened.dummies, opened.rejected) == ([], 0, {case["reason"]: 1})


@pytest.mark.parametrize("case", named(BATCHES["good"]))
def test_good_batches(case):
    task = good_task(BATCHES["task"])
    manifest = Manifest.verified(case["manifest"].encode(), SHUFFLER)
    manifest.check_task(task)
    chunks = [bytes.fromhex(chunk) for chunk in case["chunks"]]
    assert [digest(chunk) for chunk in chunks] == list(manifest.chunks)
    assert [len(chunk) for chunk in chunks] == [manifest.chunk_size(index) for index in range(len(chunks))]
    records, size = b"".join(chunks), manifest.record_size
    opened = Opener(ANALYZER, task.id, task.message_size).open(
        [records[at : at + size] for at in range(0, len(records), size)]
    )
    packed = np.array([list(each) for each in opened.messages], dtype=np.uint8)
    values = task.protocol.message_format.unpack(packed)
    assert np.bincount(values, minlength=3).tolist() == case["counts"]


@pytest.mark.parametrize("case", named(BATCHES["bad"]))
def test_bad_batches(case):
    task = good_task(BATCHES["task"])
    with pytest.raises(ParameterError, match=WORDS[case["reason"]]):
        Manifest.verified(case["manifest"].encode(), SHUFFLER).check_task(task)


@pytest.mark.parametrize("case", named(BATCHES["bad_chunks"]))
def test_bad_chunks(case):
    manifest = Manifest.verified(BATCHES["good"][0]["manifest"].encode(), SHUFFLER)
    chunk = bytes.fromhex(case["chunk"])
    if case["reason"] == "unknown-chunk":
        with pytest.raises(ParameterError, match="there is no chunk"):
            manifest.chunk_size(case["index"])
    elif case["reason"] == "wrong-size":
        assert len(chunk) != manifest.chunk_size(case["index"])
    else:
        assert len(chunk) == manifest.chunk_size(case["index"])
        assert digest(chunk) != manifest.chunks[case["index"]]
