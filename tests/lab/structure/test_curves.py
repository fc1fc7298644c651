"""Exact privacy of randomizers and shuffled protocols, against enumeration of every order."""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.lab.structure import Channel, RandomizerCurve, ShuffledCurve, pure_ratios
from shuffledp.lab.structure.exact_ratios import epsilon_above, exceeds, float_above, growth_below
from shuffledp.privacy.amplification import exact_delta
from shuffledp.privacy.amplification.multisets import MAX_OUTCOMES, Numbering, data_sets
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.protocols.count.pure_sum import PureSumCount
from shuffledp.protocols.count.randomized_response import RandomizedResponse

RATIOS = [Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(4)]


@st.composite
def channels(draw, outputs=None, most_values=3):
    """Random rational channels, now and then with impossible outputs."""
    possible = outputs or [(0,), (1,), (2,)]
    pmfs = {}
    for value in range(draw(st.integers(2, most_values))):
        weights = draw(st.lists(st.integers(0, 6), min_size=len(possible), max_size=len(possible)).filter(any))
        pmfs[value] = {y: Fraction(weight, sum(weights)) for y, weight in zip(possible, weights, strict=True)}
    return Channel.of(pmfs)


SEVERAL_MESSAGES = [(), (0,), (0, 1), (1, 0), (1, 1), (0, 0, 1)]


def ordered_pmf(channel, data):
    """The shuffled messages of a data set, by listing all outputs of all users."""
    pmf = defaultdict(Fraction)
    for sent in product(*(channel.pmf(value).items() for value in data)):
        messages = tuple(sorted(message for output, _ in sent for message in output))
        pmf[messages] += math.prod((share for _, share in sent), start=Fraction(1))
    return pmf


def neighbouring_pmfs(channel, users):
    """Every ordered data set with every ordered neighbour: nothing is left to symmetry."""
    pmfs = {data: ordered_pmf(channel, data) for data in product(channel.values, repeat=users)}
    for first in pmfs:
        for place, value in product(range(users), channel.values):
            second = (*first[:place], value, *first[place + 1 :])
            if second != first:
                yield pmfs[first], pmfs[second]


def brute_ratio(channel, users):
    worst = Fraction(1)
    for first, second in neighbouring_pmfs(channel, users):
        for seen, mass in first.items():
            worst = max(worst, mass / second[seen] if second.get(seen) else math.inf)
    return worst


def brute_delta(channel, users, ratio):
    return max(
        sum((max(mass - ratio * second.get(seen, 0), 0) for seen, mass in first.items()), Fraction(0))
        for first, second in neighbouring_pmfs(channel, users)
    )


@settings(max_examples=30)
@given(channels(), st.integers(1, 3))
def test_single_messages_against_every_order(channel, users):
    curve = ShuffledCurve(channel, users)
    assert curve.ratio == brute_ratio(channel, users)
    for ratio in RATIOS:
        assert curve.delta_at_ratio(ratio) == brute_delta(channel, users, ratio)


@settings(max_examples=15)
@given(channels(SEVERAL_MESSAGES, 2), st.integers(1, 3))
def test_several_messages_against_every_order(channel, users):
    curve = ShuffledCurve(channel, users)
    assert curve.ratio == brute_ratio(channel, users)
    for ratio in RATIOS:
        assert curve.delta_at_ratio(ratio) == brute_delta(channel, users, ratio)
    seen = {key for data in product(channel.values, repeat=users) for key in ordered_pmf(channel, data)}
    assert len(seen) <= curve.outcomes


