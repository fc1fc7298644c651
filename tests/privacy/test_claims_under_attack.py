"""Claims that an attack found wanting once: each stays mended."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shuffledp import BalcerCheuCount
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.almost_central.losses import Losses
from shuffledp.privacy.amplification import RandomizedResponseCurve
from shuffledp.privacy.amplification.privacy_blanket import bennett_delta
from shuffledp.privacy.capping import CappedCurve
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.fake_users import FakeRows
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.split_and_mix import mixing_distance
from shuffledp.protocols.count.cheu import CheuCount
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def test_what_is_left_under_collusion_adds_up_over_releases():
    """Which is no matter of the distribution, so that one that composes quickly will do."""
    once = replace(CheuCount.calibrate(users=500, epsilon=1.0, delta=1e-6).guarantee, curve=PureCurve(1.0))
    assert once.after(10).local_epsilon == pytest.approx(10 * once.local_epsilon)
    assert once.after(1).local_epsilon == once.local_epsilon


def test_a_distribution_that_is_not_a_number_proves_nothing():
    class Nothing:
        def delta_at(self, _):
            return math.nan

    with pytest.raises(ConditionError, match="cannot be computed"):
        Target(10, 1.0, 1e-6).guarantee(Nothing(), theorem="none")
    with pytest.raises(ParameterError, match="more than the claimed"):
        Target(10, 1.0, 0.0).local_guarantee(math.nan, theorem="none")


@pytest.mark.parametrize("users", [10, 100, 1000, 10_000])
def test_a_local_epsilon_is_rounded_up(users):
    from mpmath import mp, mpf

    protocol = CheuCount.calibrate(users=users, epsilon=0.7, delta=1e-3)
    with mp.workdps(50):
        flip = mpf(protocol.flip.numerator) / mpf(2) ** protocol.flip.bits
        assert protocol.guarantee.local_epsilon >= mp.log((1 - flip) / flip)


def test_a_release_above_a_threshold_composes():
    once = StabilityHistogram.calibrate(users=1000, epsilon=1.0, delta=1e-6, domain_size=10).guarantee
    twice = once.after(2)
    assert twice.epsilon == math.inf  # a singleton may be seen each time: delta doubles, whatever epsilon is
    assert 1e-6 < twice.delta_at(2.0) < 2.1e-6


def test_bounds_at_their_edges():
    assert bennett_delta(0.3, 10, math.nextafter(0.3, 9)) == 1.0
    assert PureCurve(800.0).delta_at(0.0) <= 1.0


# --- several releases without a delta --------------------------------------------------------------------------------


@pytest.mark.parametrize("releases", [1, 2, 3])
def test_a_guarantee_with_a_delta_proves_no_epsilon_without_one(releases):
    once = BalcerCheuCount.calibrate(users=1000, epsilon=1.0, delta=1e-6).guarantee
    with pytest.raises(ParameterError, match="delta = 0"):
        once.after(releases, delta=0.0)


def test_what_needs_no_delta_adds_up_without_one():
    terms = Target(10, 1.0, 1e-6)
    twice = terms.local_guarantee(0.5, theorem="local").after(2, delta=0.0)
    assert (twice.epsilon, twice.delta, twice.delta_at(2.0)) == (2.0, 0.0, 0.0)


# --- numbers that floating point loses -------------------------------------------------------------------------------


def exact_delta_of_fake_rows(rows: int, flip: Fraction, epsilon: float) -> float:
    noise = [math.comb(rows, k) * flip**k * (1 - flip) ** (rows - k) for k in range(rows + 1)]
    below, above = [*noise, Fraction(0)], [Fraction(0), *noise]
    p = [flip * a + (1 - flip) * b for a, b in zip(below, above, strict=True)]
    q = [(1 - flip) * a + flip * b for a, b in zip(below, above, strict=True)]
    growth = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 1 << 50))
    pairs = itertools.product(zip(p, q, strict=True), repeat=2)
    return float(sum(max(Fraction(0), a * d - growth * b * c) for (a, b), (c, d) in pairs))


@pytest.mark.parametrize(("rows", "bits", "epsilon"), [(5, 53, 72.98), (5, 53, 73.0), (3, 40, 54.9), (7, 100, 138.0)])
def test_likelihood_ratios_far_below_one_are_not_rounded_away(rows, bits, epsilon):
    exact = exact_delta_of_fake_rows(rows, Fraction(1, 1 << bits), epsilon)
    assert exact > 0
    assert FakeRows(rows, Dyadic(1, bits)).delta_at(epsilon) >= exact


@pytest.mark.parametrize("bits", [30, 53, 64, 100, 128])
@pytest.mark.parametrize("users", [2, 5])
def test_distributions_that_hardly_differ_are_not_taken_for_equal(users, bits):
    """At epsilon = 0 delta is the total variation distance, which these two distributions have at least."""
    rest = Fraction(1, 1 << bits)
    exact = (
        rest * max(math.comb(users - 1, k) * Fraction(1, 2) ** (users - 1) for k in range(users)) * (1 - rest)
    )  # nearly fair coins of the others hide the target's, which is off by half of the rest
    assert RandomizedResponseCurve(users, Dyadic(1, bits).complement, 2).delta_at(0.0) >= exact * Fraction(999, 1000)
    ratio = 1 - rest
    distance = (1 - ratio**2) / (1 + ratio) ** 2  # of (0, 1) and (1, 0), each with discrete Laplace noise
    assert DiscreteLaplaceCurve(Dyadic(1, bits).complement, 1, 2).delta_at(0.0) >= distance


@pytest.mark.parametrize("missing", [1e-10, 1e-8, 9e-7])
def test_mass_that_is_missing_counts_as_fully_distinguishing(missing):
    whole, less = np.array([0.5, 0.5]), np.array([0.5, 0.5 - missing])
    assert DiscretePair(less, whole).delta(1.0) >= missing * (1 - 1e-4)
    assert DiscretePair(less, less).delta_with_reversed_twin(1.0) >= 2 * missing * (1 - 1e-4)
    assert DiscretePair(whole, less).delta_with_reversed_twin(1.0) >= missing * (1 - 1e-4)
    assert DiscretePair(whole, less).reversed.delta(1.0) >= missing * (1 - 1e-4)
    assert DiscretePair(whole, whole).delta(1.0) < 1e-300
    assert Losses(less, 0, 0.0).infinite >= missing * (1 - 1e-4)


def test_a_distance_too_small_for_a_float_is_not_zero():
    assert mixing_distance(10**15, 1 << 40, 1000) > 0


# --- capped reports --------------------------------------------------------------------------------------------------

KINK = DiscreteLaplaceCurve(Dyadic(5717249077421873, 59), 3)
"""Its delta falls to 0 at epsilon = 13.84, where the cost of a cap begins to rise steeply."""


@pytest.mark.parametrize("chance", [1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("users", [1, 10])
def test_the_delta_of_a_capped_distribution_never_rises(users, chance):
    curve = CappedCurve(KINK, users, chance)
    near = np.linspace(0.999, 1.001, 200) * KINK.pure_epsilon
    deltas = [curve.delta_at(float(epsilon)) for epsilon in np.sort(np.append(np.linspace(0, 60, 400), near))]
    assert max(later - earlier for earlier, later in itertools.pairwise(deltas)) <= 0


@pytest.mark.parametrize("chance", [1e-12, 1e-6])
def test_capped_distributions_with_a_kink_compose(chance):
    capped = CappedCurve(KINK, 10, chance)
    for curve in (compose(capped, 2), compose_all([capped, PureCurve(0.5)])):
        deltas = [curve.delta_at(epsilon) for epsilon in np.linspace(0.0, 60.0, 61).tolist()]
        assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(deltas))
    assert compose(capped, 2).delta_at(1.0) >= KINK.delta_at(0.5)


def test_a_capped_distribution_computes_few_deltas():
    class Counting:
        calls = 0

        def delta_at(self, epsilon):
            Counting.calls += 1
            return KINK.delta_at(epsilon)

    CappedCurve(Counting(), 10, 1e-9).delta_at(20.0)
    assert Counting.calls <= 40
