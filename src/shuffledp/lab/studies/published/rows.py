"""Published numbers with their sources, and the functions that compute the same quantity here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from shuffledp.domain import Interval
from shuffledp.privacy.amplification import METHODS, RandomizedResponseCurve, Slots, least_slots
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.sample_and_threshold import least_threshold
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.sum.privacy_blanket import PrivacyBlanketSum
from shuffledp.randomness import Dyadic
from shuffledp.search import bisect

NORMAL_95 = 1.959964
ADULTS = 32_561
_LUO_USERS = 10**5
_RM2_LEVELS, _RM2_EPSILON, _RM2_DELTA = 10, 4.0, 1e-14
_RM2_USERS, _RM2_CELLS = 10**6, 1000

CLONES = "Feldman and others (2021); README of apple/ml-shuffling-amplification at 3fde493"
VARIATION_RATIO = "Wang and others (2024); wangsw/PrivacyAmplification at 34ca048"
FFT_BLANKET = "Su and others (2025), arXiv 2504.07414; their program, of which no version was found"
LUO_2 = "Luo and others (2022), Table 2"
LUO_3 = "Luo and others (2022), Table 3"
LUO_5 = "Luo and others (2022), Table 5"
NOTEBOOK = "Balle and others (2020); main.ipynb of adriagascon/shuffledpsummation at 215ada0"
NEBULA = "Shamsabadi and others (2024), Nebula"
RM2 = "Luo and others (2025), RM2"


@dataclass(frozen=True)
class Published:
    """One printed number, and the same quantity computed here."""

    source: str
    quantity: str
    setting: str
    printed: float
    ours: Callable[[], float]
    expected: float
    """What the library is documented to compute, to ``tolerance``."""
    tolerance: float = 1e-3
    """Relative."""
    lowest: float = 0.0
    """A printed lower bound on the quantity, if there is one."""
    assumed: str = ""
    """Parameters that the source does not state, and what is assumed for them; empty if all are stated."""
    whole_numbers: bool = False


@cache
def clones_epsilon() -> float:
    """Epsilon after shuffling, for any randomizer of local epsilon 4."""
    return METHODS["clones"](10**5, 4.0, 1e-6)


@cache
def generic_epsilon() -> float:
    """The bound of stronger clones for local epsilon 1."""
    return METHODS["stronger-clones"](10**4, 1.0, 1e-6)


@cache
def response_epsilon(users: int) -> float:
    """Epsilon of randomized response over 100 values, local epsilon 1."""
    return least_epsilon(RandomizedResponseCurve(users, Dyadic.at_least(100 / (math.e + 99)), 100), 1e-6)


@cache
def hashed(users: int, exponent: int, epsilon: float) -> tuple[int, float]:
    """Buckets and blanket messages per user of values hashed to n / ln(n)^c buckets, at delta n^-2."""
    buckets = math.floor(users / math.log(users) ** exponent)
    return buckets, least_slots(users, buckets, epsilon, users**-2.0).mean


def hashed_messages(epsilon: float) -> float:
    """Messages per user of Table 2 with c = 1."""
    return 1 + hashed(_LUO_USERS, 1, epsilon)[1]


def hashed_error(users: int, exponent: int) -> float:
    """The error that 95 % stay below, of one value that nobody holds, at epsilon 1."""
    buckets, blanket = hashed(users, exponent, 1.0)
    hit = 1 / buckets
    return NORMAL_95 * math.sqrt((1 + blanket) * users * hit / (1 - hit))


@cache
def messages_at_equal_error() -> float:
    """Correlated noise for as many categories as users, at the split whose messages with the paper's constants match.

    The error depends on the split alone, so equal splits have equal errors.
    """

    def messages(split: float, calibration: str) -> float:
        return CorrelatedNoiseHistogram.calibrate(
            users=_LUO_USERS,
            domain_size=_LUO_USERS,
            epsilon=1.0,
            delta=_LUO_USERS**-2.0,
            split=split,
            calibration=calibration,
        ).cost.messages_per_user

    return messages(bisect(lambda split: messages(split, "paper") >= 16_789, 0.5, 0.99, absolute=1e-4), "tight")


@cache
def one_message_sum() -> PrivacyBlanketSum:
    """The mean of as many numbers in [0, 1] as Adult has rows, one message each."""
    return PrivacyBlanketSum.calibrate(users=ADULTS, epsilon=1.0, delta=ADULTS**-2.0, domain=Interval(0, 1))


def one_message_error() -> float:
    """Expected absolute error of the mean for the worst data."""
    return math.sqrt(2 / math.pi) * one_message_sum().expected_error().rmse / ADULTS


def ages() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Quantiles of a clipped normal distribution with about the mean and deviation of the ages in Adult, over 90."""
    from scipy import stats

    quantiles = stats.norm.ppf((np.arange(ADULTS) + 0.5) / ADULTS)
    result: np.ndarray[tuple[int], np.dtype[np.float64]] = np.clip(38.6 + 13.6 * quantiles, 17, 90) / 90
    return result


