"""The budget of a session: spent epsilon against independent composition, allowances, refusals."""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from independent_composition import agrees

import shuffledp as sdp
from shuffledp.domain import Bins
from shuffledp.errors import BudgetError, InfeasibleError, ParameterError
from shuffledp.planning.several_releases import calibrate_within
from shuffledp.privacy.composition import compose_all
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.protocols.registry import find_qualified
from shuffledp.sessions.budget import MAX_RELEASES, Budget, Release

USERS = 20_000
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def settings(name, users=USERS):
    further = {"histogram": {"domain_size": 8}, "quantiles": {"domain": Bins(0, 64, 64)}}
    return {"users": users} | further.get(name.partition("/")[0], {})


def calibrated(name, budget, allowance):
    kind = find_qualified(name)
    if allowance.own is not None:
        return kind.calibrate(**settings(name), epsilon=allowance.own[0], delta=allowance.own[1])
    return calibrate_within(
        kind,
        settings(name),
        epsilon=allowance.limit,
        delta=budget.delta,
        releases=allowance.releases,
        before=budget.curve if budget.releases else None,
    )


def released(budget, name, **spending):
    """The budget after a release by this protocol."""
    allowance = budget.allow(**spending)
    protocol = calibrated(name, budget, allowance)
    return budget.with_release(
        Release(
            label=f"release {len(budget.releases)}",
            statistic=protocol.question,
            subject="x",
            protocol=protocol,
            limit=budget.limit_after(allowance, protocol),
            released_at=WHEN,
            share=allowance.share,
        )
    )


def session(releases, **options):
    budget = Budget(USERS, 2.0, 1e-7, trust="central", **options)
    for name, spending in releases:
        budget = released(budget, name, **spending)
    return budget


MIXED = {
    "shares": [
        ("count/discrete-laplace", {"share": 0.3}),
        ("histogram/uniform-blanket", {"share": 0.3}),
        ("count/balcer-cheu", {"share": 0.4}),
    ],
    "epsilons": [
        ("count/randomized-response", {"epsilon": 0.4}),
        ("histogram/discrete-laplace", {"epsilon": 0.5}),
        ("count/balcer-cheu", {"epsilon": 0.6, "delta": 1e-8}),
        ("histogram/uniform-blanket", {"share": 0.2}),
    ],
    "one": [("histogram/uniform-blanket", {"share": 1.0})],
    "trees": [
        ("quantiles/uniform-blanket", {"share": 0.5}),
        ("histogram/balcer-cheu", {"epsilon": 0.4, "delta": 1e-8}),
        ("quantiles/discrete-laplace", {"share": 0.2}),
    ],
    "correlated noise": [
        ("count/correlated-noise", {"share": 0.3}),
        ("histogram/correlated-noise", {"epsilon": 0.8}),
        ("quantiles/correlated-noise", {"share": 0.3}),
    ],
}


@pytest.fixture(scope="module")
def budgets():
    return {name: session(releases) for name, releases in MIXED.items()}


@pytest.mark.parametrize("name", MIXED)
def test_spent_epsilon_is_that_of_independent_composition(name, budgets):
    """At least it, and at most 1 % above it: from the distributions of the noise, convolved in the test."""
    budget = budgets[name]
    protocols = [release.protocol for release in budget.releases]
    assert agrees(budget.spent.epsilon, protocols, budget.delta)


