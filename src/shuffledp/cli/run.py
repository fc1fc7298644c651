"""``shuffledp run``: from a column of a file to a private estimate."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from numpy.typing import NDArray

from shuffledp.cli.domains import ChosenDomain, choose_domain
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
    PlotOption,
    SeedOption,
    UpperOption,
    WholeOption,
)
from shuffledp.cli.results import check_result_path, result_content
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say, waiting
from shuffledp.domain import Interval
from shuffledp.engines.local import FileColumn, run_counts, run_places
from shuffledp.errors import ParameterError
from shuffledp.figures import check_figure_path
from shuffledp.output import write_all
from shuffledp.planning import Count, Histogram, Mean, Question, Sum, plan
from shuffledp.privacy.calibration import check_users
from shuffledp.privacy.guarantee import check_target
from shuffledp.protocols.linear import check_estimator
from shuffledp.protocols.registry import find
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, RandomSource

__all__ = ["run_count", "run_histogram", "run_mean", "run_sum"]

_SHOWN_ROWS = 40


class Engine(StrEnum):
    """Where the run happens."""

    local = "local"


BEST = "best"


class Route(StrEnum):
    """How the round is carried out; the law of the result is the same."""

    auto = "auto"
    messages = "messages"
    counts = "counts"


DataArgument = Annotated[Path, typer.Argument(metavar="DATA", help="A CSV (also .gz) or Parquet file, a row per user.")]
ColumnOption = Annotated[str, typer.Option("--column", help="The column with the users' values.", metavar="C")]
ProtocolOption = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="The protocol by name, or best: the one with the least error that plan finds.",
        metavar="NAME",
    ),
]
ClipOption = Annotated[bool, typer.Option("--clip", help="Move numbers outside the bounds to the nearer one.")]
DropMissingOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows without a value.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the result: .json, .csv or .parquet.")
]
RouteOption = Annotated[
    Route, typer.Option("--route", help="Make every message, or draw their counts by the same law.")
]
EngineOption = Annotated[Engine, typer.Option("--engine", help="Where to run.")]


def run_count(
    data: DataArgument,
    column: ColumnOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    equals: Annotated[
        str | None, typer.Option("--equals", metavar="VALUE", help="Count the users who hold this value.")
    ] = None,
    drop_missing: DropMissingOption = False,
    protocol: ProtocolOption = "balcer-cheu",
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
    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    _check_early("count", target, estimator, confidence, out, plot)
    _check_paths(data, None, out, plot)
    with progress_bar(f"Reading {data.name}") as progress:
        counts = FileColumn(data, column, drop_missing, progress).bits(equals=equals)
    question = Count(int(counts.sum()))
    estimate = _run(question, counts, target, estimator, engine, route, insecure_seed)
    estimate = _with_caveats(estimate, drop_missing=drop_missing)
    result = estimate.to_json(confidence)
    _deliver(estimate, result, confidence, out, plot, f"{column}{f' = {equals}' if equals else ''}")
    if as_json:
        print_json(result)
        _note_caveats(estimate)
        return
    low, high = estimate.interval(confidence)
    say(f"{estimate.value:,.0f} of {estimate.users:,} users (give or take {estimate.standard_error:,.1f}).")
    say(f"Between {low:,.0f} and {high:,.0f} with {confidence:.0%} confidence.")
    _say_guarantee(estimate)


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
    drop_missing: DropMissingOption = False,
    protocol: ProtocolOption = "balcer-cheu",
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
    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    _check_early("histogram", target, estimator, confidence, out, plot)
    _check_paths(data, domain_file, out, plot)
    with progress_bar(f"Reading {data.name}") as progress:
        table = FileColumn(data, column, drop_missing, progress)
        chosen = choose_domain(domain, domain_file, domain_from_data, other, table)
        counts = table.histogram(chosen.categories, other=other)
    question = Histogram(int(counts.sum()), categories=chosen.categories)
    estimate = _run(question, counts, target, estimator, engine, route, insecure_seed)
    estimate = _with_caveats(estimate, drop_missing=drop_missing, domain=chosen)
    result = estimate.to_json(confidence) | {"domain": chosen.source}
    _deliver(estimate, result, confidence, out, plot, column)
    if as_json:
        print_json(result)
        _note_caveats(estimate)
        return
    _show_histogram(estimate, confidence, column)


def run_sum(
    data: DataArgument,
    column: ColumnOption,
    lower: LowerOption,
    upper: UpperOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    whole: WholeOption = False,
    clip: ClipOption = False,
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
    """Add up privately the users' numbers, each between two public bounds.

    Example: shuffledp run sum survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6
    """
    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    interval = Interval(lower, upper, whole)
    _run_numbers(
        "sum",
        data,
        FileColumn(data, column, drop_missing),
        interval,
        clip,
        target,
        estimator,
        Delivery(confidence, out, plot, as_json),
        engine,
        route,
        insecure_seed,
    )


def run_mean(
    data: DataArgument,
    column: ColumnOption,
    lower: LowerOption,
    upper: UpperOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    whole: WholeOption = False,
    clip: ClipOption = False,
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
    """Estimate privately the mean of the users' numbers, each between two public bounds.

    Example: shuffledp run mean survey.csv --column minutes --lower 0 --upper 240 --epsilon 1 --delta 1e-6
    """
    target = Target(protocol, epsilon, delta, calibration, honest_fraction)
    interval = Interval(lower, upper, whole)
    _run_numbers(
        "mean",
        data,
        FileColumn(data, column, drop_missing),
        interval,
        clip,
        target,
        estimator,
        Delivery(confidence, out, plot, as_json),
        engine,
        route,
        insecure_seed,
    )


class Delivery(NamedTuple):
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
    delivery: Delivery,
    engine: Engine,
    route: Route,
    seed: int | None,
) -> None:
    _check_early("sum", target, estimator, delivery.confidence, delivery.out, delivery.plot)
    _check_paths(data, None, delivery.out, delivery.plot)
    with progress_bar(f"Reading {data.name}") as progress:
        places = replace(table, progress=progress).places(interval, clip=clip)
    kind = Mean if statistic == "mean" else Sum
    question = kind(len(places), interval.lower, interval.upper, interval.whole)
    estimate = _run(question, places, target, estimator, engine, route, seed)
    estimate = _with_caveats(estimate, drop_missing=table.drop_missing)
    estimate = estimate.mean if statistic == "mean" else estimate
    result = estimate.to_json(delivery.confidence) | {"statistic": statistic}
    _deliver(estimate, result, delivery.confidence, delivery.out, delivery.plot, f"the {statistic} of {table.column}")
    if delivery.as_json:
        print_json(result)
        _note_caveats(estimate)
        return
    low, high = estimate.interval(delivery.confidence)
    say(
        f"The {statistic} of {table.column} over {estimate.users:,} users is {estimate.value:,.6g} "
        f"(give or take {estimate.standard_error:,.3g})."
    )
    say(f"Between {low:,.6g} and {high:,.6g} with {delivery.confidence:.0%} confidence, by {estimate.protocol}.")
    _say_guarantee(estimate)


class Target(NamedTuple):
    """The protocol and what its noise is calibrated for."""

    protocol: str
    epsilon: float
    delta: float
    calibration: Calibration
    honest_fraction: float

    def protocol_for(self, question: Question) -> Any:
        """The protocol calibrated for the question, or the best one that the planner finds."""
        if self.protocol == BEST:
            return plan(question, epsilon=self.epsilon, delta=self.delta, honest_fraction=self.honest_fraction).best
        return find(question.shelf, self.protocol).calibrate(
            **question.settings(),
            epsilon=self.epsilon,
            delta=self.delta,
            calibration=self.calibration,
            honest_fraction=self.honest_fraction,
        )


def _check_early(
    shelf: str, target: Target, estimator: str | None, confidence: float, out: Path | None, plot: Path | None
) -> None:
    """Refuse what can be refused before a large file is read."""
    check_target(target.epsilon, target.delta)
    check_users(2, target.honest_fraction)
    if not 0 < confidence < 1:
        raise ParameterError(f"The confidence must lie between 0 and 1, not {confidence:g}.")
    if target.protocol != BEST:
        kind = find(shelf, target.protocol)
        if estimator is not None:
            check_estimator(estimator, kind.estimators)
    elif target.calibration is not Calibration.tight:
        raise ParameterError("--protocol best chooses the calibration too; name a protocol to use the paper's.")
    if out is not None:
        check_result_path(out)
    if plot is not None:
        check_figure_path(plot)


def _run(
    question: Question,
    values: NDArray[Any],
    target: Target,
    estimator: str | None,
    engine: Engine,
    route: Route,
    seed: int | None,
) -> Any:
    """One round over users of whom so many hold each index, or whose numbers lie at these places."""
    with waiting("Randomizing, shuffling and counting"):
        protocol = target.protocol_for(question)
        run = ENGINES[engine][question.shelf == "sum"]
        return run(values, lambda _: protocol, estimator=estimator or "", route=route, source=_source(seed))


ENGINES = {Engine.local: (run_counts, run_places)}


def _check_paths(*paths: Path | None) -> None:
    """Refuse to write over what is read, or two results into one file."""
    seen: set[Path] = set()
    for path in filter(None, paths):
        if path.resolve() in seen:
            raise ParameterError(f"{path} is named twice: the data, the domain and each output are different files.")
        seen.add(path.resolve())


def _source(seed: int | None) -> RandomSource:
    return SYSTEM if seed is None else InsecureSeededRandomness(seed)


def _deliver(
    estimate: Any, result: dict[str, Any], confidence: float, out: Path | None, plot: Path | None, subject: str
) -> None:
    """Write the result and the figure, both or neither: half a release would invite a second one."""
    contents: dict[Path, bytes] = {}
    if out is not None:
        contents[out] = result_content(out.suffix.lower(), result, estimate.to_table(confidence))
    if plot is not None:
        kind = "Private estimate" if estimate.secure else "NOT PRIVATE: seeded estimate"
        contents[plot] = estimate.figure(plot.suffix.lower(), confidence=confidence, title=f"{kind} of {subject}")
    write_all(contents)
    for written in contents:
        note(f"wrote {written}")


def _show_histogram(estimate: Any, confidence: float, column: str) -> None:
    rows = [
        [name, f"{count:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{share:.2%}"]
        for name, count, (low, high), share in zip(
            estimate.categories, estimate.counts, estimate.interval(confidence), estimate.frequencies, strict=True
        )
    ]
    print_table([column, "users", f"{confidence:.0%} interval", "share"], rows[:_SHOWN_ROWS])
    if len(rows) > _SHOWN_ROWS:
        say(f"... and {len(rows) - _SHOWN_ROWS:,} more categories; --json or --out has all.")
    say(f"{estimate.users:,} users; the noise on each count is about {estimate.standard_errors[0]:,.1f} users.")
    _say_guarantee(estimate)


def _note_caveats(estimate: Any) -> None:
    for caveat in estimate.caveats:
        note(caveat)


def _say_guarantee(estimate: Any) -> None:
    say(estimate.guarantee_sentence())


def _with_caveats(estimate: Any, *, drop_missing: bool, domain: ChosenDomain | None = None) -> Any:
    """Say with the estimate what its guarantee does not cover."""
    caveats = []
    if domain is not None and domain.source == "data":
        caveats.append("The list of categories was taken from the data: which ones occur is not protected.")
    if drop_missing:
        caveats.append("Rows without a value were left out: who has one, and the number of users, is not protected.")
    return replace(estimate, caveats=tuple(caveats))
