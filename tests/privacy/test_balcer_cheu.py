"""The least noise: truly private, and nothing smaller is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.checks import MAX_USERS, check_users
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.balcer_cheu import least_users, paper_noise, tight_noise
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.calibration import honest_count
from shuffledp.randomness import Dyadic

GOLDEN = [
    (BinomialCount, 1.0, 1e-6, 10_000, 34.0676797444),
    (BinomialHistogram, 1.0, 1e-6, 10_000, 42.7467595825),
    (BinomialCount, 0.5, 1e-6, 10_000, 90.2792017469),
    (BinomialHistogram, 0.5, 1e-6, 10_000, 137.712730883),
    (BinomialCount, 0.25, 1e-8, 1_000_000, 431.443848743),
    (BinomialHistogram, 0.25, 1e-8, 1_000_000, 740.79633147),
]


@pytest.mark.parametrize(("curve", "epsilon", "delta", "users", "mean"), GOLDEN)
def test_golden_means(curve, epsilon, delta, users, mean):
    assert users * float(tight_noise(users, epsilon, delta, curve)) == pytest.approx(mean, rel=1e-8)


LEAST_RATES = [  # users, epsilon, delta, rate: found by an independent fine scan
    (200, 1.0, 1e-6, 0.17490562),
    (1000, 2.0, 0.01, 0.00459458),
    (1000, 5.0, 1e-6, 0.01372051),
    (85, 1.0, 1e-6, 0.4514),
    (42, 2.0, 1e-6, 0.3565),
    (43, 2.0, 1e-8, 0.4858),
]


@pytest.mark.parametrize(("users", "epsilon", "delta", "rate"), LEAST_RATES)
def test_least_rates_despite_ripples(users, epsilon, delta, rate):
    """The last three have a larger rate that is not private; plain bisection would miss the smaller one."""
    assert float(tight_noise(users, epsilon, delta, BinomialCount)) == pytest.approx(rate, rel=4e-4)


@settings(max_examples=15)
@given(
    users=st.one_of(st.integers(2, 200), st.integers(200, 10**12)),
    epsilon=st.floats(0.01, 8),
    exponent=st.floats(-14, -0.3),
    curve=st.sampled_from([BinomialCount, BinomialHistogram]),
)
def test_what_is_found_is_private_and_least(users, epsilon, exponent, curve):
    delta = 10**exponent
    try:
        rate = tight_noise(users, epsilon, delta, curve)
    except InfeasibleError:
        assert curve(Binomial(users, Dyadic(1, 1))).delta_at(epsilon) > delta
        return
    assert 0 < float(rate) <= 0.5
    assert curve(Binomial(users, rate)).delta_at(epsilon) <= delta
    smaller = Dyadic.at_least(float(rate) * 0.995)
    assert curve(Binomial(users, smaller)).delta_at(epsilon) > delta * 0.999


def test_the_error_says_how_many_users_are_needed():
    with pytest.raises(InfeasibleError, match="148 are needed"):
        tight_noise(100, 1.0, 1e-6, BinomialHistogram)
    tight_noise(148, 1.0, 1e-6, BinomialHistogram)
    with pytest.raises(InfeasibleError):
        tight_noise(147, 1.0, 1e-6, BinomialHistogram)


@settings(max_examples=4)
@given(epsilon=st.floats(0.2, 4), exponent=st.floats(-10, -1))
def test_least_users_are_least(epsilon, exponent):
    delta = 10**exponent
    users = least_users(epsilon, delta, BinomialHistogram)
    tight_noise(users, epsilon, delta, BinomialHistogram)
    if users > 2:
        with pytest.raises(InfeasibleError):
            tight_noise(users - 1, epsilon, delta, BinomialHistogram)


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize("epsilon", [0.3, 0.9, 1.0])
def test_the_paper_is_private_with_room_to_spare(coordinates, epsilon):
    curve = {1: BinomialCount, 2: BinomialHistogram}[coordinates]
    rate = paper_noise(200_000, epsilon, 1e-6, coordinates=coordinates)
    expected = 50 * coordinates**2 * math.log(2 * coordinates / 1e-6) / epsilon**2 / 200_000
    assert float(rate) == pytest.approx(expected, rel=1e-12)
    assert float(rate) >= expected
    assert curve(Binomial(200_000, rate)).delta_at(epsilon) < 1e-20


def test_the_conditions_of_the_theorems_are_checked():
    with pytest.raises(ConditionError, match="epsilon <= 1"):
        paper_noise(10**6, 1.5, 1e-6, coordinates=1)
    with pytest.raises(ConditionError, match="epsilon <= 2"):
        paper_noise(10**6, 2.5, 1e-6, coordinates=2)
    with pytest.raises(ConditionError, match="1,451 users"):
        paper_noise(1450, 1.0, 1e-6, coordinates=1)
    assert float(paper_noise(1451, 1.0, 1e-6, coordinates=1)) <= 0.5
    with pytest.raises(ConditionError, match="6,081 users"):
        paper_noise(6080, 1.0, 1e-6, coordinates=2)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 0.1), (-1, 0.1), (math.nan, 0.1), (math.inf, 0.1), (1, 0), (1, 1), (1, math.nan)]
)
def test_meaningless_targets_are_refused(epsilon, delta):
    with pytest.raises(ParameterError):
        tight_noise(100, epsilon, delta, BinomialCount)


@pytest.mark.parametrize("curve", [BinomialCount, BinomialHistogram])
@pytest.mark.parametrize(
    "delta",
    [*(pytest.param(delta, marks=pytest.mark.slow) for delta in (0.7, 0.77, 0.8, 1 - 1e-6)), 0.95, 1 - 1e-12],
)
@pytest.mark.parametrize("users", [2, 50, 1000, 10**9])
def test_delta_near_one(curve, delta, users):
    """Hardly any noise, but an answer, and at once."""
    for epsilon in (0.01, 1.0, 6.0):
        try:
            rate = tight_noise(users, epsilon, delta, curve)
        except InfeasibleError:
            assert users == 2
            continue
        assert curve(Binomial(users, rate)).delta_at(epsilon) <= delta


@pytest.mark.parametrize("curve", [BinomialCount, BinomialHistogram])
def test_delta_near_zero(curve):
    rate = tight_noise(10**9, 1.0, 1e-300, curve)
    assert curve(Binomial(10**9, rate)).delta_at(1.0) <= 1e-300


@pytest.mark.parametrize("users", [10**12, 10**14, MAX_USERS])
def test_the_noise_no_longer_depends_on_very_many_users(users):
    """Bin(n, m/n) is all but Poisson: the means of the limit, at the largest number of users too."""
    assert users * float(tight_noise(users, 1.0, 1e-6, BinomialCount)) == pytest.approx(34.0679, rel=1e-4)
    assert users * float(tight_noise(users, 1.0, 1e-6, BinomialHistogram)) == pytest.approx(42.6545, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-200, 1e-6), (1e-300, 0.5), (1.0, 1e-320)])
def test_targets_too_small_to_compute_with_are_refused(epsilon, delta):
    for calibrate in (lambda *a: tight_noise(*a, BinomialCount), lambda *a: paper_noise(*a, coordinates=2)):
        with pytest.raises(ParameterError, match="too small"):
            calibrate(10**6, epsilon, delta)


@pytest.mark.parametrize("users", [MAX_USERS + 1, 1000.5, "many", 1, 0, -3])
def test_meaningless_numbers_of_users_are_refused(users):
    with pytest.raises(ParameterError):
        check_users(users, 1.0)


def test_honest_users_are_rounded_down():
    assert honest_count(30_000, 0.6) == 18_000
    assert honest_count(10_000, 0.29) == 2_900
    assert honest_count(10, 0.99) == 9
    assert honest_count(10**12, 1.0) == 10**12
    assert honest_count(3, 0.3) == 0


def test_delta_does_fall_with_noise_for_histograms():
    """No ripple was ever found for the histogram, which the search relies on only for its last digits."""
    for users in (20, 60, 150):
        deltas = [
            BinomialHistogram(Binomial(users, Dyadic.at_least(rate))).delta_at(1.0)
            for rate in np.linspace(0.02, 0.5, 200)
        ]
        assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(deltas))
