"""Amplification by shuffling: no bound lies below the truth, found by enumeration."""

import contextlib
import math

import numpy as np
import pytest

from shuffledp.errors import ConditionError
from shuffledp.privacy.amplification import (
    BlanketCurve,
    RandomizedResponse,
    RandomizedResponseCurve,
    bennett_delta,
    blanket_delta,
    check_restriction,
    clones_delta,
    closed_form_delta,
    exact_delta,
    hoeffding_delta,
    response_channel,
    revealed_clones_delta,
    stronger_clones_delta,
    two_response_delta,
)
from shuffledp.privacy.amplification.exact import local_epsilon_of
from shuffledp.randomness import Dyadic


def random_channel(generator, values, outputs, local_epsilon):
    """Rows within e^local_epsilon of each other."""
    base = generator.dirichlet(np.full(outputs, 0.7)) + 1e-3
    rows = base * np.exp(local_epsilon * generator.choice([0, 0.5, 1], size=(values, outputs)) / 2)
    rows[0, 0] *= 1.2  # no two rows alike
    return rows / rows.sum(axis=1, keepdims=True)


def bounds_for(channel, users, epsilon):
    """Every bound that is proved for any channel, by name."""
    local = local_epsilon_of(channel)
    found = {
        "clones": clones_delta(epsilon, users, local),
        "blanket": blanket_delta(channel, users, epsilon),
        "closed": closed_form_delta(epsilon, users, local),
        "hoeffding": hoeffding_delta(epsilon, users, local),
        "bennett": bennett_delta(epsilon, users, local),
    }
    revealed = 0.0
    for x, other in ((x, y) for x in range(len(channel)) for y in range(len(channel)) if x != y):
        distance = float(np.abs(channel[x] - channel[other]).sum() / 2)
        revealed = max(revealed, revealed_clones_delta(epsilon, users, local, distance))
    found["revealed"] = revealed
    with contextlib.suppress(ConditionError):
        found["stronger"] = stronger_clones_delta(epsilon, users, channel)
    return found


def falls_short(channel, users, epsilon, bound):
    return bound < exact_delta(channel, users, epsilon) * (1 - 1e-8) - 1e-15


def test_no_bound_is_below_the_truth():
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    generator = np.random.default_rng(seed)
    seen = set()
    for _ in range(60):
        values, outputs = int(generator.integers(2, 4)), int(generator.integers(2, 4))
        channel = random_channel(generator, values, outputs, float(generator.uniform(0.3, 3)))
        users, epsilon = int(generator.integers(1, 5)), float(generator.uniform(0.01, 1.2))
        for name, bound in bounds_for(channel, users, epsilon).items():
            seen.add(name)
            assert not falls_short(channel, users, epsilon, bound), (seed, name, channel.tolist(), users, epsilon)
    assert len(seen) == 7


def test_the_shared_support_matters():
    """Outputs that one value cannot produce count in full."""
    channel = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5]])
    for users in (1, 2, 4):
        assert not falls_short(channel, users, 0.1, blanket_delta(channel, users, 0.1))
    assert exact_delta(channel, 1, 0.1) == pytest.approx(0.5, rel=1e-6)
    assert blanket_delta(np.eye(2), 3, 0.1) == 1.0


def test_channels_whose_transform_vanishes():
    """Even odds make frequencies vanish exactly; one user makes the tilted distribution a point."""
    for channel in ([[0.75, 0.25], [0.25, 0.75]], [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.9, 0.1], [0.1, 0.9]]):
        for users in (1, 2, 3, 8):
            for epsilon in (0.0, 0.1, 1.0):
                assert not falls_short(np.array(channel), users, epsilon, blanket_delta(channel, users, epsilon))


