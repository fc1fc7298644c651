"""The operator's pages in Chromium: they follow a real round by themselves, with true numbers; every state of them."""

import json
import re
import urllib.request

import pytest
from operator_states import CASES, OperatorPages
from page_checks import Watcher, faults

import shuffledp as sdp
from shuffledp.collection.device import Connection, Devices
from shuffledp.collection.rehearsal import Rehearsal, free_ports
from shuffledp.domain import Categories

HOSTILE = '<img src=x onerror="document.title=1"> & commuting'
USERS = 60


@pytest.fixture(scope="module")
def round_of_sixty(tmp_path_factory):
    """A round of sixty users whose servers run, and the ports of their pages."""
    rehearsal = Rehearsal.prepare(
        tmp_path_factory.mktemp("rehearsal"),
        kind=sdp.find("histogram", "k-rr"),
        settings={"users": USERS, "categories": Categories.of(["bus", "<b>bike</b>"])},
        epsilon=1.0,
        delta=1e-6,
        name=HOSTILE,
    )
    ports = dict(zip(("shuffler", "analyzer"), free_ports(2), strict=True))
    file = rehearsal.directory / "servers.toml"
    text = file.read_text()
    for role, port in ports.items():
        text = text.replace(f"[{role}]\n", f"[{role}]\noperator_port = {port}\n")
    file.write_text(text)
    with rehearsal.servers():
        yield rehearsal, ports


def send(rehearsal, count):
    devices = Devices(rehearsal.task.task, ["bus"] * count, connect=lambda: Connection(rehearsal.shuffler_url))
    assert devices.report().delivered == count


def fetched(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


def refused_report(rehearsal):
    """Send a report that is none: it is counted among the answers and the refusals."""
    url = f"{rehearsal.shuffler_url}/v1/tasks/{rehearsal.task.task.id.hex()}/reports"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(url, b"x", {"Content-Type": "application/octet-stream"}))


def wrong_answers(page, metrics):
    """The answers that the page states, or should state, otherwise than the metrics of the server count them."""
    rows = page.locator("[aria-label='Requests by status or problem'] tbody tr").all_inner_texts()
    shown = {name: int(count.replace(",", "")) for name, count in (row.split("\t") for row in rows)}
    counted = {}
    for kind, label in (("reports", "status"), ("refusals", "problem")):
        pattern = rf'^shuffledp_shuffler_{kind}_total\{{{label}="([^"]+)"\}} (\S+)$'
        counted |= {name: int(float(count)) for name, count in re.findall(pattern, metrics, re.MULTILINE)}
    assert len(counted) >= 2
    return {name for name in shown.keys() | counted.keys() if shown.get(name, 0) != counted.get(name, 0)}


def test_a_round_on_both_pages(browser, round_of_sixty, web):
    rehearsal, ports = round_of_sixty
    watchers, pages = [], {}
    for role, port in ports.items():
        context = browser.new_context(color_scheme="light" if role == "shuffler" else "dark")
        context.set_default_timeout(120_000)
        watchers.append(Watcher(context, (f"http://127.0.0.1:{port}/", "data:"), heard="."))
        page = pages[role] = context.new_page()
        page.goto(f"http://127.0.0.1:{port}/operator")
    shuffler, analyzer = pages["shuffler"], pages["analyzer"]
    assert shuffler.locator(".round h3").inner_text().startswith(HOSTILE)
    assert "No batch has arrived yet." in analyzer.inner_text("main")
    assert "it fits" in analyzer.inner_text("main")

    send(rehearsal, 43)
    refused_report(rehearsal)
    shuffler.wait_for_selector(f"text=40 of {USERS} needed")  # without loading the page again
    exact = json.loads(fetched(ports["shuffler"], "/operator/v1/overview?exact=true"))
    assert exact["rounds"][0]["reports"] == exact["answers"]["201"] == 43
    assert "43 " not in re.sub(r"\d\.\d+|\d\d:\d\d(:\d\d)?|[0-9a-f]{16}", "", shuffler.inner_text("main"))
    shuffler.get_by_role("link", name="exact numbers").click()
    shuffler.wait_for_selector(f"text=43 of {USERS} needed")
    metrics = fetched(rehearsal.shuffler_port, "/metrics")
    assert wrong_answers(shuffler, metrics) == set()
    for page in pages.values():
        assert faults(page, web) == []

    send(rehearsal, USERS - 43)
    rehearsal.release()
    shuffler.wait_for_selector("#finished")
    shuffler.locator("#finished summary").click()
    shuffler.wait_for_selector(f"text={USERS} reports were accepted.")
    analyzer.wait_for_selector("#finished")
    analyzer.locator("#finished summary").click()
    assert "1 of 1 (delta 1e-06), 1 release" in analyzer.inner_text("main")
    published = analyzer.get_by_role("link", name="page").get_attribute("href")
    assert published.endswith(f":{rehearsal.analyzer_port}/v1/releases/{rehearsal.task.task.id.hex()}/page")
    assert shuffler.locator("#finished[open]").count() == 1, "what was opened stays open"
    for page in pages.values():
        assert page.title() in ("Shuffler · shuffledp", "Analyzer · shuffledp"), "nothing ran"
        assert page.locator("main img, main b").count() == 0
        page.set_viewport_size({"width": 360, "height": 740})
        assert faults(page, web) == []
    for watcher in watchers:
        watcher.check()
    for page in pages.values():
        page.context.close()


