"""Benchmark of the Balcer-Cheu histogram, message by message, against unary encodings of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.finding import Finding, at_least, at_most, report, seconds
from benchmarks.measuring import in_fresh_process, side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram

_USERS = 100_000
_CATEGORIES = 100
_EPSILON = 1.0
_LEAST_OVER_PEER = 30
_LEAST_OVER_PEER_IN_NUMPY = 0.5


def measure(quick: bool) -> Iterator[Finding]:
    """How many times faster a round is than the fastest peer's, and the peak memory of a process that runs one."""
    from shuffledp.native import ACTIVE

    indices = _indices()
    values = indices.tolist()
    protocol = _protocol()
    times = side_by_side(
        {
            "shuffledp": lambda: protocol.run(indices, route="messages"),
            "multi-freq-ldpy": lambda: _multi_freq_ldpy(values),
        },
        repetitions=5 if quick else 15,
    )
    slow_peer = side_by_side({"pure-ldp": lambda: _pure_ldp(values)}, repetitions=1 if quick else 3, warm_up=False)
    peer = min((times.seconds("multi-freq-ldpy"), "multi-freq-ldpy"), (slow_peer.seconds("pure-ldp"), "pure-ldp"))
    faster = times.ratio("multi-freq-ldpy", "shuffledp")
    if peer[1] == "pure-ldp":
        faster = peer[0] / times.seconds("shuffledp")
    messages = round(_USERS * protocol.cost.messages_per_user)
    yield at_least(
        f"P^hist message by message against {peer[1]}'s unary encoding",
        faster,
        _LEAST_OVER_PEER if ACTIVE else _LEAST_OVER_PEER_IN_NUMPY,
        f"{messages:,} messages in {seconds(times.seconds('shuffledp'))}; multi-freq-ldpy "
        f"{seconds(times.seconds('multi-freq-ldpy'))}, pure-ldp {seconds(slow_peer.seconds('pure-ldp'))}",
    )
    yield report(
        "the same in processor time",
        f"{times.processor_ratio('multi-freq-ldpy', 'shuffledp'):.2f}x",
        "all cores together",
    )
    yield _stages(protocol, indices, repetitions=5 if quick else 11)
    yield at_most("peak memory of that process", in_fresh_process(one_round).peak_bytes / 1e6, 400, "MB")


def one_round() -> None:
    """Calibrate and run one round, measured in a fresh process."""
    _protocol().run(_indices(), route="messages")


def _stages(protocol: BalcerCheuHistogram, indices: NDArray[np.int64], *, repetitions: int) -> Finding:
    from shuffledp import permute

    held: dict[str, Any] = {}

    def randomize() -> None:
        held["messages"] = protocol.randomize_all(indices)

    def mix() -> None:
        held["shuffled"] = held["messages"].shuffled(permute)

    def tally() -> None:
        held["tally"] = protocol.tally(held["shuffled"])

    def estimate() -> None:
        protocol.estimate(held["tally"])

    stages: dict[str, Callable[[], None]]
    stages = {"randomize": randomize, "shuffle": mix, "tally": tally, "estimate": estimate}
    for stage in stages.values():
        stage()
    times = side_by_side(stages, repetitions=repetitions, warm_up=False)
    total = sum(times.seconds(name) for name in stages)
    shares = ", ".join(f"{name} {seconds(times.seconds(name))}" for name in stages)
    return report("where its time goes: share of the shuffle", f"{times.seconds('shuffle') / total:.0%}", shares)


def _protocol() -> BalcerCheuHistogram:
    from shuffledp import BalcerCheuHistogram

    return BalcerCheuHistogram.calibrate(users=_USERS, domain_size=_CATEGORIES, epsilon=_EPSILON, delta=1e-6)


def _indices() -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, _CATEGORIES, _USERS)


def _multi_freq_ldpy(values: list[int]) -> None:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    UE_Aggregator_MI([UE_Client(value, _CATEGORIES, _EPSILON, True) for value in values], _EPSILON, True)


def _pure_ldp(values: list[int]) -> None:
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    def same(value: int) -> int:
        return value

    client = UEClient(_EPSILON, _CATEGORIES, use_oue=True, index_mapper=same)
    server = UEServer(_EPSILON, _CATEGORIES, use_oue=True, index_mapper=same)
    for value in values:
        server.aggregate(client.privatise(value))
    for category in range(_CATEGORIES):
        server.estimate(category, suppress_warnings=True)
