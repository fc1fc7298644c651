"""One round in this process: randomize, drop the order of messages, tally, estimate.

A uniformly permuted list contains the same information as the multiset of its messages, and a tally depends only on the
multiset, as the conformance kit checks. So no permutation is drawn.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError, UnknownNameError
from shuffledp.protocols.protocol import Protocol, check_enough_users
from shuffledp.randomness import SYSTEM

if TYPE_CHECKING:
    from shuffledp.estimate import Estimate
    from shuffledp.messages import Tally
    from shuffledp.privacy.guarantee import Guarantee
    from shuffledp.randomness import RandomSource

EstimateType = TypeVar("EstimateType", bound="Estimate")

ROUTES = ("auto", "messages", "counts")

_MAX_NUMBERS_BY_DEFAULT = 20_000_000
_MAX_NUMBERS_IN_MEMORY = 1_000_000_000
_PORTION_NUMBERS = 1 << 22


class Origin(TypedDict):
    """The fields of every estimate that say what it was made from."""

    protocol: str
    estimator: str
    users: int
    guarantee: Guarantee
    secure: bool


class EstimatingProtocol(Protocol, Generic[EstimateType]):
    """A protocol whose estimates all have one type, and a round of it in this process."""

    @abstractmethod
    def estimate(self, tally: Tally, *, estimator: str = "") -> EstimateType:
        """The estimate with its uncertainty."""

    def origin(self, tally: Tally, estimator: str) -> Origin:
        """The fields of the estimate from this tally that do not depend on the question."""
        return {
            "protocol": self.name,
            "estimator": estimator,
            "users": tally.users,
            "guarantee": self.guarantee,
            "secure": tally.secure,
        }

    def run(
        self, values: Iterable[Any], *, estimator: str = "", route: str = "auto", source: RandomSource = SYSTEM
    ) -> EstimateType:
        """A full round in this process, from values of the domain to the estimate."""
        tally = tally_round(self, self.domain.encode_all(values), route=route, source=source)
        return self.estimate(tally, estimator=estimator)


class RemoteValues(ABC):
    """The values of the users of a round that are held by another system, where their noise is drawn."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of users."""

    @abstractmethod
    def tally(self, protocol: Protocol, *, source: RandomSource) -> Tally:
        """The released tally of one round over these users; every call draws new noise and is another release."""


class RemoteCounts(np.ndarray[Any, np.dtype[np.int64]]):
    """The number of users per index, counted by another system; ``rows`` are the indices that it holds."""

    rows: RemoteValues

    @classmethod
    def of(cls, counts: NDArray[np.int64], rows: RemoteValues) -> RemoteCounts:
        """The counts of these rows."""
        remote = counts.view(cls)
        remote.rows = rows
        return remote


class RemoteGroup(RemoteValues):
    """The values of the users of one group, held by another system that can run the rounds of all groups at once."""

    @abstractmethod
    def tally_all(self, protocols: Mapping[str, Protocol], *, source: RandomSource) -> dict[str, Tally]:
        """The released tallies of one round per named group, each by its protocol."""


def choose_route(protocol: Protocol, users: int, route: str) -> str:
    """The route of a round: ``messages`` makes and counts every message, ``counts`` draws the tally directly.

    The tallies have the same distribution. ``auto`` makes the messages if they are at most twenty million numbers.
    """
    if route not in ROUTES:
        raise UnknownNameError(f"There is no route {route!r}; choose one of {', '.join(ROUTES)}.", route=route)
    messages = users * protocol.cost.messages_per_user
    numbers = messages * protocol.message_format.columns
    if route == "messages" and numbers > _MAX_NUMBERS_IN_MEMORY:
        raise ParameterError(
            f"The route messages would store {messages:,.0f} messages in memory; "
            "the route counts has the same distribution.",
            messages=messages,
        )
    if route != "auto":
        return route
    return "messages" if numbers <= _MAX_NUMBERS_BY_DEFAULT else "counts"


def tally_round(protocol: Protocol, values: NDArray[Any] | RemoteValues, *, route: str, source: RandomSource) -> Tally:
    """The released tally of one round over users with these values (indices, or positions in an interval)."""
    check_enough_users(len(values), protocol.users)
    if isinstance(values, RemoteValues):
        return values.tally(protocol, source=source)
    if choose_route(protocol, len(values), route) == "counts":
        return protocol.sample_tally(protocol.summary(values), source=source)
    multiset = protocol.randomize_all(values, source=source).unordered()
    return protocol.release(protocol.tally(multiset), source=source)


def run_round(
    protocol: Protocol, values: NDArray[Any] | RemoteValues, *, estimator: str, route: str, source: RandomSource
) -> Estimate:
    """The estimate of one round over users with these values (indices, or positions in an interval)."""
    return protocol.estimate(tally_round(protocol, values, route=route, source=source), estimator=estimator)


def run_counted(
    protocol: Protocol, counts: NDArray[np.int64], *, estimator: str, route: str, source: RandomSource
) -> Estimate:
    """The estimate of one round, given the number of users who hold each index."""
    users = int(counts.sum())
    check_enough_users(users, protocol.users)
    if isinstance(counts, RemoteCounts):
        if route == "messages":
            return run_round(protocol, counts.rows, estimator=estimator, route=route, source=source)
        route, counts = "counts", np.asarray(counts)
    if choose_route(protocol, users, route) == "counts":
        return protocol.estimate(protocol.sample_tally(counts, source=source), estimator=estimator)
    indices = np.repeat(np.arange(len(counts)), counts)
    return run_round(protocol, indices, estimator=estimator, route="messages", source=source)


def sample_released_tally(protocol: Protocol, portions: Iterable[NDArray[Any]], source: RandomSource) -> Tally:
    """Randomize and count the values portion by portion, then release the total."""
    tallies = (protocol.tally(protocol.randomize_all(values, source=source)) for values in portions)
    return protocol.release(reduce(operator.add, tallies), source=source)


def user_ranges(protocol: Protocol, users: int) -> list[tuple[int, int]]:
    """The users in ranges (first, end) so small that the messages of one range fit into memory."""
    numbers = protocol.cost.messages_per_user * protocol.message_format.columns
    step = max(1, int(_PORTION_NUMBERS / numbers))
    return [(start, min(start + step, users)) for start in range(0, users, step)] or [(0, 0)]
