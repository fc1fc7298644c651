"""Privacy accounting of ``correlated-noise``: counts hidden by noise that partly cancels.

Messages are "+1" and "-1". All users together add G1 messages "+1" and G2 messages "-1", geometric with ratio a, and F
pairs of both, negative binomial (Ghazi, Kumar, Manurangsi and Pagh 2020, Algorithms 3 and 4; Ghazi et al. 2021, Lemma
9). The analyzer sees U+ = s + G1 + F and U- = G2 + F. The pairs cancel in U+ - U-, whose noise G1 - G2 is discrete
Laplace.

With W(m) = sum over j >= 0 of a^(2j) Pr[F = m - j], geometric noise makes
Pr[U+ - s = u, U- = v] = (1 - a)^2 a^|u - v| W(min(u, v)). So outcomes with the same likelihood ratio can be added up,
and every divergence is a sum over one index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shuffledp.checks import check_open_unit, check_target
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.negative_binomial import NegativeBinomial
from shuffledp.randomness import Dyadic
from shuffledp.search import Bracket, narrow

Floats = NDArray[np.float64]
View = Literal["count", "signed", "histogram"]
Flooding = tuple[Dyadic, Fraction, Dyadic]
"""The ratio of the noise that remains in the estimate, and the shape and ratio of the flooding."""

VIEWS = ("count", "signed", "histogram")
_USUAL_CUT = 1e-30
_TINY_CUT = 1e-290
_TABLE_CUT = 1e-17
_MAX_TABLE_WORK = 2e10
_MAX_OUTCOMES = 1 << 20  # more than calibration needs; takes a quarter of a gigabyte and a few seconds to verify
_SHAPE_STEPS = 1000  # shapes are multiples of 1/1000
_MAX_SHAPE = 1e7


@dataclass(frozen=True)
class NegativeBinomialPairs:
    """Flooding by a negative binomial number of pairs, of all honest users together."""

    flood_shape: Fraction
    """Shape of the number of pairs that cancel."""
    flood_ratio: Dyadic

    @property
    def mean_pairs(self) -> float:
        """Expected number of pairs."""
        return float(self.flood_shape * self.flood_ratio.fraction / self.flood_ratio.complement.fraction)


@dataclass(frozen=True)
class CorrelatedNoiseCurve:
    """The privacy curve of the multiset of "+1" and "-1", for three encodings of the value.

    ``count``: a user with x = 1 sends one more "+1". ``signed``: every user sends one real message, "+1" if x = 1 and
    "-1" if x = 0, so that the number of messages does not depend on x. ``histogram``: every user sends one "+1"
    labelled with the category; the noise of categories is independent, and replacing a user changes two of them in
    opposite directions.

    ``share`` is the fraction of the planned noise that honest users add: NB(share, ratio) of either message and
    NB(share * flood_shape, flood_ratio) pairs.
    """

    ratio: Dyadic
    flood_shape: Fraction
    flood_ratio: Dyadic
    view: View
    share: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ParameterError(f"The view must be one of {', '.join(VIEWS)}, not {self.view!r}.", view=self.view)
        if not self.share > 0:
            raise ParameterError(f"The share of noise must be positive, not {self.share}.", share=self.share)
        _ = self.staying, self.flooding  # which check their parameters

    @cached_property
    def staying(self) -> NegativeBinomial:
        """The distribution of the number of extra "+1", and of extra "-1", outside of pairs."""
        return NegativeBinomial(self.share, self.ratio)

    @cached_property
    def flooding(self) -> NegativeBinomial:
        """The distribution of the number of cancelling pairs."""
        return NegativeBinomial(self.share * self.flood_shape, self.flood_ratio)

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta at which the messages are (epsilon, delta)-private."""
        delta = self.delta_with_cut(epsilon, _USUAL_CUT)
        return delta if delta > 1e6 * _USUAL_CUT else self.delta_with_cut(epsilon, _TINY_CUT)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        """Per direction of the replacement, the independent pairs of distributions of the messages."""
        pair = self._pair(cut)
        if self.view == "histogram":
            return ((pair, pair.reversed),)  # the other direction is its mirror image
        return ((pair,),) if self.view == "signed" else ((pair,), (pair.reversed,))

    def delta_with_cut(self, epsilon: float, cut: float) -> float:
        """``delta_at`` without outcomes of a total mass of about ``cut``; that mass is added to delta in full."""
        pair = self._pair(cut)
        if self.view == "histogram":
            return pair.delta_with_reversed_twin(epsilon)
        return pair.delta(epsilon) if self.view == "signed" else max(pair.delta(epsilon), pair.reversed.delta(epsilon))

    def _pair(self, cut: float) -> DiscretePair:
        """The distributions with and without the user's "+1", or with "+1" and with "-1" (``signed``)."""
        if self.share == 1:
            return _gathered_pair(self, cut)
        return _table_pair(self)


