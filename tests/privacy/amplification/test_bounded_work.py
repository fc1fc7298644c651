"""The work for the curve of shuffled randomized response is bounded: a coarser grid gives a valid bound too."""

import math

import pytest
import scipy.fft

from shuffledp.privacy.amplification import positive_part
from shuffledp.privacy.amplification.exact import two_response_delta
from shuffledp.privacy.amplification.positive_part import MAX_POINTS, ScaledNoise, TooManyPointsError, fast_length
from shuffledp.privacy.amplification.privacy_blanket import BlanketCurve
from shuffledp.privacy.amplification.randomized_response import RandomizedResponseCurve
from shuffledp.privacy.binomial import Binomial
from shuffledp.randomness import Dyadic

HOSTILE = [  # users, blanket, values, epsilon: up to 1.6e8 points, half a minute of processor time
    (22_119_731_514_511, Dyadic((1 << 40) - 3, 40), 3, 0.0),
    (83_490_342_758_101, Dyadic((1 << 40) - 36, 40), 3, 1e-12),
    (26_452_629_042_542, Dyadic(9007199227939721, 53), 3, 6.36e-14),
    (10**15, Dyadic(170141183460469212842221372237303250944, 127), 64, 0.0),
    (10**15, Dyadic(7, 3), 2, 4.83e-11),
]


@pytest.mark.parametrize(("users", "blanket", "values", "epsilon"), HOSTILE)
def test_fourier_transforms_have_a_bounded_number_of_points(users, blanket, values, epsilon, monkeypatch):
    points = []

    def length_of(size):
        assert size <= MAX_POINTS + 4
        points.append(size)
        return even_length(size)

    even_length = positive_part._even_fast_length
    monkeypatch.setattr(positive_part, "_even_fast_length", length_of)
    delta = RandomizedResponseCurve(users, blanket, values).delta_at(epsilon)
    assert 0 < delta < 1e-6
    assert points


@pytest.mark.parametrize("most", [1 << 6, 1 << 9, 1 << 12])
@pytest.mark.parametrize("users", [60, 150])
def test_bounds_of_coarser_grids_hold(users, most, monkeypatch):
    """Against the exact divergence of two answers."""
    blanket, flip = Dyadic(3, 2), Dyadic(3, 3)
    monkeypatch.setattr("shuffledp.privacy.amplification.privacy_blanket._DIRECT_POINTS", 0)
    fine = [BlanketCurve(users, blanket, 2).delta_at(epsilon) for epsilon in (0.0, 0.1, 0.2)]
    monkeypatch.setattr(positive_part, "MAX_POINTS", most)
    monkeypatch.setattr("shuffledp.privacy.amplification.privacy_blanket.MAX_POINTS", most)
    for epsilon, delta in zip((0.0, 0.1, 0.2), fine, strict=True):
        coarse = BlanketCurve(users, blanket, 2).delta_at(epsilon)
        assert delta * (1 - 1e-6) <= coarse <= 1
        assert two_response_delta(users, flip, epsilon) <= coarse


@pytest.mark.parametrize("scale", [1e-3, 1e9, math.inf, math.nan])
def test_noise_with_too_many_points_is_refused(scale):
    noise = ScaledNoise(Binomial(10**15, Dyadic(1, 1)), scale)
    with pytest.raises(TooManyPointsError, match="at most 4,194,304"):
        noise.cumulant(0.1)


def test_fast_lengths():
    for size in [*range(1, 400), 1000, 4097, 65_537, 10**6 + 1, 123_456_789]:
        assert fast_length(size) == scipy.fft.next_fast_len(size, real=True)
