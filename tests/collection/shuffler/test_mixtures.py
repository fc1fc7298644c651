"""A later shuffler of a chain and a malicious one before it: what is left out, counted and refused."""

import hashlib
import secrets
import time
from collections import Counter

import pytest

import shuffledp as sdp
from shuffledp.collection.server.batches import Batches, BatchOutcome, EarlyBatchError, ExpectedBatch
from shuffledp.collection.shuffler import delivery, mixtures
from shuffledp.collection.shuffler.mixtures import BatchMixture
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire import layers
from shuffledp.collection.wire.formats import HopCounts, Manifest, digest
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.layers import LayerOpener, add_layers
from shuffledp.errors import ParameterError

USERS, REPORTS = 20, 30


class Chain:
    """A task of two shufflers, and messages as the first one passes them on."""

    def __init__(self, parties, folder, hops=2):
        self.signing = [SigningKey.create() for _ in range(hops)]
        self.keys = [SealingKey.create() for _ in range(hops)]
        pairs = zip(self.signing, self.keys, strict=True)
        wire = WireVersion2(tuple(ShufflerKeys(signing.public, key.public) for signing, key in pairs))
        self.task = Task.create(
            kind=sdp.find("histogram", "uniform-blanket"),
            settings={"users": USERS, "domain_size": 4},
            epsilon=2.0,
            delta=0.1,
            maximum_users=100,
            **parties.rest(shuffler=self.signing[-1].public, wire=wire, name=secrets.token_hex(4)),
        )
        self.batches = Batches(folder)

    def sealed(self, count=None):
        """Messages as they leave the shuffler for the analyzer."""
        messages = REPORTS * self.task.messages_per_report if count is None else count
        return [secrets.token_bytes(self.task.record_size(1)) for _ in range(messages)]

    def layered(self, sealed):
        return add_layers(sealed, self.task.wire.round_keys[:2], self.task.id, after=0)

    def manifest(self, messages, reports=REPORTS):
        """The manifest of the first shuffler, and the content of its only chunk."""
        content = b"".join(messages)
        size = self.task.record_size(0)
        return Manifest(
            self.task.id, reports, len(messages), size, len(messages), (digest(content),), HopCounts()
        ), content

    def receive(self, messages, reports=REPORTS):
        """Take the batch of the first shuffler, and what the second makes of it."""
        manifest, content = self.manifest(messages, reports)
        signed = manifest.signed(self.signing[0])
        assert ExpectedBatch(self.task, 0).read(signed) == manifest
        assert self.batches.put_manifest(manifest, signed) is BatchOutcome.NEW
        assert self.batches.put_chunk(self.task.id, 0, content) is BatchOutcome.NEW
        return BatchMixture(self.task, lambda: None, self.batches, self.keys[1], 1)

    def split(self, content):
        size = self.task.record_size(1)
        return [content[at : at + size] for at in range(0, len(content), size)]


@pytest.fixture
def chain(parties, tmp_path):
    return Chain(parties, tmp_path)


@pytest.mark.parametrize("processes", [False, True])
def test_layers_are_opened(chain, monkeypatch, processes):
    if processes:
        monkeypatch.setattr(mixtures, "_MIN_MESSAGES_FOR_PROCESSES", 1)
        monkeypatch.setattr(mixtures, "_PIECE_MESSAGES", 7)
    sealed = chain.sealed()
    layered = chain.layered(sealed)
    mixture = chain.receive(layered)
    assert mixture.is_complete
    assert chain.split(b"".join(mixture.blocks())) == sealed
    assert (mixture.reports, mixture.opened, mixture.is_enough) == (REPORTS, len(sealed), True)
    signed = chain.manifest(layered)[0].signed(chain.signing[0])  # signatures of Ed25519 are not random
    assert mixture.counts == HopCounts(1, 0, 0, 0, 0, hashlib.sha256(signed).digest())


def flipped(message, at, bits=1):
    return message[:at] + bytes([message[at] ^ bits]) + message[at + 1 :]


def mixed(chain, messages):
    mixture = chain.receive(messages)
    found = Counter(chain.split(b"".join(mixture.blocks())))
    return found, mixture.counts.unopenable, mixture.counts.repeated


