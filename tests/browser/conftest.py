"""A real Chromium for tests, and the tools that build what runs in it. Nothing is skipped under CI=true.

``browser`` is a running Chromium of Playwright, ``page`` an empty page in a context of its own, ``site`` serves files
over HTTP on loopback. Where no Chromium can be had, the tests that need one are skipped with one line.

Playwright leaves an event loop running in its thread, so that no other can start: ``make test`` runs these tests in
processes of their own.
"""

import functools
import importlib.util
import os
import sys
import threading
import time
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _load_tools():
    spec = importlib.util.spec_from_file_location("web_tools", ROOT / "tools" / "web.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


tools = _load_tools()


def _skip(what, error):
    line = f"{what} were skipped: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(line)
    pytest.skip(line)


def _children():
    """The processes that this one has started, by the name of their program."""
    found = {}
    for tasks in Path("/proc/self/task").glob("*/children"):
        for process in tasks.read_text().split():
            with suppress(OSError):
                found[process] = Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    return found


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left():
    """Servers end with the tests of a file; only the driver of the browser goes on."""
    before = _children()
    yield
    deadline = time.monotonic() + 60
    while left := {name for process, name in _children().items() if process not in before and "playwright" not in name}:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.fixture(scope="session")
def web():
    """``tools/web.py``, with the packages of npm installed."""
    try:
        tools.install()
    except tools.MissingToolError as error:
        _skip("tests of the web client", error)
    return tools


@pytest.fixture(scope="session")
def bundle(web, tmp_path_factory):
    """Bundles one TypeScript file of clients/web for browsers: its JavaScript."""

    @functools.cache
    def bundled(entry):
        directory = tmp_path_factory.mktemp("bundle")
        web.run_node("build.mjs", "--entry", entry, "--out", directory)
        return (directory / "bundle.js").read_text(encoding="utf-8")

    return bundled


@pytest.fixture(scope="session")
def chromium():
    """The Chromium that tests start: its executable and environment."""
    try:
        return tools.chromium()
    except tools.MissingToolError as error:
        _skip("browser tests", error)


@pytest.fixture(scope="session")
def browser(chromium):
    """A running Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = _launched(playwright, chromium)
        yield started
        started.close()


def _launched(playwright, chromium):
    """With the sandbox of Chromium, unless this is root or user namespaces are closed: there it does not start."""
    from playwright.sync_api import Error

    options = {
        "executable_path": chromium.executable,
        "args": list(tools.CHROMIUM_ARGUMENTS),
        "env": {**os.environ, **chromium.environment},
    }
    if os.geteuid() != 0:
        try:
            return playwright.chromium.launch(**options, chromium_sandbox=True)
        except Error:
            pass
    return playwright.chromium.launch(**options, chromium_sandbox=False)


@pytest.fixture
def context(browser):
    """A browser context of its own: no storage is shared with other tests."""
    context = browser.new_context()
    context.set_default_timeout(120_000)  # a busy machine is no failure
    yield context
    context.close()


@pytest.fixture
def page(context):
    """An empty page."""
    return context.new_page()


class _Files(ThreadingHTTPServer):
    """Serves the files of a directory that can be changed."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Quiet)
        self.directory = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def serve(self, directory):
        directory.mkdir()
        (directory / "index.html").write_text("<!doctype html><meta charset=utf-8><title>test</title>")
        self.directory = directory
        return directory, f"http://127.0.0.1:{self.server_port}/"


class _Quiet(SimpleHTTPRequestHandler):
    def __init__(self, request, address, server):
        super().__init__(request, address, server, directory=server.directory)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def file_servers():
    """Two servers of files, at two origins."""
    servers = _Files(), _Files()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(file_servers, tmp_path):
    """A directory and the address at which it is served: a secure context, as loopback is."""
    return file_servers[0].serve(tmp_path / "site")


@pytest.fixture
def other_site(file_servers, tmp_path):
    """The same at another origin."""
    return file_servers[1].serve(tmp_path / "other")
