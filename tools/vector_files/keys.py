"""Keys and sealing randomness derived from labels. They are public: never use them elsewhere."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shuffledp.collection.wire.keys import SealingKey, SigningKey


def secret_of(label: str) -> bytes:
    """32 bytes that follow from the label."""
    return hashlib.sha256(f"shuffledp test vectors v1: {label}".encode()).digest()


AUTHOR, STRANGER, SHUFFLER = (SigningKey(secret_of(label)) for label in ("author", "stranger", "shuffler"))
ANALYZER, OTHER_ANALYZER = SealingKey(secret_of("analyzer")), SealingKey(secret_of("other analyzer"))


def seal(label: str, content: bytes, info: bytes, key: SealingKey = ANALYZER) -> bytes:
    """HPKE of RFC 9180 in base mode, written out, with an ephemeral key that follows from the label."""
    ephemeral = X25519PrivateKey.from_private_bytes(secret_of(f"ephemeral {label}"))
    encapsulated, public = ephemeral.public_key().public_bytes_raw(), key.public.raw
    point, kem = ephemeral.exchange(X25519PublicKey.from_public_bytes(public)), b"KEM\x00\x20"
    shared = _expand(kem, _extract(kem, b"", b"eae_prk", point), b"shared_secret", encapsulated + public, 32)
    return encapsulated + encrypted(b"\x00\x20", shared, content, info)


def encrypted(kem: bytes, shared: bytes, content: bytes, info: bytes) -> bytes:
    """What follows the encapsulated key, with HKDF-SHA256 and AES-128-GCM, if the KEM gives this shared secret."""
    suite = b"HPKE" + kem + b"\x00\x01\x00\x01"
    context = b"\x00" + _extract(suite, b"", b"psk_id_hash", b"") + _extract(suite, b"", b"info_hash", info)
    secret = _extract(suite, shared, b"secret", b"")
    nonce = _expand(suite, secret, b"base_nonce", context, 12)
    return AESGCM(_expand(suite, secret, b"key", context, 16)).encrypt(nonce, content, b"")


def _extract(given: bytes, salt: bytes, name: bytes, content: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + given + name + content, "sha256")


def _expand(given: bytes, secret: bytes, name: bytes, info: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + given + name + info
    return hmac.digest(secret, labelled + b"\x01", "sha256")[:length]
