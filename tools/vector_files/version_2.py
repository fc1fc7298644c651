"""Test vectors of wire version 2: tasks with shufflers and round keys, reports under an outer seal, batches, series."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.series import Cancellation, RoundKeys, Series
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import (
    SeriesRound,
    ShufflerKeys,
    WireVersion2,
)
from shuffledp.collection.wire.formats import HEADER_SIZE, HopCounts, Manifest, ReportFormat, digest
from shuffledp.collection.wire.keys import HybridKey, SealingKey, SigningKey, to_base64
from shuffledp.collection.wire.outer_seal import outer_info
from shuffledp.collection.wire.sealing import sealing_info
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import ANALYZER, AUTHOR, SHUFFLER, STRANGER, seal, secret_of

ROUND_KEY, OTHER_ROUND_KEY = SealingKey(secret_of("round key")), SealingKey(secret_of("other round key"))
SECOND, SECOND_ROUND_KEY = SigningKey(secret_of("second shuffler")), SealingKey(secret_of("second round key"))
HYBRID_ROUND_KEY = HybridKey(secret_of("hybrid round key"))
_LABEL = b"shuffledp task v2\n"
_FIRST_KEYS = ShufflerKeys(SHUFFLER.public, ROUND_KEY.public)
_SECOND_KEYS = ShufflerKeys(SECOND.public, SECOND_ROUND_KEY.public)


def second_task_of(name: str, **changes: Any) -> Task:
    """An example task of version 2 with the protocol."""
    wire = WireVersion2((_FIRST_KEYS,))
    return replace(
        task_of(name), wire=replace(wire, **changes), shuffler=changes.get("shufflers", wire.shufflers)[-1].signing
    )


def task_file_2() -> Document:
    """The content of v2/task.json."""
    supported = {
        "histogram/balcer-cheu": second_task_of("histogram/balcer-cheu"),
        "count/correlated-noise, with a cap": second_task_of("count/correlated-noise"),
        "histogram/k-rr, a claim of delta 0": replace(second_task_of("histogram/k-rr"), delta=0.0),
    }
    chain = (_FIRST_KEYS, _SECOND_KEYS)
    name = "histogram/balcer-cheu"
    unsupported = {
        "a chain of two shufflers": second_task_of(name, shufflers=chain),
        "a chain with traps": second_task_of(name, shufflers=chain, traps=32),
        "a round of a series": second_task_of(name, series=SeriesRound(secret_of("series"), 399)),
        "the hybrid outer seal": second_task_of(
            name, shufflers=(ShufflerKeys(SHUFFLER.public, HYBRID_ROUND_KEY.public),)
        ),
    }
    return {
        "about": "Signed tasks of version 2. A program that does not carry out a part refuses the tasks that need it.",
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "good": [
            {
                "name": name,
                "content": task.signed(AUTHOR).to_bytes().decode(),
                "id": task.id.hex(),
                "report_size": ReportFormat.of(task).size,
                "message_info": sealing_info(task.id, 2).hex(),
                "round_key": to_base64(ReportFormat.of(task).round_key.raw),  # type: ignore[union-attr]
            }
            for name, task in supported.items()
        ],
        "optional": [
            {"name": name, "content": task.signed(AUTHOR).to_bytes().decode(), "id": task.id.hex()}
            for name, task in unsupported.items()
        ],
        "bad": _bad_tasks(),
    }


def _bad_tasks() -> list[Document]:
    task = second_task_of("histogram/balcer-cheu")
    document = task.to_document()
    chain: Document = second_task_of("histogram/balcer-cheu", shufflers=(_FIRST_KEYS, _SECOND_KEYS)).to_document()
    shuffler = document["shufflers"][0]
    third, fourth = (
        {
            "signing": SigningKey(secret_of(f"signing {which}")).public.to_document(),
            "sealing": SealingKey(secret_of(f"sealing {which}")).public.to_document(),
        }
        for which in ("third", "fourth")
    )
    low_order = {"kind": "sealing", "id": "", "public": to_base64(bytes(32))}
    changes: dict[str, tuple[str, Document]] = {
        "no shuffler": ("malformed", {"shufflers": []}),
        "four shufflers": ("malformed", {"shufflers": [*chain["shufflers"], third, fourth]}),
        "a shuffler without a round key": ("malformed", {"shufflers": [{"signing": shuffler["signing"]}]}),
        "a shuffler with more": ("malformed", {"shufflers": [{**shuffler, "more": 1}]}),
        "shufflers that are no list": ("malformed", {"shufflers": shuffler}),
        "the keys of a shuffler in the wrong roles": (
            "malformed",
            {"shufflers": [{"signing": shuffler["sealing"], "sealing": shuffler["signing"]}]},
        ),
        "one shuffler twice": ("malformed", {"shufflers": [shuffler, shuffler]}),
        "two shufflers with one round key": (
            "malformed",
            {"shufflers": [shuffler, {**chain["shufflers"][1], "sealing": shuffler["sealing"]}]},
        ),
        "the analyzer's key as the round key": (
            "malformed",
            {"shufflers": [{**shuffler, "sealing": document["analyzer"]}]},
        ),
        "a round key of low order": ("malformed", {"shufflers": [{**shuffler, "sealing": low_order}]}),
        "another outer suite": ("malformed", {"outer_suite": "none"}),
        "no outer suite": ("malformed", {"outer_suite": None}),
        "traps without a second shuffler": ("malformed", {"traps": 1}),
        "fewer traps than none": ("malformed", {"shufflers": chain["shufflers"], "traps": -1}),
        "more traps than allowed": ("malformed", {"shufflers": chain["shufflers"], "traps": 1025}),
        "traps as text": ("malformed", {"traps": "0"}),
        "traps that are false": ("malformed", {"traps": False}),
        "carriers with shorter reports": ("malformed", {"carriers": {"messages_per_report": 4, "minimum": 1}}),
        "carriers with longer reports than allowed": (
            "malformed",
            {"carriers": {"messages_per_report": 65537, "minimum": 1}},
        ),
        "no carrier at least": ("malformed", {"carriers": {"messages_per_report": 20, "minimum": 0}}),
        "more carriers than users": ("malformed", {"carriers": {"messages_per_report": 20, "minimum": 5001}}),
        "carriers without a minimum": ("malformed", {"carriers": {"messages_per_report": 20}}),
        "a series without a round": ("malformed", {"series": {"id": "00" * 32}}),
        "a round beyond the last": ("malformed", {"series": {"id": "00" * 32, "round": 400}}),
        "a round before the first": ("malformed", {"series": {"id": "00" * 32, "round": -1}}),
        "the id of a series in capitals": ("malformed", {"series": {"id": "AB" * 32, "round": 0}}),
        "the shuffler of version 1 as well": ("malformed", {"shuffler": shuffler["signing"]}),
        "version 3": ("version", {"version": 3}),
        "a delta of 0 that the noise does not reach": (
            "bad-guarantee",
            {"guarantee": {**document["guarantee"], "delta": "0.0"}},
        ),
    }
    cases = [(name, reason, _signed({**document, **change}, _LABEL)) for name, (reason, change) in changes.items()]
    first = task_of("histogram/balcer-cheu").to_document()
    pure = {**task_of("histogram/k-rr").to_document()}
    pure["guarantee"] = {**pure["guarantee"], "delta": "0.0"}
    without = {key: value for key, value in document.items() if key != "carriers"}
    v1 = b"shuffledp task v1\n"
    cases += [
        ("a key is missing", "malformed", _signed(without, _LABEL)),
        ("version 2 signed as version 1", "version", _signed(document, v1)),
        ("version 1 signed as version 2", "version", _signed(first, _LABEL)),
        ("version 1 with the keys of version 2", "malformed", _signed({**document, "version": 1}, v1)),
        ("version 2 with the keys of version 1", "malformed", _signed({**first, "version": 2}, _LABEL)),
        ("version 1 with a delta of 0", "malformed", _signed(pure, v1)),
        ("signed for another purpose", "bad-signature", _signed(document, b"shuffledp series v1\n")),
    ]
    return [{"name": name, "reason": reason, "content": content.decode()} for name, reason, content in cases]


def report_file_2() -> Document:
    """The content of v2/report.json."""
    task = second_task_of("histogram/balcer-cheu")
    form, info = ReportFormat.of(task), sealing_info(task.id, 2)
    contents = [b"\x01\x40", b"\x01\x00", b"\x00\x00", b"\x01\x40"]
    sealed = [seal(f"report 2 {place}", content, info) for place, content in enumerate(contents)]
    report_id = secret_of("report id 2")[:16]
    header = b"SDPR\x02" + task.id + report_id
    messages = b"".join(sealed)

    def report(label: str, *, header: bytes = header, info: bytes | None = None, key: SealingKey = ROUND_KEY) -> bytes:
        return header + seal(label, messages, outer_info(header) if info is None else info, key)

    good = report("outer")
    flip: Callable[[int, int], bytes] = lambda at, bits: good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :]  # noqa: E731
    other_id = b"SDPR\x02" + task.id + secret_of("another report id")[:16]
    form_bad = {
        "one byte short": ("size", good[:-1]),
        "one byte long": ("size", good + b"\x00"),
        "without its outer seal": ("size", header + messages),
        "another beginning": ("magic", b"SDPX" + good[4:]),
        "version 1": ("version", good[:4] + b"\x01" + good[5:]),
        "another task": ("task", good[:5] + bytes(32) + good[37:]),
    }
    unopenable = {
        "another report id": other_id + good[HEADER_SIZE:],
        "the encapsulated key is another": flip(HEADER_SIZE, 1),
        "the highest bit of the encapsulated key": flip(HEADER_SIZE + 31, 128),
        "a point of small order": header + bytes(32) + good[HEADER_SIZE + 32 :],
        "the content is another": flip(HEADER_SIZE + 32, 1),
        "the tag is another": flip(len(good) - 1, 1),
        "sealed to another key": report("other key", key=OTHER_ROUND_KEY),
        "sealed to the analyzer": report("analyzer", key=ANALYZER),
        "sealed without the header": report("no header", info=outer_info(b"")),
        "sealed for another role": report("role", info=outer_info(header).replace(b"shuffler", b"analyzer")),
        "sealed as a message": report("message", info=info),
    }
    return {
        "about": "Reports of version 2: which have the right form, and what opening the outer seal gives.",
        "task": "histogram/balcer-cheu",
        "task_id": task.id.hex(),
        "round_key": {"public": ROUND_KEY.public.raw.hex(), "private": ROUND_KEY.secret.hex()},
        "messages": form.messages,
        "sealed_size": form.sealed_size,
        "report_size": form.size,
        "good": [
            {
                "name": "two messages for the category 1, one for 0, a dummy",
                "report_id": report_id.hex(),
                "sealed": [each.hex() for each in sealed],
                "ephemeral": secret_of("ephemeral outer").hex(),
                "info": outer_info(header).hex(),
                "report": good.hex(),
            }
        ],
        "bad": [
            {"name": name, "reason": reason, "report": content.hex()} for name, (reason, content) in form_bad.items()
        ],
        "unopenable": [{"name": name, "report": content.hex()} for name, content in unopenable.items()],
    }


def batch_file_2() -> Document:
    """The content of v2/batch.json."""
    task = second_task_of("histogram/k-rr")
    info = sealing_info(task.id, 2)
    answers = [2, 0, 2, 1, 2]
    sealed = [seal(f"batch 2 {place}", bytes([1, answer << 6]), info) for place, answer in enumerate(answers)]
    chunks = [b"".join(sealed[at : at + 2]) for at in range(0, len(sealed), 2)]
    hashes = tuple(digest(chunk) for chunk in chunks)
    manifest = Manifest(task.id, 5, 5, task.sealed_size, 2, hashes, HopCounts(unopenable=1))
    good, document = manifest.signed(SHUFFLER), manifest.to_document()
    later = replace(manifest, counts=HopCounts(1, 0, 2, 1, 0, digest(good)))
    changes: dict[str, tuple[str, Document]] = {
        "another task": ("wrong-task", {"task": "00" * 32}),
        "more messages than reports have": ("wrong-size", {"messages": 6}),
        "messages of another size": ("wrong-size", {"record_size": 51}),
        "carriers where the task has none": ("wrong-size", {"carriers": 1}),
        "fewer reports than the minimum": ("too-few", {"reports": 1, "messages": 1, "chunks": document["chunks"][:1]}),
        "more reports than could be stored": ("malformed", {"unopenable": 6}),
        "a later shuffler than the task has": ("malformed", {"hop": 1, "previous": "00" * 32}),
        "a first shuffler with a batch before": ("malformed", {"previous": "00" * 32}),
        "a later shuffler without a batch before": ("malformed", {"hop": 1}),
        "a first shuffler that left out copies": ("malformed", {"repeated": 1}),
        "a first shuffler with traps": ("malformed", {"traps": 1}),
        "a fourth shuffler": ("malformed", {"hop": 3, "previous": "00" * 32}),
        "fewer unopenable reports than none": ("malformed", {"unopenable": -1}),
        "more carriers than reports": ("malformed", {"carriers": 6}),
        "a number that is true": ("malformed", {"hop": False}),
        "version 3": ("version", {"version": 3}),
        "version 1": ("version", {"version": 1}),
        "an unknown key": ("malformed", {"more": 1}),
    }
    label = b"shuffledp batch v2\n"
    bad = [(name, reason, _signed_batch({**document, **change}, label)) for name, (reason, change) in changes.items()]
    bad += [
        ("signed as version 1", "bad-signature", _signed_batch(document, b"shuffledp batch v1\n")),
        ("signed by somebody else", "bad-signature", _signed_batch(document, label, STRANGER)),
        ("changed after it was signed", "bad-signature", good.replace(b'"unopenable":1', b'"unopenable":0')),
    ]
    return {
        "about": "A batch of version 2 with its chunks, and the manifest of a second shuffler.",
        "task": "histogram/k-rr",
        "content": task.signed(AUTHOR).to_bytes().decode(),
        "shuffler": {"public": SHUFFLER.public.raw.hex(), "private": SHUFFLER.secret.hex()},
        "good": [
            {
                "name": "five reports in three chunks, and one that did not open",
                "manifest": good.decode(),
                "chunks": [chunk.hex() for chunk in chunks],
                "counts": [answers.count(index) for index in range(3)],
            }
        ],
        "optional": [{"name": "of a second shuffler", "manifest": later.signed(SHUFFLER).decode()}],
        "bad": [{"name": name, "reason": reason, "manifest": content.decode()} for name, reason, content in bad],
    }


def series_file() -> Document:
    """The content of v2/series.json."""
    one = _series((_FIRST_KEYS,), rounds=3)
    two = _series((_FIRST_KEYS, _SECOND_KEYS), rounds=2, replaces=one.id)
    cancel = Cancellation(one.id, 1, "The question is asked in another way.")
    cancel_document = cancel.to_document()
    cancels: dict[str, tuple[str, Document]] = {
        "a round beyond the last of any series": ("malformed", {"from_round": 400}),
        "no reason": ("malformed", {"reason": ""}),
        "a series in capitals": ("malformed", {"series": "AB" * 32}),
        "version 2": ("version", {"version": 2}),
        "another format": ("version", {"format": "shuffledp-series"}),
        "an unknown key": ("malformed", {"more": 1}),
    }
    label = b"shuffledp cancel v1\n"
    bad_cancels = [
        (name, reason, _signed({**cancel_document, **change}, label, name="cancel"))
        for name, (reason, change) in cancels.items()
    ]
    bad_cancels += [
        ("by somebody else", "unknown-author", _signed(cancel_document, label, STRANGER, name="cancel")),
        ("signed as a series", "bad-signature", _signed(cancel_document, b"shuffledp series v1\n", name="cancel")),
    ]
    return {
        "about": "Signed series, the tasks that follow from them, and cancellations.",
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "good": [
            {
                "name": name,
                "content": series.signed(AUTHOR).decode(),
                "id": series.id.hex(),
                "tasks": [
                    {"id": task.id.hex(), "opens": document["opens"], "closes": document["closes"]}
                    for task in map(series.task, range(len(series.keys)))
                    for document in [task.to_document()]
                ],
            }
            for name, series in {"three rounds, one shuffler": one, "two rounds, two shufflers": two}.items()
        ],
        "bad": _bad_series(one.to_document()),
        "good_cancellations": [{"name": "from the second round on", "content": cancel.signed(AUTHOR).decode()}],
        "bad_cancellations": [
            {"name": name, "reason": reason, "content": content.decode()} for name, reason, content in bad_cancels
        ],
    }


def _series(shufflers: tuple[ShufflerKeys, ...], *, rounds: int, replaces: bytes | None = None) -> Series:
    keys = tuple(
        RoundKeys(
            SealingKey(secret_of(f"series analyzer {index}")).public,
            tuple(SealingKey(secret_of(f"series hop {hop} {index}")).public for hop in range(len(shufflers))),
        )
        for index in range(rounds)
    )
    first = tuple(
        ShufflerKeys(known.signing, sealing) for known, sealing in zip(shufflers, keys[0].shufflers, strict=True)
    )
    task = replace(second_task_of("histogram/balcer-cheu", shufflers=first), analyzer=keys[0].analyzer)
    return Series(task, period=604_800, keys=keys, rounds_per_device=2, replaces=replaces)


def _bad_series(document: Document) -> list[Document]:
    keys, template = document["keys"], document["template"]
    changes: dict[str, tuple[str, Document]] = {
        "no rounds": ("malformed", {"rounds": 0, "keys": {"analyzer": [], "shufflers": [[]]}}),
        "more rounds than keys": ("malformed", {"rounds": 4}),
        "more rounds than allowed": ("malformed", {"rounds": 401}),
        "rounds that overlap": ("malformed", {"period": document["open"] - 1}),
        "a period of more than a leap year": ("malformed", {"period": 366 * 86_400 + 1}),
        "rounds that are never open": ("malformed", {"open": 0}),
        "more rounds of a device than there are": ("malformed", {"rounds_per_device": 4}),
        "no round of a device": ("malformed", {"rounds_per_device": 0}),
        "rounds of a device as text": ("malformed", {"rounds_per_device": "2"}),
        "one key for two rounds": (
            "malformed",
            {"keys": {**keys, "analyzer": [keys["analyzer"][0], *keys["analyzer"][:2]]}},
        ),
        "one key for two roles": ("malformed", {"keys": {**keys, "shufflers": [keys["analyzer"]]}}),
        "keys of a shuffler that the template lacks": (
            "malformed",
            {"keys": {**keys, "shufflers": [*keys["shufflers"], keys["analyzer"]]}},
        ),
        "no keys of shufflers": ("malformed", {"keys": {**keys, "shufflers": []}}),
        "a template with times": ("malformed", {"template": {**template, "opens": document["first_opens"]}}),
        "a template of version 1": ("malformed", {"template": {**template, "version": 1}}),
        "a template with a round key": ("malformed", {"template": _with_round_key(template)}),
        "a template that contradicts its protocol": ("inconsistent", {"template": {**template, "minimum_users": 10}}),
        "a template that claims too much": (
            "bad-guarantee",
            {"template": {**template, "guarantee": {**template["guarantee"], "epsilon": "0.25"}}},
        ),
        "a first round after the last year": ("malformed", {"first_opens": "9999-12-31T23:00:00Z"}),
        "a last round after the last year": ("malformed", {"first_opens": "9999-12-25T00:00:00Z"}),
        "the id of another series in capitals": ("malformed", {"replaces": "AB" * 32}),
        "version 2": ("version", {"version": 2}),
        "another format": ("version", {"format": "shuffledp-task"}),
        "an unknown key": ("malformed", {"more": 1}),
    }
    label = b"shuffledp series v1\n"
    cases = [
        (name, reason, _signed({**document, **change}, label, name="series"))
        for name, (reason, change) in changes.items()
    ]
    cases += [
        ("signed by somebody else", "unknown-author", _signed(document, label, STRANGER, name="series")),
        ("signed as a task", "bad-signature", _signed(document, _LABEL, name="series")),
        ("white space", "not-canonical", _signed(document, label, name="series").replace(b",", b", ")),
    ]
    return [{"name": name, "reason": reason, "content": content.decode()} for name, reason, content in cases]


def _with_round_key(template: Document) -> Document:
    changed = copy.deepcopy(template)
    changed["shufflers"][0]["sealing"] = ROUND_KEY.public.to_document()
    return changed


def signed_task_2(document: Document) -> str:
    """A document, whatever it states, as a signed task of version 2."""
    return _signed(document, _LABEL).decode()


def _signed(document: Document, label: bytes, key: SigningKey = AUTHOR, *, name: str = "task") -> bytes:
    signature = to_base64(key.sign(label + canonical(document)))
    return canonical({name: document, "author": key.public.id, "signature": signature})


def signed_batch_2(document: Document) -> str:
    """A document, whatever it states, as a signed manifest of version 2."""
    return _signed_batch(document, b"shuffledp batch v2\n").decode()


def _signed_batch(document: Document, label: bytes, key: SigningKey = SHUFFLER) -> bytes:
    return canonical({"batch": document, "signature": to_base64(key.sign(label + canonical(document)))})
