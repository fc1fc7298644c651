"""Test vectors of augmented protocols: pmfs of reports and guarantees, signed tasks of version 2, and a batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import KEYS_OF_VERSION_2, Carriers, ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HopCounts, Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import to_base64
from shuffledp.collection.wire.sealing import sealing_info
from shuffledp.protocols.documents import from_document
from vector_files import Document
from vector_files.cases.case import HALF, QUARTER, Case, categories, over, terms
from vector_files.keys import ANALYZER, AUTHOR, SHUFFLER, seal
from vector_files.randomizers import TOLERANCE, case_document
from vector_files.version_2 import ROUND_KEY

CASES = (
    Case(
        "four dummies", "count/shuffler-laplace", {"terms": terms(3, "1.0", "0.9"), "ratio": HALF, "shift": 2}, (0, 1)
    ),
    Case(
        "three categories",
        "histogram/shuffler-laplace",
        {"terms": terms(3, "1.0", "0.9"), "ratio": over(3, 2), "shift": 4, **categories(3)},
        (0, 1, 2),
    ),
    Case(
        "one dummy per category at most, mostly",
        "histogram/shuffler-laplace",
        {"terms": terms(3, "2.0", "0.9"), "ratio": QUARTER, "shift": 1, **categories(2, "bus", "bike")},
        (0, 1),
    ),
    Case(
        "half of the reports",
        "histogram/shuffler-geometric",
        {"terms": terms(3, "2.0", "0.0"), "keep": HALF, "ratio": QUARTER, **categories(2)},
        (0, 1),
    ),
)
_PROTOCOLS: dict[str, Document] = {  # more noise than the claims need
    "histogram/shuffler-laplace": {
        "terms": terms(100, "1.0", "1e-06"),
        "ratio": over(0x9C00000000000000, 64),
        "shift": 30,
        **categories(3, "bus", "v\u00e9lo", "car"),
    },
    "histogram/shuffler-geometric": {
        "terms": terms(100, "1.0", "0.0"),
        "keep": over(3, 3),
        "ratio": over(13, 5),
        **categories(3),
    },
    "count/shuffler-laplace": {"terms": terms(100, "1.0", "1e-06"), "ratio": over(3, 3), "shift": 16},
}


_SHUFFLERS = (ShufflerKeys(SHUFFLER.public, ROUND_KEY.public),)


def _task(name: str, **changes: Any) -> Task:
    protocol = from_document({"version": 1, "protocol": name, "parameters": _PROTOCOLS[name]})
    fields: dict[str, Any] = {
        "name": "Getting to work",
        "description": "",
        "population": "city",
        "protocol": protocol,
        "epsilon": 1.0,
        "delta": protocol.target.delta,
        "maximum_users": 5000,
        "opens": datetime(2026, 1, 31, 6, 0, 0, tzinfo=UTC),
        "closes": datetime(2026, 1, 31, 18, 0, 0, tzinfo=UTC),
        "messages_per_report": 1,
        "analyzer": ANALYZER.public,
        "shuffler": SHUFFLER.public,
        "wire": WireVersion2(_SHUFFLERS),
    }
    return Task(**fields | changes)


def augmented_file() -> Document:
    """The content of v2/augmented.json."""
    tasks = {name: _task(name) for name in _PROTOCOLS}
    return {
        "about": "Protocols whose shuffler adds dummies: pmfs of reports, signed tasks, and a batch with dummies.",
        "tolerance": TOLERANCE,
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "randomizers": [case_document(case) for case in CASES],
        "good": [
            {
                "name": name,
                "content": task.signed(AUTHOR).to_bytes().decode(),
                "id": task.id.hex(),
                "report_size": ReportFormat.of(task).size,
            }
            for name, task in tasks.items()
        ],
        "bad": _bad_tasks(),
        "batch": _batch(tasks["histogram/shuffler-laplace"]),
    }


def _bad_tasks() -> list[Document]:
    laplace = _task("histogram/shuffler-laplace").to_document()
    count = _task("count/shuffler-laplace").to_document()
    pure = _task("histogram/shuffler-geometric").to_document()

    def changed(document: Document, **parameters: Any) -> Document:
        protocol = document["protocol"]
        return {**document, "protocol": {**protocol, "parameters": {**protocol["parameters"], **parameters}}}

    def claimed(document: Document, delta: str) -> Document:
        return {**document, "guarantee": {**document["guarantee"], "delta": delta}}

    first = {key: value for key, value in laplace.items() if key not in KEYS_OF_VERSION_2}
    first |= {"version": 1, "shuffler": SHUFFLER.public.to_document()}
    carriers = Carriers(20, 5).to_document()
    cases: list[tuple[str, str, Document, int]] = [
        ("too few dummies", "bad-guarantee", changed(laplace, shift=10), 2),
        ("too few dummies of a count", "bad-guarantee", changed(count, shift=5), 2),
        ("too many reports are kept", "bad-guarantee", changed(pure, keep=HALF), 2),
        ("a delta of 0 that dummies do not reach", "bad-guarantee", claimed(laplace, "0.0"), 2),
        ("no dummies", "malformed", changed(laplace, shift=0), 2),
        ("more dummies than a shuffler seals", "malformed", changed(laplace, domain_size=10**6, categories=None), 2),
        ("two messages per report", "inconsistent", {**laplace, "messages_per_report": 2}, 2),
        ("carriers", "malformed", {**laplace, "carriers": carriers}, 2),
        ("version 1", "malformed", first, 1),
    ]
    return [
        {"name": name, "reason": reason, "content": _signed(document, version)}
        for name, reason, document, version in cases
    ]


def _signed(document: Document, version: int) -> str:
    content = canonical(document)
    signature = AUTHOR.sign(b"shuffledp task v%d\n" % version + content)
    signed = {"task": document, "author": AUTHOR.public.id, "signature": to_base64(signature)}
    return canonical(signed).decode()


def _batch(task: Task) -> Document:
    """100 reports and 5 dummies; nobody can say which are which."""
    info = sealing_info(task.id, 2)
    answers = [(7 * place) % 3 for place in range(105)]
    sealed = [seal(f"augmented {place}", bytes([1, answer << 6]), info) for place, answer in enumerate(answers)]
    content = b"".join(sealed)
    manifest = Manifest(task.id, 100, len(sealed), task.sealed_size, 200, (digest(content),), HopCounts(unopenable=2))
    fewer = replace(manifest, messages=99)
    return {
        "shuffler": {"public": SHUFFLER.public.raw.hex(), "private": SHUFFLER.secret.hex()},
        "task": task.id.hex(),
        "manifest": manifest.signed(SHUFFLER).decode(),
        "chunks": [content.hex()],
        "counts": [answers.count(index) for index in range(3)],
        "bad": [{"name": "fewer messages than reports", "manifest": fewer.signed(SHUFFLER).decode()}],
    }
