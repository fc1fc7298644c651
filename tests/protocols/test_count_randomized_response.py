"""Warner's randomized response: the corrected numbers, whole tables, and exact coverage through the round."""

import math

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import BelowMinimumError, DomainError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.count.randomized_response import RandomizedResponse
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA, p_value


def calibrated(epsilon=1.0, users=1000, **more) -> RandomizedResponse:
    return RandomizedResponse.calibrate(users=users, epsilon=epsilon, delta=1e-6, **more)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, math.log(3), 4.0])
def test_the_papers_numbers(epsilon):
    """Truth with e^eps / (1 + e^eps) = 1/2 + tanh(eps/2)/2; variance n e^eps / (e^eps - 1)^2 whatever is true."""
    protocol, e = calibrated(epsilon), math.exp(epsilon)
    assert protocol.gamma == pytest.approx(math.tanh(epsilon / 2) / 2, rel=1e-9)
    for bit in (0, 1):
        pmf = protocol.report_pmf(bit)
        assert sum(pmf.values()) == 1
        assert float(pmf[1 - bit, bit]) == pytest.approx(e / (1 + e), rel=1e-9)
        ratio = pmf[1 - bit, bit] / pmf[bit, 1 - bit]
        assert ratio <= e * (1 + 1e-12)
    for ones in (0, 300, 1000):
        error = protocol.expected_error(counts=np.array([1000 - ones, ones]))
        assert error.rmse == pytest.approx(math.sqrt(1000 * e) / (e - 1), rel=1e-7)


def test_the_guarantee_is_local_and_pure():
    guarantee = calibrated(honest_fraction=0.1).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.trust, guarantee.honest_users) == (1.0, 0.0, "local", 1)
    assert guarantee.local_epsilon == pytest.approx(1.0, rel=1e-12)
    assert guarantee.local_epsilon <= 1.0
    assert guarantee.delta_at(1.0) == 0


def test_too_little_noise_is_not_claimed():
    with pytest.raises(ParameterError, match="more than the claimed"):
        RandomizedResponse(Target(10, 1.0, 0.0), Dyadic.at_least(0.5)).guarantee  # noqa: B018
    with pytest.raises(ParameterError):
        RandomizedResponse(Target(10, 1.0, 0.0), Dyadic(0, 3)).guarantee  # noqa: B018


def answers(protocol, bit, users=100_000):
    values = protocol.randomize_all(np.full(users, bit)).values
    return [users - int(values.sum()), int(values.sum())]


@pytest.mark.parametrize("bit", [0, 1])
def test_answers_have_their_distribution(bit):
    """100,000 answers; an epsilon off by a twentieth is caught."""
    pmf = calibrated().report_pmf(bit)
    expected = [float(pmf[1, 0]), float(pmf[0, 1])]
    assert p_value(answers(calibrated(), bit), expected) > ALPHA
    assert p_value(answers(calibrated(1.1), bit), expected) < ALPHA


@pytest.mark.parametrize("users", [2, 7, 60])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_intervals_hold_their_confidence_for_every_count(users, confidence):
    protocol = calibrated(users=users)
    estimates = [protocol.estimate(Tally(np.array([users - seen, seen]), users)) for seen in range(users + 1)]
    ends = np.array([each.interval(confidence) for each in estimates])
    own = 0.5 + protocol.gamma
    mean = np.array([each.value for each in estimates])
    for truth in range(users + 1):
        pmf = np.convolve(
            stats.binom.pmf(np.arange(truth + 1), truth, own),
            stats.binom.pmf(np.arange(users - truth + 1), users - truth, 1 - own),
        )
        assert pmf[(ends[:, 0] <= truth + 1e-9) & (ends[:, 1] >= truth - 1e-9)].sum() >= confidence
        assert pmf @ mean == pytest.approx(truth, abs=1e-9)
        assert math.sqrt(pmf @ (mean - truth) ** 2) == pytest.approx(protocol.expected_error().rmse)


def test_hoeffdings_radius_is_not_exceeded():
    """With 95 % confidence no further off than sqrt(n ln(2/beta) / 2) / (2 pk - 1), and not much less."""
    protocol = calibrated(users=100_000)
    hoeffding = math.sqrt(100_000 * math.log(40) / 2) / (2 * protocol.gamma)
    assert 0.6 * hoeffding < protocol.expected_error().max_error < hoeffding


def test_a_round():
    protocol = calibrated(5.0)
    estimate = protocol.run([1] * 400 + [0] * 600, source=InsecureSeededRandomness(1))
    assert abs(estimate.value - 400) < 30
    assert not estimate.secure
    assert protocol.run([1] * 1000, estimator="clipped").value <= 1000
    with pytest.raises(BelowMinimumError):
        protocol.run([1] * 999)
    with pytest.raises(DomainError):
        protocol.run([2] * 1000)
    with pytest.raises(DomainError):
        protocol.report_pmf(2)


@pytest.mark.parametrize("epsilon", [1e-9, 30.0, 700.0])
def test_the_ends_of_the_scale(epsilon):
    protocol = calibrated(epsilon, users=2)
    assert protocol.guarantee.local_epsilon <= epsilon
    assert math.isfinite(protocol.expected_error().rmse)
    assert math.isfinite(protocol.run([0, 1]).value)
