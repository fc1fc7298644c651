"""Test vectors of signed tasks: valid ones with values derived from them, invalid ones with the reason."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from typing import Any

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SigningKey, to_base64
from shuffledp.collection.wire.sealing import sealing_info
from vector_files import Document
from vector_files.examples import PROTOCOLS, TERMS, task_of
from vector_files.keys import AUTHOR, OTHER_ANALYZER, STRANGER
from vector_files.randomizers import TOLERANCE, six_digits
from vector_files.task_edges import canonical_documents, edge_cases


def task_file() -> Document:
    """The content of task.json."""
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
                "recomputed": _recomputed(task),
            }
        )
    return {
        "about": "Signed tasks. A device that trusts the author's key accepts the good ones and refuses the bad ones.",
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "tolerance": TOLERANCE,
        "good": good,
        "bad": _bad_tasks(),
        "edge_cases": edge_cases(),
        "documents": canonical_documents(),
    }


def _recomputed(task: Task) -> Document:
    """The values that a device derives from the parameters at the claimed epsilon, including the cap."""
    guarantee = task.guarantee
    local = guarantee.local_epsilon
    return {
        "epsilon": repr(task.epsilon),
        "delta": six_digits(guarantee.delta_at(task.epsilon)),
        "local_epsilon": six_digits(local) if math.isfinite(local) else None,
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
        "fewer messages than a report has": ("inconsistent", ("messages_per_report",), 3),
        "version 2": ("version", ("version",), 2),
        "version true": ("malformed", ("version",), True),
        "another format": ("version", ("format",), "other"),
        "a number that is not the shortest": ("malformed", ("guarantee", "epsilon"), "1.00"),
        "a maximum below the minimum": ("malformed", ("maximum_users",), 999),
        "it closes before it opens": ("malformed", ("closes",), "2026-01-01T00:00:00Z"),
        "a time without its zone": ("malformed", ("opens",), "2026-01-31T06:00:00"),
        "a key with another's id": ("malformed", ("analyzer", "id"), OTHER_ANALYZER.public.id),
        "no such protocol": ("malformed", ("protocol", "protocol"), "histogram/nothing"),
        "noise that underflows: a probability of 1,100 bits": (
            "malformed",
            ("protocol", "parameters", "noise", "absence"),
            {"bits": 1100, "numerator": 1},
        ),
        "a probability of 129 bits": (
            "malformed",
            ("protocol", "parameters", "noise", "absence"),
            {"bits": 129, "numerator": hex(1 << 123)},
        ),
        "a probability of 64 significant bits": (
            "malformed",
            ("protocol", "parameters", "noise", "absence"),
            {"bits": 64, "numerator": hex((1 << 63) + 1)},
        ),
        "more users than can be counted": ("malformed", ("protocol", "parameters", "noise", "users"), 10**15 + 1),
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
    busy = _changed(envelope, ("task", "protocol"), _busy())
    cases += [
        ("a key is missing", "malformed", canonical(_signed_anew(_without(envelope, "population")))),
        ("signed by somebody else", "unknown-author", canonical(stranger)),
        (
            "signed by somebody else in the author's name",
            "bad-signature",
            canonical({**stranger, "author": AUTHOR.public.id}),
        ),
        ("a report that takes too many draws", "malformed", canonical(_signed_anew(busy))),
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


def _busy() -> Document:
    """Noise of size about 2^40, which takes as many steps to draw."""
    return {
        "version": 1,
        "protocol": "sum/local-laplace",
        "parameters": {
            "terms": {**TERMS, "delta": "0.0"},
            "levels": 1,
            "ratio": {"numerator": (1 << 40) - 1, "bits": 40},
            "margin": 1 << 50,
            "domain": {"lower": "0.0", "upper": "1.0", "whole": False},
        },
    }


def _central() -> Document:
    terms = {**TERMS, "delta": "0.0"}
    return {
        "version": 1,
        "protocol": "count/discrete-laplace",
        "parameters": {"terms": terms, "ratio": {"numerator": "0x4000000000000000", "bits": 64}},
    }


def _changed(envelope: Document, path: Sequence[Any], value: Any) -> Document:
    changed = copy.deepcopy(envelope)
    part = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return changed


def _without(envelope: Document, key: str) -> Document:
    changed = copy.deepcopy(envelope)
    del changed["task"][key]
    return changed


def _signed_anew(envelope: Document, author: SigningKey = AUTHOR) -> Document:
    signature = author.sign(b"shuffledp task v1\n" + canonical(envelope["task"]))
    return {**envelope, "author": author.public.id, "signature": to_base64(signature)}
