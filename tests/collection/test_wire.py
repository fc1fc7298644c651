"""Reports and manifests as bytes: there and back, and nothing else."""

import dataclasses
import json
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.wire import formats as wire
from shuffledp.collection.wire.formats import MAX_MANIFEST_BYTES, BadSignatureError, Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import SigningKey, to_base64
from shuffledp.errors import ParameterError

FORMAT = ReportFormat(bytes(range(32)), 3, 50)


def report(form: ReportFormat = FORMAT, report_id: bytes = bytes(16)) -> bytes:
    return form.build(report_id, [secrets.token_bytes(form.sealed_size) for _ in range(form.messages)])


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(min_size=50, max_size=50), min_size=3, max_size=3))
def test_a_report_there_and_back(report_id, messages):
    built = FORMAT.build(report_id, messages)
    assert len(built) == FORMAT.size == 4 + 1 + 32 + 16 + 3 * 50
    assert built[:5] == b"SDPR\x01"
    assert FORMAT.report_id(built) == report_id
    assert bytes(FORMAT.records(built)) == b"".join(messages)


def test_reports_of_other_lengths():
    whole = report()
    for wrong in [whole[:length] for length in range(len(whole))] + [whole + b"\0", whole + whole]:
        with pytest.raises(ParameterError, match="has 203 bytes, not"):
            FORMAT.report_id(wrong)


def test_every_bit_of_the_header_but_the_id_is_checked():
    whole = report()
    for place in range(8 * 37):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        words = "SDPR" if place < 32 else "has version" if place < 40 else "another task"
        with pytest.raises(ParameterError, match=words):
            FORMAT.report_id(bytes(changed))


def test_what_cannot_be_built():
    messages = [bytes(50)] * 3
    for report_id, wrong in [(bytes(15), messages), (bytes(16), messages[:2]), (bytes(16), [*messages, bytes(50)])]:
        with pytest.raises(ParameterError, match="A report has an id"):
            FORMAT.build(report_id, wrong)
    with pytest.raises(ParameterError, match="50 bytes"):
        FORMAT.build(bytes(16), [bytes(50), bytes(50), bytes(49)])


def test_the_format_follows_from_the_task(parties):
    task = parties.task()
    assert ReportFormat.of(task) == ReportFormat(task.id, task.messages_per_report, 32 + 1 + task.message_size + 16)


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.create()


def manifest(**changes) -> Manifest:
    chunks = tuple(digest(bytes([index])) for index in range(4))
    given = {"task_id": bytes(32), "reports": 5, "messages": 10, "record_size": 50, "chunk_records": 3}
    return Manifest(**{**given, "chunks": chunks, **changes})


def test_a_manifest_there_and_back(key):
    one = manifest()
    assert Manifest.verified(one.signed(key), key.public) == one
    assert one.signed(key) == one.signed(key)
    assert [one.chunk_size(index) for index in range(4)] == [150, 150, 150, 50]
    for index in (-1, 4):
        with pytest.raises(ParameterError, match="there is no chunk"):
            one.chunk_size(index)


def test_who_signed_it(key):
    content = manifest().signed(key)
    with pytest.raises(ParameterError, match="not a valid signature"):
        Manifest.verified(content, SigningKey.create().public)
    document = json.loads(content)
    bare = to_base64(key.sign(canonical(document["batch"])))  # as if signed for another purpose
    with pytest.raises(ParameterError, match="not a valid signature"):
        Manifest.verified(canonical({**document, "signature": bare}), key.public)


