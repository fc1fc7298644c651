"""Sums by splitting and mixing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from shuffledp.domain import Interval
from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.messages import Messages
from shuffledp.protocols.documents import to_document
from shuffledp.protocols.sum.split_and_mix import SplitAndMixSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

UNIT = Interval(0.0, 1.0)


def protocol(**settings) -> SplitAndMixSum:
    return SplitAndMixSum.calibrate(**({"users": 10_000, "epsilon": 1.0, "delta": 1e-6, "domain": UNIT} | settings))


@pytest.mark.parametrize(("users", "messages"), [(10**4, 8), (10**6, 6)])
def test_the_numbers_of_messages_and_the_error(users, messages):
    """An error of 1.50 at epsilon = 1, where the central model has 1.41."""
    sums = protocol(users=users)
    assert sums.messages == messages
    assert sums.expected_error().rmse == pytest.approx(1.50, abs=0.005)
    assert sums.guarantee.delta_at(1.0) <= 1e-6


def test_the_shares_of_each_user_add_up_to_a_level_and_little_noise():
    sums = protocol()
    messages = sums.randomize_all(np.full(10_000, 0.37))
    totals = messages.values.reshape(-1, sums.messages).astype(object).sum(axis=1) % sums.modulus
    centred = np.where(totals > sums.modulus // 2, totals - sums.modulus, totals)
    assert np.mean(centred == 37) > 0.9


def test_sums_below_zero_and_beyond_the_largest_are_not_wrapped():
    sums = protocol(users=100)
    for total in (-20, 0, 100 * sums.levels, 100 * sums.levels + 20):
        message = np.array([total % sums.modulus], dtype=np.uint64)
        tally = sums.tally(Messages(message, 100))
        assert int(sums.observed(tally)[0]) == total


def test_large_messages_are_added_up_exactly():
    """A thousand times the largest message of a modulus of 2^60."""
    sums = replace(protocol(), modulus=1 << 60)
    tally = sums.tally(Messages(np.full(1000, (1 << 60) - 1, dtype=np.uint64), 10_000))
    total = sum(int(part) << 24 * place for place, part in enumerate(tally.counts))
    assert total == 1000 * ((1 << 60) - 1) % (1 << 60)
    assert int(sums.observed(tally)[0]) == -1000


@pytest.mark.parametrize("honest", [1.0, 0.5])
def test_measured_errors_are_as_predicted(honest):
    """300 rounds: the mean square is within nine of its standard deviations; intervals of 95 % hold in 85 % or more."""
    sums = protocol(users=200, honest_fraction=honest)
    places = np.random.default_rng().random(200)
    estimates = [sums.run(places, route="counts") for _ in range(300)]
    errors = np.array([each.value for each in estimates]) - places.sum()
    assert abs(np.mean(errors**2) / sums.variance(places) - 1) < 9 * math.sqrt(5 / 300)
    held = sum(low <= places.sum() <= high for low, high in (each.interval(0.95) for each in estimates))
    assert held >= 0.85 * 300


def test_few_honest_users_are_refused():
    with pytest.raises(ConditionError, match="19 honest users"):
        protocol(users=30, honest_fraction=0.5)


@pytest.mark.parametrize(("messages", "modulus"), [(1, 8), (4, 7), (4, 1), (4, 1 << 63)])
def test_what_makes_no_sense_is_refused(messages, modulus):
    with pytest.raises(ParameterError, match="power of two"):
        SplitAndMixSum(Target(20, 1.0, 0.5), 1, Dyadic(1, 1), messages, modulus, UNIT)


def test_less_mixing_than_claimed_is_refused():
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = replace(protocol(), messages=7).guarantee


def test_its_document_holds_every_parameter():
    document = json.loads(json.dumps(to_document(protocol())))
    assert document["protocol"] == "sum/split-and-mix"
    assert set(document["parameters"]) == {"terms", "levels", "ratio", "messages", "modulus", "domain"}


@pytest.mark.parametrize("epsilon", [1e-7, 1e-5])
def test_noise_that_the_sampler_does_not_support_is_refused(epsilon):
    with pytest.raises(InfeasibleError, match="too wide to be drawn"):
        SplitAndMixSum.calibrate(users=20_000, epsilon=epsilon, delta=1e-9, lower=0, upper=100)
