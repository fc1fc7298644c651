"""Composition at small deltas, against exact sums in high precision that share no code with it; and planted faults."""

import itertools
import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest

import shuffledp as sdp
import shuffledp.privacy.tilted_composition as tilted_composition
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, compose, compose_all
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.loss_grid import GridLosses
from shuffledp.privacy.mirrored_composition import IndependentComposition
from shuffledp.privacy.tilted_composition import TiltedSum, connected
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class ThreeOutcomes:
    """A mechanism with a truthful, a neutral and a lying outcome."""

    truth: float
    lie: float

    @property
    def pair(self):
        middle = 1 - self.truth - self.lie
        return np.array([self.truth, middle, self.lie]), np.array([self.lie, middle, self.truth])

    def delta_at(self, epsilon):
        return max(0.0, self.truth - math.exp(epsilon) * self.lie, 0.0)

    def directions(self, cut):
        return ((DiscretePair(*self.pair),),)


def exact_delta(mechanisms, epsilon):
    """All products of outcomes, grouped by how often each occurs, in 60 digits."""
    with mpmath.workdps(60):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        states = [(mpmath.mpf(1), mpmath.mpf(1))]
        for pair, times in mechanisms:
            p, q = ([mpmath.mpf(x) for x in side] for side in pair)
            mine = []
            for a in range(times + 1):
                for b in range(times + 1 - a):
                    ways = mpmath.binomial(times, a) * mpmath.binomial(times - a, b)
                    first, second = (s[0] ** a * s[1] ** b * s[2] ** (times - a - b) for s in (p, q))
                    mine.append((ways, first, second))
            states = [(w * x * a, w * y * b) for x, y in states for w, a, b in mine]
        return mpmath.fsum(max(x - growth * y, 0) for x, y in states)


@pytest.mark.parametrize(("truth", "lie", "releases"), [(0.3, 0.2, 40), (0.05, 0.04, 100), (0.02, 0.001, 30)])
def test_equal_releases_against_exact_sums(truth, lie, releases):
    """Never below, and close, from 1e-6 down to 1e-35 where there are so small deltas."""
    mechanism = ThreeOutcomes(truth, lie)
    composed = compose(mechanism, releases)
    largest = releases * math.log(truth / lie)
    seen = 0
    for share in np.linspace(0.2, 0.97, 12):
        exact = exact_delta([(mechanism.pair, releases)], share * largest)
        if not mpmath.mpf(10) ** -35 < exact < mpmath.mpf(10) ** -6:
            continue
        bound = composed.delta_at(share * largest)
        assert exact <= bound <= 1.1 * exact
        assert composed.delta_at(1.002 * share * largest) <= exact
        seen += 1
    assert seen >= 2


@pytest.mark.parametrize("epsilon", [2.0, 2.9, 3.6, 4.2])
def test_different_releases_against_exact_sums(epsilon):
    first, second = ThreeOutcomes(0.3, 0.25), ThreeOutcomes(0.06, 0.04)
    curves = [first] * 12 + [second] * 9
    exact = exact_delta([(first.pair, 12), (second.pair, 9)], epsilon)
    assert exact < 1e-3
    assert exact <= compose_all(curves).delta_at(epsilon) <= 1.1 * exact
    assert compose_all(curves).delta_at(1.002 * epsilon) <= exact


def test_a_count_against_exact_sums():
    """Binomial noise of 200 users at both p: the curve is composed, since it has two directions."""
    noise = Binomial(200, Dyadic.of(0.5))
    with mpmath.workdps(60):
        masses = [mpmath.binomial(200, k) / mpmath.mpf(2) ** 200 for k in range(201)]
        pairs = list(zip([0, *masses], [*masses, 0], strict=True))
        composed = compose(BinomialCount(noise), 2)
        for epsilon in (1.3, 1.6, 1.9, 2.4):
            growth = mpmath.exp(epsilon)
            exact = mpmath.fsum(max(a * c - growth * b * d, 0) for (a, b), (c, d) in itertools.product(pairs, pairs))
            bound = composed.delta_at(epsilon)
            assert exact <= bound
            assert least_epsilon(composed, float(exact)) <= 1.01 * epsilon


def test_quick_composition_against_exact_sums():
    mechanism = ThreeOutcomes(0.05, 0.04)
    quick = IndependentComposition(((DiscretePair(*mechanism.pair), 100),))
    for epsilon in (5.0, 7.0, 9.0):
        exact = exact_delta([(mechanism.pair, 100)], epsilon)
        assert exact < 1e-8
        assert exact <= quick.delta_at(epsilon)
        assert quick.delta_at(1.005 * epsilon) <= exact


