"""Test vectors of documents about keys: rotations, records of destruction, and key files with an expiry."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.key_documents import Destruction, Rotation, sign_rotation
from shuffledp.collection.task.signed_documents import sign_document
from shuffledp.collection.wire.keys import SealingKey, SigningKey, to_base64
from vector_files import Document
from vector_files.keys import AUTHOR, SHUFFLER, STRANGER, secret_of

SUCCESSOR = SigningKey(secret_of("successor"))
ROUND_KEY = SealingKey(secret_of("round key"))
_TIME = datetime(2026, 3, 2, 12, tzinfo=UTC)
_ROTATE, _CONSENT, _DESTROYED = b"shuffledp rotate v1\n", b"shuffledp consent v1\n", b"shuffledp destroyed v1\n"


_BAD_FILES: dict[str, Document] = {
    "a date without a time": {"expires": "2028-01-01"},
    "an expiry that is not a string": {"expires": 1830297600},
    "no expiry as null": {"expires": None},
    "an unknown key": {"valid": True},
    "the id of another key": {"id": STRANGER.public.id},
}


def keys_file() -> Document:
    """The content of v2/keys.json."""
    return {
        "about": "Rotations of an author's key, records of destroyed keys, and key files.",
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "shuffler": {"key_id": SHUFFLER.public.id, "public": SHUFFLER.public.raw.hex()},
        "good_rotations": [
            {
                "name": "from the author to a successor",
                "content": sign_rotation(AUTHOR, SUCCESSOR).decode(),
                "new": SUCCESSOR.public.raw.hex(),
            }
        ],
        "bad_rotations": _bad_rotations(),
        "good_destructions": [
            {
                "name": "of a round key",
                "content": Destruction(ROUND_KEY.public, _TIME).signed(SHUFFLER).decode(),
                "key": ROUND_KEY.public.raw.hex(),
                "time": "2026-03-02T12:00:00Z",
            }
        ],
        "bad_destructions": _bad_destructions(),
        "good_files": [
            {"name": "without an expiry", "content": json.dumps(AUTHOR.public.to_document()), "expires": None},
            {
                "name": "with an expiry",
                "content": json.dumps({**AUTHOR.public.to_document(), "expires": "2028-01-01T00:00:00Z"}),
                "expires": "2028-01-01T00:00:00Z",
            },
        ],
        "bad_files": [
            {"name": name, "content": json.dumps({**AUTHOR.public.to_document(), **change})}
            for name, change in _BAD_FILES.items()
        ],
    }


def _bad_rotations() -> list[Document]:
    content = {
        "format": "shuffledp-rotate",
        "version": 1,
        "old": AUTHOR.public.to_document(),
        "new": SUCCESSOR.public.to_document(),
    }
    assert canonical(content) == canonical(Rotation(AUTHOR.public, SUCCESSOR.public).to_document())  # noqa: S101

    def signed(
        change: Document, *, consent: SigningKey = SUCCESSOR, author: SigningKey = AUTHOR, label: bytes = _CONSENT
    ) -> bytes:
        document = {**content, **change}
        agreed = to_base64(consent.sign(label + canonical(document)))
        return sign_document({"consent": agreed, **document}, author, name="rotate", label=_ROTATE)

    good = sign_rotation(AUTHOR, SUCCESSOR)
    cases = [
        ("signed by somebody else", "unknown-author", signed({}, author=STRANGER)),
        ("without the consent of the new key", "bad-signature", signed({}, consent=AUTHOR)),
        ("a consent to something else", "bad-signature", signed({}, label=_ROTATE)),
        ("of the key of another author", "malformed", signed({"old": STRANGER.public.to_document()})),
        ("to the same key", "malformed", signed({"new": AUTHOR.public.to_document()}, consent=AUTHOR)),
        ("to a sealing key", "malformed", signed({"new": ROUND_KEY.public.to_document()})),
        ("version 2", "version", signed({"version": 2})),
        ("another format", "version", signed({"format": "shuffledp-task"})),
        ("an unknown key", "malformed", signed({"more": 1})),
        ("white space", "not-canonical", good.replace(b",", b", ")),
    ]
    return [{"name": name, "reason": reason, "content": case.decode()} for name, reason, case in cases]


def _bad_destructions() -> list[Document]:
    document = Destruction(ROUND_KEY.public, _TIME).to_document()

    def signed(change: Document, signer: SigningKey = SHUFFLER, label: bytes = _DESTROYED) -> bytes:
        return sign_document({**document, **change}, signer, name="destroyed", label=label)

    cases = [
        ("signed by somebody else", "unknown-author", signed({}, STRANGER)),
        ("signed as a rotation", "bad-signature", signed({}, label=_ROTATE)),
        ("not signed", "malformed", Destruction(ROUND_KEY.public, _TIME).unsigned()),
        ("without a key", "malformed", signed({"key": None})),
        ("a time with a zone", "malformed", signed({"time": "2026-03-02T12:00:00+00:00"})),
        ("version 2", "version", signed({"version": 2})),
    ]
    return [{"name": name, "reason": reason, "content": case.decode()} for name, reason, case in cases]
