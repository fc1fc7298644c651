"""Rounds of two shufflers in a chain: kills of all three servers, what links a batch to the one before, faults."""

import json
from collections import Counter

import numpy as np
import pytest

from shuffledp.collection.wire.formats import digest

SERVERS = ("analyzer", "shuffler", "shuffler-2")
NORMAL, MANY = 2, 96
KEEP_BATCHES = """
from pathlib import Path
from shuffledp.collection.server.batches import Batches
put, store = Batches.put_manifest, Batches._store_chunk
kept = Path(folder, "kept")
kept.mkdir(exist_ok=True)

def put_and_keep(self, manifest, content):
    (kept / f"{manifest.counts.hop}.manifest").write_bytes(content)
    return put(self, manifest, content)

def store_and_keep(self, task_id, index, content):
    hop = self.manifest(task_id).counts.hop
    (kept / f"{hop}.{index}").write_bytes(content)
    return store(self, task_id, index, content)

Batches.put_manifest, Batches._store_chunk = put_and_keep, store_and_keep
"""
"""Somebody between the servers keeps the batches that pass."""
NO_PERMUTATION = """
from shuffledp.collection.shuffler import shuffling as shuffling_module

def keep_order(blocks, record_size, out, **settings):
    content = b"".join(blocks)
    out.write_bytes(content)
    return len(content) // record_size

shuffling_module.permute_file = keep_order
"""


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 12, id=f"many-{i}", marks=pytest.mark.slow) for i in range(12)],
)
def test_nothing_is_lost_or_counted_twice_and_no_key_is_left(new_chain_round, schedules, rounds):
    kills: Counter = Counter()
    for _ in range(rounds):
        fates = {each: schedules.random_fates(each.partition("-")[0]) for each in SERVERS}
        kills += schedules.play(new_chain_round(), fates)
    assert kills.total() >= rounds - 1
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


def test_a_hybrid_chain(new_hybrid_round, schedules):
    """Reports, layers and key files of the hybrid suite pass all servers, under kills; no key is left."""
    fates = {each: schedules.random_fates(each.partition("-")[0]) for each in SERVERS}
    here = new_hybrid_round()
    assert here.task.task.record_size(0) == here.task.task.sealed_size + 1136
    assert schedules.play(here, fates)


def passed(here, schedules, fault=""):
    """The messages that passed between the servers, by hop, and the manifests."""
    schedules.play(here, {}, fault=KEEP_BATCHES + fault)
    kept, task = here.directory / "kept", here.task.task
    manifests = [(kept / f"{hop}.manifest").read_bytes() for hop in range(2)]
    batches = []
    for hop, content in enumerate(manifests):
        chunks = len(json.loads(content)["batch"]["chunks"])
        content = b"".join((kept / f"{hop}.{index}").read_bytes() for index in range(chunks))
        size = task.record_size(hop)
        batches.append([content[at : at + size] for at in range(0, len(content), size)])
    return manifests, batches


def order_of(here, messages):
    """The reports in the order of the first of their messages in the batch of the last shuffler."""
    place = {message: index for index, message in enumerate(messages)}
    return [min(place[each] for each in here.sealed[report]) for report in sorted(here.acknowledged)]


def test_the_second_batch_has_nothing_in_common_with_the_first(new_chain_round, schedules):
    """The first shuffler cannot recognize its messages: all bytes are others, and the order says nothing."""
    here = new_chain_round()
    manifests, (first, second) = passed(here, schedules)
    assert not {message[-16:] for message in first} & {message[-16:] for message in second}
    assert not any(inner in outer for inner in second[:50] for outer in first)
    assert Counter(second) == Counter(message for report in here.acknowledged for message in here.sealed[report])
    batch = json.loads(manifests[1])["batch"]
    assert batch["previous"] == digest(manifests[0]).hex()
    names = ("hop", "unopenable", "repeated", "traps", "reports")
    assert [batch[name] for name in names] == [1, 0, 0, 0, here.users]


def correlation(here, schedules, fault=""):
    """Of the order in which messages leave the first and the second shuffler, in standard deviations."""
    _, (_, second) = passed(here, schedules, KEEP_LAYERS + fault)
    lines = (here.directory / "layers").read_text().split()
    inner = dict(line.split(":") for line in lines)
    before = [int(inner[message.hex()]) for message in second]
    positions = np.argsort(np.argsort(before))
    return abs(np.corrcoef(positions, np.arange(len(positions)))[0, 1]) * np.sqrt(len(positions) - 1)


KEEP_LAYERS = """
from shuffledp.collection.wire.layers import LayerOpener
opened, open_layer, numbers = [], LayerOpener.open, iter(range(10**9))

def open_and_keep(self, message):
    content = open_layer(self, message)
    with open(Path(folder, "layers"), "a") as file:
        file.write(f"{content.hex()}:{next(numbers)} ")
    return content

LayerOpener.open = open_and_keep
"""


def test_a_shuffler_that_does_not_permute_is_seen(new_chain_round, schedules):
    """Rank correlation of the orders of several hundred messages: below 5.2 standard deviations, alpha = 2e-7."""
    assert correlation(new_chain_round(), schedules) < 5.2
    assert correlation(new_chain_round(), schedules, NO_PERMUTATION) > 5.2
