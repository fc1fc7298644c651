"""Batches with carriers at the analyzer: their minimum is enforced here too, and estimates use their number."""

import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from shuffledp.collection.analyzer.counting import Counted, count_messages, pieces_of
from shuffledp.collection.analyzer.estimating import NotReleasedError, estimate_round
from shuffledp.collection.analyzer.overview import running_overview
from shuffledp.collection.device.client import _randomized
from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HopCounts, Manifest, digest
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import ParameterError
from shuffledp.messages import Messages

USERS = 300
TRUTH = [120, 90, 60, 30]


@pytest.fixture(scope="module")
def task(shared_collection):
    wire = WireVersion2((ShufflerKeys(shared_collection.shuffler.public, SealingKey.create().public),))
    return shared_collection.task(
        "histogram/correlated-noise", users=USERS, settings={"carriers": 0.4}, delta=1e-3, wire=wire, publish=False
    )


def drawn(task, values):
    """The messages of each user, and how many a report of its length has."""
    return [(sent, count) for count, sent in (_randomized(task, value) for value in values)]


def counted_of(task, reports, rejected=0):
    values = np.concatenate([sent for sent, _ in reports])
    tally = task.protocol.tally(Messages(values, 0))
    dummies = sum(count for _, count in reports) - len(values)
    return Counted(tally, len(values), dummies, Counter({"cannot-be-opened": rejected} if rejected else {}))


def manifest_of(task, carriers, reports=USERS):
    messages = reports + carriers * (task.max_messages_per_report - 1)
    counts = HopCounts(carriers=carriers)
    return Manifest(task.id, reports, messages, task.sealed_size, messages, (bytes(32),), counts)


def test_the_minimum_is_enforced_whatever_the_shuffler_signed(shared_collection, task, monkeypatch):
    minimum = task.carriers.minimum
    assert 20 < minimum < 120
    expected = ExpectedBatch.of_last(task)
    for carriers in (minimum, USERS):
        signed = manifest_of(task, carriers).signed(shared_collection.shuffler)
        assert len(signed) <= expected.max_manifest_bytes
        assert expected.read(signed).carriers == carriers
    few = manifest_of(task, minimum - 1).signed(shared_collection.shuffler)
    with pytest.raises(ParameterError, match=f"{minimum - 1} carriers cannot be released"):
        expected.read(few)
    monkeypatch.setattr(type(task.carriers), "minimum", 1, raising=False)  # the planted fault
    object.__delattr__(task.carriers, "minimum")
    try:
        assert expected.read(few).carriers == minimum - 1
    finally:
        object.__setattr__(task.carriers, "minimum", minimum)


def test_estimates_use_the_number_of_carriers(task):
    reports = drawn(task, np.repeat(np.arange(4), TRUTH))
    carriers = sum(count > 1 for _, count in reports)
    counted = counted_of(task, reports)
    result = estimate_round(task, counted, USERS, carriers=carriers)
    assert result.estimate.guarantee.delta == task.delta
    assert result.estimate.counts.sum() == pytest.approx(USERS)
    assert np.abs(result.estimate.counts - TRUTH).max() < 60
    expected = task.predicted_error(USERS, carriers=carriers).rmse
    assert result.estimate.standard_errors == pytest.approx([expected] * 4)
    twice = estimate_round(task, counted, USERS, carriers=2 * carriers)
    assert twice.estimate.standard_errors == pytest.approx([expected * 2**0.5] * 4)
    widths = [np.ptp(each.estimate.intervals(0.95), axis=1) for each in (result, twice)]
    assert (widths[1] > 1.2 * widths[0]).all()


@pytest.mark.slow
def test_measured_errors_are_those_of_the_carriers(task):
    """300 rounds of real reports, unsealed: mean squared errors, level 1e-6 by the spread of the squares."""
    squares, predicted = [], []
    values = np.repeat(np.arange(4), TRUTH)
    for _ in range(300):
        reports = drawn(task, values)
        carriers = sum(count > 1 for _, count in reports)
        estimate = estimate_round(task, counted_of(task, reports), USERS, carriers=carriers).estimate
        squares.append(np.mean((estimate.counts - TRUTH) ** 2))
        predicted.append(estimate.standard_errors[0] ** 2)
    spread = np.std(squares) / len(squares) ** 0.5
    assert abs(np.mean(squares) - np.mean(predicted)) < 6 * spread
    assert abs(np.mean(squares) - 1.5 * np.mean(predicted)) > 6 * spread  # 22 % more noise would be noticed


