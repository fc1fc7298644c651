"""The rows of Table 1 of Balcer and Cheu (2020): protocols, bounds on their largest error, and one round of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.lab.studies.largest_errors import EmptyErrors, hidden_share
from shuffledp.messages import Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.histogram.bassily_smith import BassilySmith
from shuffledp.protocols.histogram.cheu import CheuHistogram
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.histogram.discrete_laplace import DiscreteLaplaceHistogram
from shuffledp.protocols.histogram.hadamard_blanket import HadamardBlanketHistogram
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.protocols.histogram.unary import UnaryEncoding
from shuffledp.protocols.parts.category_noise import LaplaceNoise, Responses
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.registry import find
from shuffledp.randomness import RandomSource

EPSILON = 1.0
DELTA = 1e-8
BETA = 0.05

_LEAST_BUCKETS = 1000
NUMBER_OF_LARGE = 6
"""The number of held categories that no threshold hides."""
_HIDDEN = 0.2
"""The share of rounds in which a threshold hides the counts that are hard for it."""


@dataclass(frozen=True)
class Row:
    """One protocol that stands for a row of the table."""

    protocol: str
    """Its name in the registry."""
    model: str
    source: str
    """The citation in the table."""
    formula: Callable[[Any, int, int], float]
    """The error in users that is exceeded with probability at most BETA, for a protocol, users and domain size."""
    rate: Callable[[int, int], float]
    """The rate of the table times the users, with 1 as the constant; for users and domain size."""
    calibrations: tuple[str, ...] = ("paper", "tight")
    slow: bool = False
    """A round over a large domain takes seconds."""
    least_rounds: int = 20
    """With fewer rounds, the quantile would be the error of the worst round; 10 where the formula is loose enough."""
    message_rounds: tuple[int, int] = (10, 60)
    """Rounds in which all messages are generated, in the quick and in the full form."""
    allowance: float = 0.0
    """Share of the predicted mean square by which the measured one may be off beyond chance, where predictions are
    approximate or follow from rare events."""

    @property
    def label(self) -> str:
        """The label in figures."""
        return f"{self.protocol} {self.source}"


def _unary(protocol: UnaryEncoding, users: int, size: int) -> float:
    """Hoeffding's inequality for terms that are 1/(p - q) apart."""
    return _local(1 / float(protocol.own_one.fraction - protocol.other_one.fraction), users, size)


def _bassily_smith(protocol: BassilySmith, users: int, size: int) -> float:
    """Hoeffding's inequality for signs times 1/(1 - blanket)."""
    return _local(2 / float(protocol.blanket.complement), users, size)


def _local(spread: float, users: int, size: int) -> float:
    """Hoeffding's inequality if each user's term is one of two numbers that are ``spread`` apart."""
    return spread * math.sqrt(users * math.log(2 * size / BETA) / 2)


def _cheu(protocol: CheuHistogram, users: int, size: int) -> float:
    """n/(n - lambda) sqrt(2 lambda ln(2 d / beta)), by Bernstein's inequality if lambda >= (8/9) ln(2 d / beta)."""
    coins = 2 * users * float(protocol.flip)
    level = math.log(2 * size / BETA)
    return users / (users - coins) * math.sqrt(2 * coins * level) if 9 * coins >= 8 * level else math.nan


def _count_min(protocol: CountMinHistogram, users: int, size: int) -> float:
    """sqrt(3 gamma n ln(4 tau d / beta)): Chernoff's bound for all cells, with beta / 2; the hashes use beta / 2."""
    mean, level = users * float(protocol.gamma), math.log(4 * protocol.rows * size / BETA)
    return math.sqrt(3 * mean * level) if 3 * level <= mean else math.nan


def _hadamard(protocol: HadamardBlanketHistogram, users: int, size: int) -> float:
    """max(3 L, sqrt(3 L m)) with L = ln(2 d / beta), for the m tuples that agree by chance; Chernoff's bound."""
    hit, level = 2.0 ** -int(protocol.hashes), math.log(2 * size / BETA)
    mean = users * (1 + float(protocol.blanket.mean)) * hit
    return max(3 * level, math.sqrt(3 * level * mean)) / (1 - hit)


