"""Questions by group: public groups in parallel, each with its own calibration; private ones in one histogram."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.stats

import shuffledp as sdp
from shuffledp.planning import Count
from shuffledp.privacy.parallel import WorstCurve
from shuffledp.sessions.groups import PreparedGroups, choose_protocols, grid_users
from shuffledp.sessions.prepared import Prepared

TARGET = {"epsilon": 1.0, "delta": 1e-6}
EXACT = {"epsilon": 60.0, "delta": 1e-6, "trust": "central"}
FRAME = pd.DataFrame(
    {
        "region": ["north"] * 600 + ["south"] * 300 + ["east"],
        "mode": ["bus"] * 400 + ["car"] * 200 + ["bus"] * 300 + ["car"],
        "minutes": [10.0] * 600 + [50.0] * 301,
    }
)
BOUNDS = {"lower": 0, "upper": 60}
FAST = {"protocol": "balcer-cheu"}


@pytest.fixture(scope="module")
def mean():
    return sdp.mean(FRAME["minutes"], group_by=FRAME["region"], protocol="cheu", **BOUNDS, **TARGET)


def test_means_by_public_group(mean):
    assert list(mean) == ["east", "north", "south"]
    assert mean["east"] == sdp.TooFewUsers(1)
    assert mean.status("east") == "too few users"
    assert mean.too_few == {"east": 1}
    assert [estimate.users for estimate in mean.released.values()] == [600, 300]
    assert (mean.users, mean.by, mean.statistic, mean.private) == (901, "region", "mean", False)
    for name, truth in (("north", 10), ("south", 50)):
        low, high = mean[name].interval(1 - 1e-9)
        assert low <= truth <= high


def test_the_guarantee_is_the_worst_of_the_groups(mean):
    guarantee = mean.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    assert guarantee.neighbours == mean["north"].guarantee.neighbours == "replace-one-within-group"
    assert isinstance(guarantee.curve, WorstCurve)
    assert guarantee.delta_at(1.0) <= 1e-6
    assert "is public" in mean.guarantee_sentence()
    assert mean.caveats[-1].startswith("1 group has too few users")


def test_groups_are_calibrated_for_the_grid(mean):
    for name, users in (("north", 600), ("south", 300)):
        assert mean[name].guarantee.users == grid_users(users) <= users
        assert grid_users(users) > users / 1.06


def test_the_grid():
    grid = sorted({round(1.05**exponent) for exponent in range(400)})
    for users in (*range(1, 300), 1_000, 9_999, 10**6, 10**9 + 7):
        expected = max(number for number in grid if number <= users) if users <= grid[-1] else grid[-1]
        assert grid_users(users) == expected if users <= grid[-1] else grid_users(users) <= users


def test_every_question_by_group():
    groups = {"group_by": FRAME["region"], "protocol": "discrete-laplace", **EXACT}
    counts = sdp.count(FRAME["mode"], equals="bus", **groups)
    assert {name: round(estimate.value) for name, estimate in counts.released.items()} == {"north": 400, "south": 300}
    histogram = sdp.histogram(FRAME["mode"], categories=["bus", "car"], **groups)
    assert {name: np.round(each.counts).tolist() for name, each in histogram.released.items()} == {
        "north": [400, 200],
        "south": [300, 0],
    }
    sums = sdp.sum(FRAME["minutes"], **BOUNDS, **groups)
    assert sums["south"].value == pytest.approx(15_000, rel=0.01)
    quantiles = sdp.quantiles(FRAME["minutes"], bins=6, **BOUNDS, **groups)
    assert 50 <= quantiles["south"].median.value <= 60
    for estimate in (counts, histogram, sums, quantiles):
        assert list(estimate) == ["east", "north", "south"]
        assert estimate.status("east") == "too few users"


def test_a_group_of_one_user_is_never_released():
    everyone = sdp.count([True] * 5, group_by=list("abcde"), **EXACT)
    assert (everyone.released, everyone.guarantee) == ({}, None)
    assert set(everyone.to_json()["groups"][0]) == {"group", "status", "users", "users_interval", "estimate"}
    assert everyone.to_json()["groups"][0]["estimate"] is None
    assert everyone.to_frame().columns.tolist() == ["group", "group_users", "status"]
    assert "Only the numbers of users are shown" in everyone.guarantee_sentence()
    assert "nothing released" in repr(everyone)


def prepared_sizes(*sizes):
    groups = {str(size): Prepared(Count(size), np.array([size, 0])) for size in sizes}
    return PreparedGroups("size", groups)


def test_groups_too_small_for_the_target_and_the_smallest_that_is_not():
    """The protocol of the paper needs at least 1,451 users for this target."""
    protocols = choose_protocols(
        prepared_sizes(2, 900, 1_500, 1_600), protocol="balcer-cheu", calibration="paper", **TARGET
    )
    assert {users: protocol is not None for users, protocol in protocols.items()} == {
        grid_users(2): False,
        grid_users(900): False,
        grid_users(1_500): grid_users(1_500) >= 1_451,
        grid_users(1_600): True,
    }


def test_a_target_that_no_number_of_users_meets_is_an_error():
    """The theorem of the paper needs an epsilon of at most 1, however many users there are."""
    choice = {"protocol": "balcer-cheu", "calibration": "paper", "delta": 1e-6}
    with pytest.raises(sdp.ShuffledpError, match="epsilon") as caught:
        choose_protocols(prepared_sizes(100, 3_000), epsilon=5.0, **choice)
    assert "\n" not in str(caught.value)
    assert choose_protocols(prepared_sizes(100, 200), epsilon=0.5, **choice) == {
        grid_users(100): None,
        grid_users(200): None,
    }


def test_each_size_of_the_grid_is_calibrated_once(monkeypatch):
    calibrated = []
    original = sdp.BalcerCheuCount.for_target.__func__

    def counting(cls, target, **options):
        calibrated.append(target.users)
        return original(cls, target, **options)

    monkeypatch.setattr(sdp.BalcerCheuCount, "for_target", classmethod(counting))
    choose_protocols(prepared_sizes(*range(500, 560)), **FAST, **TARGET)
    assert sorted(set(calibrated)) == sorted({grid_users(size) for size in range(500, 560)})
    assert len(calibrated) == len(set(calibrated))


def test_the_best_protocol_of_a_group_is_calibrated_for_its_size():
    protocols = choose_protocols(prepared_sizes(100, 150, 1_000), **TARGET)
    for users, protocol in protocols.items():
        best = sdp.plan(Count(users), **TARGET).plans[0]
        assert protocol.users == users
        assert protocol.guarantee.delta_at(1.0) <= 1e-6
        assert protocol.expected_error().rmse <= 1.1 * best.expected.rmse


def test_groups_with_user_ids():
    """The chosen row carries its group: each user is in exactly one."""
    ids = np.repeat(np.arange(4_000), 2)
    groups = np.tile(["home", "work"], 4_000)
    values = groups == "home"
    estimate = sdp.count(values, user=ids, group_by=groups, **EXACT)
    assert estimate.users == 4_000
    home, work = estimate["home"], estimate["work"]
    assert (round(home.value), round(work.value)) == (home.users, 0)
    assert scipy.stats.binomtest(home.users, 4_000, 0.5).pvalue > 1e-9
    assert estimate.guarantee.neighbours == "replace-one-user-within-group"
    latest = sdp.count(values, user=ids, group_by=groups, pick="latest", order_by=np.tile([1, 2], 4_000), **EXACT)
    assert list(latest) == ["work"]
    own = sdp.count([True] * 4, user=[1, 1, 2, 2], group_by=[1, 1, 2, 2], **EXACT)
    assert own.too_few == {"1": 1, "2": 1}


def test_private_groups_are_one_histogram():
    listed = ["north", "south", "east", "west"]
    estimate = sdp.histogram(
        FRAME["mode"], categories=["bus", "car"], group_by=FRAME["region"], private_groups=listed, **EXACT
    )
    assert list(estimate) == listed
    assert np.round([part.counts for part in estimate.values()]).tolist() == [[400, 200], [300, 0], [0, 1], [0, 0]]
    assert estimate.guarantee.neighbours == "replace-one"
    assert estimate.private
    assert "protected, too; the list of groups is public" in estimate.caveats[-1]
    size = estimate.size("north")
    assert size.low <= 600 <= size.high
    group = estimate.to_json()["groups"][2]
    assert (group["status"], group["users_interval"][0] <= group["users"]) == ("released", True)
    counts = sdp.count(FRAME["mode"], equals="bus", group_by=FRAME["region"], private_groups=listed, **EXACT)
    assert counts["south"].categories == ("no", "yes")
    assert np.round(counts["south"].counts).tolist() == [0, 300]


def test_the_intervals_of_private_sizes_cover():
    """At 90% confidence, 100 sizes are covered at least 73 times: alpha = 1e-6 if the level holds."""
    covered = 0
    modes, groups = ["bus", "car"] * 200, ["a"] * 300 + ["b"] * 100
    for _ in range(50):
        estimate = sdp.histogram(
            modes, categories=["bus", "car"], group_by=groups, private_groups=["a", "b"], **FAST, **TARGET
        )
        for name, truth in (("a", 300), ("b", 100)):
            size = estimate.size(name, 0.9)
            covered += size.low <= truth <= size.high
    assert covered >= 73


def test_moving_a_user_to_another_private_group_changes_two_cells():
    from shuffledp.domain import Categories
    from shuffledp.sessions.data import grouped_column_of
    from shuffledp.sessions.groups import prepare_private_groups
    from shuffledp.sessions.prepared import prepare_histogram

    counts = []
    for groups in (["a", "b", "b"], ["b", "b", "b"]):
        column = grouped_column_of(["x", "y", "x"], groups, Categories.of(["a", "b"]))
        prepared = prepare_private_groups(column, lambda each: prepare_histogram(each, Categories.of(["x", "y"])))
        counts.append(prepared.product.data)
    assert np.abs(counts[0] - counts[1]).tolist() == [1, 0, 1, 0]
    assert (counts[0].sum(), prepared.product.question.domain_size) == (3, 4)


def test_columns_of_files_and_their_order(tmp_path):
    table = pa.table({"size": [10, 9, 10, 9, 2], "yes": [True, False, True, False, True]})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    file = sdp.read_files(tmp_path / "rows.parquet")
    for by in ("size", file["size"]):
        estimate = sdp.count(file["yes"], group_by=by, **EXACT)
        assert (list(estimate), estimate.by) == (["2", "9", "10"], "size")
        assert round(estimate["10"].value) == 2


def test_tables_and_forms(mean):
    frame = mean.to_frame()
    assert frame["group"].tolist() == ["east", "north", "south"]
    assert frame["status"].tolist() == ["too few users", "released", "released"]
    assert frame["value"].isna().tolist() == [True, False, False]
    assert mean.to_table().num_rows == 3
    assert [group["group"] for group in mean.to_json()["groups"]] == ["east", "north", "south"]
    assert "'east': too few users" in repr(mean)
    assert "2 of 3 groups released" in repr(mean)
    html = mean._repr_html_()
    assert "too few users" in html
    assert "<script" not in html
    copied = pickle.loads(pickle.dumps(mean))
    assert copied["north"].value == mean["north"].value
    assert len(mean) == 3
    with pytest.raises(KeyError):
        mean["west"]


def test_names_of_groups_are_escaped():
    estimate = sdp.count([True] * 40, group_by=["<b>x</b>"] * 20 + ["y"] * 20, **FAST, **TARGET)
    assert "<b>x" not in estimate._repr_html_()


def test_a_seed_is_not_private():
    seeded = sdp.count(
        [True] * 600, group_by=["a", "b"] * 300, source=sdp.InsecureSeededRandomness(1), **FAST, **TARGET
    )
    assert not seeded.secure
    assert seeded.to_json()["guarantee"] is None
    assert "NOT PRIVATE" in seeded.guarantee_sentence()
    assert "NOT PRIVATE" in repr(seeded)


def test_missing_groups():
    values, groups = [True] * 50, ["a"] * 40 + [None] * 10
    with pytest.raises(sdp.DataError, match=r"10 rows have no group in group\. Use `drop_missing=True`"):
        sdp.count(values, group_by=groups, **EXACT)
    estimate = sdp.count(values, group_by=groups, drop_missing=True, **EXACT)
    assert (estimate.users, list(estimate)) == (40, ["a"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group_by": [[1]] * 4}, "of type list"),
        ({"group_by": [1]}, "differ in their numbers of rows"),
        ({"group_by": "region"}, r"frame\['region'\]"),
        ({"group_by": FRAME}, "whole table"),
        ({"group_by": [None] * 4, "drop_missing": True}, "No row has a group"),
        ({"private_groups": ["a"]}, "group_by=COLUMN"),
        (
            {"group_by": list("abca"), "private_groups": ["a"]},
            r"2 of 3 groups in group are not listed \(for example 'b'",
        ),
        ({"group_by": list("abca"), "private_groups": []}, "at least one"),
        ({"group_by": list("abca"), "private_groups": "abc"}, "not the single string"),
        ({"group_by": list("abca"), "private_groups": ["a", "a"]}, "appears twice"),
    ],
)
def test_bad_input_is_one_line(options, words):
    with pytest.raises(sdp.ShuffledpError, match=words) as caught:
        sdp.count([True] * 4, **options, **EXACT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("question", ["sum", "mean", "quantiles"])
def test_numbers_by_private_groups_are_refused(question):
    with pytest.raises(sdp.ParameterError, match=f"Private groups are not offered for {question}"):
        getattr(sdp, question)([1.0], group_by=["a"], private_groups=["a"], lower=0, upper=2, **TARGET)


@pytest.mark.parametrize("option", [{"group_by": ["a"] * 4}, {"private_groups": ["a"]}])
def test_variances_and_sessions_refuse_groups_before_anything_is_drawn(option):
    session = sdp.Session(users=4, releases=1, **TARGET)
    with pytest.raises(TypeError, match=f"no option '{next(iter(option))}'"):
        session.count([True] * 4, **option)
    assert session.releases == ()
    with pytest.raises(sdp.ParameterError, match="follows from its quantiles"):
        sdp.variance([1.0] * 4, lower=0, upper=2, **option, **TARGET)


def test_too_many_groups_are_refused(monkeypatch):
    monkeypatch.setattr("shuffledp.engines.groups.MAX_GROUPS", 3)
    with pytest.raises(sdp.DataError, match="group has 4 groups; there may be at most 3"):
        sdp.count([True] * 4, group_by=list("abcd"), **EXACT)


@pytest.mark.parametrize("question", ["count", "histogram", "quantiles"])
@pytest.mark.parametrize("dark", [False, True])
def test_figures(question, dark):
    groups = {"group_by": FRAME["region"], "protocol": "discrete-laplace", **EXACT}
    estimate = {
        "count": lambda: sdp.count(FRAME["mode"], equals="bus", **groups),
        "histogram": lambda: sdp.histogram(FRAME["mode"], categories=["bus", "car"], **groups),
        "quantiles": lambda: sdp.quantiles(FRAME["minutes"], bins=6, **BOUNDS, **groups),
    }[question]()
    drawing = estimate.figure(".svg", dark=dark).decode()
    for words in ("north", "south", "Too few users: east (1).", f"Private {question} by region"):
        assert words in drawing
    assert ("#16181c" in drawing) is dark
    assert estimate.figure(".png", dark=dark).startswith(b"\x89PNG")


def test_figures_of_many_groups_draw_the_largest():
    groups = [f"g{index}" for index in range(60) for _ in range(2 + index)]
    estimate = sdp.count([True] * len(groups), group_by=groups, **EXACT)
    drawing = estimate.figure(".svg").decode()
    assert "The 40 largest of 60 groups." in drawing
    assert ">g59<" in drawing
    assert ">g5<" not in drawing


@pytest.mark.slow
def test_ten_thousand_groups():
    sizes = (np.random.default_rng(4).pareto(1.0, 10_000) * 30 + 1).astype(int)
    estimate = sdp.count(np.ones(sizes.sum(), dtype=bool), group_by=np.repeat(np.arange(10_000), sizes), **TARGET)
    assert (len(estimate), estimate.users) == (10_000, sizes.sum())
    assert list(estimate.too_few.values()).count(1) == (sizes == 1).sum()
    assert all(abs(each.value - each.users) < 60 for each in estimate.released.values())
    assert len(estimate.to_frame()) == 10_000


@pytest.mark.parametrize("second", ["x", "y"])
def test_public_groups_do_not_depend_on_values(second):
    """Users with a row in either group: the sizes are released, so distinct values must not decide who is in which."""
    users = 600
    ids, groups = [*range(users)] * 2, ["a"] * users + ["b"] * users
    values = ["x"] * users + [second] * users
    estimate = sdp.histogram(
        values, user=ids, pick="value", group_by=groups, categories=["x", "y"], epsilon=3, delta=1e-4
    )
    size = estimate.size("a").value  # binomial: outside with probability 1e-9
    assert 225 < size < 375
    assert size + estimate.size("b").value == users