@settings(max_examples=40)
@given(channels(SEVERAL_MESSAGES))
def test_the_randomizer_alone(channel):
    """In order the distributions themselves are compared; pre-shuffled it is the protocol of one user."""
    pairs = [(channel.pmf(x), channel.pmf(y)) for x in channel.values for y in channel.values if x != y]
    ratios = [mass / second[y] if y in second else math.inf for first, second in pairs for y, mass in first.items()]
    curve = RandomizerCurve(channel)
    assert curve.ratio == max(ratios)
    for ratio in RATIOS:
        deltas = [sum(max(mass - ratio * second.get(y, 0), 0) for y, mass in first.items()) for first, second in pairs]
        assert curve.delta_at_ratio(ratio) == max(deltas)
    alone, one = RandomizerCurve(channel.preshuffled), ShuffledCurve(channel, 1)
    assert alone.ratio == one.ratio
    assert alone.ratio <= curve.ratio
    assert alone.delta_at_ratio(Fraction(3, 2)) == one.delta_at_ratio(Fraction(3, 2))


@settings(max_examples=30)
@given(channels(SEVERAL_MESSAGES), st.integers(1, 3))
def test_witnesses_are_true(channel, users):
    curve = ShuffledCurve(channel, users)
    found = [curve.witness, *(curve.witness_at_ratio(ratio) for ratio in RATIOS)]
    for witness in filter(None, found):
        differing = [place for place in range(users) if witness.first[place] != witness.second[place]]
        assert len(differing) == 1
        first, second = ordered_pmf(channel, witness.first), ordered_pmf(channel, witness.second)
        assert witness.first_probability == sum(first[seen] for seen in witness.event)
        assert witness.second_probability == sum(second[seen] for seen in witness.event)
    assert curve.witness.ratio == curve.ratio
    for ratio in RATIOS:
        worst = curve.witness_at_ratio(ratio)
        assert curve.delta_at_ratio(ratio) == (worst.excess(ratio) if worst else 0)
        assert (worst is None) == (curve.ratio <= ratio)


@settings(max_examples=20)
@given(channels(SEVERAL_MESSAGES, 2))
def test_more_users_never_hurt(channel):
    curves = [ShuffledCurve(channel, users) for users in (1, 2, 3, 4)]
    for fewer, more in pairwise(curves):
        assert more.ratio <= fewer.ratio
        assert more.delta_at_ratio(Fraction(5, 4)) <= fewer.delta_at_ratio(Fraction(5, 4))


@settings(max_examples=30)
@given(channels(), st.integers(1, 3), st.floats(0, 3))
def test_the_float_is_just_above(channel, users, epsilon):
    curve = ShuffledCurve(channel, users)
    delta = curve.delta_at(epsilon)
    assert 0 <= delta <= 1
    with mpmath.workdps(60):
        growth = Fraction(int(mpmath.floor(mpmath.exp(epsilon) * 10**45)), 10**45)  # below, by 1e-45
    exact = curve.delta_at_ratio(max(growth, Fraction(1)))
    assert Fraction(delta) >= exact - Fraction(1, 10**40)
    assert delta <= float(exact) * (1 + 1e-14) + 1e-30


@settings(max_examples=30)
@given(channels(), st.integers(1, 3), st.floats(0, 2))
def test_the_enumeration_in_floats_agrees(channel, users, epsilon):
    rows = [[float(share) for share in row] for row in channel.rows]
    exact = ShuffledCurve(channel, users).delta_at(epsilon)
    assert exact_delta(rows, users, epsilon) == pytest.approx(exact, rel=1e-8, abs=1e-14)
    deltas = [exact_delta(rows, users, epsilon, others=others) for others in data_sets(len(rows), users - 1)]
    assert max(deltas) == exact_delta(rows, users, epsilon)
    with pytest.raises(ParameterError, match="others, not"):
        exact_delta(rows, users, epsilon, others=[0] * users)


