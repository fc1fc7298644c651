"""The central count: exact noise, exact intervals, and no estimate of data without noise."""

import math

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.count.discrete_laplace import DiscreteLaplaceCount
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA, p_value


def calibrated(epsilon=1.0, users=100) -> DiscreteLaplaceCount:
    return DiscreteLaplaceCount.calibrate(users=users, epsilon=epsilon, delta=1e-6)


@pytest.mark.parametrize(("epsilon", "printed"), [(0.5, 2.80), (1.0, 1.36), (2.0, 0.60)])
def test_printed_errors(epsilon, printed):
    assert calibrated(epsilon).expected_error().rmse == pytest.approx(printed, abs=0.006)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_the_curve_is_the_specs(epsilon):
    """(1 - e^(eps' - eps)) / (1 + e^-eps) below epsilon, nothing from there on."""
    guarantee = calibrated(epsilon).guarantee
    assert (guarantee.delta, guarantee.trust, guarantee.local_epsilon) == (0.0, "central", math.inf)
    assert guarantee.delta_at(epsilon) == 0.0
    for part in (0.0, 0.3, 0.99):
        expected = -math.expm1((part - 1) * epsilon) / (1 + math.exp(-epsilon))
        assert expected * (1 - 1e-12) <= guarantee.delta_at(part * epsilon) <= expected * (1 + 1e-6)


def seen(protocol, rounds=3000):
    values = [int(protocol.sample_tally(np.array([60, 40])).counts[0]) for _ in range(rounds)]
    return np.bincount(np.clip(np.array(values), 0, 80), minlength=81)


def test_releases_have_their_distribution():
    """3,000 releases; an epsilon off by a quarter is caught."""
    protocol = calibrated()
    pmf = protocol.release_pmf(Tally(np.array([40]), 100))
    assert sum(pmf.values()) == pytest.approx(1, abs=1e-12)
    expected = np.array([pmf.get((k,), 0.0) for k in range(81)])
    expected /= expected.sum()
    assert p_value(seen(protocol), expected) > ALPHA
    assert p_value(seen(calibrated(1.35)), expected) < ALPHA


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_hold_their_confidence_exactly(confidence):
    protocol = calibrated(users=20)
    for ones in range(21):
        pmf = protocol.release_pmf(Tally(np.array([ones]), 20))
        outcomes = np.array([k for (k,) in pmf])
        ends = protocol.analysis(20).intervals(outcomes)(confidence)
        covered = (ends[:, 0] <= ones) & (ones <= ends[:, 1])
        assert np.array(list(pmf.values()))[covered].sum() >= confidence - 1e-12
    radius = protocol.expected_error(confidence=confidence).max_error
    pmf = protocol.release_pmf(Tally(np.array([0]), 20))
    assert sum(mass for (k,), mass in pmf.items() if abs(k) > radius) <= 1 - confidence


def test_data_without_noise_are_not_estimated():
    protocol = calibrated()
    raw = protocol.tally(protocol.randomize_all(np.array([1, 0] * 50)))
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(raw)
    released = protocol.release(raw)
    assert released.released
    assert abs(protocol.estimate(released).value - 50) < 60
    with pytest.raises(ParameterError):
        released + released


def test_one_seed_anywhere_is_not_secure():
    protocol = calibrated()
    seeded = protocol.randomize_all(np.array([1, 0] * 50), source=InsecureSeededRandomness(1))
    assert not protocol.release(protocol.tally(seeded)).secure
    fresh = protocol.tally(protocol.randomize_all(np.array([1, 0] * 50)))
    assert not protocol.release(fresh, source=InsecureSeededRandomness(1)).secure
    assert not protocol.run([1] * 100, source=InsecureSeededRandomness(1), route="counts").secure


def test_counts_below_zero_are_cut_on_request():
    protocol = calibrated(0.01, users=2)
    values = [protocol.run([0, 0], estimator="clipped").value for _ in range(50)]
    assert min(values) >= 0
    assert max(values) <= 2
    assert min(protocol.run([0, 0]).value for _ in range(50)) < 0


def test_too_little_noise_is_not_claimed():
    with pytest.raises(ParameterError, match="more than the claimed"):
        DiscreteLaplaceCount(Target(10, 1.0, 0.0), Dyadic.of(0.25)).guarantee  # noqa: B018
    with pytest.raises(ParameterError):
        DiscreteLaplaceCount(Target(10, 1.0, 0.0), Dyadic.of(1.0)).guarantee  # noqa: B018
