"""The two suites of seals to shufflers: HPKE (RFC 9180) with X25519, or with a KEM that withstands quantum computers.

The hybrid KEM is ML-KEM-768 and X25519 together (MLKEM768-X25519, also known as X-Wing): a seal stays closed while
either of the two is unbroken. Messages to the analyzer are always sealed with X25519 (``sealing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from shuffledp.collection.wire.keys import HybridKey, HybridPublicKey, RoundKey, RoundPublicKey, SealingPublicKey
from shuffledp.collection.wire.sealing import LAYER_SIZE, SUITE, SUITE_NAME


@dataclass(frozen=True)
class OuterSuite:
    """A suite of seals to shufflers."""

    name: str
    """As tasks state it."""
    hpke: Suite
    public: type[RoundPublicKey]
    """The kind of its public keys."""
    seal_size: int
    """Bytes that a seal adds: the encapsulated key and the tag."""


X25519_SUITE = OuterSuite(SUITE_NAME, SUITE, SealingPublicKey, LAYER_SIZE)
HYBRID_SUITE = OuterSuite(
    "MLKEM768-X25519, HKDF-SHA256, AES-128-GCM",
    Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM),
    HybridPublicKey,
    LAYER_SIZE + 1088,  # the ciphertext of ML-KEM-768
)
OUTER_SUITES: Mapping[str, OuterSuite] = MappingProxyType({suite.name: suite for suite in (X25519_SUITE, HYBRID_SUITE)})


def suite_of(key: RoundKey | RoundPublicKey) -> OuterSuite:
    """The suite that a round key belongs to."""
    return HYBRID_SUITE if isinstance(key, HybridKey | HybridPublicKey) else X25519_SUITE
