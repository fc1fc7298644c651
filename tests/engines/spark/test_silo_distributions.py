"""Distributions of the silo flow: all orders are equally likely, and estimates are distributed as on one machine."""

import os
from itertools import permutations

import numpy as np
import pyarrow.parquet as pq
import pytest

import shuffledp as sdp
from shuffledp.engines.spark import mixing
from shuffledp.testing.statistics import p_value, same_distribution

ALPHA = 1e-6
ORDERS = {order: index for index, order in enumerate(permutations(range(4)))}
TRIALS = 1200


def order_table(spark, monkeypatch, *, labels: int = 2, sorted_labels: bool = False) -> np.ndarray:
    """How often each order of 4 records in 2 partitions occurred: TRIALS mixtures in one job of two stages.

    The tasks are those of ``mix``. Trials are told apart by a prefix of the label, so that one job does them all.
    """
    import pyarrow as pa

    from shuffledp.engines.spark.record_files import Found

    found = Found(None, "plain", "", 1, 4, 4, 0, (4,), 1)
    if sorted_labels:
        monkeypatch.setattr(mixing, "permute", lambda *_, **__: None)
    permuter = mixing._permuter(found, "run")
    keys = [mixing.RepeatableRandomness.new_key() for _ in range(TRIALS)]
    labellers = [mixing._labeller(1, labels, key) for key in keys]

    def label(batches):
        for batch in batches:
            for trial, name, content in zip(*batch.columns, strict=True):
                row = pa.RecordBatch.from_arrays(
                    [pa.array([name.as_py()]), pa.array([2], pa.int64()), pa.array([content.as_py()], pa.binary())],
                    names=["batch", "records", "content"],
                )
                for labelled in labellers[trial.as_py()](iter([row])):
                    trials = pa.array([trial.as_py()] * labelled.num_rows, pa.int32())
                    yield pa.RecordBatch.from_arrays([trials, *labelled.columns], names=["trial", "label", "content"])

    def permute(table):
        mixed = permuter(table.select(["label", "content"]))
        trial = pa.array([table.column("trial")[0].as_py()] * mixed.num_rows, pa.int32())
        return pa.table({"trial": trial, "position": mixed.column("position"), "content": mixed.column("content")})

    rows = [(trial, f"{trial}-{half}", bytes([2 * half, 2 * half + 1])) for half in (0, 1) for trial in range(TRIALS)]
    frame = spark.createDataFrame(rows, "trial int, batch string, content binary").repartition(2, "batch")
    labelled = frame.mapInArrow(label, "trial int, label int, content binary")
    mixed = labelled.groupBy("trial", "label").applyInArrow(permute, "trial int, position bigint, content binary")
    found_rows = sorted((row["trial"], row["position"], bytes(row["content"])) for row in mixed.collect())
    contents: dict[int, bytes] = {}
    for trial, _, content in found_rows:
        contents[trial] = contents.get(trial, b"") + content
    table = np.zeros(len(ORDERS))
    for content in contents.values():
        table[ORDERS[tuple(content)]] += 1
    return table


@pytest.mark.parametrize("adaptive", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_all_orders_of_four_messages_in_two_partitions_are_equally_likely(spark, monkeypatch, adaptive):
    """Sample size 1200, alpha 1e-6, over all 24 orders."""
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        table = order_table(spark, monkeypatch)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert table.sum() == TRIALS
    assert p_value(table, np.full(24, 1 / 24)) > ALPHA


def test_labels_that_are_not_permuted_are_noticed(spark, monkeypatch):
    """The planted fault: records are grouped by label, and stay in their order within a label."""
    assert p_value(order_table(spark, monkeypatch, sorted_labels=True), np.full(24, 1 / 24)) < ALPHA


def test_the_whole_flow_has_the_distribution_of_the_local_engine(spark, tmp_path):
    """200 partitions of 40 users, each a round of its own. Two-sample test, alpha 1e-6, of the tally of one category.

    The planted fault: every other message is lost.
    """
    protocol = sdp.find("histogram", "uniform-blanket").calibrate(users=40, epsilon=3.0, delta=0.05, domain_size=2)
    rounds, users = 200, 40
    frame = spark.range(0, rounds * users, 1, rounds).selectExpr("cast(id % 4 == 0 as int) as value")
    randomized = rounds_of(frame, protocol, tmp_path, users)
    values = (np.arange(users) % 4 == 0).astype(np.int64)
    local = [protocol.tally(protocol.randomize_all(values)).counts for _ in range(rounds)]
    assert len(randomized) == rounds
    assert two_samples(randomized, local) > ALPHA
    planted = [counts // 2 for counts in local]
    assert two_samples(randomized, planted) < ALPHA


def rounds_of(frame, protocol, directory, users: int) -> list[np.ndarray]:
    """The tally of each partition, whose sum is what randomize, mix and tally find."""
    from shuffledp.messages import Messages

    written = sdp.spark.randomize(frame, "value", protocol, out=directory / "silo")
    mixed = sdp.spark.mix(written, out=directory / "mixed", labels=4)
    total = sdp.spark.tally(mixed, protocol)
    table = pq.read_table(os.fspath(written))
    size, tallies = protocol.message_format.size, []
    for content in table.column("content").to_pylist():
        packed = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
        tallies.append(protocol.tally(Messages(protocol.message_format.unpack(packed), users)).counts)
    assert np.array_equal(sum(tallies), total.counts)
    return tallies


def two_samples(first, second) -> float:
    counts = [[int(each[1]) for each in sample] for sample in (first, second)]
    largest = max(map(max, counts)) + 1
    return same_distribution(*(np.bincount(each, minlength=largest) for each in counts))
