"""Round keys of the analyzer: each opens one batch and is destroyed after the release; without it nothing opens."""

import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from shuffledp.collection.analyzer.overview import running_overview
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
from shuffledp.collection.server import round_keys
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.server.logs import JsonLinesFormatter
from shuffledp.collection.server.round_keys import KeylessError
from shuffledp.collection.task.key_documents import authentic_destruction
from shuffledp.collection.wire.keys import ExpiredKeyError, SealingKey, SigningKey, to_base64
from shuffledp.errors import ParameterError


@pytest.fixture
def keys(collection):
    directory = collection.folder / "round-keys"
    directory.mkdir(mode=0o700)
    return directory


def save(key, keys):
    key.save(keys / f"{key.public.id}.key")
    return key


def ready(collection, key, analyzer_of, deliver, **changes):
    """An analyzer with a complete batch that is sealed to a key."""
    task = collection.task("histogram/k-rr", analyzer=key.public, **changes)
    batch = collection.batch(task, collection.sealed(task, np.arange(220) % 4))
    analyzer = analyzer_of()
    deliver(analyzer, batch)
    return analyzer, task


def search(directory, key):
    """The files with a private key, in any of its forms."""
    forms = [key.secret, to_base64(key.secret).encode(), key.secret.hex().encode()]
    return [
        file.name
        for file in directory.rglob("*")
        if file.is_file() and any(form in file.read_bytes() for form in forms)
    ]


def test_the_key_is_destroyed_after_the_release(collection, keys, deliver):
    key, signer = save(SealingKey.create(), keys), SigningKey.create()
    signer.save(collection.folder / "signing.key")
    settings = {"round_keys": keys, "sealing_keys": (), "signing_key": collection.folder / "signing.key"}
    analyzer, task = ready(collection, key, lambda: collection.open(**settings), deliver)
    assert len(search(collection.folder, key)) == 1
    assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    assert search(collection.folder, key) == []
    record = authentic_destruction((keys / f"{key.public.id}.destroyed.json").read_bytes(), signer.public)
    assert record.key == key.public
    with pytest.raises(KeylessError, match="was destroyed"):
        analyzer.tasks.key(task)
    analyzer.close()
    (collection.folder / "work" / "copy").write_bytes(key.secret)  # the planted fault is found
    assert search(collection.folder, key) == ["copy"]
    again = collection.open(**settings)
    assert again.tasks.refused == []  # a released round needs no key
    assert again.tasks.get(task.id) == task
    again.close()


def test_killed_before_the_key_was_destroyed(collection, keys, deliver, monkeypatch):
    key = save(SealingKey.create(), keys)
    analyzer, task = ready(collection, key, lambda: collection.open(round_keys=keys), deliver)
    monkeypatch.setattr(analyzer.tasks, "destroy_key", lambda task: None)
    analyzer.releaser.release(task.id)
    analyzer.close()
    assert list(keys.glob("*.key"))
    again = collection.open(round_keys=keys)
    again.releaser.destroy_keys()
    assert not list(keys.glob("*.key"))
    again.close()


