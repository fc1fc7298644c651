"""The published vectors of rotations, destroyed keys and key files: this implementation agrees with every case."""

import json
from pathlib import Path

import pytest

from shuffledp.collection.task import key_documents
from shuffledp.collection.task.key_documents import authentic_destruction, authentic_rotation
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.collection.wire.times import time_to
from shuffledp.errors import DataError, ParameterError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "v2" / "keys.json").read_bytes())
AUTHOR, SHUFFLER = (VerifyingKey(bytes.fromhex(VECTORS[who]["public"])) for who in ("author", "shuffler"))


def named(cases):
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def reason(function, case, key):
    try:
        function(case["content"].encode(), key)
    except ParameterError as error:
        return error.values["reason"]
    return None


def test_good_documents():
    for case in VECTORS["good_rotations"]:
        rotation = authentic_rotation(case["content"].encode(), AUTHOR)
        assert (rotation.old, rotation.new.raw.hex()) == (AUTHOR, case["new"])
    for case in VECTORS["good_destructions"]:
        record = authentic_destruction(case["content"].encode(), SHUFFLER)
        assert (record.key.raw.hex(), time_to(record.time)) == (case["key"], case["time"])


@pytest.mark.parametrize("case", named(VECTORS["bad_rotations"]))
def test_bad_rotations(case):
    assert reason(authentic_rotation, case, AUTHOR) == case["reason"]


@pytest.mark.parametrize("case", named(VECTORS["bad_destructions"]))
def test_bad_records(case):
    assert reason(authentic_destruction, case, SHUFFLER) == case["reason"]


def test_files(tmp_path):
    for case in VECTORS["good_files"]:
        (tmp_path / "k").write_text(case["content"])
        expires = VerifyingKey.load(tmp_path / "k").expires
        assert (None if expires is None else time_to(expires)) == case["expires"]
    for case in VECTORS["bad_files"]:
        (tmp_path / "k").write_text(case["content"])
        with pytest.raises((DataError, ParameterError)):
            VerifyingKey.load(tmp_path / "k")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("check_format", lambda *_: None),
        ("_CONSENT_LABEL", b"shuffledp rotate v1\n"),
        ("Rotation", lambda old, new: type("Rotation", (), {"old": AUTHOR, "new": AUTHOR, "to_document": dict})()),
    ],
)
def test_a_missing_check_is_seen(monkeypatch, name, value):
    monkeypatch.setattr(key_documents, name, value)
    cases = [(authentic_rotation, case, AUTHOR) for case in VECTORS["bad_rotations"]]
    cases += [(authentic_destruction, case, SHUFFLER) for case in VECTORS["bad_destructions"]]

    def verdict(function, case, key):
        try:
            return reason(function, case, key)
        except (AttributeError, KeyError, TypeError) as error:
            return error

    assert [case["name"] for function, case, key in cases if verdict(function, case, key) != case["reason"]]
