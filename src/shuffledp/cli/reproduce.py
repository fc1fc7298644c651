"""``shuffledp reproduce``: measure a table, theorem or claim of the literature and write a page about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shuffledp.cli.options import JsonOption, SeedOption, integer
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say
from shuffledp.errors import ParameterError
from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.reproduce import Report, reproduce_all
from shuffledp.lab.studies.reproduce import reproduce as reproduce_one

_MAX_SHOWN = 5


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(STUDIES)}, or all.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to write to; created if missing.")],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version that takes seconds.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="With all: skip studies that are finished in the directory.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            parser=integer,
            metavar="W",
            help="With all: number of parallel processes; by default one per core.",
        ),
    ] = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a table, theorem or claim of the literature; write data, figures and a page that explains it.

    The exit status is 1 if a measurement violates its bound, else 0.

    Example: shuffledp reproduce theorem11 --quick --out studies
    """
    if not str(out).strip() or str(out) == ".":
        raise ParameterError("--out must name a directory of its own.")
    if workers is not None and workers < 1:
        raise ParameterError(f"--workers must be at least 1, not {workers}.")
    if name != "all" and (resume or workers is not None):
        raise ParameterError("--resume and --workers are options of reproduce all.")
    if name == "all":
        with progress_bar("all studies") as progress:
            reports = reproduce_all(
                out,
                quick=quick,
                seed=seed,
                resume=resume,
                workers=workers or os.cpu_count() or 1,
                progress=progress,
                on_report=lambda report: note(_line(report)),
            )
        page = out / "index.html"
    else:
        find_study(name)
        with progress_bar(name) as progress:
            reports = [reproduce_one(name, out, quick=quick, seed=seed, progress=progress)]
        page = out / reports[0].page
    if as_json:
        print_json({"page": str(page), "studies": [report.to_json() for report in reports]})
    else:
        _show(reports, page)
    if not all(report.holds for report in reports):
        raise typer.Exit(1)


def _line(report: Report) -> str:
    state = "holds" if report.holds else "FAILS"
    return f"{report.study} {state}: {len(report.checks):,} checks, {report.seconds:.0f} s"


def _show(reports: list[Report], page: Path) -> None:
    print_table(
        ["study", "checks", "failed", "seconds"],
        [
            [
                report.study,
                f"{len(report.checks):,}",
                f"{sum(not check.holds for check in report.checks):,}",
                f"{report.seconds:.1f}",
            ]
            for report in reports
        ],
    )
    failed = [(report, check) for report in reports for check in report.checks if not check.holds]
    for report, check in failed[:_MAX_SHOWN]:
        say(
            f"FAILS: {report.study}: {check.claim} at {check.where}: {check.measured:.4g} should be "
            f"{check.relation} {check.bound:.4g} ({check.evidence})."
        )
    if len(failed) > _MAX_SHOWN:
        say(f"FAILS: {len(failed) - _MAX_SHOWN:,} more; the pages list them.")
    say(f"Open {page}")