def test_mass_that_is_not_summed_is_added(monkeypatch):
    """The planted fault: without infinite losses and without the bound beyond the cycle, delta is too small."""
    masses, width = np.array([0.5, 0.5 - 1e-25]), 0.1
    losses = GridLosses(-1, masses, 1e-25, width)
    whole = TiltedSum([(losses, 10)]).delta_at(2.0)
    assert 10e-25 * (1 - 1e-9) <= whole < 1.1e-24  # beyond the largest loss, only infinite ones are left
    assert TiltedSum([(GridLosses(-1, masses, 0.0, width), 10)]).delta_at(2.0) == 0
    steps = TiltedSum([(GridLosses(-1, np.array([0.5, 0.0, 0.5]), 0.0, width), 400)])
    right = steps.delta_at(12.0)
    monkeypatch.setattr(tilted_composition, "_TAIL", 0.05)  # a cycle that is too short
    assert steps.delta_at(12.0) > 2 * right  # the rest is charged


def test_no_claim_without_a_number():
    losses = GridLosses(0, np.array([0.5, math.nan]), 0.0, 0.1)
    with pytest.raises(ConditionError):
        TiltedSum([(losses, 3)]).delta_at(0.1)


def test_connected_losses_have_the_given_deltas():
    width, pair = 0.05, DiscretePair.of([0.6, 0.25, 0.15], [0.15, 0.25, 0.6])
    grid = np.arange(-40, 41) * width
    deltas = np.array([sum(max(a - math.exp(x) * b, 0) for a, b in zip(pair.p, pair.q, strict=True)) for x in grid])
    losses = connected(width, -40, deltas)
    assert losses.masses.sum() == pytest.approx(1)
    assert losses.deltas(40) == pytest.approx(deltas, abs=1e-12)


@pytest.mark.parametrize("protocol", ["cheu", "balcer-cheu", "correlated-noise"])
def test_releases_at_the_deltas_of_the_literature(protocol):
    """n^-2 for ten million users; between one release and twelve added up, and continuous at the change of methods."""
    guarantee = sdp.find("count", protocol).calibrate(users=10**6, epsilon=0.3, delta=1e-16).guarantee
    epsilons = [guarantee.after(12, delta=delta).epsilon for delta in (1e-9, 1e-12, 1e-14, 1e-15)]
    assert all(0.3 < small < large for small, large in itertools.pairwise(epsilons))
    assert epsilons[-1] <= 12 * guarantee.epsilon_at(1e-15 / 12) * (1 + 1e-9)
    with pytest.raises(ParameterError, match="certified for delta"):
        guarantee.after(12, delta=CERTIFIED_DOWN_TO / 10)


def test_the_saddle_point_takes_few_steps(monkeypatch):
    """Newton's method: fewer than 15 means of the tilted losses per delta, where bisection took about 30."""
    masses = np.full(201, 1 / 201)
    tilted = TiltedSum([(GridLosses(-100, masses, 0.0, 0.01), 12)])
    calls = []
    original = TiltedSum._mean_and_variance
    monkeypatch.setattr(TiltedSum, "_mean_and_variance", lambda self, tilt: calls.append(tilt) or original(self, tilt))
    for epsilon in (0.5, 3.0, 8.0, 11.9):
        calls.clear()
        assert 0 < tilted.delta_at(epsilon) < 1
        assert len(calls) < 15
        mean, variance = original(tilted, calls[-1])
        assert abs(mean - epsilon / 0.01) <= 0.02 * variance**0.5


def many_cells(deviation: float, cells: int = 30_000, infinite: float = 1e-30) -> GridLosses:
    """Losses with mass in every one of many cells, most of it within few of them."""
    at = np.arange(cells, dtype=np.float64)
    masses = np.exp(-0.5 * ((at - 2_000) / deviation) ** 2) + 1e-25
    return GridLosses(-2_000, masses / masses.sum() * (1 - infinite), infinite, 1e-4)


def delta_by_convolution(losses: GridLosses, times: int, epsilon: float) -> float:
    """Divergence of the composition, by convolutions of positive masses in extended precision."""
    base = losses.masses.astype(np.longdouble)
    total = base
    for _ in range(times - 1):
        total = np.convolve(total, base)
    at = (losses.first * times + np.arange(len(total))) * np.longdouble(losses.width)
    beyond = at > epsilon
    infinite = -math.expm1(times * math.log1p(-losses.infinite))
    return float((total[beyond] * -np.expm1(epsilon - at[beyond])).sum()) + infinite


@pytest.mark.parametrize("deviation", [3.0, 40.0, 400.0])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
def test_moments_of_several_cells_together_are_enough(monkeypatch, deviation, epsilon):
    """Also where nearly all mass is in the cells of one group: never too small, and as good as with all cells."""
    losses = many_cells(deviation, 6_000)
    ours = TiltedSum([(losses, 2)]).delta_at(epsilon)
    monkeypatch.setattr(tilted_composition, "_ROUGH_CELLS", len(losses.masses))
    with_all_cells = TiltedSum([(losses, 2)]).delta_at(epsilon)
    assert ours >= delta_by_convolution(losses, 2, epsilon) * (1 - 1e-9)
    assert ours <= with_all_cells * 1.01


def test_a_cycle_that_is_too_long_is_no_obstacle(monkeypatch):
    """The bound is then 1, and other bounds are used; it must be neither an error nor small."""
    monkeypatch.setattr(tilted_composition, "_MAX_CELLS", 1 << 4)
    assert TiltedSum([(many_cells(400.0), 12)]).delta_at(0.3) == 1.0
