"""Pinned authors: two keys at most, rotations only forward, and one budget for all keys of an author."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shuffledp.collection.device import Client, DeviceBudget
from shuffledp.collection.device.authors import PinnedAuthors
from shuffledp.collection.device.budget import AuthorBudget
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.errors import DataError, ParameterError, PolicyError


@pytest.fixture
def chain():
    return [SigningKey.create() for _ in range(4)]


def test_a_device_pins_two_keys(chain, tmp_path):
    first = chain[0].public
    pinned = PinnedAuthors(tmp_path)
    assert pinned.of(first).keys == (first,)
    assert list(tmp_path.iterdir()) == []  # reading writes nothing
    for index in range(3):
        content = sign_rotation(chain[index], chain[index + 1])
        for _ in range(2):  # a repeated one has no effect
            followed = PinnedAuthors(tmp_path).follow(content, first)
        assert followed.keys == (chain[index].public, chain[index + 1].public)
    again = PinnedAuthors(tmp_path)
    assert again.of(first) == again.of(chain[3].public) == followed
    assert followed.ids == tuple(key.public.id for key in chain)
    other = SigningKey.create().public
    assert again.of(other).keys == (other,)


def test_rotations_that_do_not_continue_are_refused(chain, tmp_path):
    pinned, first = PinnedAuthors(tmp_path), chain[0].public
    pinned.follow(sign_rotation(chain[0], chain[1]), first)
    before = (tmp_path / "authors").read_bytes()
    for old, new, words in (
        (chain[0], chain[2], "does not continue"),  # a fork: the old key was stolen
        (chain[1], chain[0], "does not continue"),
        (chain[2], chain[3], "not signed by a key that is trusted"),
    ):
        with pytest.raises(ParameterError, match=words):
            pinned.follow(sign_rotation(old, new), first)
    assert (tmp_path / "authors").read_bytes() == before


def test_an_expired_key_names_no_successor(chain, tmp_path):
    """A thief of the old key changes the expiry in its file, and not the one in the pin."""
    expires = datetime(2026, 6, 1, tzinfo=UTC)
    stolen, pin = chain[0], replace(chain[0].public, expires=expires)
    forged = sign_rotation(stolen, chain[1])
    with pytest.raises(ParameterError, match=r"expired at 2026-06-01T00:00:00Z: .*[^\n]*$") as refused:
        PinnedAuthors(tmp_path).follow(forged, pin, now=expires)
    assert refused.value.values["reason"] == "expired"
    assert PinnedAuthors(tmp_path).of(pin).keys == (pin,)
    unlimited = PinnedAuthors(tmp_path).follow(forged, replace(pin, expires=None), now=expires)  # the planted fault
    assert unlimited.keys == (pin, chain[1].public)


def test_a_rotation_that_was_followed_in_time_stays(chain, tmp_path):
    expires = datetime(2026, 6, 1, tzinfo=UTC)
    pin, late = replace(chain[0].public, expires=expires), expires + timedelta(days=400)
    own = sign_rotation(chain[0], chain[1])
    followed = PinnedAuthors(tmp_path).follow(own, pin, now=expires - timedelta(seconds=1))
    assert PinnedAuthors(tmp_path).follow(own, pin, now=late) == followed
    assert PinnedAuthors(tmp_path).follow(sign_rotation(chain[1], chain[2]), pin, now=late).keys[-1] == chain[2].public


@pytest.mark.parametrize("content", [b"", b"{}", b'{"authors":[{}],"format":"shuffledp-authors","version":1}', b"[]"])
def test_a_damaged_file_is_not_forgotten(content, chain, tmp_path):
    (tmp_path / "authors").write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        PinnedAuthors(tmp_path).of(chain[0].public)


def test_all_keys_of_an_author_share_one_budget(parties, chain, tmp_path):
    """The planted fault is a budget by key, under which a rotation is as good as a second author."""
    old, new = chain[:2]
    names = iter("abcdef")

    def make_task():
        return parties.task(name=next(names))

    state = tmp_path / "device"
    limits = DeviceBudget(100.0, 1e-5, authors={new.public.id: AuthorBudget(series=1)})

    def report(author, task):
        signed = task.signed(author).to_bytes()
        client = Client(signed, author=old.public, state=state, budget=limits)
        client.report("bus", now=datetime.now(UTC))

    report(old, make_task())
    with pytest.raises(ParameterError, match="trusted"):
        report(new, make_task())
    PinnedAuthors(state).follow(sign_rotation(old, new), old.public)
    with pytest.raises(PolicyError, match="has used 1 of 1 series"):
        report(new, make_task())
    planted = Client(make_task().signed(new).to_bytes(), author=old.public, state=state, budget=limits)
    planted._author = type(planted._author).first(new.public)
    planted.report("bus")