def _theorem_12(protocol: BalcerCheuHistogram, users: int, size: int) -> float:  # noqa: ARG001
    """n q + 2 sqrt(n q ln(2 n / beta)): Theorem 12 (iii), with the q of the protocol in place of the theorem's."""
    mean = users * float(protocol.absence)
    return mean + 2 * math.sqrt(mean * math.log(2 * users / BETA))


def _stability(protocol: StabilityHistogram, users: int, size: int) -> float:  # noqa: ARG001
    """threshold + (2/epsilon) ln(n / beta): larger counts are released, and at most n categories are held."""
    return float(protocol.threshold) + 2 / EPSILON * math.log(users / BETA)


def _laplace(protocol: DiscreteLaplaceHistogram, users: int, size: int) -> float:  # noqa: ARG001
    """(2/epsilon) ln(2 d / beta)."""
    return 2 / EPSILON * math.log(2 * size / BETA)


def _local_rate(users: int, size: int) -> float:
    return math.sqrt(users * math.log(size)) / EPSILON


def _central_rate(users: int, size: int) -> float:  # noqa: ARG001
    return min(math.log(size), -math.log(DELTA)) / EPSILON


ROWS: dict[str, Row] = {
    row.protocol: row
    for row in (
        Row("bassily-smith", "local", "[3]", _bassily_smith, _local_rate, ("tight",)),
        Row("unary", "local", "(best local)", _unary, _local_rate, ("tight",), least_rounds=10),
        Row(
            "cheu",
            "shuffled",
            "[8]",
            _cheu,
            lambda users, size: math.sqrt(-math.log(size) * math.log(DELTA)) / EPSILON,  # noqa: ARG005
            least_rounds=10,
        ),
        Row(
            "count-min",
            "shuffled",
            "[13]",
            _count_min,
            lambda users, size: (  # noqa: ARG005
                math.sqrt(math.log(size) ** 3 * math.log(math.log(size) / DELTA)) / EPSILON
            ),
            slow=True,
            least_rounds=10,
            message_rounds=(0, 10),
            allowance=0.05,
        ),
        Row(
            "hadamard-blanket",
            "shuffled",
            "[13]",
            _hadamard,
            lambda users, size: (  # noqa: ARG005
                math.log(size) + math.sqrt(-math.log(size) * math.log(EPSILON * DELTA)) / EPSILON
            ),
            slow=True,
            least_rounds=10,
        ),
        Row(
            "balcer-cheu",
            "shuffled",
            "Theorem 12",
            _theorem_12,
            lambda users, size: -math.log(DELTA) / EPSILON**2,  # noqa: ARG005
        ),
        Row("stability", "central", "[7]", _stability, _central_rate),
        Row("discrete-laplace", "central", "[9]", _laplace, _central_rate, ("tight",)),
    )
}
"""By the name of the protocol, in the order of the table."""


@cache
def _named(size: int) -> Categories:
    return Categories.numbered(size)


def calibrated(protocol: str, users: int, size: int, calibration: str) -> HistogramProtocol | None:
    """The protocol for the target of the study, or None if the calibration has no parameters for it.

    A count-min sketch with the paper's constants has 2 min(n, d) buckets: the paper's 2 n stands for twice the number
    of held categories, which is at most d, too. A tight one has d buckets, but at least 1,000, and at most 4 n.
    """
    more: dict[str, Any] = {}
    if protocol == "count-min":
        more["buckets"] = 2 * min(users, size) if calibration == "paper" else min(4 * users, max(size, _LEAST_BUCKETS))
    try:
        kind = find("histogram", protocol)
        assert issubclass(kind, HistogramProtocol)  # noqa: S101 - what the registry has under histogram
        return kind.calibrate(
            users=users,
            epsilon=EPSILON,
            delta=DELTA,
            domain_size=size,
            categories=_named(size),
            calibration=calibration,
            **kind.independent_options,  # as in the literature that the table compares
            **more,
        )
    except (ConditionError, InfeasibleError):
        return None


