"""The published vectors of version 2: this implementation agrees with every case, and would not with a fault."""

import base64
import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from shuffledp.collection.device import authentic_task
from shuffledp.collection.task import series as series_module
from shuffledp.collection.task import wire_version_2
from shuffledp.collection.task.series import Series, authentic_cancellation, authentic_series
from shuffledp.collection.task.task import SignedTask, Task
from shuffledp.collection.wire import outer_seal
from shuffledp.collection.wire.formats import HEADER_SIZE, BadSignatureError, Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import SealingKey, VerifyingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener, outer_info
from shuffledp.collection.wire.sealing import sealing_info
from shuffledp.errors import ParameterError

FOLDER = Path(__file__).parents[2] / "vectors" / "v2"
TASKS, REPORTS, BATCHES, SERIES = (
    json.loads((FOLDER / f"{name}.json").read_bytes()) for name in ("task", "report", "batch", "series")
)
AUTHOR = VerifyingKey(bytes.fromhex(TASKS["author"]["public"]))
SHUFFLER = VerifyingKey(bytes.fromhex(BATCHES["shuffler"]["public"]))
ROUND_KEY = SealingKey(bytes.fromhex(REPORTS["round_key"]["private"]))
CARRIED_OUT = {"a chain of two shufflers", "a chain with traps", "the hybrid outer seal"}
"""Optional parts that this program carries out."""
WORDS = {
    "size": "bytes, not",
    "magic": "SDPR",
    "version": "has version",
    "task": "another task",
    "wrong-task": "another task",
    "wrong-size": "size or number",
    "too-few": "cannot be released",
    "malformed": r"\w",
}


def named(cases):
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def task_of_reports():
    content = next(case["content"] for case in TASKS["good"] if case["name"] == REPORTS["task"])
    return authentic_task(content.encode(), AUTHOR)


def reason(function, case, *keys):
    """Why the function refuses a case, or None."""
    try:
        function(case["content"].encode(), *keys)
    except ParameterError as error:
        return error.values["reason"] if "\n" not in str(error) else "several lines"
    return None


@pytest.mark.parametrize("case", named(TASKS["good"]))
def test_good_tasks(case):
    task = authentic_task(case["content"].encode(), AUTHOR)
    assert (task.version, task.id.hex()) == (2, case["id"])
    assert ReportFormat.of(task).size == case["report_size"]
    assert sealing_info(task.id, 2).hex() == case["message_info"]
    assert task.signed_content.startswith(b"shuffledp task v2\n{")
    assert hashlib.sha256(task.signed_content).hexdigest() == case["id"]
    signed = SignedTask.from_bytes(case["content"].encode())
    assert signed.verify(AUTHOR) == task
    assert signed.to_bytes() == case["content"].encode()


@pytest.mark.parametrize("case", named(TASKS["bad"]))
def test_bad_tasks(case):
    assert reason(authentic_task, case, AUTHOR) == case["reason"]


@pytest.mark.parametrize("case", named(TASKS["optional"]))
def test_parts_that_are_not_carried_out_are_read_and_refused(case):
    """The format is complete; nobody takes part in what this program cannot do."""
    signed = SignedTask.from_bytes(case["content"].encode())
    assert signed.task.id.hex() == case["id"]
    assert signed.to_bytes() == case["content"].encode()
    if case["name"] in CARRIED_OUT:
        assert signed.verify(AUTHOR) == authentic_task(case["content"].encode(), AUTHOR)
        return
    assert reason(authentic_task, case, AUTHOR) == "unsupported"
    with pytest.raises(ParameterError, match=r"use a newer one|Use the series"):
        signed.verify(AUTHOR)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (wire_version_2, "MAX_TRAPS", 2000),
        (wire_version_2, "MAX_ROUNDS", 401),
        (wire_version_2, "MAX_SHUFFLERS", 4),
        (wire_version_2.WireVersion2, "__post_init__", lambda self: None),
        (wire_version_2.Carriers, "__post_init__", lambda self: None),
        (wire_version_2.SeriesRound, "__post_init__", lambda self: None),
        (Task, "_check_wire", lambda self, wire: None),
        (wire_version_2, "integer_in", lambda document, key, where: int(document[key])),
        (wire_version_2, "id_in", lambda document, key: bytes.fromhex(document[key])),
    ],
)
def test_a_missing_check_of_tasks_is_seen(monkeypatch, module, name, value):
    monkeypatch.setattr(module, name, value)
    wrong = [case["name"] for case in TASKS["bad"] if reason(authentic_task, case, AUTHOR) != case["reason"]]
    assert wrong


def open_report(report):
    task = task_of_reports()
    return ReportOpener(ROUND_KEY, header_size=HEADER_SIZE, report_size=ReportFormat.of(task).size).open(report)


