"""Bounds of distribution functions and of real numbers: never on the wrong side, however close one looks."""

import sys
from fractions import Fraction

import mpmath
import pytest

from shuffledp.errors import ParameterError
from shuffledp.randomness import Dyadic, unimodal
from shuffledp.randomness.computable import NegativeLogarithm, Rational
from shuffledp.randomness.logarithmic import _cdf_bounds as logarithmic_bounds
from shuffledp.randomness.negative_binomial import _cdf_bounds as negative_binomial_bounds
from shuffledp.randomness.poisson import _cdf_bounds as poisson_bounds

logarithmic_module = sys.modules[logarithmic_bounds.__module__]  # the package's name is the function

DIGITS = 250


def real(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def check_bounds(bounds, precision, first_probabilities, places, apart=4):
    """Every bound at ``places`` against sums of the true probabilities, and at most a few units apart."""
    scale = mpmath.mpf(2) ** precision
    total, k = mpmath.mpf(0), 0
    for place in places:
        while k <= bounds.first + place:
            total += first_probabilities(k)
            k += 1
        lower, upper = bounds.lower[place], bounds.upper[place]
        assert lower <= total * scale <= upper
        assert upper - lower <= apart


@pytest.mark.parametrize("precision", [96, 160, 300])
@pytest.mark.parametrize(
    ("shape", "ratio"),
    [
        (Fraction(1, 10**9), Dyadic.at_least(0.5)),
        (Fraction(16, 10**6), Dyadic.at_least(0.95)),
        (Fraction(1, 10**40), Dyadic.at_least(0.6)),
        (Fraction(7, 3), Dyadic(3, 3)),
        (Fraction(1), Dyadic(1, 1)),
        (Fraction(50), Dyadic.at_least(0.9)),
        (Fraction(1000), Dyadic(1, 10)),
    ],
)
def test_negative_binomial_bounds_enclose_the_truth(shape, ratio, precision):
    bounds = negative_binomial_bounds(shape, ratio, precision)
    with mpmath.workdps(DIGITS):
        s, r = real(shape), real(ratio.fraction)
        start = (1 - r) ** s

        def probability(k):
            return start * mpmath.rf(s, k) / mpmath.factorial(k) * r**k

        check_bounds(bounds, precision, probability, range(min(600, len(bounds.lower))))
        beyond = 1 - sum(probability(k) for k in range(bounds.first + len(bounds.lower))) if shape == 1 else 0
        assert beyond * mpmath.mpf(2) ** precision < 1


@pytest.mark.parametrize("precision", [96, 200])
@pytest.mark.parametrize(
    "rate",
    [
        Rational(Fraction(1, 3)),
        Rational(Fraction(40)),
        Rational(Fraction(1, 10**30)),
        NegativeLogarithm(Fraction(5, 7), Dyadic.at_least(0.95)),
        NegativeLogarithm(Fraction(400), Dyadic.at_least(0.6)),
        NegativeLogarithm(Fraction(1, 10**12), Dyadic(1, 64)),
    ],
)
def test_poisson_bounds_enclose_the_truth(rate, precision):
    bounds = poisson_bounds(rate, precision)
    with mpmath.workdps(DIGITS):
        if isinstance(rate, Rational):
            mean = real(rate.value)
        else:
            mean = -real(rate.factor) * mpmath.log(1 - real(rate.ratio.fraction))
        start = mpmath.exp(-mean)
        check_bounds(
            bounds, precision, lambda k: start * mean**k / mpmath.factorial(k), range(min(800, len(bounds.lower)))
        )


@pytest.mark.parametrize("precision", [96, 200])
@pytest.mark.parametrize("ratio", [Dyadic(1, 64), Dyadic(1, 1), Dyadic.at_least(0.95), Dyadic.at_least(0.999)])
def test_logarithmic_bounds_enclose_the_truth(ratio, precision):
    length = 300
    bounds = logarithmic_bounds(ratio, length, precision)
    assert bounds.first == 1
    assert bounds.lower[-1] == bounds.upper[-1] == 1 << precision
    with mpmath.workdps(DIGITS):
        r = real(ratio.fraction)
        scale = -mpmath.log(1 - r)
        check_bounds(bounds, precision, lambda k: r**k / k / scale if k else mpmath.mpf(0), range(length))


def test_the_rounding_allowance_is_enough_without_spare_bits(monkeypatch):
    """With no bits to spare the errors of the weights reach the bounds, which must allow for all of them."""
    monkeypatch.setattr(unimodal, "_SPARE_BITS", 0)
    monkeypatch.setattr(logarithmic_module, "_SPARE_BITS", 0)
    precision, ratio = 24, Dyadic.at_least(0.95)
    with mpmath.workdps(DIGITS):
        r, s = real(ratio.fraction), mpmath.mpf(1) / 3
        clusters = NegativeLogarithm(Fraction(10), ratio)
        mean = -10 * mpmath.log(1 - r)
        cases = [
            (
                negative_binomial_bounds(Fraction(1, 3), ratio, precision),
                lambda k: (1 - r) ** s * mpmath.rf(s, k) / mpmath.factorial(k) * r**k,
            ),
            (poisson_bounds(clusters, precision), lambda k: mpmath.exp(-mean) * mean**k / mpmath.factorial(k)),
            (logarithmic_bounds(ratio, 300, precision), lambda k: r**k / k / (mean / 10) if k else mpmath.mpf(0)),
        ]
        for bounds, probability in cases:
            check_bounds(bounds, precision, probability, range(min(300, len(bounds.lower))), apart=1 << 20)


def test_a_bound_taken_for_another_ratio_is_noticed():
    """The very check above must reject a distribution that is off by one part in 2^60."""
    ratio, near = Dyadic(3 << 60, 62), Dyadic((3 << 60) + 1, 62)
    bounds = negative_binomial_bounds(Fraction(1, 2), near, 96)
    with mpmath.workdps(DIGITS):
        s, r = mpmath.mpf(1) / 2, real(ratio.fraction)
        with pytest.raises(AssertionError):
            check_bounds(bounds, 96, lambda k: (1 - r) ** s * mpmath.rf(s, k) / mpmath.factorial(k) * r**k, range(5))


@pytest.mark.parametrize("ratio", [Dyadic(1, 64), Dyadic(1, 1), Dyadic.at_least(0.6), Dyadic((1 << 64) - 1, 64)])
@pytest.mark.parametrize("factor", [Fraction(1, 10**20), Fraction(22, 7), Fraction(10**15)])
@pytest.mark.parametrize("precision", [8, 64, 500])
def test_logarithms_lie_between_their_bounds(ratio, factor, precision):
    low, high = NegativeLogarithm(factor, ratio).between(precision)
    with mpmath.workdps(DIGITS):
        truth = -real(factor) * mpmath.log(1 - real(ratio.fraction))
        assert real(low) < truth < real(high)
        assert real(high - low) <= truth * mpmath.mpf(2) ** -precision


def test_numbers_that_are_exact_or_impossible():
    assert NegativeLogarithm(Fraction(3), Dyadic(0, 4)).between(64) == (0, 0)
    assert NegativeLogarithm(Fraction(3), Dyadic(1, 2)).share(6) == NegativeLogarithm(Fraction(1, 2), Dyadic(1, 2))
    assert Rational(Fraction(1, 3)).share(2).between(1) == (Fraction(1, 6), Fraction(1, 6))
    for make in (
        lambda: Rational(Fraction(-1)),
        lambda: NegativeLogarithm(Fraction(-1), Dyadic(1, 1)),
        lambda: NegativeLogarithm(Fraction(1), Dyadic(1, 0)),
    ):
        with pytest.raises(ParameterError):
            make()
