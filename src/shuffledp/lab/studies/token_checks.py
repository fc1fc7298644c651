"""Checks of the protocols of Balcer and Cheu (privacy, noise, errors, zeros) by printed formulas and exact integers.

Expected numbers come from the formulas as the paper prints them and from ``integer_accountant``, never from the code
that calibrates or samples. A fault in either therefore shows as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.lab.studies.checks import Check, at_most, equals, frequency
from shuffledp.lab.studies.integer_accountant import (
    Enclosure,
    count_delta,
    enumerated_delta,
    histogram_delta,
    no_token_omitted,
    table,
)
from shuffledp.lab.studies.study import Settings
from shuffledp.messages import Tally
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness import Dyadic, RandomSource
from shuffledp.shuffling import permute
from shuffledp.testing.audit import audit
from shuffledp.testing.faults import broken

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TokenProtocol = BalcerCheuCount | BalcerCheuHistogram

_ACCOUNTANT_TOLERANCE = 1e-6
_MAX_CATEGORIES_COUNTED = 1000
_LEAST_GAP = 1e-3
_ZERO_USERS, _ZERO_ABSENCE, _ZERO_CATEGORIES = 20, Dyadic(1, 5), 3
_ZERO_DELTA = 0.75
"""With this little noise no finite epsilon holds at a delta below (1 - q)^n, about 0.53."""
_SMALL_CASES = ((12, 1.0, 0.1, 2), (6, 2.0, 0.1, 3))
"""Users, epsilon, delta and categories at which all data sets and all multisets of messages are enumerated."""
_AUDITED_USERS, _AUDITED_DELTA, _AUDITED_CATEGORIES = 40, 0.01, 3
_AUDIT_CONFIDENCE = 1 - 1e-6


def printed_mean(epsilon: float, delta: float, coordinates: int) -> float:
    """The mean of the noise of Theorems 11 and 12: 50 ln(2/delta)/epsilon², at epsilon and delta per coordinate."""
    return 50 * math.log(2 * coordinates / delta) * coordinates**2 / epsilon**2


def printed_alpha(users: int, epsilon: float, delta: float, beta: float) -> float:
    """Theorem 11 (ii): (50/(epsilon² n)) ln(2/delta) + (1/(epsilon n)) sqrt(200 ln(2/delta) ln(2/beta))."""
    level = math.log(2 / delta)
    return 50 / (epsilon**2 * users) * level + math.sqrt(200 * level * math.log(2 / beta)) / (epsilon * users)


def exact_delta(protocol: TokenProtocol, epsilon: float) -> Enclosure:
    """Delta of the noise that the protocol draws, by integer arithmetic."""
    delta_of = count_delta if isinstance(protocol, BalcerCheuCount) else histogram_delta
    return delta_of(protocol.users, protocol.absence.fraction, epsilon)


def privacy_checks(theorem: str, where: str, protocol: TokenProtocol, epsilon: float, delta: float) -> list[Check]:
    """The drawn noise is private as claimed, and the product's accountant reports its delta."""
    exact = exact_delta(protocol, epsilon)
    reported = protocol.guarantee.delta_at(epsilon)
    return [
        at_most(f"{theorem}, privacy", where, exact.high, delta, evidence="integer arithmetic on the noise drawn"),
        Check(
            f"{theorem}, the delta that the accountant reports",
            where,
            reported,
            "=",
            exact.middle,
            exact.contains(reported, relative=_ACCOUNTANT_TOLERANCE),
            f"integer arithmetic: between {exact.low:.6g} and {exact.high:.6g}",
        ),
    ]


def constant_check(theorem: str, where: str, protocol: TokenProtocol, epsilon: float, delta: float) -> Check:
    """With the paper's calibration for an overall (epsilon, delta), the noise has the mean that the theorem prints."""
    printed = printed_mean(epsilon, delta, protocol.changed_categories)
    mean = protocol.users * float(protocol.absence)
    return equals(f"{theorem}, the printed noise", where, mean, printed, tolerance=1e-9 * printed)


