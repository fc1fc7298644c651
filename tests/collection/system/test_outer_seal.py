"""Rounds of wire version 2: what a copy of the shuffler's store links, when the round key is gone, and kills."""

import json
import shutil
from collections import Counter

import pytest

from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.wire.formats import HEADER_SIZE
from shuffledp.collection.wire.keys import SealingKey, to_base64
from shuffledp.collection.wire.outer_seal import ReportOpener

SERVERS = ("analyzer", "shuffler")
NORMAL, MANY = 2, 204
NEVER_RELEASE = """
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
ReleaseScheduler._release_complete = lambda self: None  # so that the batch stays to be looked at
"""
NEVER_CLOSE = """
from shuffledp.collection.shuffler.rounds import RoundScheduler
async def wait(self, scheduled, record):
    await self._wait(scheduled, 0.05)
RoundScheduler._collect = wait
"""
OPENED_AT_INTAKE = """
from shuffledp.collection.shuffler import commit_queue
from shuffledp.collection.wire.formats import HEADER_SIZE
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.outer_seal import ReportOpener
from dataclasses import replace
from pathlib import Path
key = SealingKey.load(next((Path(folder) / "round-keys").glob("*.key")))
submit = commit_queue.CommitQueue.submit

def open_first(self, incoming):
    opener = ReportOpener(key, header_size=HEADER_SIZE, report_size=len(incoming.body))
    return submit(self, replace(incoming, body=incoming.body[:HEADER_SIZE] + opener.open(incoming.body)))

commit_queue.CommitQueue.submit = open_first
"""
KEY_BEFORE_SHUFFLED = """
shuffle = shuffling.RoundShuffler._permute

def destroy_early(self, served):
    batch = shuffle(self, served)
    self.destroy_key(served)
    die_once()
    return batch

shuffling.RoundShuffler._permute = destroy_early
"""
KEY_AFTER_DELIVERY = """
from shuffledp.collection.shuffler.delivery import Delivery
destroy, deliver, delivered = shuffling.RoundShuffler.destroy_key, Delivery.deliver, []
shuffling.RoundShuffler.destroy_key = lambda self, served: destroy(self, served) if delivered else None

def deliver_first(self, batch):
    answer = deliver(self, batch)
    delivered.append(batch)
    return answer

Delivery.deliver = deliver_first
"""
COPY_OF_THE_KEY = """
from pathlib import Path
from shuffledp.collection.server.round_keys import RoundKeyDirectory
load = RoundKeyDirectory.load

def load_and_copy(self, public, **options):
    Path(folder, "reports", "copy").write_bytes(self.file(public).read_bytes())
    return load(self, public, **options)

RoundKeyDirectory.load = load_and_copy
"""
LOOK_FOR_THE_KEY = """
from pathlib import Path
from shuffledp.collection.server.batches import Batches
put = Batches.put_manifest

def look_first(self, manifest, content):
    if any((Path(folder) / "round-keys").glob("*.key")):
        Path(folder, "key-at-delivery").touch()
    return put(self, manifest, content)

Batches.put_manifest = look_first
"""
"""What an analyzer sees at the first moment at which it could use the key of a colluding shuffler."""


def stored(here, until, fault=""):
    """A copy of what the shuffler has on its disks while it collects, without the round key; then the batch."""
    users = range(here.users - 1)  # so that the round is not full
    shuffler = here.start("shuffler", fault=fault + NEVER_CLOSE)
    try:
        here.send(users)
        assert len(here.acknowledged) == here.users - 1
        copy = b"".join(
            file.read_bytes()
            for folder in ("reports", "shuffler")
            for file in sorted((here.directory / folder).rglob("*"))
            if file.is_file()
        )
    finally:
        shuffler.terminate()
        shuffler.join(60)
    return copy


def linked(here, copy):
    """How many reports have a message in the copy: the analyzer finds the same bytes in the batch, shuffled."""
    return sum(any(message in copy for message in here.sealed[report]) for report in range(here.users - 1))


def test_a_copy_of_the_store_links_no_report(new_outer_round, new_round, until):
    """All of version 1, none of version 2; all again if the shuffler opened reports as they arrive."""
    first, second, faulty = new_round(), new_outer_round(), new_outer_round()
    assert linked(first, stored(first, until)) == first.users - 1
    copy = stored(second, until)
    assert linked(second, copy) == 0
    assert all(report in copy for report in second.reports[: second.users - 1])
    assert linked(faulty, stored(faulty, until, OPENED_AT_INTAKE)) == faulty.users - 1


