"""``shuffledp demo --page``: a newcomer answers in a browser and sees the release; signals end it without a trace."""

import os
import re
import signal
import subprocess
import sys

import pytest
from page_checks import faults


@pytest.fixture
def demo(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "shuffledp", "demo", "--devices", "1000", "--page"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=environment
    ) as process:
        yield process
        process.kill()


def read_until(process, pattern):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError("".join(lines))


def ended(process, stop, directory):
    process.send_signal(stop)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "Nothing of it was kept" in out
    assert list(directory.iterdir()) == []


def test_answer_and_see_the_release(demo, page, web, tmp_path):
    page.goto(read_until(demo, r"Open (http://127\.0\.0\.1:\d+/)")[1])
    page.get_by_role("radio", name="train").check()
    page.get_by_role("button", name="Seal and send").click()
    page.get_by_role("link", name="See the published result").click()
    page.get_by_role("heading", name="How people get to work").wait_for()
    assert "minimum 1,000" in page.inner_text("body")
    page.set_viewport_size({"width": 360, "height": 740})
    assert faults(page, web) == []
    names = "Math.min(...[...document.querySelectorAll('tbody td:first-child')].map((cell) => cell.offsetWidth))"
    assert page.evaluate(names) > 80, "names are read in lines, not letter by letter"
    page.evaluate("document.querySelector('main').replaceWith(...document.querySelector('main').children)")  # the fault
    assert {fault.partition(":")[0] for fault in faults(page, web)} == {"landmark-one-main", "region"}
    read_until(demo, "The release is published at")
    ended(demo, signal.SIGINT, tmp_path)


@pytest.mark.slow
def test_sigterm_before_an_answer(demo, tmp_path):
    read_until(demo, "Open http")
    ended(demo, signal.SIGTERM, tmp_path)
