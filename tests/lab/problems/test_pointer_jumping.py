"""Pointer jumping: paths, lazy and listed labelings, places, bad input."""

import math

import numpy as np
import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.problems import PointerJumping
from shuffledp.lab.problems.pointer_jumping import LazyLabeling, ListedLabeling, PointerJumpingInstance
from shuffledp.lab.problems.problem import describe_domain_size
from shuffledp.testing.statistics import ALPHA, p_value

KEY = bytes(range(16))


def test_by_hand():
    levels = (ListedLabeling(1, 2, (1,)), ListedLabeling(2, 2, (0, 1)), ListedLabeling(3, 2, (0, 0, 1, 0)))
    instance = PointerJumpingInstance(PointerJumping(2, 3), levels)
    assert instance.answer == (1, 1, 0)  # right, right again, then the last of four nodes points left
    assert levels[2].label((1, 0)) == 1


@pytest.mark.parametrize(("branching", "height"), [(1, 3), (2, 1), (3, 3), (10**4, 10)])
def test_instances_are_honest_and_a_cheat_is_noticed(branching, height, check_honest, cheating):
    problem = PointerJumping(branching, height)
    one, other = problem.instance(), problem.instance()
    assert len(one.answer) == problem.support_size == problem.needed == height
    assert all(0 <= child < branching for child in one.answer)
    check_honest(one, other)
    if one.answer != other.answer:
        with pytest.raises(AssertionError):
            check_honest(cheating(one), cheating(other))


def test_two_labelings_of_a_level_leave_it_in_doubt():
    problem = PointerJumping(10**4, 3)
    one, other = problem.instance(), problem.instance()
    assert one.answer_from((*one.support, other.support[1])) is None
    mixed = one.answer_from((one.support[0], other.support[1], one.support[2]))
    assert mixed[0] == one.answer[0]
    assert mixed[1] == other.support[1].label(mixed[:1])


def test_lazy_labels():
    labeling = LazyLabeling(3, 1000, KEY, (((5, 7), 42),))
    assert labeling.label((5, 7)) == 42
    assert labeling.label((5, 8)) == LazyLabeling(3, 1000, KEY).label((5, 8))
    assert LazyLabeling(3, 1000, KEY) == LazyLabeling(3, 1000, KEY) != labeling
    assert len({LazyLabeling(1, 5, KEY), LazyLabeling(1, 5, KEY), LazyLabeling(2, 5, KEY)}) == 2


