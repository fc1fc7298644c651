"""The operator's pages in Chromium during a real round: they follow it by themselves, and their numbers are true."""

import json
import re
import urllib.request

import pytest

import shuffledp as sdp
from shuffledp.collection.device import Connection, Devices
from shuffledp.collection.rehearsal import Rehearsal, free_ports
from shuffledp.domain import Categories

HOSTILE = '<img src=x onerror="document.title=1"> & commuting'
USERS = 60
AXE = "clients/web/node_modules/axe-core/axe.min.js"


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


def violations(page, source):
    page.evaluate(source)
    found = page.evaluate("async () => (await axe.run()).violations")
    return [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]


def test_a_round_on_both_pages(browser, round_of_sixty, web):
    rehearsal, ports = round_of_sixty
    source = (web.ROOT / AXE).read_text(encoding="utf-8")
    problems = []
    pages = {}
    for role, port in ports.items():
        context = browser.new_context(color_scheme="light" if role == "shuffler" else "dark", bypass_csp=False)
        context.set_default_timeout(120_000)
        page = pages[role] = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request, own=port: f":{own}/" in request.url or problems.append(request.url))
        page.goto(f"http://127.0.0.1:{port}/operator")
    shuffler, analyzer = pages["shuffler"], pages["analyzer"]
    assert shuffler.locator(".round h3").inner_text().startswith(HOSTILE)
    assert "No batch has arrived yet." in analyzer.inner_text("main")
    assert "it fits" in analyzer.inner_text("main")

    send(rehearsal, 43)
    shuffler.wait_for_selector(f"text=40 of {USERS} needed")  # without loading the page again
    metrics = fetched(rehearsal.shuffler_port, "/metrics")
    assert float(re.search(r'reports_total\{status="201"\} (\S+)', metrics)[1]) == 43
    exact = json.loads(fetched(ports["shuffler"], "/operator/v1/overview?exact=true"))
    assert exact["rounds"][0]["reports"] == exact["answers"]["201"] == 43
    assert "43 " not in re.sub(r"\d\.\d+|\d\d:\d\d(:\d\d)?|[0-9a-f]{16}", "", shuffler.inner_text("main"))
    shuffler.get_by_role("link", name="exact numbers").click()
    shuffler.wait_for_selector(f"text=43 of {USERS} needed")
    for page in pages.values():
        assert violations(page, source) == []

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
        assert violations(page, source) == []
        assert page.title() in ("Shuffler · shuffledp", "Analyzer · shuffledp"), "nothing ran"
        assert page.locator("main img, main b").count() == 0
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert problems == []
    for page in pages.values():
        page.context.close()


def test_without_javascript(browser, round_of_sixty):
    _, ports = round_of_sixty
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{ports['analyzer']}/operator")
    assert page.locator("h1").inner_text() == "Analyzer"
    assert page.locator("noscript meta[http-equiv=refresh], head meta[http-equiv=refresh]").count() == 1
    context.close()


def test_a_page_that_does_not_follow_would_be_noticed(browser, round_of_sixty):
    """The planted fault: the script is missing, and the page stays as it was."""
    _, ports = round_of_sixty
    context = browser.new_context()
    page = context.new_page()
    page.route("**/operator.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.resource_type == "xhr" else None)
    page.goto(f"http://127.0.0.1:{ports['shuffler']}/operator")
    page.wait_for_timeout(2500)
    assert asked == []
    context.close()
