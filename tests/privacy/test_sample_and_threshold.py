"""Withheld small counts: against enumeration over the other holders, the printed numbers, and planted faults."""

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.privacy.sample_and_threshold import (
    SampleAndThreshold,
    _ChordBound,
    _first_count_delta,
    best_sampling,
    least_threshold,
    paper_sampling,
    sampled_error,
)
from shuffledp.privacy.stability import StabilityCurve, least_threshold_for
from shuffledp.randomness import Dyadic


def shown_pmf(holders, p, threshold):
    """The distribution of what is shown of a category: 0 stands for nothing."""
    curve = [Fraction(0)] * (holders + 1)
    for v in range(holders + 1):
        curve[v if v >= threshold else 0] += comb(holders, v) * p**v * (1 - p) ** (holders - v)
    return curve


def divergence(first, second, epsilon):
    growth = Fraction(math.exp(epsilon))
    (p1, q1), (p2, q2) = (
        (x + [Fraction(0)] * (len(y) - len(x)), y + [Fraction(0)] * (len(x) - len(y))) for x, y in (first, second)
    )
    return float(
        sum(max(p1[a] * p2[b] - growth * q1[a] * q2[b], Fraction(0)) for a in range(len(p1)) for b in range(len(p2)))
    )


@pytest.mark.parametrize(("p", "threshold"), [(0.125, 2), (0.25, 3), (0.5, 4), (0.5, 1)])
@pytest.mark.parametrize("epsilon", [0.1, 0.6, 1.2])
def test_replacement_over_all_other_holders(p, threshold, epsilon):
    curves = [shown_pmf(k, Fraction(p), threshold) for k in range(16)]
    exact = max(
        divergence((curves[k + 1], curves[k]), (curves[other], curves[other + 1]), epsilon)
        for k in range(threshold - 1, 12)
        for other in range(0, 15, 2)
    )
    curve = SampleAndThreshold(Dyadic.of(p), threshold)
    assert exact <= curve.delta_at(epsilon)
    # the bound by way of add or remove: true, and never the smaller one
    shrunk = float(_first_count_delta(curve, np.array([epsilon - curve.shrinkage]))[0])
    assert exact <= shrunk * (1 + 1e-9)
    assert curve.delta_at(epsilon) <= shrunk * (1 + 1e-6)


