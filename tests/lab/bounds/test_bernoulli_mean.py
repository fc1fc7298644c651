"""The lower bounds on users for a Bernoulli mean hold for every channel tried, and randomized response is close."""

import itertools
import math
import random

import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.bounds.bernoulli_mean import (
    alpha_lower,
    exact_local_users_lower,
    local_success_upper,
    local_users_lower,
    randomized_bits_success,
    users_lower,
)


def best_success(rows, users, alpha):
    """The largest probability p with which some test tells 1/2 - alpha from 1/2 + alpha, by enumeration."""
    low, high = (
        [(1 - mean) * zero + mean * one for zero, one in zip(*rows, strict=True)] for mean in (0.5 - alpha, 0.5 + alpha)
    )
    distance = 0.0
    for messages in itertools.product(range(len(rows[0])), repeat=users):
        first, second = (math.prod(pmf[message] for message in messages) for pmf in (low, high))
        distance += abs(first - second) / 2
    return (1 + distance) / 2


def random_channel(epsilon, outputs, rng):
    """Two distributions whose ratio lies in [e^-epsilon, e^epsilon]."""
    while True:
        zero = [rng.random() for _ in range(outputs)]
        one = [share * math.exp(epsilon * rng.uniform(-1, 1)) for share in zero]
        rows = [[share / sum(row) for share in row] for row in (zero, one)]
        if all(math.exp(-epsilon) <= a / b <= math.exp(epsilon) for a, b in zip(*rows, strict=True)):
            return rows


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_no_channel_needs_fewer_users_than_the_bound(epsilon):
    rng = random.Random(round(10 * epsilon))
    flip = 1 / (1 + math.exp(epsilon))
    channels = [random_channel(epsilon, rng.choice((2, 3)), rng) for _ in range(12)]
    channels.append([[1 - flip, flip], [flip, 1 - flip]])
    for rows, users, alpha in itertools.product(channels, (1, 2, 5), (0.05, 0.3, 0.45)):
        probability = best_success(rows, users, alpha)
        if probability > 0.5 + 1e-9:
            assert local_users_lower(alpha, probability - 1e-9, epsilon) <= users


def test_a_bound_that_is_stronger_by_a_tenth_would_be_false():
    """One user, randomized response: affinity and distance are exact, so the bound is nearly attained."""
    epsilon, alpha = 4.0, 0.49
    flip = 1 / (1 + math.exp(epsilon))
    probability = best_success([[1 - flip, flip], [flip, 1 - flip]], 1, alpha)
    bound = -math.log(4 * probability * (1 - probability)) / -math.log1p(-((2 * alpha * math.tanh(epsilon / 2)) ** 2))
    assert 0.9 < bound <= 1 + 1e-9


def test_the_rate_is_that_of_the_paper():
    """Omega(1 / (alpha epsilon)^2): the constant tends to ln(1 / (4 p (1 - p)))."""
    users = local_users_lower(0.001, 0.95, 0.01)
    assert users * (0.001 * 0.01) ** 2 == pytest.approx(math.log(1 / 0.19), rel=1e-3)
    assert users_lower(0.01, 0.95) == 4151
    assert alpha_lower(local_users_lower(0.01, 0.95, 1.0), 0.95, 1.0) == pytest.approx(0.01, rel=1e-4)


def test_randomized_response_needs_about_twice_the_bound():
    flip = 1 / (1 + math.e)
    least = local_users_lower(0.01, 0.95, 1.0)
    assert randomized_bits_success(least, flip, 0.5, 0.01) < 0.95
    assert randomized_bits_success(round(2.35 * least), flip, 0.5, 0.01) > 0.95


def test_exact_success_by_enumeration():
    users, flip, mean, alpha = 7, 0.3, 0.4, 0.25
    share = flip + (1 - 2 * flip) * mean
    expected = sum(
        math.comb(users, ones) * share**ones * (1 - share) ** (users - ones)
        for ones in range(users + 1)
        if abs((ones / users - flip) / (1 - 2 * flip) - mean) <= alpha
    )
    assert randomized_bits_success(users, flip, mean, alpha) == pytest.approx(expected)


def test_the_exact_bound_is_stronger():
    """Two means: 1.6 times the closed form. 21 means: within 2 per cent of what randomized response needs."""
    assert exact_local_users_lower(0.1, 0.95, 1.0) == 315 > local_users_lower(0.1, 0.95, 1.0) == 194
    assert local_success_upper(31_671, 0.01, 1.0) < 0.95 <= local_success_upper(31_673, 0.01, 1.0)
    assert local_success_upper(44_336, 0.01, 1.0, points=21) < 0.95
    flip = 1 / (1 + math.e)
    assert randomized_bits_success(45_200, flip, 0.5, 0.01) > 0.95