def test_altered_messages_are_left_out_and_counted(chain):
    """Any byte; also the top bit of the encapsulated key, which X25519 ignores, because HPKE hashes it."""
    sealed = chain.sealed()
    messages = chain.layered(sealed)
    changes = [(0, 1), (31, 0x80), (32, 1), (60, 4), (len(messages[0]) - 1, 0x80)]
    for place, (at, bits) in enumerate(changes):
        messages[place] = flipped(messages[place], at, bits)
    assert mixed(chain, messages) == (Counter(sealed[len(changes) :]), len(changes), 0)


def test_copies_are_left_out_before_anything_is_opened(chain):
    """Byte for byte; what cannot be opened is counted once as such, and its copies as copies."""
    sealed = chain.sealed()
    messages = chain.layered(sealed)
    garbage = secrets.token_bytes(len(messages[0]))
    attacked = [*messages[:-6], *[messages[0]] * 3, *[garbage] * 3]
    assert mixed(chain, attacked) == (Counter(sealed[:-6]), 1, 5)


def test_copies_that_are_dropped_after_opening_are_seen(chain, monkeypatch):
    """The same check on a shuffler with a fault: copies of what does not open are no longer counted as copies."""
    open_piece = mixtures._open_piece
    monkeypatch.setattr(mixtures, "find_duplicates", lambda pieces, size: {})

    def drop_after(opener, piece, size):
        content, unopenable = open_piece(opener, piece, size)
        return b"".join(dict.fromkeys(chain.split(content))), unopenable

    monkeypatch.setattr(mixtures, "_open_piece", drop_after)
    messages = chain.layered(chain.sealed())
    garbage = secrets.token_bytes(len(messages[0]))
    _, unopenable, repeated = mixed(chain, [*messages[:-6], *[messages[0]] * 3, *[garbage] * 3])
    assert (unopenable, repeated) != (1, 5)


def test_messages_of_another_round_do_not_open(chain, parties, tmp_path):
    """Not even with the same keys: the task is in the context."""
    sealed = chain.sealed()
    messages = chain.layered(sealed)
    messages[:5] = add_layers(sealed[:5], chain.task.wire.round_keys, secrets.token_bytes(32), after=0)
    assert mixed(chain, messages) == (Counter(sealed[5:]), 5, 0)


def test_a_layer_of_another_hop_does_not_open(chain, monkeypatch):
    """The index is in the context; without it (planted) messages could skip or repeat a hop."""
    message = secrets.token_bytes(60)
    keys = [key.public for key in chain.keys]

    def opens():
        (layered,) = add_layers([message], [keys[0], keys[0], keys[1]], chain.task.id, after=1)
        return LayerOpener(chain.keys[1], 1, chain.task.id, len(layered)).open(layered)

    assert opens() is None
    monkeypatch.setattr(layers, "layer_info", lambda hop, task_id: b"shuffledp layer v2" + task_id)
    assert opens() == message


def test_a_second_batch_is_refused(chain):
    chain.receive(chain.layered(chain.sealed()))
    manifest, _ = chain.manifest(chain.layered(chain.sealed()))
    assert chain.batches.put_manifest(manifest, manifest.signed(chain.signing[0])) is BatchOutcome.CONFLICT


def test_too_few_messages_are_not_released(chain):
    """Whatever number of reports the first shuffler claims."""
    sealed = chain.sealed()
    messages = chain.layered(sealed)
    kept = USERS * chain.task.messages_per_report - 1
    messages[kept:] = [secrets.token_bytes(len(messages[0])) for _ in messages[kept:]]
    mixture = chain.receive(messages)
    assert len(chain.split(b"".join(mixture.blocks()))) == kept
    assert (mixture.reports, mixture.is_enough) == (REPORTS, False)


