"""Sessions: several releases under one budget, refusals before anything is drawn, missing values, seeds, files."""

import copy
import json
import math
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from fractions import Fraction

import numpy as np
import polars
import pytest

import shuffledp as sdp
from shuffledp.errors import BudgetError, DataError, OutputError, ParameterError
from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
from shuffledp.sessions import session as session_module

USERS = 3_000
BITS = [True] * 1_000 + [False] * 2_000
MODES = ["bus"] * 1_500 + ["bike"] * 1_500
MINUTES = [float(each % 120) for each in range(USERS)]
DEADLINE_SECONDS = 300


def new(**options):
    return sdp.Session(**({"users": USERS, "epsilon": 2.0, "delta": 1e-7} | options))


def test_one_session_of_every_question():
    """Five releases share all of the budget; estimates are of the same users, and the report names each of them."""
    session = new(releases=5)
    count = session.count(BITS, protocol="balcer-cheu")
    histogram = session.histogram(MODES, categories=["bus", "bike"], protocol="uniform-blanket")
    total = session.sum(MINUTES, lower=0, upper=120, protocol="split-and-mix")
    mean = session.mean(MINUTES, lower=0, upper=120, protocol="split-and-mix")
    quantiles = session.quantiles(MINUTES, lower=0, upper=120, bins=8, protocol="uniform-blanket", quantiles=[0.5])
    assert 0.99 * 2 <= session.spent.epsilon <= 2
    assert session.left.share == 0
    assert abs(count.value - 1_000) < 300
    assert abs(histogram.counts[0] - 1_500) < 300
    assert abs(total.value / USERS - 59.5) < 20
    assert abs(mean.value - 59.5) < 20
    assert 20 < quantiles.median.value < 100
    for estimate in (count, histogram, total, mean, quantiles):
        assert estimate.users == USERS
        assert "All releases of this session about these users together have at most epsilon = 2" in (
            estimate.guarantee_sentence()
        )
    assert [release.statistic for release in session.releases] == ["count", "histogram", "sum", "mean", "quantiles"]
    assert all(release.finished and release.secure for release in session.releases)
    report = str(session.report())
    for release in session.releases:
        assert f"{release.protocol.question}/{release.protocol.name}" in report
    assert "5 releases about 3,000 users, in the shuffled model" in report
    assert "replace-one" in report
    assert f"shuffledp {sdp.__version__}" in report
    assert "fixed without looking at earlier results" in report
    frame = session.to_frame()
    assert list(frame["statistic"]) == ["count", "histogram", "sum", "mean", "quantiles"]
    assert repr(session).startswith("Session(3,000 users; 5 releases; epsilon = ")
    with pytest.raises(BudgetError, match="All 5 announced releases were made"):
        session.count(BITS)


@pytest.fixture
def nothing_drawn(monkeypatch):
    """Fails the test if any noise is drawn."""

    def draw(*_, **__):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(session_module, "run_prepared", draw)


