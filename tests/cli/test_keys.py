"""``shuffledp keys``: made once, shown without their secret."""

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shuffledp.collection.task.key_documents import authentic_destruction, authentic_rotation
from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey, SigningKey, VerifyingKey, to_base64
from shuffledp.errors import OutputError

KINDS = {
    "author": (SigningKey, VerifyingKey),
    "shuffler": (SigningKey, VerifyingKey),
    "analyzer": (SealingKey, SealingPublicKey),
}


@pytest.mark.parametrize("role", KINDS)
def test_create_and_show(role, shuffledp, tmp_path):
    private, public = KINDS[role]
    made = shuffledp("keys", "create", role, "--out", "my.key")
    assert made.status == 0
    assert "my.key (keep it secret)" in made.err
    key = private.load(tmp_path / "my.key")
    assert public.load(tmp_path / "my.key.pub") == key.public
    assert stat.S_IMODE((tmp_path / "my.key").stat().st_mode) == 0o600
    assert key.public.id in made.out
    for file in ("my.key", "my.key.pub"):
        shown = shuffledp("keys", "show", file)
        assert key.public.id in shown.out
        assert shuffledp("keys", "show", file, "--json").json == key.public.to_document()
        for told in (made, shown, shuffledp("keys", "show", file, "--json")):
            assert to_base64(key.secret) not in told.out + told.err


def test_json_of_create(shuffledp):
    made = shuffledp("keys", "create", "author", "--out", "a.key", "--json")
    assert set(made.json) == {"role", "kind", "id", "public", "private_file", "file"}
    assert made.json["role"] == "author"


def test_nothing_is_overwritten(shuffledp, tmp_path):
    shuffledp("keys", "create", "author", "--out", "a.key")
    before = (tmp_path / "a.key").read_bytes()
    again = shuffledp("keys", "create", "author", "--out", "a.key")
    assert again.status == 1
    assert "a.key exists; a key is never overwritten" in again.error
    assert (tmp_path / "a.key").read_bytes() == before
    (tmp_path / "b.key.pub").write_text("mine")
    again = shuffledp("keys", "create", "author", "--out", "b.key")
    assert "b.key.pub exists" in again.error
    assert not (tmp_path / "b.key").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("create", "author"), 2, "--out"),
        (("create", "gardener", "--out", "k"), 2, "gardener"),
        (("create", "author", "--out", "none/k"), 1, "there is no directory"),
        (("show", "none.key"), 1, "No such file"),
        (("show", "text"), 1, "not JSON"),
        (("show", "document"), 1, "is not a key file"),
    ],
)
def test_bad_input(arguments, status, words, shuffledp, tmp_path):
    (tmp_path / "text").write_text("no key")
    (tmp_path / "document").write_text(json.dumps({"kind": "signing"}))
    done = shuffledp("keys", *arguments)
    assert done.status == status
    assert words in done.error
    assert {each.name for each in tmp_path.iterdir()} == {"text", "document"}


@pytest.mark.parametrize("out", [".", "missing/author.key"])
def test_places_for_no_key(shuffledp, tmp_path, out):
    assert shuffledp("keys", "create", "author", "--out", out).error.startswith("error: Cannot write")
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_of_round_keys(shuffledp, tmp_path):
    """As many private keys as rounds, named by their ids, readable by nobody else; the public ones apart."""
    made = shuffledp("keys", "schedule", "--rounds", 3, "--out", "keys", "--public", "public", "--json")
    assert (made.status, made.json["directory"], made.json["public"]) == (0, "keys", "public")
    ids = made.json["keys"]
    assert len(set(ids)) == 3
    assert ids == sorted(ids)  # the order of the files, in which series create takes them
    for key_id in ids:
        key = SealingKey.load(tmp_path / "keys" / f"{key_id}.key")
        assert key.public.id == key_id
        assert SealingPublicKey.load(tmp_path / "public" / f"{key_id}.pub") == key.public
        assert to_base64(key.secret) not in made.out + made.err
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    more = shuffledp("keys", "schedule", "--rounds", 1, "--out", "keys", "--public", "public")
    assert more.status == 0
    assert len(list((tmp_path / "keys").iterdir())) == 4
    for rounds in (0, 401):
        refused = shuffledp("keys", "schedule", "--rounds", rounds, "--out", "none", "--public", "none")
        assert (refused.status, refused.err.count("\n")) == (2, 1)
        assert "1 to 400 rounds" in refused.err
    same = shuffledp("keys", "schedule", "--rounds", 1, "--out", "none", "--public", "./none")
    assert (same.status, "must be different directories" in same.err) == (2, True)
    assert not (tmp_path / "none").exists()


