"""Keys: files of the right mode, never overwritten, never printed."""

import dataclasses
import hashlib
import json
import os
import stat
import traceback

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shuffledp.collection.wire.keys import (
    SealingKey,
    SealingPublicKey,
    SigningKey,
    VerifyingKey,
    from_base64,
    to_base64,
)
from shuffledp.errors import DataError, OutputError, ParameterError

KINDS = [SigningKey, SealingKey]
PUBLIC = {SigningKey: VerifyingKey, SealingKey: SealingPublicKey}


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files(kind, mask, tmp_path):
    key = kind.create()
    before = os.umask(mask)
    try:
        key.save(tmp_path / "k")
        key.public.save(tmp_path / "k.pub")
    finally:
        os.umask(before)
    assert mode(tmp_path / "k") == 0o600
    assert mode(tmp_path / "k.pub") == 0o644 & ~mask
    assert kind.load(tmp_path / "k") == key
    assert PUBLIC[kind].load(tmp_path / "k.pub") == key.public
    with pytest.raises(DataError, match="is a private key; use the public key"):
        PUBLIC[kind].load(tmp_path / "k")
    assert PUBLIC[kind].load(tmp_path / "k", of_private=True) == key.public
    assert to_base64(key.secret) not in (tmp_path / "k.pub").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_never_overwritten(kind, tmp_path):
    key = kind.create()
    key.save(tmp_path / "k")
    for other in (kind.create(), kind.create().public):
        with pytest.raises(OutputError, match="never overwritten"):
            other.save(tmp_path / "k")
    assert kind.load(tmp_path / "k") == key
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError):
        key.save(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_do_not_print(kind, tmp_path):
    key = kind.create()
    hidden = (key.secret.hex(), to_base64(key.secret), repr(key.secret))
    shown = [repr(key), str(key), f"{key}", repr([key]), repr({"key": key})]
    try:
        raise ValueError(key)
    except ValueError:
        shown.append(traceback.format_exc())
    assert not any(secret in text for secret in hidden for text in shown)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644, 0o622])
def test_a_private_key_that_others_can_reach_is_refused(bits, tmp_path):
    SigningKey.create().save(tmp_path / "k")
    (tmp_path / "k").chmod(bits)
    with pytest.raises(DataError, match="chmod 600"):
        SigningKey.load(tmp_path / "k")


def test_kinds_are_told_apart(tmp_path):
    SigningKey.create().save(tmp_path / "signing")
    SealingKey.create().save(tmp_path / "sealing")
    SigningKey.create().public.save(tmp_path / "public")
    with pytest.raises(DataError, match="not a private sealing key"):
        SealingKey.load(tmp_path / "signing")
    with pytest.raises(DataError, match="not a private signing key"):
        SigningKey.load(tmp_path / "sealing")
    (tmp_path / "public").chmod(0o600)
    with pytest.raises(DataError, match="not a private signing key"):
        SigningKey.load(tmp_path / "public")
    with pytest.raises(ParameterError, match="sealing key is an object"):
        SealingPublicKey.load(tmp_path / "public")
    same = bytes(range(32))
    assert VerifyingKey(same).id != SealingPublicKey(same).id


def test_parts_that_do_not_belong_together(tmp_path):
    one, two = SigningKey.create(), SigningKey.create()
    document = {**one.public.to_document(), "private": to_base64(two.secret)}
    path = tmp_path / "k"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    with pytest.raises(DataError, match="do not match"):
        SigningKey.load(path)
    with pytest.raises(ParameterError, match="does not belong to this key"):
        VerifyingKey.from_document({**one.public.to_document(), "id": two.public.id})


@pytest.mark.parametrize("content", ["", "{", "[]", "1", '"k"', "\x00", "x" * 5000, '{"kind":"signing"}'])
def test_files_that_hold_no_key(content, tmp_path):
    path = tmp_path / "k"
    path.write_text(content)
    path.chmod(0o600)
    for kind in (SigningKey, SealingKey, VerifyingKey, SealingPublicKey):
        with pytest.raises((DataError, ParameterError)):
            kind.load(path)
    with pytest.raises(DataError, match="No such file"):
        SigningKey.load(tmp_path / "none")


def test_signatures():
    key, other = SigningKey.create(), SigningKey.create()
    signature = key.sign(b"content")
    key.public.verify(signature, b"content")
    for signer, given, content in [
        (key, signature, b"contenT"),
        (other, signature, b"content"),
        (key, signature[:-1], b"content"),
        (key, signature + b"\0", b"content"),
        (key, bytes(64), b"content"),
    ]:
        with pytest.raises(ParameterError, match="not a valid signature"):
            signer.public.verify(given, content)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_sizes(size):
    for kind in (SigningKey, SealingKey, VerifyingKey, SealingPublicKey):
        with pytest.raises(ParameterError, match="32 bytes"):
            kind(bytes(size))


@pytest.mark.parametrize("text", ["AA==", "AB", "A", "A A", "AA\n", "+/", "é", "", None, 5, b"AA"])
def test_one_form_of_base64(text):
    with pytest.raises(ParameterError, match="base64"):
        from_base64(text, 1)


def test_keys_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SigningKey.create().secret = bytes(32)


@pytest.mark.parametrize("damage", [lambda text: text + "=", lambda text: text[:-1], lambda text: text + "AAAA"])
def test_a_damaged_private_key_is_not_quoted(tmp_path, damage):
    """What is wrong with a secret is told without the secret."""
    key = SigningKey.create()
    key.save(tmp_path / "key")
    document = json.loads((tmp_path / "key").read_text())
    secret = document["private"]
    document["private"] = damage(secret)
    (tmp_path / "key").write_text(json.dumps(document))
    with pytest.raises(DataError, match="damaged") as caught:
        SigningKey.load(tmp_path / "key")
    assert secret[:20] not in str(caught.value)
    assert caught.value.__cause__ is None


def encodings_of_low_order():
    """Every 32 bytes that RFC 7748 reads as a point of order 1, 2, 4 or 8 of the curve or its twist."""
    eighth = (
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
    prime = 2**255 - 19
    below = [coordinate for coordinate in (0, 1, prime - 1, prime, prime + 1, *eighth) if coordinate < 2**255]
    return [number.to_bytes(32, "little") for coordinate in below for number in (coordinate, coordinate + 2**255)]


@pytest.mark.parametrize("raw", encodings_of_low_order(), ids=bytes.hex)
def test_keys_of_low_order(raw):
    """Whatever the other key, the shared secret is zeros; OpenSSL refuses to compute it."""
    with pytest.raises(ValueError, match="shared key"):
        X25519PrivateKey.from_private_bytes(bytes(range(32))).exchange(X25519PublicKey.from_public_bytes(raw))
    with pytest.raises(ParameterError, match="low order"):
        SealingPublicKey(raw)
    identifier = hashlib.sha256(b"shuffledp sealing key\n" + raw).hexdigest()[:16]
    with pytest.raises(ParameterError, match="low order"):
        SealingPublicKey.from_document({"kind": "sealing", "id": identifier, "public": to_base64(raw)})


def test_other_keys_are_not_of_low_order():
    """Small coordinates as well as those next to the prime, with and without the highest bit."""
    for coordinate in (*range(2, 50), *range(2**255 - 40, 2**255 - 20), *range(2**255 - 17, 2**255)):
        for number in (coordinate, coordinate + 2**255):
            raw = number.to_bytes(32, "little")
            X25519PrivateKey.from_private_bytes(bytes(range(32))).exchange(X25519PublicKey.from_public_bytes(raw))
            assert SealingPublicKey(raw).raw == raw
