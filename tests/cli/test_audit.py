"""``shuffledp audit``, called as a user would."""

import pytest

TARGET = ("--users", 50, "--epsilon", 1, "--delta", 0.01, "--trials", 1000, "--confidence", 0.9999999)


def test_an_honest_protocol_is_consistent(shuffledp):
    done = shuffledp("audit", "count/cheu", *TARGET)
    assert done.status == 0
    flat = " ".join(done.out.split())
    for words in ("count/cheu, 50 users, 1,000 rounds", "epsilon claimed", "Event: ", "99.99999% confidence"):
        assert words in flat
    assert flat.endswith("claimed is 1: consistent.")
    assert "PLANTED" not in flat


def test_a_planted_fault_is_exposed_and_named(shuffledp, tmp_path):
    done = shuffledp("audit", "count/cheu", *TARGET, "--plant", "little-noise", "--plot", "audit.png")
    assert done.status == 1
    flat = " ".join(done.out.split())
    assert flat.startswith("PLANTED FAULT: the noise is enough only for five times the claimed epsilon")
    assert "EXPOSED: epsilon is at least" in flat
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote audit.png" in done.err


def test_json(shuffledp):
    options = ("--domain-size", 3, "--users", 50, "--epsilon", 1, "--delta", 0.01, "--trials", 500, "--json")
    honest = shuffledp("audit", "histogram/k-rr", *options)
    assert honest.status == 0
    assert honest.json["exposed"] is False
    assert honest.json["planted_fault"] is None
    assert honest.json["claim"]["delta"] == 0
    broken = shuffledp("audit", "histogram/k-rr", *options, "--plant", "little-noise")
    assert broken.status == 1
    assert broken.json["exposed"] is True
    assert "five times" in broken.json["planted_fault"]
    assert broken.json["epsilon_at_least"] > broken.json["epsilon_claimed"] == 1


def test_sums_and_honest_fractions(shuffledp):
    done = shuffledp("audit", "sum/duchi", *TARGET, "--lower", -2, "--upper", 5, "--json")
    assert done.status == 0
    half = shuffledp("audit", "count/cheu", *TARGET, "--honest-fraction", 0.5, "--json")
    assert half.status == 0
    assert half.json["claim"]["honest_users"] == 25


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("count/nothing",), "There is no protocol 'nothing'"),
        (("count/cheu", "--plant", "gremlins"), "There is no fault 'gremlins'; choose one of clear-last-value"),
        (("histogram/k-rr", "--plant", "no-shuffle"), "cannot have the fault no-shuffle"),
        (("histogram/k-rr", "--domain-size", 1), "nothing to audit"),
        (("count/cheu", "--trials", 3), "at least 10 trials"),
        (("count/cheu", "--trials", "many"), "'many' is not an integer"),
        (("count/cheu", "--confidence", 2), "confidence must lie between 0 and 1"),
        (("sum/duchi", "--lower", 3, "--upper", 1), "3"),
    ],
)
def test_bad_input_is_one_line(shuffledp, arguments, words):
    done = shuffledp("audit", *arguments, "--users", 50, "--epsilon", 1, "--delta", 0.01)
    assert done.status == 2
    assert words in done.error


def test_a_figure_that_cannot_be_written_is_refused_first(shuffledp):
    done = shuffledp("audit", "count/cheu", *TARGET, "--plot", "audit.gif")
    assert "a figure ends in" in done.error