def test_batches_that_do_not_fit_are_refused(chain):
    """Of another shuffler, of the wrong hop or size, with messages that nobody sent, below the minimum."""
    manifest, _ = chain.manifest(chain.layered(chain.sealed()))
    expected = ExpectedBatch(chain.task, 0)
    assert expected.read(manifest.signed(chain.signing[1])) is None
    assert ExpectedBatch.of_last(chain.task).hop == 1
    later = HopCounts(1, 0, 0, 0, 0, bytes(32))
    size, per_report = chain.task.record_size(1), chain.task.messages_per_report
    last = ExpectedBatch.of_last(chain.task)

    def at_last(reports, messages, counts=later, record_size=size):
        chunks = (bytes(32),)
        signed = Manifest(chain.task.id, reports, messages, record_size, messages, chunks, counts).signed(
            chain.signing[1]
        )
        return last.read(signed)

    assert at_last(REPORTS, REPORTS * per_report)
    assert at_last(REPORTS, REPORTS * per_report - 5)  # some did not open
    for reports, messages, counts, record_size in (
        (REPORTS, REPORTS * per_report + 1, later, size),
        (REPORTS, USERS * per_report - 1, later, size),
        (USERS - 1, USERS * per_report, later, size),
        (101, 101 * per_report, later, size),
        (REPORTS, REPORTS * per_report, HopCounts(), size),
        (REPORTS, REPORTS * per_report, HopCounts(2, 0, 0, 0, 0, bytes(32)), size),
        (REPORTS, REPORTS * per_report, later, size + 48),
    ):
        with pytest.raises(ParameterError):
            at_last(reports, messages, counts, record_size)


@pytest.mark.parametrize(
    ("hop", "reports", "counts", "is_full"),
    [
        (0, 100, {}, True),
        (0, 95, {"unopenable": 5}, True),
        (0, 95, {"unopenable": 4}, False),
        (1, 96, {"traps": 4}, True),
        (1, 96, {"traps": 3, "unopenable": 50, "repeated": 9}, False),  # messages, not reports
    ],
)
def test_before_the_end_only_the_batch_of_a_full_round_is_taken(parties, tmp_path, hop, reports, counts, is_full):
    """Most traps of this shuffler may not be sent before; the sender tries again, and succeeds after the end."""
    chain = Chain(parties, tmp_path, hops=3)
    messages = reports * chain.task.messages_per_report
    further = HopCounts(hop, previous=bytes(32) if hop else None, **counts)
    size = chain.task.record_size(hop)
    manifest = Manifest(chain.task.id, reports, messages, size, messages, (bytes(32),), further)
    signed = manifest.signed(chain.signing[hop])
    assert ExpectedBatch(chain.task, hop).read(signed) == manifest
    early = ExpectedBatch(chain.task, hop, is_early=True)
    if is_full:
        assert early.read(signed) == manifest
    else:
        with pytest.raises(EarlyBatchError, match="only the batch of a full round of 100 reports"):
            early.read(signed)
    assert early.read(manifest.signed(SigningKey.create())) is None


def test_an_early_batch_is_refused_until_the_round_is_over(place, serve, parties, tmp_path):
    """By the clock of the server that takes it, with a status after which the shuffler before tries again."""
    (tmp_path / "unused").mkdir()
    chain, keys = Chain(parties, tmp_path / "unused"), tmp_path / "round-keys"
    keys.mkdir(mode=0o700)
    chain.keys[1].save(keys / f"{chain.keys[1].public.id}.key")
    chain.signing[1].save(tmp_path / "second.key")
    (place.folder / "tasks" / "task.json").write_bytes(chain.task.signed(place.author).to_bytes())
    manifest, _ = chain.manifest(chain.layered(chain.sealed()))
    ahead = [0.0]
    here = serve(signing_key=tmp_path / "second.key", round_keys=keys, clock=lambda: time.time() + ahead[0])

    def put():
        content = manifest.signed(chain.signing[0])
        return here.request("PUT", f"/v2/batches/{chain.task.id.hex()}", content, {"Content-Type": "application/json"})

    refused = put()
    assert (refused.status_code, refused.json()["type"]) == (425, "urn:shuffledp:problem:too-early")
    assert refused.status_code in delivery._RETRY_STATUSES
    assert "100 reports" in refused.json()["detail"]
    ahead[0] = 3700.0
    assert put().status_code == 201
