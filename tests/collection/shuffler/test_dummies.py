"""The part of an augmented shuffler: what is in its batch, what nobody can tell apart, and what it keeps to itself."""

import json
import math
import re
import secrets
from collections import Counter

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.collection.shuffler import dummies, mixtures
from shuffledp.collection.shuffler.store.interface import RoundState
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire import sealing
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.messages import Tally
from shuffledp.randomness import bernoulli
from shuffledp.testing.statistics import ALPHA, p_value

ROUNDS = 1200
PROTOCOLS = ("histogram/shuffler-laplace", "histogram/shuffler-geometric", "count/shuffler-laplace")


def augmented_task(parties, name, *, users=3, size=2, epsilon=2.0, delta=0.2, round_key=None, **changes):
    question, short = name.split("/")
    round_key = round_key or SealingKey.create()
    return Task.create(
        kind=sdp.find(question, short),
        settings={"users": users} | ({"domain_size": size} if question == "histogram" else {}),
        epsilon=epsilon,
        delta=delta,
        maximum_users=10 * users,
        **parties.rest(wire=WireVersion2((ShufflerKeys(parties.shuffler.public, round_key.public),)), **changes),
    )


def seal(task, indices):
    """The sealed messages of users who hold these indices."""
    packed = task.protocol.message_format.pack(np.asarray(indices, dtype=task.protocol.message_format.dtype))
    sealer = Sealer(task.analyzer, task.id, task.message_size, task.version)
    return sealer.seal([row.tobytes() for row in packed], len(packed))


def split(content, size):
    return [content[start : start + size] for start in range(0, len(content), size)]


class Mixing:
    """Mixes the same reports again and again, as if nothing was recorded, and opens what the analyzer would get."""

    def __init__(self, task, key, counts):
        self.task, self.counts = task, counts
        self.opener = Opener(key, task.id, task.message_size, task.version)
        self.sealed = seal(task, np.repeat(np.arange(len(counts)), counts))
        self.opened = {message: self._index(message) for message in self.sealed}

    def _index(self, message):
        (packed,) = self.opener.open([message]).messages
        return int(self.task.protocol.message_format.unpack(np.frombuffer(packed, np.uint8)[None, :])[0])

    def tally(self):
        """What one batch contains: the number of messages of each index."""
        mixture = mixtures.ReportMixture(self.task, lambda: None, lambda: self.sealed, lambda body: body)
        content = b"".join(mixture.blocks())
        assert (mixture.reports, mixture.unopenable, mixture.size) == (len(self.sealed), 0, len(content))
        found = Counter(
            self.opened[message] if message in self.opened else self._index(message)
            for message in split(content, self.task.sealed_size)
        )
        return tuple(found[index] for index in range(len(self.counts)))

    def p_value(self, rounds=ROUNDS):
        """Of the tallies of many batches against the exact pmf of the protocol's release."""
        pmf = self.task.protocol.release_pmf(Tally(np.array(self.counts), len(self.sealed)))
        outcomes = list(pmf)
        seen = Counter(self.tally() for _ in range(rounds))
        observed = [*(seen.pop(outcome, 0) for outcome in outcomes), seen.total()]
        masses = [float(pmf[outcome]) for outcome in outcomes]
        return p_value(np.array(observed), np.array([*masses, max(1e-12, 1 - math.fsum(masses))]))


@pytest.fixture
def mixing(parties):
    return lambda name, **changes: Mixing(augmented_task(parties, name, **changes), parties.analyzer, (2, 1))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_batches_have_the_distribution_of_the_protocol(mixing, name):
    """1,200 batches against the whole table, alpha = 1e-7; the faults below are rejected at the same alpha."""
    assert mixing(name).p_value() > ALPHA


def drawn_twice(task, _hop, draw=dummies.sealed_dummies):
    yield from draw(task)
    yield from draw(task)


def missing(_task, _hop):
    yield from ()


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(("fault", "rounds"), [(drawn_twice, 600), (missing, 200)])
def test_dummies_that_are_drawn_twice_or_missing_are_seen(mixing, monkeypatch, name, fault, rounds):
    monkeypatch.setattr(mixtures, "sealed_dummies", fault)
    assert mixing(name).p_value(2 * rounds if name == PROTOCOLS[1] else rounds) <= ALPHA


