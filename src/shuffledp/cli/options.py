"""Options that several commands share, each declared once, and commands that take them in groups."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from shuffledp.domain import DEFAULT_BINS
from shuffledp.engines.paths import data_files
from shuffledp.errors import ParameterError

if TYPE_CHECKING:
    from shuffledp.collection.device.policy import Policy
    from shuffledp.engines.dialect import Dialect
    from shuffledp.protocols.protocol import Protocol

BEST = "best"
"""The value of ``--protocol`` that leaves the choice to the planner."""


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters may be dataclasses of options: each field becomes an option of the command.

    Required options come first in its help.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    expanded: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if parameter.name in groups:
            expanded += _parameters(hints[parameter.name])
        else:
            expanded.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))
    expanded.sort(key=lambda parameter: parameter.default is not Parameter.empty)

    @wraps(command)
    def with_groups(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    del with_groups.__wrapped__  # typer must see the expanded signature
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    with_groups.__signature__ = Signature(expanded)  # type: ignore[attr-defined]
    return with_groups


def _parameters(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def number(argument: str | float) -> float:
    """Parse a number of the command line."""
    try:
        return float(argument)
    except ValueError:
        raise typer.BadParameter(f"{argument!r} is not a number.") from None


def integer(argument: str | int) -> int:
    """Parse an integer of the command line; 1e6 and 1_000_000 are accepted."""
    try:
        value = float(argument) if "e" in str(argument).lower() else int(argument)
        if int(value) == value:
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{argument!r} is not an integer.")


def missing_markers(listed: str | None) -> tuple[str, ...]:
    """Parse the comma-separated values of --missing."""
    if listed is None:
        return ()
    markers = tuple(value.strip() for value in listed.split(","))
    if not all(markers):
        raise ParameterError(
            f"--missing {listed!r} has an empty name between its commas; an empty field always counts as missing."
        )
    return tuple(dict.fromkeys(markers))


def paths_read_here(data: list[str], engine: Engine, master: str | None) -> list[Path | None]:
    """The files of the data that this process reads, None for standard input; Spark understands paths itself."""
    if engine is Engine.spark:
        return []
    if master is not None:
        raise ParameterError("--master says where Spark runs: give --engine spark too.")
    return [file.path for file in data_files(data)]


def find_task_id(digits: str, ids: Iterable[str], where: str = "") -> str:
    """The only task id, in hexadecimal digits, that begins with the given digits."""
    matching = [task_id for task_id in ids if digits and task_id.startswith(digits.lower())]
    if len(matching) != 1:
        count = f"{len(matching):,} tasks have" if matching else "no task has"
        raise ParameterError(f"{digits!r} must be the first digits of one task's id; {count} such an id{where}.")
    return matching[0]


_SHELL = frozenset(";|&<>()$ ")
"""Characters that a shell would not pass on without quotes."""
_PARAMETER = re.compile(r"`([a-z_]+)=([^`]+)`")


def as_flags(message: str) -> str:
    """Write the parameters that a message of the library names, such as `drop_missing=True`, as flags."""
    return _PARAMETER.sub(lambda match: _flag(match[1], match[2]), message)


def as_keys(message: str) -> str:
    """Write the parameters that a message of the library names as keys of a file of questions."""
    return _PARAMETER.sub(lambda match: _KEYS.get(match[0], f"{match[1]} = {_toml_value(match[2])}"), message)


def _toml_value(written: str) -> str:
    """A value of Python as TOML writes it."""
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):  # a placeholder, such as NAME
        return written
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


_KEYS = {"`drop_missing=True`": "complete = true in [session]"}
"""What a file of questions has instead of parameters and values."""
_RENAMED = {"user": "user-column"}
"""Parameters whose flag has another name."""


def _flag(name: str, written: str) -> str:
    flag = f"--{_RENAMED.get(name, name).replace('_', '-')}"
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):  # a placeholder, such as NAME
        return f"{flag} {written}"
    if value is True:
        return flag
    if value is False:
        return f"--no-{name}"
    argument = ",".join(map(str, value)) if isinstance(value, tuple) else "tab" if value == "\t" else str(value)
    return f"{flag} {shlex.quote(argument) if _SHELL.intersection(argument) else argument}"


class Calibration(StrEnum):
    """How the noise is chosen."""

    tight = "tight"
    paper = "paper"


class Engine(StrEnum):
    """Where a round is run."""

    local = "local"
    spark = "spark"


class Pick(StrEnum):
    """Which row of a user counts."""

    row = "row"
    value = "value"
    latest = "latest"


_EPSILON = typer.Option("--epsilon", parser=number, metavar="E", help="Privacy loss; smaller is more private.")
EpsilonOption = Annotated[float, _EPSILON]
OptionalEpsilonOption = Annotated[float | None, _EPSILON]
DeltaOption = Annotated[
    float,
    typer.Option(
        "--delta", parser=number, metavar="D", help="Probability that epsilon is exceeded; well below 1/users."
    ),
]
_USERS = typer.Option("--users", parser=integer, metavar="N", help="Number of users.")
UsersOption = Annotated[int, _USERS]
OptionalUsersOption = Annotated[int | None, _USERS]
HonestFractionOption = Annotated[
    float,
    typer.Option("--honest-fraction", parser=number, metavar="F", help="Fraction of users who follow the protocol."),
]
CalibrationOption = Annotated[
    Calibration,
    typer.Option("--calibration", help="Least noise by exact numerics, or the constants of the paper's theorem."),
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", parser=number, metavar="C", help="Confidence level of intervals and bounds.")
]
ProtocolOption = Annotated[
    str,
    typer.Option("--protocol", metavar="NAME", help="A protocol by name, or best: the one with the lowest error."),
]

_DOMAIN_SIZE = typer.Option("--domain-size", parser=integer, metavar="D", help="Number of categories of a histogram.")
DomainSizeOption = Annotated[int, _DOMAIN_SIZE]
OptionalDomainSizeOption = Annotated[int | None, _DOMAIN_SIZE]
DomainOption = Annotated[
    str | None, typer.Option("--domain", metavar="A,B,C", help="Categories of a histogram, separated by commas.")
]
DomainFileOption = Annotated[
    Path | None, typer.Option("--domain-file", metavar="FILE", help="Categories of a histogram, one per line.")
]
_LOWER = typer.Option(
    "--lower", parser=number, metavar="L", help="Lower bound of the values of a sum, mean or quantiles."
)
LowerOption = Annotated[float, _LOWER]
OptionalLowerOption = Annotated[float | None, _LOWER]
_UPPER = typer.Option(
    "--upper", parser=number, metavar="U", help="Upper bound of the values of a sum, mean or quantiles."
)
UpperOption = Annotated[float, _UPPER]
OptionalUpperOption = Annotated[float | None, _UPPER]
BinsOption = Annotated[
    int, typer.Option("--bins", parser=integer, metavar="B", help="Number of bins of equal width, for quantiles.")
]
OptionalBinsOption = Annotated[
    int | None,
    typer.Option("--bins", parser=integer, metavar="B", help="Number of bins of equal width, for quantiles."),
]
_ALPHABET = typer.Option(
    "--alphabet",
    metavar="A",
    help=r"Symbols of strings, such as a-z0-9_ (write \\- for a hyphen), or lowercase, hostname or bytes.",
)
AlphabetOption = Annotated[str, _ALPHABET]
OptionalAlphabetOption = Annotated[str | None, _ALPHABET]
_MAX_LENGTH = typer.Option(
    "--max-length", parser=integer, metavar="M", help="Maximum number of symbols, or of bytes, of a string."
)
MaxLengthOption = Annotated[int, _MAX_LENGTH]
OptionalMaxLengthOption = Annotated[int | None, _MAX_LENGTH]
TrimOption = Annotated[bool, typer.Option("--trim", help="Remove white space around strings.")]
NfcOption = Annotated[bool, typer.Option("--nfc", help="Compose the characters of strings (Unicode NFC).")]
CaseFoldOption = Annotated[bool, typer.Option("--case-fold", help="Remove differences of case.")]
OtherStringsOption = Annotated[bool, typer.Option("--other", help="Count strings outside the domain as the empty one.")]

WholeOption = Annotated[bool, typer.Option("--whole", help="All values are integers.")]

_COLUMN = typer.Option("--column", metavar="C", help="The column with the users' values.")
ColumnOption = Annotated[str, _COLUMN]
OptionalColumnOption = Annotated[str | None, _COLUMN]
EqualsOption = Annotated[
    str | None, typer.Option("--equals", metavar="VALUE", help="For a count: count the users who hold this value.")
]
MissingOption = Annotated[
    str | None,
    typer.Option(
        "--missing", metavar="A,B", help="Values that stand for a missing value, such as NA,?, besides an empty field."
    ),
]
DropMissingOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows without a value.")]

UserColumnOption = Annotated[
    str | None,
    typer.Option("--user-column", metavar="U", help="The column with user ids: of several rows of a user, one counts."),
]
PickOption = Annotated[
    Pick,
    typer.Option("--pick", help="The row of a user that counts: any row, any distinct value, or the latest row."),
]
OrderByOption = Annotated[
    str | None,
    typer.Option("--order-by", metavar="C", help="With --pick latest: the column of dates, times or numbers."),
]
DropMissingUsersOption = Annotated[bool, typer.Option("--drop-missing-users", help="Leave out rows without a user id.")]

GroupByOption = Annotated[
    str | None,
    typer.Option("--group-by", metavar="G", help="The column with public groups: one estimate for each."),
]
PrivateGroupsOption = Annotated[
    str | None,
    typer.Option("--private-groups", metavar="A,B", help="All groups of --group-by; membership is protected, too."),
]

_TASK = typer.Option("--task", metavar="FILE", help="The signed task.")
TaskOption = Annotated[Path, _TASK]
OptionalTaskOption = Annotated[Path | None, _TASK]
AuthorOption = Annotated[
    Path, typer.Option("--author", metavar="KEY.pub", help="The public key of the author whom you trust.")
]
_MAX_EPSILON = typer.Option("--max-epsilon", parser=number, metavar="E", help="Refuse a task with a larger epsilon.")
MaxEpsilonOption = Annotated[float, _MAX_EPSILON]
OptionalMaxEpsilonOption = Annotated[float | None, _MAX_EPSILON]
_MAX_DELTA = typer.Option("--max-delta", parser=number, metavar="D", help="Refuse a task with a larger delta.")
MaxDeltaOption = Annotated[float, _MAX_DELTA]
OptionalMaxDeltaOption = Annotated[float | None, _MAX_DELTA]
_MIN_USERS = typer.Option(
    "--min-users", parser=integer, metavar="N", help="Refuse a task whose guarantee rests on fewer honest users."
)
MinUsersOption = Annotated[int, _MIN_USERS]
OptionalMinUsersOption = Annotated[int | None, _MIN_USERS]
_MAX_MESSAGES = typer.Option(
    "--max-messages", parser=integer, metavar="M", help="Refuse a task with more messages per report."
)
MaxMessagesOption = Annotated[int, _MAX_MESSAGES]
OptionalMaxMessagesOption = Annotated[int | None, _MAX_MESSAGES]
AllowAugmentedOption = Annotated[
    bool,
    typer.Option(
        "--allow-augmented",
        help="Also answer tasks that trust the shuffler to add all noise (trust augmented).",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings: a TOML file with a table [shuffler] or [analyzer]."),
]

EngineOption = Annotated[Engine, typer.Option("--engine", help="Where to run: in this process, or on Spark.")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="With --engine spark: where Spark runs, such as local[4], yarn or sc://host."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a figure: .png, .svg or .html.")]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--insecure-seed",
        parser=integer,
        metavar="S",
        help="Repeatable noise for tests. The result is not private, and says so.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class QualifiedProtocolOptions:
    """A protocol by question and name, with its users, delta and domain."""

    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="As question/name, for example histogram/balcer-cheu.")
    ]
    users: UsersOption
    delta: DeltaOption
    honest_fraction: HonestFractionOption = 1.0
    domain_size: DomainSizeOption = 2
    lower: LowerOption = 0.0
    upper: UpperOption = 1.0
    bins: BinsOption = DEFAULT_BINS

    def arguments(self, kind: type[Protocol]) -> dict[str, Any]:
        """The keyword arguments that every constructor of the protocol takes."""
        domain = kind.domain_settings(
            domain_size=self.domain_size,
            lower=self.lower,
            upper=self.upper,
            bins=self.bins,
            alphabet="ab",  # the guarantee does not depend on the strings
            max_length=1,
        )
        return {"users": self.users, "delta": self.delta, "honest_fraction": self.honest_fraction, **domain}


DataArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="CSV, Parquet, Arrow or JSON lines files with a row per user, a quoted pattern, or - for standard input.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How files of data are written."""

    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter", metavar="D", help="Between the fields of CSV files, if not a comma; tab for a tab."
        ),
    ] = None
    encoding: Annotated[str, typer.Option("--encoding", metavar="NAME", help="Encoding of CSV files.")] = "utf-8"
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV files have no header; their columns are 1, 2, ...")
    ] = False
    decimal: Annotated[
        str, typer.Option("--decimal", metavar="MARK", help="Decimal mark of numbers in strings: a point or a comma.")
    ] = "."

    def dialect(self) -> Dialect:
        """The options, checked."""
        from shuffledp.engines.dialect import Dialect

        delimiter = "\t" if self.delimiter in ("tab", "\\t") else self.delimiter
        return Dialect(delimiter, self.encoding, not self.no_header, decimal=self.decimal)


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """Options of a connection to a server."""

    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust instead of the system's.")
    ] = None
    insecure_http: Annotated[
        bool,
        typer.Option("--insecure-http", help="Allow plain HTTP to another machine; not encrypted."),
    ] = False


BudgetOption = Annotated[
    Path | None,
    typer.Option(
        "--budget",
        metavar="FILE",
        help="Limits on all reports of this device together, in TOML; by default eight times the largest epsilon of a "
        "task, in 365 days.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """The limits of a device, or of a survey page, on the tasks that it answers."""

    max_epsilon: MaxEpsilonOption = 1.0
    max_delta: MaxDeltaOption = 1e-5
    min_users: MinUsersOption = 100
    max_messages: MaxMessagesOption = 65_536
    allow_augmented: AllowAugmentedOption = False

    def policy(self) -> Policy:
        """The options, checked."""
        from shuffledp.collection.device.policy import Policy

        return Policy(**vars(self))
