"""The options on the command-line page are those of the program, with the same defaults."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from shuffledp.cli.main import command_line

PAGE = (Path(__file__).parent / "command-line.md").read_text(encoding="utf-8")


def commands(command, name="shuffledp"):
    """Every command that can be run, by its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {name: command}
    found = {}
    for word, each in inner.items():
        found |= commands(each, f"{name} {word}")
    return found


COMMANDS = commands(get_command(command_line()))
HEADING = re.compile(r"^## `(shuffledp .+)`$", re.MULTILINE)


def documented(name):
    """From each option or argument in the table below the command's heading to its documented default."""
    section = re.search(rf"^## `{name}`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"the page has no section for {name}"
    return dict(re.findall(r"^\| `([-\w]+)[^`]*` \| ([^|]*?) \|", section[1], re.MULTILINE))


def real(command):
    found = {}
    for parameter in command.params:
        name = parameter.name.upper() if parameter.param_type_name == "argument" else parameter.opts[0]
        if name != "--help":
            found[name] = shown_default(parameter)
    return found


def shown_default(parameter):
    if parameter.required:
        return "required"
    if isinstance(getattr(parameter, "show_default", None), str):
        return f"`{parameter.show_default}`"
    if parameter.default is None or parameter.default is False:
        return ""
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_and_defaults(name):
    assert documented(name) == real(COMMANDS[name])


def test_every_command_has_its_section_and_no_other():
    assert set(HEADING.findall(PAGE)) == set(COMMANDS)


def test_options_of_the_program_itself():
    for parameter in get_command(command_line()).params:
        assert f"`{parameter.opts[0]}`" in PAGE
    assert "`--help`" in PAGE
