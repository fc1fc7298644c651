"""The page of a session in Chromium: accessible and readable in both schemes, on a wide window and on a telephone."""

import pytest
from page_checks import faults

import shuffledp as sdp

USERS = 2_000
WHITE_SPACE = "getComputedStyle(document.querySelector('tbody td:last-child')).whiteSpace"
DRAWN_WIDTHS = "[...document.querySelectorAll('figure svg')].map((drawing) => drawing.getBoundingClientRect().width)"

FAULTS = """document.querySelectorAll(".wide").forEach((table) => {
  table.setAttribute("role", "region");
  table.setAttribute("aria-label", "Estimates");
});
document.body.style.overflowWrap = "normal";"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a session with two answers and names that are hard to show."""
    session, path = sdp.Session(users=USERS, epsilon=2.0, delta=1e-7), tmp_path_factory.mktemp("page") / "answers.html"
    names = ["bus", "Donaudampfschifffahrt" * 9, "<b>bike</b>"]
    for share in (0.3, 0.4):
        options = {"categories": names, "share": share, "label": f"How people get to work {share}" + "N" * 90}
        session.histogram(["bus"] * USERS, protocol="correlated-noise", **options)
    session.page(path, title="T" * 200)
    return path.as_uri()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_page_is_accessible_and_readable(browser, web, address, scheme, width):
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(address)
    assert faults(page, web) == []
    assert page.evaluate(WHITE_SPACE) == "nowrap"
    widths = page.evaluate(DRAWN_WIDTHS)
    assert len(widths) == 2
    assert min(widths) >= 480, "letters of a chart can be read"
    page.evaluate(FAULTS)
    assert {fault.partition(":")[0] for fault in faults(page, web)} == {"landmark-unique", "wider than the window"}
    context.close()
