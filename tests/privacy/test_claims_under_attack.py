"""Claims that an attack found wanting once: each stays mended."""

import math

import pytest

from shuffledp.errors import ParameterError
from shuffledp.privacy.amplification.privacy_blanket import bennett_delta
from shuffledp.privacy.pure import PureLaw
from shuffledp.protocols.counting.cheu import CheuCount
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.protocols.terms import Terms


def test_what_is_left_under_collusion_adds_up_over_releases():
    once = CheuCount.calibrate(users=10_000, epsilon=1.0, delta=1e-6).guarantee
    assert once.after(10).local_epsilon == pytest.approx(10 * once.local_epsilon)
    assert once.after(1).local_epsilon == once.local_epsilon


def test_a_law_that_is_not_a_number_proves_nothing():
    class Nothing:
        def delta_at(self, _):
            return math.nan

    with pytest.raises(ParameterError, match="more than the claimed"):
        Terms(10, 1.0, 1e-6).guarantee(Nothing(), theorem="none")
    with pytest.raises(ParameterError, match="more than the claimed"):
        Terms(10, 1.0, 0.0).local_guarantee(math.nan, theorem="none")


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
    assert PureLaw(800.0).delta_at(0.0) <= 1.0
