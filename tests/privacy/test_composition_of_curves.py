"""Privacy curves without a known pair compose too: above one release, below added epsilons, in little time."""

import time

import pytest

from shuffledp.privacy.amplification import RandomizedResponseCurve, clones_curve, least_slots
from shuffledp.privacy.guarantee import ComposableCurve, Guarantee, least_epsilon
from shuffledp.randomness import Dyadic

DELTA = 1e-6

LAWS = {
    "clones, 1e4 users": lambda: clones_curve(10**4, 2.0),
    "clones, 1e6 users": lambda: clones_curve(10**6, 4.0),
    "uniform blanket": lambda: least_slots(10**6, 1000, 1.0, DELTA).curve(10**6, 1000),
    "two responses": lambda: RandomizedResponseCurve(100, Dyadic.of(0.5), 2),
}


@pytest.mark.parametrize("name", LAWS)
def test_three_releases_of_a_curve(name):
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401  (its import is not what is timed)

    curve = LAWS[name]()
    assert not isinstance(curve, ComposableCurve)
    once = least_epsilon(curve, DELTA)
    guarantee = Guarantee(epsilon=once, delta=DELTA, users=10, honest_users=10, curve=curve, theorem="a curve")
    start = time.process_time()
    thrice = guarantee.after(3)
    assert time.process_time() - start < 3
    assert once < thrice.epsilon < 3 * least_epsilon(curve, DELTA / 3)
    assert thrice.delta_at(thrice.epsilon) <= DELTA