def test_dummies_before_sampling_are_seen(mixing, monkeypatch):
    """A shuffler that samples everything it mixes adds fewer dummies than it should."""

    def sampled(task, _hop, draw=dummies.sealed_dummies):
        messages = split(b"".join(draw(task)), task.sealed_size)
        kept = bernoulli(task.protocol.shuffler_keeps, len(messages))
        yield b"".join(message for message, keep in zip(messages, kept, strict=True) if keep)

    monkeypatch.setattr(mixtures, "sealed_dummies", sampled)
    assert mixing("histogram/shuffler-geometric", epsilon=0.5).p_value(400) <= ALPHA


def test_a_protocol_that_does_not_sample_keeps_every_report(mixing, monkeypatch):
    monkeypatch.setattr(mixtures, "kept_reports", lambda task: iter(bernoulli(0.5, 10_000)))
    assert mixing("histogram/shuffler-laplace").p_value(300) <= ALPHA


def counted(task, key, sealed):
    opened = Opener(key, task.id, task.message_size, task.version).open(sealed)
    return len(opened.messages), opened.dummies, dict(opened.rejected)


def test_dummies_look_like_messages_of_users(parties, monkeypatch):
    """One length; they open as messages, with the same key and context. With another context none does (planted)."""
    task = augmented_task(parties, "histogram/shuffler-laplace", size=50)
    content = b"".join(dummies.sealed_dummies(task))
    drawn = split(content, task.sealed_size)
    assert {len(message) for message in (*drawn, *seal(task, [0, 49]))} == {task.sealed_size}
    assert len(set(drawn)) == len(drawn) >= 50
    assert counted(task, parties.analyzer, drawn) == (len(drawn), 0, {})
    monkeypatch.setattr(sealing, "sealing_info", lambda *_: b"shuffledp dummy v2")
    other = split(b"".join(dummies.sealed_dummies(task)), task.sealed_size)
    monkeypatch.undo()
    assert counted(task, parties.analyzer, other) == (0, 0, {"cannot-be-opened": len(other)})


def test_many_dummies_are_sealed_by_several_processes(parties, monkeypatch):
    monkeypatch.setattr(dummies, "_MIN_DUMMIES_FOR_PROCESSES", 100)
    monkeypatch.setattr(dummies, "_AT_ONCE", 64)
    task = augmented_task(parties, "histogram/shuffler-laplace", size=100, epsilon=1.0)
    counts = np.random.default_rng().integers(1, 5, 100)
    drawn = np.repeat(np.arange(100, dtype=task.protocol.message_format.dtype), counts)
    monkeypatch.setattr(type(task.protocol), "draw_dummies", lambda self, *, source: drawn)
    sealed = split(b"".join(dummies.sealed_dummies(task)), task.sealed_size)
    opened = Opener(parties.analyzer, task.id, task.message_size, task.version).open(sealed)
    packed = np.frombuffer(b"".join(opened.messages), np.uint8).reshape(len(sealed), -1)
    assert np.array_equal(np.sort(task.protocol.message_format.unpack(packed)), drawn)


@pytest.fixture
def keys(place):
    directory = place.folder / "round-keys"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def served_round(place, parties, keys):
    """A task of an augmented protocol in the folder of a shuffler, and reports to it."""

    def begin(name, values, *, minimum=None, **changes):
        round_key = SealingKey.create()
        round_key.save(keys / f"{round_key.public.id}.key")
        wire = WireVersion2((ShufflerKeys(place.key.public, round_key.public),))
        question, short = name.split("/")
        task = Task.create(
            kind=sdp.find(question, short),
            settings={"users": minimum or len(values)} | ({"domain_size": 4} if question == "histogram" else {}),
            epsilon=1.0,
            delta=1e-6,
            maximum_users=len(values),
            **parties.rest(shuffler=place.key.public, wire=wire, **changes),
        )
        (place.folder / "tasks" / "task.json").write_bytes(task.signed(place.author).to_bytes())
        form = ReportFormat.of(task)
        return task, form, [form.build(secrets.token_bytes(16), [message]) for message in seal(task, values)]

    return begin


