"""Lower bounds for one shuffled message: every protocol tried obeys them, and their steps hold by enumeration."""

import itertools
import math
import random
from fractions import Fraction

import pytest

import shuffledp as sdp
from shuffledp.errors import ParameterError
from shuffledp.lab.bounds.single_message import (
    any_histogram_error_lower,
    count_error_closed_form,
    count_error_lower,
    count_users_least,
    histogram_error_lower,
)
from shuffledp.lab.structure import Channel, ShuffledCurve

TARGET = {"users": 100_000, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_single_message_count_obeys_its_bound(epsilon, delta):
    for users in (600, 100_000):
        bound = count_error_lower(users, epsilon, delta)
        exact = sdp.find("count", "cheu").calibrate(users=users, epsilon=epsilon, delta=delta).expected_error().rmse
        assert 0 < count_error_closed_form(users, epsilon, delta) <= bound < exact
    assert exact < 6 * bound


def test_the_bound_grows_like_the_root_of_the_logarithm():
    for exponent in (1, 6, 16, 64, 256):
        delta = 10.0**-exponent
        logarithm = math.log(1 / delta)
        assert count_error_lower(10**12, 1.0, delta) == pytest.approx(math.sqrt(logarithm / 2), rel=1e-3)
        users = math.ceil(count_users_least(1.0, delta))
        assert count_error_closed_form(users, 1.0, delta) == pytest.approx(0.42888 * math.sqrt(logarithm - 1), rel=1e-4)
        assert count_error_lower(users, 1.0, delta) >= 0.4288 * math.sqrt(logarithm - 1)


def test_few_users_have_a_smaller_bound_than_many():
    """The answer n/2 errs by n/2 at most, whatever delta is: the rate alone is false for very few users."""
    for users, epsilon, delta in ((2, 0.1, 1e-300), (3, 1.0, 1e-100), (2, 4.0, 1e-6)):
        assert count_error_lower(users, epsilon, delta) <= users / 2
        assert users / 2 < 0.4288 * math.sqrt(math.log(1 / delta) - 1)
        assert users < count_users_least(epsilon, delta)
    assert count_error_lower(10**6, 100.0, 1e-6) >= count_error_closed_form(10**6, 100.0, 1e-6) > 0


def test_several_messages_are_below_the_bound():
    """The separation: correlated noise has less error than any single-message protocol can have."""
    bound = count_error_lower(10**6, 1.0, 1e-6)
    several = sdp.find("count", "discrete-laplace").calibrate(users=1000, epsilon=0.9, delta=1e-6).expected_error().rmse
    assert several < bound  # correlated noise has exactly this error, whatever delta is


def _random_channel(rng):
    rows = [[rng.choice((0, 1, 1, 2, 5, 30)) for _ in range(3)] for _ in range(2)]
    rows = [row if any(row) else [1, 1, 1] for row in rows]
    return [[Fraction(weight, sum(row)) for weight in row] for row in rows]


def _least_squared_error(zero, one, users):
    """The least mean squared error of the count of uniform bits, by enumeration of bits and shuffled messages."""
    moments = {}
    for bits in itertools.product((0, 1), repeat=users):
        for messages in itertools.product(range(3), repeat=users):
            mass = math.prod((zero, one)[bit][message] for bit, message in zip(bits, messages, strict=True))
            total, first, second = moments.get(key := tuple(sorted(messages)), (0, 0, 0))
            count = sum(bits)
            moments[key] = total + mass, first + mass * count, second + mass * count**2
    return sum(second - first**2 / total for total, first, second in moments.values() if total) / 2**users


@pytest.mark.parametrize("users", [2, 3])
def test_no_channel_errs_less_than_the_bound(users):
    """Exact privacy and exact least errors of random channels; the overlap is the step between them."""
    rng, compared = random.Random(users), 0
    for _ in range(12):
        zero, one = _random_channel(rng)
        least = _least_squared_error(zero, one, users)
        overlap = sum(map(min, zero, one))
        assert least >= users * overlap / 4
        curve = ShuffledCurve(Channel.from_matrix([zero, one]), users)
        for epsilon in (0.01, 0.5, 2.0):
            delta = float(curve.delta_at_ratio(Fraction(math.exp(epsilon))))
            if 1e-300 < delta < 1:
                compared += 1
                assert users * overlap / 4 >= count_error_lower(users, epsilon, delta) ** 2
    assert compared > 10


def test_a_bound_that_is_stronger_by_half_would_be_false():
    """With a large epsilon randomized response comes within the root of 2 of the bound."""
    protocol = sdp.find("count", "cheu").calibrate(users=100_000, epsilon=5.0, delta=1e-12)
    assert protocol.expected_error().rmse < 1.5 * count_error_lower(100_000, 5.0, 1e-12)


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
    exponents = [exponent for exponent in (10, 100, 1050, 1100, 1200) if _bound(exponent) > error]
    assert exponents == [1100, 1200]
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
    assert count_error_closed_form(10, 1.0, 0.4) == 0 < count_error_lower(10, 1.0, 0.4)
    with pytest.raises(ParameterError):
        histogram_error_lower(10, 0.1, 1.0, 1e-6)
    with pytest.raises(ParameterError):
        count_error_lower(1, 1.0, 1e-6)


def test_the_condition_for_histograms_has_no_factors_of_2():
    """t delta + (n e^epsilon)^t / (d - 1) < 1 - beta: 1000 users and 2^64 categories give t = 5."""
    assert histogram_error_lower(1000, 64 * math.log(2), 1.0, 1e-6, failure=0.1) == 2.5
    edge = 1 + (1000 * math.e) ** 3 / (0.95 - 3e-6)
    assert histogram_error_lower(1000, math.log(edge * 1.001), 1.0, 1e-6) == 1.5
    assert histogram_error_lower(1000, math.log(edge * 0.999), 1.0, 1e-6) == 1.0


@pytest.mark.parametrize(("users", "held"), [(3, 1), (3, 2), (4, 3)])
def test_messages_of_several_users_by_enumeration(users, held):
    """The step of the proof: any event of ``held`` messages changes by (n e^epsilon)^t and t delta at most."""
    zero, one = [Fraction(17, 20), Fraction(1, 10), Fraction(1, 20)], [Fraction(1, 20), Fraction(1, 2), Fraction(9, 20)]
    for ratio in (Fraction(1), Fraction(3, 2), Fraction(4)):
        delta = ShuffledCurve(Channel.from_matrix([zero, one]), users).delta_at_ratio(ratio)
        beyond = Fraction(0)
        for messages in itertools.product(range(3), repeat=held):
            first, second = (math.prod(row[message] for message in messages) for row in (one, zero))
            beyond += max(first - (users * ratio) ** held * second, 0)
        assert beyond <= held * delta
