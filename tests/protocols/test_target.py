"""What a protocol was calibrated for, and guarantees that are never more than what holds."""

import math

import pytest

from shuffledp.errors import ConditionError, ParameterError, UnknownNameError
from shuffledp.privacy.pure import PureCurve
from shuffledp.protocols.target import Target

GOOD = {"users": 100, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    "wrong",
    [
        {"users": 0},
        {"users": 1},
        {"users": -3},
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": 1e-13},
        {"delta": 0},
        {"delta": 1},
        {"delta": -1e-9},
        {"delta": math.nan},
        {"honest_fraction": 0},
        {"honest_fraction": 1.01},
        {"honest_fraction": -0.5},
        {"honest_fraction": math.nan},
        {"honest_fraction": 0.01},
        {"calibration": "loose"},
        {"calibration": ""},
    ],
)
def test_targets_that_mean_nothing(wrong):
    with pytest.raises(ParameterError):
        Target.of(**(GOOD | wrong))


def test_an_unknown_calibration_is_named():
    with pytest.raises(UnknownNameError, match="tight"):
        Target.of(**GOOD, calibration="loose")


@pytest.mark.parametrize(
    "wrong",
    [
        {"users": 0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"delta": -0.1},
        {"delta": 1.0},
        {"delta": math.nan},
        {"honest_fraction": math.nan},
        {"honest_fraction": 0.0},
        {"honest_fraction": 1.5},
    ],
)
def test_targets_by_hand_are_checked_too(wrong):
    with pytest.raises(ParameterError):
        Target(**(GOOD | wrong))


@pytest.mark.parametrize(
    ("users", "fraction", "honest"), [(10, 1.0, 10), (10, 0.3, 3), (10, 0.99, 9), (100, 0.29, 29), (7, 0.5, 3)]
)
def test_honest_users_are_rounded_down(users, fraction, honest):
    assert Target(users, 1.0, 1e-6, fraction).honest_users == honest


def test_pure_targets():
    target = Target.of(**GOOD, honest_fraction=0.5).pure()
    assert (target.delta, target.epsilon, target.users, target.honest_fraction) == (0.0, 1.0, 100, 0.5)


def test_a_local_guarantee_needs_nobody_else():
    guarantee = Target.of(**GOOD, honest_fraction=0.5).pure().local_guarantee(0.75, theorem="exact ratio")
    assert (guarantee.epsilon, guarantee.delta, guarantee.honest_users, guarantee.trust) == (1.0, 0.0, 1, "local")
    assert guarantee.local_epsilon == 0.75
    assert guarantee.delta_at(0.75) == 0.0
    assert guarantee.delta_at(0.5) > 0.0


@pytest.mark.parametrize("epsilon", [math.nextafter(1.0, 2.0), 2.0, math.inf])
def test_no_local_guarantee_for_more_than_was_claimed(epsilon):
    with pytest.raises(ParameterError, match="more than the claimed"):
        Target(**GOOD).local_guarantee(epsilon, theorem="")


def test_a_guarantee_is_recomputed():
    curve = PureCurve(1.2)
    achieved = curve.delta_at(1.0)
    guarantee = Target(100, 1.0, achieved).guarantee(curve, theorem="x", local_epsilon=3.0)
    assert (guarantee.delta, guarantee.local_epsilon, guarantee.trust) == (achieved, 3.0, "shuffled")
    with pytest.raises(ParameterError, match="more than the claimed"):
        Target(100, 1.0, math.nextafter(achieved, 0.0)).guarantee(curve, theorem="x")


def test_what_cannot_be_computed_is_not_claimed():
    class Broken:
        def delta_at(self, epsilon: float) -> float:
            return math.nan * epsilon

    with pytest.raises(ConditionError):
        Target(**GOOD).guarantee(Broken(), theorem="x")
    with pytest.raises(ParameterError):
        Target(**GOOD).local_guarantee(math.nan, theorem="x")
