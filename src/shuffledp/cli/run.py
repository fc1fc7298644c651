"""``shuffledp run count`` and ``run histogram``: from a column of a file to a private estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.domains import choose_domain
from shuffledp.cli.options import (
    Calibration,
    CalibrationOption,
    ConfidenceOption,
    DeltaOption,
    EpsilonOption,
    EstimatorOption,
    HonestFractionOption,
    JsonOption,
    MissingOption,
    PlotOption,
    SeedOption,
    missing_markers,
)
from shuffledp.cli.rounds import (
    BEST,
    ColumnOption,
    DataArgument,
    DropMissingOption,
    Engine,
    EngineOption,
    OutOption,
    ProtocolOption,
    Route,
    RouteOption,
    Target,
    check_early,
    check_paths,
    deliver,
    note_caveats,
    run_one,
    say_guarantee,
    with_caveats,
)
from shuffledp.cli.run_numbers import run_mean, run_sum
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.display import percent
from shuffledp.planning import Count, Histogram

__all__ = ["run_app"]

_SHOWN_ROWS = 40


def run_count(
    data: DataArgument,
    column: ColumnOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    equals: Annotated[
        str | None, typer.Option("--equals", metavar="VALUE", help="Count the users who hold this value.")
    ] = None,
    missing: MissingOption = None,
    drop_missing: DropMissingOption = False,
    protocol: ProtocolOption = BEST,
    calibration: CalibrationOption = Calibration.tight,
    honest_fraction: HonestFractionOption = 1.0,
    estimator: EstimatorOption = None,
    confidence: ConfidenceOption = 0.95,
    out: OutOption = None,
    plot: PlotOption = None,
    engine: EngineOption = Engine.local,
    route: RouteOption = Route.auto,
    insecure_seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count privately how many users said yes.

    Example: shuffledp run count survey.csv --column smoker --epsilon 1 --delta 1e-6
    """
    from shuffledp.engines.local import FileColumn

    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    check_early("count", target, estimator, confidence, out, plot)
    check_paths(data, None, out, plot)
    with progress_bar(f"Reading {data.name}") as progress:
        counts = FileColumn(data, column, drop_missing, progress, missing_markers(missing), note).bits(equals=equals)
    question = Count(int(counts.sum()))
    estimate = run_one(question, counts, target, estimator, engine, route, insecure_seed)
    estimate = with_caveats(estimate, drop_missing=drop_missing)
    result = estimate.to_json(confidence)
    deliver(estimate, result, confidence, out, plot, f"{column}{f' = {equals}' if equals else ''}")
    if as_json:
        print_json(result)
        note_caveats(estimate)
        return
    (number,) = estimate.shown(confidence)
    say(f"{number.text} of {estimate.users:,} users (standard error {number.error}).")
    say(f"Between {number.low} and {number.high} with {percent(confidence)} confidence, by {estimate.protocol}.")
    if estimate.withheld:
        say(estimate.withheld_sentence(confidence))
    say_guarantee(estimate)


def run_histogram(
    data: DataArgument,
    column: ColumnOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="A,B,C", help="The possible values, separated by commas.")
    ] = None,
    domain_file: Annotated[
        Path | None, typer.Option("--domain-file", metavar="FILE", help="The possible values, one a line.")
    ] = None,
    domain_from_data: Annotated[
        bool, typer.Option("--domain-from-data", help="Take the values that occur. This list is then not private.")
    ] = False,
    other: Annotated[
        str | None,
        typer.Option("--other", metavar="NAME", help="A category for values outside the domain, and missing ones."),
    ] = None,
    missing: MissingOption = None,
    drop_missing: DropMissingOption = False,
    protocol: ProtocolOption = BEST,
    calibration: CalibrationOption = Calibration.tight,
    honest_fraction: HonestFractionOption = 1.0,
    estimator: EstimatorOption = None,
    confidence: ConfidenceOption = 0.95,
    out: OutOption = None,
    plot: PlotOption = None,
    engine: EngineOption = Engine.local,
    route: RouteOption = Route.auto,
    insecure_seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count privately how many users hold each category.

    Example: shuffledp run histogram survey.csv --column mode --domain bus,bike,car --epsilon 1 --delta 1e-6
    """
    from shuffledp.engines.local import FileColumn

    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    check_early("histogram", target, estimator, confidence, out, plot)
    check_paths(data, domain_file, out, plot)
    with progress_bar(f"Reading {data.name}") as progress:
        table = FileColumn(data, column, drop_missing, progress, missing_markers(missing), note)
        chosen = choose_domain(domain, domain_file, domain_from_data, other, table)
        counts = table.histogram(chosen.categories, other=other)
    question = Histogram(int(counts.sum()), categories=chosen.categories)
    estimate = run_one(question, counts, target, estimator, engine, route, insecure_seed)
    estimate = with_caveats(estimate, drop_missing=drop_missing, domain=chosen)
    result = estimate.to_json(confidence) | {"domain": chosen.source}
    deliver(estimate, result, confidence, out, plot, column)
    if as_json:
        print_json(result)
        note_caveats(estimate)
        return
    _show_histogram(estimate, confidence, column)


def _show_histogram(estimate: Any, confidence: float, column: str) -> None:
    rows = [
        [name, number.text, number.interval, number.share]
        for name, number in zip(estimate.categories, estimate.part(0, _SHOWN_ROWS).shown(confidence), strict=False)
    ]
    print_table([column, "users", f"{percent(confidence)} interval", "share"], rows)
    left = len(estimate.categories) - len(rows)
    if left > 0:
        say(f"... and {left:,} more categories; --json or --out has all.")
    say(f"{estimate.users:,} users, by {estimate.protocol}. {estimate.error_sentence()}")
    if withheld := estimate.withheld_sentence(confidence):
        say(withheld)
    say_guarantee(estimate)


run_app = typer.Typer(help="From a data file to a private estimate with error bars.", no_args_is_help=True)
run_app.command("count")(run_count)
run_app.command("histogram")(run_histogram)
run_app.command("sum")(run_sum)
run_app.command("mean")(run_mean)
