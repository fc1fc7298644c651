"""``shuffledp solve``, called as a user would."""

import json

import pytest

TARGET = ("--epsilon", 1, "--delta", 1e-6)
CHASING = ("solve", "pointer-chasing", "--steps", 2, "--length", 50)
SUPPORT = ("solve", "support", "--support-size", 3, "--domain-size", "1e30")
JUMPING = ("solve", "pointer-jumping", "--branching", "1e4", "--height", 10)

KEYS = {
    "answer",
    "calibration",
    "domain",
    "guarantee",
    "identified",
    "measured",
    "model",
    "parameters",
    "problem",
    "protocol",
    "reported",
    "route",
    "rule",
    "seconds",
    "secure",
    "simulated_items",
    "success",
    "success_at_least",
    "support_size",
    "theory",
    "truth",
    "users",
}


def test_pointer_chasing_at_a_million(shuffledp):
    done = shuffledp("solve", "pointer-chasing", "--steps", 2, "--length", "1e6", *TARGET)
    assert done.status == 0
    flat = " ".join(done.out.split())
    assert flat.startswith("Pointer chasing with k = 2 and l = 1,000,000: 2 items are held, of 10^5,565,709 possible")
    for words in (
        "163 users with balcer-cheu (shuffled model, tight calibration) at epsilon = 1, delta = 1e-06",
        "26,608",
        "Success with probability 0.9908 is proven for 163 users.",
        "For non-interactive local protocols with k = 2 Table 2 has a lower bound of 367,879",
        "at most a factor of 2.718",
    ):
        assert words in flat


def test_pointer_jumping_where_the_local_bound_holds(shuffledp):
    done = shuffledp(*JUMPING, *TARGET, "--json")
    assert done.status == 0
    found = done.json
    assert set(found) == KEYS
    assert found["users"] == found["theory"]["users"] == 768
    assert found["theory"]["users_paper_exact_coupon"] == 69760
    assert found["theory"]["local_rate"] == pytest.approx(434.29448)
    assert found["domain"]["size"] is None
    assert found["measured"] is None
    assert len(found["truth"]) == 10
    assert found["success"] == (found["answer"] == found["truth"])
    assert found["guarantee"]["epsilon"] == 1


def test_support_with_a_search(shuffledp):
    settings = (*TARGET, "--protocol", "stability", "--search", "--trials", 2000, "--confidence", 0.99)
    done = shuffledp(*SUPPORT, *settings, "--json")
    assert done.status == 0
    measured = done.json["measured"]
    assert measured["low"] < measured["users"] <= measured["high"]
    assert measured["confidence"] == 0.99
    assert done.json["theory"]["local_rate"] is None
    shown = " ".join(shuffledp(*SUPPORT, *settings).out.split())
    assert "enough for 99/100, measured" in shown
    assert "The success probability reaches 99/100 at about" in shown
    assert "for everyone except the party that collects" in shown
    assert "network" not in shown  # one small message each


def test_outside_the_papers_conditions(shuffledp):
    done = shuffledp(*CHASING, "--epsilon", 3, "--delta", 1e-6, "--json")
    assert done.status == 0
    assert done.json["theory"]["users_paper"] is None
    assert done.json["theory"]["shuffled_rate"] is None
    assert "none known" in shuffledp(*CHASING, "--epsilon", 3, "--delta", 1e-6).out


def test_too_few_samples(shuffledp):
    refused = shuffledp(*CHASING, *TARGET, "--users", 150)
    assert refused.status == 1
    assert "150 samples are too few" in refused.error
    assert "needs 163 to solve pointer chasing with k = 2 and l = 50" in refused.error
    anyway = shuffledp(*CHASING, *TARGET, "--users", 150, "--anyway", "--json")
    assert anyway.status == 0
    assert 0.5 < anyway.json["success_at_least"] < 0.99
    without_noise = shuffledp(*CHASING, *TARGET, "--users", 100, "--anyway")
    assert without_noise.status == 1
    assert "148 are needed" in without_noise.error


