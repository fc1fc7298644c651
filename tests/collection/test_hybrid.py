"""The hybrid outer suite: its published vectors, what devices seal, and that each of its two parts is needed."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

from shuffledp.collection.device.client import sealed_report
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.server.round_keys import KeylessError, RoundKeyDirectory
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.task.key_documents import Destruction, authentic_destruction
from shuffledp.collection.task.series import RoundKeys, Series, authentic_series
from shuffledp.collection.task.task import SignedTask
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire import keys as wire_keys
from shuffledp.collection.wire import layers, outer_seal
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat
from shuffledp.collection.wire.keys import (
    HybridKey,
    HybridPublicKey,
    SealingKey,
    SealingPublicKey,
    SigningKey,
    VerifyingKey,
    from_base64,
    public_round_key,
)
from shuffledp.collection.wire.layers import LayerOpener, layer_info
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener, outer_info
from shuffledp.collection.wire.outer_suites import HYBRID_SUITE
from shuffledp.errors import ParameterError, PolicyError

VECTORS = Path(__file__).parents[2] / "vectors" / "v2"
FILE = json.loads((VECTORS / "hybrid.json").read_bytes())
AUTHOR = VerifyingKey(bytes.fromhex(json.loads((VECTORS / "task.json").read_bytes())["author"]["public"]))
KEYS = [HybridKey(bytes.fromhex(each["private"])) for each in FILE["keys"]]
OVERHEAD = 1088


def named(cases):
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def refusal(case):
    try:
        authentic_task(case["content"].encode(), AUTHOR)
    except ParameterError as error:
        return error.values["reason"] if "\n" not in str(error) else "several lines"
    return None


def opened(report):
    form = ReportFormat.of(SignedTask.from_bytes(FILE["good"][0]["content"].encode()).task)
    opener = ReportOpener(KEYS[0], header_size=HEADER_SIZE, report_size=form.size)
    return opener.open(bytes.fromhex(report))


def without_layer(sealed):
    task = SignedTask.from_bytes(FILE["good"][1]["content"].encode()).task
    return LayerOpener(KEYS[1], 1, task.id, task.record_size(0)).open(bytes.fromhex(sealed))


class TestVectors:
    def test_keys_follow_from_their_seeds(self):
        for key, case in zip(KEYS, FILE["keys"], strict=True):
            assert key.public.raw == from_base64(case["public"], 1216)
            assert key.public.id == case["key_id"]
            assert key.public == HybridPublicKey.from_document(key.public.to_document())

    def test_the_first_seed_of_the_draft_gives_its_public_key(self):
        """draft-connolly-cfrg-xwing-kem, appendix C; the hash of the published key."""
        key = HybridKey(bytes.fromhex("7f9c2ba4e88f827d616045507605853ed73b8093f6efbc88eb1a6eacfa66ef26"))
        published = "2e816deebcd76c5c80d0cd2d174478871658e8e2ff42bc9d4a6e486372e856bb"
        assert hashlib.sha256(key.public.raw).hexdigest() == published

    @pytest.mark.parametrize("case", named(FILE["good"]))
    def test_good_tasks(self, case):
        task = authentic_task(case["content"].encode(), AUTHOR)
        assert (task.id.hex(), task.signed_content[:18]) == (case["id"], b"shuffledp task v2\n")
        assert ReportFormat.of(task).size == case["report_size"]
        assert [task.record_size(hop) for hop in range(task.hops)] == case["record_sizes"]
        assert SignedTask.from_bytes(case["content"].encode()).to_bytes() == case["content"].encode()

    @pytest.mark.parametrize("case", named(FILE["bad"]))
    def test_bad_tasks(self, case):
        assert refusal(case) == case["reason"]

    @pytest.mark.parametrize(
        ("name", "value"), [("_check_order", lambda point: None), ("MLKEM768PublicKey", type("Any", (), {}))]
    )
    def test_a_missing_check_of_keys_is_seen(self, monkeypatch, name, value):
        if name == "MLKEM768PublicKey":
            value.from_public_bytes = staticmethod(lambda raw: KEYS[0]._parts[0].public_key())
        monkeypatch.setattr(wire_keys, name, value)
        assert [case for case in FILE["bad"] if refusal(case) != case["reason"]]

    def test_series(self):
        (content,) = FILE["good_series"]
        series = authentic_series(content.encode(), AUTHOR)
        assert {type(key) for keys in series.keys for key in keys.shufflers} == {HybridPublicKey}
        assert {type(keys.analyzer) for keys in series.keys} == {SealingPublicKey}
        assert series.task(1).wire.outer_suite is HYBRID_SUITE

    def test_the_report_opens(self):
        case = FILE["report"]
        report = bytes.fromhex(case["report"])
        assert len(report) == case["report_size"]
        assert outer_info(report[:HEADER_SIZE]).hex() == case["info"]
        assert opened(case["report"]).hex() == "".join(case["sealed"])

    @pytest.mark.parametrize("case", named(FILE["unopenable"]))
    def test_reports_that_do_not_open(self, case):
        assert opened(case["report"]) is None

    def test_a_context_without_the_header_is_seen(self, monkeypatch):
        monkeypatch.setattr(outer_seal, "outer_info", lambda header: outer_info(b""))
        assert [case["name"] for case in FILE["unopenable"] if opened(case["report"])] == ["sealed without the header"]

    def test_the_layer_opens(self):
        case = FILE["layer"]
        assert without_layer(case["sealed"]).hex() == case["content"]

    @pytest.mark.parametrize("case", named(FILE["unopenable_layers"]))
    def test_layers_that_do_not_open(self, case):
        assert without_layer(case["sealed"]) is None

    def test_a_context_without_the_index_is_seen(self, monkeypatch):
        monkeypatch.setattr(layers, "layer_info", lambda hop, task_id: layer_info(2, task_id))
        assert [case for case in FILE["unopenable_layers"] if without_layer(case["sealed"])]


@pytest.fixture(scope="module")
def hybrid(parties):
    """A chain of two shufflers, and their round keys."""
    first, keys = SigningKey.create(), [HybridKey.create() for _ in range(2)]
    shufflers = (ShufflerKeys(first.public, keys[0].public), ShufflerKeys(parties.shuffler.public, keys[1].public))
    return parties.task("histogram/balcer-cheu", wire=WireVersion2(shufflers)), keys


def test_a_device_seals_to_every_shuffler(parties, hybrid):
    task, (first, second) = hybrid
    form, report = ReportFormat.of(task), sealed_report(task, "bike")
    of_x25519 = tuple(replace(each, sealing=SealingKey.create().public) for each in task.wire.shufflers)
    usual = ReportFormat.of(replace(task, wire=replace(task.wire, shufflers=of_x25519)))
    assert len(report) == form.size == usual.size + OVERHEAD * (1 + task.messages_per_report)
    content = ReportOpener(first, header_size=HEADER_SIZE, report_size=form.size).open(report)
    size, opener = task.record_size(0), LayerOpener(second, 1, task.id, task.record_size(0))
    inner = [opener.open(content[at : at + size]) for at in range(0, len(content), size)]
    assert {len(each) for each in inner} == {opener.inner_size} == {task.sealed_size}
    found = Opener(parties.analyzer, task.id, task.message_size, 2).open(inner)
    assert (len(found.messages) + found.dummies, found.rejected) == (form.messages, {})


def test_a_device_counts_the_longer_seals(hybrid):
    task, _ = hybrid
    size = ReportFormat.of(task).size
    Policy(max_report_bytes=size).check(task)
    with pytest.raises(PolicyError, match=f"{size:,} bytes"):
        Policy(max_report_bytes=size - 1).check(task)


@pytest.mark.parametrize("known", ["X25519", "ML-KEM"])
def test_one_of_the_two_keys_does_not_open_a_seal(hybrid, monkeypatch, known):
    """As if one of the two problems were solved: the private key of that part is known, the other is not."""
    task, (first, _) = hybrid
    form, report = ReportFormat.of(task), sealed_report(task, "bike")
    lattice, curve = first._parts
    others = HybridKey.create()._parts
    stolen = (others[0], curve) if known == "X25519" else (lattice, others[1])
    assert ReportOpener(first, header_size=HEADER_SIZE, report_size=form.size).open(report) is not None
    monkeypatch.setattr(HybridKey, "_parts", stolen)
    assert ReportOpener(first, header_size=HEADER_SIZE, report_size=form.size).open(report) is None


def test_suites_do_not_mix(parties, hybrid):
    task, _ = hybrid
    mixed = (task.wire.shufflers[0], replace(task.wire.shufflers[1], sealing=SealingKey.create().public))
    with pytest.raises(ParameterError, match="all be of one suite"):
        WireVersion2(mixed)
    single = parties.task(wire=WireVersion2((ShufflerKeys(parties.shuffler.public, HybridKey.create().public),)))
    keys = [RoundKeys(single.analyzer, (single.wire.shufflers[0].sealing,))]
    keys.append(RoundKeys(SealingKey.create().public, (SealingKey.create().public,)))
    with pytest.raises(ParameterError, match="series must all be of one suite"):
        Series(single, period=86_400, keys=tuple(keys), rounds_per_device=1)


def test_key_files_are_destroyed_with_a_record(tmp_path):
    key, signer = HybridKey.create(), SigningKey.create()
    directory = RoundKeyDirectory(tmp_path, signer=signer)
    file = directory.file(key.public)
    key.save(file)
    key.public.save(tmp_path / "public.pub")
    assert public_round_key(tmp_path / "public.pub") == key.public
    assert directory.load(key.public) == key
    directory.destroy(key.public)
    assert not file.exists()
    record = (tmp_path / f"{key.public.id}.destroyed.json").read_bytes().strip()
    assert authentic_destruction(record, signer.public) == Destruction(
        key.public, authentic_destruction(record, signer.public).time
    )
    with pytest.raises(KeylessError, match="was destroyed"):
        directory.load(key.public)


def test_a_file_of_the_other_suite_is_not_the_round_key(tmp_path):
    key, directory = HybridKey.create(), RoundKeyDirectory(tmp_path)
    SealingKey.create().save(directory.file(key.public))
    with pytest.raises(KeylessError, match="not the round key"):
        directory.load(key.public)


def test_a_library_without_ml_kem_refuses_in_one_line(monkeypatch, hybrid):
    def unsupported(content):
        raise UnsupportedAlgorithm("ML-KEM-768 is not supported by this backend.")

    monkeypatch.setattr(wire_keys, "MLKEM768PublicKey", type("Absent", (), {"from_public_bytes": unsupported}))
    assert refusal(FILE["good"][0]) == "unsupported"
    monkeypatch.setattr(wire_keys, "MLKEM768PrivateKey", type("Absent", (), {"from_seed_bytes": unsupported}))
    with pytest.raises(ParameterError, match=r"^The installed package cryptography has no ML-KEM[^\n]*$"):
        _ = HybridKey.create().public


def test_the_lattice_is_used(hybrid):
    """A seal is an encapsulation of ML-KEM-768, an X25519 key, and the content; two seals share no ciphertext."""
    task, (first, _) = hybrid
    sealed = [sealed_report(task, "bike")[HEADER_SIZE : HEADER_SIZE + OVERHEAD] for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert all(len(first._parts[0].decapsulate(each)) == 32 for each in sealed)
    assert isinstance(first._parts[0].public_key(), MLKEM768PublicKey)
