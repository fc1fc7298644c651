"""Randomizers as exact finite channels."""

import math
from collections import Counter
from fractions import Fraction

import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.structure import Channel, r_gap
from shuffledp.lab.structure.drawing import draw_from, permuted
from shuffledp.randomness import SYSTEM
from shuffledp.randomness.samplers import uniform_below
from shuffledp.testing.statistics import ALPHA, p_value

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def test_a_channel_is_its_distributions():
    channel = Channel.of({"yes": {(1,): HALF, (0,): HALF, (2,): 0}, "no": {(0, 0): 1}})
    assert channel.values == ("yes", "no")
    assert channel.pmf("yes") == {(1,): HALF, (0,): HALF}
    assert channel.pmf("no") == {(0, 0): 1}
    assert channel.outputs == ((1,), (0,), (0, 0))  # what never happens is not listed
    assert channel.messages == (0, 1)
    assert channel.max_messages == 2
    assert not channel.is_single_message
    assert channel.probability("yes", [(1,), (0,), (1,), (0, 0), (7,)]) == 1
    assert hash(channel) == hash(Channel(channel.values, channel.outputs, channel.rows))


def test_a_matrix_is_one_message_each():
    channel = Channel.from_matrix([[HALF, HALF], [THIRD, 1 - THIRD]])
    assert channel.is_single_message
    assert channel.pmf(1) == {(0,): THIRD, (1,): 2 * THIRD}
    assert channel.denominator == 6
    assert channel.weights == ((3, 3), (2, 4))


def test_a_ragged_matrix_is_refused():
    with pytest.raises(ParameterError, match="different lengths"):
        Channel.from_matrix([[1, 0], [1]])


def test_randomized_response():
    channel = Channel.randomized_response(4, Fraction(5, 2))
    assert channel.pmf(2) == {
        (0,): Fraction(2, 11),
        (1,): Fraction(2, 11),
        (2,): Fraction(5, 11),
        (3,): Fraction(2, 11),
    }
    assert Channel.randomized_response(1, 7).pmf(0) == {(0,): 1}


def test_copies_are_messages():
    channel = Channel.from_copies({0: {(2, 0, 1): HALF, (0, 0): THIRD, (0,): 1 - HALF - THIRD}, 1: {(0, 1): 1}})
    assert channel.pmf(0) == {(0, 0, 2): HALF, (): HALF}
    assert channel.pmf(1) == {(1,): 1}


def test_preshuffling_forgets_the_order():
    channel = Channel.of({0: {("b", "a"): HALF, ("a", "b"): THIRD, (): 1 - HALF - THIRD}, 1: {("a",): 1}})
    assert channel.preshuffled.pmf(0) == {("a", "b"): HALF + THIRD, (): 1 - HALF - THIRD}
    assert channel.preshuffled.pmf(1) == {("a",): 1}
    assert channel.preshuffled.preshuffled == channel.preshuffled
    sizes = Counter({sum(bits): share for bits, share in r_gap().preshuffled.pmf(0).items()})
    assert sizes == {0: Fraction(1, 16), 1: Fraction(4, 16), 2: Fraction(6, 16), 3: Fraction(4, 16), 4: Fraction(1, 16)}
    mixed = Channel.of({0: {("x", 1, None): 1}})  # messages that have no order
    assert sorted(mixed.preshuffled.outputs[0], key=repr) == list(mixed.preshuffled.outputs[0])


@pytest.mark.parametrize(
    ("pmfs", "complaint"),
    [
        ({}, "at least one value"),
        ({0: {}}, "sum to 0"),
        ({0: {(0,): HALF, (1,): HALF - Fraction(1, 1000)}}, "sum to 999/1000"),
        ({0: {(0,): 1}, 1: {(0,): 2, (1,): -1}}, "negative"),
        ({0: {(0,): 0.5, (1,): 0.5}}, "exact"),
        ({0: {0: 1}}, r"write \(0,\)"),
        ({0: {"ab": 1}}, "tuple of messages"),
    ],
)
def test_nonsense_is_refused(pmfs, complaint):
    with pytest.raises(ParameterError, match=complaint):
        Channel.of(pmfs)


def test_other_nonsense_is_refused():
    one = (Fraction(1),)
    outputs = ((0,),)
    for fields in (
        ((0, 1), outputs, (one,)),
        ((0,), (*outputs, (1,)), (one,)),
        ((0, 0), outputs, (one, one)),
        ((), (), ()),
    ):
        with pytest.raises(ParameterError):
            Channel(*fields)
    with pytest.raises(ParameterError, match="at least 1, not 1/2"):
        Channel.randomized_response(2, HALF)
    with pytest.raises(ParameterError, match="exact number"):
        Channel.randomized_response(2, 2.5)
    with pytest.raises(ParameterError, match="at least one value"):
        Channel.randomized_response(0, 2)
    with pytest.raises(ParameterError, match="no value 9; it has 0, 1"):
        Channel.randomized_response(2, 2).pmf(9)
    with pytest.raises(ParameterError, match="and 2 more"):
        Channel.randomized_response(8, 2).index(-1)
    with pytest.raises(ParameterError, match="exact"):
        Channel.from_copies({0: {(1, 0): 0.25, (0, 1): 0.75}})


# drawing


def test_draws_have_their_distribution():
    """Every output, 20,000 draws, alpha 1e-7; a distribution with one per cent in the wrong place is rejected."""
    pmf = {"a": Fraction(1, 7), "b": Fraction(2, 3), "c": Fraction(4, 21)}
    channel = Channel.of({0: {(name,): share for name, share in pmf.items()}})
    drawn = Counter(channel.draw(0)[0] for _ in range(20_000))
    counts = [drawn[name] for name in pmf]
    assert p_value(counts, [float(share) for share in pmf.values()]) > ALPHA
    assert p_value(counts, [1 / 7 + 0.05, 2 / 3 - 0.05, 4 / 21]) < ALPHA
    assert draw_from({"sure": Fraction(1)}, SYSTEM) == "sure"


@pytest.mark.parametrize("bound", [1, 2, 5, 256, 257])
def test_whole_numbers_are_uniform(bound):
    """20,000 draws, alpha 1e-7; the distribution without the last number is rejected."""
    drawn = Counter(uniform_below(bound, SYSTEM) for _ in range(20_000))
    counts = [drawn[number] for number in range(bound)]
    assert sum(counts) == 20_000
    assert p_value(counts, [1 / bound] * bound) > ALPHA
    if bound > 1:
        assert p_value(counts, [1 / (bound - 1)] * (bound - 1) + [0]) < ALPHA


def test_large_whole_numbers():
    bound = 3**200
    drawn = [uniform_below(bound, SYSTEM) for _ in range(200)]
    assert all(0 <= number < bound for number in drawn)
    assert len(set(drawn)) == 200
    assert max(drawn) > bound // 2 > min(drawn)


def test_every_order_is_as_likely():
    """All orders of four items, 24,000 draws, alpha 1e-7; the cyclic shifts alone are rejected."""
    orders = Counter(permuted("abcd", SYSTEM) for _ in range(24_000))
    assert len(orders) == math.factorial(4)
    assert p_value(list(orders.values()), [1 / 24] * 24) > ALPHA
    shifts = Counter(tuple("abcd"[uniform_below(4, SYSTEM) :][:4]) for _ in range(24_000))
    assert p_value([shifts.get(order, 0) for order in orders], [1 / 24] * 24) < ALPHA
    assert permuted((), SYSTEM) == ()
    assert permuted([1, 1], SYSTEM) == (1, 1)
