"""The three routes: what is reported has the distribution of the whole protocol over the whole domain."""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError, UnknownNameError
from shuffledp.lab.problems import Method, PointerChasing, SupportIdentification, measure_success, solve
from shuffledp.lab.problems import exact_zeros as exact_zeros_module
from shuffledp.lab.problems.exact_zeros import ExactZeros, exact_zeros
from shuffledp.lab.problems.largest import LargestScores, ResponseScores, largest_scores
from shuffledp.lab.problems.listed import ListedDomain
from shuffledp.lab.problems.support_identification import SupportInstance
from shuffledp.privacy.audit import proportion_bounds
from shuffledp.protocols.registry import PROTOCOLS, find
from shuffledp.randomness import SYSTEM, Dyadic, InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

ROUNDS = 900
EXACT_ZEROS = ("balcer-cheu", "stability", "sample-and-threshold")
INDEPENDENT = ("balcer-cheu", "unary", "cheu", "discrete-laplace", "correlated-noise")


def calibrated(name, users, size):
    """With independent noise, as the routes use it."""
    kind = find("histogram", name)
    return kind.calibrate(users=users, domain_size=size, epsilon=1.0, delta=0.01, **kind.independent_options)


def reported_sets(identifier, instance, counts, rounds=ROUNDS):
    """How often each set of items of a domain of six was reported."""
    seen = np.zeros(64)
    for _ in range(rounds):
        seen[sum(1 << item for item in identifier.identify(instance, counts, SYSTEM))] += 1
    return seen


def whole_domain(protocol, counts, *, rounds=ROUNDS, shown=None):
    """The same by the protocol over all six items, the support being items 1 and 4."""
    everybody = np.zeros(6, dtype=np.int64)
    everybody[[1, 4]] = counts
    against = [0, 2, 3, 5, 1, 4]  # ties are decided against the support
    seen = np.zeros(64)
    for _ in range(rounds):
        estimates = protocol.estimate(
            protocol.sample_tally(everybody), **({"estimator": shown} if shown else {})
        ).counts
        if protocol.name in EXACT_ZEROS and not shown:
            items = np.flatnonzero(estimates > 0)
        else:
            items = np.array(against)[np.argsort(-estimates[against], kind="stable")[:2]]
        seen[sum(1 << int(item) for item in items)] += 1
    return seen


