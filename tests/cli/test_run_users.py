"""``shuffledp run --user-column``: one row of each user counts."""

import pytest

TARGET = ("--epsilon", 60, "--delta", 1e-6, "--protocol", "discrete-laplace")
ROWS = """person,mode,minutes,when
ann,bus,10,2026-01-03
ann,bus,10,2026-01-01
bob,car,20,2026-01-05
bob,car,20,2026-01-06
 bob ,car,20,2026-01-07
cleo,bike,30,2026-01-02
"""


@pytest.fixture
def trips(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text(ROWS)
    return path


def test_a_histogram_per_user(shuffledp, trips):
    arguments = ("run", "histogram", trips, "--column", "mode", "--domain", "bus,car,bike", *TARGET)
    done = shuffledp(*arguments, "--user-column", "person", "--json")
    assert done.status == 0, done.err
    assert (done.json["users"], [round(count) for count in done.json["counts"]]) == (3, [1, 1, 1])
    assert done.json["guarantee"]["neighbours"] == "replace-one-user"
    assert "one row of each user was chosen uniformly at random" in done.json["caveats"][0]
    assert shuffledp(*arguments, "--json").json["users"] == 6
    written = " ".join(shuffledp(*arguments, "--user-column", "person").out.split())
    assert "Changing all rows of one person" in written
    assert "The guarantee is per user" in written


@pytest.mark.parametrize(
    "question",
    [
        ("count", "--column", "mode", "--equals", "bus"),
        ("mean", "--column", "minutes", "--lower", 0, "--upper", 60),
        ("sum", "--column", "minutes", "--lower", 0, "--upper", 60),
        ("quantiles", "--column", "minutes", "--lower", 0, "--upper", 60, "--bins", 4, *TARGET[:4]),
    ],
    ids=lambda question: question[0],
)
def test_every_question(shuffledp, trips, question):
    name, *options = question
    target = () if "--epsilon" in options else TARGET
    done = shuffledp("run", name, trips, *options, *target, "--user-column", "person", "--pick", "value", "--json")
    assert done.status == 0, done.err
    assert done.json["users"] == 3
    assert "distinct values of each user" in done.json["caveats"][0]


def test_the_latest_row(shuffledp, trips):
    trips.write_text(ROWS.replace("ann,bus,10,2026-01-03", "ann,bike,10,2026-01-03"))
    done = shuffledp(
        *("run", "histogram", trips, "--column", "mode", "--domain", "bus,car,bike", *TARGET),
        *("--user-column", "person", "--pick", "latest", "--order-by", "when", "--json"),
    )
    assert [round(count) for count in done.json["counts"]] == [0, 1, 2]
    assert "the latest row of each user by when was chosen" in done.json["caveats"][0]


def test_missing_ids(shuffledp, trips):
    trips.write_text(f"{ROWS},car,5,2026-01-01\nNA,car,5,2026-01-01\n")
    arguments = ("run", "histogram", trips, "--column", "mode", "--domain", "bus,car,bike", *TARGET, "--json")
    done = shuffledp(*arguments, "--user-column", "person")
    assert (done.status, done.error) == (
        1,
        "error: 1 user id is missing in person. Use --drop-missing-users to leave these rows out.",
    )
    noted = shuffledp(*arguments, "--user-column", "person", "--drop-missing-users")
    assert noted.json["users"] == 4
    assert "use --missing NA" in noted.err
    assert "Rows without a user id were left out" in noted.json["caveats"][1]
    marked = shuffledp(*arguments, "--user-column", "person", "--drop-missing-users", "--missing", "NA")
    assert marked.json["users"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--user-column", "nobody"), "has no column 'nobody'; it has person, mode"),
        (("--pick", "latest"), "give the users' ids too, --user-column COLUMN"),
        (("--order-by", "when"), "give the users' ids too, --user-column COLUMN"),
        (("--drop-missing-users",), "give the users' ids too, --user-column COLUMN"),
        (("--user-column", "person", "--pick", "latest"), "give --order-by COLUMN"),
        (("--user-column", "person", "--order-by", "when"), "give --pick latest"),
        (("--user-column", "person", "--pick", "latest", "--order-by", "mode"), "neither all numbers nor all dates"),
        (("--user-column", "person", "--pick", "first"), "first"),
    ],
)
def test_bad_input_is_one_line(shuffledp, trips, options, words):
    done = shuffledp("run", "count", trips, "--column", "mode", "--equals", "bus", *TARGET, *options)
    assert done.status != 0
    assert words in done.error
