"""Pointer chasing: the sequence, items, places, bad input."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.errors import ParameterError
from shuffledp.lab.problems import PointerChasing
from shuffledp.lab.problems.pointer_chasing import PointerChasingInstance, TaggedPermutation
from shuffledp.testing.statistics import ALPHA, p_value


def literal(a, b, k):
    """Definition 15, word by word: a_1, b_{a_1}, a_{b_{a_1}}, ..."""
    value = a[0]
    for step in range(1, k):
        value = (b if step % 2 else a)[value - 1]
    return value


def test_by_hand():
    instance = PointerChasing(1, 3).instance_of([2, 3, 1], [3, 1, 2])
    assert instance.answer == 2
    assert [PointerChasing(k, 3).instance_of([2, 3, 1], [3, 1, 2]).answer for k in (2, 3, 4)] == [1, 2, 1]


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(*[st.permutations(range(1, n + 1))] * 2)), st.integers(1, 60))
def test_the_answer_is_that_of_the_definition(pair, k):
    a, b = pair
    assert PointerChasing(k, len(a)).instance_of(a, b).answer == literal(a, b, k)


def test_a_sequence_of_any_length():
    problem = PointerChasing(10**18 + 1, 7)
    instance = problem.instance_of([3, 1, 2, 5, 4, 7, 6], [2, 3, 1, 4, 6, 5, 7])
    period = 2 * math.lcm(*range(1, 8))
    assert instance.answer == literal([3, 1, 2, 5, 4, 7, 6], [2, 3, 1, 4, 6, 5, 7], 10**18 % period + 1)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_instances_are_honest_and_a_cheat_is_noticed(steps, check_honest, cheating):
    problem = PointerChasing(steps, 50)
    one, other = problem.instance(), problem.instance()
    check_honest(one, other)
    with pytest.raises(AssertionError):
        check_honest(cheating(one), cheating(other))


def test_the_first_number_needs_only_the_first_permutation():
    instance = PointerChasing(1, 9).instance()
    assert instance.problem.needed == 1
    assert instance.answer_from((instance.first,)) == instance.answer
    assert PointerChasing(2, 9).needed == 2


def test_two_items_of_one_tag_leave_it_in_doubt():
    instance = PointerChasing(2, 9).instance_of(range(1, 10), range(9, 0, -1))
    another = TaggedPermutation(1, np.arange(9, 0, -1))
    assert instance.answer_from((*instance.support, another)) is None
    assert instance.answer_from((another, instance.second)) == literal(list(range(9, 0, -1)), list(range(9, 0, -1)), 2)


def test_items_compare_by_content():
    one, same = (TaggedPermutation(1, np.array([2, 1, 3])) for _ in range(2))
    assert one == same
    assert len({one, same, TaggedPermutation(2, np.array([2, 1, 3])), TaggedPermutation(1, np.array([1, 2, 3]))}) == 3
    assert one != (1, (2, 1, 3))
    with pytest.raises(ValueError, match="read-only"):
        one.permutation[0] = 3


def test_every_item_has_a_place():
    problem = PointerChasing(2, 4)
    assert problem.domain_size == 48
    items = [problem.item(place) for place in range(48)]
    assert [(item.tag, *item.permutation.tolist()) for item in items] == [
        (tag, *order) for tag in (1, 2) for order in permutations(range(1, 5))
    ]
    assert [problem.index(item) for item in items] == list(range(48))
    assert PointerChasing(2, 20).index(PointerChasing(2, 20).item(10**18)) == 10**18


def test_domains_by_logarithm():
    assert PointerChasing(2, 20).domain_size == 2 * math.factorial(20)
    assert PointerChasing(2, 21).domain_size is None
    assert PointerChasing(2, 100).log_domain_size == pytest.approx(math.log(2 * math.factorial(100)))
    assert PointerChasing(2, 10**6).log_domain_size == pytest.approx(12815519.08, rel=1e-9)
    assert PointerChasing(2, 10**30).domain_size is None


def test_instances_and_items_are_uniform():
    """6,000 draws over all 6 x 6 pairs, and over all 12 items. The fault: the first permutation is the identity."""
    problem = PointerChasing(2, 3)
    seen, items, planted = np.zeros((6, 6)), np.zeros(12), np.zeros((6, 6))
    for _ in range(6_000):
        instance = problem.instance()
        first, second = problem.index(instance.first), problem.index(instance.second) - 6
        seen[first, second] += 1
        planted[0, second] += 1
        items[problem.index(problem.random_item())] += 1
    assert p_value(seen, np.full((6, 6), 1 / 36)) > ALPHA
    assert p_value(items, np.full(12, 1 / 12)) > ALPHA
    assert p_value(planted, np.full((6, 6), 1 / 36)) < ALPHA


@pytest.mark.parametrize(("steps", "length", "words"), [(0, 5, r"\(k\)"), (-3, 5, r"\(k\)"), (2, 0, r"\(l\)")])
def test_impossible_parameters(steps, length, words):
    with pytest.raises(ParameterError, match=words + " must be at least 1"):
        PointerChasing(steps, length)


@pytest.mark.parametrize("values", [[1, 1], [0, 1], [2, 3], [1.0, 2.0], [[1, 2]], []])
def test_what_is_no_permutation(values):
    with pytest.raises(ParameterError, match="permutation"):
        TaggedPermutation(1, np.array(values))


def test_other_bad_input():
    problem = PointerChasing(2, 3)
    with pytest.raises(ParameterError, match="tag 1 or 2"):
        TaggedPermutation(3, np.array([1]))
    with pytest.raises(ParameterError, match="l = 3"):
        problem.instance_of([1, 2], [1, 2, 3])
    with pytest.raises(ParameterError, match="tags must be 1 and 2"):
        PointerChasingInstance(problem, problem.item(0), problem.item(1))
    with pytest.raises(ParameterError, match="too many to number"):
        PointerChasing(2, 30).item(3)
    with pytest.raises(ParameterError, match="do not fit the memory"):
        PointerChasing(2, 10**10).instance()
