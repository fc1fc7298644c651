"""The planner's page in Chromium: results as they are computed, cancelling, the form without scripts, accessibility."""

import gzip
import json
import re
import signal
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest
from page_checks import Watcher, faults
from playwright.sync_api import Error

from shuffledp.cli import main

SMALL = "question=count&users=500&delta=1e-6"
DONE = "#results:not([aria-busy]) #year svg"


@pytest.fixture(scope="module")
def address():
    """The address of ``shuffledp app`` in a process of its own."""
    command = [sys.executable, "-m", "shuffledp", "app", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.fixture
def watched(context, address):
    """A page; nothing may be requested from elsewhere, and no error or violation of the policy may be logged."""
    watcher = Watcher(context, (address, "data:"), heard=".")
    yield context.new_page()
    watcher.check()


def test_requests_elsewhere_and_violations_are_noticed(context, address, site):
    """The planted faults: a request to another origin, an inline style, HTML from a string."""
    watcher = Watcher(context, (address, "data:"), heard=".")
    page = context.new_page()
    page.goto(f"{address}?{SMALL}")
    page.wait_for_selector(DONE)
    watcher.check()
    page.evaluate("(url) => fetch(url, { mode: 'no-cors' }).catch(() => {})", site[1])
    page.evaluate("() => document.body.setAttribute('style', 'color: red')")
    page.evaluate("() => { try { document.body.innerHTML = '<b>x</b>'; } catch { } }")
    page.wait_for_timeout(100)
    heard = " ".join(watcher.complaints)
    assert all(directive in heard for directive in ("connect-src", "style-src", "trusted-types"))
    page.goto(site[1])
    assert watcher.outside() == [site[1]]


def printed(capsys, command):
    assert main._run([*command.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assembled(stream):
    """The document of ``shuffledp plan --json``, from the text of a stream."""
    blocks = [block.split("\n") for block in stream.strip().split("\n\n")]
    events = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]
    documents = {data["id"]: data["plan"] for name, data in events if name == "candidate" and "plan" in data}
    (ranked,) = [data for name, data in events if name == "ranked"]
    kept = {key: ranked[key] for key in ("question", "target", "releases", "warnings", "rejected")}
    return kept | {"plans": [documents[entry["id"]] | {"why": entry["why"]} for entry in ranked["plans"]]}


def test_the_stream_and_the_table_are_what_the_command_prints(watched, address, capsys):
    expected = printed(capsys, "plan count --users 500 --epsilon 1 --delta 1e-6")
    watched.goto(f"{address}?{SMALL}")
    watched.wait_for_selector(DONE)
    stream = watched.evaluate("async (query) => (await fetch(`/api/plan?${query}`)).text()", SMALL)
    assert assembled(stream) == expected
    shown = watched.locator("[aria-label*='best first'] tbody tr").all_inner_texts()
    feasible = [plan for plan in expected["plans"] if not plan["reference"]]
    assert [row.split()[0] for row in shown] == [plan["protocol"] for plan in feasible]
    for row, plan in zip(shown, feasible, strict=True):
        assert f"{plan['cost']['messages_per_user']:,.4g}" in row.split()
    assert "All protocols were calibrated" in watched.locator("#status").inner_text()


def long_question_then_short(page, address):
    """Ask something that takes long, then something short; the requests for plans that were cancelled."""
    cancelled = []
    page.on("requestfailed", lambda request: cancelled.append(request.url) if "/api/plan" in request.url else None)
    with page.expect_request(lambda request: "/api/plan" in request.url):
        page.goto(f"{address}?{SMALL}&releases=90")
    page.wait_for_selector("#results[aria-busy=true]", state="attached")
    page.get_by_label("Releases, slider").focus()
    page.keyboard.press("Home")
    return cancelled


def test_moving_a_slider_cancels(watched, address):
    cancelled = long_question_then_short(watched, address)
    watched.wait_for_selector(DONE)
    assert cancelled
    assert all("releases=90" in url for url in cancelled)
    assert watched.get_by_label("Releases", exact=True).input_value() == "1"
    assert parse_qs(urlsplit(watched.url).query) == parse_qs(SMALL)


def test_a_page_that_does_not_cancel_would_be_noticed(context, address):
    """The planted fault: aborting does nothing."""
    context.add_init_script("AbortController.prototype.abort = () => {};")
    page = context.new_page()
    with page.expect_request(lambda request: "/api/plan" in request.url and "releases=1&" in request.url + "&"):
        cancelled = long_question_then_short(page, address)
    assert cancelled == []


def test_the_address_has_the_state(watched, address):
    watched.goto(f"{address}?{SMALL}")
    watched.wait_for_selector(DONE)
    watched.get_by_label("Look at cheu (tight)").check()
    watched.wait_for_selector("h2:has-text('In words: cheu (tight)')")
    watched.wait_for_selector(DONE)
    assert parse_qs(urlsplit(watched.url).query)["choice"] == ["cheu (tight)"]
    estimate = watched.locator("#preview tbody").inner_text
    watched.locator("#preview summary").click()
    drawn = {estimate()}
    for _ in range(9):  # estimates have some ten likely values: all are equal with a probability below 1e-6
        if len(drawn) > 1:
            break
        with watched.expect_response(lambda response: "draw=" in response.url):
            watched.get_by_role("button", name="Draw again").click()
        watched.wait_for_timeout(50)
        drawn.add(estimate())
    assert len(drawn) > 1
    watched.reload()
    watched.wait_for_selector("h2:has-text('In words: cheu (tight)')")
    assert watched.get_by_label("Look at cheu (tight)").is_checked()


def planned_by_form(page, address, seconds=120):
    """What the page shows after a question was asked by its form, without scripts."""
    page.goto(address)
    assert page.locator("input[type=range]").count() == 0
    page.get_by_label("count", exact=True).check()
    page.get_by_label("Users", exact=True).fill("500")
    page.get_by_label("Delta", exact=True).fill("1e-6")
    with page.expect_navigation(timeout=1000 * seconds):
        page.get_by_role("button", name="Plan").click()
    return page.locator("h2, #year svg").all_inner_texts()


def test_without_javascript(browser, address, web):
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()
    shown = planned_by_form(page, address)
    assert shown[0] == "A count of 500 users at epsilon = 1, delta = 1e-06"
    assert page.locator("#year svg").count() == 1
    page.get_by_role("button", name="Draw again").click()
    page.wait_for_selector("#preview svg")
    page.get_by_label("Users", exact=True).fill("<b>many")
    page.get_by_role("button", name="Plan").click()
    assert page.inner_text("#error") == "users must be an integer, not '<b>many'."
    assert page.get_by_label("Delta", exact=True).input_value() == "1e-6", "what was right is kept"
    context.close()


@pytest.mark.parametrize(
    ("fault", "replacement"),
    [('name="show" value="all"', 'type="button"'), ('action="/" method="get"', 'action="/" method="post"')],
)
def test_a_form_that_needs_a_script_would_be_noticed(browser, address, fault, replacement):
    """The planted faults: a button that does nothing without a script, and a form that the server does not answer."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()

    def faulty(route):
        body = route.fetch().text()
        assert fault in body
        route.fulfill(body=body.replace(fault, replacement), content_type="text/html")

    page.route(address, faulty, times=1)
    try:
        shown = planned_by_form(page, address, seconds=0.5)
    except Error:
        shown = []
    assert not any(text.startswith("A count of 500 users") for text in shown)
    context.close()


STATES = ("streaming", "done", "wrong number", "wrong address", "infeasible", "without JavaScript")


@pytest.mark.parametrize(("scheme", "width"), [("dark", 320), pytest.param("light", 1280, marks=pytest.mark.slow)])
def test_all_states(browser, address, web, scheme, width):
    """axe-core finds nothing in any state, and finds a planted fault."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 740})
    context.set_default_timeout(120_000)
    page, found = context.new_page(), {}
    page.goto(f"{address}?question=count&users=40000&releases=90&honest_fraction=0.{width}")
    page.wait_for_selector("#results[aria-busy=true] [aria-label*='best first'] tbody tr")
    assert "Best so far: " in page.inner_text("#results")
    found["streaming"] = faults(page, web)
    page.goto(f"{address}?{SMALL}")
    page.wait_for_selector(DONE)
    for details in page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    found["done"] = faults(page, web)
    page.get_by_label("Users", exact=True).fill("many")
    page.wait_for_selector("#error:not([hidden])")
    found["wrong number"] = faults(page, web)
    page.goto(f"{address}?users=many")
    assert page.inner_text("#error") == "users must be an integer, not 'many'."
    assert not page.get_by_text("press Plan").is_visible(), "there is no such button"
    found["wrong address"] = faults(page, web)
    page.goto(f"{address}?{SMALL}&max_bytes=0.001")
    page.wait_for_selector("#results:not([aria-busy]) .error")
    assert page.get_by_text("No protocol of the shuffled model meets the target.").count() == 1, "said once"
    found["infeasible"] = faults(page, web)
    page.evaluate("document.querySelector('label[for=users]').remove()")
    assert [fault.partition(":")[0] for fault in faults(page, web)] == ["label"]
    # as without JavaScript, which axe-core needs
    page.route("**/planner.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto(f"{address}?{SMALL}&show=all")
    found["without JavaScript"] = faults(page, web)
    assert tuple(found) == STATES
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    context.close()


def test_the_pages_are_small(web):
    for name in ("planner", "operator"):
        files = [web.STATIC / f"{name}.{suffix}" for suffix in ("js", "css")]
        size = sum(len(gzip.compress(path.read_bytes(), 9, mtime=0)) for path in files)
        print(f"{name}: {size:,} bytes by gzip")
        assert size <= 40_000
