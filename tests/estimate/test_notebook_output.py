"""Estimates in a notebook: HTML, short reprs, data frames and inline figures."""

import base64
import html
import json
import re
import struct
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import OutputError
from shuffledp.estimate.quantiles import EstimatedNumber
from shuffledp.figures import InlineFigure

CATEGORIES = ["bus", "<script>alert(1)</script>", "\x1b[31m\ud800", "long " * 100]
DATA = ["bus"] * 1_500 + [CATEGORIES[1]] * 500
SEEDED = sdp.InsecureSeededRandomness(1)


def histogram(categories=CATEGORIES, data=DATA, *, name="balcer-cheu", **options):
    kind = sdp.find("histogram", name)
    return kind.calibrate(users=2_000, categories=categories, epsilon=1.0, delta=1e-6).run(data, **options)


def count(**options):
    return sdp.BalcerCheuCount.calibrate(users=2_000, epsilon=1.0, delta=1e-6).run([1, 0] * 1_000, **options)


def mean(**options):
    return sdp.plan(sdp.Mean(users=2_000, upper=10), epsilon=1.0, delta=1e-6).best.run([2.5] * 2_000, **options)


def quantiles(**options):
    question = sdp.Quantiles(users=2_000, upper=10, bins=16)
    return sdp.plan(question, epsilon=1.0, delta=1e-6).best.run([2.5] * 1_000 + [7.5] * 1_000, **options)


KINDS = {"count": count, "histogram": histogram, "mean": mean, "quantiles": quantiles}


def rows(estimate):
    """The cells of the table in a notebook; fails unless the HTML is well-formed."""
    document = ElementTree.fromstring(estimate._repr_html_())
    return [["".join(cell.itertext()) for cell in row.iter("td")] for row in document.iter("tr")][1:]


def shown_text(estimate):
    return "".join(ElementTree.fromstring(estimate._repr_html_()).itertext())


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_numbers_and_guarantee(kind):
    estimate = KINDS[kind]()
    numbers = estimate.shown()
    assert len(rows(estimate)) == len(numbers)
    for row, number in zip(rows(estimate), numbers, strict=True):
        assert number.text in row
        assert number.interval in row
    content = shown_text(estimate)
    assert estimate.guarantee.statement() in content
    assert "of 2,000 users" in content
    assert f"Protocol {estimate.protocol}, estimator {estimate.estimator}." in content
    assert "NOT PRIVATE" not in content
    estimate._repr_html_().encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_says_that_seeded_noise_is_not_private(kind):
    estimate = KINDS[kind](source=SEEDED)
    content = estimate._repr_html_()
    assert f'<p class="warning">{html.escape(estimate.guarantee_sentence())}</p>' in content
    assert shown_text(estimate).count("NOT PRIVATE") == 2  # in the title, too
    assert "Changing one person" not in content
    assert "NOT PRIVATE" in repr(estimate)


@pytest.mark.parametrize("kind", KINDS)
def test_warnings_and_caveats_are_shown(kind):
    estimate = KINDS[kind]()
    weak = replace(estimate, guarantee=replace(estimate.guarantee, epsilon=20.0), caveats=("Some <b>were</b> late.",))
    content = weak._repr_html_()
    (warning,) = weak.guarantee.warnings
    assert f'<p class="warning">{html.escape(warning)}</p>' in content
    assert '<p class="note">Some &lt;b&gt;were&lt;/b&gt; late.</p>' in content


def test_hostile_categories_are_shown_as_they_are():
    estimate = histogram()
    names = [row[0] for row in rows(estimate)]
    assert names == ["bus", "<script>alert(1)</script>", "␛[31m�", f"{('long ' * 100)[:59]}…"]
    assert "<script" not in estimate._repr_html_()
    assert repr(estimate).isprintable()
    assert len(repr(estimate)) < 300