def test_nothing_is_parsed_before_the_signature_is_known_to_be_right(key, monkeypatch):
    """Whoever is not the shuffler cannot have the analyzer read a document, however large or odd."""
    content = manifest().signed(key)
    document = content[len(b'{"batch":') : -len(b',"signature":""}') - 86]
    assert json.loads(document) == json.loads(content)["batch"]
    odd = content.replace(document, b"[" * 100_000)

    def parse(*_, **__):
        raise AssertionError("parsed")

    with monkeypatch.context() as patched:
        patched.setattr(wire, "parse_canonical", parse)
        for wrong, public in ((content, SigningKey.create().public), (odd, key.public)):
            with pytest.raises(BadSignatureError, match="not a valid signature"):
                Manifest.verified(wrong, public)
        with pytest.raises(AssertionError, match="parsed"):
            Manifest.verified(content, key.public)
    for wrong in (b"", b"{}", document, content[1:], content[:-1], content + b" ", b'{"batch":', content[-103:]):
        with pytest.raises(ParameterError, match="not the canonical form"):
            Manifest.verified(wrong, key.public)
    with pytest.raises(ParameterError, match="at most"):
        Manifest.verified(content + bytes(MAX_MANIFEST_BYTES), key.public)
    assert Manifest.unverified(content) == manifest()


def test_a_signed_document_that_is_not_canonical(key):
    document = canonical(manifest().to_document()).replace(b":", b": ", 1)
    signature = to_base64(key.sign(b"shuffledp batch v1\n" + document)).encode()
    with pytest.raises(ParameterError, match="not in canonical form"):
        Manifest.verified(b'{"batch":' + document + b',"signature":"' + signature + b'"}', key.public)


@settings(max_examples=200)
@given(st.data())
def test_every_change_of_a_signed_manifest_is_refused(data):
    key = SigningKey(bytes(32))
    content = manifest().signed(key)
    place = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    changed = {
        "flip": content[:place] + bytes([content[place] ^ (1 << data.draw(st.integers(0, 7)))]) + content[place + 1 :],
        "cut": content[:place],
        "insert": content[:place] + b"1" + content[place:],
    }[kind]
    with pytest.raises(ParameterError):
        Manifest.verified(changed, key.public)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a manifest"),
        ({"version": 2}, "has version 2"),
        ({"task": "00" * 31}, "not 32 bytes"),
        ({"task": "AB" * 32}, "not 32 bytes"),
        ({"task": "+1" * 32}, "not 32 bytes"),
        ({"reports": 0}, "at least one report"),
        ({"reports": True}, "must be integers"),
        ({"reports": "5"}, "must be integers"),
        ({"messages": 13}, "do not contain"),
        ({"messages": 9}, "do not contain"),
        ({"record_size": -1}, "at least one"),
        ({"record_size": 1 << 26}, "at most"),
        ({"chunk_records": 0}, "at least one"),
        ({"chunks": []}, "do not contain"),
        ({"chunks": "00"}, "a list of hashes"),
        ({"chunks": ["00" * 32] * 3 + ["zz" * 32]}, "not 32 bytes"),
        ({"chunks": [1, 2, 3, 4]}, "not 32 bytes"),
        ({"more": 1}, "not a manifest"),
    ],
)
def test_manifests_that_a_shuffler_should_not_have_signed(change, words, key):
    document = {**manifest().to_document(), **change}
    signature = to_base64(key.sign(b"shuffledp batch v1\n" + canonical(document)))
    with pytest.raises(ParameterError, match=words):
        Manifest.verified(canonical({"batch": document, "signature": signature}), key.public)


def test_a_batch_must_fit_its_task(parties):
    task = parties.task(users=1000, maximum_users=2000)
    form = ReportFormat.of(task)

    def batch(reports: int) -> Manifest:
        return manifest(
            task_id=task.id,
            reports=reports,
            messages=reports * form.messages,
            record_size=form.sealed_size,
            chunk_records=100_000,
            chunks=(bytes(32),),
        )

    batch(1000).check_task(task)
    batch(2000).check_task(task)
    for reports in (999, 2001):
        with pytest.raises(ParameterError, match="cannot be released"):
            batch(reports).check_task(task)
    with pytest.raises(ParameterError, match="another task"):
        dataclasses.replace(batch(1000), task_id=bytes(32)).check_task(task)
    for change in ({"messages": 1001 * form.messages}, {"record_size": form.sealed_size + 1}):
        with pytest.raises(ParameterError, match="size or number"):
            dataclasses.replace(batch(1000), **change).check_task(task)
