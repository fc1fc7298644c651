"""Make the test vectors that another implementation is checked against: vectors/v1/*.json.

    python tools/make_vectors.py [FOLDER]

Everything is fixed, also the keys and the randomness of sealing, so the files are always the same. vectors/README.md
says how to use them. The keys are public: never use them for anything else.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shuffledp.collection.canonical import canonical
from shuffledp.collection.keys import SealingKey, SigningKey, to_base64
from shuffledp.collection.sealing import SUITE_NAME, sealed_size, sealing_info
from shuffledp.collection.task import Task
from shuffledp.collection.wire import Manifest, ReportFormat, digest
from shuffledp.messages import MessageFormat
from shuffledp.protocols.documents import from_document

__all__ = ["vectors"]

TARGET = Path(__file__).parents[1] / "vectors" / "v1"
Document = dict[str, Any]


def _secret(label: str) -> bytes:
    return hashlib.sha256(f"shuffledp test vectors v1: {label}".encode()).digest()


AUTHOR, STRANGER, SHUFFLER = (SigningKey(_secret(label)) for label in ("author", "stranger", "shuffler"))
ANALYZER, OTHER_ANALYZER = SealingKey(_secret("analyzer")), SealingKey(_secret("other analyzer"))

_TERMS = {"users": 1000, "epsilon": "1.0", "delta": "1e-06", "honest_fraction": "1.0", "calibration": "given"}
# more noise than the claims need, so that no rounding decides whether they hold
PROTOCOLS: dict[str, Document] = {
    "histogram/balcer-cheu": {
        "noise": {**_TERMS, "absence": {"numerator": "0xd6bd091e8d90e00", "bits": 64}},
        "domain_size": 3,
        "categories": ["bus", "v\u00e9lo", "car \u201cown\u201d \U0001f697"],
        "padded": False,
    },
    "count/correlated-noise": {
        "terms": _TERMS,
        "ratio": {"numerator": "0xaabefe05d3d8c000", "bits": 64},
        "flood_shape": "2081/125",
        "flood_ratio": {"numerator": "0xf38e609045da6800", "bits": 64},
        "encoding": "signed",
    },
    "sum/split-and-mix": {
        "terms": _TERMS,
        "levels": 32,
        "ratio": {"numerator": "0xf8e67a8c04fcf800", "bits": 64},
        "messages": 9,
        "modulus": 65536,
        "domain": {"lower": "-1.0", "upper": "4.0", "whole": False},
    },
    "histogram/k-rr": {
        "terms": {**_TERMS, "users": 2, "delta": "0.0"},
        "blanket": {"numerator": "0xac366f34b0cd4000", "bits": 64},
        "domain_size": 3,
        "categories": None,
    },
}
MESSAGES_PER_REPORT = {
    "histogram/balcer-cheu": 4,
    "count/correlated-noise": 1800,
    "sum/split-and-mix": 9,
    "histogram/k-rr": 1,
}


def task_of(name: str) -> Task:
    """The task of a protocol."""
    protocol = from_document({"version": 1, "protocol": name, "parameters": PROTOCOLS[name]})
    return Task(
        name="Getting to work",
        description="How did you get to work today? \u2013 Comment \u00eates-vous venu\u00b7e ?",
        population="city",
        protocol=protocol,
        epsilon=1.0,
        delta=1e-06,
        maximum_users=10 if protocol.users < 10 else 5000,
        opens=datetime(2026, 1, 31, 6, 0, 0, tzinfo=UTC),
        closes=datetime(2026, 1, 31, 18, 0, 0, tzinfo=UTC),
        messages_per_report=MESSAGES_PER_REPORT[name],
        analyzer=ANALYZER.public,
        shuffler=SHUFFLER.public,
    )


def seal(label: str, content: bytes, info: bytes, key: SealingKey = ANALYZER) -> bytes:
    """HPKE of RFC 9180 in base mode, written out, with an ephemeral key that follows from the label."""
    ephemeral = X25519PrivateKey.from_private_bytes(_secret(f"ephemeral {label}"))
    encapsulated, public = ephemeral.public_key().public_bytes_raw(), key.public.raw
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x01"

    def extract(given: bytes, salt: bytes, name: bytes, content: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + given + name + content, "sha256")

    def expand(given: bytes, secret: bytes, name: bytes, info: bytes, length: int) -> bytes:
        labelled = length.to_bytes(2, "big") + b"HPKE-v1" + given + name + info
        return hmac.digest(secret, labelled + b"\x01", "sha256")[:length]

    point = ephemeral.exchange(X25519PublicKey.from_public_bytes(public))
    shared = expand(kem, extract(kem, b"", b"eae_prk", point), b"shared_secret", encapsulated + public, 32)
    context = b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, shared, b"secret", b"")
    nonce = expand(suite, secret, b"base_nonce", context, 12)
    return encapsulated + AESGCM(expand(suite, secret, b"key", context, 16)).encrypt(nonce, content, b"")


# tasks


def _changed(envelope: Document, path: Sequence[Any], value: Any) -> Document:
    changed = copy.deepcopy(envelope)
    part = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return changed


def _signed_anew(envelope: Document, author: SigningKey = AUTHOR) -> Document:
    signature = author.sign(b"shuffledp task v1\n" + canonical(envelope["task"]))
    return {**envelope, "author": author.public.id, "signature": to_base64(signature)}


def _without(envelope: Document, key: str) -> Document:
    changed = copy.deepcopy(envelope)
    del changed["task"][key]
    return changed


def _tasks() -> Document:
    good = []
    for name in PROTOCOLS:
        task = task_of(name)
        form = ReportFormat.of(task)
        good.append(
            {
                "name": name,
                "content": task.signed(AUTHOR).to_bytes().decode(),
                "id": task.id.hex(),
                "minimum_users": task.minimum_users,
                "maximum_users": task.maximum_users,
                "messages_per_report": form.messages,
                "message_size": task.message_size,
                "sealed_size": form.sealed_size,
                "report_size": form.size,
                "info": sealing_info(task.id).hex(),
            }
        )
    return {
        "about": "Signed tasks. A device that trusts the author's key accepts the good ones and refuses the bad ones.",
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "good": good,
        "bad": _bad_tasks(),
    }


def _bad_tasks() -> list[Document]:
    text = task_of("histogram/balcer-cheu").signed(AUTHOR).to_bytes().decode()
    envelope: Document = json.loads(text)
    capped: Document = json.loads(task_of("count/correlated-noise").signed(AUTHOR).to_bytes())
    unsigned = {
        "the name is another": (("task", "name"), "Getting home"),
        "a smaller minimum": (("task", "minimum_users"), 10),
        "a later closing time": (("task", "closes"), "2026-02-28T18:00:00Z"),
        "another analyzer": (("task", "analyzer"), OTHER_ANALYZER.public.to_document()),
        "less noise": (("task", "protocol", "parameters", "noise", "absence", "numerator"), "0x1000000000000"),
        "true in the place of 1": (("task", "version"), True),
        "a signature of zeros": (("signature",), to_base64(bytes(64))),
    }
    signed = {
        "an epsilon that the noise does not reach": ("bad-guarantee", ("guarantee", "epsilon"), "0.25"),
        "a delta that the noise does not reach": ("bad-guarantee", ("guarantee", "delta"), "1e-12"),
        "more honest users than there are": ("inconsistent", ("guarantee", "honest_users"), 5000),
        "something is said to be left in a collusion": ("inconsistent", ("guarantee", "local_epsilon"), "1.0"),
        "a minimum that is not the protocol's": ("inconsistent", ("minimum_users",), 10),
        "a message size that is not the protocol's": ("inconsistent", ("message_size",), 2),
        "another suite": ("inconsistent", ("suite",), "none"),
        "fewer messages than a report has": ("bad-guarantee", ("messages_per_report",), 3),
        "version 2": ("version", ("version",), 2),
        "version true": ("malformed", ("version",), True),
        "another format": ("version", ("format",), "other"),
        "a number that is not the shortest": ("malformed", ("guarantee", "epsilon"), "1.00"),
        "a maximum below the minimum": ("malformed", ("maximum_users",), 999),
        "it closes before it opens": ("malformed", ("closes",), "2026-01-01T00:00:00Z"),
        "a time without its zone": ("malformed", ("opens",), "2026-01-31T06:00:00"),
        "a key with another's id": ("malformed", ("analyzer", "id"), OTHER_ANALYZER.public.id),
        "no such protocol": ("malformed", ("protocol", "protocol"), "histogram/nothing"),
        "an unknown parameter": ("malformed", ("protocol", "parameters", "more"), 1),
        "a name with a line break": ("malformed", ("name",), "a\nb"),
        "an unknown key": ("malformed", ("more",), 1),
    }
    cases: list[tuple[str, str, bytes]] = [
        (name, "bad-signature", canonical(_changed(envelope, path, value))) for name, (path, value) in unsigned.items()
    ]
    cases += [
        (name, reason, canonical(_signed_anew(_changed(envelope, ("task", *path), value))))
        for name, (reason, path, value) in signed.items()
    ]
    stranger = _signed_anew(envelope, STRANGER)
    central = _changed(envelope, ("task", "protocol"), _central())
    cases += [
        ("a key is missing", "malformed", canonical(_signed_anew(_without(envelope, "population")))),
        ("signed by somebody else", "unknown-author", canonical(stranger)),
        (
            "signed by somebody else in the author's name",
            "bad-signature",
            canonical({**stranger, "author": AUTHOR.public.id}),
        ),
        ("a protocol that trusts who collects", "malformed", canonical(_signed_anew(central))),
        (
            "a cap that reports exceed too often",
            "bad-guarantee",
            canonical(_signed_anew(_changed(capped, ("task", "messages_per_report"), 100))),
        ),
        ("white space", "not-canonical", json.dumps(envelope, sort_keys=True, ensure_ascii=False).encode()),
        (
            "keys in another order",
            "not-canonical",
            json.dumps(
                dict(sorted(envelope.items(), reverse=True)), separators=(",", ":"), ensure_ascii=False
            ).encode(),
        ),
        ("escaped letters", "not-canonical", json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()),
        ("a key twice", "not-canonical", text.replace('{"author":', '{"author":"","author":', 1).encode()),
        ("a number with a fraction", "not-canonical", text.replace('"version":1', '"version":1.0').encode()),
        ("cut off", "not-canonical", text[:-1].encode()),
        ("nothing", "not-canonical", b""),
        ("no envelope", "malformed", canonical(envelope["task"])),
    ]
    return [{"name": name, "reason": reason, "content": content.decode()} for name, reason, content in cases]


def _central() -> Document:
    terms = {**_TERMS, "delta": "0.0"}
    return {
        "version": 1,
        "protocol": "count/discrete-laplace",
        "parameters": {"terms": terms, "ratio": {"numerator": "0x4000000000000000", "bits": 64}},
    }


# messages and reports


def _message_formats() -> list[Document]:
    cases: list[tuple[MessageFormat, list[list[int]]]] = [
        (MessageFormat((2,)), [[0], [1]]),
        (MessageFormat((3,)), [[0], [1], [2]]),
        (MessageFormat((65536,)), [[0], [1], [258], [65535]]),
        (MessageFormat((1000,), flags=1), [[0, 0], [999, 1], [513, 0]]),
        (MessageFormat((5, 300, 2), flags=3), [[4, 299, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0]]),
        (MessageFormat((1 << 64,)), [[0], [(1 << 64) - 1], [0x0123456789ABCDEF]]),
        (MessageFormat((), flags=11), [[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]),
    ]
    return [
        {
            "bounds": [hex(bound) for bound in form.bounds],
            "flags": form.flags,
            "bits": form.bits,
            "size": form.size,
            "good": [
                {"parts": [hex(part) for part in parts], "packed": _packed(form, parts).hex()} for parts in messages
            ],
            "bad": _bad_packed(form),
        }
        for form, messages in cases
    ]


def _packed(form: MessageFormat, parts: Sequence[int]) -> bytes:
    values = np.array([parts], dtype=form.dtype)
    return bytes(form.pack(values[:, 0] if form.columns == 1 else values)[0])


def _bad_packed(form: MessageFormat) -> list[Document]:
    """Ones everywhere: a part outside its bounds, or a bit after the end, unless all bytes are messages."""
    if form.codes == 1 << (8 * form.size):
        return []
    return [{"packed": (b"\xff" * form.size).hex(), "reason": "outside-domain"}]


def _reports() -> Document:
    task = task_of("histogram/balcer-cheu")
    form, info = ReportFormat.of(task), sealing_info(task.id)
    contents = [b"\x01\x40", b"\x01\x00", b"\x00\x00", b"\x01\x40"]
    sealed = [seal(f"report {place}", content, info) for place, content in enumerate(contents)]
    report_id = _secret("report id")[:16]
    good = form.build(report_id, sealed)
    other = bytes.fromhex("00" * 31 + "01")
    bad = {
        "one byte short": ("size", good[:-1]),
        "one byte long": ("size", good + b"\x00"),
        "a message is missing": ("size", good[: -form.sealed_size]),
        "nothing": ("size", b""),
        "another beginning": ("magic", b"SDPX" + good[4:]),
        "version 0": ("version", good[:4] + b"\x00" + good[5:]),
        "version 2": ("version", good[:4] + b"\x02" + good[5:]),
        "another task": ("task", good[:5] + other + good[37:]),
    }
    return {
        "about": "How messages are packed, and how a report is built of sealed ones.",
        "message_formats": _message_formats(),
        "task": "histogram/balcer-cheu",
        "task_id": task.id.hex(),
        "messages": form.messages,
        "sealed_size": form.sealed_size,
        "report_size": form.size,
        "good": [
            {
                "name": "two messages for the category 1, one for 0, a dummy",
                "report_id": report_id.hex(),
                "sealed": [each.hex() for each in sealed],
                "report": good.hex(),
                "opened": [
                    {"parts": [hex(content[1] >> 6)]} if content[0] else {"dummy": True} for content in contents
                ],
            }
        ],
        "bad": [{"name": name, "reason": reason, "report": report.hex()} for name, (reason, report) in bad.items()],
    }


# sealing


def _sealing() -> Document:
    task_id, size = task_of("sum/split-and-mix").id, 2
    info = sealing_info(task_id)
    good: dict[str, bytes] = {"a message": b"\x01\xab\xcd", "a message of zeros": b"\x01\x00\x00", "a dummy": bytes(3)}
    sealed = seal("opening", b"\x01\xab\xcd", info)
    flip: Callable[[int], bytes] = lambda at: sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]  # noqa: E731
    bad = {
        "too short": ("wrong-size", sealed[:-1]),
        "too long": ("wrong-size", sealed + b"\x00"),
        "nothing": ("wrong-size", b""),
        "the encapsulated key is another": ("cannot-be-opened", flip(0)),
        "the highest bit of the encapsulated key": (
            "cannot-be-opened",
            sealed[:31] + bytes([sealed[31] ^ 128]) + sealed[32:],
        ),
        "a point of small order": ("cannot-be-opened", bytes(32) + sealed[32:]),
        "the content is another": ("cannot-be-opened", flip(32)),
        "the tag is another": ("cannot-be-opened", flip(len(sealed) - 1)),
        "sealed to another key": ("cannot-be-opened", seal("other key", b"\x01\xab\xcd", info, OTHER_ANALYZER)),
        "sealed for another task": ("cannot-be-opened", seal("other task", b"\x01\xab\xcd", sealing_info(bytes(32)))),
        "sealed for another role": (
            "cannot-be-opened",
            seal("other role", b"\x01\xab\xcd", info.replace(b"analyzer", b"shuffler")),
        ),
        "sealed for another version": (
            "cannot-be-opened",
            seal("version", b"\x01\xab\xcd", info.replace(b"v1", b"v2")),
        ),
        "sealed without info": ("cannot-be-opened", seal("no info", b"\x01\xab\xcd", b"")),
        "a dummy that is not zero": ("malformed", seal("bad dummy", b"\x00\x00\x01", info)),
        "neither message nor dummy": ("malformed", seal("bad kind", b"\x02\xab\xcd", info)),
    }
    return {
        "about": "Sealed messages and what opening each of them must give.",
        "suite": {"name": SUITE_NAME, "kem": "0x0020", "kdf": "0x0001", "aead": "0x0001", "mode": "base", "aad": ""},
        "analyzer": {"public": ANALYZER.public.raw.hex(), "private": ANALYZER.secret.hex()},
        "task_id": task_id.hex(),
        "info": info.hex(),
        "message_size": size,
        "sealed_size": sealed_size(size),
        "good": [
            {
                "name": name,
                "ephemeral": _secret(f"ephemeral {name}").hex(),
                "content": content.hex(),
                "sealed": seal(name, content, info).hex(),
                "opened": {"message": content[1:].hex()} if content[0] else {"dummy": True},
            }
            for name, content in good.items()
        ],
        "bad": [{"name": name, "reason": reason, "sealed": content.hex()} for name, (reason, content) in bad.items()],
    }


# batches


def _batches() -> Document:
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


def vectors() -> dict[str, bytes]:
    """The content of every file."""
    made = {"task": _tasks(), "report": _reports(), "sealing": _sealing(), "batch": _batches()}
    return {
        f"{name}.json": json.dumps({"format": "shuffledp-vectors", "version": 1, **content}, indent=1).encode() + b"\n"
        for name, content in made.items()
    }


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in vectors().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
