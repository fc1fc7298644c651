"""Benchmark of local histograms, message by message, against the same protocols in other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.finding import Finding, at_least, at_most, seconds
from benchmarks.measuring import side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

_USERS = 100_000
_CATEGORIES = 100
_EPSILON = 1.0
_SLOW_SECONDS = 2.0
_LEAST_RESPONSES = {"multi-freq-ldpy": 10, "OpenDP": 500}
_OPENDP_USERS = 2_000

Round = Callable[["list[int]"], object]


def measure(quick: bool) -> Iterator[Finding]:
    """Time of one round over the fastest peer's, both in the same run, and the slowest round of all."""
    indices = _indices()
    values = indices.tolist()
    slowest = (0.0, "")
    for name, peers in _PEERS.items():
        ours, ratio, detail = _compare(_round(name, indices), peers, values, repetitions=3 if quick else 7)
        slowest = max(slowest, (ours, name))
        yield at_most(f"{name} over the fastest peer's", ratio, 1, "x", detail)
    yield at_most("the slowest of these rounds", slowest[0], 1, "s", slowest[1])
    yield from _responses(indices, repetitions=5 if quick else 11)


def _responses(indices: NDArray[np.int64], *, repetitions: int) -> Iterator[Finding]:
    """k-ary randomized response, local and shuffled, against other libraries; per user, since OpenDP is slow."""
    values = indices.tolist()
    opendp = _opendp()
    peers = {
        "multi-freq-ldpy": _multi_freq_ldpy("GRR"),
        "OpenDP": lambda given: [opendp(value) for value in given],
    }
    for name in ("k-rr", "shuffled-k-rr"):
        times = side_by_side(
            {
                "shuffledp": _round(name, indices),
                "multi-freq-ldpy": _bound(peers["multi-freq-ldpy"], values),
                "OpenDP": _bound(peers["OpenDP"], values[:_OPENDP_USERS]),
            },
            repetitions=repetitions,
        )
        for peer, bound in _LEAST_RESPONSES.items():
            users = _OPENDP_USERS if peer == "OpenDP" else _USERS
            yield at_least(
                f"{name} per user against {peer}'s",
                times.ratio(peer, "shuffledp") * _USERS / users,
                bound,
                f"{seconds(times.seconds('shuffledp') / _USERS)} against {seconds(times.seconds(peer) / users)}",
            )


def _opendp() -> Callable[[int], object]:
    """OpenDP's randomized response with the probability of the true value for epsilon."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    truth = math.exp(_EPSILON) / (math.exp(_EPSILON) + _CATEGORIES - 1)
    measurement: Callable[[int], object] = dp.m.make_randomized_response(list(range(_CATEGORIES)), truth)
    return measurement


def _compare(
    ours: Callable[[], object], peers: dict[str, Round], values: list[int], *, repetitions: int
) -> tuple[float, float, str]:
    """Our seconds, their ratio to the fastest peer's, and everybody's seconds in words.

    A peer that takes seconds is timed once; each is called on a few users first, because some compile themselves.
    """
    rounds: dict[str, Callable[[], object]] = {"shuffledp": ours}
    for peer, run in peers.items():
        run(values[:1000])
        rounds[peer] = _bound(run, values)
    ours()
    first = side_by_side(rounds, repetitions=1, warm_up=False)
    quick = {name: run for name, run in rounds.items() if first.seconds(name) < _SLOW_SECONDS}
    times = side_by_side(quick, repetitions=repetitions, warm_up=False)
    durations = {name: (times if name in quick else first).seconds(name) for name in rounds}
    fastest = min(peers, key=durations.__getitem__)
    ratio = times.ratio("shuffledp", fastest) if fastest in quick else durations["shuffledp"] / durations[fastest]
    return durations["shuffledp"], ratio, ", ".join(f"{name} {seconds(durations[name])}" for name in rounds)


def _bound(run: Round, values: list[int]) -> Callable[[], object]:
    return lambda: run(values)


def _round(name: str, indices: NDArray[np.int64]) -> Callable[[], object]:
    """Randomize, shuffle, tally and estimate, with secure randomness."""
    from shuffledp.protocols.registry import find

    protocol = find("histogram", name).calibrate(users=_USERS, domain_size=_CATEGORIES, epsilon=_EPSILON, delta=1e-6)
    return lambda: protocol.run(indices, route="messages")


def _indices() -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, _CATEGORIES, _USERS)


def _multi_freq_ldpy(module: str, **options: Any) -> Round:
    """One call of its client per user, then its aggregator."""

    def run(values: list[int]) -> object:
        home = import_module(f"multi_freq_ldpy.pure_frequency_oracles.{module}")
        client, aggregate = getattr(home, f"{module}_Client"), getattr(home, f"{module}_Aggregator_MI")
        reports = [client(value, _CATEGORIES, _EPSILON, *options.values()) for value in values]
        if module == "UE":
            return aggregate(reports, _EPSILON, *options.values())
        return aggregate(reports, _CATEGORIES, _EPSILON, *options.values())

    return run


def _pure_ldp(module: str, kind: str, **options: Any) -> Round:
    """One call of its client per user, then its server and an estimate of every category."""

    def same(value: int) -> int:
        return value

    def run(values: list[int]) -> object:
        home = import_module(f"pure_ldp.frequency_oracles.{module}")
        more = {"hash_funcs": None} if kind == "HadamardResponse" else {}
        client = getattr(home, f"{kind}Client")(_EPSILON, _CATEGORIES, index_mapper=same, **options, **more)
        server = getattr(home, f"{kind}Server")(_EPSILON, _CATEGORIES, index_mapper=same, **options)
        for value in values:
            server.aggregate(client.privatise(value))
        return [server.estimate(category, suppress_warnings=True) for category in range(_CATEGORIES)]

    return run


_PEERS: dict[str, dict[str, Round]] = {
    "k-rr": {
        "multi-freq-ldpy": _multi_freq_ldpy("GRR"),
        "pure-ldp": _pure_ldp("direct_encoding", "DE"),
    },
    "unary": {
        "multi-freq-ldpy": _multi_freq_ldpy("UE", optimal=True),
        "pure-ldp": _pure_ldp("unary_encoding", "UE", use_oue=True),
    },
    "local-hashing": {
        "multi-freq-ldpy": _multi_freq_ldpy("LH", optimal=True),
        "pure-ldp": _pure_ldp("local_hashing", "LH", use_olh=True),
    },
    "hadamard-response": {
        "pure-ldp": _pure_ldp("hadamard_response", "HadamardResponse"),
    },
}
"""The other implementations of each protocol, by its name here."""
