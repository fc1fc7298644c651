"""Releases of augmented rounds: users, dishonest devices, batches that do not fit, what is published, the ledger."""

import html
import json
import secrets
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.analyzer.estimating import SHUFFLER_LEARNS, NotReleasedError, estimate_round
from shuffledp.collection.analyzer.ledger import Ledger, spent_in
from shuffledp.collection.analyzer.publishing import release_document, release_page
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.batches import ExpectedBatch
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HopCounts, Manifest
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import least_epsilon

NAMES = ("histogram/shuffler-laplace", "histogram/shuffler-geometric", "count/shuffler-laplace")
USERS, MORE = 200, 30
BUDGET = PopulationBudget(100.0, 1e-4)


def augmented(collection, name, **changes):
    wire = WireVersion2((ShufflerKeys(collection.shuffler.public, SealingKey.create().public),))
    return collection.task(name, users=USERS, publish=False, wire=wire, **changes)


@pytest.fixture(scope="module", params=NAMES)
def task(request, shared_collection):
    return augmented(shared_collection, request.param)


def honest_tally(task):
    """What the shuffler makes of the values of all users but one."""
    size = task.protocol.message_format.codes
    values = np.random.default_rng().integers(size, size=USERS + MORE - 1)
    return task.protocol.sample_tally(np.bincount(values, minlength=size)).counts


def estimates(task, counts, **changes):
    counted = Counted(Tally(counts, 0), int(counts.sum()), **{"dummies": 0, **changes})
    result = estimate_round(task, counted, USERS + MORE)
    return np.atleast_1d(result.estimate.counts if hasattr(result.estimate, "counts") else result.estimate.value)


def test_one_device_moves_a_count_by_one(task):
    """Whatever it sends, any category, a dummy, garbage, a copy; or nothing that the shuffler's sample keeps."""
    counts, size = honest_tally(task), task.protocol.message_format.codes
    anything = [estimates(task, counts + np.eye(size, dtype=np.int64)[index]) for index in range(size)]
    anything += [estimates(task, counts, dummies=1)]
    anything += [estimates(task, counts, rejected=Counter({reason: 1})) for reason in ("malformed", "repeated")]
    if task.protocol.shuffler_keeps.fraction < 1:
        anything += [estimates(task, counts)]
    keeps = float(task.protocol.shuffler_keeps)
    moved = np.ptp(np.array(anything), axis=0).max()
    assert moved <= 1 / keeps + 1e-9
    assert task.protocol.moved_by_report(1) == pytest.approx(1 / keeps)
    twice = counts + 2 * np.eye(size, dtype=np.int64)[0]  # planted: a device that is counted twice
    if keeps == 1 and task.protocol.question == "histogram":
        assert np.abs(estimates(task, twice) - anything[1]).max() > 1 + 1e-9
    elif keeps == 1:
        with pytest.raises(NotReleasedError, match="dummies make"):
            estimates(task, twice)


def test_users_are_the_reports_that_opened(task):
    counts = honest_tally(task)
    counted = Counted(Tally(counts, 0), int(counts.sum()), 2, Counter({"malformed": 3}))
    result = estimate_round(task, counted, USERS + MORE + 4)
    assert result.users == USERS + MORE - 1
    with pytest.raises(NotReleasedError, match="the guarantee requires 200"):
        estimate_round(task, replace(counted, dummies=40), USERS + MORE)


def test_the_release_names_the_trust_and_what_the_shuffler_learns(task, tmp_path):
    counts = honest_tally(task)
    result = estimate_round(task, Counted(Tally(counts, 0), int(counts.sum()), 0), USERS + MORE - 1)
    ledger = Ledger(tmp_path / "ledger.db")
    entry = ledger.reserve(task, BUDGET, secrets.token_bytes(32))
    ledger.close()
    document = release_document(result, entry, 0.95)
    assert document["guarantee"]["trust"] == "augmented"
    assert document["guarantee"]["delta"] == task.delta
    assert SHUFFLER_LEARNS in document["caveats"]
    page = html.unescape(release_page(result, entry, 0.95).decode())
    assert "trust: augmented" in page
    assert "not who holds which value" in page
    assert "randomized their values" not in page
    assert ("kept a random sample" in page) == (task.protocol.shuffler_keeps.fraction < 1)


def manifest_of(task, reports, messages, **counts):
    chunks = tuple(bytes(32) for _ in range(-(-messages // 1000)))
    return Manifest(task.id, reports, messages, task.sealed_size, 1000, chunks, HopCounts(**counts))


def test_the_number_of_messages_is_not_that_of_reports(task):
    samples = task.protocol.shuffler_keeps.fraction < 1
    most = 300 + task.protocol.most_dummies
    for messages in (300, 300 + int(task.protocol.mean_dummies), most):
        manifest_of(task, 300, messages).check_task(task)
    for messages in (most + 1, 1_000_000):  # the disk of the analyzer would fill up
        with pytest.raises(ParameterError, match="size or number"):
            manifest_of(task, 300, messages).check_task(task)
    if samples:
        manifest_of(task, 300, 1).check_task(task)
    else:
        with pytest.raises(ParameterError, match="size or number"):
            manifest_of(task, 300, 299).check_task(task)
    with pytest.raises(ParameterError, match="size or number"):
        manifest_of(task, 300, 301, carriers=1).check_task(task)
    with pytest.raises(ParameterError, match="cannot be released"):
        manifest_of(task, 199, 200).check_task(task)


def test_manifests_may_be_long_enough_for_the_dummies(shared_collection):
    task = augmented(shared_collection, NAMES[0], categories=[f"c{number}" for number in range(100_000)])
    largest = task.maximum_users + task.protocol.most_dummies
    chunks = (bytes(32),) * -(-largest // 10_000)
    manifest = Manifest(task.id, USERS, largest, task.sealed_size, 10_000, chunks, HopCounts())
    assert len(manifest.signed(shared_collection.shuffler)) <= ExpectedBatch.of_last(task).max_manifest_bytes


def test_the_ledger_composes_augmented_releases(shared_collection, tmp_path):
    """Also with delta 0, and with releases of the shuffled model about the same people."""
    tasks = [augmented(shared_collection, name) for name in NAMES]
    tasks += [shared_collection.task("count/balcer-cheu", publish=False)]
    assert tasks[1].delta == 0
    ledger = Ledger(tmp_path / "ledger.db")
    for number, each in enumerate(tasks):
        entry = ledger.reserve(each, BUDGET, bytes([number]) * 32)
        assert entry.granted
    ledger.close()
    expected = least_epsilon(compose_all([each.guarantee.curve for each in tasks]), BUDGET.delta)
    assert entry.spent_epsilon == pytest.approx(expected, rel=1e-9)
    assert entry.spent_epsilon < 4.0
    releases, spent = spent_in(tmp_path / "ledger.db", "people", BUDGET.delta)  # from the stored parameters
    assert (releases, spent) == (4, pytest.approx(expected, rel=1e-9))


def test_a_pure_release_costs_its_epsilon(shared_collection, tmp_path):
    task = augmented(shared_collection, NAMES[1])
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.reserve(task, PopulationBudget(1.0, 1e-300), bytes(32)).granted
    refused = ledger.reserve(augmented(shared_collection, NAMES[0]), PopulationBudget(1.5, 1e-9), bytes(32))
    ledger.close()
    assert not refused.granted
    assert json.dumps(refused.reason)
