"""One round from counts that another engine has computed: a database, a data frame, a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import DiscreteDomain, Interval, Strings
from shuffledp.errors import DataError, ParameterError
from shuffledp.estimate import Estimate
from shuffledp.protocols.flow import run_counted, run_round
from shuffledp.protocols.protocol import Protocol, check_enough_users, check_estimator
from shuffledp.randomness import SYSTEM, RandomSource

_MAX_COUNT = 10**15
_MAX_NUMBERS = 200_000_000
"""Maximum number of users of a sum: the number of each user is held in memory."""


def run_counts(
    counts: Mapping[Any, int] | Sequence[int] | NDArray[np.integer[Any]],
    protocol: Protocol,
    *,
    estimator: str = "",
    route: str = "auto",
    source: RandomSource = SYSTEM,
) -> Estimate:
    """One round of the protocol over users who were counted elsewhere: the same release as from their rows.

    ``counts`` has the number of users per category (``{category: count}``), per string, or per number for sums, means
    and quantiles; or the numbers of users in the order of the domain, an array with one number per category or bin.
    Each user counts once: count distinct users, not rows, where a user may have several. The counts are not private;
    only the estimate is. ``protocol`` is calibrated for at most as many users as there are. ``estimator`` names one of
    its estimators, ``route`` how the round is carried out (``auto``, ``messages`` or ``counts``), and ``source`` the
    source of random bits; a seeded one is for tests only.

    >>> protocol = sdp.plan(sdp.Histogram(10_000, categories=["bus", "bike"]), epsilon=1.0, delta=1e-6).best
    >>> estimate = sdp.run_counts({"bus": 7_000, "bike": 3_000}, protocol)
    >>> estimate.categories, abs(estimate.counts[0] - 7_000) < 500
    (('bus', 'bike'), np.True_)
    """
    if not isinstance(protocol, Protocol):
        raise ParameterError(
            f"A protocol is needed, such as sdp.plan(...).best, not an object of type {type(protocol).__name__}."
        )
    estimator = estimator or protocol.estimators[0]
    check_estimator(estimator, protocol.estimators)
    domain = protocol.domain
    if isinstance(domain, Interval):
        positions = _positions(counts, domain, protocol.users)
        return run_round(protocol, positions, estimator=estimator, route=route, source=source)
    if isinstance(domain, Strings):
        rows = _per_string(counts, domain)
        check_enough_users(int(rows[:, 1].sum()), protocol.users)
        return protocol.estimate(protocol.sample_tally(rows, source=source), estimator=estimator)
    if not isinstance(domain, DiscreteDomain):
        raise ParameterError(f"{protocol.name} does not take counts.")
    users = _per_index(counts, domain)
    return run_counted(protocol, users, estimator=estimator, route=route, source=source)


def _per_index(counts: Any, domain: DiscreteDomain) -> NDArray[np.int64]:
    """The number of users per index of the domain."""
    if not hasattr(counts, "items"):
        users = _checked(counts)
        if len(users) != len(domain):
            raise ParameterError(f"There are {len(users):,} counts; the domain has {len(domain):,} values.")
        return users
    indices, users = _encoded(counts, domain)
    total = np.zeros(len(domain), dtype=np.int64)
    np.add.at(total, indices, users)  # 1 and "1.0" are one category
    return total


def _per_string(counts: Any, domain: Strings) -> NDArray[Any]:
    """A row of index and number of users per string."""
    if not hasattr(counts, "items"):
        raise ParameterError("Strings need the number of users per string, {string: count}, not an array.")
    indices, users = _encoded(counts, domain)
    total: dict[int, int] = {}
    for index, number in zip(indices.tolist(), users.tolist(), strict=True):
        total[index] = total.get(index, 0) + number
    rows = np.empty((len(total), 2), dtype=domain.index_type)
    rows[:, 0], rows[:, 1] = list(total), list(total.values())
    return rows


def _positions(counts: Any, domain: Interval, needed: int) -> NDArray[np.float64]:
    """The position of each user's number."""
    if not hasattr(counts, "items"):
        raise ParameterError("A sum or mean needs the number of users per number, {number: count}, not an array.")
    positions, users = _encoded(counts, domain)
    total = int(users.sum())
    check_enough_users(total, needed)
    if total > _MAX_NUMBERS:
        raise ParameterError(
            f"A sum from counts is limited to {_MAX_NUMBERS:,} users, not {total:,}: ask for quantiles, whose estimate "
            "has a mean too."
        )
    return np.repeat(positions, users)


def _encoded(counts: Any, domain: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The index or position of each value that was counted, and its number of users."""
    pairs = list(counts.items())
    users = _checked(count for _, count in pairs)
    values = [domain.parse(value) if isinstance(value, str) else value for value, _ in pairs]
    return domain.encode_all(values), users


def _checked(counts: Iterable[Any]) -> NDArray[np.int64]:
    """The counts as an array; each must be a non-negative integer, and their sum within the limits of a round."""
    if isinstance(counts, (str, bytes)) or not isinstance(counts, Iterable) or getattr(counts, "ndim", 1) != 1:
        raise ParameterError("Counts are {category: count}, or a flat array in the order of the domain.")
    integers = counts.tolist() if isinstance(counts, np.ndarray) else list(counts)
    for count in integers:
        if isinstance(count, (bool, np.bool_)) or not isinstance(count, (int, np.integer)):
            raise DataError(f"A count is an integer, not {count!r} of type {type(count).__name__}.")
        if count < 0:
            raise DataError(f"A count is a number of users, so it cannot be {count:,}.")
    if sum(map(int, integers)) > _MAX_COUNT:
        raise DataError(f"A round has at most {_MAX_COUNT:,} users.")
    return np.array(integers, dtype=np.int64)
