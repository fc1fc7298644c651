"""``shuffledp run``: from a column of a file to a private estimate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.checks import check_confidence
from shuffledp.cli.domains import binned_domain, choose_domain
from shuffledp.cli.options import (
    BEST,
    AlphabetOption,
    BinsOption,
    Calibration,
    CalibrationOption,
    CaseFoldOption,
    ColumnOption,
    ConfidenceOption,
    DataArgument,
    DeltaOption,
    DomainFileOption,
    DomainOption,
    DropMissingOption,
    DropMissingUsersOption,
    Engine,
    EngineOption,
    EpsilonOption,
    EqualsOption,
    FileOptions,
    GroupByOption,
    HonestFractionOption,
    JsonOption,
    LowerOption,
    MasterOption,
    MaxLengthOption,
    MissingOption,
    NfcOption,
    OrderByOption,
    OtherStringsOption,
    Pick,
    PickOption,
    PlotOption,
    PrivateGroupsOption,
    ProtocolOption,
    SeedOption,
    TrimOption,
    UpperOption,
    UserColumnOption,
    WholeOption,
    as_flags,
    missing_markers,
    number,
    paths_read_here,
    takes_groups,
)
from shuffledp.cli.screen import (
    MAX_ROWS,
    note,
    note_warnings,
    print_histogram,
    print_json,
    print_table,
    progress_bar,
    progress_of_reading,
    say,
    waiting,
)
from shuffledp.display import percent, spreadsheet_safe, visible
from shuffledp.domain import DEFAULT_BINS, Categories, Strings
from shuffledp.durable_files import read_limited
from shuffledp.errors import OutputError, ParameterError
from shuffledp.estimate.grouped import GroupedEstimate
from shuffledp.estimate.quantiles import DEFAULT_QUANTILES
from shuffledp.extras import check_extra, extra
from shuffledp.figures import check_figure_path
from shuffledp.output import check_writable, write_all
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, RandomSource
from shuffledp.sessions.asking import Ask, ask_count, ask_mean, ask_quantiles, ask_sum
from shuffledp.sessions.data import column_of, grouped_column_of
from shuffledp.sessions.groups import (
    check_private_groups,
    prepare_groups,
    prepare_private_groups,
    release_groups,
    release_private_groups,
)
from shuffledp.sessions.prepared import Prepared, prepare_histogram, prepare_strings
from shuffledp.sessions.release import check_release, release

_DEFAULT_QUANTILES = ",".join(map(str, DEFAULT_QUANTILES))
_COLUMNS_OF_NUMBERS = 4  # of groups: name, size, number and interval
_MAX_LIST_BYTES = 1 << 26
_FORMATS = (".json", ".csv", ".parquet")
_TABLES = "Writing a CSV or Parquet file"


class Route(StrEnum):
    """How the round is carried out; the distribution of the result is the same."""

    auto = "auto"
    messages = "messages"
    counts = "counts"


ClipOption = Annotated[bool, typer.Option("--clip", help="Clip values outside the bounds to the nearer one.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions(FileOptions):
    """Options of every ``shuffledp run`` command."""

    data: DataArgument
    column: ColumnOption
    epsilon: EpsilonOption
    delta: DeltaOption
    missing: MissingOption = None
    drop_missing: DropMissingOption = False
    user_column: UserColumnOption = None
    pick: PickOption = Pick.row
    order_by: OrderByOption = None
    drop_missing_users: DropMissingUsersOption = False
    group_by: GroupByOption = None
    private_groups: PrivateGroupsOption = None
    protocol: ProtocolOption = BEST
    calibration: CalibrationOption = Calibration.tight
    honest_fraction: HonestFractionOption = 1.0
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            metavar="NAME",
            help="By default that of the protocol: unbiased, clipped; balcer-cheu also has threshold (exact "
            "zeros), midpoint and relaxed-threshold.",
        ),
    ] = None
    confidence: ConfidenceOption = 0.95
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the result: .json, .csv or .parquet.")
    ] = None
    plot: PlotOption = None
    engine: EngineOption = Engine.local
    master: MasterOption = None
    route: Annotated[
        Route, typer.Option("--route", help="Create every message, or draw their counts from the same distribution.")
    ] = Route.auto
    insecure_seed: SeedOption = None
    as_json: JsonOption = False


def run_count(options: RunOptions, equals: EqualsOption = None) -> None:
    """Count privately how many users said yes.

    Example: shuffledp run count survey.csv --column smoker --epsilon 1 --delta 1e-6
    """
    ask = ask_count(equals=equals)
    _run(ask, options, f"{options.column}{ask.about}", _show_count)


def run_histogram(
    options: RunOptions,
    domain: DomainOption = None,
    domain_file: DomainFileOption = None,
    domain_from_data: Annotated[
        bool, typer.Option("--domain-from-data", help="Take the values that occur. This list is then not private.")
    ] = False,
    other: Annotated[
        str | None,
        typer.Option("--other", metavar="NAME", help="A category for values outside the domain, and missing ones."),
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option("--bins", metavar="EDGES", help="Numbers in bins: edges, or a number of bins with the bounds."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="PERIOD",
            help="Dates by year, month, week or day with the bounds, month-of-year, weekday, hour.",
        ),
    ] = None,
    lower: Annotated[
        str | None, typer.Option("--lower", metavar="L", help="Lower bound of --bins, or first date of --by.")
    ] = None,
    upper: Annotated[
        str | None, typer.Option("--upper", metavar="U", help="Upper bound of --bins, or last date of --by.")
    ] = None,
    clip: ClipOption = False,
) -> None:
    """Count privately how many users hold each category, or a number in each bin, or a date in each period.

    Example: shuffledp run histogram survey.csv --column mode --domain bus,bike,car --epsilon 1 --delta 1e-6
    """
    _check_options("histogram", options, domain_file)
    listed = domain is not None or domain_file is not None or domain_from_data
    chosen, origin = binned_domain(bins, by, lower, upper, listed=listed), "given"
    if chosen is None and not domain_from_data:
        chosen, origin = choose_domain(domain, domain_file, None, other)

    def prepare(column: Any) -> Prepared:
        nonlocal chosen, origin
        if chosen is None:
            chosen, origin = choose_domain(domain, domain_file, column.distinct, other)
        return prepare_histogram(column, chosen, other=other, clip=clip, from_data=domain_from_data)

    estimate = _answer(options, prepare)
    result = estimate.to_json(options.confidence) | {"domain": origin}
    _deliver(estimate, result, options, options.column, _show_histogram)


@dataclass(frozen=True, kw_only=True)
class BoundsOptions:
    """The public domain of a sum or mean."""

    lower: LowerOption
    upper: UpperOption
    whole: WholeOption = False
    clip: ClipOption = False


def run_sum(options: RunOptions, bounds: BoundsOptions) -> None:
    """Estimate privately the sum of the users' numbers, each between two public bounds.

    Example: shuffledp run sum survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6
    """
    ask = ask_sum(lower=bounds.lower, upper=bounds.upper, whole=bounds.whole, clip=bounds.clip)
    _run(ask, options, f"the sum of {options.column}", _show_number)


def run_mean(options: RunOptions, bounds: BoundsOptions) -> None:
    """Estimate privately the mean of the users' numbers, each between two public bounds.

    Example: shuffledp run mean survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6
    """
    ask = ask_mean(lower=bounds.lower, upper=bounds.upper, whole=bounds.whole, clip=bounds.clip)
    _run(ask, options, f"the mean of {options.column}", _show_number)


def run_quantiles(
    options: RunOptions,
    lower: LowerOption,
    upper: UpperOption,
    bins: BinsOption = DEFAULT_BINS,
    quantiles: Annotated[
        str,
        typer.Option("--quantiles", metavar="P,Q", help="Shares of users, each strictly between 0 and 1."),
    ] = _DEFAULT_QUANTILES,
    clip: ClipOption = False,
) -> None:
    """Estimate privately the median and other quantiles of the users' numbers, each between two public bounds.

    Example: shuffledp run quantiles survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6
    """
    shares = [number(share) for share in quantiles.split(",")]
    ask = ask_quantiles(lower=lower, upper=upper, quantiles=shares, bins=bins, clip=clip)
    _run(ask, options, f"the distribution of {options.column}", _show_quantiles)


def run_strings(
    options: RunOptions,
    alphabet: AlphabetOption,
    max_length: MaxLengthOption,
    trim: TrimOption = False,
    nfc: NfcOption = False,
    case_fold: CaseFoldOption = False,
    other: OtherStringsOption = False,
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates", metavar="FILE", help="Likely strings, one per line: fewer users suffice for them."
        ),
    ] = None,
    hide: Annotated[
        Path | None, typer.Option("--hide", metavar="FILE", help="Strings that are not shown, one per line.")
    ] = None,
) -> None:
    """Find privately the strings that many users hold, which nobody lists.

    Example: shuffledp run strings words.csv --column word --alphabet a-z --max-length 24 --epsilon 1 --delta 1e-6
    """
    domain = Strings(alphabet, max_length, trim=trim, nfc=nfc, case_fold=case_fold, other=other)
    if options.group_by is not None:
        raise ParameterError("Strings cannot be asked for by group: leave --group-by out.")
    if options.engine is not Engine.local:
        raise ParameterError("Strings are found in this process: leave --engine out.")
    _check_options("strings", options)
    likely = _lines(candidates, "candidates")
    blocked = set(_lines(hide, "hidden strings"))
    with progress_bar("Searching for strings") as progress:
        estimate = _answer(
            options, lambda column: prepare_strings(column, domain, candidates=likely, progress=progress)
        )
    estimate = estimate.without(blocked)
    subject = f"the frequent strings of {options.column}"
    _deliver(estimate, estimate.to_json(options.confidence), options, subject, _show_strings)


def _lines(path: Path | None, what: str) -> list[str]:
    """The lines of a public list; none without a file."""
    if path is None:
        return []
    try:
        return read_limited(path, _MAX_LIST_BYTES, what).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not a list of strings in UTF-8.") from None


def _check_options(statistic: str, options: RunOptions, domain_file: Path | None = None) -> None:
    """Check all options before data are read."""
    private = check_private_groups(statistic, _private_groups(options), options.group_by) is not None
    question = "histogram" if private else {"mean": "sum"}.get(statistic, statistic)
    check_release(question, **_target(options), **_choice(options))
    check_confidence(options.confidence)
    if options.out is not None:
        _check_result_path(options.out)
    if options.plot is not None:
        check_figure_path(options.plot)
    options.dialect()
    data = paths_read_here(options.data, options.engine, options.master)
    files = [path for path in (*data, domain_file, options.out, options.plot) if path is not None]
    for index, path in enumerate(files):
        if path.resolve() in (other.resolve() for other in files[:index]):
            raise ParameterError(f"{path} is named twice: the data, the domain and each output are different files.")


def _check_result_path(path: Path) -> None:
    suffix = check_writable(path).suffix
    if suffix.lower() not in _FORMATS:
        raise OutputError(f"Cannot write {path}: a result ends in {', '.join(_FORMATS)}, not {suffix or 'nothing'!r}.")
    if suffix.lower() != ".json":
        check_extra("files", _TABLES, "pyarrow")


def _run(ask: Ask, options: RunOptions, subject: str, show: Callable[[Any, RunOptions], None]) -> None:
    """Answer a question whose domain does not depend on the file."""
    _check_options(ask.statistic, options)
    estimate = _answer(options, ask.prepare)
    _deliver(estimate, estimate.to_json(options.confidence), options, subject, show)


def _answer(options: RunOptions, prepare: Callable[[Any], Prepared]) -> Any:
    """Read the column, choose a protocol for the question and run one round of it, or one per public group."""
    how = {**_target(options), **_choice(options), "route": options.route, "source": _source(options)}
    with _column(options) as column:
        prepared: Any
        answer: Callable[..., Any]
        if options.group_by is None:
            prepared, answer = prepare(column), release
        elif options.private_groups is None:
            prepared, answer = prepare_groups(column, prepare), release_groups
        else:
            prepared, answer = prepare_private_groups(column, prepare), release_private_groups
    with nullcontext() if options.engine is Engine.spark else waiting("Randomizing, shuffling and counting"):
        return answer(prepared, **how)


@contextmanager
def _column(options: RunOptions) -> Iterator[Any]:
    """The column of the file, perhaps with groups, with a progress bar while it is read."""
    from shuffledp.engines.engine import find_engine  # takes a while to load

    with progress_of_reading(options.data, options.engine) as progress:
        engine = find_engine(options.engine, master=options.master, progress=sys.stderr.isatty())
        column = replace(
            engine.table(options.data, options.dialect())[options.column],
            progress=progress,
            remark=lambda remark: note(as_flags(remark)),
        )
        rules: dict[str, Any] = {
            "missing": missing_markers(options.missing),
            "drop_missing": options.drop_missing,
            "user": options.user_column,
            "pick": options.pick.value,
            "order_by": options.order_by,
            "drop_missing_users": options.drop_missing_users,
            "source": _source(options),
        }
        if options.group_by is None:
            yield column_of(column, **rules)
        else:
            listed = _private_groups(options)
            categories = None if listed is None else Categories.of(listed)
            yield grouped_column_of(column, options.group_by, categories, **rules)


def _private_groups(options: RunOptions) -> list[str] | None:
    """The listed groups."""
    if options.private_groups is None:
        return None
    names = [name.strip() for name in options.private_groups.split(",")]
    if not all(names):
        raise ParameterError(f"--private-groups {options.private_groups!r} has an empty name between its commas.")
    return names


def _source(options: RunOptions) -> RandomSource:
    return SYSTEM if options.insecure_seed is None else InsecureSeededRandomness(options.insecure_seed)


def _target(options: RunOptions) -> dict[str, Any]:
    return {"epsilon": options.epsilon, "delta": options.delta}


def _choice(options: RunOptions) -> dict[str, Any]:
    """How the question is answered."""
    return {
        "protocol": options.protocol,
        "calibration": options.calibration,
        "honest_fraction": options.honest_fraction,
        "estimator": options.estimator,
    }


def _deliver(
    estimate: Any, result: dict[str, Any], options: RunOptions, subject: str, show: Callable[[Any, RunOptions], None]
) -> None:
    """Write the result and the figure, both or neither (else users would run it again), and print the result."""
    contents: dict[Path, bytes] = {}
    if options.out is not None:
        contents[options.out] = _file_content(options.out.suffix.lower(), result, estimate, options.confidence)
    if options.plot is not None:
        title = f"{'Private estimate' if estimate.secure else 'NOT PRIVATE: seeded estimate'} of {subject}"
        suffix = options.plot.suffix.lower()
        contents[options.plot] = estimate.figure(suffix, confidence=options.confidence, title=title)
    write_all(contents)
    for path in contents:
        note(f"wrote {path}")
    if not options.as_json:
        (_show_groups if isinstance(estimate, GroupedEstimate) else show)(estimate, options)
        say(estimate.guarantee_sentence())
        return
    print_json(result)
    for caveat in estimate.caveats:
        note(caveat)
    if estimate.secure and estimate.guarantee is not None:
        note_warnings(estimate.guarantee.warnings)


def _file_content(suffix: str, result: dict[str, Any], estimate: Any, confidence: float) -> bytes:
    """All of the result as JSON, or its numbers as a table."""
    if suffix == ".json":
        return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    with extra("files", _TABLES):
        import pyarrow as pa

    table, sink = estimate.to_table(confidence), pa.BufferOutputStream()
    if suffix == ".csv":
        import pyarrow.csv

        if "string" in table.column_names:
            column = pa.array([spreadsheet_safe(text) for text in table["string"].to_pylist()], type=pa.string())
            table = table.set_column(table.column_names.index("string"), "string", column)

        pa.csv.write_csv(table, sink)
    else:
        import pyarrow.parquet

        pa.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _show_count(estimate: Any, options: RunOptions) -> None:
    (number,) = estimate.shown(options.confidence)
    say(f"{number.text} of {estimate.users:,} users (standard error {number.error}).")
    _show_interval(estimate, options, number)
    if estimate.withheld:
        say(estimate.withheld_sentence(options.confidence))


def _show_number(estimate: Any, options: RunOptions) -> None:
    (number,) = estimate.shown(options.confidence)
    say(
        f"The {estimate.statistic} of {options.column} over {estimate.users:,} users is {number.text} "
        f"(standard error {number.error})."
    )
    _show_interval(estimate, options, number)


def _show_interval(estimate: Any, options: RunOptions, number: Any) -> None:
    level = percent(options.confidence)
    say(f"Between {number.low} and {number.high} with {level} confidence, by {estimate.protocol}.")


def _show_histogram(estimate: Any, options: RunOptions) -> None:
    confidence = options.confidence
    numbers = estimate.part(0, MAX_ROWS).shown(confidence)  # there may be millions
    print_histogram(options.column, estimate.categories, numbers, confidence)
    say(f"{estimate.users:,} users, by {estimate.protocol}. {estimate.error_sentence()}")
    if withheld := estimate.withheld_sentence(confidence):
        say(withheld)


def _show_groups(estimate: Any, options: RunOptions) -> None:
    header, rows = estimate.listing(options.confidence, groups=MAX_ROWS)
    print_table(header, rows[:MAX_ROWS], words=2 if len(header) > _COLUMNS_OF_NUMBERS else 0)
    if len(rows) > MAX_ROWS or len(estimate) > MAX_ROWS:
        say(f"... the first of {len(estimate):,} groups; --out FILE has all.")
    say(f"{estimate.users:,} users, {len(estimate.released):,} of {len(estimate):,} groups released.")


def _show_quantiles(estimate: Any, options: RunOptions) -> None:
    confidence = options.confidence
    rows = [
        [f"{share:g}", shown.text, shown.interval]
        for share, shown in zip(estimate.asked, estimate.shown(confidence), strict=True)
    ]
    print_table(["quantile", options.column, f"{percent(confidence)} interval"], rows)
    say(
        f"{estimate.users:,} users in {estimate.bins:,} bins from {estimate.edges[0]:g} to {estimate.edges[-1]:g}, by "
        f"{estimate.protocol}. {estimate.error_sentence()}"
    )


def _show_strings(estimate: Any, options: RunOptions) -> None:
    first = estimate.part(0, MAX_ROWS)
    rows = [
        [visible(text), number.text, number.interval, number.share]
        for text, number in zip(first.strings, first.shown(options.confidence), strict=True)
    ]
    if rows:
        print_table([options.column, "users", f"{percent(options.confidence)} interval", "share"], rows)
    if len(estimate) > len(rows):
        say(f"... and {len(estimate) - len(rows):,} more strings; --json or --out has all.")
    say(
        f"{len(estimate):,} {'string' if len(estimate) == 1 else 'strings'} of {estimate.users:,} users, by "
        f"{estimate.protocol}. {estimate.found_sentence()} {estimate.error_sentence()}".rstrip()
    )


run_app = typer.Typer(help="From a data file to a private estimate with error bars.", no_args_is_help=True)
run_app.command("count")(takes_groups(run_count))
run_app.command("histogram")(takes_groups(run_histogram))
run_app.command("sum")(takes_groups(run_sum))
run_app.command("mean")(takes_groups(run_mean))
run_app.command("quantiles")(takes_groups(run_quantiles))
run_app.command("strings")(takes_groups(run_strings))
