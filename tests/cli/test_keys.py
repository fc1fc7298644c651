"""``shuffledp keys``: made once, shown without their secret."""

import json
import stat

import pytest

from shuffledp.collection.wire.keys import SealingKey, SealingPublicKey, SigningKey, VerifyingKey, to_base64

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
    assert not (tmp_path / "none").exists()