def enumeration_checks(theorem: str, kind: type[TokenProtocol]) -> list[Check]:
    """Privacy for few users: all data sets, their neighbours and all multisets of messages are enumerated."""
    checks = []
    for users, epsilon, delta, values in _SMALL_CASES:
        if kind is BalcerCheuCount:
            protocol: TokenProtocol = BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=delta)
            categories, values = 1, 2
        else:
            protocol = BalcerCheuHistogram.calibrate(users=users, epsilon=epsilon, delta=delta, domain_size=values)
            categories = values
        where = f"epsilon {epsilon:g}, delta {delta:g}, {users} users, {values} possible values, tight noise"
        exact = exact_delta(protocol, epsilon)
        listed = enumerated_delta(users, protocol.absence.fraction, epsilon, categories, values)
        evidence = "all data sets and neighbours, all multisets of messages, in integers"
        checks += [
            *privacy_checks(theorem, where, protocol, epsilon, delta),
            at_most(f"{theorem}, privacy by enumeration", where, listed.high, delta, evidence=evidence),
            equals(
                f"{theorem}, delta by enumeration and from the changed counts alone",
                where,
                listed.high,
                exact.high,
                tolerance=1e-12 * exact.high,
            ),
        ]
    return checks


def message_tally(protocol: Protocol, values: NDArray[Any], source: RandomSource, *, singly: bool = False) -> Tally:
    """The tally of one whole round: every message is generated, permuted with all others, and counted.

    ``singly`` calls the randomizer once for each user; otherwise it is called once for all.
    """
    messages = protocol.randomize_all(values, source=source)
    if singly:
        reports = [protocol.randomize(value, source=source) for value in values.tolist()]
        offsets = np.concatenate(([0], np.cumsum([len(report) for report in reports])))
        messages = type(messages)(np.concatenate(reports), len(values), offsets, source.secure)
    shuffled = messages.shuffled(partial(permute, source=source))
    return protocol.release(protocol.tally(shuffled), source=source)


def noise_check(claim: str, where: str, protocol: TokenProtocol, counts: Ints, tallies: Iterable[Tally]) -> Check:
    """All omitted tokens of all rounds have a binomial distribution with the probability of the protocol.

    ``counts`` are the true counts of the categories; of large domains the first thousand are checked.
    """
    held = np.asarray(counts, dtype=np.int64)[:_MAX_CATEGORIES_COUNTED]
    return noise_check_of_rounds(claim, where, protocol, ((held, tally) for tally in tallies))


def noise_check_of_rounds(
    claim: str, where: str, protocol: TokenProtocol, rounds: Iterable[tuple[Ints, Tally]]
) -> Check:
    """As ``noise_check``, for rounds with different true counts."""
    omitted = trials = 0
    for held, tally in rounds:
        tokens = protocol.observed(tally)[: len(held)]
        omitted += int(np.sum(held + tally.users - tokens))
        trials += tally.users * len(held)
    probability = float(protocol.absence)
    if not 0 <= omitted <= trials:
        return Check(claim, where, omitted / trials, "=", probability, False, f"{omitted:,} of {trials:,} tokens")
    return frequency(claim, where, hits=omitted, trials=trials, probability=probability, of="noise tokens omitted")


@dataclass(frozen=True, eq=False)
class ErrorDistribution:
    """The exact distribution of the error of one thresholded estimate."""

    errors: Floats
    cumulative: Floats

    def at_most(self, radius: Floats) -> Floats:
        """Pr[error <= radius] for radii between the possible errors."""
        index = np.searchsorted(self.errors, radius, side="right")
        below: Floats = np.concatenate(([0.0], self.cumulative))[index]
        return below


@lru_cache(maxsize=256)
def error_distribution(users: int, absence: Fraction, count: int) -> ErrorDistribution:
    """The error is the count if N >= count; else the estimate is count - N + E[N], at most the number of users."""
    noise = table(users, absence)
    omitted = noise.first + np.arange(len(noise.lows))
    estimate = np.where(omitted < count, np.minimum(count - omitted + float(noise.mean), users), 0.0)
    errors = np.abs(estimate - count)
    order = np.argsort(errors, kind="stable")
    cumulative = np.minimum(np.cumsum(np.array(noise.probabilities)[order]), 1.0)
    return ErrorDistribution(errors[order], cumulative)


