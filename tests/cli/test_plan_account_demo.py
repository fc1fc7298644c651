"""``plan``, ``account``, ``demo`` and the help."""

import re
from contextlib import nullcontext
from importlib import import_module

import pytest

from shuffledp.collection.rehearsal import Rehearsal


def test_plan_json(shuffledp):
    done = shuffledp(
        "plan", "histogram", "--users", "1e6", "--domain-size", 100, "--epsilon", 1, "--delta", 1e-6, "--json"
    )
    assert done.status == 0
    best = done.json["plans"][0]
    assert best["calibration"] == "tight"
    assert (best["protocol"], best["model"], best["reference"]) == ("correlated-noise", "shuffled", False)
    tokens = next(each for each in done.json["plans"] if each["protocol"] == "balcer-cheu")
    assert tokens["parameters"]["absence_probability"] * 1e6 == pytest.approx(42.66, abs=0.01)
    assert tokens["expected"]["rmse"] == pytest.approx(6.53, abs=0.01)
    assert tokens["expected"]["max_error"] == 66
    assert done.json["question"] == {"kind": "histogram", "users": 1_000_000, "domain_size": 100}
    count = shuffledp("plan", "count", "--users", 10_000, "--epsilon", 1, "--delta", 1e-6, "--json").json
    errors = {each["protocol"]: each["expected"]["rmse"] for each in reversed(count["plans"])}
    assert errors["balcer-cheu"] == pytest.approx(5.83, abs=0.01)
    assert errors["correlated-noise"] < 1.2 * errors["discrete-laplace"] < 2


def test_plan_for_people(shuffledp):
    done = shuffledp("plan", "count", "--users", 1000, "--epsilon", 1, "--delta", 1e-6)
    flat = " ".join(done.out.split())
    for words in (
        "balcer-cheu",
        "tight",
        "Rejected: balcer-cheu (paper)",
        "1,451 users",
        "collude, there is no guarantee",
    ):
        assert words in flat


@pytest.mark.slow
def test_plan_limits(shuffledp):
    """The limits of a count are among the fast tests, in another file."""
    done = shuffledp(
        "plan",
        "histogram",
        "--users",
        10_000,
        "--domain-size",
        100,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--max-messages",
        0.5,
    )
    assert done.status == 1
    assert "more than 0.5" in done.error


@pytest.mark.parametrize(("name", "question"), [("count/balcer-cheu", None), ("balcer-cheu", "histogram")])
def test_account_json(shuffledp, name, question):
    extra = ("--question", question) if question else ()
    done = shuffledp(
        "account", name, *extra, "--users", 10_000, "--epsilon", 1, "--delta", 1e-6, "--releases", 4, "--json"
    )
    assert done.status == 0
    result = done.json
    assert result["exact_epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert 1 < result["composed"]["epsilon"] < 4
    assert result["composed"]["releases"] == result["releases"] == 4
    deltas = [point["delta"] for point in result["curve"]]
    assert deltas == sorted(deltas, reverse=True)


def test_account_of_given_noise(shuffledp):
    done = shuffledp("account", "count/balcer-cheu", "--users", 10_000, "--absence", 0.0034, "--delta", 1e-6, "--json")
    assert done.json["exact_epsilon"] == pytest.approx(1.0021, abs=1e-3)
    paper = shuffledp(
        "account",
        "count/balcer-cheu",
        "--users",
        10_000,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--calibration",
        "paper",
        "--json",
    )
    assert paper.json["exact_epsilon"] == pytest.approx(0.150, abs=1e-3)


def test_account_draws_its_curve(shuffledp, tmp_path):
    done = shuffledp(
        "account",
        "histogram/balcer-cheu",
        "--users",
        10_000,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--releases",
        3,
        "--plot",
        tmp_path / "curve.svg",
    )
    assert done.status == 0
    drawing = (tmp_path / "curve.svg").read_text()
    assert "3 releases" in drawing
    assert "where delta stops decreasing" in drawing, "a curve may be flat at the limit of the protocol"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("balcer-cheu", "--users", 100, "--epsilon", 1, "--delta", 1e-6),
            "use count/balcer-cheu or histogram/balcer-cheu",
        ),
        (("count/balcer-cheu", "--users", 100, "--delta", 1e-6), "either --epsilon"),
        (("count/balcer-cheu", "--users", 100, "--delta", 1e-6, "--epsilon", 1, "--absence", 0.1), "either --epsilon"),
        (("count/balcer-cheu", "--users", 1000, "--delta", 1e-6, "--epsilon", 1, "--releases", 0), "at least 1"),
        (("count/nothing", "--users", 100, "--delta", 1e-6, "--epsilon", 1), "no protocol 'nothing'"),
        (("count/balcer-cheu", "--users", 100, "--delta", 1e-6, "--absence", 1.5), "not a probability"),
        (("count/balcer-cheu", "--users", 100, "--delta", 1e-6, "--absence", "nan"), "not a probability"),
        (("count/balcer-cheu", "--users", 1000, "--delta", 1e-6, "--epsilon", 1, "--releases", "1e9"), "between 1 and"),
        (
            ("count/balcer-cheu", "--users", 1000, "--delta", 1e-6, "--absence", 0.1, "--calibration", "paper"),
            "with --absence it is given",
        ),
        (
            ("count/balcer-cheu", "--users", 1000, "--delta", 1e-41, "--epsilon", 2, "--releases", 2),
            "certified for delta >=",
        ),
        (("count/balcer-cheu", "--users", 100, "--delta", 1e-6, "--absence", 0), "strictly between 0 and 1"),
    ],
)
def test_account_refuses(shuffledp, arguments, words):
    done = shuffledp("account", *arguments)
    assert done.status == 2
    assert words in done.error


