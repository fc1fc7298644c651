"""Sealing is HPKE as RFC 9180 defines it, bound to the task; all sealed messages of a task have one length."""

import hashlib
import hmac

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.sealing import SUITE, Sealer, sealed_size, sealing_info
from shuffledp.errors import ParameterError

TASK, OTHER = bytes(range(32)), bytes(32)
INFO = b"shuffledp message v1\x00analyzer\x00" + TASK

# RFC 9180, A.1.1: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, the first encryption
RFC = {
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "ephemeral": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "private": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "public": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "encapsulated": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
    "key": "4531685d41d65f03dc48f6b8302c05b0",
    "nonce": "56d890e5accaaf011cff4b7d",
    "content": "4265617574792069732074727574682c20747275746820626561757479",
    "associated": "436f756e742d30",
    "sealed": "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
}


def extract(suite: bytes, salt: bytes, label: bytes, content: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + content, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\x01", "sha256")[:length]  # one block is enough here


def key_and_nonce(shared_point: bytes, encapsulated: bytes, public: bytes, info: bytes) -> tuple[bytes, bytes]:
    """RFC 9180, sections 4.1 and 5.1, written out."""
    kem = b"KEM" + (0x0020).to_bytes(2, "big")
    secret = extract(kem, b"", b"eae_prk", shared_point)
    shared = expand(kem, secret, b"shared_secret", encapsulated + public, 32)
    suite = b"HPKE" + b"".join(each.to_bytes(2, "big") for each in (0x0020, 0x0001, 0x0001))
    context = b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    return expand(suite, secret, b"key", context, 16), expand(suite, secret, b"base_nonce", context, 12)


def seal_by_hand(ephemeral: bytes, public: bytes, info: bytes, content: bytes, associated: bytes = b"") -> bytes:
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    encapsulated = private.public_key().public_bytes_raw()
    point = private.exchange(X25519PublicKey.from_public_bytes(public))
    key, nonce = key_and_nonce(point, encapsulated, public, info)
    return encapsulated + AESGCM(key).encrypt(nonce, content, associated)


def open_by_hand(private: bytes, info: bytes, sealed: bytes) -> bytes:
    own = X25519PrivateKey.from_private_bytes(private)
    encapsulated, public = sealed[:32], own.public_key().public_bytes_raw()
    point = own.exchange(X25519PublicKey.from_public_bytes(encapsulated))
    key, nonce = key_and_nonce(point, encapsulated, public, info)
    return AESGCM(key).decrypt(nonce, sealed[32:], b"")


def test_by_hand_is_as_the_standard_says():
    given = {name: bytes.fromhex(text) for name, text in RFC.items()}
    point = X25519PrivateKey.from_private_bytes(given["ephemeral"]).exchange(
        X25519PublicKey.from_public_bytes(given["public"])
    )
    found = key_and_nonce(point, given["encapsulated"], given["public"], given["info"])
    assert found == (given["key"], given["nonce"])
    sealed = seal_by_hand(*(given[name] for name in ("ephemeral", "public", "info", "content", "associated")))
    assert sealed == given["encapsulated"] + given["sealed"]


def test_what_is_sealed_here_opens_by_hand():
    key = SealingKey.create()
    for content in (b"\x05", b"\xff"):
        [sealed] = Sealer(key.public, TASK, 1).seal([content], 1)
        assert open_by_hand(key.secret, INFO, sealed) == b"\x01" + content
    [dummy] = Sealer(key.public, TASK, 3).seal([], 1)
    assert open_by_hand(key.secret, INFO, dummy) == bytes(4)


def test_what_is_sealed_by_hand_opens_here():
    key = SealingKey.create()
    contents = [b"\x01abc", bytes(4), b"\x00abc", b"\x02abc", b"\x01ab", b""]
    sealed = [seal_by_hand(bytes([7] * 32), key.public.raw, INFO, content) for content in contents]
    opened = Opener(key, TASK, 3).open(sealed)
    assert opened.messages == [b"abc"]
    assert opened.dummies == 1
    assert opened.rejected == {"malformed": 2, "wrong-size": 2}


def test_the_info_binds_version_role_and_task():
    assert sealing_info(TASK) == INFO
    for size in (0, 31, 33):
        with pytest.raises(ParameterError, match="32 bytes"):
            sealing_info(bytes(size))
    key = SealingKey.create()
    good = Sealer(key.public, TASK, 2).seal([b"ab"], 1)
    assert Opener(key, TASK, 2).open(good).messages == [b"ab"]
    for opener in (Opener(key, OTHER, 2), Opener(SealingKey.create(), TASK, 2)):
        opened = opener.open(good)
        assert (opened.messages, opened.dummies, opened.rejected) == ([], 0, {"cannot-be-opened": 1})
    for wrong in (
        INFO.replace(b"v1", b"v2"),
        INFO.replace(b"analyzer", b"shuffler"),
        b"",
        INFO + b"\0",
    ):
        sealed = SUITE.encrypt(b"\x01ab", key.public.public, info=wrong)
        assert Opener(key, TASK, 2).open([sealed]).rejected == {"cannot-be-opened": 1}


def test_every_changed_bit_is_noticed():
    key = SealingKey.create()
    opener = Opener(key, TASK, 1)
    [sealed] = Sealer(key.public, TASK, 1).seal([b"a"], 1)
    for place in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        opened = opener.open([bytes(changed)])
        # X25519 ignores the highest bit of a point, but the key also depends on the bytes of the point
        assert (opened.messages, opened.rejected) == ([], {"cannot-be-opened": 1}), place
    for length in (0, 32, len(sealed) - 1):
        assert opener.open([sealed[:length]]).rejected == {"wrong-size": 1}
    assert opener.open([bytes(len(sealed))]).rejected == {"cannot-be-opened": 1}  # a point of small order


def test_all_have_one_length_and_no_two_are_alike():
    key = SealingKey.create()
    sealed = Sealer(key.public, TASK, 5).seal([b"abcde"] * 20, 100)
    assert {len(each) for each in sealed} == {sealed_size(5)} == {32 + 1 + 5 + 16}
    assert len({each[:32] for each in sealed}) == len({each[32:] for each in sealed}) == 100
    opened = Opener(key, TASK, 5).open(sealed)
    assert (len(opened.messages), opened.dummies) == (20, 80)


def test_what_cannot_be_sealed():
    sealer = Sealer(SealingKey.create().public, TASK, 2)
    with pytest.raises(ParameterError, match="A report has at most 1 messages, not 2"):
        sealer.seal([b"ab", b"cd"], 1)
    for wrong in (b"", b"a", b"abc"):
        with pytest.raises(ParameterError, match="2 bytes"):
            sealer.seal([wrong], 1)


def test_by_hand_can_fail():
    key = SealingKey.create()
    [sealed] = Sealer(key.public, OTHER, 1).seal([b"a"], 1)
    with pytest.raises(InvalidTag):
        open_by_hand(key.secret, INFO, sealed)
    assert hashlib.sha256(INFO).digest() != hashlib.sha256(sealing_info(OTHER)).digest()
