"""Signed documents about keys: the rotation of an author's key, and the destruction of a key.

A rotation is signed by the old key, and contains the consent of the new one, so neither key can be claimed by somebody
else. The record of a destruction is a claim of who signed it; nobody can prove that no copy is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.signed_documents import check_format, refusing, sign_document, verify_document
from shuffledp.collection.wire.keys import (
    SIGNATURE_SIZE,
    HybridPublicKey,
    RoundPublicKey,
    SealingPublicKey,
    SigningKey,
    VerifyingKey,
    from_base64,
    to_base64,
)
from shuffledp.collection.wire.times import time_from, time_to
from shuffledp.errors import ParameterError

MAX_KEY_DOCUMENT_BYTES = 1 << 14
_ROTATE, _ROTATE_LABEL, _CONSENT_LABEL = "shuffledp-rotate", b"shuffledp rotate v1\n", b"shuffledp consent v1\n"
_DESTROYED, _DESTROYED_LABEL = "shuffledp-destroyed", b"shuffledp destroyed v1\n"
_VERSION = 1


@dataclass(frozen=True)
class Rotation:
    """The successor of an author's key; whoever trusts the old key may trust the new one."""

    old: VerifyingKey
    new: VerifyingKey

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise ParameterError("A rotation needs two different keys.")

    def to_document(self) -> dict[str, Any]:
        """The document without the consent of the new key."""
        return {
            "format": _ROTATE,
            "version": _VERSION,
            "old": self.old.to_document(),
            "new": self.new.to_document(),
        }


def sign_rotation(old: SigningKey, new: SigningKey) -> bytes:
    """The rotation from one key to another, signed by both, as canonical JSON."""
    content = Rotation(old.public, new.public).to_document()
    consent = to_base64(new.sign(_CONSENT_LABEL + canonical(content)))
    return sign_document({**content, "consent": consent}, old, name="rotate", label=_ROTATE_LABEL)


def authentic_rotation(content: bytes, *authors: VerifyingKey) -> Rotation:
    """The rotation of these bytes; ParameterError unless it is from one of the authors, and both keys signed it."""
    labels = {_VERSION: _ROTATE_LABEL}
    verified = verify_document(content, authors, name="rotate", labels=labels, max_bytes=MAX_KEY_DOCUMENT_BYTES)
    with refusing("malformed", "rotate"):
        document = verified.document
        check_format(document, _ROTATE, _VERSION, {"format", "version", "old", "new", "consent"}, "rotation")
        rotation = Rotation(VerifyingKey.from_document(document["old"]), VerifyingKey.from_document(document["new"]))
        if rotation.old != verified.author:
            raise ParameterError(f"The rotation of the key {rotation.old.id} was signed by {verified.author.id}.")
        consent = from_base64(document["consent"], SIGNATURE_SIZE)
    with refusing("bad-signature", "rotate"):
        rotation.new.verify(consent, _CONSENT_LABEL + canonical(rotation.to_document()))
    return rotation


@dataclass(frozen=True)
class Destruction:
    """The claim that a private key was destroyed at a time."""

    key: VerifyingKey | RoundPublicKey
    time: datetime

    def to_document(self) -> dict[str, Any]:
        """The document that is signed."""
        return {
            "format": _DESTROYED,
            "version": _VERSION,
            "key": self.key.to_document(),
            "time": time_to(self.time),
        }

    def signed(self, signer: SigningKey) -> bytes:
        """The claim with a signature, as canonical JSON."""
        return sign_document(self.to_document(), signer, name="destroyed", label=_DESTROYED_LABEL)

    def unsigned(self) -> bytes:
        """The claim of a server that has no key to sign it, as canonical JSON; nobody else can rely on it."""
        return canonical({"author": None, "destroyed": self.to_document(), "signature": None})

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """The claim of a document; ParameterError if it is not valid."""
        check_format(document, _DESTROYED, _VERSION, {"format", "version", "key", "time"}, "record of a destruction")
        key = document["key"]
        kinds: dict[str, type[VerifyingKey] | type[RoundPublicKey]] = {
            kind.kind: kind for kind in (SealingPublicKey, HybridPublicKey)
        }
        kind = kinds.get(str(key.get("kind")) if isinstance(key, dict) else "", VerifyingKey)
        return cls(kind.from_document(key), time_from(document, "time"))


def authentic_destruction(content: bytes, *signers: VerifyingKey) -> Destruction:
    """The claim of these bytes; ParameterError unless one of the signers signed it."""
    labels = {_VERSION: _DESTROYED_LABEL}
    verified = verify_document(content, signers, name="destroyed", labels=labels, max_bytes=MAX_KEY_DOCUMENT_BYTES)
    with refusing("malformed", "destroyed"):
        return Destruction.from_document(verified.document)
