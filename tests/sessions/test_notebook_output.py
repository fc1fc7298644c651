"""Sessions and their reports in a notebook."""

from xml.etree import ElementTree

import pytest

import shuffledp as sdp
from shuffledp.sessions.report import NOT_PRIVATE

VALUES = [True] * 400 + [False] * 600


def session(**options):
    started = sdp.Session(users=1_000, epsilon=1.0, delta=1e-6)
    started.count(VALUES, share=0.25, label="<script>alert(1)</script>", protocol="balcer-cheu", **options)
    started.count(VALUES, epsilon=0.5, protocol="cheu")
    return started


def paragraphs(shown, style):
    return [each.text for each in ElementTree.fromstring(shown._repr_html_()).iter("p") if each.get("class") == style]


def cells(shown):
    document = ElementTree.fromstring(shown._repr_html_())
    return [["".join(cell.itertext()) for cell in row.iter("td")] for row in document.iter("tr")]


def test_a_notebook_shows_releases_and_what_is_left():
    shown = session()
    _, first, second = cells(shown)
    assert first[0] == "<script>alert(1)</script>"
    assert second[1:3] == ["cheu", "0.5"]
    assert (first[4], second[4], first[6], second[6]) == ("0.25", "", "", "")
    title = ElementTree.fromstring(shown._repr_html_()).find("h4").text
    assert title == f"Session about 1,000 users: epsilon = {shown.spent.epsilon:.4g} of 1 spent, delta = 1e-06"
    assert f"Left: epsilon = {shown.left.epsilon:.4g}, " in paragraphs(shown, "note")[0]
    assert shown.spent.statement() in paragraphs(shown, "note")
    assert paragraphs(shown, "warning") == []
    assert len(shown.to_frame()) == 2


def test_a_notebook_says_that_a_seeded_release_is_not_private():
    shown = session(source=sdp.InsecureSeededRandomness(1))
    assert [row[-1] for row in cells(shown)[1:]] == ["seeded", ""]
    for each in (shown, shown.report()):
        assert paragraphs(each, "warning") == [NOT_PRIVATE]
        assert shown.spent.statement() not in each._repr_html_()


def test_a_session_without_releases_is_shown():
    shown = sdp.Session(users=1_000, epsilon=1.0, delta=1e-6)
    for each in (shown, shown.report()):
        assert "Nothing was released." in paragraphs(each, "note")
        assert shown.spent.statement() not in each._repr_html_()


@pytest.mark.parametrize("part", ["releases", "paragraphs"])
def test_a_notebook_shows_the_whole_report(part):
    report = session().report()
    document = ElementTree.fromstring(report._repr_html_())
    shown = [each.text for each in document.iter("td" if part == "releases" else "p")]
    assert shown == list(getattr(report, part))
    assert "<script" not in report._repr_html_()