@pytest.mark.parametrize("case", named(REPORTS["good"]))
def test_good_reports(case):
    task = task_of_reports()
    form, report = ReportFormat.of(task), bytes.fromhex(case["report"])
    assert (form.messages, form.sealed_size, form.size) == tuple(
        REPORTS[key] for key in ("messages", "sealed_size", "report_size")
    )
    assert form.report_id(report).hex() == case["report_id"]
    assert outer_info(report[:HEADER_SIZE]).hex() == case["info"]
    assert open_report(report) == bytes.fromhex("".join(case["sealed"]))
    again = form.build(bytes.fromhex(case["report_id"]), [bytes.fromhex(each) for each in case["sealed"]])
    assert (again != report, open_report(again)) == (True, open_report(report))  # sealed anew, with the same content


@pytest.mark.parametrize("case", named(REPORTS["bad"]))
def test_bad_reports(case):
    with pytest.raises(ParameterError, match=WORDS[case["reason"]]):
        ReportFormat.of(task_of_reports()).report_id(bytes.fromhex(case["report"]))


@pytest.mark.parametrize("case", named(REPORTS["unopenable"]))
def test_unopenable_reports(case):
    report = bytes.fromhex(case["report"])
    ReportFormat.of(task_of_reports()).report_id(report)  # its form is right
    assert open_report(report) is None


def test_every_flipped_bit_of_a_report_is_noticed():
    report = bytes.fromhex(REPORTS["good"][0]["report"])
    for place in range(len(report)):
        for bit in (1, 128):
            assert open_report(report[:place] + bytes([report[place] ^ bit]) + report[place + 1 :]) is None
    assert open_report(report) is not None


def test_a_seal_that_is_not_bound_to_its_header_is_seen(monkeypatch):
    """A report of such a device opens under another id, so a copy of it would count again."""
    monkeypatch.setattr(outer_seal, "outer_info", lambda header: b"shuffledp report v2\0shuffler\0")
    report = ReportFormat.of(task_of_reports()).build(bytes(16), [bytes(50)] * REPORTS["messages"])
    assert open_report(report[:37] + bytes(range(16)) + report[53:]) is not None
    assert open_report(bytes.fromhex(REPORTS["good"][0]["report"])) is None


@pytest.mark.parametrize("case", named(BATCHES["good"]))
def test_good_batches(case):
    task = authentic_task(BATCHES["content"].encode(), AUTHOR)
    manifest = Manifest.verified(case["manifest"].encode(), SHUFFLER, 2)
    manifest.check_task(task)
    assert manifest == Manifest.unverified(case["manifest"].encode())
    chunks = [bytes.fromhex(chunk) for chunk in case["chunks"]]
    assert [digest(chunk) for chunk in chunks] == list(manifest.chunks)
    records, size = b"".join(chunks), manifest.record_size
    sealed = [records[at : at + size] for at in range(0, len(records), size)]
    analyzer = SealingKey(hashlib.sha256(b"shuffledp test vectors v1: analyzer").digest())
    opened = Opener(analyzer, task.id, task.message_size, 2).open(sealed)
    assert sorted(message[0] >> 6 for message in opened.messages) == [0, 1, 2, 2, 2]
    assert Opener(analyzer, task.id, task.message_size).open(sealed).rejected == {"cannot-be-opened": 5}


def test_a_manifest_of_a_later_shuffler_is_read_and_does_not_fit_a_task_of_one():
    manifest = Manifest.verified(BATCHES["optional"][0]["manifest"].encode(), SHUFFLER, 2)
    assert (manifest.counts.hop, manifest.counts.repeated) == (1, 1)
    assert manifest.counts.previous == digest(BATCHES["good"][0]["manifest"].encode())
    with pytest.raises(ParameterError, match="of shuffler 2 of the task"):
        manifest.check_task(authentic_task(BATCHES["content"].encode(), AUTHOR))


@pytest.mark.parametrize("case", named(BATCHES["bad"]))
def test_bad_batches(case):
    task = authentic_task(BATCHES["content"].encode(), AUTHOR)
    kind = BadSignatureError if case["reason"] == "bad-signature" else ParameterError
    with pytest.raises(kind, match=WORDS.get(case["reason"], "signature")):
        Manifest.verified(case["manifest"].encode(), SHUFFLER, 2).check_task(task)


@pytest.mark.parametrize("case", named(SERIES["good"]))
def test_good_series(case):
    series = authentic_series(case["content"].encode(), AUTHOR)
    assert series.id.hex() == case["id"]
    assert series.content in case["content"].encode()
    for index, expected in enumerate(case["tasks"]):
        document = series.task(index).to_document()
        assert (series.task(index).id.hex(), document["opens"], document["closes"]) == (
            expected["id"],
            expected["opens"],
            expected["closes"],
        )
        assert Task.from_document(document) == series.task(index)


