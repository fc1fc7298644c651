"""Benchmark of one round of every protocol: randomize, shuffle, tally and estimate, with secure randomness."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import side_by_side

_USERS = 100_000
_CATEGORIES = 100
_EPSILON = 1.0
_DELTA = 1e-6
_MAX_SECONDS = 1.0


def measure(quick: bool) -> Iterator[Finding]:
    """Processor time of one round of each protocol, over all cores."""
    from shuffledp.errors import MissingPackageError
    from shuffledp.protocols.registry import PROTOCOLS

    counted: list[str] = []
    slowest = (0.0, "")
    for question, named in PROTOCOLS.items():
        values, settings = _round_of(question)
        for name in named:
            full_name = f"{question}/{name}"
            start = time.process_time()
            try:
                protocol = named[name].calibrate(**settings, epsilon=_EPSILON, delta=_DELTA)
            except MissingPackageError as error:
                yield report(full_name, "skipped", str(error))
                continue
            calibrating = time.process_time() - start
            finding, took, route = _one(full_name, protocol, values, calibrating, repetitions=3 if quick else 7)
            slowest = max(slowest, (took, full_name))
            if route == "counts":
                counted.append(full_name)
            yield finding
    yield report("the slowest of these rounds", seconds(slowest[0]), slowest[1])
    yield report("too many messages to make each of them", f"{len(counted)}", ", ".join(counted))


def _one(name: str, protocol: Any, values: Any, calibrating: float, *, repetitions: int) -> tuple[Finding, float, str]:
    from shuffledp.protocols.flow import choose_route

    route = choose_route(protocol, _USERS, "auto")
    messages = round(_USERS * protocol.cost.messages_per_user)
    columns = protocol.message_format.columns
    times = side_by_side({name: lambda: protocol.run(values, route=route)}, repetitions=repetitions)
    took = times.processor_seconds(name)
    finding = at_most(
        name,
        took,
        _MAX_SECONDS,
        "s",
        f"route {route}, {messages:,} messages of {columns} number{'s' if columns > 1 else ''}; "
        f"wall-clock {seconds(times.seconds(name))}, calibration {seconds(calibrating)}",
    )
    return finding, took, route


def _round_of(question: str) -> tuple[Any, dict[str, Any]]:
    """The users' values, and the arguments of ``calibrate`` that the question needs."""
    from shuffledp.domain import Bins, Interval

    generator = np.random.default_rng(1)
    if question == "count":
        return generator.integers(0, 2, _USERS), {"users": _USERS}
    if question == "histogram":
        return generator.integers(0, _CATEGORIES, _USERS), {"users": _USERS, "domain_size": _CATEGORIES}
    if question == "strings":
        words = np.array(["shuffle", "noise", "blanket", "tree"])
        return words[generator.integers(0, 4, _USERS)], {"users": _USERS, "alphabet": "a-z", "max_length": 8}
    if question == "quantiles":
        return generator.uniform(0, 1, _USERS), {"users": _USERS, "domain": Bins(0, 1, 1024)}
    return generator.random(_USERS), {"users": _USERS, "domain": Interval(0.0, 1.0)}