@pytest.mark.parametrize("branching", [3, 6, 3 << 60])
def test_lazy_labels_are_uniform(branching):
    """30,000 nodes of one key, or a node of 10,000 keys, in six classes.

    The fault: words taken modulo s without rejection, for a large s.
    """
    labeling = LazyLabeling(3, branching, KEY)
    drawn = [labeling.label((a % branching, b % branching)) for a in range(173) for b in range(173)]
    distinct = {
        (a % branching, b % branching): label for (a, b), label in zip(np.ndindex(173, 173), drawn, strict=True)
    }
    if branching < 10:
        assert len(distinct) == branching**2
        rng = np.random.default_rng()
        keys = [rng.bytes(16) for _ in range(10_000)]
        drawn = [LazyLabeling(3, branching, key).label((1, 2)) for key in keys]
    cells = min(branching, 6)
    seen = np.bincount([label * cells // branching for label in drawn], minlength=cells)
    assert p_value(seen, [1 / cells] * cells) > ALPHA
    if branching > 10:  # 2^64 is 5.33 times s: classes would differ
        words = np.random.default_rng().integers(0, 1 << 64, 30_000, dtype=np.uint64)
        planted = np.bincount([int(word) % branching * cells // branching for word in words], minlength=cells)
        assert p_value(planted, [1 / cells] * cells) < ALPHA


def test_overrides_make_adversarial_instances():
    problem = PointerJumping(10**4, 10)
    path = tuple(range(10))
    instance = problem.instance_with({path[:level]: path[level] for level in range(10)})
    assert instance.answer == path
    partly = problem.instance_with({(): 7})
    assert partly.answer[0] == 7
    with pytest.raises(ParameterError, match="below level h = 10"):
        problem.instance_with({tuple(range(10)): 1})
    with pytest.raises(ParameterError, match="between 0 and 9999"):
        problem.instance_with({(): 10**4})


def test_every_item_has_a_place():
    problem = PointerJumping(2, 3)
    assert problem.domain_size == 2 + 4 + 16
    items = [problem.item(place) for place in range(22)]
    assert len(set(items)) == 22
    assert [problem.index(item) for item in items] == list(range(22))
    assert items[2:6] == [ListedLabeling(2, 2, labels) for labels in ((0, 0), (0, 1), (1, 0), (1, 1))]


def test_domains_by_logarithm():
    assert PointerJumping(3, 3).domain_size == 3 + 27 + 19683
    assert PointerJumping(1, 5).domain_size == 5
    assert PointerJumping(1, 5).log_domain_size == math.log(5)
    assert PointerJumping(2, 7).domain_size == sum(2 ** (2**level) for level in range(7))
    assert PointerJumping(2, 8).domain_size is None
    assert PointerJumping(2, 8).log_domain_size == pytest.approx(128 * math.log(2))
    assert PointerJumping(10**4, 10).log_domain_size == pytest.approx(1e36 * math.log(1e4))
    assert PointerJumping(10**8, 100).log_domain_size == math.inf
    assert describe_domain_size(PointerJumping(10**8, 100)) == "more than 10^(10^300)"
    assert describe_domain_size(PointerJumping(10**4, 10)) == "10^(4.00 x 10^36)"


def test_random_items_are_uniform():
    """6,000 items over all 22. The fault: a uniform level first."""
    problem = PointerJumping(2, 3)
    seen, planted, rng = np.zeros(22), np.zeros(22), np.random.default_rng()
    for _ in range(6_000):
        seen[problem.index(problem.random_item())] += 1
        level = int(rng.integers(3))
        planted[problem.index(problem.instance().support[level])] += 1
    assert p_value(seen, np.full(22, 1 / 22)) > ALPHA
    assert p_value(planted, np.full(22, 1 / 22)) < ALPHA
    assert PointerJumping(10**4, 10).random_item().level == 10


@pytest.mark.parametrize(("branching", "height", "words"), [(0, 3, r"\(s\)"), (3, 0, r"\(h\)"), (3, -1, r"\(h\)")])
def test_impossible_parameters(branching, height, words):
    with pytest.raises(ParameterError, match=words + " must be at least 1"):
        PointerJumping(branching, height)


def test_other_bad_input():
    with pytest.raises(ParameterError, match="can be at most"):
        PointerJumping(1 << 63, 2)
    with pytest.raises(ParameterError, match="needs 4 labels from 0 to 1"):
        ListedLabeling(3, 2, (0, 1, 0))
    with pytest.raises(ParameterError, match="needs 1 labels from 0 to 1"):
        ListedLabeling(1, 2, (2,))
    with pytest.raises(ParameterError, match="16 bytes, not 3"):
        LazyLabeling(1, 2, b"abc")
    with pytest.raises(ParameterError, match="a tuple of 2 children"):
        LazyLabeling(3, 2, KEY).label((1,))
    with pytest.raises(ParameterError, match="a tuple of 2 children"):
        LazyLabeling(3, 2, KEY).label((1, 2))
    problem = PointerJumping(3, 2)
    with pytest.raises(ParameterError, match="one labeling of each level"):
        PointerJumpingInstance(problem, (problem.item(5), problem.item(0)))
    with pytest.raises(ParameterError, match="Only a ListedLabeling"):
        problem.index(LazyLabeling(1, 3, KEY))
