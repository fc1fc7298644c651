"""Groups of options, and messages of the library as the command line shows them."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from shuffledp.cli.main import command_line
from shuffledp.cli.options import as_flags, integer, takes_groups


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int, typer.Option("--width", parser=integer)]
    height: Annotated[int, typer.Option("--height", parser=integer)] = 3


def program(command):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(takes_groups(command))
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_every_field_of_a_group_is_an_option():
    calls = []

    def draw(size: Size, name: Annotated[str, typer.Option("--name")], loud: bool = False) -> None:
        """Draw it."""
        calls.append((size, name, loud))

    run = program(draw)
    assert run("--width", "1e2", "--name", "a").exit_code == 0
    assert run("--name", "b", "--width", "5", "--height", "6", "--loud").exit_code == 0
    assert calls == [(Size(width=100), "a", False), (Size(width=5, height=6), "b", True)]
    assert run("--name", "a").exit_code == 2  # --width is required
    assert run("--width", "1.5", "--name", "a").exit_code == 2
    shown = run("--help").output
    assert "Draw it." in shown
    assert shown.index("--width") < shown.index("--name") < shown.index("--height")


def test_two_groups_with_the_same_option_are_refused():
    def draw(size: Size, width: Annotated[int, typer.Option("--width")] = 1) -> None:
        pass

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        takes_groups(draw)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Use `drop_missing=True` to leave it out.", "Use --drop-missing to leave it out."),
        ("use `equals=VALUE` to count one", "use --equals VALUE to count one"),
        ("use `missing=('NA', '?')`.", "use --missing NA,?."),
        ("use `missing=('NA',)`.", "use --missing NA."),
        ("`max_messages=12`", "--max-messages 12"),
        ("x=1 `y` 'a=b' ``", "x=1 `y` 'a=b' ``"),
    ],
)
def test_parameters_become_flags(message, shown):
    assert as_flags(message) == shown


def test_an_option_of_a_command_line_means_the_same_everywhere():
    """The same name takes the same kind of value and the same default, but for the few that are listed."""
    differing = {
        "--max-messages",  # of a plan in expectation; of a task to create, or to accept
        "--max-epsilon", "--max-delta", "--min-users",  # task verify compares with the task's own claim
        "--domain-size", "--lower", "--upper", "--bins", "--calibration",  # required, or with a default
        "--users", "--epsilon",  # may be left to the search of plan and solve
        "--protocol",  # solve reproduces a paper's protocol
        "--route",  # solve has one route more, and an enumeration of its own
        "--trust",  # of a plan, with references; of a task, among the two that a collection has
        "--port",  # of a server in its settings; of a local page
        "--other",  # a category by name; for strings, a switch
        "--devices", "--out", "--column", "--trials",
    }  # fmt: skip
    seen: dict[str, set[str]] = {}

    def visit(command):
        for inner in getattr(command, "commands", {}).values():
            visit(inner)
        for parameter in command.params:
            if parameter.param_type_name == "option":
                seen.setdefault(parameter.opts[0], set()).add(repr(parameter.default))

    visit(typer.main.get_command(command_line()))
    assert {name for name, defaults in seen.items() if len(defaults) > 1} <= differing
