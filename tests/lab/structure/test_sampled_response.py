"""Randomized response and sample-and-threshold: what is equal and what is not, in exact fractions."""

import math
from fractions import Fraction

import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.structure import Channel, ShuffledCurve
from shuffledp.lab.structure.sampled_response import (
    equal_variance_count,
    filled_sample_pmf,
    pure_ratio,
    response_pmf,
    response_variance,
    sample_variance,
    sample_with_coins_pmf,
    thresholded_sample_pmf,
)

SHARES = [Fraction(1, 7), Fraction(1, 2), Fraction(4, 5)]


@pytest.mark.parametrize("share", SHARES)
def test_randomized_response_is_a_sample_filled_with_coins(share):
    for users in range(1, 6):
        for ones in range(users + 1):
            pmf = filled_sample_pmf(users, ones, share)
            assert sum(pmf) == 1
            assert pmf == response_pmf(users, ones, share)
            assert pmf != filled_sample_pmf(users, ones, share + Fraction(1, 100))


@pytest.mark.parametrize("share", SHARES)
def test_without_a_threshold_randomized_response_is_computed_from_a_large_sample(share):
    """So the claim that neither can be computed from the other needs a threshold of 2."""
    least = (1 - share) / (1 - share / 2)
    for rate in (least, (1 + least) / 2):
        for ones in range(5):
            assert sample_with_coins_pmf(4, ones, rate, share) == response_pmf(4, ones, share)
    with pytest.raises(ParameterError, match="at least"):
        sample_with_coins_pmf(4, 2, 1 - share, share)  # the rate of the sample that randomized response fills


@pytest.mark.parametrize("share", SHARES)
def test_only_randomized_response_is_purely_private(share):
    users = 4
    responses = [response_pmf(users, ones, share) for ones in range(users + 1)]
    assert pure_ratio(responses) == (2 - share) / share
    channel = Channel.from_matrix([[1 - share / 2, share / 2], [share / 2, 1 - share / 2]])
    assert ShuffledCurve(channel, users).ratio == (2 - share) / share
    for threshold in (1, 2, 4):
        assert (
            pure_ratio([thresholded_sample_pmf(users, c, 1 - share, threshold) for c in range(users + 1)]) == math.inf
        )


def test_a_threshold_of_two_hides_the_first_holder_and_randomized_response_does_not():
    share = Fraction(1, 3)
    assert thresholded_sample_pmf(5, 0, 1 - share, 2) == thresholded_sample_pmf(5, 1, 1 - share, 2)
    assert thresholded_sample_pmf(5, 0, 1 - share, 1) != thresholded_sample_pmf(5, 1, 1 - share, 1)
    assert response_pmf(5, 0, share) != response_pmf(5, 1, share)


@pytest.mark.parametrize("share", SHARES)
def test_variances_from_the_distributions(share):
    users = 4
    for ones in range(users + 1):
        assert _variance(response_pmf(users, ones, share)) / (1 - share) ** 2 == response_variance(users, share)
        sample = thresholded_sample_pmf(users, ones, 1 - share, 1)
        assert _variance(sample) / (1 - share) ** 2 == sample_variance(ones, 1 - share)
    assert sample_variance(1, 1 - share) * equal_variance_count(users, share) == response_variance(users, share)
    assert equal_variance_count(users, share) > Fraction(users, 2)


def _variance(pmf):
    mean = sum(number * mass for number, mass in enumerate(pmf))
    return sum((number - mean) ** 2 * mass for number, mass in enumerate(pmf))


def test_bad_arguments_are_rejected():
    for arguments in ((3, 4, Fraction(1, 2)), (3, 1, Fraction(0)), (3, 1, 0.5)):
        with pytest.raises(ParameterError):
            response_pmf(*arguments)