@pytest.mark.parametrize("users", [1, 4, 5])
def test_the_largest_success_by_enumeration(users):
    """The best guess among the means, from all responses in order."""
    epsilon, alpha = 2.0, 0.2
    flip = 1 / (1 + math.exp(epsilon))
    rows = [[1 - flip, flip], [flip, 1 - flip]]
    assert local_success_upper(users, alpha, epsilon) == pytest.approx(best_success(rows, users, alpha), rel=1e-12)
    means, prior = (0.1, 0.5, 0.9), [math.cos(math.pi / 4), 1.0, math.cos(math.pi / 4)]
    shares = [flip + (1 - 2 * flip) * mean for mean in means]
    expected = sum(
        max(
            weight * share ** sum(responses) * (1 - share) ** (users - sum(responses))
            for weight, share in zip(prior, shares, strict=True)
        )
        for responses in itertools.product((0, 1), repeat=users)
    ) / sum(prior)
    assert local_success_upper(users, alpha, epsilon, points=3) == pytest.approx(expected, rel=1e-12)


def asked_in_turn(epsilon, alpha, rng):
    """The best success of a protocol of two users and three rounds: each question depends on all earlier answers.

    The first user is asked twice, with half of epsilon each; public coins choose the first question.
    """
    distributions = [{}, {}]
    questions = {}
    for coin, first, second, third in itertools.product(range(2), range(3), range(2), range(2)):
        history = [(coin,), (coin, first), (coin, first, second)]
        for step, (key, share) in enumerate(zip(history, (epsilon / 2, epsilon, epsilon / 2), strict=True)):
            questions.setdefault(key, random_channel(share, (3, 2, 2)[step], rng))
        for mean, seen in zip((0.5 - alpha, 0.5 + alpha), distributions, strict=True):
            total = 0.0
            for one, other in itertools.product(range(2), repeat=2):
                answers = [questions[history[0]][one][first], questions[history[1]][other][second]]
                answers.append(questions[history[2]][one][third])
                total += math.prod(mean if bit else 1 - mean for bit in (one, other)) * math.prod(answers) / 2
            seen[coin, first, second, third] = total
    assert sum(distributions[0].values()) == pytest.approx(1)
    return (1 + sum(abs(distributions[0][y] - distributions[1][y]) for y in distributions[0]) / 2) / 2


def test_no_interactive_protocol_with_public_coins_beats_the_bounds():
    rng = random.Random(14)
    for epsilon, alpha in itertools.product((1.0, 4.0), (0.05, 0.3, 0.45)):
        successes = [asked_in_turn(epsilon, alpha, rng) for _ in range(10)]
        assert max(successes) <= local_success_upper(2, alpha, epsilon) + 1e-12
        assert local_users_lower(alpha, max(successes) - 1e-9, epsilon) <= 2
        assert max(successes) > 0.5 + 0.1 * (local_success_upper(2, alpha, epsilon) - 0.5)


def test_without_its_conditions_the_bound_would_be_false():
    """A guess among 50 intervals is within 0.01 with probability 0.02; the formula would ask for 29,804 users."""
    formula = -math.log(4 * 0.02 * 0.98) / -math.log1p(-((0.02 * math.tanh(0.5)) ** 2))
    assert math.ceil(formula) == 29_804
    for alpha, probability in ((0.01, 0.02), (0.01, 0.5), (0.5, 0.95), (0.7, 0.95)):
        for bound in (local_users_lower, exact_local_users_lower):
            with pytest.raises(ParameterError, match=r"alpha must lie in \(0, 1/2\) and the probability in \(1/2, 1\)"):
                bound(alpha, probability, 1.0)


def test_targets_that_mean_nothing_are_rejected():
    for alpha, probability in ((0.0, 0.9), (0.5, 0.9), (0.1, 0.5), (0.1, 1.0), (float("nan"), 0.9)):
        with pytest.raises(ParameterError):
            users_lower(alpha, probability)
    with pytest.raises(ParameterError):
        alpha_lower(0, 0.9)
    for epsilon in (0.0, -1.0, float("nan")):
        with pytest.raises(ParameterError, match="epsilon above 0"):
            alpha_lower(100, 0.9, epsilon)
    with pytest.raises(ParameterError, match="2 alpha apart"):
        local_success_upper(100, 0.3, 1.0, points=3)
    with pytest.raises(ParameterError, match="at most"):
        local_success_upper(10**9, 0.01, 1.0, points=3)
