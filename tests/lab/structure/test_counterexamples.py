"""Claims 19 and 20 with their exact epsilons."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.lab.structure import RandomizerCurve, ShuffledCurve, extreme_ratio, pure_ratios, r_gap, r_infinity
from shuffledp.lab.structure.counterexamples import GAP, STRINGS

ALLOWED = [bits for bits in STRINGS if bits not in GAP]


def test_claim_19():
    ratios = pure_ratios(r_infinity(), range(1, 8))
    assert ratios.randomizer == math.inf
    assert ratios.preshuffled == 1
    assert set(ratios.shuffled.values()) == {1}
    assert RandomizerCurve(r_infinity()).epsilon == math.inf
    assert ShuffledCurve(r_infinity(), 5).epsilon == ShuffledCurve(r_infinity(), 5).delta_at(0.0) == 0


def test_claim_20_in_numbers():
    ratios = pure_ratios(r_gap(), range(1, 6))
    assert ratios.randomizer == ratios.preshuffled == math.inf
    assert ratios.shuffled == {
        1: math.inf,
        2: Fraction(5, 2),
        3: Fraction(125, 64),
        4: Fraction(8, 5),
        5: Fraction(8, 5),
    }
    epsilons = [round(ShuffledCurve(r_gap(), users).epsilon, 4) for users in (2, 3, 4)]
    assert epsilons == [0.9163, 0.6694, 0.4700]


def count_ratio(users):
    """The largest ratio by the numbers of ones alone, with integer polynomials."""
    pmfs = [(16, (1, 4, 6, 4, 1)), (10, (1, 4, 0, 4, 1))]

    def times(first, second):
        result = [0] * (len(first) + len(second) - 1)
        for a, left in enumerate(first):
            for b, right in enumerate(second):
                result[a + b] += left * right
        return result

    powers = [[[1]], [[1]]]
    for (_, pmf), list_of_powers in zip(pmfs, powers, strict=True):
        for _ in range(users):
            list_of_powers.append(times(list_of_powers[-1], pmf))
    worst = Fraction(1)
    for ones in range(users):
        first = times(powers[1][ones], powers[0][users - ones])
        second = times(powers[1][ones + 1], powers[0][users - ones - 1])
        for zero, one in zip(first, second, strict=True):  # over 16 and 10 for the user who differs
            worst = max(worst, Fraction(10 * zero, 16 * one), Fraction(16 * one, 10 * zero))
    return worst


@pytest.mark.parametrize("users", [*range(2, 13), 20, 33, 50])
def test_claim_20_stays_where_it_is(users):
    ratio = ShuffledCurve(r_gap(), users).ratio
    assert ratio == count_ratio(users)
    if users >= 4:
        assert ratio == extreme_ratio(r_gap()) == Fraction(8, 5)


def test_the_crowd_that_extreme_counts_do_not_see():
    """Of four or more users the worst outcome is that all messages are alike."""
    witness = ShuffledCurve(r_gap(), 7).witness
    assert set(witness.event[0]) in ({0}, {1})
    assert witness.ratio == Fraction(8, 5)


@st.composite
def gap_pmfs(draw):
    pmfs = []
    for support in (STRINGS, ALLOWED):
        weights = draw(st.lists(st.integers(1, 30), min_size=len(support), max_size=len(support)))
        pmfs.append({bits: Fraction(w, sum(weights)) for bits, w in zip(support, weights, strict=True)})
    return pmfs


@settings(max_examples=15)
@given(gap_pmfs())
def test_any_distributions_on_these_supports_will_do(pmfs):
    channel = r_gap(*pmfs)
    ratios = pure_ratios(channel, range(1, 7))
    assert ratios.randomizer == ratios.preshuffled == ratios.shuffled[1] == math.inf
    later = [ratios.shuffled[users] for users in range(2, 7)]
    assert all(isinstance(ratio, Fraction) for ratio in later)
    assert all(more <= fewer for fewer, more in pairwise(later))
    assert later[-1] >= extreme_ratio(channel)


def test_the_gap_is_what_makes_it_infinite():
    """The planted fault: with a little mass on every string the pre-shuffled epsilon is finite, and it is refused."""
    filled = {bits: Fraction(1, 16) for bits in STRINGS}
    with pytest.raises(ParameterError, match="On 1 each of these 10 strings"):
        r_gap(on_one=filled)


def test_other_supports_are_refused():
    uniform = dict.fromkeys(STRINGS, Fraction(1, 16))
    short = dict.fromkeys(STRINGS[:8], Fraction(1, 8))
    with pytest.raises(ParameterError, match="On 0 each of these 16 strings") as caught:
        r_gap(on_zero=short)
    assert caught.value.values["missing"] == list(STRINGS[8:])
    longer = {**dict.fromkeys(STRINGS[:15], Fraction(1, 16)), (1, 1, 1, 1, 1): Fraction(1, 16)}
    with pytest.raises(ParameterError) as caught:
        r_gap(on_zero=longer)
    assert caught.value.values["forbidden"] == [(1, 1, 1, 1, 1)]
    with pytest.raises(ParameterError, match="sum to 15/16"):
        r_gap(on_zero={**uniform, (0, 0, 0, 0): 0})
