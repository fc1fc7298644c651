"""Uniform blanket messages that every user adds: their number, and the cost and distribution of reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.randomness import Dyadic, RandomSource, bernoulli

BLANKET_THEOREM = "exact sum over the number of blanket messages that hit either value (Luo, Wang and Yi 2022)"

_MAX_LISTED = 200_000


class BlanketHistogram(HistogramProtocol):
    """A histogram whose reports consist of the user's own message and uniform blanket messages."""

    blanket: Slots

    @property
    def cost(self) -> Cost:
        """The user's own message and the blanket messages."""
        max_messages = 1 + self.blanket.whole + (self.blanket.rest.numerator > 0)
        return Cost(1 + self.blanket.mean, max_messages, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """The user's own message and the messages that are always added."""
        return 1 + self.blanket.whole


def blanket_offsets(users: int, blanket: Slots, source: RandomSource) -> NDArray[np.int64]:
    """Where each report starts among all messages; a report has 1 + ``whole`` messages, or one more with ``rest``."""
    lengths = 1 + blanket.whole + bernoulli(blanket.rest, users, source).astype(np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def blanket_report_pmf(own: Mapping[int, Fraction], codes: int, blanket: Slots) -> Pmf:
    """The pmf of a report of one message with the distribution ``own`` and blanket messages uniform over all codes."""
    longest = blanket.whole + (blanket.rest.numerator > 0)
    if len(own) * math.comb(codes + longest - 1, longest) > _MAX_LISTED:
        raise ParameterError(f"Reports of {longest + 1} messages out of {codes:,} are too many to list.")
    pmf: dict[tuple[int, ...], Fraction] = {}
    rest = blanket.rest.fraction
    for added, chance in ((blanket.whole, 1 - rest), (blanket.whole + 1, rest)):
        if not chance:
            continue
        for drawn in combinations_with_replacement(range(codes), added):
            copies = [0] * codes
            for code in drawn:
                copies[code] += 1
            orders = math.factorial(added) // math.prod(math.factorial(count) for count in copies)
            for code, mass in own.items():
                report = tuple(count + (other == code) for other, count in enumerate(copies))
                pmf[report] = pmf.get(report, Fraction(0)) + chance * mass * Fraction(orders, codes**added)
    return pmf


def slots_of(mean: float) -> Slots:
    """The number of blanket messages per user, with an expected value of at least ``mean``."""
    whole = math.floor(mean)
    return Slots(whole, Dyadic.at_least(mean - whole))


def paper_blanket_mean(epsilon: float, delta: float) -> float:
    """Uniform messages that each cell needs by Luo, Wang and Yi (2022): 32 ln(2/delta)/epsilon^2, epsilon <= 3."""
    if epsilon > 3:
        raise ConditionError(
            f"The constants of Luo, Wang and Yi 2022 need epsilon <= 3, not {epsilon:g}; "
            "the tight calibration has no such limit.",
            epsilon=epsilon,
        )
    return 32 * math.log(2 / delta) / epsilon**2
