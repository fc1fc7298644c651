"""Series of rounds with fresh keys, for tests of the web client."""

from datetime import UTC, datetime, timedelta

import shuffledp as sdp
from shuffledp.collection import SealingKey, ShufflerKeys, SigningKey, Task, WireVersion2
from shuffledp.collection.task.series import RoundKeys, Series

CATEGORIES = ["bus", "bike", "car"]


def round_keys(rounds, hops=1):
    """The private keys of every round: the analyzer's, and one of each shuffler."""
    return [(SealingKey.create(), *(SealingKey.create() for _ in range(hops))) for _ in range(rounds)]


def make_series(
    *,
    rounds=3,
    per_device=2,
    opens=None,
    open_seconds=7200,
    period=86_400,
    keys=None,
    hops=1,
    shufflers=None,
    protocol="histogram/uniform-blanket",
    settings=None,
    epsilon=1.0,
    delta=1e-6,
    replaces=None,
    **fields,
):
    """A series whose first round opened an hour ago."""
    keys = keys or round_keys(rounds, hops)
    opens = opens or datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    shufflers = shufflers or [SigningKey.create().public for _ in range(hops)]
    own = tuple(RoundKeys(analyzer.public, tuple(hop.public for hop in later)) for analyzer, *later in keys)
    question, name = protocol.split("/")
    first = Task.create(
        kind=sdp.find(question, name),
        settings=settings or {"users": 1_000, "domain_size": 3, "categories": CATEGORIES},
        epsilon=epsilon,
        delta=delta,
        opens=opens,
        closes=opens + timedelta(seconds=open_seconds),
        analyzer=own[0].analyzer,
        shuffler=shufflers[-1],
        wire=WireVersion2(tuple(map(ShufflerKeys, shufflers, own[0].shufflers))),
        **{"maximum_users": 10_000, "name": "Commuting", "description": "", "population": "city"} | fields,
    )
    return Series(first, period=period, keys=own, rounds_per_device=per_device, replaces=replaces)
