"""Predicted errors are the measured ones, for every protocol, at a realistic size.

The squared errors of independent rounds are averaged and held against the prediction. Tolerance: six standard
deviations of that average, estimated from the same rounds (a false alarm has probability below 1e-7 for near-normal
averages); the same test rejects a prediction that is 25 per cent off in standard deviation.
"""

import numpy as np
import pytest

from shuffledp.domain import Bins, Interval
from shuffledp.protocols.registry import PROTOCOLS
from shuffledp.testing.subject import numbers_of

USERS, CATEGORIES = 1500, 6
NUMBERS = 500
"""Users of a sum, of whom each is drawn, with many messages: fewer of them for as many rounds."""
COUNTS = np.array([600, 400, 250, 150, 100, 0])
PLACES = np.linspace(0.0, 1.0, NUMBERS) ** 2
ALL = [(question, name) for question, named in PROTOCOLS.items() for name in named if question != "strings"]


def calibrated(question, name):
    target = {"users": NUMBERS if question == "sum" else USERS, "epsilon": 3.0, "delta": 1e-4}
    domain = {
        "count": {},
        "histogram": {"domain_size": CATEGORIES},
        "sum": {"domain": Interval(-2.0, 8.0)},
        "quantiles": {"domain": Bins(0.0, CATEGORIES, CATEGORIES)},
    }
    return PROTOCOLS[question][name].calibrate(**target, **domain[question])


def measured(protocol, question, rounds):
    """The mean squared error of each round, and what was predicted for this data."""
    if question == "count":
        truth, summary, given = np.array([500.0]), np.array([1000, 500]), {"counts": np.array([500])}
    elif question == "histogram":
        truth, summary, given = COUNTS.astype(float), COUNTS, {"counts": COUNTS}
    elif question == "quantiles":
        truth, summary, given = np.cumsum(COUNTS)[:-1].astype(float), COUNTS, {}
    else:
        truth, summary, given = np.array([NUMBERS * -2.0 + 10.0 * PLACES.sum()]), PLACES, {"values": PLACES}
    errors = []
    for _ in range(rounds):
        estimate = protocol.estimate(protocol.sample_tally(summary))
        errors.append(float(np.mean((numbers_of(estimate, protocol) - truth) ** 2)))
    return np.array(errors), protocol.expected_error(**given).rmse ** 2


def agrees(errors, predicted):
    spread = errors.std() / np.sqrt(len(errors))
    return abs(errors.mean() - predicted) <= 6 * spread + 1e-9


LATER = (("sum", "almost-central"), ("sum", "cheu"))
"""Their rounds take long to draw: for the slow tests. Fewer rounds would not do: the average of 100 squares is too far
from normal for six of its own standard deviations. The conformance kit holds both against their exact errors."""


@pytest.mark.parametrize(
    ("question", "name"),
    [pytest.param(*each, marks=[pytest.mark.slow] if each in LATER else [], id="-".join(each)) for each in ALL],
)
def test_predicted_error(question, name):
    protocol = calibrated(question, name)
    errors, predicted = measured(protocol, question, 400 if question in ("count", "sum") else 150)
    assert agrees(errors, predicted), (np.sqrt(errors.mean()), np.sqrt(predicted))


def test_a_wrong_prediction_is_noticed():
    errors, predicted = measured(calibrated("histogram", "uniform-blanket"), "histogram", 600)
    assert not agrees(errors, predicted * 1.25**2)
    assert not agrees(errors, predicted / 1.25**2)
