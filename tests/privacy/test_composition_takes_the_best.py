"""Several releases: the least of exact, curve and added bounds, held against exact enumeration over all data."""

import itertools
import math
from fractions import Fraction

import mpmath
import pytest

import shuffledp.privacy.composition as composition
from shuffledp.collection.wire.padding import DELTA_FOR_CAP, capped_guarantee, least_cap
from shuffledp.domain import Interval
from shuffledp.errors import ConditionError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount
from shuffledp.privacy.capping import CappedCurve
from shuffledp.privacy.cheu import FlippedCount
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.guarantee import Guarantee, least_delta, least_epsilon
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.protocols.count.cheu import CheuCount
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.sum.split_and_mix import SplitAndMixSum
from shuffledp.randomness import Dyadic


def split_and_mix(users):
    return SplitAndMixSum.calibrate(users=users, epsilon=1.0, delta=1e-8, domain=Interval(0, 1)).guarantee


def capped_noise(users=10_000, domain_size=10):
    """The distribution that the ledger books for a task of correlated noise at (1, 1e-8)."""
    protocol = CorrelatedNoiseHistogram.calibrate(
        users=users, epsilon=1.0, delta=1e-8 * (1 - DELTA_FOR_CAP), domain_size=domain_size
    )
    cap = least_cap(protocol, users=2 * users, epsilon=1.0, delta=1e-8 * DELTA_FOR_CAP)
    return capped_guarantee(protocol, cap=cap, users=2 * users, epsilon=1.0, delta=1e-8).curve


@pytest.mark.parametrize("users", [100, 1000, 5000])
def test_added_pairs_are_never_beaten(users):
    """Twelve times (1, 1e-8) is (12, 1.2e-7); the grid alone is above 12, or has no epsilon at all."""
    guarantee = split_and_mix(users)
    total = guarantee.after(12, delta=1.2e-7)
    assert total.epsilon <= 12 * (1 + 1e-9)
    assert total.delta_at(total.epsilon) <= 1.2e-7
    assert total.epsilon > 11.9


def test_where_no_epsilon_holds_it_is_said_from_which_delta_on_one_does():
    guarantee = split_and_mix(100)
    total = guarantee.after(12)
    assert total.epsilon == math.inf
    assert "One holds from delta = 3.7e-08 on." in total.sentence()
    assert 12 * guarantee.curve.distance <= total.least_delta < 3.7e-8
    assert math.isfinite(total.epsilon_at(total.least_delta))
    assert total.epsilon_at(total.least_delta * 0.99) == math.inf
    assert guarantee.after(12, delta=3.7e-8).epsilon < 12.1


def test_twelve_capped_releases_are_convolved():
    """An infinite epsilon where the slack of caps was added outside the convolution."""
    curve = capped_noise()
    assert isinstance(curve, CappedCurve)
    assert least_epsilon(compose(curve, 12), 1e-6) == pytest.approx(10.651, abs=2e-3)
    uncapped = least_epsilon(compose(curve.curve, 12), 1e-6)
    assert uncapped * (1 - 1e-3) < least_epsilon(compose(curve, 12), 1e-6) < uncapped * (1 + 1e-3)


def test_different_releases_are_at_most_the_added_pairs():
    curves = [capped_noise(), split_and_mix(1000).curve, BinomialCount(Binomial(2000, Dyadic.of(0.05)))]
    joint = compose_all(curves)
    for delta in (1e-5, 1e-7):
        added = math.fsum(least_epsilon(curve, delta / len(curves)) for curve in curves)
        assert least_epsilon(joint, delta) < added
        assert (
            composition._added_pairs(joint.parts).exact(added * 1.1) <= 1.05 * delta
        )  # the division of epsilon is a sensible one


@pytest.mark.parametrize(
    ("kind", "settings", "before", "reached"),
    [
        pytest.param(CheuCount, {"users": 1000, "epsilon": 0.9, "delta": 1e-6}, 1.3033, 1.1890, marks=pytest.mark.slow),
        (
            SampleAndThresholdHistogram,
            {"users": 10_000, "epsilon": 1.0, "delta": 1e-6, "domain_size": 10},
            1.2684,
            1.2065,
        ),
    ],
)
def test_two_releases_by_their_curve(kind, settings, before, reached):
    """Pairs that stand for many data sets, or few points of a curve, asked for more."""
    guarantee = kind.calibrate(**settings).guarantee
    total = guarantee.after(2)
    assert guarantee.epsilon_at(settings["delta"]) < total.epsilon <= reached < before


def flipped_masses(ones, zeros, flip):
    """The exact distribution of the number of ones after every bit is flipped with this probability."""
    masses = [Fraction(1)]
    for share in [1 - flip] * ones + [flip] * zeros:
        masses = [
            (masses[count] if count < len(masses) else 0) * (1 - share) + (masses[count - 1] if count else 0) * share
            for count in range(len(masses) + 1)
        ]
    return masses


