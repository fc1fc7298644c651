"""Correlated noise: against sums over the whole table of messages, the printed numbers, and Lemma 9."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.composition import compose
from shuffledp.privacy.correlated_noise import (
    CorrelatedNoiseCurve,
    flooding_of_theorem_13,
    least_flooding,
    paper_flooding,
)
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.negative_binomial import NegativeBinomial, NegativeBinomialCurve
from shuffledp.randomness import Dyadic

VIEWS = ("count", "signed", "histogram")


def binomial_series(shape: Fraction, ratio: Fraction, reach: int) -> list[mpmath.mpf]:
    with mpmath.workdps(30):
        r, p = mpmath.mpf(shape.numerator) / shape.denominator, mpmath.mpf(ratio.numerator) / ratio.denominator
        masses = [(1 - p) ** r]
        for k in range(reach):
            masses.append(masses[-1] * p * (k + r) / (k + 1))
        return masses


def table(curve: CorrelatedNoiseCurve, reach: int) -> np.ndarray:
    """Pr[U+ = u, U- = v] for u, v < reach by the definition, without the user's message: exact in that corner."""
    staying = np.array(binomial_series(curve.share, curve.ratio.fraction, reach), dtype=float)
    flooding = np.array(
        binomial_series(curve.share * curve.flood_shape, curve.flood_ratio.fraction, reach), dtype=float
    )
    result = np.zeros((reach, reach))
    for pairs in range(reach):
        part = staying[: reach - pairs]
        result[pairs:, pairs:] += flooding[pairs] * np.outer(part, part)
    return result


def moved(masses: np.ndarray, up: int, down: int) -> np.ndarray:
    result = np.zeros_like(masses)
    result[up:, down:] = masses[: len(masses) - up, : len(masses) - down]
    return result


def brute_force(curve: CorrelatedNoiseCurve, epsilon: float, reach: int) -> float:
    """The worst direction over the corner of the table: never above the truth."""
    base = table(curve, reach)
    first, second = (moved(base, 1, 0), moved(base, 0, 1)) if curve.view == "signed" else (moved(base, 1, 0), base)
    growth = math.exp(epsilon)
    if curve.view == "histogram":
        p = np.outer(first.ravel(), second.ravel())
        return float(np.maximum(p - growth * p.T, 0).sum())
    return max(float(np.maximum(p - growth * q, 0).sum()) for p, q in ((first, second), (second, first)))


SMALL = [
    (Dyadic.of(0.4), Fraction(3), Dyadic.of(0.5)),
    (Dyadic.of(0.2), Fraction(1, 2), Dyadic.of(0.6)),
    (Dyadic.of(0.6), Fraction(7, 2), Dyadic.of(0.25)),
    (Dyadic.of(0.5), Fraction(2), Dyadic.of(0.125)),
]


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(9, 10), Fraction(5, 4)])
@pytest.mark.parametrize(("ratio", "shape", "flood_ratio"), SMALL)
@pytest.mark.parametrize("view", ["count", "signed"])
def test_one_user_equals_brute_force(view, ratio, shape, flood_ratio, share):
    curve = CorrelatedNoiseCurve(ratio, shape, flood_ratio, view, share)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        exact = brute_force(curve, epsilon, 110)
        bound = curve.delta_at(epsilon)
        assert bound >= exact * (1 - 1e-12)
        assert bound == pytest.approx(exact, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(5, 4)])
@pytest.mark.parametrize(
    ("ratio", "shape", "flood_ratio"),
    [(Dyadic.of(0.2), Fraction(2), Dyadic.of(0.25)), (Dyadic.of(0.125), Fraction(1, 2), Dyadic.of(0.3))],
)
def test_a_histogram_equals_brute_force(ratio, shape, flood_ratio, share):
    curve = CorrelatedNoiseCurve(ratio, shape, flood_ratio, "histogram", share)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        exact = brute_force(curve, epsilon, 24)
        assert curve.delta_at(epsilon) >= exact * (1 - 1e-12)
        assert curve.delta_at(epsilon) == pytest.approx(exact, rel=1e-4, abs=1e-9)


