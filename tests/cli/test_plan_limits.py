"""``plan`` with limits and wanted errors, and ``account`` of every kind of guarantee."""

import json
import math
from itertools import pairwise

import pytest

TARGET = ("--users", 10_000, "--epsilon", 1, "--delta", 1e-6)
SUM = ("--lower", 0, "--upper", 10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--delta", 1e-6), "Give --users and --epsilon, or --accuracy"),
        (("--delta", 1e-6, "--users", 100), "Give --users and --epsilon"),
        (("--delta", 1e-6, "--epsilon", 1), "Give --users and --epsilon"),
        (("--delta", 1e-6, "--accuracy", 3), "give either --users"),
        (("--delta", 1e-6, "--users", 100, "--epsilon", 1, "--accuracy", 3), "give either --users"),
        (("--users", 100, "--epsilon", 1), "--delta"),
        (("--delta", 1e-6, "--epsilon", 1, "--accuracy", "nan"), "positive number, not nan"),
        (("--delta", 1e-6, "--epsilon", 1, "--accuracy", 0), "positive number, not 0"),
        (("--delta", 1e-6, "--epsilon", 1, "--accuracy", -2), "positive number, not -2"),
        (("--delta", 1e-6, "--epsilon", 1, "--accuracy", "inf"), "positive number, not inf"),
        (("--delta", 1e-6, "--epsilon", 0, "--accuracy", 5), "epsilon must be a positive number"),
        (("--delta", 0, "--users", 100, "--accuracy", 5), "delta must lie strictly"),
        ((*TARGET, "--max-local-epsilon", 0), "above 0, not 0"),
        ((*TARGET, "--max-local-epsilon", "nan"), "above 0, not nan"),
        ((*TARGET, "--max-messages", -1), "above 0, not -1"),
        ((*TARGET, "--max-bytes", 0), "above 0, not 0"),
        ((*TARGET, "--trust", "nobody"), "no trust 'nobody'"),
        ((*TARGET, "--confidence", 0), "confidence"),
        ((*TARGET, "--honest-fraction", 2), "honest fraction"),
    ],
)
def test_wrong_usage_is_status_2(shuffledp, arguments, words):
    done = shuffledp("plan", "count", *arguments)
    assert done.status == 2
    assert words in done.error
    assert shuffledp("plan", "sum", *SUM, *arguments).err == done.err


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (("--max-local-epsilon", 0.5), "the limit is an epsilon of 0.5"),
        (("--max-messages", 0.5), "more than 0.5"),
        (("--max-bytes", 0.01), "more than 0.01"),
    ],
)
def test_limits_that_nothing_keeps(shuffledp, limit, words):
    done = shuffledp("plan", "count", *TARGET, *limit)
    assert done.status == 1
    assert words in done.error


def test_a_limit_on_what_is_left(shuffledp):
    done = shuffledp("plan", "count", *TARGET, "--max-local-epsilon", 6, "--json").json
    chosen = [each for each in done["plans"] if not each["reference"]]
    assert chosen
    assert all(each["guarantee"]["local_epsilon"] <= 6 for each in chosen)
    rejected = {each["protocol"]: each["reason"] for each in done["rejected"]}
    assert "there is no guarantee" in rejected["balcer-cheu"]


def test_other_trust_is_shown_to_compare(shuffledp):
    plans = shuffledp("plan", "count", *TARGET, "--trust", "local", "--json").json["plans"]
    assert not plans[0]["reference"]
    assert plans[0]["protocol"] == "randomized-response"
    assert {each["model"] for each in plans if each["reference"]} == {"shuffled", "augmented", "central"}


def test_a_wanted_error_finds_the_least_epsilon(shuffledp):
    found = shuffledp("plan", "count", "--users", 10_000, "--delta", 1e-6, "--accuracy", 3, "--json").json
    assert found["plans"][0]["expected"]["rmse"] <= 3
    less = ("plan", "count", "--users", 10_000, "--delta", 1e-6, "--epsilon", 0.98 * found["target"]["epsilon"])
    assert shuffledp(*less, "--json").json["plans"][0]["expected"]["rmse"] > 3


def test_a_wanted_error_finds_the_fewest_users(shuffledp):
    command = ("plan", "mean", *SUM, "--delta", 1e-6, "--epsilon", 1, "--trust", "local")
    found = shuffledp(*command, "--accuracy", 0.5, "--json").json
    assert found["plans"][0]["expected"]["rmse"] <= 0.5
    fewer = int(0.98 * found["question"]["users"])
    assert shuffledp(*command, "--users", fewer, "--json").json["plans"][0]["expected"]["rmse"] > 0.5
    said = shuffledp(*command, "--accuracy", 0.5).out
    assert f"{found['question']['users']:,} users" in said


def test_errors_that_cannot_be_reached(shuffledp):
    done = shuffledp("plan", "count", "--users", 1000, "--delta", 1e-6, "--accuracy", 1e-9, "--trust", "local")
    assert done.status == 1
    assert "even at epsilon" in done.error


