"""From collecting to delivered, through every state, interruption and failure on the way."""

import math
import threading
import time
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from shuffledp.collection.server.scheduling import Retries
from shuffledp.collection.shuffler import rounds, shuffling
from shuffledp.collection.shuffler.delivery import Delivery, DeliveryError
from shuffledp.collection.shuffler.store.interface import Incoming, RoundState
from shuffledp.collection.shuffler.store.sqlite import SqliteStore
from shuffledp.collection.transport.connection import ServerUrl
from shuffledp.collection.wire.formats import Manifest, digest
from shuffledp.testing.statistics import ALPHA


class Clock:
    """The time, which can be moved."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fill(place, form, count: int) -> list[bytes]:
    """Put reports into the store, as if a server had accepted them."""
    reports = [place.report(form) for _ in range(count)]
    store = SqliteStore(place.folder / "store")
    store.open_round(form.task_id, maximum=10**6, tokens=False)
    store.accept([Incoming(form.task_id, form.report_id(each), each) for each in reports])
    store.close()
    return reports


def check_delivered(place, form, reports, here) -> None:
    """The analyzer has just these messages, in a signed batch, and here is nothing left."""
    name = form.task_id.hex()
    manifest = Manifest.verified(place.analyzer.manifests[name], place.key.public)
    assert manifest.reports == len(reports)
    assert Counter(place.analyzer.messages(name)) == Counter(place.messages_of(form, reports))
    assert here.shuffler.store.state(form.task_id) is RoundState.DELIVERED
    assert place.files() == set()


def delivered(here, form):
    return lambda: here.shuffler.store.state(form.task_id) is RoundState.DELIVERED


def test_a_round_closes_at_its_deadline(place, serve, clock, until):
    form = place.task(users=5)
    here = serve(clock=clock)
    reports = [place.report(form) for _ in range(20)]
    assert {here.post(form, each).status_code for each in reports} == {201}
    assert here.shuffler.store.state(form.task_id) is RoundState.COLLECTING
    assert place.analyzer.requests == []
    clock.ahead = 3601
    assert here.post(form, place.report(form)).status_code == 410
    until(delivered(here, form))
    until(lambda: not place.files())
    check_delivered(place, form, reports, here)
    assert here.post(form, reports[0]).status_code == 410


def test_a_small_round_is_destroyed(place, serve, clock, until):
    form = place.task(users=5)
    here = serve(clock=clock)
    reports = [place.report(form) for _ in range(4)]
    assert {here.post(form, each).status_code for each in reports} == {201}
    clock.ahead = 3601
    until(lambda: "rounds_below_minimum 1.0" in here.get("/metrics").text)
    clock.ahead += 3600
    until(lambda: here.shuffler.store.state(form.task_id) is RoundState.DESTROYED)
    until(lambda: not place.files())
    time.sleep(0.1)
    assert place.analyzer.requests == []
    everything = b"".join(each.read_bytes() for each in place.folder.rglob("*") if each.is_file())
    assert not any(message in everything for message in place.messages_of(form, reports))


def test_several_rounds_at_once(place, serve, clock, until):
    forms = [place.task(users=3, size=size, closes=closes) for size, closes in ((1, 100), (2, 200), (7, 200))]
    here = serve(clock=clock)
    reports = {form.task_id: [place.report(form) for _ in range(10)] for form in forms}
    for form in forms:
        assert {here.post(form, each).status_code for each in reports[form.task_id]} == {201}
    clock.ahead = 101
    until(delivered(here, forms[0]))
    assert here.shuffler.store.state(forms[1].task_id) is RoundState.COLLECTING
    clock.ahead = 201
    for form in forms:
        until(delivered(here, form))
    until(lambda: not place.files())
    for form in forms:
        check_delivered(place, form, reports[form.task_id], here)


def test_after_it_was_full_and_the_server_was_started_anew(place, serve, until):
    form = place.task(users=3, maximum=10)
    reports = fill(place, form, 10)
    here = serve()
    until(delivered(here, form))
    until(lambda: not place.files())
    check_delivered(place, form, reports, here)
    here.close()
    again = serve()
    assert again.shuffler.store.state(form.task_id) is RoundState.DELIVERED
    assert again.post(form, place.report(form)).status_code == 410
    assert len([each for each in place.analyzer.requests if each[0] == "PUT"]) == 2
    again.close()
    for each in (here, again):
        each.close = lambda: None


def test_an_analyzer_that_is_away_for_a_while(place, serve, until):
    form = place.task(users=3, opens=-7200, closes=-1)
    reports = fill(place, form, 10)
    place.analyzer.refuse = {"PUT": 503}
    here = serve()
    until(lambda: len(place.analyzer.requests) >= 3)
    assert here.shuffler.store.state(form.task_id) is RoundState.SHUFFLED
    assert not list((place.folder / "store").glob("round-*"))  # the batch is the truth, the reports are gone
    place.analyzer.refuse = {}
    until(delivered(here, form))
    until(lambda: not place.files())
    check_delivered(place, form, reports, here)


def test_an_analyzer_that_has_another_batch(place, serve, until):
    """It is not overruled, and the batch stays."""
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    place.analyzer.manifests[form.task_id.hex()] = b"another"
    here = serve()
    until(lambda: len(place.analyzer.requests) >= 3)
    assert {method for method, _ in place.analyzer.requests} == {"PUT"}
    assert here.shuffler.store.state(form.task_id) is RoundState.SHUFFLED
    assert len(place.files()) == 1


@pytest.mark.parametrize("receiver", ["analyzer", "next shuffler"])
def test_who_cannot_be_reached(receiver):
    batch = SimpleNamespace(manifest=SimpleNamespace(version=2, task_id=bytes(32)), signed=b"{}")
    delivery = Delivery("http://127.0.0.1:9", receiver=receiver)
    with pytest.raises(DeliveryError, match=f"to the {receiver} at http://127.0.0.1:9 was interrupted: .*refused"):
        delivery.deliver(batch)


@pytest.mark.parametrize("status", [403, 409, 410, 422])
def test_an_analyzer_that_refuses_until_somebody_acts(place, serve, until, status, monkeypatch):
    """It is said once, shown by a metric, and the batch is kept and delivered in the end."""
    form = place.task(users=3, opens=-7200, closes=-1)
    reports = fill(place, form, 10)
    place.analyzer.refuse = {"PUT": status}
    said = []
    monkeypatch.setattr(rounds, "event", lambda name, **fields: said.append((name, fields.get("reason", ""))))
    here = serve()
    until(lambda: len(place.analyzer.requests) >= 3)
    assert "shuffledp_shuffler_refused_batches 1.0" in here.get("/metrics").text
    assert [each for each in said if each[1]] == [("batch-refused", f"The analyzer answered {status} made-up.")]
    assert here.get("/readyz").status_code == 200
    place.analyzer.refuse = {}
    until(delivered(here, form))
    until(lambda: not place.files())
    check_delivered(place, form, reports, here)
    until(lambda: "shuffledp_shuffler_refused_batches 0.0" in here.get("/metrics").text)


def test_pauses_grow_and_are_longer_after_a_refusal(place, serve):
    scheduler = serve().shuffler.scheduler
    for failures, refused, longest in ((1, False, 0.04), (1, True, 0.04), (50, False, 300), (50, True, 3600)):
        scheduled = SimpleNamespace(retries=Retries(failures), refused=refused)
        assert 0.5 <= scheduler._pause_seconds(scheduled) / longest <= 1


@pytest.mark.parametrize(
    "answer",
    [
        {"state": "receiving", "missing": []},
        {"state": "receiving", "missing": [10**9]},
        {"state": "receiving", "missing": [True]},
        {"state": "receiving", "missing": ["0"]},
        {},
        {"state": "complete"},
        {"state": "complete", "missing": [0]},
        {"state": "complete", "missing": None},
        {"state": "complete", "missing": [], "manifest": "0" * 64},
        {"state": "complete", "missing": [], "manifest": None},
        {"state": ["complete"], "missing": []},
        {"state": "working", "missing": [0]},
        ["complete"],
        "complete",
    ],
)
def test_an_analyzer_that_talks_nonsense(place, serve, until, answer, monkeypatch):
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    mine = []

    def handle(_, __, body):
        mine.append(digest(body).hex())
        return 200, {"manifest": mine[0], **answer} if isinstance(answer, dict) else answer

    monkeypatch.setattr(place.analyzer, "handle", handle)
    here = serve()
    until(lambda: len(place.analyzer.requests) >= 3)
    assert here.shuffler.store.state(form.task_id) is RoundState.SHUFFLED
    assert len(place.files()) == 1


@pytest.mark.parametrize("state", ["released", "refused", "complete"])
def test_an_analyzer_that_has_it_all_already(place, serve, until, state, monkeypatch):
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    monkeypatch.setattr(
        place.analyzer,
        "handle",
        lambda _, __, body: (200, {"state": state, "manifest": digest(body).hex(), "missing": []}),
    )
    here = serve()
    until(delivered(here, form))
    assert len(place.analyzer.requests) == 1


def test_only_missing_chunks_are_sent(place, serve, until, monkeypatch):
    monkeypatch.setattr(shuffling, "_CHUNK_BYTES", 150)  # three messages
    form = place.task(users=3, size=4, opens=-7200, closes=-1)
    reports = fill(place, form, 10)
    name = form.task_id.hex()
    broken = Counter()

    def fail_at_the_fifth(method, path):
        if "/chunks/" in path:
            broken[path] += 1
            if len(broken) == 5 and sum(broken.values()) == 5:
                raise ConnectionError

    place.analyzer.before_answer = fail_at_the_fifth
    here = serve()
    until(delivered(here, form))
    until(lambda: not place.files())
    assert len(place.analyzer.manifest(name).chunks) == 14
    assert sorted(broken.values()) == [1] * 13 + [2]
    check_delivered(place, form, reports, here)


def test_a_batch_is_delivered_as_it_was_made(place, serve, until, monkeypatch):
    """A server that is started anew while the batch waits delivers the very same one."""
    form = place.task(users=3, opens=-7200, closes=-1)
    reports = fill(place, form, 10)
    place.analyzer.refuse = {"PUT": 503}
    here = serve()
    until(lambda: here.shuffler.store.state(form.task_id) is RoundState.SHUFFLED)
    note = here.shuffler.store.note(form.task_id)
    here.close()
    stale = place.folder / "work" / f"{form.task_id.hex()}.{'0' * 32}.batch"
    stale.write_bytes(b"of a permutation that did not make it")
    (place.folder / "work" / f".{form.task_id.hex()}.shuffled.partial").write_bytes(b"half of one")
    place.analyzer.refuse = {}
    again = serve()
    until(delivered(again, form))
    until(lambda: not place.files())
    assert place.analyzer.manifests[form.task_id.hex()] == note
    check_delivered(place, form, reports, again)
    here.close = lambda: None


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_batch_that_is_not_what_it_was(place, serve, until, harm):
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    place.analyzer.refuse = {"PUT": 503}
    here = serve()
    until(lambda: len(place.analyzer.requests) >= 1)
    here.close()
    (file,) = (place.folder / "work").glob("*.batch")
    content = bytearray(file.read_bytes())
    content[70] ^= 1
    file.write_bytes(content) if harm == "damaged" else file.unlink()
    place.analyzer.refuse = {}
    again = serve()
    if harm == "damaged":
        until(lambda: place.analyzer.manifests)
    time.sleep(0.2)
    assert bool(place.analyzer.manifests) == (harm == "damaged")
    assert not place.analyzer.chunks
    assert again.shuffler.store.state(form.task_id) is RoundState.SHUFFLED
    here.close = lambda: None


def test_messages_of_one_report_cannot_be_linked_by_position(place, serve, until):
    """Neighbours of one report: about Poisson with mean 4. Without shuffling there are nearly as many as messages."""
    form = place.task(users=3, maximum=1000, size=5, opens=-7200, closes=-1)
    reports = fill(place, form, 400)
    here = serve()
    until(delivered(here, form))
    owner = {message: place for place, each in enumerate(reports) for message in place_messages(form, each)}
    order = [owner[message] for message in place.analyzer.messages(form.task_id.hex())]
    mean = form.messages - 1
    assert tail(neighbours(order), mean) > ALPHA
    assert tail(neighbours(sorted(order)), mean) < ALPHA  # the planted fault
    assert order != sorted(order)


def place_messages(form, body):
    content = bytes(form.records(body))
    return [content[at : at + form.sealed_size] for at in range(0, len(content), form.sealed_size)]


def neighbours(order: list[int]) -> int:
    return sum(left == right for left, right in pairwise(order))


def tail(count: int, mean: float) -> float:
    """The chance of so many or more."""
    return 1.0 - sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(min(count, 100)))


HANGS_SECONDS = 500.0


def test_delivery_can_be_broken_off(place, serve, until, monkeypatch):
    """An analyzer that hangs does not keep the server from stopping."""
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    answering = threading.Event()
    place.analyzer.before_answer = lambda *_: answering.wait(HANGS_SECONDS)
    here = serve()
    until(lambda: place.analyzer.requests)
    here.close()  # which waits for less
    here.close = lambda: None
    answering.set()


def test_a_permutation_can_be_broken_off(place, serve):
    """What was begun leaves nothing behind, and the round stays closed."""
    form = place.task(users=3, opens=-7200, closes=-1)
    fill(place, form, 10)
    shuffler = place.shuffler()
    shuffler.store.close_round(form.task_id)
    known = shuffler.tasks.get(form.task_id.hex())
    round_shuffler = shuffling.RoundShuffler(shuffler.store, place.key, place.folder / "work", 1 << 24, lambda: True)
    with pytest.raises(shuffling.ShutdownError):
        round_shuffler.shuffle(known)
    assert place.files() == {f"round-{form.task_id.hex()}.db"}
    assert shuffler.store.state(form.task_id) is RoundState.CLOSED
    shuffler.close()


def test_memory_for_the_permutation_is_bounded(place, monkeypatch):
    """A round that is larger than the memory is shuffled through the disk."""
    form = place.task(users=3, maximum=10_000, size=8, opens=-7200, closes=-1)
    reports = fill(place, form, 2_000)
    shuffler = place.shuffler()
    shuffler.store.close_round(form.task_id)
    known = shuffler.tasks.get(form.task_id.hex())
    round_shuffler = shuffling.RoundShuffler(shuffler.store, place.key, place.folder / "work", 1 << 17)
    round_shuffler.shuffle(known)
    batch = round_shuffler.batch(known)
    content = b"".join(batch.chunk(index) for index in range(len(batch.manifest.chunks)))
    mixed = [content[at : at + form.sealed_size] for at in range(0, len(content), form.sealed_size)]
    before = place.messages_of(form, reports)
    assert mixed != before
    assert Counter(mixed) == Counter(before)
    shuffler.close()


def test_addresses_with_a_path():
    with Delivery("https://analyzer.example/sub/")._connect() as connection:
        assert connection._parts == ServerUrl("https", "analyzer.example", None, "/sub")
