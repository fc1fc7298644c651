"""Sealed messages on a cluster: the counts of one machine, copies found over all partitions, a key unknown to Spark."""

import base64
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.collection.analyzer.cluster import count_mixed_on_spark, count_on_spark, sealed_contents
from shuffledp.collection.analyzer.counting import OUTSIDE_DOMAIN, REPEATED, count_messages, pieces_of
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.errors import DataError
from tests.collection.analyzer.conftest import Collection


@pytest.fixture
def collection(tmp_path):
    return Collection(tmp_path / "collection")


def hostile_messages(collection, task) -> list[bytes]:
    """Good messages of 200 users, dummies, copies of some, and everything that is rejected."""
    good = collection.sealed(task, np.arange(200) % 4)
    other, size = collection.task(), task.message_size
    wrong = [
        os.urandom(task.sealed_size),
        good[0][:-1] + bytes([good[0][-1] ^ 1]),
        collection.seal_raw(other, b"\x01" + bytes(size)),
        collection.seal_raw(task, b"\x02" + bytes(size)),
        collection.seal_raw(task, b"\x01" + b"\xff" * size),
        collection.seal_raw(task, bytes(1 + size)),
    ]
    copies = [*good[:7], *good[:3], wrong[0], *[good[50]] * 20]
    messages = [*good, *wrong, *copies]
    np.random.default_rng().shuffle(messages)
    return messages


def chunks(directory: Path, messages: list[bytes], number: int) -> list[tuple[Path, int]]:
    directory.mkdir()
    files = []
    for index in range(number):
        file = directory / f"{index}.chunk"
        file.write_bytes(b"".join(messages[index::number]))
        files.append((file, file.stat().st_size))
    return files


def test_the_counts_are_those_of_one_machine(spark, collection, tmp_path):
    """The planted fault: copies that are only looked for within each file are counted several times."""
    task = collection.task()
    messages = hostile_messages(collection, task)
    files = chunks(tmp_path / "chunks", messages, 5)
    expected = count_messages(task, collection.analyzer, list(pieces_of(task, files)))
    assert expected.rejected[REPEATED] == 31
    assert expected.rejected[OUTSIDE_DOMAIN] == 1
    key = collection.folder / "analyzer.key"
    for parts in (1, 8):
        counted = count_on_spark(task, key, files, parts=parts)
        assert (counted.tally, counted.messages, counted.dummies, counted.rejected) == (
            expected.tally,
            expected.messages,
            expected.dummies,
            expected.rejected,
        )
    apart = [count_messages(task, collection.analyzer, list(pieces_of(task, [file]))) for file in files]
    assert sum(each.rejected[REPEATED] for each in apart) < 31
    mixed = sdp.spark.mix(
        tmp_path / "chunks", out=tmp_path / "mixed", record_size=task.sealed_size, contents=sealed_contents(task)
    )
    from_mixed = count_mixed_on_spark(task, key, mixed.path, parts=4)
    assert (from_mixed.tally, from_mixed.rejected) == (expected.tally, expected.rejected)
    with pytest.raises(DataError, match="not of 'sealed "):
        count_mixed_on_spark(collection.task(), key, mixed.path)


def test_files_and_keys_that_are_wrong(spark, collection, tmp_path):
    task = collection.task()
    files = chunks(tmp_path / "chunks", collection.sealed(task, np.arange(20) % 4), 2)
    with pytest.raises(DataError, match="An executor cannot read the analyzer's key"):
        count_on_spark(task, tmp_path / "none.key", files)
    other = Collection(tmp_path / "other")
    with pytest.raises(DataError, match="the task is sealed to"):
        count_on_spark(task, other.folder / "analyzer.key", files)
    with pytest.raises(ShutdownError):
        count_on_spark(task, collection.folder / "analyzer.key", files, stopping=lambda: True)
    with pytest.raises(DataError, match="are expected"):
        count_on_spark(task, collection.folder / "analyzer.key", [(files[0][0], 10 * files[0][1])])
    with files[1][0].open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match="was truncated"):
        count_on_spark(task, collection.folder / "analyzer.key", files)


def secret_forms(key) -> list[bytes]:
    """The ways in which a program could print the key."""
    secret = key.secret
    return [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret).rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
        repr(secret).encode(),
        str(list(secret)).encode(),
    ]


def test_spark_never_sees_the_key(spark, event_log, collection, tmp_path, monkeypatch):
    """Neither settings, event log nor plans; the planted fault is a key in the description of a job."""
    task = collection.task()
    files = chunks(tmp_path / "chunks", collection.sealed(task, np.arange(60) % 4), 2)
    plans = []
    collected = type(spark.range(1)).collect

    def collect(frame):
        plans.append(frame._jdf.queryExecution().toString().encode())
        return collected(frame)

    monkeypatch.setattr(type(spark.range(1)), "collect", collect)
    counted = count_on_spark(task, collection.folder / "analyzer.key", files)
    assert counted.messages
    assert any(b"MapInArrow" in plan for plan in plans)
    settings = repr(spark.sparkContext.getConf().getAll()).encode()

    def logged() -> bytes:
        return b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())

    seen = [settings, *plans, logged()]
    assert b"SparkListenerJobStart" in seen[-1]
    forms = secret_forms(collection.analyzer)
    assert not any(form in text for form in forms for text in seen)
    spark.sparkContext.setJobDescription(collection.analyzer.secret.hex())
    spark.range(10).count()
    spark.sparkContext.setJobDescription(None)
    assert any(form in logged() for form in forms)


def test_an_analyzer_releases_through_the_cluster(spark, collection, tmp_path):
    """The whole release of a server whose engine is Spark: the same published counts as with the local engine."""
    from shuffledp.collection.analyzer.server import Analyzer
    from shuffledp.collection.server.batches import BatchState

    task = collection.task()
    batch = collection.batch(task, collection.sealed(task, np.arange(300) % 4))
    published = {}
    for engine in ("local", "spark"):
        shutil.copytree(collection.folder / "work", tmp_path / engine)
        analyzer = Analyzer(collection.settings(work=tmp_path / engine, engine=engine))
        try:
            analyzer.batches.put_manifest(batch.manifest, batch.signed)
            for index, chunk in enumerate(batch.chunks):
                analyzer.batches.put_chunk(task.id, index, chunk)
            assert analyzer.releaser.release(task.id) is BatchState.RELEASED
            documents = [path for path in (tmp_path / engine).rglob("*.csv") if task.id.hex() in str(path)]
            published[engine] = [path.read_bytes() for path in documents]
        finally:
            analyzer.close()
    assert published["local"]
    assert published["local"] == published["spark"]