@pytest.mark.parametrize(("name", "users"), [("balcer-cheu", 60), ("stability", 24), ("sample-and-threshold", 80)])
def test_exact_zeros_have_the_distribution_of_the_whole_domain(name, users):
    """900 rounds each over two items and over six. The fault: noise, or a sample, for a third fewer users."""
    problem = SupportIdentification(2, 6)
    instance, counts = SupportInstance(problem, (1, 4)), np.array([users // 3, users - users // 3])
    over_support, over_domain = (calibrated(name, users, size) for size in (2, 6))
    if name == "sample-and-threshold":  # it is tuned to the average category, which is public
        over_domain = replace(over_domain, sampling=over_support.sampling, threshold=over_support.threshold)
    route = reported_sets(exact_zeros(over_support, problem, "shown"), instance, counts)
    assert same_distribution(route, whole_domain(over_domain, counts)) > ALPHA
    planted = counts * 2 // 3
    assert same_distribution(route, whole_domain(calibrated(name, int(planted.sum()), 6), planted)) < ALPHA


@pytest.mark.parametrize(
    ("name", "users"),
    [
        pytest.param(name, 60, marks=[pytest.mark.slow] if name in ("cheu", "correlated-noise") else [])
        for name in INDEPENDENT
    ],
)
def test_largest_scores_have_the_distribution_of_the_whole_domain(name, users):
    """900 rounds each over two items with the largest of the others drawn, and over six.

    The fault: four items outside the support are taken for four hundred.
    """
    problem = SupportIdentification(2, 6)
    instance, counts = SupportInstance(problem, (1, 4)), np.array([users // 6, users - users // 6])
    over_support, over_domain = (calibrated(name, users, size) for size in (2, 6))
    route = reported_sets(largest_scores(over_support, problem), instance, counts)
    assert same_distribution(route, whole_domain(over_domain, counts, shown="unbiased")) > ALPHA
    larger = SupportIdentification(2, 406)
    fault, planted = largest_scores(over_support, larger), np.zeros(64)
    for _ in range(ROUNDS):
        items = fault.identify(SupportInstance(larger, (1, 4)), counts, SYSTEM)
        planted[sum(1 << item for item in items if item in (1, 4))] += 1
    held = [sum(1 << item for item in (1, 4) if code >> item & 1) for code in range(64)]
    assert same_distribution(np.bincount(held, weights=route, minlength=64), planted) < ALPHA


def test_a_listed_domain_is_just_the_protocol():
    """900 rounds each. The fault: other holders."""
    problem = SupportIdentification(2, 6)
    protocol, counts = calibrated("uniform-blanket", 60, 6), np.array([10, 50])
    route = reported_sets(ListedDomain(protocol, problem), SupportInstance(problem, (1, 4)), counts)
    assert same_distribution(route, whole_domain(protocol, counts)) > ALPHA
    assert same_distribution(route, whole_domain(protocol, np.array([2, 58]))) < ALPHA


def test_messages_and_the_fast_route_report_alike():
    """The literal protocol, message by message, over six items: 800 rounds. The fault: half of the noise."""
    problem, users = SupportIdentification(2, 6), 60
    protocol = calibrated("balcer-cheu", users, 6)
    values = np.repeat([1, 4], [8, 52])
    literal = np.zeros(64)
    for _ in range(800):
        estimates = protocol.run(values, route="messages").counts
        literal[sum(1 << int(item) for item in np.flatnonzero(estimates > 0))] += 1
    instance, counts = SupportInstance(problem, (1, 4)), np.array([8, 52])
    over_support = calibrated("balcer-cheu", users, 2)
    assert (
        same_distribution(literal, reported_sets(exact_zeros(over_support, problem, "shown"), instance, counts)) > ALPHA
    )
    half = Dyadic.at_least(over_support.absence.fraction / 2)
    quiet = replace(over_support, target=replace(over_support.target, epsilon=10.0, delta=0.9), absence=half)
    assert same_distribution(literal, reported_sets(exact_zeros(quiet, problem, "shown"), instance, counts)) < ALPHA


@pytest.mark.parametrize("rule", ["shown", "paper", "largest"])
def test_simulated_and_solved_rounds_succeed_alike(rule):
    """700 rounds of ``solve`` against 20,000 simulated ones, 99 of 100 not yet reached. The fault: more users."""
    problem = PointerChasing(2, 30)
    users = {"shown": 152, "paper": 200, "largest": 152}[rule]
    solved = [
        solve(problem, epsilon=1.0, delta=1e-6, users=users, rule=rule, anyway=True).identified for _ in range(700)
    ]
    method = Method(epsilon=1.0, delta=1e-6, rule=rule)
    simulated = measure_success(problem, method, users, trials=20_000)
    assert 0.3 < simulated.successes / 20_000 < 0.97
    assert (
        same_distribution([sum(solved), 700 - sum(solved)], [simulated.successes, 20_000 - simulated.successes]) > ALPHA
    )
    more = measure_success(problem, method, users + 15, trials=20_000)
    assert same_distribution([sum(solved), 700 - sum(solved)], [more.successes, 20_000 - more.successes]) < ALPHA


@pytest.mark.parametrize(
    ("protocol", "users", "more"),
    [
        ("stability", 60, 75),
        pytest.param("sample-and-threshold", 180, 210, marks=pytest.mark.slow),
        ("unary", 800, 1100),
        pytest.param("cheu", 115, 140, marks=pytest.mark.slow),
        ("discrete-laplace", 95, 115),
        pytest.param("correlated-noise", 105, 125, marks=pytest.mark.slow),
        ("k-rr", 60, 150),
    ],
)
def test_other_protocols_are_simulated_as_they_are_solved(protocol, users, more):
    """400 rounds of ``solve`` against 20,000 simulated ones. The fault: more users."""
    problem = SupportIdentification(2, 8) if protocol == "k-rr" else PointerChasing(2, 12)
    settings = {"epsilon": 1.0, "delta": 1e-6, "protocol": protocol}
    solved = sum(solve(problem, users=users, anyway=True, **settings).identified for _ in range(400))
    trials = 1000 if protocol == "k-rr" else 20_000
    simulated, planted = (
        measure_success(problem, Method(**settings), number, trials=trials).successes for number in (users, more)
    )
    assert 0.2 < simulated / trials < 0.97
    assert same_distribution([solved, 400 - solved], [simulated, trials - simulated]) > ALPHA
    assert same_distribution([solved, 400 - solved], [planted, trials - planted]) < ALPHA


def brute_force(users, size, needed, shown):
    """Over all ordered samples."""
    chances = shown(np.arange(users + 1))
    total = 0.0
    for sample in product(range(size), repeat=users):
        total += math.prod(chances[sample.count(item)] for item in range(needed))
    return total / size**users


@pytest.mark.parametrize(
    ("users", "size", "needed"), [(7, 2, 2), (7, 2, 1), (6, 3, 3), (5, 4, 2), (3, 1, 1), (9, 2, 2)]
)
def test_the_exact_probability_of_success(users, size, needed):
    table = np.random.default_rng().random(2000)
    problem = SimpleNamespace(support_size=size, needed=needed)
    identifier = ExactZeros(SimpleNamespace(users=users), problem, lambda counts: table[counts])
    assert identifier.success_probability == pytest.approx(
        brute_force(users, size, needed, lambda c: table[c]), rel=1e-9
    )


@pytest.mark.parametrize(("protocol", "size", "users"), [("balcer-cheu", 10, 700), ("stability", 10, 420)])
def test_simulated_rounds_have_the_exact_probability(protocol, size, users, monkeypatch):
    """200,000 rounds; the bound lies below. The fault: two holders more of every item."""
    problem = SupportIdentification(size, 10**30)
    method = Method(epsilon=1.0, delta=1e-6, protocol=protocol)
    identifier = method.identifier(problem, users)
    exact = identifier.success_probability
    assert identifier.success_at_least <= exact < 1
    successes = measure_success(problem, method, users, trials=200_000).successes
    assert p_value([successes, 200_000 - successes], [exact, 1 - exact]) > ALPHA
    honest = exact_zeros_module.draw_estimates
    monkeypatch.setattr(exact_zeros_module, "draw_estimates", lambda p, counts, g: honest(p, counts + 2, g))
    planted = identifier.successes(200_000, np.random.default_rng(), SYSTEM)
    assert p_value([planted, 200_000 - planted], [exact, 1 - exact]) < ALPHA


def test_the_numbers_of_the_specification():
    """Simulated there: .991 at h = 2 and n = 163, .9902 at h = 10 and n = 768."""
    method = Method(epsilon=1.0, delta=1e-6)
    exact = [
        method.identifier(SupportIdentification(h, 10**9), n).success_probability for h, n in ((2, 163), (10, 768))
    ]
    assert exact == pytest.approx([0.9909, 0.9902], abs=3e-4)


def test_largest_scores_against_all_score_distributions():
    """The probability of a held item's score, summed up, is that of 100,000 draws. The fault: others never say yes."""
    rng = np.random.default_rng()
    users, size = 40, 4
    for name in INDEPENDENT:
        scores = largest_scores(calibrated(name, 60, 2), SupportIdentification(2, 6)).scores
        scores = replace(scores, users=users)
        drawn = scores.draw(rng.binomial(users, 1 / size, 100_000), rng)
        points = np.arange(-60, 2 * users + 60)
        at_most = np.array([scores.at_most(int(k), size) for k in points])
        pmf = np.maximum(np.diff(np.concatenate(([0.0], at_most))), 0.0)
        pmf[pmf < 1e-12] = 0.0
        assert p_value(np.bincount(drawn + 60, minlength=len(points)), pmf / pmf.sum()) > ALPHA, name
    silent = ResponseScores(users, Dyadic.at_least(0.5), Dyadic.at_least(1e-6))
    truth = ResponseScores(users, Dyadic.at_least(0.5), Dyadic.at_least(0.27))
    drawn = silent.draw(rng.binomial(users, 1 / size, 100_000), rng)
    pmf = np.diff([0.0, *(truth.at_most(k, size) for k in range(users + 1))])
    assert p_value(np.bincount(drawn, minlength=users + 1), np.maximum(pmf, 0)) < ALPHA


@pytest.mark.parametrize("name", INDEPENDENT)
def test_the_union_bound_is_below_what_is_measured(name):
    """2,000 rounds at each number of users. The fault: the bound of a domain of four items."""
    problem, small = SupportIdentification(3, 10**6), SupportIdentification(3, 4)
    method = Method(epsilon=1.0, delta=1e-6, protocol=name, rule="largest")

    def holds(bound, users):
        tested = measure_success(problem, method, users, trials=2000)
        return bound <= proportion_bounds(tested.successes, 2000, ALPHA)[1]

    for users in (300, 500, 3000):
        assert holds(method.identifier(problem, users).success_at_least, users)
    if name != "balcer-cheu":  # there a larger domain makes hardly any difference
        few = {"unary": 2000, "cheu": 150}.get(name, 80)
        assert not holds(method.identifier(small, few).success_at_least, few)


def test_every_histogram_protocol_finds_a_small_support():
    problem = SupportIdentification(2, 5)
    source = InsecureSeededRandomness(1)
    for name in PROTOCOLS["histogram"]:
        identifier = Method(epsilon=2.0, delta=1e-4, protocol=name).identifier(problem, 6000)
        route = {True: "exact zeros", False: "order statistics" if name in INDEPENDENT else "listed"}[
            name in EXACT_ZEROS
        ]
        assert identifier.route == route, name
        instance = SupportInstance(problem, (1, 3))
        assert set(identifier.identify(instance, np.array([3000, 3000]), source)) == {1, 3}, name
        assert 0 <= identifier.success_at_least <= 1


def test_strangers_are_other_items():
    problem = PointerChasing(2, 3)
    instance = problem.instance()
    identifier = Method(epsilon=0.1, delta=1e-6, protocol="unary").identifier(problem, 2)
    assert isinstance(identifier, LargestScores)
    for _ in range(50):
        reported = identifier.identify(instance, np.array([1, 1]), SYSTEM)
        assert len(set(reported)) == 2


def test_a_support_that_is_the_whole_domain():
    problem = SupportIdentification(3, 3)
    for name in ("unary", "k-rr", "discrete-laplace"):
        method = Method(epsilon=1.0, delta=1e-6, protocol=name)
        assert measure_success(problem, method, 50, trials=200).successes == 200


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"protocol": "nothing"}, UnknownNameError, "no protocol 'nothing'"),
        ({"rule": "best"}, UnknownNameError, "no rule 'best'; choose one of shown, largest, paper"),
        ({"rule": "shown", "protocol": "unary"}, ParameterError, "use the rule 'largest'"),
        ({"rule": "paper", "protocol": "stability"}, ParameterError, "The rule 'paper' is that of balcer-cheu"),
        ({"epsilon": 0.0}, ParameterError, "epsilon must be a positive number"),
        ({"delta": 2.0}, ParameterError, "delta must lie strictly between 0 and 1"),
    ],
)
def test_bad_methods(settings, error, words):
    with pytest.raises(error, match=words):
        Method(**({"epsilon": 1.0, "delta": 1e-6} | settings))


