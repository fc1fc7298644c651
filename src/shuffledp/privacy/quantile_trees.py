"""Privacy accounting of trees over ordered bins, for all protocols of quantiles.

A user's value is counted once on every level. Replacing it changes at most two cells of each level, and the noise of
the levels is independent, so the release is the composition of one release per level. Where the two values share a
cell of a level, that level does not distinguish them: the composition of all levels is the worst case.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from shuffledp.checks import check_epsilon, check_number_of_users, check_open_unit, check_target
from shuffledp.errors import InfeasibleError
from shuffledp.privacy.amplification.blanket_search import excess_of, typical_mean
from shuffledp.privacy.amplification.clones import ClonesCurve
from shuffledp.privacy.amplification.uniform_blanket import Slots
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve, Flooding, least_flooding, search_flooding
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, decay_of, least_ratio
from shuffledp.privacy.divergence import DiscretePair, as_delta
from shuffledp.privacy.guarantee import PrivacyCurve
from shuffledp.privacy.mirrored_composition import CERTIFIED_DOWN_TO, IndependentComposition, MirroredComposition
from shuffledp.randomness import Dyadic
from shuffledp.search import find_bracket, narrow

_NARROW = 2e-5  # width of a bracket, in logarithms of the noise
_CLOSE_ENOUGH = 1e-4  # distance of delta from the target, in logarithms
_FURTHEST = 60.0  # distance from the guess, in logarithms of the noise
_MAX_PER_CELL = 1e13
_OUTCOMES_OF_LEVEL = 1 << 18  # per level; grouping clone counts into so few blocks needs less than 0.1 % more noise
_CUT = 1e-17
_RELATIVE_DIFFERENCE = 1e-6  # of the same delta computed on other machines
_FOURIER_DIFFERENCE = 1e-15  # absolute difference, likewise


@dataclass(frozen=True)
class BlanketTreeCurve:
    """The privacy of a value that is counted once per level, among the uniform messages of each level."""

    levels: tuple[tuple[ClonesCurve, int], ...]
    """The distinct curves of levels, and how many levels have each."""

    @cached_property
    def _composed(self) -> PrivacyCurve:
        (first, times), *more = self.levels
        if times == 1 and not more:
            return first
        return IndependentComposition(
            tuple((curve.pair_of_about(_OUTCOMES_OF_LEVEL, _CUT), times) for curve, times in self.levels)
        )

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; with several levels, at least the resolution of the composition."""
        return self._composed.delta_at(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """One pair per level; exchanging the two values exchanges the distributions of each."""
        pairs = [(curve.pair_of_about(_OUTCOMES_OF_LEVEL, cut),) * times for curve, times in self.levels]
        return (sum(pairs, ()),)


def blanket_tree_curve(blankets: Sequence[Slots], users: int, sizes: Sequence[int]) -> BlanketTreeCurve:
    """The privacy of a value counted on levels of these sizes, among the uniform messages that users add to each."""
    curves = Counter(blanket.curve(users, size) for blanket, size in zip(blankets, sizes, strict=True))
    return BlanketTreeCurve(tuple(curves.items()))


@dataclass(frozen=True)
class CorrelatedTreeCurve:
    """The privacy of a value that is counted once per level, with the same correlated noise on every cell.

    On each level one cell gains a message and another one loses it: the pair of one cell and its mirror image, as often
    as there are levels.
    """

    level: CorrelatedNoiseCurve
    levels: int

    @cached_property
    def _composed(self) -> PrivacyCurve:
        return self.level if self.levels == 1 else self._with_cut(_CUT)

    def _with_cut(self, cut: float) -> MirroredComposition:
        ((pair, _),) = self.level.directions(cut)
        return MirroredComposition(pair, self.levels)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta; with several levels, at least the resolution of the composition."""
        return self._composed.delta_at(epsilon)

    def delta_with_cut(self, epsilon: float, cut: float) -> float:
        """``delta_at`` without outcomes of a total mass of about ``cut``; that mass is added to delta in full."""
        return self._with_cut(cut).delta_at(epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Two pairs per level; the other direction of the replacement is their mirror image."""
        return tuple(pairs * self.levels for pairs in self.level.directions(cut))


def correlated_tree_curve(
    ratio: Dyadic, flood_shape: Fraction, flood_ratio: Dyadic, levels: int
) -> CorrelatedTreeCurve:
    """The privacy of a value counted on ``levels`` levels, with this correlated noise on every cell."""
    return CorrelatedTreeCurve(CorrelatedNoiseCurve(ratio, flood_shape, flood_ratio, "histogram"), levels)


@lru_cache(maxsize=512)
def least_tree_flooding(levels: int, epsilon: float, delta: float, split: float) -> Flooding:
    """The least flooding of every cell that meets the target; split * epsilon is spent on the remaining noise.

    That part is divided equally among the levels; the flooding is calibrated for all noise together.
    """
    if levels == 1:
        return least_flooding(epsilon, delta, split, "histogram")
    check_target(epsilon, delta)
    check_open_unit("split", split)
    _check_composable(levels, delta)
    ratio = least_ratio(split * epsilon / levels, coordinates=2)

    def curve_of(shape: Fraction, flood_ratio: Dyadic) -> CorrelatedTreeCurve:
        return correlated_tree_curve(ratio, shape, flood_ratio, levels)

    start = math.log(-math.expm1(-epsilon * (1 - split) * 0.4))
    return ratio, *search_flooding(curve_of, epsilon, delta - _margin(delta), start)


def _margin(delta: float) -> float:
    """The part of delta that is reserved for rounding differences of Fourier transforms on other machines."""
    return max(_RELATIVE_DIFFERENCE * delta, _FOURIER_DIFFERENCE)


def _check_composable(levels: int, delta: float) -> None:
    if levels > 1 and delta < CERTIFIED_DOWN_TO:
        raise InfeasibleError(
            f"The delta of several levels is computed down to {CERTIFIED_DOWN_TO:g}, not to {delta:g}; use a larger "
            "delta or a single level.",
            delta=delta,
        )


@dataclass(frozen=True)
class LaplaceTreeCurve:
    """The privacy of a value that is counted once per level, with discrete Laplace noise on every cell.

    Two cells per level are changed. The privacy loss of each is ln(1/ratio) or its negative; how many of all losses are
    positive is binomial.
    """

    ratio: Dyadic
    levels: int

    @cached_property
    def _level(self) -> DiscreteLaplaceCurve:
        return DiscreteLaplaceCurve(self.ratio, coordinates=2)

    @property
    def pure_epsilon(self) -> float:
        """The epsilon that holds with delta = 0, rounded up."""
        return self.levels * self._level.pure_epsilon * (1 + 1e-15)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta, exact except for rounding; 0 from the pure epsilon on."""
        check_epsilon(epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        cells, decay = 2 * self.levels, decay_of(self.ratio)
        terms = []
        for positive in range(self.levels, cells + 1):
            gain = -math.expm1(epsilon - (2 * positive - cells) * decay)
            if gain > 0:
                mass = math.log(math.comb(cells, positive)) - (cells - positive) * decay
                terms.append(gain * math.exp(mass - cells * math.log1p(float(self.ratio))))
        return as_delta(math.fsum(terms) * (1 + 1e-12) + 1e-15 * self.pure_epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Two pairs per level; the other direction of the replacement is their mirror image."""
        return tuple(pairs * self.levels for pairs in self._level.directions(cut))


def laplace_tree_curve(ratio: Dyadic, levels: int) -> PrivacyCurve:
    """The privacy of a value counted on ``levels`` levels, with discrete Laplace noise on every cell."""
    return DiscreteLaplaceCurve(ratio, coordinates=2) if levels == 1 else LaplaceTreeCurve(ratio, levels)


def least_tree_blankets(users: int, sizes: Sequence[int], epsilon: float, delta: float) -> tuple[Slots, ...]:
    """The fewest uniform messages, equally many per cell of every level, that meet the target with these users."""
    check_target(epsilon, delta)
    check_number_of_users(users)
    _check_composable(len(sizes), delta)
    typical = len(sizes) * typical_mean(epsilon, delta)
    if typical > _MAX_PER_CELL:
        raise InfeasibleError(
            f"epsilon = {epsilon:g} and delta = {delta:g} would need about {typical:.2g} blanket messages per cell; "
            "relax the target.",
            epsilon=epsilon,
            delta=delta,
        )

    def blankets(log_mean: float) -> tuple[Slots, ...]:
        return tuple(Slots.at_least(math.exp(log_mean) * size / users) for size in sizes)

    def delta_of(log_mean: float) -> float:
        return blanket_tree_curve(blankets(log_mean), users, sizes).delta_at(epsilon)

    margin = 0.0 if len(sizes) == 1 else _margin(delta)
    return blankets(_least(delta_of, math.log(typical), epsilon, delta - margin))


def least_tree_ratio(levels: int, epsilon: float, delta: float) -> Dyadic:
    """The least discrete Laplace noise on every cell of ``levels`` levels that meets the target."""
    check_target(epsilon, delta)
    pure = least_ratio(epsilon / levels, coordinates=2)

    def ratio(log_scale: float) -> Dyadic:
        return Dyadic.at_least(max(math.exp(-math.exp(-log_scale)), 2.0**-64))

    def delta_of(log_scale: float) -> float:
        return laplace_tree_curve(ratio(log_scale), levels).delta_at(epsilon)

    largest = math.log(2 * levels / epsilon)  # the noise for delta = 0
    if levels == 1 or delta_of(largest - 1e-3) > delta:
        return pure
    result = ratio(_least(delta_of, largest - 0.5, epsilon, delta))
    return min(result, pure, key=lambda ratio: ratio.fraction)


def _least(delta_of: Callable[[float], float], guess: float, epsilon: float, delta: float) -> float:
    """The logarithm of the least noise whose delta is at most the target's."""
    excess = excess_of(delta_of, delta)
    bracket = find_bracket(excess, guess, guess - _FURTHEST, guess + _FURTHEST, step=0.1, growth=3)
    if bracket is None:
        raise InfeasibleError(
            f"No noise makes a tree private with epsilon = {epsilon:g} and delta = {delta:g} in float precision; "
            "relax the target.",
            epsilon=epsilon,
            delta=delta,
        )
    return narrow(
        excess,
        bracket,
        next_point=lambda ends: ends.secant_from_high(0.01, 1e-3),
        enough=lambda ends: ends.width <= _NARROW or ends.weight_high > -_CLOSE_ENOUGH,
    )