def bad_questions():
    frame = {"mode": MODES, "minutes": MINUTES}
    good = {"share": 0.5}
    return {
        "no share": (lambda s: s.count(BITS), "Give the release its share of the budget"),
        "share above 1": (lambda s: s.count(BITS, share=1.5), "A share must be above 0 and at most 1, not 1.5"),
        "share of 0": (lambda s: s.count(BITS, share=0), "A share must be above 0 and at most 1, not 0"),
        "share NaN": (lambda s: s.count(BITS, share=math.nan), "A share must be above 0 and at most 1, not nan"),
        "share and epsilon": (lambda s: s.count(BITS, share=0.5, epsilon=1), "either a share or an epsilon"),
        "epsilon above all": (lambda s: s.count(BITS, epsilon=3), "exceeds the session's epsilon = 2"),
        "epsilon NaN": (lambda s: s.count(BITS, epsilon=math.nan), "epsilon must be a positive number"),
        "fewer users": (lambda s: s.count(BITS[1:], **good), "is about 3,000 users, and values has 2,999 values"),
        "more users": (lambda s: s.count([*BITS, True], **good), "is about 3,000 users, and values has 3,001 values"),
        "missing": (lambda s: s.count([None, *BITS[1:]], **good), "missing"),
        "missing number": (lambda s: s.mean([None, *MINUTES[1:]], lower=0, upper=120, **good), "missing"),
        "NaN": (lambda s: s.mean([math.nan, *MINUTES[1:]], lower=0, upper=120, **good), "missing"),
        "advice": (lambda s: s.count([None, *BITS[1:]], **good), r"Use Session.of\(TABLE"),
        "noise that cannot be drawn": (
            lambda s: s.mean(MINUTES, lower=0, upper=120, protocol="split-and-mix", epsilon=1e-5),
            "too wide to be drawn",
        ),
        "drop missing": (lambda s: s.count(BITS, drop_missing=True, **good), "a fixed number of users"),
        "whole table": (lambda s: s.count(frame, **good), "whole table"),
        "one string": (lambda s: s.count("mode", **good), "no table with a column"),
        "no category": (lambda s: s.histogram(MODES, categories=["bus"], **good), "bike"),
        "no categories": (lambda s: s.histogram(MODES, categories=[], **good), "at least one category"),
        "bins that do not cover": (lambda s: s.histogram(MINUTES, bins=[0, 50], **good), "outside"),
        "bounds": (lambda s: s.mean(MINUTES, lower=120, upper=0, **good), "bound"),
        "NaN bounds": (lambda s: s.mean(MINUTES, lower=math.nan, upper=1, **good), "bound"),
        "outside": (lambda s: s.mean(MINUTES, lower=0, upper=10, **good), "outside"),
        "quantile of 0": (lambda s: s.quantiles(MINUTES, lower=0, upper=120, quantiles=[0], **good), "quantile"),
        "quantile of 1": (lambda s: s.quantiles(MINUTES, lower=0, upper=120, quantiles=[1], **good), "quantile"),
        "protocol": (lambda s: s.count(BITS, protocol="none", **good), "none"),
        "central protocol": (lambda s: s.count(BITS, protocol="discrete-laplace", **good), "needs a trusted party"),
        "estimator": (lambda s: s.count(BITS, estimator="none", **good), "none"),
        "calibration": (lambda s: s.count(BITS, protocol="cheu", calibration="loose", **good), "loose"),
        "label": (lambda s: s.count(BITS, label="a\nb", **good), "A label must be a string"),
        "no label": (lambda s: s.count(BITS, label="", **good), "A label must be a string"),
        "route": (lambda s: s.count(BITS, route="scenic", **good), "scenic"),
    }


@pytest.mark.parametrize("name", bad_questions())
def test_bad_input_is_one_line_and_nothing_is_released_or_spent(name, nothing_drawn, tmp_path):
    ask, reason = bad_questions()[name]
    session = new(path=tmp_path / "session.json")
    before = (tmp_path / "session.json").read_bytes()
    with pytest.raises(sdp.ShuffledpError, match=reason) as refused:
        ask(session)
    assert "\n" not in str(refused.value)
    assert session.releases == ()
    assert session.spent.epsilon == 0
    assert (tmp_path / "session.json").read_bytes() == before


def test_an_unknown_option_names_the_known_ones():
    with pytest.raises(TypeError, match="There is no option 'trust'; the options are calibration, delta"):
        new().count(BITS, share=0.5, trust="central")


def test_a_budget_that_would_be_exceeded():
    session = new()
    session.count(BITS, share=0.6, protocol="balcer-cheu")
    spent = session.spent.epsilon
    for spending in ({"share": 0.5}, {"epsilon": 1.9}):
        with pytest.raises(BudgetError):
            session.count(BITS, protocol="balcer-cheu", **spending)
    assert session.spent.epsilon == spent
    assert len(session.releases) == 1