def test_demo(shuffledp, tmp_path, monkeypatch):
    """Both servers, a thousand devices over HTTP, one release; the estimate is near the truth."""
    picture, page = tmp_path / "picture.png", tmp_path / "page.html"
    released, release = [], Rehearsal.release
    monkeypatch.setattr(Rehearsal, "release", lambda self: released.append(release(self)) or released[-1])
    done = shuffledp("demo", "--devices", 1000, "--plot", picture, "--page", page)
    assert done.status == 0, done.err
    assert not re.search(r"│ +-\d+ │ +0 to", done.out)  # of the estimates; an error may be negative
    told = " ".join(done.out.split())
    for words in ("1,000 reports of 2 sealed messages", "0 messages were rejected", "private estimate", "truth"):
        assert words in told
    assert picture.stat().st_size > 10_000
    assert "worked from home" in page.read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"picture.png", "page.html"}
    # the same release once more, as a program reads it
    monkeypatch.setattr(Rehearsal, "release", lambda _: released[0])
    monkeypatch.setattr(Rehearsal, "published", lambda *_: page.read_bytes())
    monkeypatch.setattr(Rehearsal, "servers", lambda _: nullcontext())
    monkeypatch.setattr(import_module("shuffledp.cli.demo"), "_report", lambda *_: None)
    result = shuffledp("demo", "--devices", 1000, "--plot", picture, "--page", page, "--json").json
    assert sum(result["truth"]) == result["users"] == 1000
    assert {"counts", "intervals", "standard_errors", "withheld_below", "guarantee", "seconds"} <= set(result)


def test_every_command_takes_json(commands):
    """What a command prints for people, a program can read."""

    def without(command, name):
        if hasattr(command, "commands"):
            return [found for part, each in command.commands.items() for found in without(each, f"{name} {part}")]
        return [] if any("--json" in option.opts for option in command.params) else [name]

    assert without(commands, "shuffledp") == []


@pytest.mark.parametrize("devices", [10, 1_000_000])
def test_demo_refuses(shuffledp, devices):
    assert "1,000 to 25,000 devices" in shuffledp("demo", "--devices", devices).error


def test_version_and_help(shuffledp):
    assert shuffledp("--version").out.startswith("shuffledp 0.")
    for command in (
        (),
        ("plan",),
        ("plan", "count"),
        ("plan", "histogram"),
        ("run", "count"),
        ("run", "histogram"),
        ("account",),
    ):
        done = shuffledp(*command, "--help")
        assert done.status == 0
        assert "Usage" in done.out
    for command in (("plan", "count"), ("run", "histogram"), ("account",), ("demo",)):
        assert "Example:" in shuffledp(*command, "--help").out


@pytest.mark.parametrize(
    ("arguments", "page"),
    [([], None), (["--page"], ""), (["--page", "a.html"], "a.html"), (["--page", "--devices", "2000"], "")],
)
def test_the_demo_takes_a_page_with_or_without_a_file(arguments, page):
    import typer
    from typer.main import get_command

    from shuffledp.cli import demo

    application = typer.Typer()
    application.command(cls=demo.demo.command_class)(demo.demo)
    assert get_command(application).make_context("demo", arguments).params["page"] == page