def with_new_hashes(protocol: HistogramProtocol, source: RandomSource) -> HistogramProtocol:
    """The protocol with public hash functions drawn anew, if it has any."""
    if not isinstance(protocol, CountMinHistogram):
        return protocol
    drawn = AffineHashes.for_domain(protocol.domain_size, protocol.buckets).draw(protocol.rows, source)
    pairs = zip(*(part.tolist() for part in drawn), strict=True)
    return replace(protocol, hashes=tuple((int(u), int(v)) for u, v in pairs))


def estimator_of(protocol: HistogramProtocol) -> str:
    """The estimator of the row: that of the paper for the sketch with the paper's noise, else the default."""
    paper_sketch = isinstance(protocol, CountMinHistogram) and protocol.target.calibration == "paper"
    return "minimum" if paper_sketch else protocol.estimators[0]


def round_errors(protocol: HistogramProtocol, counts: NDArray[np.int64], source: RandomSource) -> NDArray[np.float64]:
    """The error of every category in one round whose tally is drawn; public hash functions are drawn anew."""
    return drawn_round(protocol, counts, source)[1]


def drawn_round(
    protocol: HistogramProtocol, counts: NDArray[np.int64], source: RandomSource
) -> tuple[Tally, NDArray[np.float64]]:
    """The tally of one round, drawn from its distribution, and the absolute error of every category."""
    protocol = with_new_hashes(protocol, source)
    tally = protocol.sample_tally(counts, source=source)
    errors: NDArray[np.float64] = np.abs(protocol.estimate(tally, estimator=estimator_of(protocol)).counts - counts)
    return tally, errors


def likelihood_ratio(protocol: HistogramProtocol | None) -> Fraction | None:
    """The largest ratio of probabilities of one outcome under two values of a user, for protocols of pure privacy."""
    match protocol:
        case UnaryEncoding():
            own, other = protocol.own_one.fraction, protocol.other_one.fraction
            return own * (1 - other) / (other * (1 - own))
        case BassilySmith():
            blanket = protocol.blanket.fraction
            return (1 - blanket / 2) / (blanket / 2)
        case DiscreteLaplaceHistogram():
            return 1 / protocol.ratio.fraction**2  # two counts change by 1
    return None


def empty_errors(protocol: HistogramProtocol) -> EmptyErrors | None:
    """The errors of a category without users; None if it is estimated as exactly 0, or categories are dependent."""
    if protocol.exact_zeros:
        return None
    match protocol.category_noise:
        case Responses(own, other):
            return EmptyErrors.of_binomial(Binomial(protocol.users, other), float(own.fraction - other.fraction))
        case LaplaceNoise(ratio):
            return EmptyErrors.of_discrete_laplace(ratio)
    return None


@cache
def held_counts(users: int) -> tuple[int, ...]:
    """The counts of the ten categories that are held: six large ones, and four that are hard for thresholds.

    For each protocol with a threshold and each calibration, the largest count that it hides in one round of five; its
    error is then that count. All other users share six categories in the proportions 6 : 5 : 4 : 3 : 2 : 1.
    """
    hard = [
        _hardest(protocol, calibration, users)
        for protocol in ("balcer-cheu", "stability")
        for calibration in ("paper", "tight")
    ]
    left = users - sum(hard)
    weights = list(range(NUMBER_OF_LARGE, 0, -1))
    large = [left * weight // sum(weights) for weight in weights]
    large[0] += left - sum(large)
    return (*large, *hard)


def _hardest(name: str, calibration: str, users: int) -> int:
    protocol = calibrated(name, users, 10, calibration)
    if isinstance(protocol, BalcerCheuHistogram):
        noise = Binomial(users, protocol.absence)
        count = math.ceil(noise.mean)
        while hidden_share(noise, count + 1) >= _HIDDEN:
            count += 1
        return count
    assert isinstance(protocol, StabilityHistogram)  # noqa: S101
    laplace, count = DiscreteLaplace(protocol.ratio), protocol.threshold
    while laplace.lower_tail(protocol.threshold - 1 - (count + 1)) >= _HIDDEN:
        count += 1
    return count