@pytest.mark.parametrize(("p", "threshold"), [(0.1, 3), (0.3, 4), (0.5, 5), (0.2, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 0.8, 1.2])
def test_replacement_is_not_far_above_the_truth(p, threshold, epsilon):
    curves = [np.array([float(x) for x in shown_pmf(k, Fraction(p), threshold)] + [0.0] * (40 - k)) for k in range(41)]
    exact = 0.0
    for k in range(threshold - 1, 25):
        for other in range(40):
            gap = np.outer(curves[k + 1], curves[other]) - math.exp(epsilon) * np.outer(curves[k], curves[other + 1])
            exact = max(exact, float(np.maximum(gap, 0).sum()))
    bound = SampleAndThreshold(Dyadic.of(p), threshold).delta_at(epsilon)
    assert exact * (1 - 1e-12) <= bound <= exact * 1.12


@pytest.mark.parametrize(("p", "threshold"), [(0.125, 2), (0.5, 4)])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
def test_add_or_remove_over_all_other_holders(p, threshold, epsilon):
    curves = [shown_pmf(k, Fraction(p), threshold) for k in range(40)]
    nothing = ([Fraction(1)], [Fraction(1)])
    removed = max(divergence((curves[k + 1], curves[k]), nothing, epsilon) for k in range(39))
    added = max(divergence((curves[k], curves[k + 1]), nothing, epsilon) for k in range(39))
    curve = SampleAndThreshold(Dyadic.of(p), threshold)
    bound = curve.delta_add_or_remove(epsilon)
    assert max(removed, added) <= bound
    if epsilon > curve.shrinkage:
        assert bound <= removed * (1 + 1e-6)


def test_golden_value():
    """Reference values, computed independently."""
    found = SampleAndThreshold(Dyadic.of(0.1), 10).delta_add_or_remove(1.0)
    assert found == pytest.approx(9.98011866093e-09, rel=1e-8)


@pytest.mark.parametrize(
    ("p", "printed", "needed"), [(0.05, 8, 8), (0.1, 11, 11), (0.2, 19, 17), (0.3, 35, 25), (0.5, 210, 54)]
)
def test_thresholds_as_printed(p, printed, needed):
    """The reference gives those of the bound by way of add or remove; both bins together need less."""
    sampling = Dyadic.of(p)

    def simple(threshold):
        curve = SampleAndThreshold(sampling, threshold)
        return _first_count_delta(curve, np.array([1.0 - curve.shrinkage]))[0]

    assert simple(printed) <= 1e-8 < simple(printed - 1)
    assert least_threshold(sampling, 1.0, 1e-8) == needed
    assert (
        SampleAndThreshold(sampling, needed).delta_at(1.0)
        <= 1e-8
        < SampleAndThreshold(sampling, needed - 1).delta_at(1.0)
    )


def test_a_published_threshold_is_improved():
    """A deployment with p = 0.105 at (1, 1e-8) uses 20."""
    assert least_threshold(Dyadic.of(0.105), 1.0, 1e-8) == 11


def test_a_single_number_of_holders_is_not_enough():
    """The planted fault: k = threshold - 1 only, or the first bin only, lies below the truth."""
    curve = SampleAndThreshold(Dyadic.of(0.25), 3)
    curves = [shown_pmf(k, Fraction(1, 4), 3) for k in range(12)]
    nothing = ([Fraction(1)], [Fraction(1)])
    truth = max(
        divergence((curves[k + 1], curves[k]), (curves[other], curves[other + 1]), 0.6)
        for k in range(2, 9)
        for other in range(10)
    )
    assert divergence((curves[3], curves[2]), nothing, 0.6) < 0.9 * truth
    assert float(_first_count_delta(curve, np.array([0.6]))[0]) < truth * (1 - 1e-3)
    assert truth <= curve.delta_at(0.6)


def test_chords_lie_above_the_curve():
    """The curve is convex in e^epsilon; chords in epsilon, the planted fault, can fall below it."""
    curve = SampleAndThreshold(Dyadic.of(0.5), 5)
    chords = _ChordBound(curve, 0.3)
    between = np.linspace(0.3 - curve.shrinkage, 1.2, 997)
    exact = _first_count_delta(curve, between)
    assert (chords.at(between) >= exact).all()
    fault = np.interp(between, chords._nodes, chords._values)
    assert (fault < exact * (1 - 1e-9)).any()


def test_no_threshold_helps_if_most_are_sampled():
    with pytest.raises(InfeasibleError, match="must be below"):
        least_threshold(Dyadic.of(0.75), 1.0, 1e-6)


def test_best_sampling_meets_the_target_and_beats_its_neighbours():
    best = best_sampling(1.0, 1e-6, 1000)
    assert best.delta_at(1.0) <= 1e-6
    error = sampled_error(best.sampling, best.threshold, 1000)
    for p in (0.02, 0.1, 0.2):
        assert error <= sampled_error(Dyadic.of(p), least_threshold(Dyadic.of(p), 1.0, 1e-6), 1000) * 1.001


def test_sampled_error_is_exact():
    p, threshold, count = Fraction(1, 4), 3, 9
    exact = sum(
        comb(count, v) * p**v * (1 - p) ** (count - v) * ((v / p if v >= threshold else 0) - count) ** 2
        for v in range(count + 1)
    )
    assert sampled_error(Dyadic.of(0.25), threshold, count) == pytest.approx(math.sqrt(exact))


def test_paper_constants_are_private():
    curve = paper_sampling(1.0, 1e-6)
    assert curve.threshold == 17
    assert curve.delta_at(1.0) < 1e-6
    for epsilon in (0.1, 0.5, 2.0):
        for delta in (1e-3, 1e-10):
            assert paper_sampling(epsilon, delta).delta_at(epsilon) <= delta


# --- stability ------------------------------------------------------------------------------------------


def noisy_pmf(count, a, threshold, reach=60):
    """The distribution of what is shown of a count with two-sided geometric noise; the last place is the far tail."""
    curve = {None: Fraction(0)}
    if count == 0:
        return {None: Fraction(1)}
    for x in range(-reach, reach + 1):
        mass = (1 - a) / (1 + a) * a ** abs(x)
        mass = mass / (1 - a) if abs(x) == reach else mass
        value = count + x
        key = None if value < threshold else ("far" if x == reach else value)
        curve[key] = curve.get(key, Fraction(0)) + mass
    return curve


@pytest.mark.parametrize("threshold", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.7, 1.0, 1.4, 2.0])
def test_stability_over_all_counts(threshold, epsilon):
    a = Fraction(1, 2)
    curve = StabilityCurve(Dyadic.of(0.5), threshold)
    growth = Fraction(math.exp(epsilon))
    curves = [noisy_pmf(count, a, threshold, 12) for count in range(12)]
    worst = Fraction(0)
    for first in (1, 2, 3, 11):
        for second in (0, 1, 2, 10):
            p1, q1, p2, q2 = curves[first], curves[first - 1], curves[second], curves[second + 1]
            total = Fraction(0)
            for x in set(p1) | set(q1):
                for y in set(p2) | set(q2):
                    total += max(
                        p1.get(x, Fraction(0)) * p2.get(y, Fraction(0))
                        - growth * q1.get(x, Fraction(0)) * q2.get(y, Fraction(0)),
                        Fraction(0),
                    )
            worst = max(worst, total)
    tails = float(a**12) * 8  # "far" lumps different values; the bound is on the whole distribution
    assert float(worst) <= curve.delta_at(epsilon) + tails * (1 + float(growth))
    assert curve.delta_at(epsilon) <= float(worst) * 1.02 + tails


