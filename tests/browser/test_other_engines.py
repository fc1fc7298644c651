"""Test vectors and pages in Firefox (by WebDriver BiDi) and in WebKit (by WebDriver), where these are installed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from operator_states import CASES, OperatorPages
from survey_rounds import Round
from test_client import FILES

import shuffledp as sdp
from shuffledp.collection.wire.formats import ReportFormat

pytestmark = pytest.mark.slow

SCRIPT = (
    "import('/test.js').then(() => fetch('/vectors.json')).then((answer) => answer.json())"
    ".then((files) => checkVectors(files)).then(JSON.stringify)"
)


@pytest.fixture
def vectors_site(site, bundle):
    """The address of a page from which the test vectors can be checked."""
    directory, address = site
    (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")
    (directory / "vectors.json").write_text(json.dumps(FILES))
    return address


def check(outcome):
    assert outcome["failures"] == []
    assert outcome["passed"] > 1400


class Firefox:
    """Runs scripts in a stock Firefox, each in a new one with a profile of its own."""

    def __init__(self, web, directory):
        self._web, self._directory, self._count = web, directory, 0
        self._program = shutil.which("firefox") or shutil.which("firefox-esr")
        if not self._program:
            pytest.skip("tests in Firefox were skipped: apt install firefox-esr")

    def run(self, address, script):
        """The string to which the promise of a script resolves."""
        self._count += 1
        profile = self._directory / f"profile-{self._count}"
        profile.mkdir()
        command = ("test/firefox.mjs", self._program, profile, address, script)
        done = self._web.run_node(*command, check=False, capture_output=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


class WebDriver:
    """One session: the few commands that the test needs."""

    def __init__(self, port, capabilities):
        self.url = f"http://127.0.0.1:{port}"
        session = self.call("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.url += f"/session/{session['sessionId']}"

    def call(self, path, document=None, method="POST"):
        body = None if method == "DELETE" else json.dumps(document or {}).encode()
        request = urllib.request.Request(
            self.url + path, body, {"Content-Type": "application/json"}, method=method
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())["value"]

    def run(self, address, script):
        """The string to which the promise of a script resolves."""
        self.call("/timeouts", {"script": 280_000})
        self.call("/url", {"url": address})
        whole = f"const done = arguments[arguments.length - 1]; {script}.then(done, (e) => done(String(e)));"
        return self.call("/execute/async", {"script": whole, "args": []})


@pytest.fixture
def webkit():
    if not shutil.which("WebKitWebDriver"):
        pytest.skip("tests in WebKit were skipped: apt install webkit2gtk-driver xvfb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    display = ["xvfb-run", "-a"] if shutil.which("xvfb-run") else []
    process = subprocess.Popen(
        [*display, "WebKitWebDriver", f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # with its display, to be ended together
    )
    try:
        session = _connected(port, {"webkitgtk:browserOptions": {"args": ["--automation"]}})
        yield session
        session.call("", method="DELETE")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _connected(port, capabilities):
    for _ in range(120):
        try:
            return WebDriver(port, capabilities)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise AssertionError("the driver does not answer")


@pytest.fixture(params=["firefox", "webkit"])
def engine(request, web, tmp_path):
    """Another engine than that of Chromium."""
    return Firefox(web, tmp_path) if request.param == "firefox" else request.getfixturevalue("webkit")


def test_vectors(engine, vectors_site):
    check(json.loads(engine.run(vectors_site, SCRIPT)))


WAIT = """
const until = async (condition) => {
  for (let found, end = Date.now() + 240000; Date.now() < end; await new Promise((done) => setTimeout(done, 50)))
    if ((found = condition())) return found;
  return "too late: " + document.body.innerText;
};
const violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""


def script(body):
    return f"(async () => {{ {WAIT} {body} }})()"


ANSWER = script("""
  await until(() => document.body.dataset.state !== "checking");
  const radio = document.querySelectorAll("input[type=radio]")[1];
  if (!radio) return document.body.dataset.state + ": " + document.body.innerText;
  radio.click();
  document.querySelector("form button").click();
  await until(() => ["delivered", "refused", "broken", "closed"].includes(document.body.dataset.state));
  const { state } = document.body.dataset, shown = state === "delivered" ? "h1" : "main";
  return [state, document.querySelector(shown).innerText, ...violations].join("|");
""")


def test_the_survey_page(engine, tmp_path):
    """A report of a real round; the shuffler counts it."""
    (tmp_path / "round").mkdir()
    prepared = Round.prepare(tmp_path / "round")
    try:
        with prepared.rehearsal.servers():
            with prepared.served(prepared.rehearsal.task, tmp_path / "site", language="de") as (origin, _):
                assert engine.run(origin, ANSWER) == "delivered|Danke. Ihre versiegelte Antwort ist angekommen."
            assert prepared.accepted() == 1
            assert {len(report.body) for report in prepared.proxy.reports()} == {
                ReportFormat.of(prepared.rehearsal.task.task).size
            }
    finally:
        prepared.stop()


def test_the_planner(engine):
    """The table has the plans of the library, in their order, and nothing is violated."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shuffledp", "app", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().split()[4]
        rows = script("""
          await until(() => document.querySelector("#results:not([aria-busy]) #year svg"));
          const cells = [...document.querySelectorAll("[aria-label*='best first'] tbody th")];
          return JSON.stringify([cells.map((cell) => cell.innerText), violations]);
        """)
        shown, violations = json.loads(engine.run(f"{address}?question=count&users=500&delta=1e-6", rows))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.stdout.close()
    plans = sdp.plan(sdp.Count(500), epsilon=1.0, delta=1e-6)
    assert shown == [plan.protocol.name for plan in plans if not plan.reference]
    assert violations == []


def test_the_operators_page(engine):
    """It follows its server without being loaded again."""
    follow = script("""
      const before = document.querySelectorAll(".alerts li").length;
      await until(() => document.querySelectorAll(".alerts li").length > before);
      return [before, document.querySelectorAll(".alerts li").length, ...violations].join();
    """)
    with OperatorPages("shuffler").running() as pages:
        pages.shown = CASES["shuffler-busy"]
        changes = threading.Thread(target=_change_when_asked, args=(pages,))
        changes.start()
        assert engine.run(pages.url, follow) == f"0,{len(CASES['shuffler-alerts']['alerts'])}"
        changes.join()


def _change_when_asked(pages):
    """Show alerts a little after the page was opened: from its second request on."""
    while pages.asked < 2:
        time.sleep(0.05)
    pages.shown = CASES["shuffler-alerts"]


def test_many_drawn_reports(web):
    """60,000 reports of every distribution of the vectors; alpha is 1e-6 over all of them."""
    done = web.run_node(
        "--test", "--test-name-pattern=reports are drawn", "test/drawn.test.ts",
        check=False, capture_output=True, env=web.environment(SHUFFLEDP_DRAWS="60000"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
