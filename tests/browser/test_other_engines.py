"""The test vectors in Firefox and in WebKit, where these are installed: both are driven by WebDriver, in plain HTTP."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from test_client import FILES

pytestmark = pytest.mark.slow

ENGINES = {
    "firefox": (
        ("geckodriver", "--port", "{port}"),
        {"moz:firefoxOptions": {"args": ["-headless"]}},
        "apt install firefox-esr and geckodriver",
    ),
    "webkit": (
        ("WebKitWebDriver", "--port={port}"),
        {"webkitgtk:browserOptions": {"args": ["--automation"]}},
        "apt install webkit2gtk-driver xvfb",
    ),
}


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


@pytest.fixture(params=list(ENGINES))
def driver(request):
    command, capabilities, advice = ENGINES[request.param]
    if not shutil.which(command[0]):
        pytest.skip(f"tests in {request.param} were skipped: {advice}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    display = ["xvfb-run", "-a"] if request.param == "webkit" and shutil.which("xvfb-run") else []
    process = subprocess.Popen(
        [*display, *(part.format(port=port) for part in command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        session = _connected(port, capabilities)
        yield session
        session.call("", method="DELETE")
    finally:
        process.terminate()
        process.wait()


def _connected(port, capabilities):
    for _ in range(120):
        try:
            return WebDriver(port, capabilities)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    raise AssertionError("the driver does not answer")


def test_vectors(driver, site, bundle):
    directory, address = site
    (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")
    (directory / "vectors.json").write_text(json.dumps(FILES))
    driver.call("/timeouts", {"script": 280_000})
    driver.call("/url", {"url": address})
    outcome = driver.run(
        "const done = arguments[arguments.length - 1];"
        "import('/test.js').then(() => fetch('/vectors.json')).then((answer) => answer.json())"
        ".then((files) => checkVectors(files)).then(done, (error) => done({ error: String(error) }));"
    )
    assert outcome.get("error") is None, outcome
    assert outcome["failures"] == []
    assert outcome["passed"] > 1400


def test_many_drawn_reports(web):
    """60,000 reports of every distribution of the vectors; alpha is 1e-6 over all of them."""
    done = web.run_node(
        "--test", "--test-name-pattern=reports are drawn", "test/drawn.test.ts",
        check=False, capture_output=True, env=web.environment(SHUFFLEDP_DRAWS="60000"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