def test_stability_counts_the_singleton():
    ratio = Dyadic.at_least(math.exp(-0.5))
    threshold = least_threshold_for(ratio, 1.0, 1e-6)
    curve = StabilityCurve(ratio, threshold)
    assert curve.delta_at(1.0) <= 1e-6 < StabilityCurve(ratio, threshold - 1).delta_at(1.0)
    # Pr[1 + noise >= t] <= delta suffices; the usual delta/2 would ask for more
    assert curve.singleton_shown == pytest.approx(float(ratio) ** (threshold - 1) / (1 + float(ratio)))
    assert curve.singleton_shown > 0.5e-6
    # the planted fault: common categories only would be pure, with any threshold
    common = curve.directions()[0]
    assert max(0.0, float(common[0].p[0] * common[1].p[0] - math.e * common[0].q[0] * common[1].q[0])) < 1e-12


@pytest.mark.parametrize("delta", [1e-15, 1e-30])
def test_stability_at_tiny_deltas(delta):
    """Both counts together have a loss of at most epsilon, so delta is the probability that a single user is shown."""
    for epsilon in np.linspace(0.05, 12, 60):
        ratio = least_ratio(float(epsilon), coordinates=2)
        threshold = least_threshold_for(ratio, float(epsilon), delta)
        shown, before = (ratio.fraction**t / (1 + ratio.fraction) for t in (threshold - 1, threshold - 2))
        assert shown <= delta < before * (1 + Fraction(1, 10**8))


def test_stability_refuses_too_little_noise():
    with pytest.raises(InfeasibleError, match="e\\^"):
        least_threshold_for(Dyadic.of(0.25), 1.0, 1e-6)


def test_meaningless_arguments_are_refused():
    for wrong in (
        lambda: SampleAndThreshold(Dyadic.of(0.0), 3),
        lambda: SampleAndThreshold(Dyadic.of(0.5), 0),
        lambda: SampleAndThreshold(Dyadic.of(0.5), 3).delta_at(-1.0),
        lambda: SampleAndThreshold(Dyadic.of(0.5), 3).delta_at(math.nan),
        lambda: SampleAndThreshold(Dyadic.of(0.5), 3).delta_add_or_remove(math.nan),
        lambda: StabilityCurve(Dyadic.of(1.0), 3),
        lambda: StabilityCurve(Dyadic.of(0.5), 0),
        lambda: StabilityCurve(Dyadic.of(0.5), 3).delta_at(math.nan),
    ):
        with pytest.raises(ParameterError):
            wrong()