def test_withheld_counts_are_shown_as_such():
    estimate = histogram()
    below = estimate.withheld_below()
    assert rows(estimate)[2][1] == f"< {below}"
    assert estimate.withheld_sentence() in shown_text(estimate)


def test_the_largest_of_many_categories_are_shown():
    names = [f"name {index}" for index in range(100)]
    data = [name for index, name in enumerate(names) for _ in range(index)][-2_000:]
    estimate = histogram(names, data, name="discrete-laplace")
    shown = rows(estimate)
    order = np.argsort(-estimate.counts, kind="stable")[:20]
    assert [row[0] for row in shown] == [names[index] for index in order]
    numbers = estimate.shown()
    assert [row[1:] for row in shown] == [[numbers[i].text, numbers[i].interval, numbers[i].share] for i in order]
    assert "The 20 largest of 100 categories; to_frame() has all." in shown_text(estimate)
    assert len(estimate.to_frame()) == 100
    assert "92 more" in repr(estimate)
    exactly = histogram(names[:20], names[:20] * 100, name="discrete-laplace")
    assert [row[0] for row in rows(exactly)] == names[:20]


def test_shares_have_the_intervals_of_the_counts():
    estimate = histogram(["a", "b", "c"], ["a"] * 1_500 + ["b"] * 500)
    assert np.array_equal(estimate.frequencies, estimate.counts / 2_000)
    for options in ({}, {"simultaneous": True}):
        ends = estimate.frequency_interval(0.9, **options)
        assert np.array_equal(ends, estimate.interval(0.9, **options) / 2_000)
        assert np.all((ends[:, 0] <= ends[:, 1]) & (ends[:, 0] >= 0) & (ends[:, 1] <= 1))
    assert estimate.to_frame()["frequency"].tolist() == estimate.frequencies.tolist()
    yes = count()
    assert yes.fraction_interval(0.9) == tuple(end / 2_000 for end in yes.interval(0.9))


def test_one_number_is_shown_with_its_interval():
    number = EstimatedNumber(25.0031, 24.375, 26.25, 0.95)
    assert repr(number) == "EstimatedNumber(25.00; 24.37 to 26.25 with 95% confidence)"
    assert rows(number) == [["25.00", "24.37 to 26.25"]]
    assert "95% interval" in number._repr_html_()
    expected = {"value": 25.0031, "lower": 24.375, "upper": 26.25, "confidence": 0.95}
    assert number.to_frame().to_dict("records") == [expected]


@pytest.mark.parametrize("number", [EstimatedNumber(0.0, 0.0, 0.0, 0.5), EstimatedNumber(1.0, -np.inf, np.inf, 0.5)])
def test_degenerate_numbers_are_shown(number):
    assert repr(number).startswith("EstimatedNumber(")
    assert rows(number)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_without_a_path_is_displayed(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    estimate = KINDS[kind]()
    figure = estimate.plot(confidence=0.9, title="Mine")
    assert isinstance(figure, InlineFigure)
    assert figure._repr_svg_() == estimate.figure(".svg", confidence=0.9, title="Mine").decode()
    assert "Mine" in figure._repr_svg_()
    picture, shown = figure._repr_png_()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG")
    assert (shown["width"], shown["height"]) == pytest.approx((width / 2, height / 2), abs=1)
    json.dumps({"image/svg+xml": figure._repr_svg_(), "image/png": base64.b64encode(picture).decode()})
    assert list(tmp_path.iterdir()) == []
    assert estimate.plot("figure.svg", confidence=0.9, title="Mine") is None
    assert (tmp_path / "figure.svg").read_text() == figure.svg
    with pytest.raises(OutputError, match="a figure ends in"):
        estimate.plot("figure.pdf")


def test_a_figure_outside_a_notebook_says_how_to_write_it():
    assert re.search(r'pass a path: plot\("figure.svg"\)', repr(count().plot()))
    assert len(repr(count().plot())) < 120