def test_a_release_that_fails_while_noise_is_drawn_counts_as_spent(monkeypatch, tmp_path):
    session = new(path=tmp_path / "session.json")

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(BalcerCheuCount, "randomize_all", fail)
    with pytest.raises(MemoryError):
        session.count(BITS, share=0.5, protocol="balcer-cheu")
    (release,) = session.releases
    assert not release.finished
    assert 0.98 < session.spent.epsilon <= 1
    assert "counts as spent" in str(session.report())
    (saved,) = sdp.Session.load(tmp_path / "session.json").releases
    assert not saved.finished


def test_missing_values_are_a_category_of_their_own():
    session = new()
    estimate = session.histogram([None, *MODES[1:]], categories=["bus", "bike"], other="other", share=1.0)
    assert estimate.categories == ("bus", "bike", "other")
    assert estimate.users == USERS


def test_users_who_answered_all_questions():
    """The session is about the rows that have a value in each column; its questions take names of columns."""
    frame = {
        "mode": [None, *MODES[1:]],
        "minutes": [*MINUTES[:-1], math.nan],
        "car": ["NA", "", *["yes"] * (USERS - 2)],
        "unused": [None] * USERS,
    }
    session = sdp.Session.of(
        frame, columns=["mode", "minutes", "car"], missing="NA", epsilon=2.0, delta=1e-7, releases=3
    )
    assert session.users == USERS - 3
    estimate = session.histogram("mode", categories=["bus", "bike"], protocol="uniform-blanket")
    assert estimate.users == USERS - 3
    assert "have a value in each of mode, minutes, car" in estimate.guarantee_sentence()
    assert "have a value in each of mode, minutes, car" in str(session.report())
    assert session.releases[0].subject == "mode"
    assert session.count("car", equals="yes", protocol="balcer-cheu").users == USERS - 3
    assert session.releases[1].label == "count of car = yes"
    with pytest.raises(ParameterError, match=r"no column 'unused'; it has mode, minutes, car"):
        session.count("unused")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dictionary", "file"])
def test_complete_takes_tables_of_every_kind(kind, tmp_path):
    columns = {"a": ["x", None, " ", "y"], "b": [1.5, 2.0, 3.0, None]}
    if kind == "pandas":
        table = pytest.importorskip("pandas").DataFrame(columns)
    elif kind == "polars":
        table = pytest.importorskip("polars").DataFrame(columns)
    elif kind == "arrow":
        table = pytest.importorskip("pyarrow").table(columns)
    elif kind == "file":
        path = tmp_path / "table.csv"
        path.write_text("a,b\nx,1.5\n,2\n ,3\ny,\n")
        table = sdp.read_files(path)
    else:
        table = columns
    answered = sdp.complete(table, ["a", "b"])
    assert (len(answered), answered.rows_left_out) == (1, 3)
    with pytest.raises(ParameterError, match="has no column 'c'"):
        sdp.complete(table, ["a", "c"])


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [
        ({"a": [1]}, "a", "Give the columns as a list"),
        ({"a": [1]}, [], "Give the columns as a list"),
        ([1, 2], ["a"], "type list is not a table"),
        ({"a": [1, 2], "b": [1]}, ["a", "b"], "differ in their numbers of rows"),
        ({"a": [None], "b": [1]}, ["a", "b"], "No row has a value in each of a, b"),
        ({"a": []}, ["a"], "The table has no rows"),
        (polars.LazyFrame({"a": [1]}), ["a"], "A lazy data frame has no values yet"),
    ],
)
def test_what_complete_refuses(table, columns, reason):
    with pytest.raises((ParameterError, DataError), match=reason):
        sdp.complete(table, columns)


def test_seeded_sessions_are_never_called_private():
    session = new()
    seeded = session.count(BITS, share=0.5, protocol="balcer-cheu", source=sdp.InsecureSeededRandomness(1))
    assert not seeded.secure
    assert not session.secure
    assert "NOT PRIVATE" in repr(session)
    report = str(session.report())
    assert report.count("NOT PRIVATE") == 2
    assert "Guarantee of all releases" not in report
    session.count(BITS, share=0.5, protocol="balcer-cheu")
    assert not session.secure