def test_more_than_anybody_has(shuffledp):
    refused = shuffledp(*JUMPING, *TARGET, "--protocol", "unary")
    assert refused.status == 1
    assert "unary would need more than 1,099,511,627,776 users" in refused.error
    anyway = shuffledp(*JUMPING, *TARGET, "--protocol", "unary", "--users", 1000, "--anyway", "--json")
    assert anyway.status == 0
    assert anyway.json["theory"]["users"] is None
    assert anyway.json["success"] is False


def test_a_seed_repeats_and_is_said_to_be_one(shuffledp):
    first, second = (shuffledp(*SUPPORT, *TARGET, "--insecure-seed", 3, "--json").json for _ in range(2))
    for found in (first, second):
        found.pop("seconds")
    assert first == second
    assert first["guarantee"] is None
    assert "NOT PRIVATE" in shuffledp(*SUPPORT, *TARGET, "--insecure-seed", 3).out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("support", "--support-size", 11, "--domain-size", 10), 2, "h = 11 items does not fit a domain of d = 10"),
        (("support", "--support-size", 0, "--domain-size", 10), 2, "(h) must be at least 1, not 0"),
        (("support", "--support-size", "few", "--domain-size", 10), 2, "'few' is not an integer"),
        (("pointer-chasing", "--steps", 0, "--length", 10), 2, "The number of steps (k) must be at least 1, not 0"),
        (("pointer-chasing", "--steps", 2, "--length", 0), 2, "(l) must be at least 1, not 0"),
        (("pointer-chasing", "--steps", 2), 2, "--length"),
        (("pointer-jumping", "--branching", 0, "--height", 3), 2, "(s) must be at least 1, not 0"),
        (("pointer-jumping", "--branching", 3, "--height", -1), 2, "(h) must be at least 1, not -1"),
        ((*CHASING[1:], "--protocol", "gremlin"), 2, "There is no protocol 'gremlin' for a histogram"),
        ((*CHASING[1:], "--rule", "best"), 2, "There is no rule 'best'"),
        ((*CHASING[1:], "--protocol", "unary", "--rule", "shown"), 2, "use the rule 'largest'"),
        ((*CHASING[1:], "--users", 0), 2, "At least 2 users are needed, not 0"),
        ((*CHASING[1:], "--search", "--trials", 5), 2, "At least 1,232 trials"),
        ((*CHASING[1:], "--search", "--confidence", 2), 2, "confidence must lie between 0 and 1"),
        ((*CHASING[1:], "--protocol", "k-rr"), 1, "k-rr must be run over the whole domain"),
    ],
)
def test_bad_input_is_one_line(shuffledp, arguments, status, words):
    done = shuffledp("solve", *arguments, *TARGET)
    assert done.status == status
    assert words in done.error


def test_bad_target(shuffledp):
    done = shuffledp(*CHASING, "--epsilon", 0, "--delta", 1e-6)
    assert done.status == 2
    assert "epsilon must be a positive number" in done.error


@pytest.mark.parametrize("problem", ["support", "pointer-chasing", "pointer-jumping"])
def test_help_has_an_example_that_runs(shuffledp, problem):
    shown = " ".join(shuffledp("solve", problem, "--help").out.split())
    example = shown.partition("Example: shuffledp ")[2].partition(" ╭")[0]
    assert example.startswith(f"solve {problem} --")
    done = shuffledp(*example.split(), "--json")
    assert done.status == 0
    assert json.loads(done.out)["problem"] == problem


def test_all_messages_of_a_small_domain(shuffledp):
    small = ("solve", "pointer-chasing", "--steps", 2, "--length", 3, *TARGET)
    found = shuffledp(*small, "--route", "messages", "--json")
    assert found.status == 0
    assert (found.json["route"], found.json["simulated_items"]) == ("messages", 12)
    shown = " ".join(shuffledp(*small, "--route", "listed").out.split())
    assert "All 12 items were simulated, empty ones included. Their tally was drawn." in shown
    assert shuffledp(*small, "--json").json["simulated_items"] == 2
    refused = shuffledp(*CHASING, *TARGET, "--route", "messages")
    assert refused.status == 1
    assert "too many" in refused.error