def test_the_fewest_users_of_whom_half_are_honest(shuffledp):
    done = shuffledp(
        "plan", "count", "--epsilon", 1, "--delta", 1e-6, "--accuracy", 5, "--honest-fraction", 0.5, "--json"
    )
    assert done.status == 0


def test_a_domain_of_one_value_is_known_without_error(shuffledp):
    done = shuffledp("plan", "histogram", "--domain-size", 1, "--users", 100, "--delta", 1e-6, "--accuracy", 5)
    assert done.status == 0


def test_a_tiny_epsilon_is_no_fault_of_ours(shuffledp):
    done = shuffledp(
        "plan", "histogram", "--domain-size", "1e7", "--users", 10_000, "--epsilon", 1e-10, "--delta", 1e-6
    )
    assert "bug in shuffledp" not in done.err


def test_the_figure_is_written(shuffledp, tmp_path):
    done = shuffledp("plan", "count", *TARGET, "--plot", "plans.svg", "--json")
    assert done.status == 0
    assert "wrote plans.svg" in done.err
    assert done.json["plans"]
    assert (tmp_path / "plans.svg").stat().st_size > 5000


@pytest.mark.parametrize("path", ["plans.pdf", "missing/plans.svg"])
def test_figures_that_cannot_be_written(shuffledp, tmp_path, path):
    done = shuffledp("plan", "count", *TARGET, "--plot", path)
    assert done.status == 1
    assert done.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "users"),
    [
        pytest.param("count/cheu", 200, marks=pytest.mark.slow),
        ("count/correlated-noise", 10_000),
        ("count/pure-sum", 100),
        ("count/randomized-response", 10_000),
        ("count/discrete-laplace", 10_000),
        ("histogram/uniform-blanket", 10_000),
        ("histogram/k-rr", 10_000),
        ("sum/split-and-mix", 10_000),
        ("sum/duchi", 10_000),
        ("sum/laplace", 10_000),
    ],
)
def test_several_releases_of_every_kind(shuffledp, name, users):
    """With a delta and without: about five times epsilon at most, and nothing prints NaN."""
    command = ("account", name, "--users", users, "--epsilon", 1, "--delta", 1e-6, "--releases", 5)
    done = shuffledp(*command, "--json")
    assert (done.status, done.err) == (0, "")
    result = done.json
    json.dumps(result, allow_nan=False)
    composed = result["composed"]
    assert composed["releases"] == 5
    assert 1 < composed["epsilon"] < 5.1
    once, total = result["guarantee"]["local_epsilon"], composed["local_epsilon"]
    assert total is None if once is None else total == pytest.approx(5 * once)
    deltas = [point["delta"] for point in result["curve"]]
    assert all(second <= first + 1e-12 for first, second in pairwise(deltas))
    assert all(0 <= delta <= 1 for delta in deltas)
    if name != "count/cheu":  # whose curve takes a while
        said = shuffledp(*command).out
        assert "5 releases" in said
        assert "nan" not in said.lower().split()


@pytest.mark.parametrize("name", ["count/randomized-response", "sum/laplace", "count/pure-sum"])
def test_several_pure_releases_cost_no_more_than_their_sum(shuffledp, name):
    done = shuffledp("account", name, "--users", 100, "--epsilon", 1, "--delta", 1e-6, "--releases", 5, "--json")
    assert done.json["composed"]["epsilon"] <= 5.0


@pytest.mark.parametrize("epsilon", [0.01, 30])
def test_the_ends_of_the_scale(shuffledp, epsilon):
    done = shuffledp(
        "account", "count/randomized-response", "--users", 50, "--epsilon", epsilon, "--delta", 1e-6, "--json"
    )
    assert done.json["exact_epsilon"] <= epsilon
    assert math.isfinite(done.json["exact_epsilon"])


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("sum/duchi", *TARGET, "--lower", 3, "--upper", 1), 2, "lower bound must lie below"),
        (("sum/duchi", "--users", 100, "--delta", 1e-6, "--absence", 0.1), 2, "leaves no tokens out"),
        (("sum/duchi", "--users", 100, "--delta", 1e-6), 2, "either --epsilon"),
        (("count/cheu", *TARGET, "--calibration", "paper"), 1, "epsilon < 1"),
        (("count/cheu", "--users", 1, "--epsilon", 1, "--delta", 1e-6), 2, "At least 2 users"),
        pytest.param(
            ("histogram/k-rr", *TARGET, "--domain-size", 0),
            2,
            "category",
        ),
        (("discrete-laplace", *TARGET), 2, "use count/discrete-laplace"),
        (("sum/nothing", *TARGET), 2, "no protocol 'nothing'"),
    ],
)
def test_account_refuses(shuffledp, arguments, status, words):
    done = shuffledp("account", *arguments)
    assert done.status == status
    assert words in done.error