@lru_cache(maxsize=4)  # each may take 130 megabytes
def _gathered_pair(curve: CorrelatedNoiseCurve, cut: float) -> DiscretePair:
    """The pair for geometric noise and negative binomial flooding."""
    _, masses, left_out = curve.flooding.window(cut)
    return pair_of_geometric_noise(curve.ratio, masses, left_out, curve.view, cut)


def pair_of_geometric_noise(ratio: Dyadic, masses: Floats, left_out: float, view: View, cut: float) -> DiscretePair:
    """The pair for geometric noise; outcomes with equal min(u, v) on the same side of the diagonal are added up.

    ``masses`` are those of successive numbers of pairs, except for a mass of at most ``left_out``.

    ``count``: for u > v the ratio is 1/a throughout; for u <= v it is a W(u - 1) / W(u).
    ``signed``: for u > v it is W(v) / (a^2 W(v - 1)), for u < v the inverse, and 1 on the diagonal.
    """
    a = float(ratio)
    if a * a == 1:
        raise InfeasibleError(
            f"Noise of ratio {ratio} has too many outcomes that matter; use a smaller ratio.", ratio=ratio
        )
    more = math.ceil(math.log(cut / 1e3) / math.log(a * a)) + 1
    if len(masses) + more > _MAX_OUTCOMES:
        raise InfeasibleError(
            f"Noise of ratio {ratio} with {len(masses):,} likely numbers of pairs has more than {_MAX_OUTCOMES:,} "
            "outcomes that matter; use a larger epsilon or delta.",
            ratio=ratio,
        )
    below = _with_geometric_tail(masses, a * a, more)
    left_out += float(below[-1]) * a * a  # W past the end, which decreases by the factor a^2 from there
    before = np.concatenate(([0.0], below[:-1]))  # W(m - 1)
    rest = float(ratio.complement)
    if view == "signed":
        p_part, q_part = rest * below, rest * a * a * before
        tie = a * rest / (1 + a)
        pair = DiscretePair(
            np.concatenate((p_part, q_part, [tie])), np.concatenate((q_part, p_part, [tie])), 2 * left_out
        )
    else:
        p_part = np.concatenate((rest * a * before, [1 / (1 + a)]))
        pair = DiscretePair(p_part, np.concatenate((rest * below, [a / (1 + a)])), left_out)
    return pair.sorted_by_loss() if view == "histogram" else pair


def _with_geometric_tail(masses: Floats, shrinkage: float, more: int) -> Floats:
    """W(m) = sum over j of shrinkage^j masses[m - j], for ``more`` outcomes past the last; positive terms only."""
    sums = np.concatenate((masses, np.zeros(more)))
    distance, factor = 1, shrinkage
    while distance < len(sums) and factor > 0:
        sums[distance:] += factor * sums[:-distance].copy()
        distance, factor = 2 * distance, factor * factor
    return sums


@lru_cache(maxsize=4)
def _table_pair(curve: CorrelatedNoiseCurve) -> DiscretePair:
    """The pair for any share of the noise: all outcomes, indexed by |u - v| and min(u, v)."""
    _, staying, cut = curve.staying.window(_TABLE_CUT)
    _, flooding, flood_cut = curve.flooding.window(_TABLE_CUT)
    widest = len(staying)
    if widest**2 * (len(flooding) + widest) > _MAX_TABLE_WORK:
        if curve.share > 1:  # noise beyond one full share is independent, and can only improve privacy
            return _gathered_pair(
                CorrelatedNoiseCurve(curve.ratio, curve.flood_shape, curve.flood_ratio, curve.view), _USUAL_CUT
            )
        raise ParameterError(
            "The distribution of this share of the noise has too many outcomes to compute; use a larger epsilon.",
            share=curve.share,
        )
    padded = np.concatenate((staying, np.zeros(widest)))
    # products[t, g] = Pr[G = g] Pr[G = g + t]
    products = staying * np.lib.stride_tricks.sliding_window_view(padded, widest)[: widest + 1]
    ends = np.zeros(widest - 1)
    shifted = np.lib.stride_tricks.sliding_window_view(np.concatenate((ends, flooding, ends)), widest)[:, ::-1]
    table = np.zeros((widest + 2, len(shifted) + 2))  # by distance t and m + 1; column 0 is m = -1, with mass 0
    table[: widest + 1, 1:-1] = products @ shifted.T
    here, before = table[:, 1:], table[:, :-1]
    if curve.view == "signed":
        p_part, q_part = here[:-2].ravel(), before[2:].ravel()  # u - v = t + 1
        tie = before[1].ravel()
        p, q = np.concatenate((p_part, q_part, tie)), np.concatenate((q_part, p_part, tie))
    else:
        p = np.concatenate((here[:-1].ravel(), before[1:].ravel()))  # u > v, then u <= v
        q = np.concatenate((here[1:].ravel(), here[:-1].ravel()))
    pair = DiscretePair(p, q, 2 * cut + flood_cut)
    return pair.sorted_by_loss() if curve.view == "histogram" else pair


