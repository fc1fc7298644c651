"""``shuffledp audit``: an empirical lower bound on epsilon, against the claim."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shuffledp.cli.options import (
    Calibration,
    CalibrationOption,
    ConfidenceOption,
    EpsilonOption,
    JsonOption,
    PlotOption,
    QualifiedProtocolOptions,
    integer,
    takes_groups,
)
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.figures import check_figure_path
from shuffledp.output import write_whole
from shuffledp.protocols.registry import find_qualified
from shuffledp.testing.audit import FAULTS, AuditResult, plant
from shuffledp.testing.audit import audit as audit_protocol


@takes_groups
def audit(
    options: QualifiedProtocolOptions,
    epsilon: EpsilonOption,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            parser=integer,
            metavar="T",
            help="Rounds on each of two data sets; by default as many as take a few seconds.",
        ),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    calibration: CalibrationOption = Calibration.tight,
    planted: Annotated[
        str | None,
        typer.Option("--plant", metavar="FAULT", help=f"Audit a deliberately broken copy: {', '.join(FAULTS)}."),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a protocol many times, and compute a lower bound on its epsilon from the outcomes.

    The exit status is 1 if the bound exceeds the claimed epsilon, which proves a fault; else 0, which proves nothing.
    Audits are most sensitive with few users and a large delta.

    Example: shuffledp audit count/cheu --users 100 --epsilon 1 --delta 1e-3
    """
    if plot is not None:
        check_figure_path(plot)
    kind = find_qualified(options.protocol)
    chosen = kind.calibrate(epsilon=epsilon, calibration=calibration, **options.arguments(kind))
    fault = plant(chosen, planted) if planted is not None else None
    with progress_bar("auditing") as progress:
        parameters: dict[str, Any] = {"trials": trials, "confidence": confidence, "progress": progress}
        result = fault.audit(**parameters) if fault is not None else audit_protocol(chosen, **parameters)
    if plot is not None:
        write_whole(plot, result.figure(plot.suffix.lower()))
        note(f"wrote {plot}")
    if as_json:
        print_json(result.to_json())
    else:
        _show(result, options.users)
    if result.exposed:
        raise typer.Exit(1)


def _show(result: AuditResult, users: int) -> None:
    finding = result.finding
    evidence = finding.evidence
    if result.planted:
        say(f"PLANTED FAULT: {result.planted}. This audits a deliberately broken copy, not the protocol.")
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
        f"Event: {finding.event}; observed {evidence.hits:,} times on the likelier data set and "
        f"{evidence.other_hits:,} times on the other data set."
    )
    say(result.sentence())
