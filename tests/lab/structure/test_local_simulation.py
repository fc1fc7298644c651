"""Theorem 17: a single-message shuffled protocol and its local twin have the same output distribution."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.lab.structure import (
    Channel,
    LocalProtocol,
    ShuffledProtocol,
    r_gap,
    r_infinity,
    to_local,
)
from shuffledp.testing.statistics import ALPHA, p_value

THREE = Channel.from_matrix(
    [
        [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
        [Fraction(1, 5), Fraction(1, 5), Fraction(3, 5)],
    ]
)


def as_received(messages):
    """Depends on the order as much as can be."""
    return messages


def mixed(messages):
    """The first message, or with probability 1/3 the last."""
    pmf = defaultdict(Fraction)
    pmf[messages[0]] += Fraction(2, 3)
    pmf[messages[-1]] += Fraction(1, 3)
    return dict(pmf)


def runs(messages):
    return sum(a != b for a, b in pairwise(messages))


ANALYZERS = [as_received, mixed, runs, sum]


def shuffled_by_hand(channel, analyzer, data):
    """Every output of every user, in every one of the n! orders."""
    pmf = defaultdict(Fraction)
    for sent in product(*(channel.pmf(value).items() for value in data)):
        messages = [message for output, _ in sent for message in output]
        orders = list(permutations(messages))
        for order in orders:
            mass = Fraction(1, len(orders))
            for _, share in sent:
                mass *= share
            output = analyzer(order)
            for seen, share in (output if isinstance(output, dict) else {output: 1}).items():
                pmf[seen] += mass * share
    return dict(pmf)


@pytest.mark.parametrize("analyzer", ANALYZERS)
@pytest.mark.parametrize("data", [(0,), (1, 0), (0, 1, 1), (1, 0, 0, 1)])
def test_the_output_distribution_is_the_same(analyzer, data):
    protocol = ShuffledProtocol(THREE, analyzer)
    pmf = protocol.output_pmf(data)
    assert pmf == to_local(protocol).output_pmf(data)
    assert pmf == shuffled_by_hand(THREE, analyzer, data)
    assert sum(pmf.values()) == 1


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=3).filter(any), min_size=2, max_size=3), st.data())
def test_it_is_the_same_for_random_channels(weights, choose):
    channel = Channel.of(
        {x: {(y,): Fraction(share, sum(row)) for y, share in enumerate(row)} for x, row in enumerate(weights)}
    )
    data = choose.draw(st.lists(st.sampled_from(channel.values), min_size=1, max_size=4))
    protocol = ShuffledProtocol(channel, choose.draw(st.sampled_from(ANALYZERS)))
    local = to_local(protocol)
    assert protocol.output_pmf(data) == local.output_pmf(data)
    assert local.privacy.ratio == protocol.privacy(len(data)).ratio


def test_the_permutation_is_needed():
    """The planted fault: the same analyzer without it sees who sent what."""
    protocol = ShuffledProtocol(THREE, as_received)
    forgetful = LocalProtocol(THREE, as_received)
    assert forgetful.output_pmf((0, 1)) != protocol.output_pmf((0, 1))
    symmetric = ShuffledProtocol(THREE, sum)
    assert LocalProtocol(THREE, sum).output_pmf((0, 1)) == symmetric.output_pmf((0, 1))


def test_both_run_with_their_distribution():
    """Every output of three users, 6,000 runs, alpha 1e-7; the analyzer that does not permute is rejected."""
    protocol, data, times = ShuffledProtocol(THREE, as_received), (0, 1, 1), 6_000
    pmf = protocol.output_pmf(data)
    outputs = sorted(pmf)
    shares = [float(pmf[output]) for output in outputs]

    def p_value_of(runnable):
        seen = Counter(runnable.run(data) for _ in range(times))
        assert set(seen) <= set(outputs)
        return p_value([seen[output] for output in outputs], shares)

    assert p_value_of(protocol) > ALPHA
    assert p_value_of(to_local(protocol)) > ALPHA
    assert p_value_of(LocalProtocol(THREE, as_received)) < ALPHA


def test_a_random_analyzer_runs_with_its_distribution():
    """Three outputs, 6,000 runs, alpha 1e-7; the distribution of another data set is rejected."""
    protocol = ShuffledProtocol(THREE, mixed)
    pmf, other = (protocol.output_pmf(data) for data in ((0, 0, 1), (1, 1, 1)))
    for runnable in (protocol, to_local(protocol)):
        seen = Counter(runnable.run((0, 0, 1)) for _ in range(6_000))
        counts = [seen[output] for output in range(3)]
        assert p_value(counts, [float(pmf[output]) for output in range(3)]) > ALPHA
        assert p_value(counts, [float(other[output]) for output in range(3)]) < ALPHA


def test_many_users_still_run():
    assert 0 <= to_local(ShuffledProtocol(Channel.randomized_response(2, 3), sum)).run([1] * 500) <= 500


def test_several_messages_are_simulated_only_when_shuffled():
    """The shuffled protocol itself may send several messages; its distribution needs no local twin."""
    for channel in (r_infinity(), r_gap()):
        with pytest.raises(ConditionError, match="Theorem 17 needs exactly one message per user"):
            to_local(ShuffledProtocol(channel, sum))
    protocol = ShuffledProtocol(r_infinity(), as_received)
    for data in ((0, 0), (0, 1), (1, 1)):
        assert protocol.output_pmf(data) == dict.fromkeys(set(permutations((0, 0, 1, 1))), Fraction(1, 6))
        assert protocol.output_pmf(data) == shuffled_by_hand(r_infinity(), as_received, data)
        assert sorted(protocol.run(data)) == [0, 0, 1, 1]


def test_nobody():
    protocol = ShuffledProtocol(THREE, sum)
    assert protocol.output_pmf(()) == to_local(protocol).output_pmf(()) == {0: 1}


def test_nonsense_is_refused():
    protocol = ShuffledProtocol(THREE, lambda _: {0: Fraction(1, 2)})
    with pytest.raises(ParameterError, match="analyzer's output sum to 1/2"):
        protocol.output_pmf((0, 1))
    with pytest.raises(ParameterError, match="no value 2"):
        ShuffledProtocol(THREE, sum).output_pmf((2,))
    with pytest.raises(ParameterError, match="no value 2"):
        to_local(ShuffledProtocol(THREE, sum)).run((2,))
    with pytest.raises(ParameterError, match="called 531,441 times"):
        ShuffledProtocol(THREE, sum).output_pmf((0,) * 12)
    with pytest.raises(ParameterError, match="run the protocol instead"):
        to_local(ShuffledProtocol(THREE, sum)).output_pmf((0,) * 8)