def test_a_schedule_that_fails_leaves_no_key(shuffledp, tmp_path, monkeypatch):
    left = [3]  # files that fit on the disk

    def save(key, path):
        if not left[0]:
            raise OutputError(f"Cannot write {path}: No space left on device.")
        left[0] -= 1
        saved(key, path)

    saved = SealingPublicKey.save
    monkeypatch.setattr(SealingPublicKey, "save", save)
    failed = shuffledp("keys", "schedule", "--rounds", 5, "--out", "keys", "--public", "public")
    assert (failed.status, failed.err.count("error:")) == (1, 1)
    assert left == [0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_expiry(shuffledp, tmp_path):
    made = shuffledp("keys", "create", "author", "--out", "a.key", "--expires", "90d", "--json")
    assert SigningKey.load(tmp_path / "a.key").expires is not None
    shown = shuffledp("keys", "show", "a.key.pub")
    assert f"It expires at {made.json['expires']}" in shown.out
    past = shuffledp("keys", "create", "author", "--out", "b.key", "--expires", "2020-01-01T00:00:00Z")
    assert (past.status, past.err.count("\n")) == (2, 1)
    assert "would have expired" in past.err
    scheduled = shuffledp(
        "keys", "schedule", "--rounds", 2, "--out", "keys", "--public", "public", "--expires", "9d", "--json"
    )
    assert all(SealingKey.load(tmp_path / "keys" / f"{name}.key").expires for name in scheduled.json["keys"])


def test_an_expired_author_signs_no_task(shuffledp, tmp_path):
    for role in ("shuffler", "analyzer"):
        shuffledp("keys", "create", role, "--out", f"{role}.key")
    replace(SigningKey.create(), expires=datetime(2026, 1, 1, tzinfo=UTC)).save(tmp_path / "author.key")
    done = shuffledp(
        "task", "create", "count", "--epsilon", 1, "--delta", "1e-6", "--users", 1000, "--name", "n", "--population",
        "p", "--closes", "2h", "--author", "author.key", "--analyzer", "analyzer.key.pub", "--shuffler",
        "shuffler.key.pub", "--out", "task.json",
    )  # fmt: skip
    assert (done.status, done.err.count("error:")) == (1, 1)
    assert "expired at 2026-01-01T00:00:00Z" in done.error
    assert not (tmp_path / "task.json").exists()


def test_rotate(shuffledp, tmp_path):
    for name in ("old", "new"):
        shuffledp("keys", "create", "author", "--out", f"{name}.key")
    done = shuffledp("keys", "rotate", "--old", "old.key", "--new", "new.key", "--out", "rotation.json", "--json")
    old, new = (SigningKey.load(tmp_path / f"{name}.key").public for name in ("old", "new"))
    rotation = authentic_rotation((tmp_path / "rotation.json").read_bytes(), old)
    assert (rotation.new, done.json["new"]["id"]) == (new, new.id)
    again = shuffledp("keys", "rotate", "--old", "old.key", "--new", "new.key", "--out", "old.key")
    assert "old.key exists" in again.error
    same = shuffledp("keys", "rotate", "--old", "old.key", "--new", "old.key", "--out", "none")
    assert "two different keys" in same.err


def test_destroy(shuffledp, tmp_path):
    shuffledp("keys", "create", "shuffler", "--out", "s.key")
    key = SealingKey.create()
    for name in ("r.key", "other.key"):
        key.save(tmp_path / name)
    refused = shuffledp("keys", "destroy", "r.key", "--signing-key", "s.key")
    assert (refused.status, "both --signing-key and --out" in refused.err) == (2, True)
    public = shuffledp("keys", "destroy", "s.key.pub")
    assert "is not a private" in public.error
    assert (tmp_path / "s.key.pub").exists()
    done = shuffledp("keys", "destroy", "r.key", "--signing-key", "s.key", "--out", "record.json")
    assert done.status == 0
    assert "copies in backups, snapshots or on flash storage are not erased" in done.err
    assert not (tmp_path / "r.key").exists()
    signer = SigningKey.load(tmp_path / "s.key").public
    assert authentic_destruction((tmp_path / "record.json").read_bytes(), signer).key == key.public
    kept = shuffledp("keys", "destroy", "other.key", "--signing-key", "s.key", "--out", "record.json")
    assert "record.json exists" in kept.error
    assert (tmp_path / "other.key").exists()
    assert shuffledp("keys", "destroy", "other.key", "--json").json["record"] is None
