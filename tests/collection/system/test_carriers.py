"""Rounds with carriers: kills, positions of messages in the batch, and the minimum at each server alone."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import shuffledp as sdp
from shuffledp.collection.device.simulation import Devices
from shuffledp.collection.rehearsal import Rehearsal
from shuffledp.collection.transport.connection import Connection
from shuffledp.testing.statistics import ALPHA, p_value

SERVERS = ("analyzer", "shuffler")
NORMAL, MANY = 1, 96
NEVER_RELEASE = """
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
ReleaseScheduler._release_complete = lambda self: None  # so that the batch stays to be looked at
"""
CARRIERS_LAST = """
def carriers_last(blocks, size, out, **_):
    import random
    content = b"".join(blocks)
    messages = [content[at : at + size] for at in range(0, len(content), size)]
    random.shuffle(messages)
    singles = {bytes(each) for each in lone}
    messages.sort(key=lambda each: each not in singles)
    out.write_bytes(b"".join(messages))
    return len(messages)

_open = shuffling.ReportOpener.open
lone = []

def noting(self, report):
    content = _open(self, report)
    if content is not None and len(content) < 100:
        lone.append(content)
    return content

shuffling.ReportOpener.open = noting
shuffling.permute_file = carriers_last
"""
"""A fault: all messages are shuffled, but those of carriers come last."""
REPORTS_ONLY = """
def reports_only(blocks, size, out, **_):
    content = b"".join(blocks)
    out.write_bytes(content)
    return len(content) // size
shuffling.permute_file = reports_only
"""
NO_MINIMUM_AT_THE_SHUFFLER = """
from shuffledp.collection.wire.formats import Manifest
Manifest.check_task = lambda self, task, hop=None: None
permute = shuffling.RoundShuffler._permute

def careless(self, served):
    object.__setattr__(served.task.wire.carriers, "minimum", 0)
    return permute(self, served)

shuffling.RoundShuffler._permute = careless
"""
NO_MINIMUM_AT_THE_ANALYZER = """
from shuffledp.collection.server.batches import ExpectedBatch
read = ExpectedBatch.read

def careless(self, content):
    object.__setattr__(self.task.wire.carriers, "minimum", 0)
    return read(self, content)