def delivered(here, until, fault=""):
    """The messages of the batch that the analyzer got, which releases nothing."""
    analyzer = here.start("analyzer", fault=NEVER_RELEASE + LOOK_FOR_THE_KEY)
    shuffler = here.start("shuffler", fault=fault)
    try:
        here.send(range(len(here.reports) - here.users, len(here.reports)))
        until(lambda: here.look() == "opening" and not here.left_over(), what="delivery")
    finally:
        for each in (shuffler, analyzer):
            each.terminate()
            each.join(60)
    folder = here.directory / "analyzer" / "batches" / here.name
    manifest = json.loads((folder / "manifest").read_bytes())["batch"]
    content = b"".join((folder / f"{index}.chunk").read_bytes() for index in range(len(manifest["chunks"])))
    size = here.form.sealed_size
    return manifest, [content[at : at + size] for at in range(0, len(content), size)]


def test_only_the_messages_are_delivered_and_the_key_is_gone_before(new_outer_round, until):
    here = new_outer_round()
    spare = here.directory / "copy-of-the-key"
    shutil.copytree(here.directory / "round-keys", spare)
    manifest, messages = delivered(here, until)
    opened = sorted(here.acknowledged)
    assert Counter(messages) == Counter(message for report in opened for message in here.sealed[report])
    assert (manifest["version"], manifest["hop"], manifest["previous"]) == (2, 0, None)
    assert manifest["unopenable"] == 0
    assert not (here.directory / "key-at-delivery").exists()
    assert not here.exists_key()
    key = SealingKey.load(next(spare.glob("*.key")))
    opener = ReportOpener(key, header_size=HEADER_SIZE, report_size=here.form.size)
    assert opener.open(here.reports[opened[0]]) == b"".join(here.sealed[opened[0]])  # who kept the key could


def copies_of_the_key(here, until, fault=""):
    """The files that have the private round key after the round, in any directory of any party."""
    (file,) = (here.directory / "round-keys").glob("*.key")
    key = SealingKey.load(file)
    delivered(here, until, fault)
    forms = (key.secret, to_base64(key.secret).encode(), key.secret.hex().encode())
    files = [file for file in here.directory.rglob("*") if file.is_file()]
    return [file.name for file in files if any(form in file.read_bytes() for form in forms)]


def test_no_copy_of_the_key_is_left(new_outer_round, until):
    """Not in the store, in the work directory, in a log; a shuffler that writes one is found out."""
    assert copies_of_the_key(new_outer_round(), until) == []
    assert copies_of_the_key(new_outer_round(), until, COPY_OF_THE_KEY) == ["copy"]


def test_a_key_that_outlives_the_delivery_is_seen(new_outer_round, until):
    here = new_outer_round()
    delivered(here, until, KEY_AFTER_DELIVERY)
    assert (here.directory / "key-at-delivery").exists()


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_nothing_is_lost_or_counted_twice_and_no_key_is_left(new_outer_round, schedules, rounds):
    """As for version 1; the round key counts as left over, and may not exist when the batch is delivered."""
    kills: Counter = Counter()
    for _ in range(rounds):
        here = new_outer_round()
        fates = {each: schedules.random_fates(each) for each in SERVERS}
        kills += schedules.play(here, fates, fault=LOOK_FOR_THE_KEY)
        assert not (here.directory / "key-at-delivery").exists()
    assert kills.total() >= rounds - 1  # of one alone, all may come too late
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


def test_a_key_that_is_destroyed_before_the_round_is_shuffled_is_seen(new_outer_round, until):
    """Killed at that moment, the round is lost: its reports stay, and nobody can open them."""
    here = new_outer_round()
    here.start("analyzer")
    here.start("shuffler", fault=KEY_BEFORE_SHUFFLED)
    here.send(range(here.users))
    until(lambda: (here.directory / "shuffler.log.died").exists(), what="the kill")
    here.start("shuffler", fault=KEY_BEFORE_SHUFFLED)
    until(lambda: any(event["event"] == "keyless" for event in here.events("shuffler")), what="the alarm")
    assert list((here.directory / "reports").glob("round-*"))
    assert here.look() == "waiting"


def test_a_missing_key_destroys_nothing(new_outer_round, until):
    """The operator is told, nothing is deleted, and the round goes on once the key is back."""
    here = new_outer_round()
    keys = here.directory / "round-keys"
    here.start("analyzer")
    here.start("shuffler")
    here.send(range(10))
    (hidden := here.directory / "hidden").mkdir()
    (file,) = keys.glob("*.key")
    file.rename(hidden / file.name)
    until(lambda: any(event["event"] == "keyless" for event in here.events("shuffler")), what="the first alarm")
    here.send(range(10, here.users))
    until(lambda: any("put " in event.get("reason", "") for event in here.events("shuffler")), what="the second alarm")
    assert list((here.directory / "reports").glob("round-*"))
    assert here.look() == "waiting"
    (hidden / file.name).rename(file)
    until(lambda: here.look() == "released" and not here.left_over(), what="the release")
    assert RoundKeyDirectory(keys).has(here.form.round_key) is False