def test_rejected_reports_of_carriers_do_not_count(task):
    """Whole reports of rejected messages are left out; a few rejected messages change nothing."""
    reports = drawn(task, np.repeat(np.arange(4), TRUTH))
    minimum, longest = task.carriers.minimum, task.max_messages_per_report
    few = estimate_round(task, counted_of(task, reports, rejected=longest - 1), USERS, carriers=minimum)
    assert few.users == USERS
    with pytest.raises(NotReleasedError, match=f"at most {minimum - 1} carriers; the guarantee requires {minimum}"):
        estimate_round(task, counted_of(task, [*reports, *reports], rejected=longest), USERS + 1, carriers=minimum)


def test_a_batch_is_released_over_http(collection, serve):
    """From sealed reports of two lengths to the release; one with too few carriers is not even begun."""
    wire = WireVersion2((ShufflerKeys(collection.shuffler.public, SealingKey.create().public),))
    task = collection.task(
        "histogram/correlated-noise", users=40, settings={"carriers": 0.5}, epsilon=2.0, delta=1e-2, wire=wire
    )
    collection.budgets(people=(10.0, 0.1))
    client = serve()
    reports = drawn(task, [0] * 40)
    while sum(count > 1 for _, count in reports) < task.carriers.minimum:  # hardly ever
        reports = drawn(task, [0] * 40)
    carriers = sum(count > 1 for _, count in reports)
    sealer = Sealer(task.analyzer, task.id, task.message_size, 2)
    form = task.protocol.message_format
    sealed = [each for sent, count in reports for each in sealer.seal(map(bytes, form.pack(sent)), count)]
    content = b"".join(sealed)
    numbers = (task.id, 40, len(sealed), task.sealed_size, len(sealed), (digest(content),))
    path = f"/v2/batches/{task.id.hex()}"
    few = Manifest(*numbers, HopCounts(carriers=carriers - 1)).signed(collection.shuffler)
    assert client.put(path, few).status == 422
    below = manifest_of(task, task.carriers.minimum - 1, 40).signed(collection.shuffler)
    assert client.put(path, below).status == 422
    assert client.get(path).status == 404
    assert client.put(path, Manifest(*numbers, HopCounts(carriers=carriers)).signed(collection.shuffler)).status == 201
    scheduler = SimpleNamespace(failures=lambda _: (0, None))
    (entry,) = running_overview(client.analyzer, scheduler)["rounds"]
    assert (entry["reports"], entry["carriers"]) == (40, carriers)
    assert entry["predicted_error"]["rmse"] == pytest.approx(task.predicted_error(40, carriers=carriers).rmse)
    assert client.put(f"{path}/chunks/0", content).status == 201
    deadline = time.monotonic() + 60
    while client.get(path).json()["state"] != "released":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    document = client.get(f"/v1/releases/{task.id.hex()}").json()
    assert document["reports"] == 40
    expected = task.predicted_error(40, carriers=carriers).rmse
    assert document["standard_errors"] == pytest.approx([expected] * 4)


def test_pieces_of_long_batches(collection, task, tmp_path):
    """Counting does not depend on who sent how many."""
    sealer = Sealer(collection.analyzer.public, task.id, task.message_size, 2)
    own = task.protocol.message_format.pack(np.array([[2, 0]]))[0].tobytes()
    sealed = sealer.seal([own], 1) + sealer.seal([own] * 3, 9)
    file = tmp_path / "chunk"
    file.write_bytes(b"".join(sealed))
    counted = count_messages(task, collection.analyzer, list(pieces_of(task, [(file, file.stat().st_size)])))
    assert (counted.messages, counted.dummies) == (4, 6)
    assert counted.tally.counts[4] == 4
