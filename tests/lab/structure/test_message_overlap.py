"""The lemma on pure privacy with several messages, on channels whose exact epsilon is enumerated."""

import math
import random
from fractions import Fraction

import pytest

import shuffledp as sdp
from shuffledp.errors import ParameterError
from shuffledp.lab.structure import Channel, ShuffledCurve, r_gap, r_infinity
from shuffledp.lab.structure.message_overlap import (
    channel_overlap_lower,
    least_overlap,
    overlap_lower,
    report_overlap,
    tilted_ratio,
)

WEIGHTS = [{0: 1, 1: Fraction(numerator, 8)} for numerator in (1, 3, 7, 8, 9, 20, 100)]


def random_channel(messages, rng):
    """Counts of ones with full support or gaps, on two values."""
    rows = []
    for _ in range(2):
        inner = [rng.choice((0, 1, 2, 5, 30)) for _ in range(messages - 1)]
        weights = [rng.randint(1, 9), *inner, rng.randint(1, 9)]
        rows.append({(0,) * (messages - n) + (1,) * n: Fraction(w, sum(weights)) for n, w in enumerate(weights)})
    return Channel.of(dict(enumerate(rows)))


@pytest.mark.parametrize("messages", [1, 2, 3])
def test_generating_functions_stay_within_the_exact_ratio_and_overlaps_above_the_bounds(messages):
    rng = random.Random(messages)
    private = 0
    for _ in range(25):
        channel = random_channel(messages, rng)
        for users in (1, 2, 4):
            ratio = ShuffledCurve(channel, users).ratio
            if ratio == math.inf:
                continue
            private += 1
            assert all(tilted_ratio(channel, *pair, z) <= ratio for pair in ((0, 1), (1, 0)) for z in WEIGHTS)
            overlap = report_overlap(channel, 0, 1)
            assert overlap >= channel_overlap_lower(channel, ratio)
    assert private > 10


def test_least_overlap_of_one_message_is_that_of_randomized_response():
    assert least_overlap(1, 3.0).overlap == pytest.approx(2 / (1 + 3.0), rel=1e-6)  # 1 - tanh(epsilon / 2)
    assert report_overlap(Channel.randomized_response(2, 3), 0, 1) == Fraction(1, 2)


def test_no_channel_beats_the_linear_program():
    assert float(report_overlap(r_gap(), 0, 1)) >= least_overlap(4, 1.6).overlap
    assert least_overlap(2, math.e).overlap == pytest.approx(math.exp(-1), rel=1e-6)


def test_overlaps_shrink_like_two_to_the_square_of_the_messages():
    found = [least_overlap(messages, math.e).overlap for messages in (1, 3, 5)]
    proven = [float(overlap_lower(Fraction(math.e), messages, 2)) for messages in (1, 3, 5)]
    assert all(lower < overlap for lower, overlap in zip(proven, found, strict=True))
    logarithms = [-math.log2(overlap) / messages**2 for messages, overlap in zip((1, 3, 5), found, strict=True)]
    assert all(0.5 < each < 1 for each in logarithms)


def test_the_exponent_is_half_of_what_counts_as_equal_as_possible_leave():
    """Three bits: 3^2 - (2^2 + 1^2) = 4. As many kinds as messages: m^2 - m."""
    assert overlap_lower(3, 3, 2) == Fraction(1, 2 * 3 * 4 * (4 * 7) ** 2)
    assert overlap_lower(3, 2, 5) == Fraction(1, 2 * 3 * 15 * (25 * 7))
    for messages, kinds in ((1, 2), (4, 2), (5, 3), (6, 2), (3, 7)):
        simple = 6 * kinds**messages * (kinds * math.sqrt(7)) ** (messages**2 * (1 - 1 / kinds))
        assert float(overlap_lower(3, messages, kinds)) >= 1 / simple


def test_with_a_delta_the_overlap_vanishes():
    """Randomized response at (1, 1e-6) has an overlap of lambda / n, below every bound of a pure protocol."""
    overlaps = [
        2 * float(sdp.find("count", "cheu").calibrate(users=users, epsilon=1.0, delta=1e-6).flip)
        for users in (1_000, 100_000)
    ]
    assert overlaps[1] < 0.02 * overlaps[0]
    assert overlaps[1] < float(overlap_lower(Fraction(math.e), 1, 2))


def test_the_bound_is_false_for_the_randomizer_in_order():
    """In order the two messages of Claim 19 have nothing in common; as multisets they are equal."""
    channel = r_infinity()
    assert sum(min(channel.pmf(0).get(y, 0), channel.pmf(1).get(y, 0)) for y in channel.outputs) == 0
    assert report_overlap(channel, 0, 1) == 1


def test_the_bound_would_notice_disjoint_messages():
    """Messages that have nothing in common break the bound; their shuffled ratio is infinite."""
    disjoint = Channel.of({0: {(0, 0): Fraction(1, 2), (1, 1): Fraction(1, 2)}, 1: {(0, 1): 1}})
    assert report_overlap(disjoint, 0, 1) == 0 < channel_overlap_lower(disjoint, Fraction(10))
    assert ShuffledCurve(disjoint, 3).ratio == math.inf


def test_bad_arguments_are_rejected():
    with pytest.raises(ParameterError, match="positive weight"):
        tilted_ratio(r_gap(), 0, 1, {0: 1, 1: 0})
    with pytest.raises(ParameterError):
        overlap_lower(Fraction(1, 2), 1, 2)
    with pytest.raises(ParameterError):
        least_overlap(9, 2.0)
