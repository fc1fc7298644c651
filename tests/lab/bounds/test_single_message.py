"""Lower bounds for one shuffled message: every protocol tried obeys them, and their steps hold by enumeration."""

import itertools
import math
from fractions import Fraction

import pytest
from scipy import stats

import shuffledp as sdp
from shuffledp.errors import ParameterError
from shuffledp.lab.bounds.single_message import (
    _largest_probability,
    any_histogram_error_lower,
    count_error_constant,
    count_error_lower,
    histogram_error_lower,
)
from shuffledp.lab.structure import Channel, ShuffledCurve

TARGET = {"users": 100_000, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_single_message_count_obeys_its_bound(delta):
    bound = count_error_lower(100_000, 1.0, delta)
    measured = sdp.find("count", "cheu").calibrate(users=100_000, epsilon=1.0, delta=delta).expected_error().rmse
    assert 0.2 < bound.rmse < measured
    assert 0 < bound.hidden < math.exp(-1)
    assert bound.rmse == pytest.approx(bound.shift / 2 * math.sqrt(1 - bound.distance))


def test_the_bound_grows_like_the_root_of_the_logarithm():
    errors = [count_error_lower(10**8, 1.0, 10.0**-exponent).rmse for exponent in (16, 64, 256)]
    assert errors[1] / errors[0] == pytest.approx(2, rel=0.1)
    assert errors[2] / errors[1] == pytest.approx(2, rel=0.05)
    assert count_error_constant(1.0) == pytest.approx(0.1443, abs=1e-3)
    assert all(
        error > count_error_constant(1.0) * math.sqrt(exponent * math.log(10) - 1)
        for error, exponent in zip(errors, (16, 64, 256), strict=True)
    )


def test_several_messages_are_below_the_bound():
    """The separation: correlated noise has less error than any single-message protocol can have, for a tiny delta."""
    delta = 1e-250
    bound = count_error_lower(10**9, 1.0, delta).rmse
    several = sdp.find("count", "discrete-laplace").calibrate(users=1000, epsilon=0.9, delta=1e-6).expected_error().rmse
    assert several < bound  # correlated noise has exactly this error, whatever delta is


@pytest.mark.parametrize("users", [2, 3, 4])
@pytest.mark.parametrize("flip", [Fraction(1, 10), Fraction(1, 4), Fraction(1, 50)])
def test_the_step_from_privacy_to_hidden_ones(users, flip):
    """h >= e^-epsilon (1 - a - delta (1 - a)^-(n - 1)) for messages of probability a on 0 that betray a 1."""
    channel = Channel.from_matrix([[1 - flip, flip], [flip, 1 - flip]])
    for ratio in (Fraction(1), Fraction(3, 2), Fraction(4)):
        delta = ShuffledCurve(channel, users).delta_at_ratio(ratio)
        absent = 1 - flip  # with a 0 the message 1, which betrays a 1, is not sent
        assert flip >= (absent - delta / absent ** (users - 1)) / ratio


@pytest.mark.parametrize("name", ["shuffled-k-rr", "solh"])
def test_single_message_histograms_obey_their_bound(name):
    for size in (100, 10_000):
        protocol = sdp.find("histogram", name).calibrate(**TARGET, domain_size=size)
        assert protocol.cost.messages_per_user == 1
        lower = max(
            histogram_error_lower(100_000, math.log(size), 1.0, 1e-6),
            any_histogram_error_lower(math.log(size), 1.0, 1e-6, users=100_000),
        )
        assert lower < protocol.expected_error().max_error


def test_the_single_message_bound_passes_the_error_of_theorem_12():
    """With several messages the error does not grow: 82 users for a million users, in every domain."""
    flat = sdp.BalcerCheuHistogram.calibrate(users=10**6, epsilon=1.0, delta=1e-6, domain_size=10**6)
    error = flat.expected_error().max_error
    exponents = [exponent for exponent in (10, 100, 1100, 1200) if _bound(exponent) > error]
    assert exponents == [1200]
    assert _bound(2400) == pytest.approx(2 * _bound(1200), abs=1)


def _bound(exponent):
    return histogram_error_lower(10**6, exponent * math.log(10), 1.0, 1e-6)


def test_what_packing_says_in_any_model():
    assert any_histogram_error_lower(math.log(10**3), 1.0, 1e-6, users=1000) == 3.0
    assert any_histogram_error_lower(math.log(10) * 300, 1.0, 1e-6, users=1000) == 7.0  # ln(1/delta) = 13.8
    stability = sdp.find("histogram", "stability").calibrate(**TARGET, domain_size=10**6).expected_error().max_error
    assert stability > 7.0


def test_bounds_say_nothing_where_nothing_is_known():
    assert histogram_error_lower(10**6, math.log(1000), 1.0, 1e-6) == 0
    assert count_error_lower(10, 1.0, 0.4).rmse == 0
    with pytest.raises(ParameterError):
        histogram_error_lower(10, 0.1, 1.0, 1e-6)
    with pytest.raises(ParameterError):
        count_error_lower(1, 1.0, 1e-6)


@pytest.mark.parametrize(("zeros", "shift"), [(4, 1), (5, 2), (6, 3)])
def test_the_distance_of_hidden_messages_by_enumeration(zeros, shift):
    """``shift`` messages of G among those of zeros, shuffled: distance at most sqrt((1 + k (M - 1) / m)^k - 1) / 2."""
    zero, hidden = [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]
    second_moment = sum(g * g / p for g, p in zip(hidden, zero, strict=True))
    first, second = {}, {}
    for messages in itertools.product(range(3), repeat=zeros):
        seen = tuple(sorted(messages))
        masses = [hidden[m] if place < shift else zero[m] for place, m in enumerate(messages)]
        first[seen] = first.get(seen, 0.0) + math.prod(zero[m] for m in messages)
        second[seen] = second.get(seen, 0.0) + math.prod(masses)
    distance = sum(abs(first[seen] - second[seen]) for seen in first) / 2
    bound = math.sqrt((1 + shift / zeros * (second_moment - 1)) ** shift - 1) / 2
    assert 0.3 * bound < distance <= bound


@pytest.mark.parametrize(("count", "chance", "shift"), [(50, 0.7, 1), (200, 0.3, 4), (1000, 0.65, 2)])
def test_the_distance_of_revealed_ones(count, chance, shift):
    fewer, more = (stats.binom.pmf(range(count + shift + 1), count + extra, chance) for extra in (0, shift))
    distance = float(abs(fewer - more).sum()) / 2
    bound = shift * chance * _largest_probability(count, chance)
    assert 0.9 * bound <= distance <= bound * (1 + 1e-9)