@pytest.mark.parametrize("values", [2, 3, 4])
def test_randomized_response_against_enumeration(values):
    for users in (1, 2, 3, 5):
        for blanket in (0.1, 0.4, 0.8, 0.99):
            channel = response_channel(values, blanket)
            for epsilon in (0.0, 0.05, 0.4, 1.5, 4.0):
                exact = exact_delta(channel, users, epsilon)
                for curve in (BlanketCurve, RandomizedResponseCurve):
                    bound = curve(users, Dyadic.of(blanket), values).delta_at(epsilon)
                    assert bound >= exact * (1 - 1e-8) - 1e-15, (users, blanket, epsilon, curve)
                if values == 2:
                    assert two_response_delta(users, blanket / 2, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-15)


COUNTEREXAMPLE = np.array([[0.37, 0.08, 0.3, 0.25], [0.08, 0.37, 0.3, 0.25], [0.15, 0.15, 0.08, 0.62]])


def test_stronger_clones_refuse_what_they_are_not_proved_for():
    with pytest.raises(ConditionError) as caught:
        check_restriction(COUNTEREXAMPLE)
    values = caught.value.values
    row = COUNTEREXAMPLE
    ratio = math.exp(local_epsilon_of(row))
    x, other, z, y = (values[name] for name in ("x", "other", "z", "y"))
    assert row[z, y] < (row[x, y] + row[other, y]) / (ratio + 1)
    for values_ in (2, 3, 7):
        assert check_restriction(response_channel(values_, 0.3)) > 0
    assert check_restriction(RandomizedResponse(1.5)) == 1.5


def variation_ratio_delta(channel, users, epsilon, x, other):
    """The p-version of 2023 as published: p = TV / (e^local_epsilon - 1), the rest common and unseen."""
    ratio = math.exp(local_epsilon_of(channel))
    rate = float(np.abs(channel[x] - channel[other]).sum() / 2) / (ratio - 1)
    mixed = np.zeros((2, 3))
    mixed[0], mixed[1] = (ratio * rate, rate, 0), (rate, ratio * rate, 0)
    mixed[:, 2] = 1 - mixed.sum(axis=1)
    others = np.array([rate, rate, 1 - 2 * rate])
    curve = {(0, 0): 1.0}
    for _ in range(users - 1):
        curve = _convolve(curve, others)
    total = [_convolve(curve, row) for row in mixed]
    growth = math.exp(epsilon)
    return sum(max(mass - growth * total[1].get(key, 0.0), 0.0) for key, mass in total[0].items())


def _convolve(curve, row):
    result = {}
    for (a, b), mass in curve.items():
        for move, probability in zip(((1, 0), (0, 1), (0, 0)), row, strict=True):
            key = (a + move[0], b + move[1])
            result[key] = result.get(key, 0.0) + mass * probability
    return result


def test_the_published_p_version_is_no_bound():
    """Random channels at n = 2 violate it; the clones of 2021 hold on the same ones."""
    generator = np.random.default_rng(5)  # a search for a witness, not a statistical test
    violated = 0
    for _ in range(150):
        channel = random_channel(generator, 3, 4, 3.0)
        epsilon = 0.3
        pair = [exact_delta_of_pair(channel, 2, epsilon, x, y) for x in range(3) for y in range(3) if x != y]
        published = [variation_ratio_delta(channel, 2, epsilon, x, y) for x in range(3) for y in range(3) if x != y]
        violated += any(truth > claim * 1.01 + 1e-9 for truth, claim in zip(pair, published, strict=True))
        assert max(pair) <= clones_delta(epsilon, 2, local_epsilon_of(channel)) * (1 + 1e-9)
    assert violated > 0


def exact_delta_of_pair(channel, users, epsilon, x, other):
    worst = 0.0
    growth = math.exp(epsilon)
    for z in range(len(channel)):
        curves = []
        for row in (channel[x], channel[other]):
            curve = {}
            for a, p in enumerate(row):
                for b, q in enumerate(channel[z]):
                    key = (min(a, b), max(a, b))
                    curve[key] = curve.get(key, 0.0) + p * q
            curves.append(curve)
        worst = max(worst, sum(max(mass - growth * curves[1].get(key, 0.0), 0.0) for key, mass in curves[0].items()))
    return worst


# exact arithmetic
