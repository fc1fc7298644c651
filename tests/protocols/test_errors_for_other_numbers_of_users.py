"""The predicted error for another number of users than the target's: the same noise per user, over more users."""

import math

import numpy as np
import pytest

from shuffledp.planning import Count, Histogram, Quantiles, Sum
from shuffledp.protocols.registry import PROTOCOLS

USERS = 1000
QUESTIONS = {
    "count": Count(USERS),
    "histogram": Histogram(USERS, 5),
    "sum": Sum(USERS, 0.0, 10.0),
    "quantiles": Quantiles(USERS, 0.0, 10.0, 8),
}
CASES = [(question, name) for question in QUESTIONS for name in PROTOCOLS[question]]


def calibrated(question, name):
    return PROTOCOLS[question][name].calibrate(**QUESTIONS[question].settings(), epsilon=1.0, delta=1e-4)


@pytest.mark.parametrize(("question", "name"), CASES)
def test_more_users_more_noise_except_with_a_trusted_party(question, name):
    protocol = calibrated(question, name)
    planned, more = protocol.expected_error(), protocol.expected_error(users=4 * USERS)
    assert protocol.expected_error(users=USERS) == planned
    factor = more.rmse / planned.rmse
    if protocol.trust == "central" or name == "shuffler-laplace":  # whose noise does not come from users
        assert 0.99 < factor < 1.1
    else:
        assert factor == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("name", ["cheu", "randomized-response", "correlated-noise"])
def test_the_prediction_is_measured(name):
    """2,000 rounds of 4,000 users; the sample variance is within 25 % with a probability of 1 - 1e-12 or more.

    The planted fault, the error for the planned number of users, is off by a factor of four.
    """
    protocol = calibrated("count", name)
    truth = np.array([2000, 2000])
    errors = np.array([protocol.estimate(protocol.sample_tally(truth)).value - 2000 for _ in range(2000)])
    measured = math.sqrt(float(np.mean(errors**2)))
    assert measured == pytest.approx(protocol.expected_error(users=4 * USERS).rmse, rel=0.25)
    assert measured != pytest.approx(protocol.expected_error().rmse, rel=0.25)
