"""A histogram of two categories is planned as a count, and is still a histogram for who asks."""

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import Tally
from shuffledp.protocols.count.correlated_noise import CorrelatedNoiseCount
from shuffledp.protocols.documents import from_document, to_document
from shuffledp.protocols.registry import PROTOCOLS

TARGET = {"epsilon": 1.0, "delta": 1e-6}
VALUES = ["no"] * 700 + ["yes"] * 300
ASKED = sdp.Histogram(users=1_000, categories=["no", "yes"])


def test_plans_are_those_of_a_count_with_less_error():
    plans = sdp.plan(ASKED, **TARGET)
    count = sdp.plan(sdp.Count(users=1_000), **TARGET)
    assert [plan.protocol.name for plan in plans] == [plan.protocol.name for plan in count]
    assert plans.question == ASKED
    assert plans.to_json()["question"] == {"kind": "histogram", "users": 1_000, "domain_size": 2}
    separately = sdp.plan(sdp.Histogram(users=1_000, domain_size=2, both_counted=True), **TARGET)
    assert {plan.protocol.question for plan in separately} == {"histogram"}
    assert plans[0].expected.rmse < 0.7 * separately[0].expected.rmse


@pytest.mark.parametrize("name", PROTOCOLS["count"])
def test_the_estimate_is_a_histogram_that_adds_up(name):
    """Every observation of a small round: both counts, their errors and intervals follow from the count."""
    try:
        count = PROTOCOLS["count"][name].calibrate(users=300, epsilon=2.0, delta=0.01)
    except sdp.errors.InfeasibleError:
        count = PROTOCOLS["count"][name].calibrate(users=20_000, epsilon=2.0, delta=0.01)
    both = count.of_two_categories(sdp.Categories.of(["no", "yes"]))
    tally = count.sample_tally(np.array([count.users - 100, 100]))
    one, two = count.estimate(tally), both.estimate(tally)
    assert two.categories == ("no", "yes")
    assert two.counts.tolist() == [count.users - one.value, one.value]
    assert two.standard_errors.tolist() == [one.standard_error] * 2
    (low, high), ends = one.interval(0.9), two.interval(0.9)
    assert ends.tolist() == [[count.users - high, count.users - low], [low, high]]
    assert both.expected_error() == count.expected_error()
    assert both.truth(np.array([0, 1, 1])).tolist() == [1, 2]
    assert both == count


def test_a_run_counts_the_named_values():
    """The noise of 1,000 users exceeds 40 with a probability far below 1e-6."""
    best = sdp.plan(ASKED, **TARGET).best
    counts = best.run(VALUES).counts
    assert abs(counts - [700, 300]).max() < 40
    assert counts.sum() == 1_000
    turned = best.of_two_categories(sdp.Categories.of(["yes", "no"])).run(VALUES).counts
    assert abs(turned - [300, 700]).max() < 40  # a fault that exchanges both is caught here


def test_one_line_and_named_protocols():
    best = sdp.histogram(VALUES, categories=["no", "yes"], **TARGET)
    assert best.categories == ("no", "yes")
    assert best.counts.sum() == 1_000
    named = sdp.histogram(VALUES, categories=["no", "yes"], protocol="uniform-blanket", **TARGET)
    assert named.protocol == "uniform-blanket"
    projected = sdp.histogram(VALUES, categories=["no", "yes"], estimator="projected", **TARGET)
    assert projected.estimator == "projected"


def test_sessions_keep_it(tmp_path):
    session = sdp.Session(users=1_000, epsilon=2.0, delta=1e-6)
    session.save(tmp_path / "session.json")
    first = session.histogram(VALUES, categories=["no", "yes"], share=0.3)
    again = sdp.Session.load(tmp_path / "session.json")
    second = again.histogram(VALUES, categories=["no", "yes"], share=0.3)
    for estimate in (first, second):
        assert estimate.categories == ("no", "yes")
        assert estimate.counts.sum() == 1_000
    assert again.spent.epsilon < 2.0


def test_planning_by_accuracy():
    plans = sdp.fewest_users_for(ASKED, accuracy=2.0, **TARGET)
    assert plans[0].protocol.question == "count"
    assert plans[0].expected.rmse <= 2.0


def test_documents_are_those_of_the_count():
    count = CorrelatedNoiseCount.calibrate(users=1_000, **TARGET)
    both = count.of_two_categories(sdp.Categories.of(["no", "yes"]))
    assert to_document(both) == to_document(count)
    assert from_document(to_document(both)).answering("histogram").domain.names == ("0", "1")
    assert both.answering("count").estimate(Tally(count.sample_tally(np.array([500, 500])).counts, 1_000)).value


def test_refusals():
    count = CorrelatedNoiseCount.calibrate(users=1_000, **TARGET)
    with pytest.raises(DomainError, match="two categories, not of 3"):
        count.of_two_categories(sdp.Categories.of(["a", "b", "c"]))
    with pytest.raises(ParameterError, match="cannot answer"):
        count.answering("mean")


@pytest.mark.parametrize("trust", ["shuffled", "local"])
def test_a_single_category_is_exact_and_reveals_nothing(trust):
    """There is nothing to hide: the number of users is public."""
    best = sdp.plan(sdp.Histogram(users=500, categories=["all"]), **TARGET, trust=trust)[0]
    assert (best.expected.rmse, best.expected.max_error) == (0, 0)
    estimate = best.protocol.run(["all"] * 500)
    assert (estimate.counts.tolist(), estimate.standard_errors.tolist()) == ([500], [0])
    assert estimate.interval(0.99).tolist() == [[500, 500]]
    assert (estimate.guarantee.epsilon, estimate.guarantee.delta) == (0, 0)
    two = best.protocol.calibrate(users=500, domain_size=2, **TARGET)  # the rule must not apply here
    assert two.guarantee.epsilon == 1
    assert two.expected_error().rmse > 0
