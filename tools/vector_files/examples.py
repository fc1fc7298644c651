"""Example tasks that the test cases use, for several protocols."""

from __future__ import annotations

from datetime import UTC, datetime

from shuffledp.collection.task.task import Task
from shuffledp.protocols.documents import from_document
from vector_files import Document
from vector_files.keys import ANALYZER, SHUFFLER

TERMS = {"users": 1000, "epsilon": "1.0", "delta": "1e-06", "honest_fraction": "1.0", "calibration": "given"}
# more noise than the claims need, so that no rounding decides whether they hold
PROTOCOLS: dict[str, Document] = {
    "histogram/balcer-cheu": {
        "noise": {**TERMS, "absence": {"numerator": "0xd6bd091e8d90e00", "bits": 64}},
        "domain_size": 3,
        "categories": ["bus", "v\u00e9lo", "car \u201cown\u201d \U0001f697"],
        "padded": False,
    },
    "count/correlated-noise": {
        "terms": TERMS,
        "ratio": {"numerator": "0xaabefe05d3d8c000", "bits": 64},
        "flood_shape": "2081/125",
        "flood_ratio": {"numerator": "0xf38e609045da6800", "bits": 64},
        "encoding": "signed",
    },
    "sum/split-and-mix": {
        "terms": TERMS,
        "levels": 32,
        "ratio": {"numerator": "0xf8e67a8c04fcf800", "bits": 64},
        "messages": 9,
        "modulus": 65536,
        "domain": {"lower": "-1.0", "upper": "4.0", "whole": False},
    },
    "histogram/k-rr": {
        "terms": {**TERMS, "users": 2, "delta": "0.0"},
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
    """An example task with the protocol."""
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
