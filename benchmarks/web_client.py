"""Benchmark of reports in a browser against bare seals of as many messages, and of the verification of tasks."""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from benchmarks.finding import Finding, at_most, report, seconds

__all__ = ["measure"]

_ROOT = Path(__file__).parents[1]
_BOUND = 1.3
_CATEGORIES = 15  # reports of 16 messages
_USERS = 100_000


def measure(quick: bool) -> Iterator[Finding]:
    """Reports of 16 messages and loops of 16 seals take turns in one page, so that other load slows both."""
    from playwright.sync_api import sync_playwright

    tools = _tools()
    tools.install()
    chromium = tools.chromium()
    rounds = 40 if quick else 200
    with sync_playwright() as playwright, TemporaryDirectory() as directory:
        tools.run_node("build.mjs", "--entry", "test/in_browser.ts", "--out", directory)
        browser = playwright.chromium.launch(
            executable_path=chromium.executable,
            args=list(tools.CHROMIUM_ARGUMENTS),
            env={**os.environ, **chromium.environment},
            chromium_sandbox=False,
        )
        page = browser.new_page()
        page.route("**/*", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
        page.goto("http://localhost/")  # a secure context; nothing is requested
        page.add_script_tag(content=(Path(directory) / "bundle.js").read_text(encoding="utf-8"), type="module")
        page.wait_for_function("() => 'timings' in globalThis")
        task, author = _task("balcer-cheu", _CATEGORIES, 1_000)
        times = page.evaluate("(given) => timings(...given)", [task, author, "c0", rounds])
        assert times["messages"] == _CATEGORIES + 1
        for name, seals in (("loop", "a loop of 16 bare seals"), ("together", "16 bare seals all at once")):
            ratio = statistics.median(a / b for a, b in zip(times["report"], times[name], strict=True))
            each = [statistics.median(times[key]) / 1e3 for key in ("report", name)]
            yield at_most(
                f"a report of 16 messages against {seals}, in Chromium {browser.version}",
                ratio,
                _BOUND,
                "times",
                f"{seconds(each[0])} against {seconds(each[1])}",
            )
        for protocol in ("uniform-blanket", "balcer-cheu", "correlated-noise", "solh"):
            task, author = _task(protocol, 5, _USERS)
            script = """async ([content, author]) => {
                const start = performance.now();
                await clientOf(content, author, { outbox: {} });
                return performance.now() - start;
            }"""
            least = min(page.evaluate(script, [task, author]) for _ in range(5)) / 1e3
            yield report(f"verification of a {protocol} task for {_USERS:,} users", seconds(least), "least of 5")
        browser.close()


def _tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("web_tools", _ROOT / "tools" / "web.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _task(protocol: str, categories: int, users: int) -> tuple[str, str]:
    """A signed histogram task, and its author's public key in hexadecimal."""
    import shuffledp as sdp
    from shuffledp.collection import SealingKey, SigningKey, Task

    author, now = SigningKey.create(), datetime.now(UTC).replace(microsecond=0)
    task = Task.create(
        kind=sdp.find("histogram", protocol),
        settings={"users": users, "domain_size": categories, "categories": [f"c{i}" for i in range(categories)]},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=2 * users,
        name="A question",
        description="",
        population="city",
        opens=now,
        closes=now + timedelta(days=1),
        analyzer=SealingKey.create().public,
        shuffler=SigningKey.create().public,
    )
    return task.signed(author).to_bytes().decode(), author.public.raw.hex()
