"""Amplification by shuffling: conditions, least noise and trivial cases."""

import math

import numpy as np
import pytest

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.amplification import (
    BlanketCurve,
    ClonesCurve,
    RandomizedResponse,
    RandomizedResponseCurve,
    clones_delta,
    clones_epsilon_closed_form,
    erlingsson_epsilon,
    erlingsson_simple_epsilon,
    exact_delta,
    least_blanket,
    least_slots,
    response_channel,
    stronger_clones_epsilon_closed_form,
)
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.randomness import Dyadic


def test_conditions_are_named():
    with pytest.raises(ConditionError, match="local_epsilon"):
        clones_epsilon_closed_form(10_000, 4.0, 1e-6)
    with pytest.raises(ConditionError):
        stronger_clones_epsilon_closed_form(10_000, RandomizedResponse(6.0), 1e-6)
    for given in ((999, 0.2, 1e-6), (5000, 0.5, 1e-6), (5000, 0.2, 0.02)):
        with pytest.raises(ConditionError, match="simple form"):
            erlingsson_simple_epsilon(*given)
    assert erlingsson_simple_epsilon(10_000, 0.25, 1e-6) >= erlingsson_epsilon(10_000, 0.25, 1e-6)


def test_nonsense_is_refused():
    curve = ClonesCurve((Binomial(5, Dyadic(1, 1)),))
    response = RandomizedResponseCurve(5, Dyadic(1, 1), 3)
    for bad in (curve.delta_at, response.delta_at, BlanketCurve(5, Dyadic(1, 1), 3).delta_at):
        for epsilon in (-0.1, math.nan):
            with pytest.raises(ParameterError):
                bad(epsilon)
    for given in ({"alpha": 0.4}, {"weight": 1.5}, {"sure": -1}):
        with pytest.raises(ParameterError):
            ClonesCurve((), **given)
    with pytest.raises(ParameterError):
        exact_delta([[0.5, 0.4], [0.5, 0.5]], 2, 0.1)
    with pytest.raises(ParameterError, match="enumerate"):
        exact_delta(response_channel(6, 0.5), 30, 0.1)
    with pytest.raises(ParameterError):
        BlanketCurve(0, Dyadic(1, 1), 3)


def test_trivial_distributions():
    assert RandomizedResponseCurve(10, Dyadic(1, 0), 5).delta_at(0.0) == 0.0
    assert RandomizedResponseCurve(10, Dyadic(0, 0), 5).delta_at(3.0) == 1.0
    assert RandomizedResponseCurve(10, Dyadic(1, 2), 1).delta_at(0.0) == 0.0
    assert clones_delta(2.1, 1, 2.0) == 0.0
    assert clones_delta(1.0, 1, 2.0) == pytest.approx((math.exp(2) - math.e) / (1 + math.exp(2)), rel=1e-9)


@pytest.mark.parametrize(
    ("users", "cells", "epsilon", "delta"),
    [
        (10, 2, 1.0, 1e-6),
        (10, 500, 0.01, 1e-12),
        (10**4, 16, 1.0, 1e-6),
        (10**9, 10**6, 0.1, 1e-9),
        (50, 7, 10.0, 1e-4),
    ],
)
def test_least_slots_are_least(users, cells, epsilon, delta):
    slots = least_slots(users, cells, epsilon, delta)
    assert slots.curve(users, cells).delta_at(epsilon) <= delta
    mean = slots.mean * (1 - 1e-6)
    fewer = type(slots)(math.floor(mean), Dyadic.at_least(mean - math.floor(mean)))
    assert fewer.curve(users, cells).delta_at(epsilon) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    ("users", "values", "epsilon", "delta"),
    [
        (10, 2, 1.0, 1e-6),
        (1000, 16, 1.0, 1e-6),
        (10**4, 2, 0.5, 1e-6),
        (10**6, 100, 0.1, 1e-8),
        (10**9, 10**7, 1.0, 1e-6),
    ],
)
def test_least_blankets_are_least(users, values, epsilon, delta):
    blanket = least_blanket(users, values, epsilon, delta)
    curve = RandomizedResponseCurve(users, blanket, values)
    assert curve.delta_at(epsilon) <= delta
    less = RandomizedResponseCurve(users, Dyadic.at_least(float(blanket) * (1 - 2e-4)), values)
    assert less.delta_at(epsilon) > delta


def test_too_few_users_for_response_channel():
    with pytest.raises(InfeasibleError, match="too few"):
        least_blanket(10, 1000, 0.1, 1e-8)


def test_one_cell_or_value_needs_no_noise():
    assert least_slots(5, 1, 1.0, 1e-6).mean == 0
    assert float(least_blanket(5, 1, 1.0, 1e-6)) == 0


def test_distributions_fall_with_epsilon_and_invert():
    curve = RandomizedResponseCurve(1000, Dyadic.of(0.2), 8)
    deltas = [curve.delta_at(epsilon) for epsilon in np.linspace(0, 2, 9).tolist()]
    assert deltas == sorted(deltas, reverse=True)
    epsilon = least_epsilon(curve, 1e-6)
    assert curve.delta_at(epsilon) <= 1e-6 < curve.delta_at(epsilon * (1 - 1e-6))
