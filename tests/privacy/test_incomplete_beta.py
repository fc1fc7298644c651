"""The incomplete beta function against exact rationals, a series in whole numbers, ball arithmetic and SciPy."""

import math
import time
from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.incomplete_beta import betainc, betaincc
from shuffledp.randomness import Dyadic

ACCURACY = 1e-12
"""Of the small side, relatively."""
DIGITS = 1 << 160


def small_side(a: int, b: int, x: Fraction, *, upper: bool) -> mpmath.mpf:
    """I_x(a, b), or 1 - I_x(a, b), as a sum of binomial masses in whole numbers, with forty digits.

    I_x(a, b) = Pr[Bin(a + b - 1, x) >= a], and each mass follows from the one before.
    """
    if upper:
        a, b, x = b, a, 1 - x
    odds = x / (1 - x)
    up, down = odds.numerator, odds.denominator
    term, total, j = DIGITS, 0, 0
    while term > total >> 70:
        total += term
        term = term * (up * (b - 1 - j)) // (down * (a + 1 + j))
        j += 1
    with mpmath.workdps(60):
        p = mpmath.mpf(x.numerator) / x.denominator
        ways = mpmath.loggamma(a + b) - mpmath.loggamma(a + 1) - mpmath.loggamma(b)
        return mpmath.exp(ways + a * mpmath.log(p) + (b - 1) * mpmath.log1p(-p)) * total / DIGITS


def error_at(a: int, b: int, x: float, *, nudge: float = 0.0) -> float:
    """The relative error on the small side, the larger one of a single number and of an array."""
    upper = Fraction(a) < (a + b) * Fraction(x)
    exact = small_side(a, b, Fraction(x), upper=upper)
    function = betaincc if upper else betainc
    many = function(np.full(20, float(a)), float(b), x * (1 + nudge))
    assert np.ptp(many) == 0
    found = float(function(a, b, x * (1 + nudge))), float(many[7])
    return max(abs(float(each / exact - 1)) for each in found) if exact > 1e-300 else 0.0


@settings(max_examples=100)
@given(a=st.integers(1, 60), b=st.integers(1, 60), numerator=st.integers(0, 4096))
@example(a=1, b=1, numerator=2048)
@example(a=60, b=1, numerator=4095)
def test_small_ones_are_exact_sums(a, b, numerator):
    trials, x = a + b - 1, Fraction(numerator, 4096)
    masses = [comb(trials, k) * x**k * (1 - x) ** (trials - k) for k in range(trials + 1)]
    above, below = float(sum(masses[a:])), float(sum(masses[:a]))
    for repeat in (1, 9):  # one by one, and as an array
        args = np.full(repeat, a), np.full(repeat, b), float(x)
        assert betainc(*args) == pytest.approx(np.full(repeat, above), rel=1e-12, abs=3e-16)
        assert betaincc(*args) == pytest.approx(np.full(repeat, below), rel=1e-12, abs=3e-16)
    if 0 < numerator < 4096:
        assert error_at(a, b, float(x)) < ACCURACY


@pytest.mark.parametrize("trials", [30, 1000, 7_000, 10**6, 10**8])
@pytest.mark.parametrize("rate", [0.5, 0.3, 0.02, 0.97, 1e-4, 1e-7])
def test_from_the_mean_to_the_far_tails(trials, rate):
    deviation = math.sqrt(trials * rate * (1 - rate))
    for steps in (-37, -20, -8, -3.1, -2.9, -1, 0, 0.1, 2, 3, 3.2, 12, 36):
        if deviation > 500 and abs(steps) < 1:
            continue  # too many terms for the series; below by ball arithmetic
        a = round(trials * rate + steps * deviation)
        if 1 <= a < trials:
            assert error_at(a, trials - a, rate) < ACCURACY


def test_the_test_sees_an_error():
    assert error_at(5200, 4800, 0.5) < ACCURACY / 10
    assert error_at(5200, 4800, 0.5, nudge=1e-14) > ACCURACY


BY_BALLS = [
    (25, 511414000, 8.823e-08, betaincc, 0.00042322100089545891079),
    (29, 5, 3.023e-11, betainc, 3.5046277316099248785e-301),
    (500000000001, 500000000000, 0.5, betainc, 0.49999960105771959867),
    (500001500000, 499998500001, 0.5, betainc, 0.0013499024634762905294),
    (500004000000, 499996000001, 0.5, betainc, 6.2210110950627408400e-16),
    (500018000000, 499982000001, 0.5, betainc, 4.1827741735280371250e-284),
    (100001000000, 900000000000, 0.1, betainc, 0.0013499263464492454060),
    (100009000000, 900000000000, 0.1, betainc, 7.4792008166022642939e-161),
    (1000, 1000000000000, 9e-10, betainc, 0.00054990232198820664356),
    (1050, 1000000000000, 1e-09, betainc, 0.059628332640539175136),
    (69796000000, 61498500000, 0.5316, betaincc, 0.19382508593642697222),
    (1000000, 3, 0.9995, betainc, 7.8904496819674068651e-213),
    (999000, 1001, 0.9985, betainc, 2.9223064637358222949e-43),
    (0.5, 40.0, 0.0001, betainc, 0.071049923365277614016),
    (2.25, 1000000.5, 1e-08, betainc, 1.2319183400169019814e-5),
]
"""By the continued fraction in balls of 256 bits; SciPy 1.17 is off by 1e-11 and 7e-9 at the first two."""


