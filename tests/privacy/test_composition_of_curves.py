"""Privacy curves without a known pair compose too: above one release, below added epsilons, in little time."""

import time
from dataclasses import dataclass

import pytest

from shuffledp.privacy.amplification import RandomizedResponseCurve, clones_curve, least_slots
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import ComposableCurve, Guarantee, PrivacyCurve, least_epsilon
from shuffledp.randomness import Dyadic

DELTA = 1e-6


@dataclass(frozen=True)
class CurveAlone:
    """The deltas of a curve, without its pair of distributions."""

    curve: PrivacyCurve

    def delta_at(self, epsilon):
        return self.curve.delta_at(epsilon)


LAWS = {
    "clones, 1e4 users": lambda: CurveAlone(clones_curve(10**4, 2.0)),
    "clones, 1e6 users": lambda: CurveAlone(clones_curve(10**6, 4.0)),
    "uniform blanket": lambda: CurveAlone(least_slots(10**6, 1000, 1.0, DELTA).curve(10**6, 1000)),
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


@pytest.mark.parametrize("name", [name for name in LAWS if name != "two responses"])
def test_a_known_pair_composes_at_most_to_the_bound_of_its_curve(name):
    alone = LAWS[name]()
    assert isinstance(alone.curve, ComposableCurve)
    for epsilon in (0.5, 1.0, 2.0):
        assert compose(alone.curve, 3).delta_at(epsilon) <= compose(alone, 3).delta_at(epsilon) * (1 + 1e-3) + 1e-12