def test_bins_and_variances():
    session = new(releases=2)
    ages = session.histogram(MINUTES, bins=[0, 18, 65, 120], protocol="uniform-blanket")
    assert ages.categories == ("[0, 18)", "[18, 65)", "[65, 120]")
    variance = session.variance(MINUTES, lower=0, upper=120, bins=16, protocol="uniform-blanket", label="spread")
    assert variance.low <= np.var(MINUTES) <= variance.high
    assert [release.statistic for release in session.releases] == ["histogram", "variance"]


def test_labels_are_unique():
    session = new(adaptive=True)
    for _ in range(2):
        session.count(BITS, share=0.25, protocol="balcer-cheu")
    assert [release.label for release in session.releases] == ["count of values", "count of values (2)"]
    with pytest.raises(ParameterError, match="labelled 'count of values' already"):
        session.count(BITS, share=0.25, label="count of values")


def test_an_adaptive_session_adds_pairs():
    session = new(adaptive=True)
    session.count(BITS, share=0.5, protocol="balcer-cheu")
    session.count(BITS, share=0.5, protocol="balcer-cheu")
    assert session.spent.epsilon == 2.0
    assert "added up" in str(session.report())


def test_local_and_central_sessions():
    for trust, protocol in (("local", "randomized-response"), ("central", "discrete-laplace")):
        session = new(trust=trust)
        session.count(BITS, share=0.5)
        assert session.releases[0].protocol.name == protocol
        assert session.spent.trust == trust
        assert f"in the {trust} model" in str(session.report())


def test_what_is_loaded_continues(tmp_path):
    path = tmp_path / "session.json"
    session = new(path=path, releases=3)
    session.count(BITS, protocol="balcer-cheu", label="cars")
    loaded = sdp.Session.load(path)
    assert loaded.spent.epsilon == pytest.approx(session.spent.epsilon, rel=1e-9)
    assert (loaded.users, loaded.epsilon, loaded.delta) == (USERS, 2.0, 1e-7)
    loaded.count(BITS, protocol="balcer-cheu")
    with pytest.raises(ParameterError, match="labelled 'cars' already"):
        loaded.count(BITS, protocol="balcer-cheu", label="cars")
    assert len(json.loads(path.read_text())["releases"]) == 2
    # the first object learns of the release of the other one before it spends what is left
    session.count(BITS, protocol="balcer-cheu")
    assert len(session.releases) == 3
    assert session.spent.epsilon <= 2
    with pytest.raises(BudgetError, match="All 3 announced"):
        loaded.count(BITS, protocol="balcer-cheu")