@pytest.mark.parametrize(("a", "b", "x", "function", "exact"), BY_BALLS)
def test_against_ball_arithmetic(a, b, x, function, exact):
    assert float(function(a, b, x)) == pytest.approx(exact, rel=ACCURACY / 4, abs=0)
    assert function(np.full(9, a), b, x) == pytest.approx(np.full(9, exact), rel=ACCURACY / 4, abs=0)


def test_the_allowance_of_binomial_tails_covers_it():
    """With an exact probability that no float holds, at all sizes of the tail; the margin is fivefold."""
    for trials, mean in ((10**4, 3000), (10**6, 300), (10**6, 7 * 10**5), (10**8, 40), (10**8, 10**4)):
        curve = Binomial(trials, Dyadic.at_least(mean / trials + 2.0**-60))
        for steps in (-30, -8, -3, 3, 8, 30):
            k = round(curve.mean + steps * curve.deviation)
            if not 0 <= k < trials or (abs(steps) < 8 and curve.deviation > 1000):
                continue
            a, b = (k, trials - k + 1) if steps > 0 else (k + 1, trials - k)
            exact = small_side(a, b, curve.probability.fraction, upper=steps < 0)
            found = curve.upper_tail(k) if steps > 0 else curve.lower_tail(k)
            if exact > 1e-290:
                assert abs(float(float(found) / exact - 1)) <= float(curve.tail_error(k)) / 5


@settings(max_examples=200)
@given(
    a=st.floats(0.01, 1e4),
    b=st.floats(0.01, 1e4),
    x=st.floats(1e-290, 1.0),
)
def test_with_scipy_on_both_sides(a, b, x):
    """SciPy is the less accurate one, more so in the tails."""
    for ours, theirs in ((betainc, scipy.special.betainc), (betaincc, scipy.special.betaincc)):
        assert float(ours(a, b, x)) == pytest.approx(float(theirs(a, b, x)), rel=1e-7, abs=1e-11)
    assert betainc(a, b, x) + betaincc(a, b, x) == pytest.approx(1.0, abs=2e-16)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(1e-9, 1 - 1e-9)), min_size=9, max_size=40
    )
)
def test_one_by_one_and_together_agree(entries):
    a, b, x = (np.array(each, dtype=np.float64) for each in zip(*entries, strict=True))
    for function in (betainc, betaincc):
        single = np.array([function(*entry) for entry in entries])
        assert function(a, b, x) == pytest.approx(single, rel=3e-13, abs=1e-300)


def test_neighbours_differ_by_a_mass():
    """I_x(a, b + 1) - I_x(a + 1, b) = Pr[Bin(a + b, x) = a], where both are small."""
    trials = 10**6
    curve = Binomial(trials, Dyadic.of(0.25))
    k = np.arange(250_000, 265_000)
    tails = betainc(k.astype(np.float64), trials - k + 1.0, 0.25)
    assert np.all(np.diff(tails) < 0)
    drops = -np.diff(tails)
    assert np.all(np.abs(drops - curve.pmf(k[:-1])) <= 1e-12 * tails[:-1])


def test_edges():
    assert (betainc(3, 4, 0.0), betaincc(3, 4, 0.0), betainc(3, 4, 1.0), betaincc(3, 4, 1.0)) == (0, 1, 1, 0)
    x = np.linspace(0, 1, 30)
    assert betainc(1, 1, x) == pytest.approx(x, rel=1e-15)
    assert betainc(np.ones((2, 1)), np.ones(5), 0.25).shape == (2, 5)
    assert betainc(np.ones((3, 1)), np.ones((1, 7)), 0.25).shape == (3, 7)
    assert betainc(np.empty(0), 1.0, 0.5).shape == (0,)
    assert np.ndim(betainc(2, 3, 0.5)) == 0
    assert betainc(np.full(9, 5.0), 3.0, 1e-320)[0] == 0 == betainc(5.0, 3.0, 1e-320)
    for x in (1e-305, 1e-300, 1e-280):  # I_x(a, 1) = x^a
        assert betainc(np.full(9, 0.25), 1.0, x) == pytest.approx(np.full(9, x**0.25), rel=1e-12)
        assert betainc(0.25, 1.0, x) == pytest.approx(x**0.25, rel=1e-12)
    assert betainc(10.0**15, 10.0**15, 0.5) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "x"), [(0, 1, 0.5), (1, -1, 0.5), (1, 1, -0.1), (1, 1, 1.1), (math.nan, 1, 0.5), (1, math.inf, 0.5)]
)
@pytest.mark.parametrize("repeat", [1, 9])
def test_nonsense_is_refused(a, b, x, repeat):
    with pytest.raises(ParameterError):
        betainc(np.full(repeat, a), b, x)


@pytest.mark.parametrize("trials", [10**4, 10**7, 10**12])
def test_time_does_not_grow_with_the_number_of_trials(trials):
    """About a microsecond a number, at the mean as well; what is allowed is thirty times as much."""
    k = np.round(trials / 2 + np.linspace(-9, 9, 20_000) * math.sqrt(trials) / 2)
    start = time.process_time()
    betainc(k, trials - k + 1, 0.5)
    assert time.process_time() - start < 0.6
    start = time.process_time()
    for each in k[::200].tolist():
        betainc(each, trials - each + 1, 0.5)
    assert time.process_time() - start < 0.2
