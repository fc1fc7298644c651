"""Every command shown in a console block runs, and prints what the page shows.

``plan`` and ``account`` must print exactly that; where noise is drawn, the shape must agree: the same
text once numbers are set to 0 and spaces and table borders are levelled. Which event an audit learns is a matter of
chance too. A command is expected to succeed unless ``$ echo $?`` after it shows another exit status.
A command with each exit status and Python programs have a process of their own; the others run in this one. The figures
of studies are drawn elsewhere. The demo is slow, and another fast test runs it too. Where a command is shown several
times for a question with the same exit status, the fast tests run the first, starting with README and tutorial, and one
without groups, each of which is planned for, if there is one.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "theory").glob("*.md")])
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
LEVELLED = re.compile(r"[\s─-╿]+")
SEVERAL_ERRORS = re.compile(r"(error of each count is 0) to 0")  # strings that share a cell have another one, by chance
LEARNED = re.compile(r"^Data sets: .* the\s+other\s+data\s+set\.", re.MULTILINE | re.DOTALL)
PROGRAMS = {"shuffledp": [sys.executable, "-m", "shuffledp"], "python": [sys.executable]}


@dataclass
class Step:
    """A command, what the page shows of its output, and the exit status it should have."""

    command: str
    shown: str
    status: int = 0


def steps(text):
    found = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command == "echo $?":
                found[-1].status = int(shown)
            else:
                found.append(Step(command, shown.strip()))
    return [step for step in found if step.command.split()[0] in PROGRAMS]


def run(step, directory):
    program, *arguments = shlex.split(step.command)
    return subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=directory,
        env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def _kind(step):
    """The command, its question or protocol, and how it ends; sums and means are planned and shown alike."""
    program, command, question, *_ = shlex.split(step.command)
    return program, command, "mean" if question == "sum" else question, step.status


def lines(output):
    return [line.rstrip() for line in output.strip().splitlines()]


def shape(output):
    levelled = LEVELLED.sub(" ", NUMBER.sub("0", LEARNED.sub("(learned)", output))).strip()
    return SEVERAL_ERRORS.sub(r"\1", levelled)


def agree(command, shown, printed):
    if re.match(r"shuffledp (plan|account)\b", command):
        return lines(shown) == lines(printed)
    return shape(shown) == shape(printed)


STEPS = {
    f"{page.name}-{place}": step
    for page in PAGES
    for place, step in enumerate(steps(page.read_text(encoding="utf-8")), start=1)
}


QUICK = "shuffledp account "
IN_ORDER = sorted(STEPS, key=lambda name: not name.startswith(("README.md-", "tutorial.md-")))
IN_ORDER.sort(key=lambda name: "--group-by" in STEPS[name].command)
FIRST = {
    STEPS[name].status: name for name in sorted(STEPS, key=lambda name: not STEPS[name].command.startswith(QUICK))[::-1]
}
APART = {name for name, step in STEPS.items() if not step.command.startswith("shuffledp ")} | set(FIRST.values())
SHOWN_FIRST = {_kind(STEPS[name]): name for name in reversed(IN_ORDER)}


@pytest.fixture
def directory(tmp_path):
    """What the commands read is where a reader of the repository has it."""
    for each in ("src", "examples", "docs"):
        (tmp_path / each).symlink_to(ROOT / each)
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch):
    """The figures of a study take as long as the study."""
    blank = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
    monkeypatch.setattr(import_module("shuffledp.figures.curves"), "render", lambda *_, **__: blank)


NAMES = [
    pytest.param(name, marks=pytest.mark.slow)
    if step.command.startswith("shuffledp demo") or name not in APART | set(SHOWN_FIRST.values())
    else name
    for name, step in STEPS.items()
]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", NAMES)
def test_command_prints_what_is_shown(name, directory, shuffledp):
    step = STEPS[name]
    if name in APART:
        result = run(step, directory)
        status, printed = result.returncode, result.stdout
    else:
        here = shuffledp(*shlex.split(step.command)[1:], together=True)
        status, printed = here.status, here.out
    assert status == step.status, f"{step.command}\n{printed}"
    assert agree(step.command, step.shown, printed), f"{step.command}\n{printed}"


def test_commands_are_found():
    assert sum(name.startswith("README.md") for name in STEPS) >= 4


@pytest.mark.parametrize(
    ("command", "shown", "printed", "same"),
    [
        ("shuffledp plan count", "error 7.9  ", "error 7.9", True),
        ("shuffledp plan count", "error 7.9", "error 8.0", False),
        ("shuffledp plan count", "│ a │ 1.5 │\n│   │ weighted │", "│ a │ 1.6 │\n│   │ weighted │", False),
        ("shuffledp run count", "about 1,234 of\n25,000 (-3.2%)", "about 9 of 25,000 (+12%)", True),
        ("shuffledp run count", "│ bus │   12 │", "│ bus      │ 9,999 │", True),
        ("shuffledp run count", "about 1,234 users", "about 1,234 persons", False),
        (
            "shuffledp audit count/cheu",
            "Data sets: all 0.\nEvent: a; 6 times on the likelier and 7 on the\nother data set.\nConsistent",
            "Data sets: all 1.\nEvent: b; 8 times\non the likelier and 9 on the other data set.\nConsistent",
            True,
        ),
    ],
)
def test_the_comparison_itself(command, shown, printed, same):
    assert agree(command, shown, printed) is same