@lru_cache(maxsize=512)
def least_flooding(epsilon: float, delta: float, split: float, view: View) -> Flooding:
    """The flooding with the least mean that meets (epsilon, delta); split * epsilon is spent on the remaining noise.

    The target is checked at exactly these parameters. Delta decreases with the shape, because a larger shape adds
    independent noise; the ratio is searched until the mean is within 2 % of the least one.
    """
    check_split(epsilon, delta, split, view)
    ratio = staying_ratio(epsilon, split, view)

    def curve_of(shape: Fraction, flood_ratio: Dyadic) -> CorrelatedNoiseCurve:
        return CorrelatedNoiseCurve(ratio, shape, flood_ratio, view)

    # the best ratio is near e^(-(1 - split) epsilon / 2)
    start = math.log(-math.expm1(-epsilon * (1 - split) * (0.25 if view == "histogram" else 0.5)))
    return ratio, *search_flooding(curve_of, epsilon, delta, start)


class FloodedCurve(Protocol):
    """A privacy curve that improves with the flooding."""

    def delta_at(self, epsilon: float) -> float:
        """Upper bound on the least delta."""

    def delta_with_cut(self, epsilon: float, cut: float) -> float:
        """``delta_at`` without outcomes of a total mass of about ``cut``; that mass is added to delta in full."""


CurveOfFlooding = Callable[[Fraction, Dyadic], FloodedCurve]
"""From the shape and the ratio of the flooding to the privacy curve."""


def search_flooding(
    curve_of: CurveOfFlooding, epsilon: float, delta: float, log_complement: float
) -> tuple[Fraction, Dyadic]:
    """The shape and ratio with the least mean that meet the target; ratios are searched from 1 - e^log_complement."""
    guess = 0.0

    def mean(log_complement: float) -> float:
        nonlocal guess
        flood_ratio = _ratio_from_log_complement(log_complement)
        guess = _least_shape(epsilon, delta, curve_of, flood_ratio, guess=guess, precision=1e-3)
        return guess * float(flood_ratio) / float(flood_ratio.complement)

    flood_ratio = _ratio_from_log_complement(_minimum(mean, log_complement, -0.05))
    least_shape = _least_shape(epsilon, delta, curve_of, flood_ratio, guess=guess, precision=1e-5)
    for margin in (0.0, 1e-5, 1e-4, 1e-2):
        shape = Fraction(math.ceil(least_shape * (1 + margin) * _SHAPE_STEPS), _SHAPE_STEPS)
        if curve_of(shape, flood_ratio).delta_at(epsilon) <= delta:
            return shape, flood_ratio
    raise InfeasibleError(f"No flooding was found for epsilon = {epsilon:g} and delta = {delta:g}.", epsilon=epsilon)


def paper_flooding(epsilon: float, delta: float, split: float, view: View) -> Flooding:
    """Theorem 13 of Ghazi et al. (2020) in Lemma 9 of Ghazi et al. (2021), for an overall (epsilon, delta).

    A histogram is two categories with half of epsilon and of delta each.
    """
    check_split(epsilon, delta, split, view)
    parts = 2 if view == "histogram" else 1
    shape, flood_ratio = flooding_of_theorem_13((1 - split) * epsilon / parts, delta / parts)
    return staying_ratio(epsilon, split, view), shape, flood_ratio


