"""Test vectors of batches: a signed manifest, its chunks, and their content."""

from __future__ import annotations

from typing import Any

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.wire.formats import Manifest, digest
from shuffledp.collection.wire.keys import SigningKey, to_base64
from shuffledp.collection.wire.sealing import sealing_info
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import SHUFFLER, STRANGER, seal


def batch_file() -> Document:
    """The content of batch.json."""
    task = task_of("histogram/k-rr")
    info = sealing_info(task.id)
    answers = [2, 0, 2, 1, 2]
    sealed = [seal(f"batch {place}", bytes([1, answer << 6]), info) for place, answer in enumerate(answers)]
    chunks = [b"".join(sealed[at : at + 2]) for at in range(0, len(sealed), 2)]
    manifest = Manifest(task.id, 5, 5, task.sealed_size, 2, tuple(digest(chunk) for chunk in chunks))
    good = manifest.signed(SHUFFLER)
    document = manifest.to_document()
    changes: dict[str, tuple[str, str, Any]] = {
        "another task": ("wrong-task", "task", "00" * 32),
        "more messages than reports have": ("wrong-size", "messages", 6),
        "messages of another size": ("wrong-size", "record_size", 51),
        "fewer reports than the minimum": ("too-few", "reports", 1),
        "a chunk too few": ("malformed", "chunks", document["chunks"][:2]),
        "no chunks": ("malformed", "chunks", []),
        "a hash in capitals": ("malformed", "chunks", [each.upper() for each in document["chunks"]]),
        "no reports": ("malformed", "reports", 0),
        "reports as text": ("malformed", "reports", "5"),
        "version 2": ("version", "version", 2),
        "another format": ("malformed", "format", "other"),
        "an unknown key": ("malformed", "more", 1),
    }
    few = {"fewer reports than the minimum": {"messages": 1, "chunks": document["chunks"][:1]}}
    bad = [
        (name, reason, _signed_batch({**document, key: value, **few.get(name, {})}))
        for name, (reason, key, value) in changes.items()
    ]
    text = good.decode()
    bad += [
        ("changed after it was signed", "bad-signature", text.replace('"reports":5', '"reports":4').encode()),
        ("signed by somebody else", "bad-signature", _signed_batch(document, STRANGER)),
        (
            "signed for another purpose",
            "bad-signature",
            canonical({"batch": document, "signature": to_base64(SHUFFLER.sign(canonical(document)))}),
        ),
        ("white space", "not-canonical", text.replace(",", ", ").encode()),
        ("cut off", "not-canonical", good[:-1]),
    ]
    return {
        "about": "A batch: its signed manifest, its chunks, and what they hold.",
        "task": "histogram/k-rr",
        "shuffler": {
            "key_id": SHUFFLER.public.id,
            "public": SHUFFLER.public.raw.hex(),
            "private": SHUFFLER.secret.hex(),
        },
        "good": [
            {
                "name": "five reports in three chunks",
                "manifest": text,
                "chunks": [chunk.hex() for chunk in chunks],
                "counts": [answers.count(index) for index in range(3)],
            }
        ],
        "bad": [{"name": name, "reason": reason, "manifest": content.decode()} for name, reason, content in bad],
        "bad_chunks": [
            {"name": "in the place of another", "reason": "wrong-hash", "index": 0, "chunk": chunks[1].hex()},
            {"name": "one byte short", "reason": "wrong-size", "index": 0, "chunk": chunks[0][:-1].hex()},
            {"name": "longer than a last chunk", "reason": "wrong-size", "index": 2, "chunk": chunks[0].hex()},
            {"name": "no such chunk", "reason": "unknown-chunk", "index": 3, "chunk": chunks[0].hex()},
        ],
    }


def _signed_batch(document: Document, key: SigningKey = SHUFFLER) -> bytes:
    signature = key.sign(b"shuffledp batch v1\n" + canonical(document))
    return canonical({"batch": document, "signature": to_base64(signature)})
