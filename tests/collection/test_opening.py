"""Opening is HPKE as RFC 9180 and the library define it: the same is opened, and the same is refused."""

import os

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.collection.wire.opening import Recipient
from shuffledp.collection.wire.sealing import SUITE

pytestmark = pytest.mark.kernels

# RFC 9180, A.1.1: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, the first encryption
INFO = bytes.fromhex("4f6465206f6e2061204772656369616e2055726e")
PRIVATE = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
ENCAPSULATED = bytes.fromhex("37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431")
KEY, NONCE = bytes.fromhex("4531685d41d65f03dc48f6b8302c05b0"), bytes.fromhex("56d890e5accaaf011cff4b7d")
CONTENT = bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479")
SEALED = bytes.fromhex("f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a")
SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),  # p - 1
    (2**255 - 19).to_bytes(32, "little"),  # p
    (2**255 - 18).to_bytes(32, "little"),  # p + 1
]


def test_the_vector_of_the_standard():
    recipient = Recipient(PRIVATE, INFO)
    assert recipient.key_and_nonce(ENCAPSULATED) == (KEY, NONCE)
    assert recipient.open(ENCAPSULATED + SEALED, b"Count-0") == CONTENT
    for wrong in (b"Count-1", b"", None):
        with pytest.raises(InvalidTag):
            recipient.open(ENCAPSULATED + SEALED, wrong)
    with pytest.raises(InvalidTag):
        Recipient(PRIVATE, INFO + b"\x00").open(ENCAPSULATED + SEALED, b"Count-0")


@settings(max_examples=150)
@given(st.binary(max_size=200), st.binary(max_size=200), st.data())
def test_as_the_library_does(info, content, data):
    secret = os.urandom(32)
    private = X25519PrivateKey.from_private_bytes(secret)
    sealed = SUITE.encrypt(content, private.public_key(), info=info)
    recipient = Recipient(secret, info)
    assert recipient.open(sealed) == content
    place = data.draw(st.integers(0, 8 * len(sealed) - 1))
    changed = bytearray(sealed)
    changed[place // 8] ^= 1 << place % 8
    cut = sealed[: data.draw(st.integers(32, len(sealed) - 1))]
    for wrong in (bytes(changed), cut):
        for open_it in (recipient.open, lambda each: SUITE.decrypt(each, private, info=info)):
            with pytest.raises((InvalidTag, ValueError)):
                open_it(wrong)


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_a_point_of_small_order_is_refused(point):
    """Everybody could know what it leads to."""
    with pytest.raises(ValueError):  # noqa: PT011  (the words are the library's)
        Recipient(os.urandom(32), INFO).key_and_nonce(point)
