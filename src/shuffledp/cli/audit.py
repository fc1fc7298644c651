"""``shuffledp audit``: what an adversary really sees, against what is claimed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shuffledp.cli.options import (
    Calibration,
    CalibrationOption,
    DeltaOption,
    EpsilonOption,
    HonestFractionOption,
    JsonOption,
    PlotOption,
    UsersOption,
    number,
    whole_number,
)
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.domain import Interval
from shuffledp.figures import check_figure_path
from shuffledp.output import write_whole
from shuffledp.protocols.registry import find_qualified
from shuffledp.testing.audit import FAULTS, AuditResult, plant
from shuffledp.testing.audit import audit as audit_protocol

__all__ = ["audit"]


def audit(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="As question/name, for example count/cheu.")],
    users: UsersOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    domain_size: Annotated[
        int, typer.Option("--domain-size", parser=whole_number, metavar="D", help="Categories of a histogram.")
    ] = 2,
    lower: Annotated[float, typer.Option("--lower", parser=number, metavar="L", help="Lower bound of a sum.")] = 0.0,
    upper: Annotated[float, typer.Option("--upper", parser=number, metavar="U", help="Upper bound of a sum.")] = 1.0,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            parser=whole_number,
            metavar="T",
            help="Rounds under each of two data sets; as many as take some seconds if not given.",
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", parser=number, metavar="C", help="That the lower bound is right.")
    ] = 0.95,
    calibration: CalibrationOption = Calibration.tight,
    honest_fraction: HonestFractionOption = 1.0,
    planted: Annotated[
        str | None,
        typer.Option("--plant", metavar="FAULT", help=f"Audit a copy broken on purpose: {', '.join(FAULTS)}."),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a protocol many times, and bound its epsilon from below by what was seen.

    The exit status is 1 if the claim is exposed as false, else 0. A lower bound under the claim proves nothing; one
    above it proves a fault. With few users and a large delta an audit sees the most.

    Example: shuffledp audit count/cheu --users 100 --epsilon 1 --delta 1e-3
    """
    if plot is not None:
        check_figure_path(plot)
    kind = find_qualified(protocol)
    settings: dict[str, Any] = {"users": users, "epsilon": epsilon, "delta": delta, "honest_fraction": honest_fraction}
    if kind.question == "histogram":
        settings["domain_size"] = domain_size
    elif kind.question == "sum":
        settings["domain"] = Interval(lower, upper)
    chosen = kind.calibrate(calibration=calibration, **settings)
    fault = plant(chosen, planted) if planted is not None else None
    with progress_bar("auditing") as progress:
        options: dict[str, Any] = {"trials": trials, "confidence": confidence, "progress": progress}
        result = fault.audit(**options) if fault is not None else audit_protocol(chosen, **options)
    if plot is not None:
        write_whole(plot, result.figure(plot.suffix.lower()))
        note(f"wrote {plot}")
    if as_json:
        print_json(result.to_json())
    else:
        _show(result, users)
    if result.exposed:
        raise typer.Exit(1)


def _show(result: AuditResult, users: int) -> None:
    finding = result.finding
    evidence = finding.evidence
    if result.planted:
        say(f"PLANTED FAULT: {result.planted}. This audits a copy broken on purpose, not the protocol.")
    print_table(
        ["delta", "epsilon at least", "epsilon claimed"],
        [
            [f"{point.delta:.3g}", f"{point.epsilon_at_least:.4g}", f"{point.epsilon_claimed:.4g}"]
            for point in result.points
        ],
        title=f"{result.question}/{result.protocol}, {users:,} users, {result.trials:,} rounds under each data set",
    )
    say(f"Data sets: {finding.data_sets}.")
    say(
        f"Event: {finding.event}. Seen {evidence.hits:,} times under the one and {evidence.other_hits:,} times "
        "under the other."
    )
    say(result.sentence())
