"""The difference of two negative binomial numbers, against its sum by the definition."""

from fractions import Fraction

import numpy as np
import pytest

from shuffledp.privacy.negative_binomial import NegativeBinomial, NegativeBinomialDifference
from shuffledp.randomness import Dyadic


@pytest.mark.parametrize(("shape", "ratio"), [(Fraction(1), 0.5), (Fraction(5, 2), 0.75), (Fraction(1, 3), 0.9)])
def test_tails_of_the_difference(shape, ratio):
    pmf = NegativeBinomialDifference(NegativeBinomial(shape, Dyadic.of(ratio)))
    masses = [(1 - ratio) ** float(shape)]
    for k in range(600):
        masses.append(masses[-1] * ratio * (k + float(shape)) / (k + 1))
    table = np.outer(masses, masses)
    difference = np.subtract.outer(np.arange(601), np.arange(601))
    assert pmf.mean == 0
    assert pmf.variance == pytest.approx(float((table * difference**2).sum()), rel=1e-6)
    for k in (-20, -1, 0, 1, 2, 7, 40):
        exact = float(table[difference >= k].sum())
        assert exact * (1 - 1e-12) <= pmf.upper_tail(k) == pytest.approx(exact, rel=1e-8, abs=1e-16)
        assert pmf.lower_tail(-k) == pmf.upper_tail(k)
