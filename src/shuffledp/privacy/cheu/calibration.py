"""Calibration of flipped bits: the least flip probability that meets a target, and that of the paper's lemma."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from shuffledp.checks import check_target
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.privacy.calibration import crossing, excess_over, least_rate
from shuffledp.privacy.cheu.cells import LARGEST_FLIP
from shuffledp.privacy.cheu.histograms import FlippedHistogram
from shuffledp.privacy.cheu.sums import FlippedSum
from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.randomness import Dyadic

_ROUNDS = 8
_CLOSE = 2e-3  # relative distance of delta from the target; that of the rate from the least one is much smaller


class _CellCurve(PrivacyCurve, Protocol):
    """A privacy curve that is the maximum over cells, which are ranges of the numbers of ones that the others hold."""

    def worst(self, epsilon: float) -> tuple[float, tuple[int, ...]]: ...

    def delta_in(self, cell: tuple[int, ...], epsilon: float) -> float: ...


def least_count_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which a count is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedSum(users, flip, 1), users, epsilon, delta, bits=1)


def least_histogram_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which a histogram of labelled bits is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedHistogram(users, flip), users, epsilon, delta, bits=1)


def least_sum_flip(users: int, bits: int, epsilon: float, delta: float) -> Dyadic:
    """The least flip probability at which the sum of ``bits`` unlabelled bits per user is (epsilon, delta)-private."""
    return _least_flip(lambda flip: FlippedSum(users, flip, bits), users, epsilon, delta, bits=bits)


def _least_flip(
    curve_of: Callable[[Dyadic], _CellCurve], users: int, epsilon: float, delta: float, *, bits: int
) -> Dyadic:
    check_target(epsilon, delta)
    variance = 2 * math.log(1.25 / delta) / epsilon**2 + math.log(1 / delta)  # approximately that of Gaussian noise
    flip = _by_worst_cells(curve_of, epsilon, delta, guess=variance * bits / users)
    if flip is None:
        raise InfeasibleError(
            f"{users:,} users are too few for epsilon = {epsilon:g} and delta = {delta:g}: bits would have to be "
            f"flipped with probability above {LARGEST_FLIP}. Ask more users or allow a larger epsilon.",
            users=users,
            epsilon=epsilon,
            delta=delta,
        )
    return flip


def _by_worst_cells(
    curve_of: Callable[[Dyadic], _CellCurve], epsilon: float, delta: float, *, guess: float
) -> Dyadic | None:
    """Search on the worst cell alone, which is cheap, and check the full curve at each solution.

    If another cell is worse at the solution, or the cell's delta is below that of the curve, the search is repeated
    with the new cell and a corrected target.
    """
    top = math.log(LARGEST_FLIP)
    x, step, ratio = min(math.log(guess), top), 0.2, 1.0
    _, cell = curve_of(Dyadic.of(0.5)).worst(epsilon)  # at a flip probability of 1/2 all cells are equal
    best: Dyadic | None = None
    for _ in range(_ROUNDS):
        target = delta * (1 - _CLOSE / 4) / ratio

        def excess(log_rate: float, cell: tuple[int, ...] = cell, target: float = target) -> float:
            return excess_over(curve_of(Dyadic.at_least(math.exp(log_rate))).delta_in(cell, epsilon), target)

        solution = crossing(excess, x, top, step=step)
        x, step = top if solution is None else solution, 0.01
        flip = Dyadic.at_least(math.exp(x))
        curve = curve_of(flip)
        achieved, cell = curve.worst(epsilon)
        if achieved <= delta:
            best = flip if best is None or float(flip) < float(best) else best
            if achieved >= delta * (1 - _CLOSE):
                return best
        elif solution is None:
            return best
        ratio = max(achieved, 1e-300) / max(curve.delta_in(cell, epsilon), 1e-300)
    if best is not None:
        return best
    return least_rate(curve_of, epsilon, delta, guess=math.exp(x), highest=LARGEST_FLIP)


def paper_count_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """Half the lambda/n of Lemma 4.8 of Cheu, Smith, Ullman, Zeber and Zhilyaev (2019)."""
    check_target(epsilon, delta)
    return Dyadic.at_least(_lemma_4_8(users, epsilon, delta, "Lemma 4.8") / (2 * users))


def paper_histogram_flip(users: int, epsilon: float, delta: float) -> Dyadic:
    """As ``paper_count_flip`` at (epsilon/2, delta/2), since two bits of a user change (their section 6.2.2)."""
    check_target(epsilon, delta)
    return Dyadic.at_least(_lemma_4_8(users, epsilon / 2, delta / 2, "Lemma 4.8 for each bit") / (2 * users))


def paper_sum_flip(users: int, bits: int, epsilon: float, delta: float) -> Dyadic:
    """As ``paper_count_flip`` for each of ``bits`` bits, combined by advanced composition (their section 5)."""
    check_target(epsilon, delta)
    per_bit = epsilon / math.sqrt(8 * bits * math.log(2 / delta)), delta / (2 * bits)
    return Dyadic.at_least(_lemma_4_8(users, *per_bit, "Lemma 4.8 for each bit") / (2 * users))


def _lemma_4_8(users: int, epsilon: float, delta: float, theorem: str) -> float:
    """lambda, the expected number of users who send a fair coin."""
    logarithm = math.log(4 / delta)
    if users < 14 * logarithm:
        raise ConditionError(
            f"{theorem} needs n >= 14 ln(4/delta) = {math.ceil(14 * logarithm):,} users for delta = {delta:g}; "
            f"given {users:,}. The tight calibration has no such limit.",
            users=users,
            needed=math.ceil(14 * logarithm),
        )
    least = math.sqrt(3456) / users * logarithm
    if not least < epsilon < 1:
        raise ConditionError(
            f"{theorem} needs {least:.4g} = sqrt(3456) ln(4/delta) / n < epsilon < 1; given {epsilon:g}. "
            "The tight calibration has no such limit.",
            epsilon=epsilon,
            least=least,
        )
    if epsilon >= math.sqrt(192 * logarithm / users):
        return 64 * logarithm / epsilon**2
    return users - epsilon * math.sqrt(users**3 / (432 * logarithm))
