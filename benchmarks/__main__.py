"""Run the benchmarks; the exit status is 1 if a measurement violates its bound."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module

from rich.console import Console
from rich.table import Table

from benchmarks.finding import Finding
from benchmarks.machine import describe_machine

_SUBJECTS = (
    "keystream",
    "bernoulli",
    "histogram",
    "counts",
    "local_histograms",
    "protocols",
    "start",
    "calibration",
    "planning",
    "amplification",
    "parquet",
    "mean",
    "users",
    "strings",
    "shuffle",
    "counting",
    "mixing",
    "opening",
    "web_client",
    "ingest",
    "outer_seal",
    "hop",
    "demo",
)
_WITH_SPARK = ("spark", "spark_mixing")
"""Measured only by name, in the environment of ``make test-spark``."""


def main() -> int:
    """Measure the chosen subjects and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subjects",
        nargs="*",
        metavar="NAME",
        help=f"any of {', '.join(_SUBJECTS)}; all if none; or {', '.join(_WITH_SPARK)}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and no largest sizes")
    options = parser.parse_args()
    if unknown := set(options.subjects) - {*_SUBJECTS, *_WITH_SPARK}:
        parser.error(f"there is no subject {', '.join(sorted(unknown))}; choose from {', '.join(_SUBJECTS)}")
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 120
    results: dict[str, list[Finding]] = {}
    for subject in options.subjects or _SUBJECTS:
        start = time.perf_counter()
        results[subject] = []
        for finding in _measure(subject)(options.quick):
            results[subject].append(finding)
            console.print(_line(subject, finding), markup=False)
        console.print(f"{subject}: took {time.perf_counter() - start:.0f} s", markup=False, style="dim")
    console.print(_table(results))
    console.print(describe_machine(), markup=False)
    missed = [f"{subject}: {each.what}" for subject, findings in results.items() for each in findings if each.missed]
    for each in missed:
        console.print(f"missed: {each}", markup=False, style="red")
    return 1 if missed else 0


def _measure(subject: str) -> Callable[[bool], Iterator[Finding]]:
    measure: Callable[[bool], Iterator[Finding]] = import_module(f"benchmarks.{subject}").measure
    return measure


def _line(subject: str, finding: Finding) -> str:
    detail = f" ({finding.detail})" if finding.detail else ""
    bound = f", bound {finding.bound}: {finding.verdict}" if finding.bound else ""
    return f"{subject}: {finding.what}: {finding.measured}{detail}{bound}"


def _table(results: dict[str, list[Finding]]) -> Table:
    table = Table(title="Ratios measured side by side")
    table.add_column("subject")
    table.add_column("what", ratio=1)
    for column in ("measured", "bound", "verdict"):
        table.add_column(column, justify="right", no_wrap=True)
    for subject, findings in results.items():
        for index, finding in enumerate(findings):
            style = "red" if finding.missed else None
            row = (subject if index == 0 else "", finding.what, finding.measured, finding.bound, finding.verdict)
            table.add_row(*row, style=style, end_section=index == len(findings) - 1)
    return table


if __name__ == "__main__":
    sys.exit(main())
