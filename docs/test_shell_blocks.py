"""Every ``shuffledp`` command in a shell block of the documentation has the options that it needs, and no other.

Most of them belong to servers, other machines and clusters, so they are parsed and not run.
"""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SUBSTITUTED = re.compile(r"\$\([^)]*\)")


def commands_in(text: str) -> list[list[str]]:
    """The arguments of the program in each line, also where another program starts it."""
    found = []
    for block in BLOCK.findall(text):
        for line in SUBSTITUTED.sub("X", block.replace("\\\n", " ")).splitlines():
            words = shlex.split(line, comments=True)
            places = [place for place, word in enumerate(words[:-1]) if re.fullmatch(r"(\S*/)?shuffledp", word)]
            if places and "--entrypoint" not in words:
                found.append(_arguments(words[places[-1] + 1 :]))
    return found


def _arguments(words: list[str]) -> list[str]:
    """Without redirections, other programs of a pipe, and a ``&`` at the end."""
    end = next((place for place, word in enumerate(words) if re.match(r"[0-9]?[<>]|[|&]", word)), len(words))
    return words[:end]


def parse(command, arguments):
    """Parse as the program does, without running anything; an error of usage is raised."""
    name = "shuffledp"
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, list(arguments))


CASES = [
    pytest.param(arguments, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, arguments in enumerate(commands_in(page.read_text(encoding="utf-8")))
    if "FILE" not in arguments
]


@pytest.mark.parametrize("arguments", CASES)
def test_commands_are_complete(arguments, commands):
    parse(commands, arguments)


@pytest.mark.parametrize(
    "line",
    ["shuffledp keys schedule --rounds 12 --out keys", "kubectl exec pod -- shuffledp rounds list --colour red"],
)
def test_an_incomplete_command_is_seen(line, commands):
    from typer.exceptions import TyperException

    (arguments,) = commands_in(f"```sh\n{line}\n```\n")
    with pytest.raises(TyperException):
        parse(commands, arguments)