def largest_error_check(
    claim: str, where: str, largest: Floats, protocol: TokenProtocol, counts: Sequence[int], *, rows: int = 1
) -> Check:
    """The largest error of these true counts exceeds a radius as often as it should, two-sided.

    The radius is the one for which the exact probability is nearest to one half.
    """
    distinct, times = np.unique(np.asarray(counts, dtype=np.int64), return_counts=True)
    distributions = [
        error_distribution(protocol.users, protocol.absence.fraction, count) for count in distinct.tolist()
    ]
    possible = np.unique(np.concatenate([distribution.errors for distribution in distributions]))
    gaps = np.flatnonzero(np.diff(possible) > _LEAST_GAP)
    radii = np.concatenate(([possible[0] / 2], (possible[gaps] + possible[gaps + 1]) / 2))
    with np.errstate(divide="ignore"):
        logs = sum(
            int(number) * np.log(distribution.at_most(radii))
            for distribution, number in zip(distributions, times, strict=True)
        )
    exceeds = -np.expm1(logs)
    best = int(np.argmin(np.abs(exceeds - 0.5)))
    hits = int(np.count_nonzero(largest > radii[best]))
    probability = float(np.clip(exceeds[best], 0.0, 1.0))
    if probability > 1 - 1e-12:
        probability = 1.0
    return frequency(
        claim,
        f"{where}, error above {radii[best]:,.2f}",
        hits=hits,
        trials=len(largest),
        probability=probability,
        rows=rows,
    )


def zero_checks(theorem: str, kind: type[TokenProtocol], settings: Settings) -> list[Check]:
    """Counts of 0 are estimated as 0, with so little noise that often no token is omitted: a wrong comparison shows."""
    domain: dict[str, Any] = {} if kind is BalcerCheuCount else {"domain_size": _ZERO_CATEGORIES}
    protocol = kind.with_noise(users=_ZERO_USERS, absence=_ZERO_ABSENCE, delta=_ZERO_DELTA, **domain)
    values = np.zeros(_ZERO_USERS, dtype=np.int64)
    rounds = settings.pick(100, 1000)
    source = settings.source
    routes = {
        "messages": [message_tally(protocol, values, source) for _ in range(rounds)],
        "tallies drawn": [protocol.sample_tally(protocol.summary(values), source=source) for _ in range(rounds)],
    }
    exact = no_token_omitted(_ZERO_USERS, _ZERO_ABSENCE.fraction)
    checks = []
    for route, tallies in routes.items():
        where = f"{_ZERO_USERS} users, tokens omitted with probability 1/32, {route}"
        empty = np.array([protocol.observed(tally)[-1] for tally in tallies])  # the last category is empty
        estimates = [_estimates(protocol, tally)[-1] for tally in tallies]
        checks += [
            frequency(
                f"{theorem}, as many tokens as users arrive for a count of 0, with probability (31/32)^20",
                where,
                hits=int(np.count_nonzero(empty == _ZERO_USERS)),
                trials=rounds,
                probability=float(exact),
            ),
            equals(
                f"{theorem}, zero stays zero",
                where,
                float(np.max(np.abs(estimates))),
                0.0,
                evidence=f"{rounds:,} rounds; with >= in place of > each fails with probability {float(exact):.2f}",
            ),
        ]
    return checks


def _estimates(protocol: TokenProtocol, tally: Tally) -> Floats:
    if isinstance(protocol, BalcerCheuHistogram):
        counts: Floats = protocol.estimate(tally).counts
        return counts
    return np.array([protocol.estimate(tally).value])


def round_errors(protocol: TokenProtocol, tally: Tally, truth: NDArray[Any]) -> Floats:
    """The absolute errors of the thresholded estimates of one round."""
    errors: Floats = np.abs(_estimates(protocol, tally) - truth)
    return errors


def audit_check(theorem: str, kind: type[TokenProtocol], settings: Settings) -> Check:
    """An audit of the real randomizer, at one setting with few users."""
    domain: dict[str, Any] = {} if kind is BalcerCheuCount else {"domain_size": _AUDITED_CATEGORIES}
    protocol = kind.calibrate(users=_AUDITED_USERS, epsilon=1.0, delta=_AUDITED_DELTA, **domain)
    seeded = broken(protocol, randomize_all=partial(protocol.randomize_all, source=settings.source))
    result = audit(
        seeded,
        trials=settings.pick(400, 4000),
        confidence=_AUDIT_CONFIDENCE,
        permute=partial(permute, source=settings.source),
    )
    shown = next((point for point in result.points if point.exposed), result.points[0])
    return Check(
        f"{theorem}, audit of the randomizer: epsilon is at least",
        f"{_AUDITED_USERS} users, epsilon 1, delta {_AUDITED_DELTA:g}, shown at delta {shown.delta:g}",
        shown.epsilon_at_least,
        "<=",
        shown.epsilon_claimed,
        not result.exposed,
        f"{2 * result.trials:,} rounds of messages; false alarm {1 - _AUDIT_CONFIDENCE:.0e}",
    )