def test_nobody_is_told_how_many_dummies_there_are(
    place, parties, serve, keys, served_round, until, monkeypatch, caplog
):
    """Not in logs, metrics, the operator's page, files that are left; the manifest has only the sum of all messages."""
    caplog.set_level("INFO")
    task, form, reports = served_round("histogram/shuffler-laplace", [0] * 20)
    counts = np.array([1103, 1109, 1117, 1123])
    monkeypatch.setattr(type(task.protocol), "draw_dummy_counts", lambda self, source: counts)
    monkeypatch.setattr(type(task.protocol), "most_dummies", int(counts.sum()))
    here = serve(round_keys=keys)
    assert {here.post(form, report).status_code for report in reports} == {201}
    store = here.shuffler.store
    until(lambda: store.state(task.id) is RoundState.DELIVERED and not place.files())
    overview = json.dumps(here.shuffler.operator.overview(True))
    logs = json.dumps([getattr(record, "fields", {}) for record in caplog.records])
    assert '"reports": 20' in logs
    numbers = [*counts, counts.sum(), counts.sum() + len(reports)]
    telltale = re.compile(rf"(?<![\w.])({'|'.join(map(str, numbers))})(\.0)?(?![\w.])")
    for text in (overview, logs, here.shuffler.metrics.text().decode()):
        assert text
        assert not telltale.search(text)
    manifest = json.loads(place.analyzer.manifests[task.id.hex()])["batch"]
    assert manifest["messages"] == counts.sum() + len(reports)
    named = json.dumps({key: value for key, value in manifest.items() if key not in ("messages", "chunks", "task")})
    assert not telltale.search(named)
    assert telltale.search(json.dumps(manifest))
    assert not list(keys.glob("*.key"))


def test_dummies_are_everywhere_in_the_batch(place, parties, serve, keys, served_round, until, monkeypatch):
    """The mean position of 100 dummies among 200 messages is within 5.2 standard deviations (alpha = 2e-7)."""
    task, form, reports = served_round("histogram/shuffler-laplace", [0] * 100)
    monkeypatch.setattr(type(task.protocol), "draw_dummy_counts", lambda self, source: np.array([0, 100, 0, 0]))
    here = serve(round_keys=keys)
    assert {here.post(form, report).status_code for report in reports} == {201}
    until(lambda: here.shuffler.store.state(task.id) is RoundState.DELIVERED)
    opener = Opener(parties.analyzer, task.id, task.message_size, task.version)
    contents = [opener.open([message]).messages[0] for message in place.analyzer.messages(task.id.hex())]

    def distance(contents):
        positions = [at for at, content in enumerate(contents) if any(content)]
        assert len(positions) == 100
        return abs(np.mean(positions) - 99.5) / math.sqrt(201 / 12)

    assert distance(contents) < 5.2
    assert distance(sorted(contents)) > 5.2  # the dummies after all reports


def test_a_round_below_its_minimum_draws_nothing(place, serve, keys, served_round, until, monkeypatch):
    """Reports that do not open do not count; then there is no batch, and no draw."""
    task, form, reports = served_round("histogram/shuffler-laplace", [0] * 6, minimum=5)
    draws = []
    monkeypatch.setattr(mixtures, "sealed_dummies", lambda task, hop: draws.append(task) or iter(()))
    here = serve(round_keys=keys)
    bodies = [*reports[:4], *(report[:-1] + bytes([report[-1] ^ 1]) for report in reports[4:])]
    assert {here.post(form, report).status_code for report in bodies} == {201}
    until(lambda: here.shuffler.store.state(task.id) is RoundState.DESTROYED)
    assert draws == []
    assert place.analyzer.requests == []


def test_a_shuffler_stops_while_it_seals(parties, monkeypatch):
    task = augmented_task(parties, "histogram/shuffler-laplace", size=20)

    def stop():
        raise ShutdownError

    monkeypatch.setattr(dummies, "_AT_ONCE", 10)
    mixture = mixtures.ReportMixture(task, lambda: None, lambda: seal(task, [0] * 5), lambda body: body)
    blocks = mixture.blocks()
    next(blocks)
    next(blocks)
    mixture.proceed = stop
    with pytest.raises(ShutdownError):
        next(blocks)


def test_a_batch_without_a_message_is_drawn_again(place, serve, keys, served_round, until, monkeypatch):
    """Every report may be left out, and no dummy drawn; how often does not depend on the values."""
    task, form, reports = served_round("histogram/shuffler-geometric", [0] * 2)
    draws = iter([(), (), (b"x" * form.sealed_size,)])
    monkeypatch.setattr(mixtures, "sealed_dummies", lambda task, hop: iter(next(draws)))
    monkeypatch.setattr(mixtures, "kept_reports", lambda task: iter([False] * 100))
    here = serve(round_keys=keys)
    assert {here.post(form, report).status_code for report in reports} == {201}
    until(lambda: here.shuffler.store.state(task.id) is RoundState.DELIVERED)
    manifest = json.loads(place.analyzer.manifests[task.id.hex()])["batch"]
    assert (manifest["reports"], manifest["messages"]) == (2, 1)
    assert next(draws, None) is None
