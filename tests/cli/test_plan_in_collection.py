"""``plan --in-collection``: padded and sealed reports, the influence of one device, and the ranking by them."""

import math
import re

import pytest

from shuffledp.collection.task.costs import CollectionCost, collection_cost, ranked_by_cost, with_carriers
from shuffledp.planning import Histogram, Plan, plan
from shuffledp.protocols.registry import find

TARGET = ("plan", "histogram", "--users", 2000, "--domain-size", 4, "--epsilon", 1, "--delta", 1e-4, "--in-collection")


def test_plans_show_what_a_collection_costs(shuffledp):
    document = shuffledp(*TARGET, "--json").json
    collected = [each for each in document["plans"] if not each["reference"]]
    costs = [each["collection"] for each in collected if "reason" not in each["collection"]]
    assert costs
    for cost in costs:
        assert cost["messages_per_report"] >= 1
        assert cost["bytes_per_report"] > 40 * cost["messages_per_report"]
        assert cost["moved_by_one_report"] >= 1
    correlated = [each for each in collected if each["protocol"] == "correlated-noise"]
    plain = next(each for each in correlated if each["collection"]["carriers"] is None)
    assert plain["collection"]["messages_per_report"] > 10 * plain["cost"]["messages_per_user"]
    assert plain["collection"]["messages_per_user"] == plain["collection"]["messages_per_report"]
    carried = next(each for each in correlated if each["collection"]["carriers"] is not None)
    assert carried["setting"]["carriers"] == carried["collection"]["carriers"]["probability"]
    assert carried["collection"]["messages_per_report"] == 1
    assert carried["collection"]["messages_per_user"] < carried["collection"]["carriers"]["messages_per_report"]


TWO = ("plan", "histogram", "--users", 2000, "--epsilon", 1, "--delta", 1e-4, "--in-collection", "--domain-size")


def test_two_categories_are_compared_with_a_task_that_counts_one(shuffledp):
    """The tasks listed count both; the errors stated of both forms are those of the plans."""
    printed = " ".join(shuffledp(*TWO, 2).out.split())
    both, one = (float(error) for error in re.findall(r"typical error of ([\d.]+)", printed))
    assert one < 0.8 * both
    ranked = shuffledp("plan", "count", *TWO[2:-1], "--json").json["plans"]
    assert one == pytest.approx(ranked[0]["expected"]["rmse"], rel=0.01)
    assert "question count" not in " ".join(shuffledp(*TWO, 4).out.split())


MILLION = ("plan", "histogram", "--users", 1_000_000, "--domain-size", 1000, "--epsilon", 1, "--delta", 1e-6)


def test_what_carriers_cost_a_million_users():
    """1,000 categories, (1, 1e-6): an error of at most 3.3 with at most 5 sealed messages, dummies included."""
    question = Histogram(1_000_000, 1000)
    protocol = find("histogram", "correlated-noise").calibrate(**question.settings(), epsilon=1.0, delta=1e-6)
    plain = Plan(protocol, "tight", protocol.expected_error())
    carried = with_carriers(plain, question, delta=1e-6)
    cost, without = (collection_cost(each, question, delta=1e-6) for each in (carried, plain))
    assert carried.expected.rmse == pytest.approx(3.255, abs=0.01)
    assert cost.messages_per_user == pytest.approx(4.28, abs=0.1)
    assert carried.expected.rmse <= 3.3
    assert cost.messages_per_user <= 5
    assert without.messages_per_user == pytest.approx(183, abs=15)
    assert cost.carriers.messages == pytest.approx(671, abs=40)
    assert carried.expected.rmse < 1.06 * plain.expected.rmse
    assert carried.protocol.guarantee.delta_at(1.0) <= 1e-6
    assert cost.moved == 2 * cost.carriers.messages


@pytest.mark.slow
def test_near_central_accuracy_for_a_few_sealed_messages(shuffledp):
    """As above, on the command line, with everything that is planned."""
    document = shuffledp(*MILLION, "--in-collection", "--max-messages", 5, "--json").json
    best = document["plans"][0]
    cost, carriers = best["collection"], best["collection"]["carriers"]
    assert best["protocol"] == "correlated-noise"
    assert best["expected"]["rmse"] <= 3.3
    assert cost["messages_per_user"] <= 5
    assert cost["messages_per_user"] == pytest.approx(
        1 + carriers["probability"] * (carriers["messages_per_report"] - 1)
    )
    assert best["guarantee"]["delta"] <= 1e-6
    assert best["guarantee"]["honest_users"] == 1_000_000
    assert carriers["minimum"] == best["parameters"]["honest_carriers"]
    without = [each["collection"] for each in document["plans"] if each["protocol"] == "correlated-noise"]
    assert any("messages, more than 5" in each.get("reason", "") for each in without)  # those without carriers


def test_limits_are_those_of_padded_reports(shuffledp):
    shown = " ".join(shuffledp(*TARGET, "--max-messages", 3).out.split())
    assert "Not collected: correlated-noise" in shown
    assert "messages, more than 3" in shown
    document = shuffledp(*TARGET, "--max-messages", 3, "--json").json
    assert document["plans"][0]["collection"]["messages_per_report"] <= 3


def test_trust_without_a_collection_is_refused_in_one_line(shuffledp):
    done = shuffledp(*TARGET, "--trust", "central")
    assert done.status == 1
    assert "No plan can be collected" in done.error
    assert "above 0, not -1" in shuffledp(*TARGET, "--max-messages", -1).error


def test_equal_errors_are_ranked_by_bytes_and_influence():
    plans = [each for each in plan(Histogram(2000, 4), epsilon=1.0, delta=1e-4) if not each.reference][:4]
    cheap, dear, fragile = CollectionCost(1, 50, 1.0), CollectionCost(9, 500, 9.0), CollectionCost(1, 40, math.inf)
    first = plans[0]
    assert ranked_by_cost([(first, dear), (first, cheap)])[0][1] is cheap
    assert ranked_by_cost([(first, fragile), (first, dear)])[0][1] is dear
    worse = max(plans, key=lambda each: each.expected.rmse)
    assert worse.expected.rmse > 1.2 * first.expected.rmse
    assert ranked_by_cost([(worse, cheap), (first, dear)])[0][1] is dear
    assert ranked_by_cost([]) == []


def test_plans_show_the_work_of_an_augmented_shuffler(shuffledp):
    shown = " ".join(shuffledp(*TARGET, "--trust", "augmented").out.split())
    assert "the shuffler also seals about 64 dummies in every round, which takes one core less than a second" in shown
    best = shuffledp(*TARGET, "--trust", "augmented", "--json").json["plans"][0]
    assert best["protocol"] == "shuffler-laplace"
    assert best["collection"]["messages_per_report"] == best["collection"]["moved_by_one_report"] == 1
    assert best["collection"]["dummies_per_round"] > 50
    assert best["collection"]["bytes_per_report"] == 151
