"""One round in this process: randomize, forget who sent what, tally, estimate.

A uniformly permuted list tells exactly what the multiset of its messages tells, and a tally depends on that alone, as
the conformance kit checks. So counting is the shuffle here: no permutation is drawn that nobody would see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.messages import count_values
from shuffledp.model import check_enough_users

if TYPE_CHECKING:
    from shuffledp.model import Protocol
    from shuffledp.randomness import RandomSource

__all__ = ["ROUTES", "choose_route", "run_counted", "run_round"]

ROUTES = ("auto", "messages", "counts")

_MOST_NUMBERS = 20_000_000
_MOST_NUMBERS_IN_MEMORY = 1_000_000_000


def choose_route(protocol: Protocol, users: int, route: str) -> str:
    """``messages`` makes and counts every message; ``counts`` draws the tally with the same distribution.

    ``auto`` makes the messages while they are at most twenty million numbers.
    """
    if route not in ROUTES:
        raise UnknownNameError(f"There is no route {route!r}; choose one of {', '.join(ROUTES)}.", route=route)
    messages = users * protocol.cost.messages_per_user
    numbers = messages * protocol.message_format.columns
    if route == "messages" and numbers > _MOST_NUMBERS_IN_MEMORY:
        raise ParameterError(
            f"The route messages would hold {messages:,.0f} messages in memory; "
            "the route counts has the same distribution.",
            messages=messages,
        )
    if route != "auto":
        return route
    return "messages" if numbers <= _MOST_NUMBERS else "counts"


def run_round(protocol: Any, values: NDArray[Any], *, estimator: str, route: str, source: RandomSource) -> Any:
    """The estimate of one round over users with these values (indices, or places in an interval)."""
    check_enough_users(len(values), protocol.users)
    if choose_route(protocol, len(values), route) == "counts":
        summary = values if protocol.question == "sum" else count_values(values, protocol.domain_size)
        return protocol.estimate(protocol.sample_tally(summary, source=source), estimator=estimator)
    bag = protocol.randomize_all(values, source=source).unordered()
    return protocol.estimate(protocol.release(protocol.tally(bag), source=source), estimator=estimator)


def run_counted(protocol: Any, counts: NDArray[np.int64], *, estimator: str, route: str, source: RandomSource) -> Any:
    """The estimate of one round over users of whom so many hold each index; their order is no matter."""
    users = int(counts.sum())
    check_enough_users(users, protocol.users)
    if choose_route(protocol, users, route) == "counts":
        return protocol.estimate(protocol.sample_tally(counts, source=source), estimator=estimator)
    indices = np.repeat(np.arange(len(counts)), counts)
    return run_round(protocol, indices, estimator=estimator, route="messages", source=source)
