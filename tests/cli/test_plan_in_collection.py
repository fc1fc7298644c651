"""``plan --in-collection``: padded and sealed reports, the influence of one device, and the ranking by them."""

import math

from shuffledp.collection.task.costs import CollectionCost, ranked_by_cost
from shuffledp.planning import Histogram, plan

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
    correlated = next(each for each in collected if each["protocol"] == "correlated-noise")
    assert correlated["collection"]["messages_per_report"] > 10 * correlated["cost"]["messages_per_user"]


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