def flooding_of_theorem_13(epsilon: float, delta: float, sensitivity: float = 1.0) -> tuple[Fraction, Dyadic]:
    """Theorem 13: NB(3 (1 + ln(1/delta)), e^(-0.2 epsilon / sensitivity)) noise is private; epsilon, delta < 1."""
    if not (0 < epsilon < 1 and 0 < delta < 1):
        raise ConditionError(
            f"Theorem 13 needs epsilon and delta between 0 and 1 for the flooding; given {epsilon:g} and {delta:g}. "
            "Increase the split, or use the tight calibration.",
            epsilon=epsilon,
            delta=delta,
        )
    shape = Fraction(math.ceil(3 * (1 + math.log(1 / delta)) * _SHAPE_STEPS), _SHAPE_STEPS)
    return shape, Dyadic.at_least(math.exp(-0.2 * epsilon / sensitivity))


def check_split(epsilon: float, delta: float, split: float, view: View) -> None:
    """Reject a target, a split outside (0, 1), and an unknown view."""
    check_target(epsilon, delta)
    check_open_unit("split", split)
    if view not in VIEWS:
        raise ParameterError(f"The view must be one of {', '.join(VIEWS)}, not {view!r}.", view=view)


def staying_ratio(epsilon: float, split: float, view: View) -> Dyadic:
    """The ratio of the remaining noise: a histogram changes two categories, a sign changes U+ - U- by two."""
    return least_ratio(
        split * epsilon, sensitivity=2 if view == "signed" else 1, coordinates=2 if view == "histogram" else 1
    )


def _ratio_from_log_complement(log_complement: float) -> Dyadic:
    return Dyadic.at_least(1 - math.exp(log_complement))


def _least_shape(
    epsilon: float,
    delta: float,
    curve_of: CurveOfFlooding,
    flood_ratio: Dyadic,
    *,
    guess: float,
    precision: float,
) -> float:
    """The shape at which delta meets the target, by the secant method on logarithms within a bracket."""

    def excess(shape: float) -> float:
        curve = curve_of(Fraction(shape), flood_ratio)
        return math.log(max(curve.delta_with_cut(epsilon, 1e-6 * delta), 1e-300) / delta)

    # if no pair is added, the user's "+1" is exposed: (1 - p)^shape must be at most about delta
    floor = 0.9 * math.log(delta) / math.log(float(flood_ratio.complement))
    low = high = max(guess, floor)
    y_low = y_high = excess(high)
    while y_low <= 0 and low > floor:
        high, y_high = low, y_low
        low = max(low / 1.2, floor)
        y_low = excess(low)
    while y_high > 0:
        low, y_low = high, y_high
        high *= 1.2 if guess else 2
        if high > _MAX_SHAPE:
            return math.inf
        y_high = excess(high)
    return narrow(
        excess,
        Bracket(low, y_low, high, y_high, halving=False),
        next_point=lambda ends: ends.secant_from_high(0.02, 0.02),
        enough=lambda ends: ends.width <= precision * ends.high or ends.excess_high >= -10 * precision,
    )


def _minimum(mean: Callable[[float], float], start: float, largest: float) -> float:
    """The point with the least mean: descent in fixed steps, then parabolic interpolation."""
    step = 0.4
    middle = min(start, largest)
    left, right = middle - step, min(middle + step, largest)
    y_left, y_middle, y_right = mean(left), mean(middle), mean(right)
    while y_left < y_middle:
        right, y_right, middle, y_middle = middle, y_middle, left, y_left
        left = middle - step
        y_left = mean(left)
    while y_right < y_middle and right < largest:
        left, y_left, middle, y_middle = middle, y_middle, right, y_right
        right = min(middle + step, largest)
        y_right = mean(right)
    best = min((y_left, left), (y_middle, middle), (y_right, right))
    for _ in range(2):
        vertex = _vertex((left, y_left), (middle, y_middle), (right, y_right))
        if vertex is None or not left < vertex < right or abs(vertex - middle) < 1e-3:
            break
        y = mean(vertex)
        best = min(best, (y, vertex))
        if y < y_middle:
            if vertex < middle:
                right, y_right = middle, y_middle
            else:
                left, y_left = middle, y_middle
            middle, y_middle = vertex, y
        elif vertex < middle:
            left, y_left = vertex, y
        else:
            right, y_right = vertex, y
    return best[1]


def _vertex(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> float | None:
    """The vertex of the parabola through three points, if it opens upward."""
    if not (math.isfinite(left[1] + right[1]) and left[0] < middle[0] < right[0]):
        return None
    rise, fall = (right[1] - middle[1]) / (right[0] - middle[0]), (middle[1] - left[1]) / (middle[0] - left[0])
    curvature = (rise - fall) / (right[0] - left[0])
    return None if curvature <= 0 else (left[0] + middle[0]) / 2 - fall / (2 * curvature)
