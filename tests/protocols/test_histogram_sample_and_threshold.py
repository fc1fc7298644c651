"""Sample and threshold: thresholds, exact errors of given counts, intervals, what the shuffler must do, bad input."""

from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.model import Tally
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import Dyadic

SETTINGS = {"users": 20_000, "domain_size": 8, "epsilon": 1.0, "delta": 1e-6}
COUNTS = np.array([0, 20, 60, 80, 100, 140, 600, 19_000])


def tenth(**changes):
    return SampleAndThresholdHistogram.calibrate(**SETTINGS | {"sampling": 0.125} | changes)


@pytest.mark.parametrize(("sampling", "largest"), [(0.05, 8), (0.1, 11), (0.2, 19), (0.3, 35), (0.5, 210)])
def test_thresholds_are_at_most_those_of_the_specification(sampling, largest):
    """There they come from the bound for adding and removing a user; the divergence of both at once is smaller."""
    protocol = tenth(sampling=sampling, delta=1e-8)
    assert 0.2 * largest < protocol.threshold <= largest
    assert protocol.guarantee.delta_at(1.0) <= 1e-8


def test_one_message_whatever_the_value():
    protocol = SampleAndThresholdHistogram(Terms(5, 5.0, 0.9), Dyadic(1, 2), 2, 2)
    assert protocol.report_law(1) == {(0, 1, 0): Fraction(1, 4), (0, 0, 1): Fraction(3, 4)}
    messages = protocol.randomize_all(np.zeros(1000, dtype=np.int64))
    assert messages.offsets.tolist() == list(range(1001))
    assert protocol.tally(messages).counts[1] == 0
    assert protocol.cost.messages_per_user == protocol.cost.max_messages_per_user == 1


def test_small_counts_are_removed_before_anyone_sees_them():
    protocol = SampleAndThresholdHistogram(Terms(5, 5.0, 0.9), Dyadic(1, 2), 3, 3)
    assert protocol.trusts_shuffler
    assert "the shuffler must remove small counts" in protocol.guarantee.theorem
    released = protocol.release(Tally(np.array([2, 3, 0]), 5))
    assert released.counts.tolist() == [0, 3, 0]
    assert protocol.estimate(released).counts.tolist() == [0.0, 12.0, 0.0]
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(Tally(np.array([2, 3, 0]), 5))


def test_errors_of_given_counts_are_predicted():
    """Counts about the threshold's, where withholding matters most; six deviations of the mean square."""
    protocol = tenth()
    errors = np.array([protocol.estimate(protocol.sample_tally(COUNTS)).counts - COUNTS for _ in range(1500)])
    squares = np.mean(errors**2, axis=1)
    predicted = protocol.expected_error(counts=COUNTS).rmse ** 2
    assert abs(squares.mean() - predicted) < 6 * squares.std() / np.sqrt(len(errors))
    assert np.mean(np.abs(errors).max(axis=1) > protocol.expected_error().max_error) < 0.05


def test_intervals_hold_for_what_is_withheld_too():
    protocol = tenth()
    held = []
    for _ in range(150):
        low, high = protocol.estimate(protocol.sample_tally(COUNTS)).interval(0.9).T
        held.append((low <= COUNTS) & (high >= COUNTS))
    assert np.mean(held, axis=0).min() > 0.8


def test_both_routes_agree():
    """By messages and by counts; five deviations of a mean over 400 rounds."""
    protocol = tenth()
    indices = np.repeat(np.arange(8), COUNTS)
    by_messages = np.array([protocol.run(indices, route="messages").counts[-2:] for _ in range(400)])
    deviation = np.sqrt(COUNTS[-2:] * 7 / 400)
    assert np.all(np.abs(by_messages.mean(axis=0) - COUNTS[-2:]) < 5 * deviation)


def test_the_sampling_is_chosen_for_a_typical_count():
    best = SampleAndThresholdHistogram.calibrate(**SETTINGS)
    typical = np.full(8, 2500)
    assert best.expected_error(counts=typical).rmse <= 1.05 * tenth().expected_error(counts=typical).rmse
    large = SampleAndThresholdHistogram.calibrate(**SETTINGS | {"domain_size": 10**7})
    assert large.expected_error().rmse > 5
    paper = SampleAndThresholdHistogram.calibrate(**SETTINGS, calibration="paper")
    assert paper.threshold == 17
    assert paper.guarantee.delta_at(1.0) < 1e-6


def test_bad_input():
    with pytest.raises(InfeasibleError, match="1 - e"):
        tenth(sampling=0.7)
    protocol = SampleAndThresholdHistogram(Terms(5, 5.0, 0.9), Dyadic(1, 2), 3, 3)
    with pytest.raises(ParameterError, match="cannot come from"):
        protocol.estimate(Tally(np.array([3, 3, 0]), 5, released=True))
    with pytest.raises(ParameterError, match="below the threshold"):
        protocol.estimate(Tally(np.array([2, 3, 0]), 5, released=True))
    with pytest.raises(ParameterError, match="more than the claimed"):
        SampleAndThresholdHistogram(Terms(5, 0.5, 1e-6), Dyadic(1, 2), 3, 3).guarantee  # noqa: B018
    assert tenth(users=2, domain_size=1).run([0, 0]).counts.tolist() == [0.0]
