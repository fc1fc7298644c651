"""Planted faults: broken protocols with an unchanged claim, which an audit must expose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.protocol import Protocol
from shuffledp.testing.audit.experiment import Permute
from shuffledp.testing.audit.result import AuditResult
from shuffledp.testing.audit.search import audit
from shuffledp.testing.faults import broken, reports_of


@dataclass(frozen=True)
class Fault:
    """A deliberately broken protocol or shuffler, with an unchanged claim."""

    name: str
    words: str
    protocol: Protocol
    permute: Permute | None = None

    def audit(self, **options: Any) -> AuditResult:
        """Audit the broken copy; the result says that the fault was planted."""
        return audit(self.protocol, permute=self.permute, planted=self.words, **options)


FAULTS = {
    "clear-last-value": "users who hold the last value all send the same report",
    "little-noise": "the noise is enough only for five times the claimed epsilon, at delta = 0.25",
    "tenfold-users": "the noise is enough only for ten times as many users",
    "no-shuffle": "the shuffler leaves all messages in the order of the users",
    "clear-release": "the trusted party releases what it counted without noise",
}
"""Every fault that can be planted, by name."""


def plant(protocol: Protocol, fault: str) -> Fault:
    """A broken copy that an audit must expose; refuses a fault that this protocol cannot have."""
    if fault not in FAULTS:
        raise UnknownNameError(f"There is no fault {fault!r}; choose one of {', '.join(FAULTS)}.", fault=fault)
    possible = _possible(protocol)
    if fault not in possible:
        raise ParameterError(
            f"{protocol.question}/{protocol.name} cannot have the fault {fault}; choose one of {', '.join(possible)}.",
            fault=fault,
        )
    words = FAULTS[fault]
    if fault == "no-shuffle":
        return Fault(fault, words, protocol, lambda messages: None)  # noqa: ARG005
    if fault == "clear-release":
        return Fault(fault, words, broken(protocol, release=_clear_release))
    if fault == "clear-last-value":
        return Fault(fault, words, broken(protocol, randomize_all=_clear_last_value(protocol)))
    weaker = _for_more_users(protocol) if fault == "tenfold-users" else _with_little_noise(protocol)
    return Fault(fault, words, _claiming(weaker, protocol))


def _possible(protocol: Protocol) -> list[str]:
    if protocol.released_only:
        return ["little-noise", "clear-release"]
    if protocol.trust == "local":
        return ["clear-last-value", "little-noise"]
    return ["clear-last-value", "little-noise", "tenfold-users", "no-shuffle"]


def _clear_release(tally: Tally, **_: Any) -> Tally:
    return Tally(tally.counts, tally.users, tally.secure, released=True)


def _claiming(weaker: Protocol, claimed: Protocol) -> Protocol:
    """The weaker protocol with the users and the guarantee of another, which it does not meet."""
    kind = type(weaker)
    impostor = copy.copy(weaker)
    impostor.__dict__.pop("guarantee", None)
    claims = {"users": claimed.users, "guarantee": claimed.guarantee}
    object.__setattr__(impostor, "__class__", type(kind.__name__, (kind,), claims))
    return impostor


def _for_more_users(protocol: Protocol) -> Protocol:
    return _recalibrated(protocol, users=10 * protocol.users)


def _with_little_noise(protocol: Protocol) -> Protocol:
    guarantee = protocol.guarantee
    return _recalibrated(protocol, epsilon=5 * guarantee.epsilon, delta=max(0.25, guarantee.delta))


def _recalibrated(protocol: Protocol, **changes: Any) -> Protocol:
    """The same protocol calibrated for another target."""
    guarantee = protocol.guarantee
    settings: dict[str, Any] = {
        "users": protocol.users,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta or 1e-6,  # pure protocols require a delta, and ignore it
    }
    if guarantee.trust == "shuffled":
        settings["honest_fraction"] = guarantee.honest_users / guarantee.users
    return type(protocol).calibrate(domain=protocol.domain, **(settings | changes))


def _clear_last_value(protocol: Protocol) -> Callable[..., Messages]:
    """Users who hold the last value send the report of it that is most common in a sample."""
    last = protocol.inputs()[-1]
    drawn = protocol.randomize_all(np.repeat(np.array([last]), 300))
    reports = reports_of(drawn)
    sent = [np.sort(report, axis=0).tobytes() for report in reports]
    clear = reports[max(range(len(sent)), key=[sent.count(report) for report in sent].__getitem__)].copy()

    def randomize_all(values: NDArray[Any], **options: Any) -> Messages:
        messages = protocol.randomize_all(values, **options)
        if messages.offsets is None:
            return messages
        holds_last = np.asarray(values) == last
        lengths = np.where(holds_last, len(clear), np.diff(messages.offsets))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        replaced = np.repeat(holds_last, lengths)
        broken = np.empty((int(offsets[-1]), *messages.values.shape[1:]), dtype=messages.values.dtype)
        broken[replaced] = clear[np.tile(np.arange(len(clear)), np.count_nonzero(holds_last))]
        broken[~replaced] = messages.values[np.repeat(~holds_last, np.diff(messages.offsets))]
        return Messages(broken, messages.users, offsets, messages.secure)

    return randomize_all
