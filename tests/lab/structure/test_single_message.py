"""Claim 18 and Theorem 6.2: what one message and pure privacy allow."""

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.lab.structure import (
    Channel,
    RandomizerCurve,
    RepeatedMessages,
    ShuffledCurve,
    claim_18_witness,
    compare_theorem_6_2,
    pure_epsilons_agree,
    r_gap,
    r_infinity,
    theorem_6_2_epsilon,
)


@st.composite
def channels(draw):
    values, outputs = draw(st.integers(2, 3)), draw(st.integers(2, 4))
    rows = []
    for _ in range(values):
        weights = draw(st.lists(st.integers(0, 9), min_size=outputs, max_size=outputs).filter(any))
        rows.append([Fraction(weight, sum(weights)) for weight in weights])
    return Channel.from_matrix(rows)


RATIOS = st.fractions(1, 6, max_denominator=7)


def chance_of_all_in(channel, data, messages):
    """The probability that all messages lie in a set, by listing every outcome."""
    return sum(
        (
            math.prod((share for _, share in sent), start=Fraction(1))
            for sent in product(*(channel.pmf(value).items() for value in data))
            if all(output[0] in messages for output, _ in sent)
        ),
        Fraction(0),
    )


@settings(max_examples=60)
@given(channels(), st.integers(1, 4))
def test_shuffling_changes_no_pure_epsilon(channel, users):
    assert pure_epsilons_agree(channel, users)


@settings(max_examples=60)
@given(channels(), st.integers(1, 4), RATIOS)
def test_the_witness_breaks_what_it_says(channel, users, ratio):
    witness = claim_18_witness(channel, users, ratio=ratio)
    assert (witness is None) == (RandomizerCurve(channel).ratio <= ratio)
    assert (witness is None) == (ShuffledCurve(channel, users).ratio <= ratio)
    if witness is not None:
        assert len(witness.first) == len(witness.second) == users
        assert sum(a != b for a, b in zip(witness.first, witness.second, strict=True)) == 1
        assert witness.first_probability == chance_of_all_in(channel, witness.first, witness.messages)
        assert witness.second_probability == chance_of_all_in(channel, witness.second, witness.messages)
        assert witness.first_probability > ratio * witness.second_probability
        assert witness.ratio == RandomizerCurve(channel).ratio


@settings(max_examples=30)
@given(channels(), st.integers(1, 3), st.sets(st.integers(0, 3), min_size=1))
def test_the_event_of_any_set(channel, users, messages):
    """Its ratio is that of one report, whatever the set and the number of users."""
    event = RepeatedMessages(channel, 0, 1, tuple(messages), users)
    assert event.first_probability == chance_of_all_in(channel, event.first, messages)
    assert event.second_probability == chance_of_all_in(channel, event.second, messages)
    alone = RepeatedMessages(channel, 0, 1, tuple(messages), 1)
    if event.first_probability:
        assert event.ratio == alone.ratio <= RandomizerCurve(channel).ratio


def test_epsilon_is_compared_exactly():
    warner = Channel.randomized_response(2, 3)
    assert claim_18_witness(warner, 5, ratio=3) is None
    assert claim_18_witness(warner, 5, epsilon=math.nextafter(math.log(3), 2)) is None
    below = math.nextafter(math.log(3), 0)
    witness = claim_18_witness(warner, 5, epsilon=below)
    assert witness.ratio == 3
    assert (witness.first, witness.second) == ((0, 0, 0, 0, 0), (1, 0, 0, 0, 0))
    assert witness.messages == (0,)
    assert (witness.first_probability, witness.second_probability) == (Fraction(243, 1024), Fraction(81, 1024))
    assert claim_18_witness(warner, 5, epsilon=0.0) is not None
    assert claim_18_witness(Channel.from_matrix([[1]]), 5, epsilon=0.0) is None


