"""Take the screenshots of the docs: the planner, and survey page, operator's page and release page of a real round.

python tools/gallery.py        writes docs/images/gallery/*.png; needs the Chromium of tools/web.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from web import CHROMIUM_ARGUMENTS, ROOT, chromium

from shuffledp.collection.device import Connection
from shuffledp.collection.device.simulation import Devices
from shuffledp.collection.rehearsal import Rehearsal, free_ports
from shuffledp.collection.survey.serving import SiteServer
from shuffledp.collection.survey.site import BuiltSite, Survey, write_site
from shuffledp.domain import Categories
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram

GALLERY = ROOT / "docs" / "images" / "gallery"
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 360, "height": 780}
TALL = {"width": 1280, "height": 1500}
MODES = {"Walk": 118, "Bicycle": 236, "Bus or tram": 279, "Car": 366}
USERS = sum(MODES.values()) + 1


def main() -> None:
    """Collect a round whose last report is sent from the survey page, and photograph what people see of it."""
    GALLERY.mkdir(parents=True, exist_ok=True)
    page_port, operator_port, planner_port = free_ports(3)
    started = chromium()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=started.executable,
            args=[*CHROMIUM_ARGUMENTS, "--force-prefers-reduced-motion"],
            env={**os.environ, **started.environment},
            chromium_sandbox=os.geteuid() != 0,
        )
        _take_planner(browser, planner_port)
        rehearsal = _rehearsal(Path(name), page_port, operator_port)
        write_site(
            Survey.verified(
                rehearsal.task.to_bytes(),
                author=rehearsal.author,
                server=rehearsal.shuffler_url,
                asker="City statistics office",
            ),
            Path(name, "site"),
        )
        site = SiteServer(BuiltSite.load(Path(name, "site")), page_port)
        with rehearsal.servers(), site.running() as origin:
            answers = [mode for mode, users in MODES.items() for _ in range(users)]
            Devices(rehearsal.task.task, answers, connect=lambda: Connection(rehearsal.shuffler_url)).report()
            page = _open(browser, origin, WIDE, "light")
            page.get_by_role("radio", name="Bicycle").check()
            _take(page, "survey")
            operator = _open(browser, f"http://127.0.0.1:{operator_port}/operator", WIDE, "light")
            _take(operator, "operator")
            phone = _open(browser, origin, NARROW, "dark")
            phone.get_by_role("radio", name="Bicycle").check()
            phone.get_by_role("button").click()
            phone.wait_for_selector("body[data-state=delivered]")
            _take(phone, "survey-delivered")
            rehearsal.release()
            released = f"{rehearsal.analyzer_url}/v1/releases/{rehearsal.task.task.id.hex()}/page"
            _take(_open(browser, released, WIDE, "light"), "release")
        browser.close()


def _take_planner(browser: Any, port: int) -> None:
    command = [sys.executable, "-m", "shuffledp", "app", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as planner:
        if planner.stdout is not None:
            planner.stdout.readline()  # it listens
        page = _open(browser, f"http://127.0.0.1:{port}/", TALL, "light", wait="load")
        page.get_by_text("Preview: one release").wait_for(timeout=300_000)  # the last part that arrives
        page.wait_for_load_state("networkidle")
        _take(page, "planner")
        page.close()
        planner.terminate()


def _rehearsal(directory: Path, page_port: int, operator_port: int) -> Rehearsal:
    rehearsal = Rehearsal.prepare(
        directory,
        kind=CorrelatedNoiseHistogram,
        settings={"users": USERS, "categories": Categories.of(list(MODES))},
        epsilon=1.0,
        delta=1e-6,
        name="How people get to work",
        description="How did you get to work today?",
        origins=[f"http://127.0.0.1:{page_port}"],
    )
    settings = directory / "servers.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(
        text.replace("[shuffler]\n", f"[shuffler]\noperator_port = {operator_port}\n"), encoding="utf-8"
    )
    return rehearsal


def _open(browser: Any, address: str, viewport: dict[str, int], scheme: str, *, wait: Any = "networkidle") -> Page:
    page: Page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
    page.goto(address)
    page.wait_for_load_state(wait)
    return page


def _take(page: Page, name: str) -> None:
    page.screenshot(path=GALLERY / f"{name}.png")
    print(f"docs/images/gallery/{name}.png")


if __name__ == "__main__":
    main()
