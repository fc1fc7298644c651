"""``shuffledp run sum`` and ``run mean``: from a column of numbers to a private estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shuffledp.cli.options import (
    Calibration,
    CalibrationOption,
    ConfidenceOption,
    DeltaOption,
    EpsilonOption,
    EstimatorOption,
    HonestFractionOption,
    JsonOption,
    LowerOption,
    MissingOption,
    PlotOption,
    SeedOption,
    UpperOption,
    WholeOption,
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
from shuffledp.cli.screen import print_json, progress_bar, say
from shuffledp.display import percent
from shuffledp.domain import Interval
from shuffledp.planning import Mean, Sum

if TYPE_CHECKING:
    from shuffledp.engines.local import FileColumn

__all__ = ["run_mean", "run_sum"]

ClipOption = Annotated[bool, typer.Option("--clip", help="Move numbers outside the bounds to the nearer one.")]


def _command(statistic: str, purpose: str) -> Callable[..., None]:
    """``run sum`` and ``run mean`` take the same options and differ in the last step only."""

    def command(
        data: DataArgument,
        column: ColumnOption,
        lower: LowerOption,
        upper: UpperOption,
        epsilon: EpsilonOption,
        delta: DeltaOption,
        whole: WholeOption = False,
        clip: ClipOption = False,
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
        from shuffledp.engines.local import FileColumn

        target = Target(protocol, epsilon, delta, calibration, honest_fraction)
        interval = Interval(lower, upper, whole)
        _run_numbers(
            statistic,
            data,
            FileColumn(data, column, drop_missing, missing=missing_markers(missing)),
            interval,
            clip,
            target,
            estimator,
            _Delivery(confidence, out, plot, as_json),
            engine,
            route,
            insecure_seed,
        )

    command.__doc__ = (
        f"{purpose} of the users' numbers, each between two public bounds.\n\n"
        f"Example: shuffledp run {statistic} survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6"
    )
    return command


class _Delivery(NamedTuple):
    """How the result is to be shown and where it goes."""

    confidence: float
    out: Path | None
    plot: Path | None
    as_json: bool


def _run_numbers(
    statistic: str,
    data: Path,
    table: FileColumn,
    interval: Interval,
    clip: bool,
    target: Target,
    estimator: str | None,
    delivery: _Delivery,
    engine: Engine,
    route: Route,
    seed: int | None,
) -> None:
    check_early("sum", target, estimator, delivery.confidence, delivery.out, delivery.plot)
    check_paths(data, None, delivery.out, delivery.plot)
    with progress_bar(f"Reading {data.name}") as progress:
        places = replace(table, progress=progress).places(interval, clip=clip)
    kind = Mean if statistic == "mean" else Sum
    question = kind(len(places), interval.lower, interval.upper, interval.whole)
    estimate = run_one(question, places, target, estimator, engine, route, seed)
    estimate = with_caveats(estimate, drop_missing=table.drop_missing, clipped=clip)
    result = estimate.to_json(delivery.confidence)
    deliver(estimate, result, delivery.confidence, delivery.out, delivery.plot, f"the {statistic} of {table.column}")
    if delivery.as_json:
        print_json(result)
        note_caveats(estimate)
        return
    (number,) = estimate.shown(delivery.confidence)
    say(
        f"The {statistic} of {table.column} over {estimate.users:,} users is {number.text} "
        f"(standard error {number.error})."
    )
    level = percent(delivery.confidence)
    say(f"Between {number.low} and {number.high} with {level} confidence, by {estimate.protocol}.")
    say_guarantee(estimate)


run_sum = _command("sum", "Estimate privately the sum")
run_mean = _command("mean", "Estimate privately the mean")