@cache
def joint_noise_of_levels() -> float:
    """Blanket messages per cell of a tree of ten binary levels, by composition of all levels."""

    def holds(mean: float) -> bool:
        blanket = Slots.at_least(mean * _RM2_CELLS / _RM2_USERS).curve(_RM2_USERS, _RM2_CELLS)
        return compose(blanket, _RM2_LEVELS).delta_at(_RM2_EPSILON) <= _RM2_DELTA

    return bisect(holds, 50.0, 100.0, absolute=0.1)


@cache
def sampled_threshold() -> float:
    """The least threshold that hides a value sampled with probability 0.105."""
    return float(least_threshold(Dyadic.at_least(0.105), 1.0, 1e-8))


ROWS = (
    Published(
        CLONES,
        "epsilon after shuffling",
        "any randomizer, local epsilon 4, n 1e5, delta 1e-6",
        0.172790550755978,
        clones_epsilon,
        0.16977,
        1e-4,
        lowest=0.1675385583317841,
    ),
    Published(
        VARIATION_RATIO,
        "epsilon after shuffling",
        "generic, local epsilon 1, n 1e4, delta 1e-6",
        0.043207,
        generic_epsilon,
        0.043206,
        1e-4,
    ),
    Published(
        VARIATION_RATIO,
        "epsilon after shuffling",
        "100-RR, local epsilon 1, n 1e4, delta 1e-6",
        0.0071840,
        partial(response_epsilon, 10**4),
        0.0071833,
        2e-4,
    ),
    *(
        Published(
            FFT_BLANKET,
            "epsilon after shuffling",
            f"100-RR, local epsilon 1, n {users:.0e}, delta 1e-6",
            printed,
            partial(response_epsilon, users),
            ours,
        )
        for users, printed, ours in ((10**3, 0.02685, 0.02547), (10**4, 0.00856, 0.0071833))
    ),
    *(
        Published(
            LUO_2,
            "messages per user",
            f"c = 1, n 1e5, epsilon {epsilon:g}, delta n^-2",
            printed,
            partial(hashed_messages, epsilon),
            ours,
        )
        for epsilon, printed, ours in (
            (0.25, 114.82, 88.73),
            (0.5, 30.65, 24.80),
            (1.0, 9.51, 8.13),
            (3.0, 3.29, 3.16),
        )
    ),
    *(
        Published(
            LUO_3,
            "error that 95 % stay below (users)",
            f"c = 1, n {users:.0e}, epsilon 1, delta n^-2",
            printed,
            partial(hashed_error, users, 1),
            ours,
            2e-3,
        )
        for users, printed, ours in (
            (10**4, 18.40, 16.56),
            (10**5, 22.47, 18.97),
            (10**6, 27.32, 21.14),
            (10**7, 29.64, 23.09),
        )
    ),
    Published(
        LUO_2 + " (the authors' program: 79.81)",
        "error that 95 % stay below (users)",
        "c = 3, n 1e5, epsilon 1, delta n^-2",
        163.94,
        partial(hashed_error, _LUO_USERS, 3),
        79.54,
    ),
    Published(
        LUO_5,
        "messages per user of correlated noise",
        "at equal error",
        16_789,
        messages_at_equal_error,
        1078.8,
        0.01,
        assumed="unknown: categories and the share of epsilon; assumed: n = d = 1e5, epsilon 1, delta n^-2, and the "
        "share with which the paper's constants give the printed number",
    ),
    Published(
        NOTEBOOK,
        "mean absolute error of the mean",
        "one message, Adult (32,561 ages), epsilon 1, delta n^-2",
        5.86e-4,
        one_message_error,
        4.4e-4,
        0.01,
        assumed="unknown: the draws of its rounds; computed for the worst data, which bounds the ages of Adult",
    ),
    Published(
        NEBULA,
        "threshold K",
        "sampling probability 0.105, epsilon 1, delta 1e-8",
        20,
        sampled_threshold,
        11,
        whole_numbers=True,
        assumed="not examined: how K was derived; compared with sampling and thresholding alone, without dummies",
    ),
    Published(
        RM2,
        "blanket messages per cell",
        "1,024 values, epsilon 4",
        817,
        joint_noise_of_levels,
        74.1,
        0.005,
        assumed="unknown: the users and the cells of a level; computed for all ten binary levels together with a "
        "million users and 1,000 cells, on which the noise per cell hardly depends",
    ),
)