def test_a_domain_that_cannot_be_listed():
    method = Method(epsilon=1.0, delta=1e-6, protocol="k-rr")
    with pytest.raises(
        InfeasibleError, match=r"10\^158.3 items are too many to list; .* need not list it: balcer-cheu"
    ):
        method.identifier(PointerChasing(2, 100), 1000)
    with pytest.raises(InfeasibleError, match="at most 4,194,304 are listed"):
        method.identifier(SupportIdentification(2, 10**7), 1000)


@pytest.mark.parametrize("route", ["listed", "messages"])
@pytest.mark.parametrize(("protocol", "rule", "users"), [("balcer-cheu", "shown", 60), ("unary", "largest", 60)])
def test_routes_over_the_whole_domain_report_alike(protocol, rule, users, route):
    """700 rounds each over the support alone, and over all six items. The fault: noise for another number of users."""
    problem = SupportIdentification(2, 6)
    instance, counts = SupportInstance(problem, (1, 4)), np.array([users // 6, users - users // 6])
    auto = Method(epsilon=1.0, delta=0.01, protocol=protocol, rule=rule)
    whole = replace(auto, route=route).identifier(problem, users)
    assert (whole.route, whole.simulated_items) == (route, 6)
    assert whole.success_at_least == pytest.approx(auto.identifier(problem, users).success_at_least)
    expected = reported_sets(auto.identifier(problem, users), instance, counts)
    assert same_distribution(expected, reported_sets(whole, instance, counts)) > ALPHA
    assert same_distribution(expected, reported_sets(whole, instance, counts[::-1])) < ALPHA


def test_an_empty_item_that_shows_is_reported(monkeypatch):
    """A comparison that lets zeros through is invisible where only held items are simulated."""
    problem = SupportIdentification(2, 6)
    kind = find("histogram", "balcer-cheu")
    honest = kind.estimate
    monkeypatch.setattr(kind, "estimate", lambda self, tally, **how: honest(self, tally, estimator="unbiased"))
    identifier = Method(epsilon=1.0, delta=0.01, route="messages").identifier(problem, 60)
    counts = np.array([30, 30])
    assert any(len(identifier.identify(SupportInstance(problem, (1, 4)), counts, SYSTEM)) > 2 for _ in range(20))


def test_routes_that_cannot_be():
    large = SupportIdentification(2, 10**7)
    with pytest.raises(InfeasibleError, match="route 'listed' simulates every item"):
        Method(epsilon=1.0, delta=0.01, route="listed").identifier(large, 1000)
    with pytest.raises(InfeasibleError, match="too many for the route 'messages'"):
        Method(epsilon=1.0, delta=0.01, route="messages").identifier(SupportIdentification(2, 10**6), 1000)
    with pytest.raises(UnknownNameError, match="auto, listed, messages"):
        Method(epsilon=1.0, delta=0.01, route="letters")