def product_deltas(pairs, epsilons):
    """The exact divergences of independent pairs taken together."""
    growths = [Fraction(math.exp(epsilon)) for epsilon in epsilons]
    totals = [Fraction(0)] * len(growths)
    for outcome in itertools.product(*(list(zip(*pair, strict=True)) for pair in pairs)):
        p, q = math.prod(p for p, _ in outcome), math.prod(q for _, q in outcome)
        if p:
            totals = [total + max(p - growth * q, 0) for total, growth in zip(totals, growths, strict=True)]
    return [float(total) for total in totals]


def assert_never_below(curve, pairs, epsilons):
    """The largest exact divergence of two releases is at most what the curve says."""
    found = [product_deltas(both, epsilons) for both in itertools.combinations_with_replacement(pairs, 2)]
    for epsilon, exact in zip(epsilons, map(max, zip(*found, strict=True)), strict=True):
        assert exact <= curve.delta_at(epsilon)


@pytest.mark.parametrize(("users", "flip"), [(3, Fraction(1, 4)), (5, Fraction(1, 8)), (4, Fraction(3, 8))])
def test_counts_of_flipped_bits_over_all_data_of_two_releases(users, flip):
    """In each release any number of the others holds a 1, and the replacement goes either way."""
    curve = compose(FlippedCount(users, Dyadic.of(float(flip))), 2)
    pairs = []
    for ones in range(users):
        with_one = flipped_masses(ones + 1, users - 1 - ones, flip)
        with_zero = flipped_masses(ones, users - ones, flip)
        pairs += [(with_one, with_zero), (with_zero, with_one)]
    assert_never_below(curve, pairs, (0.0, 0.4, 1.0, 2.0, 3.5))


def shown_masses(count, sampling, threshold, length):
    masses = [Fraction(0)] * length
    for kept in range(count + 1):
        mass = math.comb(count, kept) * sampling**kept * (1 - sampling) ** (count - kept)
        masses[kept if kept >= threshold else 0] += mass
    return masses


def test_sampled_counts_over_data_of_two_releases():
    """One category in each release, of any size up to 6, that the user leaves or enters."""
    sampling, threshold = Fraction(1, 4), 2
    curve = compose(SampleAndThreshold(Dyadic.of(0.25), threshold), 2)
    shown = [shown_masses(count, sampling, threshold, 8) for count in range(8)]
    pairs = [(shown[count + 1], shown[count]) for count in range(7)]
    pairs += [(second, first) for first, second in pairs]
    assert_never_below(curve, pairs, (0.0, 0.2, 0.5, 1.0, 2.0))


class Broken:
    """A curve that is not a number from some epsilon on."""

    def __init__(self, start):
        self.start = start

    def delta_at(self, epsilon):
        return math.nan if epsilon >= self.start else 0.1 * math.exp(-epsilon)


@pytest.mark.parametrize("start", [0.0, 0.5, 30.0])
def test_what_is_not_a_number_is_refused(start):
    with pytest.raises(ConditionError):
        compose(Broken(start), 3).delta_at(1.0)
    with pytest.raises(ConditionError):
        compose_all([Broken(start), BinomialCount(Binomial(100, Dyadic.of(0.3)))]).delta_at(1.0)
    with pytest.raises(ConditionError):
        least_delta(Broken(start))


def test_the_guarantee_of_releases_says_its_least_delta():
    curve = SampleAndThreshold(Dyadic.of(0.5), 5)
    guarantee = Guarantee(epsilon=1.0, delta=0.1, users=10, honest_users=1, curve=curve, theorem="none")
    assert guarantee.least_delta == curve.delta_at(700.0)


def test_two_counts_of_flipped_bits_are_close_to_the_worst_data():
    """If all others hold 0 and one user changes from 1 to 0 in both releases: never below that, and within 0.5 %."""
    users = 300
    guarantee = CheuCount.calibrate(users=users, epsilon=1.0, delta=1e-6).guarantee
    flip = guarantee.curve.flip.fraction
    with mpmath.workdps(40):
        p = mpmath.mpf(flip.numerator) / flip.denominator
        others = [mpmath.binomial(users - 1, k) * p**k * (1 - p) ** (users - 1 - k) for k in range(81)]
        zero = [a * (1 - p) + b * p for a, b in zip(others, [0, *others], strict=False)]
        one = [a * p + b * (1 - p) for a, b in zip(others, [0, *others], strict=False)]
        twice = guarantee.after(2).epsilon
        exact = {}
        for epsilon in (0.995 * twice, twice):
            growth = mpmath.exp(epsilon)
            terms = (
                a * b - growth * c * d for (a, c), (b, d) in itertools.product(zip(zero, one, strict=True), repeat=2)
            )
            exact[epsilon] = mpmath.fsum(term for term in terms if term > 0)
    assert exact[twice] <= 1e-6 < exact[0.995 * twice]


def test_releases_without_an_epsilon_at_their_delta_have_one_at_more():
    """Twelve releases at (1, 1e-8): (12, 1.2e-7) by basic composition."""
    guarantee = split_and_mix(100).curve
    twelve = compose(guarantee, 12)
    assert least_epsilon(twelve, 1e-8) == math.inf
    assert 1e-8 < least_delta(twelve) < 1.2e-7
    assert least_epsilon(twelve, 1.2e-7) <= 12
