"""Protocols that are broken on purpose: each must be caught by the conformance kit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.model import Messages, Tally

__all__ = ["CAUGHT_BY", "planted_faults"]

CAUGHT_BY = {
    "a probability off by five per cent": "randomize_all has its distribution",
    "the last value is sent as it is": "randomize_all has its distribution",
    "an outcome that never happens": "randomize_all has its distribution",
    "one user's randomness for all": "messages have the distribution of the round",
    "a sign error in the estimator": "the predicted error is the exact one",
    "a fast route without noise": "sample_tally has the distribution of the round",
    "a release without noise": "messages have the distribution of the round",
    "a tally with one too many": "tallies add up in any order",
}
"""From each fault to the check that must find it."""


class _Broken:
    """A protocol with one of its methods replaced."""

    def __init__(self, protocol: Any, **methods: Callable[..., Any]) -> None:
        self._protocol = protocol
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._protocol, name)


def planted_faults(protocol: Any) -> dict[str, Any]:
    """The protocol with a fault each: in its randomizer, its fast route, its estimator, its tally or its release."""
    faults = {
        "a probability off by five per cent": _Broken(protocol, randomize_all=_sometimes_another_value(protocol)),
        "a sign error in the estimator": _Broken(protocol, estimate=_mirrored_estimate(protocol)),
        "a fast route without noise": _Broken(protocol, sample_tally=_noiseless(protocol)),
        "a tally with one too many": _Broken(protocol, tally=_one_too_many(protocol)),
    }
    if (
        protocol.model == "central" or protocol.trusts_shuffler
    ):  # users send what they hold; noise comes with the release
        faults["a release without noise"] = _Broken(
            protocol, release=lambda tally, **_: Tally(tally.counts, tally.users, released=True)
        )
        return faults
    return faults | {
        "the last value is sent as it is": _Broken(protocol, randomize_all=_last_value_in_clear(protocol)),
        "an outcome that never happens": _Broken(protocol, randomize_all=_without_one_outcome(protocol)),
        "one user's randomness for all": _Broken(protocol, randomize_all=_same_report_for_all(protocol)),
    }


def _one_too_many(protocol: Any) -> Callable[..., Tally]:
    def tally(messages: Messages) -> Tally:
        counted: Tally = protocol.tally(messages)
        counts = counted.counts.copy()
        counts[0] += 1
        return replace(counted, counts=counts)

    return tally


def _last_value(protocol: Any) -> Any:
    return 1.0 if protocol.question == "sum" else protocol.domain_size - 1


def _sometimes_another_value(protocol: Any) -> Callable[..., Messages]:
    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        slipped = np.random.default_rng().random(len(values)) < 0.05
        if protocol.question == "sum":
            others = np.where(slipped, np.round(1 - values), values)
        else:
            others = (values + slipped) % protocol.domain_size
        messages: Messages = protocol.randomize_all(others, **options)
        return messages

    return randomize_all


def _reports(messages: Messages) -> list[NDArray[Any]]:
    offsets = messages.offsets if messages.offsets is not None else np.array([0, len(messages)])
    return np.split(messages.values, offsets[1:-1])


def _joined(reports: list[NDArray[Any]], messages: Messages) -> Messages:
    offsets = np.concatenate(([0], np.cumsum([len(report) for report in reports])))
    return replace(messages, values=np.concatenate(reports), offsets=offsets)


def _last_value_in_clear(protocol: Any) -> Callable[..., Messages]:
    """Users who hold the last value all send the likeliest report of that value."""
    pmf = protocol.report_pmf(_last_value(protocol))
    likeliest = max(pmf, key=lambda report: float(pmf[report]))
    clear = protocol.message_format.message(np.repeat(np.arange(len(likeliest)), likeliest))

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        held_last = values == _last_value(protocol)
        reports = [clear if last else each for last, each in zip(held_last, _reports(messages), strict=True)]
        return _joined(reports, messages)

    return randomize_all


def _without_one_outcome(protocol: Any) -> Callable[..., Messages]:
    """The likeliest report of the first value is never sent; the last user's is repeated instead."""
    pmf = protocol.report_pmf(0.0 if protocol.question == "sum" else 0)
    banned = max(pmf, key=lambda report: float(pmf[report]))

    def is_banned(report: NDArray[Any]) -> bool:
        codes = protocol.message_format.code(report)
        return bool(tuple(np.bincount(codes, minlength=len(banned)).tolist()) == banned)

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        reports = _reports(messages)
        allowed = next((report for report in reversed(reports) if not is_banned(report)), reports[-1])
        return _joined([allowed if is_banned(report) else report for report in reports], messages)

    return randomize_all


def _same_report_for_all(protocol: Any) -> Callable[..., Messages]:
    """Users with the same value send the same report."""

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        reports = _reports(messages)
        first = {float(value): reports[place] for place, value in reversed(list(enumerate(values)))}
        return _joined([first[float(value)] for value in values], messages)

    return randomize_all


def _mirrored_estimate(protocol: Any) -> Callable[..., Any]:
    def estimate(tally: Any, **options: Any) -> Any:
        right = protocol.estimate(tally, **options)
        return replace(right, counts=-right.counts) if hasattr(right, "counts") else replace(right, value=-right.value)

    return estimate


def _noiseless(protocol: Any) -> Callable[..., Any]:
    """The fast route that nearly always draws the middle of its tally."""

    def sample_tally(summary: NDArray[Any], **options: Any) -> Any:
        tallies = [protocol.sample_tally(summary, **options) for _ in range(3)]
        return sorted(tallies, key=lambda tally: tuple(tally.counts.tolist()))[1]

    return sample_tally
