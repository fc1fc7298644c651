"""Releases of different pmfs over the same people: never below the exact sum over all outcomes, and close above it."""

import itertools
import math
import time
from dataclasses import dataclass
from functools import cache

import mpmath
import pytest

from shuffledp.errors import ParameterError
from shuffledp.privacy import composition
from shuffledp.privacy.amplification import clones_curve
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.capping import CappedCurve
from shuffledp.privacy.composition import CERTIFIED_DOWN_TO, MAX_RELEASES, compose, compose_all, followed_by
from shuffledp.privacy.divergence import DiscretePair, hockey_stick
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.loss_grid import on_grid
from shuffledp.privacy.pure import PureCurve
from shuffledp.randomness import Dyadic


@dataclass(frozen=True)
class Coin:
    """A bit told truly with probability 1/2 + lead."""

    lead: float

    @property
    def pair(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (0.5 + self.lead, 0.5 - self.lead), (0.5 - self.lead, 0.5 + self.lead)

    def delta_at(self, epsilon: float) -> float:
        return hockey_stick(*self.pair, epsilon)

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        return ((DiscretePair.of(*self.pair),),)


@dataclass(frozen=True)
class Lopsided:
    """Two distributions that differ more in one direction than in the other."""

    first: tuple[float, ...] = (0.70, 0.25, 0.05)
    second: tuple[float, ...] = (0.60, 0.26, 0.14)

    @property
    def pair(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.first, self.second

    def delta_at(self, epsilon: float) -> float:
        return max(hockey_stick(self.first, self.second, epsilon), hockey_stick(self.second, self.first, epsilon))

    def directions(self, cut: float) -> tuple[tuple[DiscretePair, ...], ...]:
        pair = DiscretePair.of(self.first, self.second)
        return ((pair,), (pair.reversed,))


class OnlyCurve:
    """A distribution of which nothing but the curve is told."""

    def __init__(self, curve: Coin | Lopsided) -> None:
        self._pmf = curve

    def delta_at(self, epsilon: float) -> float:
        return self._pmf.delta_at(epsilon)


def exact(curves: list[Coin | Lopsided], epsilon: float) -> float:
    """The largest divergence over all ways in which one person may be replaced, by listing all outcomes."""
    worst = mpmath.mpf(0)
    with mpmath.workdps(40):
        growth = mpmath.exp(epsilon)
        for turned in itertools.product((False, True), repeat=len(curves)):
            pairs = [curve.pair[::-1] if turn else curve.pair for curve, turn in zip(curves, turned, strict=True)]
            outcomes = itertools.product(*(zip(*pair, strict=True) for pair in pairs))
            found = mpmath.fsum(
                max(
                    mpmath.fprod(mpmath.mpf(p) for p, _ in outcome)
                    - growth * mpmath.fprod(mpmath.mpf(q) for _, q in outcome),
                    0,
                )
                for outcome in outcomes
            )
            worst = max(worst, found)
    return float(worst)


def worst_ratios(curve: Coin | Lopsided) -> list[tuple[float, float]]:
    """The one pair whose curve is the larger of both directions, exactly: likelihood ratios, and their mass below.

    Each curve is a polygon in e^epsilon; so is the larger of two, with corners where they cross too, and the mass at a
    corner is by how much the slope changes.
    """

    def curves(x: float) -> tuple[float, float]:
        first, second = curve.pair
        return (
            math.fsum(max(p - x * q, 0.0) for p, q in zip(first, second, strict=True)),
            math.fsum(max(q - x * p, 0.0) for p, q in zip(first, second, strict=True)),
        )

    ratios = [p / q for p, q in zip(*curve.pair, strict=True)]
    corners = sorted({0.0, *ratios, *(1 / ratio for ratio in ratios)})
    for left, right in itertools.pairwise(list(corners)):
        (a, b), (c, d) = curves(left), curves(right)
        if (a - b) * (c - d) < 0:
            corners.append(left + (right - left) * (a - b) / ((a - b) - (c - d)))
    corners = [*sorted(corners), max(corners) + 1.0]
    heights = [max(curves(x)) for x in corners]
    slopes = [(b - a) / (y - x) for (x, a), (y, b) in itertools.pairwise(zip(corners, heights, strict=True))]
    return [(x, after - before) for x, (before, after) in zip(corners[1:], itertools.pairwise(slopes), strict=False)]


def exact_of_worst(curves: list[Coin | Lopsided], epsilon: float) -> float:
    """What composing the worst of each pmf gives when nothing is rounded: this is what the grid approximates."""
    return math.fsum(
        math.prod(mass for _, mass in outcome) * max(math.prod(ratio for ratio, _ in outcome) - math.exp(epsilon), 0.0)
        for outcome in itertools.product(*map(worst_ratios, curves))
    )


SCENES = {
    "coins": [Coin(0.01), Coin(0.05), Coin(0.2), Coin(0.05)],
    "coins of very different weight": [Coin(0.001), Coin(0.4)],
    "directions mixed": [Lopsided(), Coin(0.1), Lopsided((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)), Lopsided()],
}


EPSILONS = tuple(0.25 * step for step in range(13))


@cache
def exact_of_scene(scene: str, epsilon: float) -> float:
    """As above; two tests ask for it."""
    return exact(SCENES[scene], epsilon)


@pytest.mark.parametrize("scene", SCENES)
def test_never_below_the_exact_sum_and_close_above_it(scene):
    curves = SCENES[scene]
    joint = compose_all(curves)
    for epsilon in EPSILONS:
        truth, bound = exact_of_scene(scene, epsilon), joint.delta_at(epsilon)
        of_worst = exact_of_worst(curves, epsilon)
        assert bound >= of_worst * (1 - 1e-9)
        assert of_worst >= truth * (1 - 1e-9)
        assert truth <= bound <= of_worst * 1.001 + 1e-6
        if scene != "directions mixed":  # one direction: nothing is lost to the worst of two
            assert of_worst == pytest.approx(truth, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("scene", SCENES)
def test_curves_alone_are_bounded_from_above_too(scene):
    curves = SCENES[scene]
    joint = compose_all([OnlyCurve(curves[0]), *curves[1:-1], OnlyCurve(curves[-1])])
    for epsilon in EPSILONS:
        assert joint.delta_at(epsilon) >= exact_of_scene(scene, epsilon)


def test_a_bound_of_one_direction_alone_would_be_too_small():
    """The planted fault: what is composed of the pure sequences does not cover a person replaced both ways."""
    one, other = Lopsided(), Lopsided((0.60, 0.26, 0.14), (0.70, 0.25, 0.05))
    curves = [one, other]
    forward = {
        epsilon: max(
            hockey_stick(p, q, epsilon)
            for p, q in (
                ([a * b for a in one.first for b in other.first], [a * b for a in one.second for b in other.second]),
                ([a * b for a in one.second for b in other.second], [a * b for a in one.first for b in other.first]),
            )
        )
        for epsilon in (0.1, 0.5, 1.0)
    }
    assert any(forward[epsilon] < exact(curves, epsilon) * 0.9 for epsilon in forward)
    assert all(compose_all(curves).delta_at(epsilon) >= exact(curves, epsilon) for epsilon in forward)


def test_equal_distributions_are_the_known_composition():
    curve = BinomialCount(Binomial(2000, Dyadic.at_least(0.1)))
    for epsilon in (0.1, 0.5, 1.0):
        assert compose_all([curve] * 5).delta_at(epsilon) == compose(curve, 5).delta_at(epsilon)
    assert compose_all([curve]) is curve


def test_the_order_does_not_matter_and_parts_may_be_composed_already():
    a, b = (
        BinomialCount(Binomial(2000, Dyadic.at_least(0.1))),
        BinomialHistogram(Binomial(5000, Dyadic.at_least(0.2))),
    )
    c = clones_curve(10**4, 2.0)
    forward, backward = compose_all([a, b, c, b]), compose_all([b, c, b, a])
    nested = compose_all([compose_all([a, b]), compose(b, 1), c])
    more = compose_all([compose(b, 2), compose_all([c, a])])
    for epsilon in (0.3, 1.0, 2.0):
        expected = forward.delta_at(epsilon)
        for other in (backward, nested, more):
            assert other.delta_at(epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-13)
    assert compose(forward, 2).delta_at(3.0) == pytest.approx(compose_all([forward, forward]).delta_at(3.0), rel=1e-9)


def test_more_releases_cost_more_and_less_than_epsilons_added():
    curves = [BinomialCount(Binomial(users, Dyadic.at_least(300 / users))) for users in (2000, 5000, 20_000, 100_000)]
    singles = [least_epsilon(curve, 1e-6) for curve in curves]
    previous = 0.0
    for count in range(1, 5):
        epsilon = least_epsilon(compose_all(curves[:count]), 1e-6)
        assert previous < epsilon <= sum(singles[:count]) * (1 + 1e-9)
        previous = epsilon
    assert previous < 0.75 * sum(singles)


def test_without_any_delta_epsilons_add_and_nothing_beyond_is_claimed():
    joint = compose_all([PureCurve(0.5), PureCurve(0.7), PureCurve(0.5)])
    assert joint.delta_at(1.7 * (1 + 1e-12)) == 0.0
    assert joint.delta_at(1.69) > 0
    twice = compose_all([PureCurve(0.5), PureCurve(0.5)])
    assert least_epsilon(twice, 1e-9) <= 1.0 * (1 + 1e-9)
    assert least_epsilon(compose_all([PureCurve(0.1)] * 100), 1e-6) < 7.0


class Blurred:
    """What a cap does at worst, exactly: outcomes of one distribution moved by so much in total variation."""

    def __init__(self, curve: Coin | Lopsided, moved: float) -> None:
        first, second = curve.pair
        self.pair = (
            tuple([(1 - moved) * p for p in first] + [moved, 0.0]),
            tuple([(1 - moved) * q for q in second] + [0.0, moved]),
        )


def test_caps_are_convolved_and_cover_what_they_can_do():
    coin, other = Coin(0.05), Lopsided()
    capped = [CappedCurve(coin, 100, 1e-5), CappedCurve(other, 50, 1e-5)]
    joint = compose_all(capped)
    blurred = [Blurred(coin, 1e-3), Blurred(other, 5e-4)]
    for step in range(20):
        assert joint.delta_at(0.1 * step) >= exact(blurred, 0.1 * step)


@pytest.mark.parametrize("releases", [2, 4])
def test_many_caps_cover_what_they_can_do_and_do_not_grow_with_the_total_epsilon(releases):
    """Added outside the convolution they would cost (1 + e^total) times the slack."""
    coin, moved = Coin(0.3), 1e-4
    curve = compose(CappedCurve(coin, 10, moved / 10), releases)
    for epsilon in (0.0, 1.0, 2.5):
        assert curve.delta_at(epsilon) >= exact([Blurred(coin, moved)] * releases, epsilon)
    total = releases * least_epsilon(coin, 1e-9)
    assert curve.delta_at(total) < 5.01 * releases * moved  # each is (ln 4, 5 moved)
    assert releases * moved * (1 + math.exp(total)) > 3 * curve.delta_at(total)


def test_the_delta_of_capped_releases_never_grows_with_epsilon():
    capped = CappedCurve(BinomialCount(Binomial(2000, Dyadic.at_least(0.1))), 2000, 1e-13)
    for curve in (compose_all([capped]), compose_all([capped, CappedCurve(clones_curve(10**4, 2.0), 10**4, 1e-14)])):
        deltas = [curve.delta_at(0.75 * step) for step in range(40)] + [curve.delta_at(600.0)]
        assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(deltas))
        assert deltas[-1] < 1e-7
    assert compose(capped, 3) == compose_all([capped] * 3)


def test_small_deltas_of_different_curves_have_an_epsilon():
    curves = [BinomialCount(Binomial(10**6, Dyadic(1, 2))), BinomialCount(Binomial(10**6, Dyadic(1, 3)))]
    assert 0 < compose_all(curves).delta_at(50.0) < CERTIFIED_DOWN_TO
    assert least_epsilon(compose_all(curves), 1e-12) < least_epsilon(compose_all(curves), 1e-30) < 0.1


@pytest.mark.parametrize("curves", [[], [Coin(0.1)] * (MAX_RELEASES + 1)])
def test_none_or_too_many_are_refused(curves):
    with pytest.raises(ParameterError):
        compose_all(curves)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    for curve in (compose_all([Coin(0.1), Coin(0.2)]), compose_all([CappedCurve(Coin(0.1), 1, 1e-9)])):
        with pytest.raises(ParameterError):
            curve.delta_at(epsilon)


ONE_AFTER_THE_OTHER = [
    Coin(0.1),
    BinomialHistogram(Binomial(2000, Dyadic.of(0.2))),
    Lopsided(),
    Coin(0.1),
    CappedCurve(BinomialCount(Binomial(1000, Dyadic.of(0.3))), 10, 1e-12),
    PureCurve(0.3),
    clones_curve(1000, 1.0),
    Coin(0.2),
    CappedCurve(BinomialCount(Binomial(1000, Dyadic.of(0.3))), 20, 1e-12),
    BinomialHistogram(Binomial(500, Dyadic.of(0.25))),
    Lopsided(),
]


COMPARED_AT = (2, 3, 6, 9, 11)
"""Numbers of releases: the first ones, with one capped release, with two, and all."""


def test_one_after_the_other_or_all_at_once():
    """From what is convolved already, or anew: the same."""
    running = ONE_AFTER_THE_OTHER[0]
    for place, curve in enumerate(ONE_AFTER_THE_OTHER[1:], start=2):
        running = followed_by(running, curve)
        if place not in COMPARED_AT:
            continue
        at_once = compose_all(ONE_AFTER_THE_OTHER[:place])
        for epsilon in (0.0, 1.0, 6.0):
            assert running.delta_at(epsilon) == pytest.approx(at_once.delta_at(epsilon), rel=1e-9, abs=1e-13)


def test_what_is_convolved_already_is_not_convolved_again(monkeypatch):
    before = compose_all([Coin(lead / 100) for lead in range(5, 15)])
    before.delta_at(1.0)
    computed, true = [], composition._losses_of
    monkeypatch.setattr(composition, "_losses_of", lambda curve: computed.append(curve) or true(curve))
    for curve in (Coin(0.1), Coin(0.05), Coin(0.14)):
        before = followed_by(before, curve)
        before.delta_at(1.0)
    assert computed == [Coin(0.1), Coin(0.05), Coin(0.14)]


@pytest.mark.parametrize("reach", [3, 40, 4000])
def test_divergences_on_the_grid_are_those_of_the_library(reach):
    (direction, *_) = BinomialHistogram(Binomial(300, Dyadic.of(0.2))).directions(1e-16)
    width = 1e-3
    masses = on_grid(direction[0], width)
    for pair in direction[1:]:
        masses = masses.compose(on_grid(pair, width))
    expected = masses.distribution().get_delta_for_epsilon([step * width for step in range(-reach, reach + 1)])
    assert masses.deltas(reach) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(("number", "most_seconds"), [(20, 6), pytest.param(50, 15, marks=pytest.mark.slow)])
def test_many_different_distributions_take_no_time_to_speak_of(number, most_seconds):
    """Processor time: for fifty about 2.5 seconds were seen; distribution after distribution it would be 36."""
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401  (its import is not what is timed)

    curve = compose_all([BinomialHistogram(Binomial(20_000 + 37 * step, Dyadic.of(0.01))) for step in range(number)])
    start = time.process_time()
    curve.delta_at(1.0)
    assert time.process_time() - start < most_seconds
