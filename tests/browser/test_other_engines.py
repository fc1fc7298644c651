"""The test vectors in Firefox (by WebDriver BiDi) and in WebKit (by WebDriver), where these are installed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from test_client import FILES

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


def test_vectors_in_firefox(web, vectors_site, tmp_path):
    firefox = shutil.which("firefox") or shutil.which("firefox-esr")
    if not firefox:
        pytest.skip("tests in Firefox were skipped: apt install firefox-esr")
    profile = tmp_path / "profile"
    profile.mkdir()
    command = ("test/firefox.mjs", firefox, profile, vectors_site, SCRIPT)
    done = web.run_node(*command, check=False, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


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

    def run(self, script):
        return self.call("/execute/async", {"script": script, "args": []})


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


def test_vectors_in_webkit(webkit, vectors_site):
    webkit.call("/timeouts", {"script": 280_000})
    webkit.call("/url", {"url": vectors_site})
    check(
        json.loads(
            webkit.run(f"const done = arguments[arguments.length - 1]; {SCRIPT}.then(done, (e) => done(String(e)));")
        )
    )


def test_many_drawn_reports(web):
    """60,000 reports of every distribution of the vectors; alpha is 1e-6 over all of them."""
    done = web.run_node(
        "--test", "--test-name-pattern=reports are drawn", "test/drawn.test.ts",
        check=False, capture_output=True, env=web.environment(SHUFFLEDP_DRAWS="60000"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
