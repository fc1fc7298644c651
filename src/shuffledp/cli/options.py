"""Options that several commands share, so that each means the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.errors import ParameterError

__all__ = [
    "Calibration",
    "CalibrationOption",
    "ConfidenceOption",
    "DeltaOption",
    "DomainSizeOption",
    "EpsilonOption",
    "EstimatorOption",
    "HonestFractionOption",
    "JsonOption",
    "LowerOption",
    "MissingOption",
    "PlotOption",
    "SeedOption",
    "UpperOption",
    "UsersOption",
    "WholeOption",
    "missing_markers",
    "number",
    "whole_number",
]


def number(text: str | float) -> float:
    """A number from the command line, or a message that says what was given."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None


def whole_number(text: str | int) -> int:
    """A whole number from the command line; 1e6 and 1_000_000 are fine."""
    try:
        value = float(text) if "e" in str(text).lower() else int(text)
        if int(value) == value:
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is not a whole number.")


def missing_markers(listed: str | None) -> tuple[str, ...]:
    """The values of --missing."""
    if listed is None:
        return ()
    markers = tuple(value.strip() for value in listed.split(","))
    if not all(markers):
        raise ParameterError(
            f"--missing {listed!r} has an empty name between its commas; an empty field is missing anyway."
        )
    return tuple(dict.fromkeys(markers))


class Calibration(StrEnum):
    """How the noise is chosen."""

    tight = "tight"
    paper = "paper"


EpsilonOption = Annotated[
    float,
    typer.Option("--epsilon", parser=number, metavar="E", help="Privacy loss; smaller is more private."),
]
DeltaOption = Annotated[
    float,
    typer.Option("--delta", parser=number, metavar="D", help="Probability of exceeding it; well below 1/users."),
]
UsersOption = Annotated[int, typer.Option("--users", parser=whole_number, metavar="N", help="Number of users.")]
DomainSizeOption = Annotated[
    int, typer.Option("--domain-size", parser=whole_number, metavar="D", help="Number of possible values.")
]
HonestFractionOption = Annotated[
    float,
    typer.Option("--honest-fraction", parser=number, metavar="F", help="Share of users that must follow the protocol."),
]
CalibrationOption = Annotated[
    Calibration,
    typer.Option("--calibration", help="Least noise by exact numbers, or by the paper's theorem."),
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", parser=number, metavar="C", help="Level of the intervals.")
]
EstimatorOption = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        help="By name, the protocol's own if not given: unbiased, clipped; balcer-cheu also threshold (zero stays "
        "zero), midpoint and relaxed-threshold.",
        metavar="NAME",
    ),
]
LowerOption = Annotated[
    float, typer.Option("--lower", parser=number, metavar="L", help="No user's number is below this.")
]
UpperOption = Annotated[
    float, typer.Option("--upper", parser=number, metavar="U", help="No user's number is above this.")
]
WholeOption = Annotated[bool, typer.Option("--whole", help="Only whole numbers occur.")]
MissingOption = Annotated[
    str | None,
    typer.Option(
        "--missing",
        metavar="A,B",
        help="Values of the file that mean a missing one, besides an empty field, such as NA,?.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a figure: .png, .svg or .html.")]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--insecure-seed",
        parser=whole_number,
        metavar="S",
        help="Repeatable noise for tests. The result is not private, and says so.",
    ),
]