def test_a_fault_of_a_thousandth_is_found():
    honest, off = Fraction(3, 4), Fraction(1, 1000)
    fault = Channel.from_matrix([[honest, 1 - honest], [1 - honest - off, honest + off]])
    witness = claim_18_witness(fault, 3, ratio=3)
    assert (witness.value, witness.other, witness.messages) == (0, 1, (0,))
    assert witness.first_probability > 3 * witness.second_probability


def test_impossible_messages_give_everything_away():
    channel = Channel.from_matrix([[1, 0], [Fraction(1, 2), Fraction(1, 2)]])
    witness = claim_18_witness(channel, 3, epsilon=100.0)
    assert (witness.ratio, witness.second_probability) == (math.inf, 0)
    assert witness.first_probability == Fraction(1, 8)
    assert (witness.value, witness.messages) == (1, (1,))


def test_several_messages_are_another_matter():
    """The claim refuses them, and the equality that it proves is false of them."""
    for channel in (r_infinity(), r_gap(), Channel.of({0: {(): 1}, 1: {(1,): 1}})):
        with pytest.raises(ConditionError, match="exactly one message per user"):
            claim_18_witness(channel, 3, epsilon=1.0)
        with pytest.raises(ConditionError, match="Claims 19 and 20"):
            compare_theorem_6_2(channel, 3, 2)
        with pytest.raises(ConditionError):
            RepeatedMessages(channel, 0, 1, (0,), 3)
    assert not pure_epsilons_agree(r_infinity(), 2)
    assert not pure_epsilons_agree(r_gap(), 2)


@settings(max_examples=60)
@given(channels(), st.integers(1, 4), RATIOS)
def test_theorem_6_2(channel, users, ratio):
    both = compare_theorem_6_2(channel, users, ratio)
    assert both.holds
    assert (both.shuffled_ratio, both.local_ratio) == (ratio, users * ratio)
    assert both.shuffled_delta == ShuffledCurve(channel, users).delta_at_ratio(ratio)
    assert both.local_delta == RandomizerCurve(channel).delta_at_ratio(users * ratio)


def test_theorem_6_2_needs_its_logarithm():
    """Without ln(users) it is false: shuffling does help when there is a delta."""
    channel = Channel.randomized_response(2, 9)
    both = compare_theorem_6_2(channel, 4, 2)
    assert both.holds
    assert RandomizerCurve(channel).delta_at_ratio(2) > both.shuffled_delta


def test_theorem_6_2_in_numbers():
    assert theorem_6_2_epsilon(0.5, 1) == 0.5
    epsilon = theorem_6_2_epsilon(0.5, 1000)
    assert epsilon >= 0.5 + math.log(1000)
    assert epsilon == pytest.approx(0.5 + math.log(1000), rel=1e-15)
    assert theorem_6_2_epsilon(math.inf, 2) == math.inf


def test_nonsense_is_refused():
    warner = Channel.randomized_response(2, 3)
    with pytest.raises(ParameterError, match="either epsilon or"):
        claim_18_witness(warner, 3)
    with pytest.raises(ParameterError, match="either epsilon or"):
        claim_18_witness(warner, 3, ratio=2, epsilon=1.0)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ParameterError, match="epsilon"):
            claim_18_witness(warner, 3, epsilon=epsilon)
        with pytest.raises(ParameterError, match="epsilon"):
            theorem_6_2_epsilon(epsilon, 3)
    with pytest.raises(ParameterError, match="ratio"):
        claim_18_witness(warner, 3, ratio=Fraction(1, 2))
    for users in (0, -1):
        with pytest.raises(ParameterError, match="one user"):
            claim_18_witness(warner, users, epsilon=5.0)
        with pytest.raises(ParameterError, match="one user"):
            theorem_6_2_epsilon(1.0, users)
    with pytest.raises(ParameterError, match="no value 5"):
        RepeatedMessages(warner, 5, 0, (0,), 3)