def test_saving(tmp_path):
    session = new()
    session.count(BITS, share=0.5, protocol="balcer-cheu")
    path = tmp_path / "session.json"
    session.save(path)
    session.count(BITS, share=0.25, protocol="balcer-cheu")
    assert len(sdp.Session.load(path).releases) == 2
    with pytest.raises(ParameterError, match=r"is recorded in .* already"):
        session.save(tmp_path / "other.json")
    with pytest.raises(OutputError, match="exists already"):
        new(path=path)
    path.unlink()
    with pytest.raises(DataError, match="Cannot read the session"):
        session.count(BITS, share=0.25, protocol="balcer-cheu")
    assert len(session.releases) == 2


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    import shuffledp as sdp
    from shuffledp.sessions import session as module

    session = sdp.Session.load(sys.argv[1])
    if sys.argv[2] == "kill":
        module.run_prepared = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(int(sys.argv[3])):
        session.count([True] * 1_000 + [False] * 2_000, share=0.25, protocol="balcer-cheu")
    """
)


def program(path, *arguments):
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), *arguments], stderr=subprocess.PIPE)


def test_a_kill_before_noise_is_drawn_does_not_lose_the_release(tmp_path):
    path = tmp_path / "session.json"
    new(path=path)
    killed = program(path, "kill", "1")
    killed.communicate(timeout=DEADLINE_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    loaded = sdp.Session.load(path)
    (release,) = loaded.releases
    assert not release.finished
    assert loaded.left.share == 0.75
    assert 0.49 < loaded.spent.epsilon <= 0.5


def test_two_processes_share_one_budget(tmp_path):
    """Every release of both is recorded, and none is made beyond the budget."""
    path = tmp_path / "session.json"
    new(path=path, adaptive=True)
    running = [program(path, "run", "3") for _ in range(2)]
    errors = [process.communicate(timeout=DEADLINE_SECONDS)[1].decode() for process in running]
    refused = [error for error in errors if error]
    assert len(refused) in (1, 2)
    assert all("BudgetError" in error for error in refused)
    loaded = sdp.Session.load(path)
    assert len(loaded.releases) == 4
    assert all(release.finished for release in loaded.releases)
    assert 0.99 * 2 <= loaded.spent.epsilon <= 2


def test_threads_share_one_budget():
    session = new(adaptive=True)
    refused = []

    def ask():
        try:
            session.count(BITS, share=0.25, protocol="balcer-cheu")
        except BudgetError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert len(session.releases) == 4
    assert len(refused) == 1


def test_names_of_columns_are_subjects():
    pandas = pytest.importorskip("pandas")
    session = new()
    session.count(pandas.Series(BITS, name="owns_car"), share=0.5, protocol="balcer-cheu")
    assert session.releases[0].label == "count of owns_car"
    session.count(pandas.Series(np.array(BITS), name="x" * 500), share=0.5, protocol="balcer-cheu")
    assert len(session.releases[1].label) <= 200


def test_a_table_where_a_number_belongs_is_not_printed():
    frame = {"mode": ["bus", "secret"]}
    for options in ({"users": frame}, {"epsilon": frame}, {"delta": frame}):
        with pytest.raises(ParameterError, match="not an object of type dict") as caught:
            new(**options)
        assert "secret" not in str(caught.value)


def test_the_name_of_a_column_needs_a_table():
    with pytest.raises(ParameterError, match=r"no table with a column 'mode'.* Session\.of"):
        new().count("mode", share=0.5)


def test_a_session_is_not_copied():
    """A copy would have the whole budget once more."""
    session = new()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="save and load"):
            duplicate(session)


def test_complete_rows_and_columns_have_a_short_repr():
    table = sdp.complete({"mode": ["bus", None], "minutes": [1.0, 2.0]}, ["mode", "minutes"])
    assert repr(table) == "CompleteTable(mode, minutes; 1 rows, 1 left out)"
    assert "lambda" not in repr(sdp.read_files("survey.csv")["mode"])


def test_a_restored_file_does_not_give_back_what_was_spent(tmp_path):
    path = tmp_path / "session.json"
    session = new(path=path)
    empty = path.read_bytes()
    session.count(BITS, share=0.5, protocol="balcer-cheu")
    path.write_bytes(empty)
    with pytest.raises(DataError, match="restored or replaced"):
        session.count(BITS, share=0.5, protocol="balcer-cheu")
    assert len(session.releases) == 1


def test_a_forked_process_does_not_spend_a_budget_in_memory(monkeypatch):
    session = new()
    monkeypatch.setattr(session_module.os, "getpid", lambda: 0)
    with pytest.raises(BudgetError, match="in the memory of another process"):
        session.count(BITS, share=0.5, protocol="balcer-cheu")
    assert not session.releases


@pytest.mark.parametrize("epsilon", [np.float32(2), Fraction(2), 2])
def test_every_type_of_number_is_saved(epsilon, tmp_path):
    sdp.Session(users=2_000, epsilon=epsilon, delta=1e-6, path=tmp_path / "session.json")
    assert sdp.Session.load(tmp_path / "session.json").epsilon == 2


def test_a_setting_that_could_not_be_read_again_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="adaptive must be True or False, not 'yes'"):
        new(adaptive="yes", path=tmp_path / "session.json")
    assert not (tmp_path / "session.json").exists()


def test_reports_show_noise_as_decimal_numbers():
    session = new()
    session.quantiles(MINUTES, lower=0, upper=120, bins=64, share=1.0, protocol="uniform-blanket")
    (entry,) = session.report().releases
    assert "branching = [4, 4, 4], blankets = [whole 0 and rest 0." in entry
    assert "numerator" not in entry