def test_planted_underestimates_would_be_caught():
    """One direction only, or a window without the mass outside of it, falls below the brute force."""
    curve = CorrelatedNoiseCurve(*SMALL[0], "count")
    exact = brute_force(curve, 1.0, 110)
    (upward,), (downward,) = curve.directions(1e-30)
    assert min(upward.delta(1.0), downward.delta(1.0)) < exact * (1 - 1e-6)
    (_,), (cut_off,) = curve.directions(1e-2)
    assert cut_off.cut > 0
    assert cut_off.delta(1.0) >= exact
    beyond = brute_force(curve, 0.0, 110)
    (_,), (coarse,) = curve.directions(0.3)
    assert coarse.delta(0.0) >= beyond
    with pytest.raises(ConditionError, match="masses sum to"):  # without what is left out, too small
        DiscretePair(coarse.p, coarse.q)


def printed_pmf(view: str, share: Fraction = Fraction(1)) -> CorrelatedNoiseCurve:
    return CorrelatedNoiseCurve(Dyadic.of(math.exp(-0.9)), Fraction("15.77"), Dyadic.of(0.95), view, share)


def test_golden_delta():
    assert printed_pmf("count").delta_at(1.0) == pytest.approx(1.00124366031e-06, rel=1e-8)


@pytest.mark.parametrize(("share", "delta"), [("0.99", 1.8e-6), ("0.9", 2.1e-3), ("0.5", 0.29)])
def test_printed_deltas_of_dishonest_users(share, delta):
    assert printed_pmf("count", Fraction(share)).delta_at(1.0) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize("view", VIEWS)
def test_more_noise_hides_more(view):
    shares = [Fraction(8, 10), Fraction(95, 100), Fraction(1), Fraction(21, 20)]
    deltas = [printed_pmf(view, share).delta_at(1.2) for share in shares]
    assert all(more >= less for more, less in pairwise(deltas))
    near = printed_pmf(view, 1 + Fraction(1, 10**12)).delta_at(1.2)
    assert near == pytest.approx(printed_pmf(view).delta_at(1.2), rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "ratio", "delta", "precision"),
    [("5", 0.9, 2.78171817154e-05, 1e-8), (10**8, 34 / (10**8 + 34), 1.02357362274e-06, 1e-5)],
)
def test_golden_deltas_of_one_kind_of_noise(shape, ratio, delta, precision):
    """Negative binomial, and Poisson as its limit."""
    curve = NegativeBinomialCurve(NegativeBinomial(Fraction(shape), Dyadic.of(ratio)))
    assert curve.delta_at(1.0) == pytest.approx(delta, rel=precision)


@pytest.mark.parametrize(
    ("ratio", "shape"),
    [
        pytest.param(ratio, shape, marks=pytest.mark.slow if ratio == 0.95 and shape == 900 else ())
        for ratio in (1e-6, 0.05, 0.5, 0.95)
        for shape in (Fraction(1, 1000), Fraction(1, 2), Fraction(16), Fraction(900))
    ],
)
def test_masses_are_accurate_and_what_is_left_out_is_bounded(shape, ratio):
    noise = NegativeBinomial(shape, Dyadic.of(ratio))
    reach = 3 * int(noise.mean + 12 * math.sqrt(noise.variance)) + 200
    exact = binomial_series(shape, noise.ratio.fraction, reach)
    for cut in (1e-6, 1e-30):
        first, masses, left_out = noise.window(cut)
        assert left_out <= cut
        ours = exact[first : first + len(masses)]
        assert all(abs(mass / truth - 1) < 1e-12 for mass, truth in zip(masses.tolist(), ours, strict=False))
        with mpmath.workdps(40):
            outside = mpmath.fsum(exact[:first]) + mpmath.fsum(exact[first + len(masses) :])
        assert outside <= left_out


PRINTED_MEANS = [
    (0.5, 0.9, "count", 551),
    (1.0, 0.9, "count", 300),
    (2.0, 0.9, "count", 163),
    (0.5, 0.9, "histogram", 492),
    (1.0, 0.9, "histogram", 275),
    (2.0, 0.9, "histogram", 153.5),
    (1.0, 0.96, "histogram", 615),
    (1.0, 0.8, "histogram", 147),
]