@pytest.mark.parametrize("trouble", ["swapped", "read-only"])
def test_a_key_that_cannot_be_destroyed_does_not_undo_the_release(
    collection, keys, deliver, monkeypatch, caplog, trouble
):
    """It is logged once, and tried again."""
    key, other = save(SealingKey.create(), keys), SealingKey.create()
    file = keys / f"{key.public.id}.key"
    analyzer, task = ready(collection, key, lambda: collection.open(round_keys=keys), deliver)
    count, original = analyzer.releaser._count, round_keys.destroy_file

    def fail(_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def count_then_break(*arguments):
        counted = count(*arguments)
        if trouble == "swapped":
            file.rename(keys / "misplaced")
            other.save(file)
        else:
            monkeypatch.setattr(round_keys, "destroy_file", fail)
        return counted

    monkeypatch.setattr(type(analyzer.releaser), "_count", lambda self, *arguments: count_then_break(*arguments))
    assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    for _ in range(3):
        analyzer.releaser.destroy_keys()
    records = [record for record in caplog.records if record.msg == "key-not-destroyed"]
    events = [json.loads(JsonLinesFormatter().format(record)) for record in records]
    assert [(entry["level"], entry["key"]) for entry in events] == [("error", key.public.id)]
    assert file.exists()
    monkeypatch.setattr(round_keys, "destroy_file", original)
    if trouble == "swapped":
        assert SealingKey.load(file) == other
        file.rename(keys / f"{other.public.id}.key")
        (keys / "misplaced").rename(file)
    analyzer.releaser.destroy_keys()
    assert not file.exists()
    analyzer.close()


def test_a_key_of_several_rounds_is_kept(collection, keys, deliver):
    task = collection.task("histogram/k-rr")
    batch = collection.batch(task, collection.sealed(task, np.arange(220) % 4))
    analyzer = collection.open(round_keys=keys)
    deliver(analyzer, batch)
    assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    assert (collection.folder / "analyzer.key").exists()
    analyzer.close()


def test_expired_missing_and_swapped_keys_open_nothing(collection, keys, deliver):
    """One line and an alert, and the batch stays until the key is right."""
    key = SealingKey.create()
    now = datetime.now(UTC).replace(microsecond=0)
    file = keys / f"{key.public.id}.key"
    save(replace(key, expires=now), keys)
    analyzer, task = ready(collection, key, lambda: collection.open(round_keys=keys), deliver)
    for words, content in (("expired", None), ("is missing", b""), ("not the round key", SealingKey.create())):
        if content is not None:
            file.unlink(missing_ok=True)
        if isinstance(content, SealingKey):
            content.save(file)
        with pytest.raises(KeylessError, match=words) as caught:
            analyzer.releaser.release(task.id)
        assert "\n" not in str(caught.value)
        assert analyzer.batches.get(task.id).state is BatchState.COMPLETE
    file.unlink()
    save(replace(key, expires=now + timedelta(hours=1)), keys)
    assert analyzer.releaser.release(task.id) is BatchState.RELEASED
    analyzer.close()


def test_an_expired_key_of_several_rounds(collection, deliver):
    now = datetime.now(UTC).replace(microsecond=0)
    (collection.folder / "analyzer.key").unlink()
    replace(collection.analyzer, expires=now).save(collection.folder / "analyzer.key")
    analyzer, task = ready(collection, collection.analyzer, collection.open, deliver)
    with pytest.raises(ExpiredKeyError, match="use a current key, or correct the clock"):
        analyzer.releaser.release(task.id)
    overview = running_overview(analyzer, ReleaseScheduler(analyzer.releaser, analyzer.metrics))
    assert any("expired at" in alert["message"] and alert["level"] == "act" for alert in overview["alerts"])
    analyzer.close()
    (collection.folder / "author.pub").unlink()
    replace(collection.author.public, expires=now + timedelta(days=1)).save(collection.folder / "author.pub")
    analyzer = collection.open()
    overview = running_overview(analyzer, ReleaseScheduler(analyzer.releaser, analyzer.metrics))
    assert any(f"author's key {collection.author.public.id} expires" in each["message"] for each in overview["alerts"])
    analyzer.close()


def test_two_rounds_cannot_share_a_key(collection, keys):
    key = save(SealingKey.create(), keys)
    for _ in range(2):
        collection.task("histogram/k-rr", analyzer=key.public)
    analyzer = collection.open(round_keys=keys)
    assert len(analyzer.tasks) == 1
    (refused,) = analyzer.tasks.refused
    assert "of another round, with which it is destroyed" in str(refused)
    analyzer.close()


def test_settings(collection):
    with pytest.raises(ParameterError, match="or a directory round_keys"):
        collection.settings(sealing_keys=())
    with pytest.raises(ParameterError, match="executors read the key files"):
        collection.settings(key_command=("age", "-d"), engine="spark")