@pytest.mark.slow
def test_spent_epsilon_of_protocols_as_the_planner_chooses_them():
    """A session of quantiles, a mean and a histogram: the same, for the protocols that are the best."""
    session = sdp.Session(users=USERS, epsilon=2.0, delta=1e-6)
    numbers = [float(user % 60) for user in range(USERS)]
    session.quantiles(numbers, lower=0, upper=60, bins=64, epsilon=0.8)
    session.mean(numbers, lower=0, upper=60, epsilon=0.4)
    session.histogram(["a", "b"] * (USERS // 2), categories=["a", "b", "c"], epsilon=0.4)
    protocols = [release.protocol for release in session.releases]
    assert [f"{protocol.question}/{protocol.name}" for protocol in protocols] == [
        "quantiles/correlated-noise",
        "sum/split-and-mix",
        "histogram/correlated-noise",
    ]
    assert agrees(session.spent.epsilon, protocols, session.delta)
    for index in range(3):
        rest = compose_all([protocol.guarantee.curve for protocol in protocols[:index] + protocols[index + 1 :]])
        assert not agrees(least_epsilon(rest, session.delta), protocols, session.delta)


@pytest.mark.parametrize("name", ["shares", "correlated noise"])
def test_a_forgotten_release_is_noticed(name, budgets):
    """The check above fails for a budget that forgets any one release."""
    budget = budgets[name]
    protocols = [release.protocol for release in budget.releases]
    for index in range(len(protocols)):
        rest = [protocol for number, protocol in enumerate(protocols) if number != index]
        forgetful = least_epsilon(compose_all([protocol.guarantee.curve for protocol in rest]), budget.delta)
        assert not agrees(forgetful, protocols, budget.delta)


def test_composition_with_the_wrong_users_is_noticed(budgets):
    """The check fails if one release is composed with the curve for twice as many users; the budget refuses it."""
    budget = budgets["shares"]
    protocols = [release.protocol for release in budget.releases]
    blanket = protocols[1]
    inflated = replace(blanket, target=replace(blanket.target, users=2 * USERS))
    curves = [protocols[0].guarantee.curve, inflated.guarantee.curve, protocols[2].guarantee.curve]
    assert not agrees(least_epsilon(compose_all(curves), budget.delta), protocols, budget.delta)
    with pytest.raises(ParameterError, match="about 20,000 users; histogram/uniform-blanket was calibrated for 40,000"):
        Budget(USERS, 2.0, 1e-7).would_spend(inflated)


@pytest.mark.parametrize("name", ["shares", "one"])
def test_shares_that_add_up_to_1_spend_all_but_1_percent(name, budgets):
    budget = budgets[name]
    assert 0.99 * 2.0 <= budget.spent.epsilon <= 2.0
    assert budget.left.share == 0
    with pytest.raises(BudgetError, match="The budget is spent"):
        budget.allow(share=0.01)
    with pytest.raises(BudgetError, match="The budget is spent"):
        budget.allow()


def test_after_each_share_at_most_the_shares_so_far_are_spent(budgets):
    budget = Budget(USERS, 2.0, 1e-7, trust="central")
    for release, total in zip(budgets["shares"].releases, (0.3, 0.6, 1.0), strict=True):
        budget = budget.with_release(release)
        assert 0.98 * 2 * total <= budget.spent.epsilon <= 2 * total
        assert budget.left.share == pytest.approx(1 - total)
        assert budget.left.epsilon == pytest.approx(2 - budget.spent.epsilon)


def test_announced_releases_get_equal_noise():
    """Without shares, each of three releases of one protocol has nearly the same error, and all is spent."""
    budget = session([("count/balcer-cheu", {})] * 3, announced=3)
    errors = [release.protocol.expected_error().rmse for release in budget.releases]
    assert max(errors) < 1.03 * min(errors)
    assert 0.99 * 2 <= budget.spent.epsilon <= 2
    with pytest.raises(BudgetError, match="All 3 announced releases were made"):
        budget.allow()


def test_ten_shares_of_a_tenth_are_all_of_it():
    budget = session([("count/randomized-response", {"share": 0.1})] * 10)
    assert budget.left.share == 0
    assert budget.spent.epsilon <= 2


def test_nothing_is_spent_at_first():
    budget = Budget(USERS, 2.0, 1e-7)
    assert budget.spent.epsilon == 0
    assert budget.spent.releases == 0
    assert (budget.left.epsilon, budget.left.delta, budget.left.share) == (2.0, 1e-7, 1.0)
    assert budget.secure


@pytest.mark.parametrize("share", [0, -0.1, 1.5, math.nan, math.inf, "0.5", None, True])
def test_wrong_shares(share):
    budget = Budget(USERS, 2.0, 1e-7)
    if share is True:
        assert budget.allow(share=share).limit == 2.0
        return
    with pytest.raises(ParameterError, match="share"):
        budget.allow(share=share)


def test_a_share_above_what_is_left(budgets):
    budget = session([("count/discrete-laplace", {"share": 0.7})])
    with pytest.raises(BudgetError, match=r"A share of 0.4 exceeds what is left: 0.3 of epsilon = 2, delta = 1e-07"):
        budget.allow(share=0.4)
    assert budget.allow(share=0.3).limit == 2.0


@pytest.mark.parametrize(
    ("spending", "reason"),
    [
        ({"epsilon": 0}, "epsilon must be a positive number, not 0"),
        ({"epsilon": math.nan}, "epsilon must be a positive number, not nan"),
        ({"epsilon": "1"}, "epsilon must be a number, not '1'"),
        ({"epsilon": 1, "delta": 0}, "delta must lie strictly between 0 and 1, not 0"),
        ({"epsilon": 1, "share": 0.5}, "either a share or an epsilon, not both"),
        ({"delta": 1e-8}, "A release with its own delta needs its own epsilon too"),
        ({"share": 0.5, "delta": 1e-8}, "A release with its own delta needs its own epsilon too"),
        ({}, "Give the release its share of the budget"),
    ],
)
def test_wrong_spending(spending, reason):
    with pytest.raises(ParameterError, match=reason):
        Budget(USERS, 2.0, 1e-7).allow(**spending)


@pytest.mark.parametrize("spending", [{"epsilon": 2.1}, {"epsilon": 1, "delta": 1e-6}])
def test_an_epsilon_above_all_of_it(spending):
    with pytest.raises(BudgetError, match=r"exceeds the session's epsilon = 2 and delta = 1e-07. Nothing was released"):
        Budget(USERS, 2.0, 1e-7).allow(**spending)


def test_an_epsilon_that_does_not_fit_with_the_earlier_releases():
    budget = session([("count/discrete-laplace", {"epsilon": 1.5})])
    with pytest.raises(BudgetError, match=r"With this release, 2 in all, epsilon = 2\.\d+ would be spent at delta"):
        released(budget, "count/discrete-laplace", epsilon=1.0)
    assert len(budget.releases) == 1


def test_would_spend_is_what_is_spent_afterwards(budgets):
    last = budgets["shares"].releases[-1]
    budget = Budget(USERS, 2.0, 1e-7, trust="central")
    for release in budgets["shares"].releases[:-1]:
        budget = budget.with_release(release)
    would = budget.would_spend(last.protocol)
    assert would.epsilon == budget.with_release(last).spent.epsilon == budgets["shares"].spent.epsilon
    assert budget.spent.epsilon < would.epsilon


def test_trust_and_honest_users_of_all_releases(budgets):
    spent = budgets["epsilons"].spent
    assert spent.trust == "central"
    assert spent.honest_users == USERS
    assert math.isinf(spent.local_epsilon)
    assert spent.releases == 4
    assert "4 releases, composed by their privacy loss distributions" in spent.theorem


def test_a_protocol_that_needs_more_trust_is_refused():
    central = sdp.protocols.DiscreteLaplaceCount.calibrate(users=USERS, epsilon=1, delta=1e-7)
    with pytest.raises(ParameterError, match="needs a trusted party that sees the values; this session is shuffled"):
        Budget(USERS, 2.0, 1e-7).would_spend(central)
    counter = find_qualified("histogram/sample-and-threshold").calibrate(
        users=USERS, epsilon=1, delta=1e-7, domain_size=4
    )
    with pytest.raises(ParameterError, match="needs a trusted party"):
        Budget(USERS, 2.0, 1e-7).would_spend(counter)
    shuffled = sdp.BalcerCheuCount.calibrate(users=USERS, epsilon=1, delta=1e-7)
    with pytest.raises(ParameterError, match="this session is local"):
        Budget(USERS, 2.0, 1e-7, trust="local").would_spend(shuffled)
    with pytest.raises(ParameterError, match=r"needs 1 of the users to be honest; this session assumes 0.9"):
        Budget(USERS, 2.0, 1e-7, honest_fraction=0.9).would_spend(shuffled)


def test_adaptive_budgets_add_pairs():
    """The pairs of three shares of a third add up to no more than the budget, exactly; exact composition has less."""
    budget = session([("count/balcer-cheu", {"share": 1 / 3})] * 3, adaptive=True)
    assert budget.spent.epsilon == pytest.approx(2.0)
    assert budget.spent.epsilon <= 2.0
    assert budget.spent.delta <= 1e-7
    assert budget.left.share == 0
    assert "pairs (epsilon, delta) added" in budget.spent.theorem
    with pytest.raises(BudgetError, match="The budget is spent"):
        budget.allow(share=0.1)
    exact = replace(budget, adaptive=False, composed=None)
    assert exact.spent.epsilon < 0.9 * budget.spent.epsilon


def test_adaptive_budgets_refuse_what_does_not_fit():
    budget = session([("count/discrete-laplace", {"epsilon": 1.5})], adaptive=True)
    assert budget.left.delta == 1e-7  # this protocol has delta = 0
    assert budget.left.epsilon == 0.5
    with pytest.raises(BudgetError, match=r"exceeds what is left: epsilon = 0.5 and delta = 1e-07"):
        budget.allow(epsilon=0.6)
    budget = released(budget, "count/balcer-cheu", epsilon=0.25)
    assert budget.left.delta == pytest.approx(1e-7 * 0.875)
    budget = released(budget, "count/balcer-cheu", epsilon=0.25, delta=1e-8)
    assert budget.left.epsilon == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"users": 1}, "At least 2 users"),
        ({"users": 2.5}, "must be an integer"),
        ({"epsilon": math.nan}, "epsilon must be a positive number"),
        ({"epsilon": 0}, "epsilon must be a positive number"),
        ({"delta": 0}, "delta must lie strictly between 0 and 1"),
        ({"delta": 1e-41}, "certified for delta >= 1e-40"),
        ({"trust": "blind"}, "There is no trust 'blind'"),
        ({"honest_fraction": math.nan}, "honest fraction must be above 0"),
        ({"announced": 0}, "1 to 256 releases, not 0"),
        ({"announced": 1.5}, "must be an integer, not 1.5"),
    ],
)
def test_wrong_budgets(options, reason):
    with pytest.raises(ParameterError, match=reason):
        Budget(**({"users": USERS, "epsilon": 1.0, "delta": 1e-7} | options))


def test_the_number_of_releases_is_limited(budgets):
    (release,) = budgets["one"].releases
    budget = replace(budgets["one"], releases=(release,) * MAX_RELEASES)
    with pytest.raises(BudgetError, match="at most 256 releases"):
        budget.allow(epsilon=0.1)


def test_a_limit_that_goes_back_is_refused(budgets):
    budget = session([("count/discrete-laplace", {"share": 0.3})])
    release = replace(budget.releases[0], limit=0.1)
    with pytest.raises(ParameterError, match=r"limit of a release must lie between 0.6 and 2"):
        budget.with_release(release)


def test_infeasible_releases_spend_nothing():
    budget = Budget(100, 1e-3, 1e-9)
    with pytest.raises(InfeasibleError):
        released(budget, "count/balcer-cheu", share=0.5)
    assert budget.releases == ()
