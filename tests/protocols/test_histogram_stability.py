"""The stability-based histogram: thresholds, exact errors of given counts, what is never shown, bad input."""

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.messages import Tally
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.protocols.histogram.stability import StabilityHistogram

SETTINGS = {"users": 10_000, "domain_size": 16, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(("domain_size", "largest"), [(16, 41.6), (1000, 49.8), (100_000, 59.0)])
def test_the_numbers_of_the_specification(domain_size, largest):
    """RMSE 2.83 and the largest error there are those of real-valued noise; whole numbers do no worse."""
    for calibration in ("tight", "paper"):
        protocol = StabilityHistogram.calibrate(
            **SETTINGS | {"users": 10**6, "domain_size": domain_size}, calibration=calibration
        )
        error = protocol.expected_error()
        shown = protocol.expected_error(counts=np.array([10**5]))
        assert shown.rmse == pytest.approx(2.80, abs=0.005)
        assert error.rmse == pytest.approx(10 if domain_size == 100_000 else shown.rmse, rel=0.002)  # ten are withheld
        assert error.max_error <= largest + 1.5


def test_the_threshold_is_the_least():
    protocol = StabilityHistogram.calibrate(**SETTINGS)
    noise = DiscreteLaplace(protocol.ratio)
    shown = noise.upper_tail(protocol.threshold - 1)  # of a single user
    assert shown <= 1e-6 < noise.upper_tail(protocol.threshold - 2)
    assert StabilityHistogram.calibrate(**SETTINGS, calibration="paper").threshold == 31
    assert protocol.guarantee.trust == "central"
    assert 0 < protocol.guarantee.delta_at(1.0) <= 1e-6


def test_errors_of_given_counts_are_predicted():
    """24,000 errors about the threshold, where withholding matters most. alpha is that of six deviations."""
    protocol = StabilityHistogram.calibrate(**SETTINGS)
    counts = np.array([0, 0, 1, 5, 20, 25, 26, 27, 28, 29, 30, 35, 50, 100, 1000, 8624])
    assert counts.sum() == 10_000
    errors = np.array([protocol.estimate(protocol.sample_tally(counts)).counts - counts for _ in range(1500)])
    squares = errors**2
    sampling = np.std(np.mean(squares, axis=1)) / np.sqrt(len(errors))
    assert abs(np.mean(squares) - protocol.expected_error(counts=counts).rmse ** 2) < 6 * sampling
    off = np.abs(errors).max(axis=1) > protocol.expected_error().max_error
    assert off.mean() < 0.05


def test_intervals_hold_for_what_is_withheld_too():
    protocol = StabilityHistogram.calibrate(**SETTINGS)
    counts = np.array([0, 1, 10, 20, 24, 26, 28, 30, 32, 34, 36, 40, 50, 100, 1000, 8589])
    held = []
    for _ in range(1000):
        low, high = protocol.estimate(protocol.sample_tally(counts)).interval(0.9).T
        held.append((low <= counts) & (counts <= high))
    assert np.mean(held, axis=0).min() > 0.87


def test_nobody_is_never_shown():
    protocol = StabilityHistogram.calibrate(**SETTINGS | {"domain_size": 100_000})
    counts = np.zeros(100_000, dtype=np.int64)
    counts[7] = 10_000
    assert np.flatnonzero(protocol.sample_tally(counts).counts).tolist() == [7]


def test_bad_input():
    protocol = StabilityHistogram.calibrate(**SETTINGS)
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(Tally(np.full(16, 625), 10_000))
    with pytest.raises(ParameterError, match="below the threshold"):
        protocol.estimate(Tally(np.full(16, 3), 10_000, released=True))
    with pytest.raises(ParameterError, match="already released"):
        protocol.release(Tally(np.full(16, 625), 10_000, released=True))
    with pytest.raises(ParameterError, match="does not fit"):
        protocol.release(Tally(np.full(3, 625), 10_000))
    with pytest.raises(ParameterError, match="confidence"):
        protocol.expected_error(confidence=1.0)
    assert StabilityHistogram.calibrate(**SETTINGS | {"users": 2, "domain_size": 2}).run([0, 0]).counts[0] == 0
    assert StabilityHistogram.calibrate(**SETTINGS | {"users": 2, "domain_size": 1}).run([0, 0]).counts[0] == 2


def test_tiny_deltas_are_feasible_at_every_epsilon():
    """At delta 1e-15, 135 of these 239 epsilons were refused because of rounding."""
    for epsilon in np.geomspace(0.05, 8.0, 239).tolist():
        protocol = StabilityHistogram.calibrate(users=10**6, domain_size=1_000, epsilon=epsilon, delta=1e-15)
        assert protocol.guarantee.delta_at(epsilon) <= 1e-15