def test_the_curve_ends_at_the_largest_ratio():
    curve = RandomizerCurve(Channel.randomized_response(3, Fraction(7, 2)))
    assert curve.ratio == Fraction(7, 2)
    assert curve.epsilon >= math.log(3.5)
    assert curve.epsilon == pytest.approx(math.log(3.5), rel=1e-13)
    assert curve.delta_at(curve.epsilon) == 0
    assert 0 < curve.delta_at(curve.epsilon - 1e-9) < 1e-9
    assert curve.delta_at_ratio(1) == Fraction(5, 11)
    assert curve.delta_at(0) == pytest.approx(5 / 11, rel=1e-15)
    assert curve.delta_at(math.inf) == curve.delta_at(800.0) == 0


def test_no_neighbours_and_no_difference():
    alone = Channel.of({"only": {(0,): 1}})
    for curve in (RandomizerCurve(alone), ShuffledCurve(alone, 3)):
        assert curve.witness is None
        assert curve.ratio == 1
        assert curve.epsilon == curve.delta_at(0.0) == 0.0
    same = Channel.from_matrix([[Fraction(1, 3), Fraction(2, 3)]] * 2)
    assert ShuffledCurve(same, 4).ratio == 1
    assert ShuffledCurve(same, 4).epsilon == ShuffledCurve(same, 4).delta_at(0.0) == 0.0
    silent = Channel.of({0: {(): 1}, 1: {(): 1}})
    assert ShuffledCurve(silent, 3).ratio == 1
    assert ShuffledCurve(silent, 3).witness.event == ((),)


def test_what_is_impossible_is_shown_at_its_likeliest():
    channel = Channel.of({0: {(0,): Fraction(1, 10), (1,): Fraction(9, 10)}, 1: {(2,): 1}})
    witness = RandomizerCurve(channel).witness
    assert (witness.first, witness.event, witness.ratio) == ((1,), ((2,),), math.inf)
    assert witness.excess(5) == 1
    assert RandomizerCurve(channel).epsilon == math.inf


def test_protocols_are_as_private_as_they_claim():
    """The padded count is exact; Warner's epsilon is met; the pure sum is bounded for all numbers of users."""
    count = BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.5)
    exact = ShuffledCurve(Channel.from_copies({x: count.report_pmf(x) for x in (0, 1)}), 3)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        assert exact.delta_at(epsilon) == pytest.approx(count.guarantee.delta_at(epsilon), rel=1e-8)
    assert exact.ratio == math.inf

    warner = RandomizedResponse.calibrate(users=3, epsilon=1, delta=1e-6)
    channel = Channel.from_copies({x: warner.report_pmf(x) for x in (0, 1)})
    assert channel.is_single_message
    assert RandomizerCurve(channel).epsilon == pytest.approx(1, abs=1e-9)
    assert not exceeds(RandomizerCurve(channel).ratio, 1.0)
    assert ShuffledCurve(channel, 3).ratio == RandomizerCurve(channel).ratio

    pure = PureSumCount.calibrate(users=4, epsilon=3, delta=1e-6)
    channel = Channel.from_copies({x: pure.report_pmf(x) for x in (0, 1)})
    shuffled = ShuffledCurve(channel, 4)
    assert shuffled.epsilon <= pure.guarantee.epsilon * (1 + 1e-12)
    assert not exceeds(shuffled.ratio, 3.0)


def test_a_fault_of_a_thousandth_is_seen():
    honest = Channel.from_matrix([[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]])
    fault = Channel.from_matrix([[Fraction(751, 1000), Fraction(249, 1000)], [Fraction(1, 4), Fraction(3, 4)]])
    assert RandomizerCurve(honest).ratio == ShuffledCurve(honest, 3).ratio == 3
    assert RandomizerCurve(fault).ratio == ShuffledCurve(fault, 3).ratio == Fraction(750, 249) > 3


def test_several_ratios_at_once():
    ratios = pure_ratios(Channel.of({0: {(0, 1): 1}, 1: {(1, 0): 1}}), range(1, 4))
    assert (ratios.randomizer, ratios.preshuffled) == (math.inf, 1)
    assert ratios.shuffled == {1: 1, 2: 1, 3: 1}


