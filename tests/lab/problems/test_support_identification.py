"""Support identification: instances, places, bad input."""

import math

import pytest

from shuffledp.errors import ParameterError
from shuffledp.lab.problems import SupportIdentification
from shuffledp.lab.problems.problem import describe_domain_size, log_empty_items
from shuffledp.lab.problems.support_identification import SupportInstance
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness
from shuffledp.randomness.samplers import uniform_below
from shuffledp.testing.statistics import ALPHA, p_value


def test_instances_are_honest_and_a_cheat_is_noticed(check_honest, cheating):
    problem = SupportIdentification(3, 10)
    one, other = SupportInstance(problem, (1, 2, 3)), SupportInstance(problem, (4, 5, 6))
    check_honest(one, other)
    with pytest.raises(AssertionError):
        check_honest(cheating(one), cheating(other))


def test_wrong_numbers_of_items_give_no_answer():
    instance = SupportInstance(SupportIdentification(2, 10), (7, 3))
    assert instance.answer == (3, 7)
    assert instance.answer_from((3,)) is None
    assert instance.answer_from((3, 7, 9)) is None
    assert instance.answer_from((9, 3)) == (3, 9)


@pytest.mark.parametrize("size", [5, 6, 40])
def test_supports_are_uniform(size):
    """20,000 supports of 2: every pair alike. The fault: the largest item is never drawn."""
    problem = SupportIdentification(2, size)
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    seen = dict.fromkeys(pairs, 0)
    for _ in range(20_000):
        seen[problem.instance().support] += 1
    pmf = [1 / len(pairs)] * len(pairs)
    assert p_value(list(seen.values()), pmf) > ALPHA
    planted = [0 if size - 1 in pair else count for pair, count in seen.items()]
    assert p_value(planted, pmf) < ALPHA


def test_large_domains_and_logarithms():
    problem = SupportIdentification(3, 10**40)
    assert problem.domain_size is None
    assert problem.log_domain_size == pytest.approx(40 * math.log(10))
    assert log_empty_items(problem) == problem.log_domain_size
    assert all(0 <= item < 10**40 for item in problem.instance().support)
    assert describe_domain_size(problem) == "10^40.0"
    small = SupportIdentification(3, 1000)
    assert (small.domain_size, describe_domain_size(small)) == (1000, "1,000")
    assert log_empty_items(small) == math.log(997)
    assert log_empty_items(SupportIdentification(5, 5)) == -math.inf
    assert SupportIdentification(5, 5).instance().support == (0, 1, 2, 3, 4)
    assert small.index(small.item(17)) == 17


def test_a_seed_repeats_an_instance():
    problem = SupportIdentification(5, 10**30)
    first, second = (problem.instance(InsecureSeededRandomness(3)) for _ in range(2))
    assert first == second != problem.instance(InsecureSeededRandomness(4))


def test_numbers_below_any_bound_are_uniform():
    """30,000 numbers below 12. The fault: one taken modulo 12 of four bits."""
    seen, planted = [0] * 12, [0] * 12
    for _ in range(30_000):
        seen[uniform_below(12, SYSTEM)] += 1
        planted[uniform_below(16, SYSTEM) % 12] += 1
    assert p_value(seen, [1 / 12] * 12) > ALPHA
    assert p_value(planted, [1 / 12] * 12) < ALPHA
    assert uniform_below(1, SYSTEM) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((11, 10), "A support of h = 11 items does not fit a domain of d = 10; h may be at most d."),
        ((0, 10), r"\(h\) must be at least 1, not 0"),
        ((1, 0), r"\(d\) must be at least 1, not 0"),
        ((2.0, 10), r"\(h\) must be an integer, not 2.0"),
        ((True, 10), r"\(h\) must be an integer"),
        ((10**7, 10**8), "can be at most 1,000,000, not 10,000,000"),
    ],
)
def test_impossible_parameters(arguments, words):
    with pytest.raises(ParameterError, match=words):
        SupportIdentification(*arguments)


@pytest.mark.parametrize("support", [(1,), (1, 1), (1, 2, 3), (1, 10), (-1, 2)])
def test_impossible_supports(support):
    with pytest.raises(ParameterError):
        SupportInstance(SupportIdentification(2, 10), support)


def test_places_outside_are_refused():
    with pytest.raises(ParameterError, match="no item 10 in a domain of 10"):
        SupportIdentification(2, 10).item(10)
    with pytest.raises(ParameterError, match=r"10\^40.0 items, too many to number"):
        SupportIdentification(2, 10**40).index(3)
