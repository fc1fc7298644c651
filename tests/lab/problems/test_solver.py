"""Whole problems, solved: astronomically large ones too, in little time and memory."""

import math
import tracemalloc

import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.lab.problems import PointerChasing, PointerJumping, SupportIdentification, solve
from shuffledp.randomness import InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA

TARGET = {"epsilon": 1.0, "delta": 1e-6}
MEGABYTE = 1 << 20


def until_right(problem, **settings):
    """Solve until it is right: each attempt fails with probability 1/100 at most."""
    for _ in range(math.ceil(math.log(ALPHA) / math.log(0.01))):
        solution = solve(problem, **TARGET, **settings)
        if solution.success:
            return solution
    raise AssertionError(f"{problem} was never solved")


@pytest.mark.parametrize(
    ("problem", "users"),
    [
        (PointerChasing(2, 10**6), 163),
        pytest.param(PointerChasing(1, 10), 160, marks=pytest.mark.slow),
        (PointerJumping(10**4, 10), 768),
        (PointerJumping(3, 3), None),
        (SupportIdentification(100, 10**30), 8449),
        pytest.param(SupportIdentification(1, 1), None, marks=pytest.mark.slow),
    ],
)
def test_solved_with_as_many_users_as_the_theory_asks_for(problem, users):
    solution = until_right(problem)
    assert solution.users == (users or solution.users)
    assert solution.route == "exact zeros"
    assert solution.success_at_least >= 0.99
    assert solution.identified
    assert solution.secure
    assert solution.guarantee.epsilon == 1.0
    assert "at most a factor of 2.718" in solution.guarantee_sentence()


@pytest.mark.parametrize(
    ("problem", "peak"),
    [
        (PointerChasing(2, 10**5), 30),
        pytest.param(PointerChasing(2, 10**6), 300, marks=pytest.mark.slow),
        pytest.param(PointerChasing(7, 10**6), 300, marks=pytest.mark.slow),
        (PointerJumping(10**4, 10), 60),
    ],
)
def test_memory_does_not_grow_with_the_domain(problem, peak):
    solve(PointerChasing(2, 5), **TARGET)  # what is loaded once is no matter
    tracemalloc.start()
    try:
        solve(problem, **TARGET)
        assert tracemalloc.get_traced_memory()[1] < peak * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "protocol",
    ["stability", "unary", pytest.param("cheu", marks=pytest.mark.slow), "discrete-laplace", "correlated-noise"],
)
def test_other_protocols_and_models(protocol):
    solution = until_right(PointerChasing(2, 200), protocol=protocol)
    assert solution.guarantee.trust == {"unary": "local"}.get(
        protocol, "shuffled" if protocol in ("cheu", "correlated-noise") else "central"
    )


def test_the_local_model_at_a_million():
    assert until_right(PointerChasing(2, 10**6), protocol="unary").users == 407_014_993


def test_a_given_instance():
    problem = PointerChasing(3, 5)
    instance = problem.instance_of([2, 1, 4, 3, 5], [5, 4, 3, 2, 1])
    solution = until_right(problem, instance=instance)
    assert (solution.answer, solution.truth) == (3, 3)
    path = tuple(range(10, 0, -1))
    tree = PointerJumping(10**4, 10)
    adversarial = tree.instance_with({path[:level]: path[level] for level in range(10)})
    assert until_right(tree, instance=adversarial).answer == path
    with pytest.raises(ParameterError, match="not of pointer chasing with k = 2"):
        solve(PointerChasing(2, 5), **TARGET, instance=instance)


def test_too_few_samples_are_refused_unless_told_otherwise():
    problem = PointerChasing(2, 50)
    with pytest.raises(
        InfeasibleError, match=r"150 samples are too few: .* needs 163 .*; with 150 the proven probability is only"
    ) as caught:
        solve(problem, users=150, **TARGET)
    assert caught.value.values["needed"] == 163
    solution = solve(problem, users=150, anyway=True, **TARGET)
    assert 0.5 < solution.success_at_least < 0.99
    if not solution.success:
        assert solution.answer is None  # nothing that nobody holds is ever reported
    with pytest.raises(
        InfeasibleError, match="100 users are too few for epsilon = 1 and delta = 1e-06; 148 are needed"
    ):
        solve(problem, users=100, anyway=True, **TARGET)


@pytest.mark.parametrize("users", [0, 1, -5, 2.5])
def test_numbers_that_are_no_users(users):
    with pytest.raises(ParameterError, match="users"):
        solve(PointerChasing(2, 5), users=users, anyway=True, **TARGET)


def test_failures_with_other_protocols_can_be_wrong_answers():
    problem = PointerChasing(2, 50)
    outcomes = [solve(problem, protocol="unary", users=20, anyway=True, **TARGET) for _ in range(50)]
    assert all(len(solution.reported) == 2 for solution in outcomes)
    assert any(solution.answer is not None and not solution.success for solution in outcomes)


def test_a_seed_is_said_to_be_one():
    first, second = (solve(PointerChasing(2, 100), **TARGET, source=InsecureSeededRandomness(7)) for _ in range(2))
    assert (first.answer, first.reported) == (second.answer, second.reported)
    assert not first.secure
    assert first.guarantee_sentence().startswith("NOT PRIVATE")
    assert first.to_json()["guarantee"] is None


def test_json_has_no_number_that_json_lacks():
    document = solve(PointerJumping(10**8, 100), **TARGET, users=9000).to_json()
    assert document["domain"] == {"size": None, "log10_size": None, "words": "more than 10^(10^300)"}
    assert document["parameters"] == {"branching": 10**8, "height": 100}
    assert len(document["truth"]) == 100