@pytest.mark.parametrize(("epsilon", "split", "view", "mean"), PRINTED_MEANS)
def test_printed_means_of_the_least_flooding(epsilon, split, view, mean):
    ratio, shape, flood_ratio = least_flooding(epsilon, 1e-6, split, view)
    assert 0.97 * mean <= NegativeBinomial(shape, flood_ratio).mean <= 1.005 * mean
    curve = CorrelatedNoiseCurve(ratio, shape, flood_ratio, view)
    assert 0.99e-6 < curve.delta_at(epsilon) <= 1e-6


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-3), (0.05, 1e-12), (10.0, 1e-3), (10.0, 1e-12)])
def test_least_flooding_reaches_the_corners(view, epsilon, delta):
    ratio, shape, flood_ratio = least_flooding(epsilon, delta, 0.8, view)
    curve = CorrelatedNoiseCurve(ratio, shape, flood_ratio, view)
    assert 0.99 * delta < curve.delta_at(epsilon) <= delta
    less = CorrelatedNoiseCurve(ratio, shape * Fraction(99, 100), flood_ratio, view)
    assert less.delta_at(epsilon) > delta


@pytest.mark.parametrize("view", VIEWS)
def test_no_other_ratio_does_with_two_percent_less(view):
    ratio, shape, flood_ratio = least_flooding(1.0, 1e-6, 0.9, view)
    mean = NegativeBinomial(shape, flood_ratio).mean
    for other in 1 - np.geomspace(0.005, 0.5, 25):
        fewer = Fraction(0.98 * mean * (1 - other) / other)
        assert CorrelatedNoiseCurve(ratio, fewer, Dyadic.of(float(other)), view).delta_at(1.0) > 1e-6


@pytest.mark.parametrize(("epsilon", "mean"), [(0.5, 4422), (1.0, 2200), (2.0, 1089)])
def test_printed_means_of_the_theorem(epsilon, mean):
    ratio, shape, flood_ratio = paper_flooding(epsilon, 1e-6, 0.9, "count")
    assert NegativeBinomial(shape, flood_ratio).mean == pytest.approx(mean, rel=1e-3)
    for view in VIEWS:
        ratio, shape, flood_ratio = paper_flooding(epsilon, 1e-6, 0.9, view)
        assert CorrelatedNoiseCurve(ratio, shape, flood_ratio, view).delta_at(epsilon) < 1e-6


def test_conditions_of_the_theorem():
    with pytest.raises(ConditionError, match="Theorem 13"):
        paper_flooding(12.0, 1e-6, 0.9, "count")
    with pytest.raises(ConditionError, match="Theorem 13"):
        flooding_of_theorem_13(1.5, 1e-6)


@pytest.mark.parametrize("view", VIEWS)
def test_lemma_9_holds(view):
    """Flooding that is (epsilon_1, delta_1)-private makes the whole (epsilon* + epsilon_1, delta_1)-private."""
    parts = 2 if view == "histogram" else 1
    for ratio, shape, flood_ratio in SMALL:
        flooding = NegativeBinomialCurve(NegativeBinomial(shape, flood_ratio))
        pure = -math.log(float(ratio)) * (1 if view == "count" else 2)
        for epsilon in (0.3, 1.0):
            delta = CorrelatedNoiseCurve(ratio, shape, flood_ratio, view).delta_at(pure + parts * epsilon)
            assert delta <= parts * flooding.delta_at(epsilon) * (1 + 1e-8)


@pytest.mark.parametrize("view", VIEWS)
def test_its_pairs_compose(view):
    curve = printed_pmf(view)
    composed = compose(curve, 2)
    assert curve.delta_at(1.0) < composed.delta_at(1.0)
    assert composed.delta_at(2.0 * 1.1) < 3 * curve.delta_at(1.1)
    for pairs in curve.directions(1e-16):
        for pair in pairs:
            assert math.fsum(pair.p) == pytest.approx(1, abs=1e-9)
            assert math.fsum(pair.q) == pytest.approx(1, abs=1e-9)


def test_delta_falls_with_epsilon():
    for view in VIEWS:
        deltas = [printed_pmf(view).delta_at(float(epsilon)) for epsilon in np.linspace(0, 4, 60)]
        assert all(later <= earlier * (1 + 1e-8) for earlier, later in pairwise(deltas))


def test_refusals():
    curve = printed_pmf("count")
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ParameterError):
            curve.delta_at(epsilon)
    with pytest.raises(ParameterError, match="view"):
        printed_pmf("sum")
    with pytest.raises(ParameterError, match="share"):
        printed_pmf("count", Fraction(0))
    with pytest.raises(ParameterError, match="split"):
        least_flooding(1.0, 1e-6, 1.0, "count")
    with pytest.raises(InfeasibleError, match="too large"):
        NegativeBinomial(Fraction(10), Dyadic.of(1 - 1e-9))