ExpectedBatch.read = careless
"""


@pytest.mark.parametrize(
    "rounds",
    [pytest.param(1, id=f"{i}") for i in range(NORMAL)]
    + [pytest.param(MANY // 8, id=f"many-{i}", marks=pytest.mark.slow) for i in range(8)],
)
def test_nothing_is_lost_or_counted_twice(new_carrier_round, schedules, rounds):
    """Both servers are killed at random moments; every report counts once, and the number of carriers is right."""
    kills: Counter = Counter()
    for _ in range(rounds):
        here = new_carrier_round()
        kills += schedules.play(here, {each: schedules.random_fates(each) for each in SERVERS})
        told = {event["carriers"] for event in here.events("shuffler") if event["event"] == "shuffled"}
        accepted = sum(place % 2 for place in here.acknowledged)
        assert len(told) <= 1  # none, if it was killed before it could say so
        assert all(abs(carriers - accepted) <= len(here.reports) - here.users for carriers in told)
    assert kills.total() >= rounds - 1
    print(f"{rounds} schedules, {kills.total()} kills: {dict(kills)}")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [pytest.param(6, id=f"many-{i}") for i in range(4)])
def test_nothing_is_lost_on_a_shared_database(new_shared_carrier_round, schedules, rounds):
    """Two shufflers on PostgreSQL, which has both lengths in one table."""
    names = ("analyzer", "shuffler-1", "shuffler-2")
    kills: Counter = Counter()
    for _ in range(rounds):
        fates = {each: schedules.random_fates(each, most_kills=3) for each in names}
        kills += schedules.play(new_shared_carrier_round(), fates)
    assert kills.total() >= rounds - 1


def delivered(here, until, fault=""):
    """The manifest and, by message, its position in the batch."""
    analyzer, shuffler = here.start("analyzer", fault=NEVER_RELEASE), here.start("shuffler", fault=fault)
    try:
        here.send(range(here.users))
        until(lambda: here.look() == "opening" and not here.left_over(), what="delivery")
    finally:
        for each in (shuffler, analyzer):
            each.terminate()
            each.join(60)
    folder = here.directory / "analyzer" / "batches" / here.name
    manifest = json.loads((folder / "manifest").read_bytes())["batch"]
    content = b"".join((folder / f"{index}.chunk").read_bytes() for index in range(len(manifest["chunks"])))
    size = here.form.sealed_size
    return manifest, {content[at : at + size]: at // size for at in range(0, len(content), size)}


def linked(here, places):
    """The least p-value of the ways to tell messages of carriers and others apart, times their number."""
    total, parts = len(places), 8
    edges = np.linspace(0, total, parts + 1).astype(int)
    chances = np.diff(edges) / total
    single = [places[here.sealed[report][0]] for report in range(0, here.users, 2)]
    carried = [[places[message] for message in here.sealed[report]] for report in range(1, here.users, 2)]
    of_one = p_value(np.histogram(single, edges)[0], chances)
    of_carriers = p_value(np.histogram(np.concatenate(carried), edges)[0], chances)
    distances = np.concatenate([np.diff(each) for each in carried]) % total
    near = p_value(np.histogram(distances, [1, 13, total])[0], np.array([12, total - 13]) / (total - 1))
    return 3 * min(of_one, of_carriers, near)


@pytest.mark.parametrize(
    ("fault", "links"),
    [("", False), (CARRIERS_LAST, True), (REPORTS_ONLY, True)],
    ids=["real", "carriers-last", "as-sent"],
)
def test_messages_of_carriers_cannot_be_told_from_others_by_position(new_carrier_round, until, fault, links):
    here = new_carrier_round()
    manifest, places = delivered(here, until, fault)
    carriers = here.users // 2
    assert (manifest["reports"], manifest["carriers"]) == (here.users, carriers)
    assert len(places) == manifest["messages"] == carriers + carriers * here.form.carrier_messages
    assert (linked(here, places) < ALPHA) == links


def begin_with_few(here, until, *, shuffler="", analyzer=""):
    """A full round with one carrier fewer than the task requires."""
    minimum = here.task.task.carriers.minimum
    carriers = list(range(1, len(here.reports), 2))[: minimum - 1]
    others = range(0, len(here.reports), 2)
    needed = here.users - len(carriers) - len(others)
    sealer_form = here.form
    more = []
    for _ in range(needed):  # the rest repeat the message of the first report, under ids of their own
        more.append(sealer_form.build(np.random.bytes(16), here.sealed[0]))
    here.reports += more
    here.tokens += [None] * len(more)
    here.start("analyzer", fault=analyzer)
    here.start("shuffler", fault=shuffler)
    here.send([*carriers, *others, *range(len(here.reports) - len(more), len(here.reports))])


def test_the_shuffler_enforces_the_minimum(new_carrier_round, until):
    here = new_carrier_round()
    begin_with_few(here, until)
    until(lambda: any(event["event"] == "destroyed" for event in here.events("shuffler")), what="the end")
    told = {event["event"]: event for event in here.events("shuffler")}
    assert told["too-few-carriers"]["carriers"] == here.task.task.carriers.minimum - 1
    assert "delivered" not in told
    assert here.look() == "waiting"


def test_the_analyzer_enforces_the_minimum_on_its_own(new_carrier_round, until):
    """A shuffler that does not look delivers a batch that the analyzer refuses; if neither looks, it is taken."""
    here = new_carrier_round()
    begin_with_few(here, until, shuffler=NO_MINIMUM_AT_THE_SHUFFLER)
    until(lambda: any(event["event"] == "batch-refused" for event in here.events("shuffler")), what="the refusal")
    assert here.look() == "waiting"
    both = new_carrier_round()
    begin_with_few(both, until, shuffler=NO_MINIMUM_AT_THE_SHUFFLER, analyzer=NO_MINIMUM_AT_THE_ANALYZER)
    until(lambda: any(event["event"] == "delivered" for event in both.events("shuffler")), what="the delivery")


@pytest.mark.slow
def test_a_round_of_devices_from_end_to_end(tmp_path):
    """Simulated devices toss their coins, both servers run, and the release has the errors of its carriers."""
    truth = [250, 150, 100]
    here = Rehearsal.prepare(
        tmp_path,
        kind=sdp.find("histogram", "correlated-noise"),
        settings={"users": 500, "domain_size": 3, "carriers": 0.4},
        epsilon=1.0,
        delta=1e-4,
        version=2,
    )
    task, values = here.task.task, np.repeat(np.arange(3), truth).tolist()
    with here.servers():
        Devices(task, values, connect=lambda: Connection(here.shuffler_url)).report()
        document = here.release()
    lines = map(json.loads, (tmp_path / "shuffler.log").read_text().splitlines())
    (shuffled,) = (line for line in lines if line.get("event") == "shuffled")
    carriers = shuffled["carriers"]
    chance = stats.binom.cdf(carriers, 500, 0.4)
    assert 1e-7 < chance < 1 - 1e-7
    assert shuffled["messages"] == 500 + carriers * (task.max_messages_per_report - 1)
    error = task.predicted_error(500, confidence=0.999999, carriers=carriers)
    assert document["standard_errors"] == pytest.approx([error.rmse] * 3)
    assert np.abs(np.array(document["counts"]) - truth).max() <= error.max_error
    messages = document["messages"]
    assert messages["counted"] + messages["dummies"] == shuffled["messages"]
    assert document["guarantee"]["delta"] == 1e-4
