"""Protocols that are broken on purpose: each must be caught by the conformance kit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.model import Messages, Protocol

__all__ = ["planted_faults"]


class _Broken:
    """A protocol with one of its methods replaced."""

    def __init__(self, protocol: Protocol, **methods: Callable[..., Any]) -> None:
        self._protocol = protocol
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._protocol, name)


def planted_faults(protocol: Protocol) -> dict[str, Any]:
    """The protocol with a fault each: in its randomizer, its fast route, its estimator or its claim."""
    return {
        "a probability off by five per cent": _Broken(protocol, randomize_all=_sometimes_another_value(protocol)),
        "the last value is sent as it is": _Broken(protocol, randomize_all=_last_value_in_clear(protocol)),
        "an outcome that never happens": _Broken(protocol, randomize_all=_without_longest_report(protocol)),
        "one user's randomness for all": _Broken(protocol, randomize_all=_same_report_for_all(protocol)),
        "a sign error in the estimator": _Broken(protocol, estimate=_mirrored_estimate(protocol)),
        "a fast route without noise": _Broken(protocol, sample_tally=_noiseless(protocol)),
    }


def _sometimes_another_value(protocol: Protocol) -> Callable[..., Messages]:
    def randomize_all(indices: NDArray[np.int64], **options: Any) -> Messages:
        slipped = np.random.default_rng().random(len(indices)) < 0.05
        return protocol.randomize_all((indices + slipped) % protocol.domain_size, **options)

    return randomize_all


def _reports(messages: Messages) -> list[NDArray[Any]]:
    offsets = messages.offsets if messages.offsets is not None else np.array([0, len(messages)])
    return np.split(messages.values, offsets[1:-1])


def _joined(reports: list[NDArray[Any]], messages: Messages) -> Messages:
    offsets = np.concatenate(([0], np.cumsum([len(report) for report in reports])))
    return replace(messages, values=np.concatenate(reports), offsets=offsets)


def _last_value_in_clear(protocol: Protocol) -> Callable[..., Messages]:
    """Users who hold the last value all send the likeliest report of that value."""
    law = protocol.report_law(protocol.domain_size - 1)
    likeliest = max(law, key=lambda report: law[report])

    def randomize_all(indices: NDArray[np.int64], **options: Any) -> Messages:
        messages = protocol.randomize_all(indices, **options)
        clear = np.repeat(np.arange(len(likeliest)), likeliest).astype(messages.values.dtype)
        held_last = indices == protocol.domain_size - 1
        reports = [clear if last else each for last, each in zip(held_last, _reports(messages), strict=True)]
        return _joined(reports, messages)

    return randomize_all


def _without_longest_report(protocol: Protocol) -> Callable[..., Messages]:
    """A report with the most tokens is replaced by one with the fewest."""

    def randomize_all(indices: NDArray[np.int64], **options: Any) -> Messages:
        messages = protocol.randomize_all(indices, **options)
        reports = _reports(messages)
        sums = [int(report.sum()) for report in reports]
        shortest, most = reports[int(np.argmin(sums))], max(sums)
        kept = [shortest if total == most else each for each, total in zip(reports, sums, strict=True)]
        return _joined(kept, messages)

    return randomize_all


def _same_report_for_all(protocol: Protocol) -> Callable[..., Messages]:
    """Users with the same value send the same report."""

    def randomize_all(indices: NDArray[np.int64], **options: Any) -> Messages:
        messages = protocol.randomize_all(indices, **options)
        reports = _reports(messages)
        first = {int(index): reports[place] for place, index in reversed(list(enumerate(indices)))}
        return _joined([first[int(index)] for index in indices], messages)

    return randomize_all


def _mirrored_estimate(protocol: Protocol) -> Callable[..., Any]:
    def estimate(tally: Any, **options: Any) -> Any:
        right = protocol.estimate(tally, **options)
        return replace(right, counts=-right.counts) if hasattr(right, "counts") else replace(right, value=-right.value)

    return estimate


def _noiseless(protocol: Protocol) -> Callable[..., Any]:
    """The fast route that always draws the expected tally."""

    def sample_tally(counts: NDArray[np.int64], **options: Any) -> Any:
        tallies = [protocol.sample_tally(counts, **options) for _ in range(3)]
        return sorted(tallies, key=lambda tally: int(tally.counts[-1]))[1]

    return sample_tally
