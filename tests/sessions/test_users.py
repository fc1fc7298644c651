"""One-line functions with user ids: the guarantee is per user and says so."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import shuffledp as sdp

TARGET = {"epsilon": 1.0, "delta": 1e-6}
EXACT = {"epsilon": 60.0, "delta": 1e-6, "trust": "central"}
IDS = [7, 7, 8, 8, 8, 9]


def test_every_question_counts_each_user_once():
    frame = pd.DataFrame({"id": IDS, "mode": ["bus"] * 2 + ["car"] * 4, "minutes": [10] * 2 + [20] * 3 + [30]})
    user = {"user": frame["id"], **EXACT}
    assert round(sdp.count(frame["mode"], equals="car", **user).value) == 2
    histogram = sdp.histogram(frame["mode"], categories=["bus", "car"], **user)
    assert (histogram.users, np.round(histogram.counts).tolist()) == (3, [1, 2])
    assert sdp.sum(frame["minutes"], lower=0, upper=60, **user).value == pytest.approx(60, abs=5)
    assert sdp.mean(frame["minutes"], lower=0, upper=60, **user).value == pytest.approx(20, abs=2)
    assert sdp.quantiles(frame["minutes"], lower=0, upper=60, bins=60, **user).users == 3


def test_the_guarantee_is_per_user():
    ids = list(range(2_000)) * 2
    estimate = sdp.count([True] * 4_000, user=ids, **TARGET)
    assert (estimate.users, estimate.guarantee.users) == (2_000, 2_000)
    assert estimate.to_json()["guarantee"]["neighbours"] == "replace-one-user"
    assert estimate.guarantee.sentence().startswith("Changing all rows of one person changes")
    assert estimate.caveats == (
        "The guarantee is per user: one row of each user was chosen uniformly at random, and only that one counts.",
    )
    assert estimate.guarantee.after(3).neighbours == "replace-one-user"
    latest = sdp.count([True] * 4_000, user=ids, pick="latest", order_by=range(4_000), **TARGET)
    assert "the latest row of each user by order_by" in latest.caveats[0]
    without = sdp.count([True] * 2_000, **TARGET)
    assert without.guarantee.neighbours == "replace-one"
    assert without.caveats == ()


def test_dropped_rows_are_stated():
    estimate = sdp.count(
        [True, None, True, True], user=[1, 2, 3, None], drop_missing=True, drop_missing_users=True, **EXACT
    )
    assert estimate.users == 2
    assert [caveat.split(":")[0] for caveat in estimate.caveats[1:]] == [
        "Rows without a user id were left out",
        "Rows without a value were left out",
    ]


def test_columns_of_files(tmp_path):
    table = pa.table({"id": IDS, "mode": ["bus"] * 2 + ["car"] * 4, "at": [f"2026-01-0{i}" for i in range(1, 7)]})
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        file = sdp.read_files(tmp_path / name)
        for user, order_by in (("id", "at"), (file["id"], file["at"])):
            estimate = sdp.histogram(file["mode"], categories=["bus", "car"], user=user, **EXACT)
            assert (estimate.users, np.round(estimate.counts).tolist()) == (3, [1, 2])
            latest = sdp.count(file["mode"], equals="bus", user=user, pick="latest", order_by=order_by, **EXACT)
            assert latest.users == 3
        with pytest.raises(sdp.ParameterError, match="no column 'nope'; it has id, mode, at"):
            sdp.count(file["mode"], equals="car", user="nope", **EXACT)
        with pytest.raises(sdp.ParameterError, match="give user as the name of another column"):
            sdp.count(file["mode"], equals="car", user=IDS, **EXACT)


def test_a_seed_repeats_everything():
    ids, modes = [*range(500), *range(500)], ["bus", "car"] * 250 + ["car", "bus"] * 250
    counts = [
        sdp.histogram(
            modes, categories=["bus", "car"], user=ids, source=sdp.InsecureSeededRandomness(3), **TARGET
        ).counts.tolist()
        for _ in range(2)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"user": [[1]] * 6}, "of type list"),
        ({"user": [1]}, "differ in their numbers of rows: values 6, user 1"),
        ({"user": "id"}, r"give the column itself, such as frame\['id'\]"),
        ({"user": pd.DataFrame({"id": IDS})}, "user is a whole table"),
        ({"user": [1, 2, 3, 4, 5, None]}, "1 user id is missing"),
        ({"user": IDS, "pick": "first"}, "choose one of row, value, latest"),
        ({"user": IDS, "pick": "latest"}, "order_by=COLUMN"),
        ({"user": IDS, "order_by": IDS}, 'pick="latest"'),
        ({"user": IDS, "pick": "latest", "order_by": "when"}, "give the column itself"),
        ({"pick": "value"}, "give the users' ids too"),
        ({"drop_missing_users": True}, "give the users' ids too"),
    ],
)
def test_bad_input_is_one_line(options, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        sdp.count([True] * 6, **options, **EXACT)
    assert "\n" not in str(caught.value)


def test_a_session_about_users_with_several_rows():
    ids = list(range(2_000)) * 2
    session = sdp.Session(users=2_000, epsilon=1.0, delta=1e-6, releases=2)
    estimate = session.count([True] * 4_000, user=ids)
    assert (estimate.users, estimate.guarantee.neighbours) == (2_000, "replace-one-user")
    assert "one row of each user was chosen" in estimate.caveats[0]
    with pytest.raises(sdp.ParameterError, match=r"about 2,000 users, .* has 4,000 values"):
        session.count([True] * 4_000)
    assert len(session.releases) == 1


def visits(rows=6_000, users=2_000):
    """Three rows per user; the minutes of a user's first row are missing, and one user has no complete row."""
    ids = [f"u{row % users}" for row in range(rows)]
    minutes = [None if row < users or row % users == 7 else float(row // users * 20) for row in range(rows)]
    return {"id": ids, "minutes": minutes, "mode": ["bus"] * rows, "day": [row // users for row in range(rows)]}


def test_a_session_of_a_table_with_several_rows_per_user():
    """The users are those with a complete row; the latest of these counts in every question."""
    columns = ["minutes", "mode"]
    session = sdp.Session.of(
        visits(), columns=columns, user="id", pick="latest", order_by="day", epsilon=4.0, delta=1e-6, releases=2
    )
    assert session.users == 1_999
    exact = {"protocol": "discrete-laplace"}
    session = sdp.Session.of(
        visits(),
        columns=columns,
        user="id",
        pick="latest",
        order_by="day",
        epsilon=20.0,
        delta=1e-6,
        releases=2,
        trust="central",
    )
    assert session.mean("minutes", lower=0, upper=60, **exact).value == pytest.approx(40, abs=0.1)
    estimate = session.histogram("mode", categories=["bus", "car"], **exact)
    assert estimate.users == 1_999
    assert session.spent.neighbours == "replace-one-user"
    assert "all of whose rows are replaced" in str(session.report())
    assert any("with a row that has a value in each of minutes, mode, day" in caveat for caveat in estimate.caveats)


def test_missing_ids_of_a_session_are_an_error_unless_they_are_dropped():
    table = visits() | {"id": [None, *visits()["id"][1:]], "minutes": [1.0] * 6_000}
    options = {"columns": ["minutes"], "user": "id", "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(sdp.DataError, match="1 user id is missing in id"):
        sdp.Session.of(table, **options)
    assert sdp.Session.of(table, drop_missing_users=True, **options).users == 2_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pick": "first"}, "no pick 'first'"),
        ({"pick": "latest"}, "give `order_by=COLUMN`"),
        ({"columns": ["id"]}, "id is the column of user ids"),
        ({"user": "name"}, "The table has no column 'name'"),
    ],
)
def test_bad_users_of_a_session_are_one_line(options, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        sdp.Session.of(visits(), **({"columns": ["mode"], "user": "id", "epsilon": 1.0, "delta": 1e-6} | options))
    assert "\n" not in str(caught.value)
