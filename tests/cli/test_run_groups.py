"""``shuffledp run --group-by``: one estimate per group."""

import csv
import json
from pathlib import Path

import pytest

TARGET = ("--epsilon", 1, "--delta", 1e-6)
EXACT = ("--epsilon", 60, "--delta", 1e-6, "--protocol", "discrete-laplace")


@pytest.fixture
def trips(tmp_path):
    path = tmp_path / "trips.csv"
    rows = [
        f"{person},{('north', 'south')[person % 2]},{('bus', 'car')[person % 3 == 0]},{person % 60}"
        for person in range(400)
    ]
    path.write_text("person,region,mode,minutes\n" + "\n".join([*rows, "900,east,bus,7"]) + "\n")
    return path


def test_a_histogram_by_public_groups(shuffledp, trips):
    arguments = (
        "run",
        "histogram",
        trips,
        "--column",
        "mode",
        "--domain",
        "bus,car",
        *TARGET,
        "--protocol",
        "balcer-cheu",
    )
    done = shuffledp(*arguments, "--group-by", "region", "--json", "--out", "result.csv", "--plot", "picture.svg")
    assert done.status == 0, done.err
    result = done.json
    assert [(group["group"], group["users"], group["status"]) for group in result["groups"]] == [
        ("east", 1, "too few users"),
        ("north", 200, "released"),
        ("south", 200, "released"),
    ]
    assert result["guarantee"]["neighbours"] == "replace-one-within-group"
    assert (result["statistic"], result["group_by"], result["private_groups"]) == ("histogram", "region", False)
    assert result["groups"][0]["estimate"] is None
    assert result["groups"][1]["estimate"]["categories"] == ["bus", "car"]
    with Path("result.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["group"] for row in rows] == ["east", "north", "north", "south", "south"]
    assert (rows[0]["status"], rows[0]["count"]) == ("too few users", "")
    assert "Too few users: east (1)." in Path("picture.svg").read_text()
    written = " ".join(shuffledp(*arguments, "--group-by", "region").out.split())
    for words in ("too few users", "401 users, 2 of 3 groups released.", "Who belongs to which group", "north"):
        assert words in written


@pytest.mark.parametrize(
    "question",
    [
        ("count", "--column", "mode", "--equals", "bus"),
        ("mean", "--column", "minutes", "--lower", 0, "--upper", 60),
        ("sum", "--column", "minutes", "--lower", 0, "--upper", 60),
        ("quantiles", "--column", "minutes", "--lower", 0, "--upper", 60, "--bins", 4),
    ],
    ids=lambda question: question[0],
)
def test_every_question(shuffledp, trips, question):
    target = TARGET if question[0] == "quantiles" else EXACT
    arguments = ("run", question[0], trips, *question[1:], *target, "--group-by", "region")
    done = shuffledp(*arguments, "--user-column", "person", "--json")
    assert done.status == 0, done.err
    assert done.json["users"] == 401
    assert done.json["guarantee"]["neighbours"] == "replace-one-user-within-group"
    assert "too few users" in shuffledp(*arguments).out


def test_private_groups(shuffledp, trips):
    arguments = ("run", "count", trips, "--column", "mode", "--equals", "bus", *EXACT, "--group-by", "region")
    done = shuffledp(*arguments, "--private-groups", "north, south, east, west", "--json", "--out", "result.json")
    assert done.status == 0, done.err
    result = done.json
    assert json.loads(Path("result.json").read_text()) == result
    assert [group["group"] for group in result["groups"]] == ["north", "south", "east", "west"]
    assert result["guarantee"]["neighbours"] == "replace-one"
    assert result["groups"][0]["users_interval"][0] <= 200 <= result["groups"][0]["users_interval"][1]
    assert "estimated size" in " ".join(shuffledp(*arguments, "--private-groups", "north,south,east").out.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--group-by", "nowhere"), "has no column 'nowhere'"),
        (("--private-groups", "a,b"), "give --group-by COLUMN too"),
        (("--group-by", "region", "--private-groups", "north,,south"), "empty name"),
        (("--group-by", "region", "--private-groups", "north,south"), "1 of 3 groups in region are not listed"),
        (("--group-by", "region", "--private-groups", "north,north"), "appears twice"),
    ],
)
def test_bad_input_is_one_line(shuffledp, trips, options, words):
    done = shuffledp("run", "count", trips, "--column", "mode", "--equals", "bus", *EXACT, *options)
    assert done.status != 0
    assert words in done.error


def test_a_mean_by_private_groups_is_refused_before_data_are_read(shuffledp, trips):
    done = shuffledp(
        *("run", "mean", trips, "--column", "nothing", "--lower", 0, "--upper", 60, *EXACT),
        *("--group-by", "region", "--private-groups", "north,south"),
    )
    assert "Private groups are not offered for mean" in done.error
