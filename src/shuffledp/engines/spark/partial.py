"""Rounds on Spark: tasks randomize their users' values and tally the messages; the driver adds the tallies.

Tallies add up, and a tally depends only on the multiset of messages, so the sum has the distribution of a shuffled
round. Nothing after the noise is lazy: every call runs one action and returns numbers. Spark passes on exactly one
result of each partition.

Numbers and strings are sent to the tasks row by row. Indices of a discrete domain are counted first, by Spark alone,
and the tasks get the counts: it takes Spark several times as long to send rows to Python as to count them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.engines.encoding import Encoder
from shuffledp.engines.spark.counts import collect_partials
from shuffledp.engines.spark.session import Frame, Session
from shuffledp.engines.spark.workers import PARTIAL_SCHEMA, RandomizeCounts, RandomizeRows
from shuffledp.errors import EngineError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.flow import RemoteGroup, RemoteValues
from shuffledp.protocols.protocol import Protocol, check_enough_users
from shuffledp.randomness import RandomSource

_FEWEST_TASKS, _MOST_TASKS = 4, 1 << 13
_NUMBERS_PER_TASK = 1 << 24
"""Parts of messages that one task draws: some tenths of a second."""


def tally_parts(
    frame: Frame, protocols: Mapping[int, Protocol], source: RandomSource, encoder: Encoder | None = None
) -> dict[int, Tally]:
    """One round per part over the rows of a frame, each by its protocol; the tallies are not released yet."""
    _check_secure(source)
    tallies: dict[int, Tally] = {}
    for part, partials in collect_partials(frame.mapInArrow(RandomizeRows(protocols, encoder), PARTIAL_SCHEMA)):
        if encoder is not None:
            for _, _, state in partials:
                encoder.merge(state)
        if part >= 0:
            tallies[part] = reduce(operator.add, (Tally(counts, users) for users, counts, _ in partials))
    if encoder is not None:
        encoder.check()
        if sum(tally.users for tally in tallies.values()) != encoder.encoded:
            raise EngineError("The tallies do not have all users that were read. Nothing was released.")
    return tallies


class CountedUsers(RemoteValues):
    """The users of a round, whose numbers per index are known; tasks of Spark randomize the value of each of them."""

    def __init__(self, counts: NDArray[np.int64], session: Session) -> None:
        self._counts, self._session, self._users = counts, session, int(counts.sum())

    def __len__(self) -> int:
        return self._users

    def tally(self, protocol: Protocol, *, source: RandomSource) -> Tally:
        """The released tally of one round; every call draws new noise and is another release."""
        _check_secure(source)
        numbers = self._users * protocol.cost.messages_per_user * protocol.message_format.columns
        tasks = min(max(_FEWEST_TASKS, int(numbers / _NUMBERS_PER_TASK)), _MOST_TASKS)
        held = np.flatnonzero(self._counts)
        work = RandomizeCounts(protocol, held, np.cumsum(self._counts[held]), tasks)
        collected = collect_partials(self._session.range(0, tasks, 1, tasks).mapInArrow(work, PARTIAL_SCHEMA))
        partials = [partial for part, partials in collected if part >= 0 for partial in partials]
        tally = reduce(operator.add, (Tally(counts, users) for users, counts, _ in partials)) if partials else None
        return _released(tally, self._users, protocol, source)


class SparkRows(RemoteValues):
    """The values of the users of a round, in Spark."""

    def __init__(self, users: int, frame: Callable[[], Frame], encoder: Callable[[], Encoder] | None = None) -> None:
        self._users, self._frame, self._encoder = users, frame, encoder  # users is -1 if they were not counted yet

    def __len__(self) -> int:
        return self._users

    def tally(self, protocol: Protocol, *, source: RandomSource) -> Tally:
        """The released tally of one round; every call draws new noise and is another release."""
        encoder = None if self._encoder is None else self._encoder()
        tallies = tally_parts(self._frame(), {0: protocol}, source, encoder)
        return _released(tallies.get(0), self._users, protocol, source)


class SparkGroup(RemoteGroup):
    """The values of the users of one group, in Spark."""

    def __init__(self, users: int, name: str, indices: Mapping[str, int], sizes: Any, frame: Frame) -> None:
        self._users, self._name, self._indices, self._sizes, self._frame = users, name, indices, sizes, frame

    def __len__(self) -> int:
        return self._users

    def tally(self, protocol: Protocol, *, source: RandomSource) -> Tally:
        """The released tally of one round over the users of this group."""
        return self.tally_all({self._name: protocol}, source=source)[self._name]

    def tally_all(self, protocols: Mapping[str, Protocol], *, source: RandomSource) -> dict[str, Tally]:
        """The released tallies of one round per named group, by one action."""
        numbered = {self._indices[name]: protocol for name, protocol in protocols.items()}
        tallies = tally_parts(self._frame, numbered, source)
        return {
            name: _released(tallies.get(self._indices[name]), int(self._sizes[self._indices[name]]), protocol, source)
            for name, protocol in protocols.items()
        }


def _check_secure(source: RandomSource) -> None:
    if not source.secure:
        raise ParameterError(
            "A seed cannot repeat the noise that the partitions of Spark draw, since their order is not defined: use "
            "the route counts, or leave the seed out."
        )


def _released(tally: Tally | None, users: int, protocol: Protocol, source: RandomSource) -> Tally:
    """The release of a tally, which must have exactly the users that were counted before."""
    tallied = 0 if tally is None else tally.users
    if tally is None or (users >= 0 and tallied != users):
        raise EngineError(
            f"The data in Spark changed between two reads: there were {users:,} users, then {tallied:,}. Nothing was "
            "released; write the data to a table that does not change, or cache the frame.",
            users=users,
            tallied=tallied,
        )
    check_enough_users(tallied, protocol.users)
    return protocol.release(tally, source=source)
