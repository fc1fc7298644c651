"""How many users for a mean within alpha with probability p: proven in all models, and held against exact values."""

import math

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.lab.bounds.bernoulli_mean import local_users_lower, randomized_bits_success, users_lower
from shuffledp.planning.sample_size import share_radius, users_for_share

TARGET = {"within": 0.03, "probability": 0.95, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def sizes():
    return {trust: users_for_share(**TARGET, trust=trust) for trust in ("central", "shuffled", "local")}


def test_the_models_are_ordered_as_the_theory_says(sizes):
    sample = math.ceil(math.log(40) / (2 * 0.03**2))  # without privacy
    assert sample <= sizes["central"].users < 1.1 * sample
    assert sample <= sizes["shuffled"].users < 1.1 * sample
    assert sizes["local"].users == pytest.approx(sample / math.tanh(0.5) ** 2, rel=0.002)
    for trust, size in sizes.items():
        assert size.protocol.trust == trust
        assert size.protocol.users == size.users
        assert size.radius <= 0.03
        assert users_lower(0.03, 0.95) <= size.users
    assert local_users_lower(0.03, 0.95, 1.0) <= sizes["local"].users


def test_the_local_number_is_enough_exactly_and_not_wasteful(sizes):
    flip = float(sizes["local"].protocol.blanket.fraction) / 2
    for mean in (0.0, 0.1, 0.5):
        assert randomized_bits_success(sizes["local"].users, flip, mean, 0.03) >= 0.95
    assert randomized_bits_success(sizes["local"].users // 2, flip, 0.5, 0.03) < 0.95


@pytest.mark.slow
def test_a_small_epsilon_costs_the_local_model_only():
    shuffled, local = (users_for_share(**TARGET | {"epsilon": 0.2}, trust=trust) for trust in ("shuffled", "local"))
    assert shuffled.users < 1.5 * math.log(40) / (2 * 0.03**2)
    assert local.users > 20 * shuffled.users


@pytest.mark.parametrize("name", ["discrete-laplace", "correlated-noise", "cheu", "balcer-cheu", "randomized-response"])
def test_the_proven_radius_holds_in_rounds(name):
    """300 rounds at failure 0.3; a binomial test at 1e-6 rejects a radius that is half of what it should be."""
    protocol = sdp.find("count", name).calibrate(users=1000, epsilon=0.5, delta=1e-3)
    radius, rng = share_radius(protocol, 0.3), np.random.default_rng()
    errors = []
    for _ in range(300):
        ones = int(rng.binomial(1000, 0.5))
        errors.append(abs(protocol.estimate(protocol.sample_tally([1000 - ones, ones])).value / 1000 - 0.5))
    assert np.mean(np.array(errors) > radius) < 0.3 + 4.9 * math.sqrt(0.3 * 0.7 / 300)


def test_what_cannot_be_reached_or_means_nothing_is_refused():
    with pytest.raises(InfeasibleError, match="local model"):
        users_for_share(within=1e-4, probability=0.9, epsilon=0.01, delta=1e-6, trust="local")
    for wrong in ({"within": 0.0}, {"within": math.nan}, {"within": 0.5}, {"probability": 1.0}, {"trust": "nobody"}):
        with pytest.raises(ParameterError):
            users_for_share(**TARGET | wrong)
