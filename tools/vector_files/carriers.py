"""Test vectors of carriers: version 3 of the parameters of ``correlated-noise``, tasks and batches with two lengths."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import Carriers
from shuffledp.collection.wire.formats import HopCounts, Manifest, ReportFormat
from shuffledp.messages import MessageFormat
from shuffledp.protocols.documents import from_document
from vector_files import Document
from vector_files.cases.case import HALF, Case, categories, over, terms
from vector_files.clusters import capped
from vector_files.keys import AUTHOR, SHUFFLER
from vector_files.randomizers import TOLERANCE, guarantee_of, listed, own_messages, six_digits
from vector_files.version_2 import second_task_of, signed_batch_2, signed_task_2

_THREE_QUARTERS = over(3, 2)
_CALIBRATED = {
    "terms": terms(1000, "1.0", "9.8e-07", "0.75"),
    "ratio": over(0xA33B993A39755800, 64),
    "clusters": [[8, 17, 1]],
    "singles": "0/1",
    "carrier_probability": over(1, 2),
    "honest_carriers": 120,
}
CASES = (
    Case(
        "a carrier among two, clusters of one to three pairs",
        "count/correlated-noise",
        {
            "terms": terms(3, "1.0", "0.95"),
            "ratio": _THREE_QUARTERS,
            "cluster_rate": "3/2",
            "clusters": [[1, 1, 3], [2, 3, 1]],
            "singles": "0/1",
            "encoding": "signed",
            "carrier_probability": _THREE_QUARTERS,
            "honest_carriers": 2,
        },
        (0, 1),
        6,
    ),
    Case(
        "two categories, one carrier at least",
        "histogram/correlated-noise",
        {
            "terms": terms(4, "1.0", "0.97", "0.5"),
            "ratio": HALF,
            "cluster_rate": "5/4",
            "clusters": [[1, 1, 1], [2, 2, 2]],
            "singles": "0/1",
            **categories(2, "yes", "no"),
            "carrier_probability": over(7, 3),
            "honest_carriers": 1,
        },
        (0, 1),
        4,
    ),
    Case(
        "as calibrated",
        "count/correlated-noise",
        {**_CALIBRATED, "cluster_rate": "3559/200", "encoding": "signed"},
        (),
        215,
    ),
    Case(
        "as calibrated",
        "histogram/correlated-noise",
        {**_CALIBRATED, "cluster_rate": "2102/125", **categories(5)},
        (),
        329,
    ),
)


def carrier_file() -> Document:
    """The content of v2/carriers.json."""
    tasks = {f"{case.protocol}, {case.name}": _task(case) for case in CASES if not case.values}
    task = tasks["count/correlated-noise, as calibrated"]
    return {
        "about": "Correlated noise that carriers add, and tasks and batches with reports of two lengths.",
        "tolerance": TOLERANCE,
        "author": {"key_id": AUTHOR.public.id, "public": AUTHOR.public.raw.hex(), "private": AUTHOR.secret.hex()},
        "shuffler": {"public": SHUFFLER.public.raw.hex(), "private": SHUFFLER.secret.hex()},
        "randomizers": [_randomizer(case) for case in CASES],
        "good_tasks": [
            {
                "name": name,
                "content": task.signed(AUTHOR).to_bytes().decode(),
                "id": task.id.hex(),
                "report_size": ReportFormat.of(task).size,
                "carrier_report_size": ReportFormat.of(task).carrier_size,
                "delta": six_digits(task.guarantee.delta_at(task.epsilon)),
            }
            for name, task in tasks.items()
        ],
        "bad_tasks": _bad_tasks(task),
        "task_of_batches": task.signed(AUTHOR).to_bytes().decode(),
        "good_batches": [
            {"name": name, "manifest": _manifest(task, *numbers).signed(SHUFFLER).decode()}
            for name, numbers in {
                "as few carriers as allowed": (1000, 160),
                "only carriers": (1000, 1000),
                "more users": (4999, 1250),
            }.items()
        ],
        "bad_batches": _bad_batches(task),
    }


def _protocol(case: Case) -> Any:
    return from_document({"version": 3, "protocol": case.protocol, "parameters": case.parameters})


def _randomizer(case: Case) -> Document:
    protocol, most = _protocol(case), case.messages_per_report or 0
    form: MessageFormat = protocol.message_format
    roles, target, probability = protocol.carriers, protocol.target, protocol.carriers.carrier_probability
    return {
        "name": f"{case.protocol}, {case.name}",
        "protocol": {"version": 3, "protocol": case.protocol, "parameters": case.parameters},
        "message_format": {"bounds": [hex(bound) for bound in form.bounds], "flags": form.flags, "size": form.size},
        "messages_per_report": protocol.min_messages_per_user,
        "messages_per_carrier_report": most,
        "minimum_carriers": roles.minimum(target.users, target.honest_users),
        "shortage": six_digits(protocol.guarantee.curve.shortage),
        "guarantee": guarantee_of(protocol),
        "chance_of_more": six_digits(protocol.chance_of_more_messages(most) / float(probability)),
        "reports": [_report(protocol, value, most) for value in case.values],
    }


def _report(protocol: Any, value: Any, most: int) -> Document:
    own = own_messages(protocol, value)
    pmf, too_long = capped(own, protocol, most)
    (other,) = listed(own, protocol.message_format)
    return {
        "value": value,
        "other": other,
        "chance_of_more": six_digits(too_long),
        "law": listed(pmf, protocol.message_format),
    }


def _task(case: Case) -> Task:
    protocol, base = _protocol(case), second_task_of("count/correlated-noise")
    minimum = protocol.carriers.minimum(protocol.target.users, protocol.target.honest_users)
    wire = replace(base.wire, carriers=Carriers(case.messages_per_report or 0, minimum))  # type: ignore[type-var]
    return replace(base, protocol=protocol, messages_per_report=1, wire=wire, stated_local_epsilon=None)


def _bad_tasks(task: Task) -> list[Document]:
    document = task.to_document()
    carriers: Document = document["carriers"]
    changes: dict[str, tuple[str, Document]] = {
        "no carriers": ("inconsistent", {"carriers": None}),
        "one carrier fewer": ("inconsistent", {"carriers": {**carriers, "minimum": carriers["minimum"] - 1}}),
        "one carrier more": ("inconsistent", {"carriers": {**carriers, "minimum": carriers["minimum"] + 1}}),
        "more carriers than users": ("malformed", {"carriers": {**carriers, "minimum": 5001}}),
        "no carrier at least": ("malformed", {"carriers": {**carriers, "minimum": 0}}),
        "too short reports of carriers": ("bad-guarantee", {"carriers": {**carriers, "messages_per_report": 100}}),
        "reports of carriers as short as others": ("malformed", {"carriers": {**carriers, "messages_per_report": 1}}),
        "two messages of others": ("inconsistent", {"messages_per_report": 2}),
    }
    bad = [(name, reason, {**document, **change}) for name, (reason, change) in changes.items()]
    parameters: dict[str, tuple[str, Document]] = {
        "never a carrier": ("malformed", {"carrier_probability": over(0, 2)}),
        "always a carrier": ("malformed", {"carrier_probability": over(1, 0)}),
        "hardly ever a carrier": ("bad-guarantee", {"carrier_probability": over(1, 100)}),
        "a carrier slightly too seldom": ("bad-guarantee", {"carrier_probability": over(15, 6)}),
        "a probability as text": ("malformed", {"carrier_probability": "0.25"}),
        "no honest carrier": ("malformed", {"honest_carriers": 0}),
        "more honest carriers than honest users": ("malformed", {"honest_carriers": 751}),
        "carriers of version 2": ("version", {}),
        "a probability without a number": ("malformed", {"honest_carriers": None}),
        "singles of carriers": ("malformed", {"singles": "1/2"}),
        "the encoding unary": ("malformed", {"encoding": "unary"}),
    }
    for name, (reason, change) in parameters.items():
        changed = copy.deepcopy(document)
        changed["protocol"]["parameters"] |= change
        if reason == "version":
            changed["protocol"]["version"] = 2
        if name == "a probability without a number":
            del changed["protocol"]["parameters"]["honest_carriers"]
        bad.append((name, reason, changed))
    without = {
        **second_task_of("histogram/balcer-cheu").to_document(),
        "carriers": {**carriers, "messages_per_report": 20},
    }
    bad.append(("carriers of a protocol that has none", "inconsistent", without))
    return [{"name": name, "reason": reason, "content": signed_task_2(content)} for name, reason, content in bad]


def _manifest(task: Task, reports: int, carriers: int) -> Manifest:
    messages = reports + carriers * (task.max_messages_per_report - 1)
    records = 20_000
    chunks = tuple(bytes([index % 256]) * 32 for index in range(-(-messages // records)))
    return Manifest(task.id, reports, messages, task.sealed_size, records, chunks, HopCounts(carriers=carriers))


def _bad_batches(task: Task) -> list[Document]:
    good = _manifest(task, 1000, 160).to_document()
    few = _manifest(task, 1000, 159).to_document()
    documents = {
        "one carrier too few": ("too-few", few),
        "one carrier too few, with the messages of enough": ("wrong-size", {**good, "carriers": 159}),
        "the messages of one carrier fewer": ("wrong-size", {**few, "carriers": 160}),
        "more carriers than reports": ("malformed", {**good, "carriers": 1001}),
        "fewer carriers than none": ("malformed", {**good, "carriers": -1}),
        "carriers as text": ("malformed", {**good, "carriers": "160"}),
    }
    return [
        {"name": name, "reason": reason, "manifest": signed_batch_2(content)}
        for name, (reason, content) in documents.items()
    ]