def test_wrong_numbers_are_noticed(browser, round_of_sixty):
    """The planted faults: one answer is counted once more than in the metrics, one is left out."""
    rehearsal, ports = round_of_sixty
    refused_report(rehearsal)
    address = f"http://127.0.0.1:{ports['shuffler']}/operator?exact=true"
    metrics = fetched(rehearsal.shuffler_port, "/metrics")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert wrong_answers(page, metrics) == set()
    body = page.content()
    row = re.search(r'<tr><th scope="row">422</th><td>(\d+)</td></tr>', body)
    wrong = {row[0].replace(f">{row[1]}<", f">{int(row[1]) + 1}<"): {"422"}, "": {"422"}}
    for replacement, expected in wrong.items():
        page.route("**/operator*", lambda route, _, new=replacement: route.fulfill(body=body.replace(row[0], new)))
        page.goto(address)
        assert wrong_answers(page, metrics) == expected
        page.unroute_all()
    context.close()


def follows(page):
    """Whether a page without scripts shows something newer by itself."""
    before = page.locator("#now").inner_text()
    refresh = page.locator("meta[http-equiv=refresh]")
    seconds = int(refresh.get_attribute("content")) if refresh.count() else 0
    if seconds:
        with page.expect_navigation(timeout=120_000):
            pass
    return page.locator("h1").inner_text() == "Analyzer" and page.locator("#now").inner_text() != before


def test_without_javascript(browser):
    """The page loads itself again. The planted fault is a page that does not ask for that."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()

    def sooner(route):
        body = route.fetch().text()
        assert 'content="10"' in body
        route.fulfill(body=body.replace('content="10"', 'content="1"'), content_type="text/html")

    with OperatorPages("analyzer").running() as pages:
        pages.shown = CASES["analyzer-busy"]
        page.route("**/operator", lambda route: sooner(route))
        page.goto(pages.url)
        pages.shown = CASES["analyzer-busy"] | {"now": "2027-01-01T00:00:00+00:00"}
        assert follows(page)
        page.unroute_all()
        faulty = re.compile("<noscript>.*?</noscript>", re.DOTALL)
        page.route(
            "**/operator",
            lambda route: route.fulfill(body=faulty.sub("", route.fetch().text()), content_type="text/html"),
        )
        page.goto(pages.url)
        assert not follows(page)
    context.close()


def test_a_page_that_does_not_follow_would_be_noticed(browser):
    """The planted fault: the script is missing, and the page stays as it was."""
    context = browser.new_context()
    page = context.new_page()
    page.clock.install()
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.resource_type == "xhr" else None)
    with OperatorPages("shuffler").running() as pages:
        pages.shown = CASES["shuffler-busy"]
        page.goto(pages.url)
        with page.expect_request(lambda request: request.resource_type == "xhr"):
            page.clock.fast_forward(2500)
        page.route("**/operator.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
        page.goto(pages.url)
        asked.clear()
        page.clock.fast_forward(2500)
        page.evaluate("() => fetch('/operator')")
        assert asked == []
    context.close()


@pytest.mark.parametrize(
    ("scheme", "width"), [("dark", 320), pytest.param("light", 1280, marks=pytest.mark.slow)], ids=["narrow", "wide"]
)
@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_all_states(browser, web, role, scheme, width):
    """Also that of a server that has stopped, and with a planted fault."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 740})
    context.set_default_timeout(120_000)
    watcher = Watcher(context, ("http://127.0.0.1:", "data:"))
    page, found = context.new_page(), {}
    page.clock.install()
    with OperatorPages(role).running() as pages:
        for name, document in CASES.items():
            if name.startswith(role):
                pages.shown = document
                page.goto(pages.url)
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                found[name] = faults(page, web)
        assert "No round is under way." not in page.inner_text("main"), "it cannot know"
    page.clock.fast_forward(2500)
    page.wait_for_selector("text=no answer since")
    found["stopped"] = faults(page, web)
    assert len(found) == 5
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    page.evaluate("document.querySelector('.alerts li').style.color = 'var(--line)'")
    page.evaluate("document.querySelector('h1').remove()")
    assert {fault.partition(":")[0] for fault in faults(page, web)} == {"color-contrast", "page-has-heading-one"}
    watcher.check()
    context.close()