def derived(content):
    """The ids of the tasks of a series, by the rules of the page alone."""
    series = json.loads(content)["series"]
    written = lambda document: json.dumps(  # noqa: E731
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    series_id = hashlib.sha256(b"shuffledp series v1\n" + written(series)).hexdigest()
    first = datetime.fromisoformat(series["first_opens"])

    def key(public):
        raw = base64.urlsafe_b64decode(public + "=")
        name = hashlib.sha256(b"shuffledp sealing key\n" + raw).hexdigest()[:16]
        return {"kind": "sealing", "id": name, "public": public}

    def moment(seconds):
        return (first + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    for index in range(series["rounds"]):
        shufflers = zip(series["template"]["shufflers"], series["keys"]["shufflers"], strict=True)
        task = series["template"] | {
            "opens": moment(index * series["period"]),
            "closes": moment(index * series["period"] + series["open"]),
            "analyzer": key(series["keys"]["analyzer"][index]),
            "shufflers": [{**known, "sealing": key(keys[index])} for known, keys in shufflers],
            "series": {"id": series_id, "round": index},
        }
        yield hashlib.sha256(b"shuffledp task v2\n" + written(task)).hexdigest()


@pytest.mark.parametrize("case", named(SERIES["good"]))
def test_the_tasks_follow_by_the_rules_of_the_page(case):
    assert list(derived(case["content"])) == [task["id"] for task in case["tasks"]]


def test_a_round_with_the_key_of_another_is_seen(monkeypatch):
    task = Series.task
    case = SERIES["good"][0]
    series = authentic_series(case["content"].encode(), AUTHOR)
    monkeypatch.setattr(Series, "task", lambda self, i: task(replace(self, keys=self.keys), 1 - i if i < 2 else i))
    assert [series.task(index).id.hex() for index in range(2)] != [each["id"] for each in case["tasks"][:2]]


@pytest.mark.parametrize("key", ["analyzer", "shufflers", "series"])
def test_keys_that_are_not_in_the_id_are_seen(monkeypatch, key):
    """Otherwise whoever shows a device a key of their own gets reports that the servers accept."""
    case = SERIES["good"][0]
    series = authentic_series(case["content"].encode(), AUTHOR)
    document = Task.to_document
    monkeypatch.setattr(Task, "to_document", lambda self: {k: v for k, v in document(self).items() if k != key})
    assert [series.task(index).id.hex() for index in range(2)] != [each["id"] for each in case["tasks"][:2]]


def test_the_round_of_a_moment():
    series = authentic_series(SERIES["good"][0]["content"].encode(), AUTHOR)
    opens, second = series.first.opens, timedelta(seconds=1)
    week, open_for = timedelta(weeks=1), series.first.closes - opens
    found = {
        -second: None,
        timedelta(0): 0,
        open_for - second: 0,
        open_for: None,
        week - second: None,
        week: 1,
        2 * week + open_for - second: 2,
        2 * week + open_for: None,
        3 * week: None,
    }
    assert {after: series.round_at(opens + after) for after in found} == found


@pytest.mark.parametrize("case", named(SERIES["bad"]))
def test_bad_series(case):
    assert reason(authentic_series, case, AUTHOR) == case["reason"]


def test_cancellations():
    for case in SERIES["good_cancellations"]:
        cancelled = authentic_cancellation(case["content"].encode(), AUTHOR)
        assert (cancelled.series.hex(), cancelled.from_round) == (SERIES["good"][0]["id"], 1)
    for case in SERIES["bad_cancellations"]:
        assert reason(authentic_cancellation, case, AUTHOR) == case["reason"], case["name"]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (series_module.Series, "__post_init__", lambda self: None),
        (series_module, "MAX_ROUNDS", 401),
        (series_module, "_LONGEST_PERIOD", 1 << 40),
        (series_module, "_OF_A_ROUND", ()),
        (series_module, "id_in", lambda document, key: bytes.fromhex(document[key])),
    ],
)
def test_a_missing_check_of_series_is_seen(monkeypatch, module, name, value):
    cases = [*SERIES["bad"], *SERIES["bad_cancellations"]]
    monkeypatch.setattr(module, name, value)

    def verdict(case):
        function = authentic_series if case in SERIES["bad"] else authentic_cancellation
        try:
            return reason(function, case, AUTHOR)
        except (AttributeError, IndexError, KeyError) as error:
            return error

    assert [case["name"] for case in cases if verdict(case) != case["reason"]]
