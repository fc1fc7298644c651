"""``shuffledp run-all``: several questions under one budget, all or none, from a strict TOML file."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.cli.options import as_keys
from shuffledp.sessions import session as session_module

ROWS = 2_000
QUESTIONS = """
[session]
title = "A <small> survey"
epsilon = 2.0
delta = 1e-6

[[question]]
kind = "histogram"
column = "mode"
categories = ["bus", "bike & co"]
other = "other"
share = 0.4
label = "Travel <mode>"
protocol = "uniform-blanket"

[[question]]
kind = "count"
column = "car"
protocol = "balcer-cheu"

[[question]]
kind = "mean"
column = "minutes"
lower = 0
upper = 60
protocol = "split-and-mix"

[[question]]
kind = "variance"
column = "minutes"
lower = 0
upper = 60
bins = 4
protocol = "uniform-blanket"
"""


@pytest.fixture
def survey(tmp_path):
    path = tmp_path / "survey.csv"
    rows = [f"{('bus', 'bike & co', 'ferry')[row % 3]},{('yes', 'no')[row % 2]},{row % 60}" for row in range(ROWS)]
    path.write_text("\n".join(["mode,car,minutes", *rows]) + "\n")
    return path


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.toml"
    path.write_text(QUESTIONS)
    return path


class Page(HTMLParser):
    """The tags of a page that could load something, and its text."""

    def __init__(self, content):
        super().__init__()
        self.loading, self.texts, self.charts = [], [], 0
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.charts += tag == "svg"
        if tag in ("script", "link", "img", "iframe") or any(
            name in ("src", "href", "onload") for name, _ in attributes
        ):
            self.loading.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_results_in_one_json_and_one_page(survey, questions, tmp_path, shuffledp):
    out, page = tmp_path / "results.json", tmp_path / "results.html"
    result = shuffledp("run-all", questions, survey, "--out", out, "--page", page, "--json")
    assert result.status == 0, result.err
    document = json.loads(out.read_text())
    assert document == result.json
    assert (document["users"], document["epsilon"], document["delta"]) == (ROWS, 2.0, 1e-6)
    assert 0.99 * 2 <= document["spent"]["epsilon"] <= 2
    assert [each["kind"] for each in document["results"]] == ["histogram", "count", "mean", "variance"]
    assert [each["share"] for each in document["results"]] == pytest.approx([0.4, 0.2, 0.2, 0.2])
    histogram = document["results"][0]
    assert histogram["label"] == "Travel <mode>"
    assert histogram["result"]["categories"] == ["bus", "bike & co", "other"]
    assert abs(histogram["result"]["counts"][0] - 667) < 300
    assert document["results"][2]["result"]["statistic"] == "mean"
    assert document["results"][3]["result"]["variance"]["value"] > 0
    assert "fixed without looking at earlier results" in document["report"]
    shown = Page(page.read_text(encoding="utf-8"))
    assert shown.loading == []
    assert shown.charts == 4
    text = " ".join(shown.texts)
    assert "A <small> survey" in text
    assert "Travel <mode>" in text
    assert "bike & co" in text
    assert "of 2, delta 1e-06" in text
    assert "Histogram of mode. Protocol: uniform-blanket." in text
    assert "Count of car" in text
    assert text.count("All releases of this session") == 1


def test_results_on_the_screen(survey, questions, shuffledp):
    result = shuffledp("run-all", questions, survey)
    assert result.status == 0, result.err
    for part in (
        "Travel <mode>",
        "count of car",
        "mean of minutes",
        "variance of minutes",
        "Guarantee of all releases",
    ):
        assert part in result.out


def test_plan_only_releases_nothing(survey, questions, tmp_path, shuffledp, monkeypatch):
    monkeypatch.setattr(session_module, "run_prepared", lambda *_, **__: pytest.fail("noise was drawn"))
    session = tmp_path / "session.json"
    shown = shuffledp("run-all", questions, survey, "--plan-only", "--session", session)
    assert shown.status == 0, shown.err
    assert "Nothing was released" in " ".join(shown.out.split())
    assert not session.exists()
    document = shuffledp("run-all", questions, survey, "--plan-only", "--json").json
    assert document["plan_only"]
    assert document["report"] is None
    assert all(each["result"] is None for each in document["results"])
    assert all(each["expected"]["rmse"] > 0 for each in document["results"])
    assert 0.99 * 2 <= document["spent"]["epsilon"] <= 2


def test_users_who_have_all_values(survey, questions, shuffledp):
    rows = survey.read_text().splitlines()
    rows[1:4] = [",yes,3", "bus,NA,4", "bus,no,"]
    survey.write_text("\n".join(rows) + "\n")
    questions.write_text(QUESTIONS.replace('other = "other"\n', "").replace("bike & co", 'bike & co", "ferry'))
    assert "missing" in shuffledp("run-all", questions, survey).error
    questions.write_text(questions.read_text().replace("delta =", 'complete = true\nmissing = ["NA"]\ndelta ='))
    document = shuffledp("run-all", questions, survey, "--json").json
    assert document["users"] == ROWS - 3
    assert document["complete"]
    assert "who have a value in each of mode, car, minutes" in document["report"].replace("\n", " ")


def test_a_session_file_records_and_continues(survey, questions, tmp_path, shuffledp):
    session = tmp_path / "session.json"
    questions.write_text(QUESTIONS[: QUESTIONS.index('[[question]]\nkind = "count"')])
    first = shuffledp("run-all", questions, survey, "--session", session, "--json")
    assert first.status == 0, first.err
    questions.write_text(questions.read_text().replace('label = "Travel <mode>"', 'label = "Again"'))
    second = shuffledp("run-all", questions, survey, "--session", session, "--json")
    assert second.status == 0, second.err
    assert second.json["spent"]["releases"] == 2
    assert first.json["spent"]["epsilon"] < second.json["spent"]["epsilon"] <= 1.6
    questions.write_text(questions.read_text().replace('label = "Again"', 'label = "More"'))
    assert "exceeds what is left: 0.2" in shuffledp("run-all", questions, survey, "--session", session).error
    assert len(sdp.Session.load(session).releases) == 2
    questions.write_text(questions.read_text().replace("epsilon = 2.0", "epsilon = 3.0"))
    error = shuffledp("run-all", questions, survey, "--session", session).error
    assert "records a session with epsilon = 2 and delta = 1e-06" in error
    questions.write_text(questions.read_text().replace("epsilon = 3.0", 'epsilon = 2.0\ntrust = "local"'))
    error = shuffledp("run-all", questions, survey, "--session", session).error
    assert 'records a session with trust = "shuffled"; the questions are for trust = "local"' in error


def test_a_seed_is_marked(survey, questions, tmp_path, shuffledp):
    page = tmp_path / "page.html"
    document = shuffledp("run-all", questions, survey, "--insecure-seed", "1", "--json", "--page", page).json
    assert not document["secure"]
    assert document["spent"] is None
    assert all(each["guarantee"] is None and each["result"]["guarantee"] is None for each in document["results"])
    assert "NOT PRIVATE" in document["report"]
    assert "NOT PRIVATE" in page.read_text(encoding="utf-8")
    again = shuffledp("run-all", questions, survey, "--insecure-seed", "1", "--json").json
    assert again["results"][0]["result"]["counts"] == document["results"][0]["result"]["counts"]


def replaced(old, new):
    return lambda text: text.replace(old, new, 1)


BAD = {
    "no TOML": (lambda _: "[session", "is not valid TOML"),
    "an integer of thousands of digits": (replaced("epsilon = 2.0", f"epsilon = 1{'0' * 5_000}"), "is not valid TOML"),
    "an integer that is no float": (replaced("epsilon = 2.0", f"epsilon = 1{'0' * 400}"), "an integer has 1,329 bits"),
    "empty": (lambda _: "", "The table [session] with epsilon and delta is missing"),
    "no questions": (lambda text: text[: text.index("[[question]]")], "There is no question"),
    "unknown table": (lambda text: f"{text}\n[more]\n", "the file has no key 'more'; it has session, question"),
    "unknown key of the session": (
        replaced("title =", "titel ="),
        "[session] has no key 'titel'; it has epsilon, delta",
    ),
    "unknown key": (replaced("categories =", "category ="), "a histogram question has no key 'category'; it has kind"),
    "key of another kind": (
        replaced('column = "car"', 'column = "car"\nlower = 0'),
        "a count question has no key 'lower'",
    ),
    "no epsilon": (replaced("epsilon = 2.0\n", ""), "[session] needs the key epsilon"),
    "no kind": (replaced('kind = "count"\n', ""), "question 2: [[question]] needs the key kind"),
    "no column": (replaced('column = "car"\n', ""), "question 2: [[question]] needs the key column"),
    "no bounds": (replaced("lower = 0\n", ""), "question 3: a mean question needs the key lower"),
    "unknown kind": (replaced('"count"', '"mode"'), "There is no kind 'mode'; choose one of count, histogram"),
    "epsilon of 0": (replaced("epsilon = 2.0", "epsilon = 0"), "epsilon must be a positive number"),
    "NaN": (replaced("epsilon = 2.0", "epsilon = nan"), "epsilon must be a number, not nan"),
    "delta of 1": (replaced("delta = 1e-6", "delta = 1.0"), "delta must lie strictly between 0 and 1"),
    "share above 1": (replaced("share = 0.4", "share = 1.4"), "A share must be above 0 and at most 1, not 1.4"),
    "share of 0": (replaced("share = 0.4", "share = 0"), "A share must be above 0 and at most 1, not 0"),
    "all shared": (replaced("share = 0.4", "share = 1.0"), "nothing is left for the questions without a share"),
    "shares above 1": (
        lambda text: text.replace('column = "car"', 'column = "car"\nshare = 0.7'),
        "The shares add up to 1.1, more than 1",
    ),
    "share and epsilon": (replaced("share = 0.4", "share = 0.4\nepsilon = 1.0"), "either a share or an epsilon"),
    "epsilon too large": (replaced("share = 0.4", "epsilon = 2.5"), "exceeds the session's epsilon = 2"),
    "budget exceeded": (
        lambda text: text.replace("share = 0.4", "epsilon = 1.9").replace(
            'column = "car"', 'column = "car"\nepsilon = 1.9'
        ),
        "would be spent at delta = 1e-06",
    ),
    "a label twice": (
        lambda text: text.replace('column = "car"', 'column = "car"\nlabel = "Travel <mode>"'),
        "Two questions have the label 'Travel <mode>'",
    ),
    "unknown column": (replaced('"car"', '"boat"'), "has no column 'boat'; it has mode, car, minutes"),
    "lower above upper": (replaced("upper = 60", "upper = -1"), "bound"),
    "NaN bounds": (replaced("lower = 0", "lower = nan"), "lower must be a bound"),
    "values outside": (replaced("upper = 60", "upper = 30"), "outside"),
    "unknown protocol": (replaced('"balcer-cheu"', '"none"'), "none"),
    "number for a string": (replaced('column = "car"', "column = 3"), "column must be a string, not 3"),
    "string for a boolean": (replaced("delta =", 'complete = "yes"\ndelta ='), "complete must be a boolean, not 'yes'"),
    "label with a line break": (replaced("Travel <mode>", "a\\nb"), "label must be a string of 1 to 200 printable"),
    "unknown trust": (replaced("delta =", 'trust = "blind"\ndelta ='), "There is no trust 'blind'"),
    "deep nesting": (lambda text: f"{text}\nx = {'[' * 5000}", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_questions_are_one_line_and_nothing_is_released(name, survey, questions, tmp_path, shuffledp, monkeypatch):
    """Nothing is drawn, written or recorded."""
    monkeypatch.setattr(session_module, "run_prepared", lambda *_, **__: pytest.fail("noise was drawn"))
    change, reason = BAD[name]
    questions.write_text(change(QUESTIONS))
    before = sorted(tmp_path.iterdir())
    result = shuffledp(
        "run-all",
        questions,
        survey,
        "--out",
        tmp_path / "results.json",
        "--page",
        tmp_path / "results.html",
        "--session",
        tmp_path / "session.json",
    )
    assert result.status in (1, 2)
    assert reason in result.error
    assert sorted(tmp_path.iterdir()) == before


def test_paths_are_checked_before_anything_is_read(survey, questions, tmp_path, shuffledp):
    for arguments, reason in (
        (("--out", tmp_path / "results.csv"), "its name must end in .json"),
        (("--page", tmp_path / "results.txt"), "its name must end in .html"),
        (("--page", tmp_path / "none" / "results.html"), "there is no directory"),
        (("--out", tmp_path / "a.json", "--session", tmp_path / "a.json"), "is named twice"),
        (("--confidence", "2"), "confidence must lie between 0 and 1"),
    ):
        assert reason in shuffledp("run-all", questions, survey, *arguments).error
    assert "Cannot read the file of questions" in shuffledp("run-all", tmp_path / "none.toml", survey).error
    assert "there is no such file" in shuffledp("run-all", questions, tmp_path / "none.csv").error


def test_the_documented_file_is_the_example():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "command-line.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block == (root / "examples" / "questions.toml").read_text()


@pytest.mark.parametrize("complete", [True, False])
def test_users_with_several_rows(complete, survey, tmp_path, shuffledp):
    """One row of each user counts per question; with ``complete``, one of the rows that have all values."""
    rows = survey.read_text().splitlines()
    rows = [rows[0] + ",id", *(f"{row},{number // 2}" for number, row in enumerate(rows[1:]))]
    rows += [f"bus,yes,{'' if complete else 9},{number}" for number in (3, ROWS)]
    survey.write_text("\n".join(rows) + "\n")
    questions = tmp_path / "questions.toml"
    settings = f'delta = 1e-6\nuser = "id"\ncomplete = {str(complete).lower()}\n'
    questions.write_text(QUESTIONS.replace("delta = 1e-6\n", settings, 1))
    document = shuffledp("run-all", questions, survey, "--json").json
    users = ROWS // 2 + (not complete)
    assert (document["users"], document["spent"]["neighbours"]) == (users, "replace-one-user")
    assert {answer["result"]["users"] for answer in document["results"]} == {users}
    assert "one row of each user was chosen" in document["results"][0]["result"]["caveats"][0]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('pick = "row"', "pick needs the column of user ids too"),
        ('user = "id"\npick = "first"', "There is no pick 'first'"),
        ('user = "id"\npick = "latest"', "needs a column of numbers, dates or times"),
        ("user = 3", "user must be a string"),
        ('user = "nobody"', "no column 'nobody'"),
        ('user = "mode"\ncomplete = true', "mode is the column of user ids"),
    ],
)
def test_bad_users_are_one_line(keys, reason, survey, tmp_path, shuffledp):
    questions = tmp_path / "questions.toml"
    questions.write_text(QUESTIONS.replace("delta = 1e-6\n", f"delta = 1e-6\n{keys}\n", 1))
    result = shuffledp("run-all", questions, survey)
    assert result.status in (1, 2)
    assert reason in result.error


def test_errors_about_data_name_the_question_and_its_keys(survey, tmp_path, shuffledp):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[session]\nepsilon = 1.0\ndelta = 1e-6\n"
        '[[question]]\nkind = "mean"\ncolumn = "minutes"\nlower = 0\nupper = 1\n'
    )
    error = shuffledp("run-all", plan, survey).error
    assert "plan.toml: question 1, column minutes: 1," in error
    assert "clip = true clips numbers" in error
    assert "--" not in error


def test_parameters_are_written_as_keys():
    advice = "Use `other=NAME` to count them, or `drop_missing=True` to leave them out; `clip=True` clips."
    keys = "Use other = NAME to count them, or complete = true in [session] to leave them out; clip = true clips."
    assert as_keys(advice) == keys
    assert as_keys("use `missing=('NA', 'n/a')`") == 'use missing = ["NA", "n/a"]'