def test_twelve_users_of_five_messages():
    rows = [[Fraction(w, 31) for w in (1, 2, 4, 8, 16)], [Fraction(w, 31) for w in (16, 8, 4, 2, 1)]]
    curve = ShuffledCurve(Channel.from_matrix(rows), 12)
    assert curve.outcomes == math.comb(16, 4)
    assert curve.ratio == 16
    assert curve.delta_at(1.0) < RandomizerCurve(curve.channel).delta_at(1.0)


def test_too_much_is_refused_with_its_size():
    coin = Channel.from_matrix([[Fraction(1, 5)] * 5] * 2)
    with pytest.raises(ParameterError, match=r"60 users .* make 76,245,120 outcomes .* 2,000,000") as caught:
        _ = ShuffledCurve(coin, 60).ratio
    assert caught.value.values["limit"] == MAX_OUTCOMES
    wide = Channel.from_matrix([[Fraction(1, 130)] * 130] * 130)
    with pytest.raises(ParameterError, match="outcomes to enumerate"):
        _ = RandomizerCurve(wide).ratio


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_nonsense_is_refused(epsilon):
    channel = Channel.randomized_response(2, 3)
    for curve in (RandomizerCurve(channel), ShuffledCurve(channel, 2)):
        with pytest.raises(ParameterError, match="epsilon"):
            curve.delta_at(epsilon)
        for ratio in (Fraction(1, 2), 0, 1.5, "2"):
            with pytest.raises(ParameterError, match="ratio"):
                curve.delta_at_ratio(ratio)
    with pytest.raises(ParameterError, match="one user"):
        ShuffledCurve(channel, 0)
    with pytest.raises(ParameterError):
        exceeds(Fraction(2), epsilon)


# e^epsilon


@given(st.floats(0, 690))
def test_the_growth_factor_is_from_below(epsilon):
    with mpmath.workdps(400):
        exact = mpmath.exp(epsilon)
        below = mpmath.mpf(growth_below(epsilon).numerator) / growth_below(epsilon).denominator
        assert below <= exact
        assert below >= exact * (1 - mpmath.mpf(10) ** -37) or below == 1


@given(st.floats(1e-300, 50), st.sampled_from([-1, 1]), st.integers(1, 120))
def test_comparisons_are_exact_at_any_distance(epsilon, side, digits):
    """A ratio that is off by 10^-digits, relatively, is on its own side of e^epsilon."""
    with mpmath.workdps(digits + 60):
        scale = 10 ** (digits + 40)
        nearby = mpmath.exp(epsilon) * (1 + side * mpmath.mpf(10) ** -digits)
        ratio = Fraction(int(mpmath.floor(nearby * scale)), scale)
    if ratio > 1 and epsilon > 10.0 ** -(digits - 2):
        assert exceeds(ratio, epsilon) == (side > 0)


def test_the_ends_of_the_comparison():
    assert not exceeds(Fraction(1), 0.0)
    assert exceeds(1 + Fraction(1, 10**200), 0.0)
    assert not exceeds(1 + Fraction(1, 10**200), 1e-199)
    assert exceeds(1 + Fraction(1, 10**200), 1e-201)
    assert exceeds(math.inf, 1e300)
    assert not exceeds(math.inf, math.inf)
    assert not exceeds(Fraction(10**400), math.inf)
    assert exceeds(Fraction(10**400), 921.0)
    assert not exceeds(Fraction(10**400), 922.0)
    assert epsilon_above(Fraction(1)) == 0.0
    assert epsilon_above(math.inf) == math.inf


@given(st.fractions(0, 1))
def test_floats_from_above(value):
    above = float_above(value)
    assert Fraction(above) >= value
    assert Fraction(math.nextafter(above, -1)) < value


@given(st.lists(st.integers(0, 4), max_size=7))
def test_multisets_are_numbers(messages):
    numbering = Numbering(5, 7)
    assert numbering.messages(numbering.number(messages)) == tuple(sorted(messages))
