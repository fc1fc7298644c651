"""The message column of Table 1 for the two protocols of [13], Ghazi and others (2019), with its constants.

Hadamard codewords: 1 + O(log(1 / (epsilon delta)) / epsilon^2) messages. Algorithm 1 sends 1 + rho of them, rho being
the least integer with rho n / 2^tau >= 36 ln(e / (epsilon delta)) / epsilon^2 and 2^tau < 2 n, so at most
2 + 72 ln(e / (epsilon delta)) / epsilon^2.

Sketch: O(log^3 d log(log d / delta) / epsilon^2) messages with high probability. Algorithm 2 sends one for each of the
tau = log2(2 d / beta) rows, and each of the tau s cells, s <= 2 n, once more with probability gamma, where
gamma n = 90 tau^2 ln(2 tau / delta) / epsilon^2: on average at most tau (1 + 180 tau^2 ln(2 tau / delta) / epsilon^2).
Only their number beyond tau is random, so that "with high probability" is a quantile of a binomial distribution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shuffledp.lab.studies.checks import Check, at_most, equals, rarely
from shuffledp.lab.studies.table1.rows import BETA, DELTA, EPSILON
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.histogram.hadamard_blanket import HadamardBlanketHistogram
from shuffledp.protocols.protocol import Protocol
from shuffledp.randomness import RandomSource

_RARE = 1e-6
_MAX_CELLS = 50_000_000
_REPORTS = 20


def message_bound(protocol: Protocol, size: int) -> float | None:
    """The expected number of messages with the paper's constants, for any number of users; None for other rows."""
    if isinstance(protocol, HadamardBlanketHistogram):
        return 2 + 72 * (1 - math.log(EPSILON * DELTA)) / EPSILON**2
    if isinstance(protocol, CountMinHistogram):
        tau = max(1, math.ceil(math.log2(2 * size / BETA)))
        return tau * (1 + 180 * tau**2 * math.log(2 * tau / DELTA) / EPSILON**2)
    return None


def message_rate(protocol: Protocol, size: int) -> float | None:
    """The rate of Table 1, with 1 as the constant."""
    if isinstance(protocol, HadamardBlanketHistogram):
        return -math.log(EPSILON * DELTA) / EPSILON**2
    if isinstance(protocol, CountMinHistogram):
        return math.log(size) ** 3 * math.log(math.log(size) / DELTA) / EPSILON**2
    return None


def message_quantile(protocol: Protocol) -> float | None:
    """The number of messages that a user of the sketch exceeds with probability at most 1e-6."""
    if not isinstance(protocol, CountMinHistogram):
        return None
    extra = Binomial(protocol.rows * protocol.buckets, protocol.gamma)
    return float(protocol.rows + extra.trials - extra.mirrored.least_with_lower_tail(_RARE))


def message_row(protocol: Protocol, size: int) -> dict[str, Any]:
    """The columns of messages of one case; empty for the rows that are not of [13]."""
    return {
        "messages_formula": message_bound(protocol, size),
        "messages_rate_constant_1": message_rate(protocol, size),
        "messages_quantile": message_quantile(protocol),
    }


def message_checks(protocol: Protocol, users: int, size: int, source: RandomSource) -> list[Check]:
    """Messages are within the formula, the cost is what the construction says, and reports have as many."""
    bound = message_bound(protocol, size)
    if bound is None:
        return []
    name = f"{protocol.name} [13]"
    where = f"{users:,} users, {size:,} categories, {protocol.target.calibration} noise"
    sent = protocol.cost.messages_per_user
    checks = [at_most(f"{name}: messages per user within the formula of Table 1", where, sent, bound)]
    if isinstance(protocol, HadamardBlanketHistogram):
        built = 1 + float(protocol.blanket.mean)
        if protocol.target.calibration == "paper":
            mean = 36 * (1 - math.log(EPSILON * DELTA)) / EPSILON**2
            built = 1 + math.ceil(mean * 2.0**protocol.hashes / users)
        checks.append(equals(f"{name}: messages as the construction says", where, sent, built, tolerance=1e-9 * built))
        reports = [len(protocol.randomize(0, source=source)) for _ in range(_REPORTS)]
        checks.append(at_most(f"{name}: messages of {_REPORTS} reports", where, max(reports), math.ceil(built)))
    elif isinstance(protocol, CountMinHistogram):
        tau, cells = protocol.rows, protocol.rows * protocol.buckets
        mean = users * float(protocol.gamma)
        if protocol.target.calibration == "paper":
            mean = 90 * tau**2 * math.log(2 * tau / DELTA) / EPSILON**2
        built = tau + cells * mean / users
        checks.append(equals(f"{name}: messages as the construction says", where, sent, built, tolerance=1e-9 * built))
        if cells <= _MAX_CELLS // _REPORTS:
            reports = [len(protocol.randomize(0, source=source)) for _ in range(_REPORTS)]
            limit = message_quantile(protocol)
            exceeded = int(np.count_nonzero(np.array(reports) > limit))
            claim = f"{name}: messages with high probability, reports beyond the quantile"
            checks.append(rarely(claim, where, failures=exceeded, rounds=_REPORTS, at_most=_RARE))
            spread = math.sqrt(Binomial(cells, protocol.gamma).variance / _REPORTS)
            claim = f"{name}: mean messages of {_REPORTS} reports"
            checks.append(equals(claim, where, float(np.mean(reports)), built, tolerance=5 * spread + 1e-9))
    return checks
