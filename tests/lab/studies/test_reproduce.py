"""Running studies: what is written, and that it is written whole."""

import html.parser
import json
import re

import pytest

from shuffledp.errors import OutputError, UnknownNameError
from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies import registry, reproduce, reproduce_all
from shuffledp.lab.studies import reproduce as package_reproduce
from shuffledp.lab.studies.checks import at_most
from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure
from shuffledp.randomness import Dyadic, bernoulli

BLANK = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect fill="paper" width="9" height="9"/></svg>'
FILES = {"small.csv", "small.svg", "small-dark.svg", "small.png", "small-dark.png", "small.html", "small.json"}


def small(name="small", *, value=1.0, fail=None, drawn=True):
    """A study of one line; where nobody looks at its figures they are not drawn, which takes longest."""

    def measure(settings):
        for step in settings.steps([1, 2]):
            if fail is not None and step == 2:
                raise fail
        draw = curve_figure(
            "a line",
            panels_shown=[Panel("", [Curve("line", [(1.0, 1.0), (10.0, value)])])],
            title="A line",
            x_title="x",
            y_title="y",
        )
        if not drawn:
            draw = Figure("a line", lambda _, theme: BLANK.replace(b"paper", theme.background.encode()))
        rows = [{"x": 1, "y": settings.source.secure}, {"x": 10, "note": "<b>&"}]
        return Outcome(["It is `flat`."], {"": ResultTable.of(rows)}, [draw], [at_most("flat <i>", "here", value, 1.0)])

    return Study(name, "A <small> study", "Nobody (2020)", ["Something."], ["As it is."], measure)


@pytest.fixture
def two(monkeypatch):
    """A registry of two small studies, the second of which can be replaced."""
    found = {name: small(name, drawn=False) for name in ("first", "second")}
    monkeypatch.setattr(registry, "STUDIES", dict.fromkeys(found, ""))
    module = __import__("shuffledp.lab.studies.reproduce", fromlist=["x"])
    monkeypatch.setattr(module, "STUDIES", dict.fromkeys(found, ""))
    monkeypatch.setattr(module, "find_study", found.__getitem__)
    return found


def test_all_files(tmp_path):
    report = reproduce(small(), tmp_path / "new" / "folder")
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == FILES == set(report.files)
    assert report.holds
    assert (tmp_path / "new/folder/small.csv").read_text() == "x,y,note\n1,True,\n10,,<b>&\n"
    document = json.loads((tmp_path / "new/folder/small.json").read_text())
    assert document == report.to_json()
    assert document["checks"][0]["bound"] == 1.0


def test_the_page_stands_alone(tmp_path):
    reproduce(small(), tmp_path)
    page = (tmp_path / "small.html").read_text()
    assert "A &lt;small&gt; study" in page
    assert "<code>flat</code>" in page
    assert "&lt;b&gt;&amp;" in page
    assert "All 1 checks hold." in page
    assert not re.search(r"<script|<link|https?://(?!www\.w3\.org)", page)
    assert page.count("data:image/svg+xml;base64,") == 2  # light and dark
    parser = html.parser.HTMLParser()
    parser.feed(page)


def test_a_failed_check_is_loud(tmp_path):
    report = reproduce(small(value=2.0), tmp_path)
    assert not report.holds
    page = (tmp_path / "small.html").read_text()
    assert "1 of 1 checks fail" in page
    assert "FAILS" in page
    assert "<details open>" in page


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), MemoryError()])
def test_nothing_half_written(tmp_path, fault):
    with pytest.raises(type(fault)):
        reproduce(small(fail=fault), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_page_stays_when_interrupted(tmp_path):
    reproduce(small(drawn=False), tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        reproduce(small(value=2.0, fail=KeyboardInterrupt()), tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    import shuffledp.output as output

    written = []

    def fails_later(target, content):
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        written.append(target)
        return original(target, content)

    original = output._write_beside
    monkeypatch.setattr(output, "_write_beside", fails_later)
    with pytest.raises(OutputError, match="No space left"):
        reproduce(small(drawn=False), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot create the directory"):
        reproduce(small(), tmp_path / "file")


def test_all_with_an_index(tmp_path, two):
    heard, fractions = [], []
    reports = reproduce_all(tmp_path, on_report=heard.append, progress=fractions.append)
    assert [report.study for report in reports] == ["first", "second"] == [report.study for report in heard]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    index = (tmp_path / "index.html").read_text()
    assert 'href="first.html"' in index
    assert 'href="second.html"' in index


def test_one_failure_does_not_stop_the_others_but_is_told(tmp_path, two):
    two["first"] = small("first", value=5.0, drawn=False)
    reports = reproduce_all(tmp_path)
    assert [report.holds for report in reports] == [False, True]
    assert "FAILS" in (tmp_path / "index.html").read_text()


def test_interrupted_and_resumed(tmp_path, two):
    two["second"] = small("second", fail=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        reproduce_all(tmp_path)
    assert (tmp_path / "first.html").exists()
    assert not (tmp_path / "index.html").exists()
    assert not list(tmp_path.glob("second*"))
    two["first"] = small("first", fail=AssertionError("must not run again"))
    two["second"] = small("second", drawn=False)
    reports = reproduce_all(tmp_path, resume=True)
    assert [report.study for report in reports] == ["first", "second"]
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("change", ["quick", "seed", "file", "json"])
def test_resuming_trusts_only_what_is_the_same(tmp_path, two, change):
    reproduce_all(tmp_path)
    two["first"] = small("first", value=0.5, drawn=False)
    settings = {"quick": {"quick": True}, "seed": {"seed": 1}}.get(change, {})
    if change == "file":
        (tmp_path / "first.png").unlink()
    if change == "json":
        (tmp_path / "first.json").write_text("{broken")
    reports = reproduce_all(tmp_path, resume=True, **settings)
    assert reports[0].checks[0].measured == 0.5


def test_a_seed_repeats_and_says_so(tmp_path):
    def measure(settings):
        return Outcome(
            ["Tossed."], {"": ResultTable({"coin": bernoulli(Dyadic(1, 1), 100, settings.source).tolist()})}, [], []
        )

    coins = Study("coins", "Coins", "Nobody (2020)", ["Something."], ["As it is."], measure)
    reports = [reproduce(coins, tmp_path / folder, seed=seed) for folder, seed in (("a", 7), ("b", 7), ("c", 8))]
    first, again, other = ((tmp_path / folder / "coins.csv").read_bytes() for folder in "abc")
    assert first == again != other
    assert reports[1].seed == 7
    assert "seed 7" in (tmp_path / "b/coins.html").read_text()


@pytest.mark.slow
def test_a_seed_repeats_a_whole_study(tmp_path):
    reproduce("theorem11", tmp_path / "a", quick=True, seed=7)
    report = reproduce("theorem11", tmp_path / "b", quick=True, seed=7)
    assert (tmp_path / "a/theorem11.csv").read_bytes() == (tmp_path / "b/theorem11.csv").read_bytes()
    assert report.seed == 7
    assert "seed 7" in (tmp_path / "b/theorem11.html").read_text()


def test_names():
    with pytest.raises(UnknownNameError, match="table1"):
        find_study("table3")
    for name in STUDIES:
        study = find_study(name)
        assert study.name == name
        assert study.claimed
        assert study.reading
    assert callable(package_reproduce)


def test_steps_and_parts():
    seen = []
    settings = Settings(progress=seen.append).part(0.5, 1.0)
    assert list(settings.steps(["a", "b"], weights=[3, 1])) == ["a", "b"]
    assert seen == [0.5, 0.875, 1.0]
