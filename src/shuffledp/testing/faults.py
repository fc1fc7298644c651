"""Planted faults: deliberately broken copies of a protocol that the conformance kit must catch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.estimate import (
    CountEstimate,
    Estimate,
    HistogramEstimate,
    QuantileEstimate,
    StringsEstimate,
    SumEstimate,
)
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import Protocol

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
"""The check that must catch each fault."""


def broken(protocol: Protocol, **methods: Callable[..., Any]) -> Protocol:
    """A copy of the protocol with some of its methods replaced."""
    copied = copy.copy(protocol)
    for name, method in methods.items():
        object.__setattr__(copied, name, method)
    return copied


def planted_faults(protocol: Protocol) -> dict[str, Protocol]:
    """Broken copies of ``protocol`` by the name of their fault, which ``check_protocol`` must catch.

    Each has one fault: in its randomizer, sampler of tallies, estimator, tally or release.
    """
    faults = {
        "a probability off by five per cent": broken(protocol, randomize_all=_sometimes_another_value(protocol)),
        "a fast route without noise": broken(protocol, sample_tally=_with_less_noise(protocol)),
        "a tally with one too many": broken(protocol, tally=_one_too_many(protocol)),
    }
    if protocol.exact_error:
        faults["a sign error in the estimator"] = broken(protocol, estimate=_mirrored_estimate(protocol))
    if protocol.released_only:  # users send their values in clear; the release adds the noise
        faults["a release without noise"] = broken(
            protocol, release=lambda tally, **_: Tally(tally.counts, tally.users, released=True)
        )
        return faults
    return faults | {
        "the last value is sent as it is": broken(protocol, randomize_all=_last_value_in_clear(protocol)),
        "an outcome that never happens": broken(protocol, randomize_all=_without_one_outcome(protocol)),
        "one user's randomness for all": broken(protocol, randomize_all=_same_report_for_all(protocol)),
    }


def _one_too_many(protocol: Protocol) -> Callable[..., Tally]:
    def tally(messages: Messages) -> Tally:
        counted = protocol.tally(messages)
        counts = counted.counts.copy()
        counts[0] += 1
        return replace(counted, counts=counts)

    return tally


def _sometimes_another_value(protocol: Protocol) -> Callable[..., Messages]:
    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        replaced = np.random.default_rng().random(len(values)) < 0.05
        return protocol.randomize_all(np.where(replaced, protocol.other_inputs(values), values), **options)

    return randomize_all


def reports_of(messages: Messages) -> list[NDArray[Any]]:
    """The messages of each user."""
    offsets = messages.offsets if messages.offsets is not None else np.array([0, len(messages)])
    return np.split(messages.values, offsets[1:-1])


def _joined(reports: list[NDArray[Any]], messages: Messages) -> Messages:
    offsets = np.concatenate(([0], np.cumsum([len(report) for report in reports])))
    return replace(messages, values=np.concatenate(reports), offsets=offsets)


def _last_value_in_clear(protocol: Protocol) -> Callable[..., Messages]:
    """Users who hold the last value all send the likeliest report of that value."""
    last = protocol.inputs()[-1]
    pmf = protocol.report_pmf(last)
    likeliest = max(pmf, key=lambda report: float(pmf[report]))
    clear = protocol.message_format.message(np.repeat(np.arange(len(likeliest)), likeliest))

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        reports = [
            clear if is_last else sent for is_last, sent in zip(values == last, reports_of(messages), strict=True)
        ]
        return _joined(reports, messages)

    return randomize_all


def _without_one_outcome(protocol: Protocol) -> Callable[..., Messages]:
    """The likeliest report of the first value is never sent; the last user's is repeated instead."""
    pmf = protocol.report_pmf(protocol.inputs()[0])
    banned = max(pmf, key=lambda report: float(pmf[report]))

    def is_banned(report: NDArray[Any]) -> bool:
        codes = protocol.message_format.code(report)
        return bool(tuple(np.bincount(codes, minlength=len(banned)).tolist()) == banned)

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        reports = reports_of(messages)
        allowed = next((report for report in reversed(reports) if not is_banned(report)), reports[-1])
        return _joined([allowed if is_banned(report) else report for report in reports], messages)

    return randomize_all


def _same_report_for_all(protocol: Protocol) -> Callable[..., Messages]:
    """Users with the same value send the same report."""

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        reports = reports_of(messages)
        first = {float(value): reports[user] for user, value in reversed(list(enumerate(values)))}
        return _joined([first[float(value)] for value in values], messages)

    return randomize_all


def _mirrored_estimate(protocol: Protocol) -> Callable[..., Estimate]:
    def estimate(tally: Tally, **options: Any) -> Estimate:
        correct = protocol.estimate(tally, **options)
        if isinstance(correct, HistogramEstimate | StringsEstimate):
            return replace(correct, counts=-correct.counts)
        if isinstance(correct, QuantileEstimate):
            return replace(correct, below=-correct.below)
        if isinstance(correct, CountEstimate | SumEstimate):
            return replace(correct, value=-correct.value)
        raise ParameterError(f"No sign error is known for {type(correct).__name__}.")

    return estimate


def _with_less_noise(protocol: Protocol) -> Callable[..., Tally]:
    """A ``sample_tally`` with less noise: the median of three draws."""

    def sample_tally(summary: NDArray[Any], **options: Any) -> Tally:
        tallies = [protocol.sample_tally(summary, **options) for _ in range(3)]
        return sorted(tallies, key=lambda tally: tuple(tally.counts.tolist()))[1]

    return sample_tally
