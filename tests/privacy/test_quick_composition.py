"""Quick composition is an upper bound on exact composition, and close to it."""

import math

import pytest

from shuffledp.errors import ParameterError
from shuffledp.privacy import quick_composition
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.cheu.sums import FlippedCount, FlippedSum
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.quick_composition import QuickComposition, _points, _symmetric_pair
from shuffledp.protocols.registry import find
from shuffledp.randomness import Dyadic


def curve_of(question, name, **settings):
    return find(question, name).calibrate(users=5000, epsilon=1.0, delta=1e-6, **settings).guarantee.curve


@pytest.mark.parametrize("releases", [2, 12])
@pytest.mark.parametrize(
    "curve",
    [
        BinomialCount(Binomial(10_000, Dyadic.at_least(0.01))),
        BinomialHistogram(Binomial(10_000, Dyadic.at_least(0.01))),
        PureCurve(0.3),
        compose(PureCurve(0.1), 3),
        curve_of("count", "correlated-noise"),
        curve_of("histogram", "uniform-blanket", domain_size=5),
    ],
)
def test_not_below_exact_composition_and_close(curve, releases):
    exact, quick = compose(curve, releases), QuickComposition(curve, releases)
    for delta in (1e-4, 1e-8):
        epsilon = least_epsilon(exact, delta)
        assert epsilon * (1 - 1e-4) <= least_epsilon(quick, delta) <= 1.08 * epsilon


def test_bits_told_several_times_have_the_exact_delta():
    truth = 1 / (1 + math.exp(-0.5))
    quick = QuickComposition(PureCurve(0.5), 6)
    for epsilon in (0.0, 1.0, 2.5):
        exact = math.fsum(
            math.comb(6, true)
            * max(
                0.0,
                truth**true * (1 - truth) ** (6 - true) - math.exp(epsilon) * truth ** (6 - true) * (1 - truth) ** true,
            )
            for true in range(7)
        )
        assert exact <= quick.delta_at(epsilon) <= 1.01 * exact + 1e-12
    assert quick.delta_at(3.0 * (1 + 1e-12)) == 0.0


def test_the_pair_of_a_curve_dominates_it_everywhere():
    curve = BinomialCount(Binomial(1000, Dyadic.at_least(0.05)))
    pair = _symmetric_pair(*_points(curve))
    for step in range(60):
        epsilon = step / 15
        assert pair.delta(epsilon) >= curve.delta_at(epsilon) * (1 - 1e-9) - 1e-14
    fault = _symmetric_pair(*([*values] for values in zip(*list(zip(*_points(curve), strict=True))[:4], strict=True)))
    assert fault.delta(1.0) > 2 * pair.delta(1.0)  # the rest counts as fully distinguishing


def test_a_pair_with_too_much_mass_ends_with_a_chord():
    pair = _symmetric_pair([0.0, 1.0, 2.0], [0.9, 0.8, 0.0])
    assert pair.delta(0.0) >= math.tanh(1.0) - 1e-9  # no more than randomized response at epsilon 2
    assert pair.delta(2.0) <= 1e-9


@pytest.mark.parametrize("curve", [PureCurve(0.0), PureCurve(math.inf)])
def test_perfect_privacy_and_none(curve):
    assert QuickComposition(curve, 12).delta_at(1.0) == (0.0 if curve.epsilon == 0 else 1.0)


def test_nan_is_refused():
    with pytest.raises(ParameterError):
        QuickComposition(PureCurve(0.1), 2).delta_at(math.nan)


@pytest.mark.parametrize("curve", [BinomialCount(Binomial(10_000, Dyadic.at_least(0.01))), curve_of("count", "cheu")])
def test_fine_points_are_within_half_a_per_cent(curve):
    exact, fine = compose(curve, 12), QuickComposition(curve, 12, fine=True)
    epsilon = least_epsilon(exact, 1e-6)
    assert epsilon <= least_epsilon(fine, 1e-6) <= 1.006 * epsilon


@pytest.mark.parametrize(
    "curve",
    [
        FlippedCount(6113, Dyadic.of(0.2)),
        FlippedSum(20_000, Dyadic.of(0.03), 30),
        FlippedSum(5, Dyadic.of(0.3), 2),
    ],
)
def test_the_quick_bound_of_flipped_bits(curve, monkeypatch):
    """It lies above the curve, slightly in its core; twelve releases need at most 1 % more epsilon by it."""
    for epsilon in (0.0, 0.05, 0.2, 0.5):
        exact, quick = curve.delta_at(epsilon), curve.quick_delta_at(epsilon)
        assert exact <= quick * (1 + 1e-12)
        assert quick <= 1.05 * exact or exact < 1e-6
    composed = [least_epsilon(QuickComposition(curve, 12), 1e-6)]
    monkeypatch.setattr(type(curve), "quick_delta_at", type(curve).delta_at)
    quick_composition._dominating.cache_clear()
    composed.append(least_epsilon(QuickComposition(curve, 12), 1e-6))
    quick_composition._dominating.cache_clear()
    assert composed[1] * (1 - 1e-9) <= composed[0] <= 1.01 * composed[1]


def test_points_are_computed_by_the_quick_bound(monkeypatch):
    """Unless they are dense, as for plans of several releases."""
    curve, asked = FlippedCount(6113, Dyadic.of(0.2)), []
    original = FlippedSum.worst

    def counted(self, epsilon, **options):
        asked.append(options.get("refinements"))
        return original(self, epsilon, **options)

    monkeypatch.setattr(FlippedSum, "worst", counted)
    for fine, refinements in ((False, 0), (True, None)):
        asked.clear()
        quick_composition._dominating.cache_clear()
        QuickComposition(curve, 12, fine=fine).delta_at(1.0)
        assert set(asked) == {refinements}
