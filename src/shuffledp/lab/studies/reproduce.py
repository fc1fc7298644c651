"""Running studies and writing their pages, figures and data to a directory."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import TimeoutError as ResultTimeoutError
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import shuffledp
from shuffledp.errors import OutputError
from shuffledp.extras import check_extra
from shuffledp.figures import DARK, LIGHT, check_figure_packages, picture_of
from shuffledp.lab.studies.checks import Check
from shuffledp.lab.studies.page import Picture, index_page, study_page
from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.study import Outcome, Progress, ResultTable, Settings, Study
from shuffledp.output import write_all, write_whole
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness

_POLL_SECONDS = 0.1  # maximum delay until an interrupt is noticed


@dataclass(frozen=True)
class Report:
    """The summary of a finished study: its checks and the names of its files."""

    study: str
    title: str
    source: str
    quick: bool
    seed: int | None
    version: str
    seconds: float
    checks: Sequence[Check]
    files: Sequence[str] = ()

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    @property
    def page(self) -> str:
        """The name of the HTML page."""
        return f"{self.study}.html"

    def table_file(self, name: str) -> str:
        """The file name of a table."""
        return f"{_stem(self.study, name)}.csv"

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "study": self.study,
            "title": self.title,
            "source": self.source,
            "quick": self.quick,
            "insecure_seed": self.seed,
            "version": self.version,
            "seconds": round(self.seconds, 3),
            "holds": self.holds,
            "checks": [check.to_json() for check in self.checks],
            "files": list(self.files),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Report:
        """The report of a JSON document that ``to_json`` made."""
        checks = [
            Check(**{**check, **{key: float("nan") for key in ("measured", "bound") if check[key] is None}})
            for check in document["checks"]
        ]
        return cls(
            document["study"],
            document["title"],
            document["source"],
            document["quick"],
            document["insecure_seed"],
            document["version"],
            document["seconds"],
            checks,
            document["files"],
        )


def reproduce(
    study: str | Study,
    out: str | Path,
    *,
    quick: bool = False,
    seed: int | None = None,
    progress: Progress = lambda _: None,
) -> Report:
    """Run one study, then write all its files (page, figures, data) to the directory ``out``, or none of them."""
    _check_packages()
    directory = _create_directory(out)
    chosen = find_study(study) if isinstance(study, str) else study
    source = SYSTEM if seed is None else InsecureSeededRandomness(seed)
    start = time.perf_counter()
    outcome = chosen.measure(Settings(quick, source, progress))
    seconds = time.perf_counter() - start
    report = Report(
        chosen.name, chosen.title, chosen.source, quick, seed, shuffledp.__version__, seconds, list(outcome.checks)
    )
    contents = _contents(chosen, outcome, report)
    names = (*contents, f"{chosen.name}.json")
    report = Report(**{**report.__dict__, "files": names})
    contents[f"{chosen.name}.json"] = _as_json(report.to_json())
    write_all({directory / name: content for name, content in contents.items()})
    return report


def reproduce_all(
    out: str | Path,
    *,
    quick: bool = False,
    seed: int | None = None,
    resume: bool = False,
    workers: int = 1,
    progress: Progress = lambda _: None,
    on_report: Callable[[Report], None] = lambda _: None,
) -> list[Report]:
    """Run every study, then write the index page.

    ``resume`` skips studies whose files exist already, if they were made by this version with the same settings. With
    several ``workers`` that many studies run in parallel, each in its own process. ``on_report`` is called with the
    report of each study when it is finished.
    """
    _check_packages()
    directory = _create_directory(out)
    existing = {name: _existing_report(directory, name, quick, seed) for name in STUDIES} if resume else {}
    finished = {name: report for name, report in existing.items() if report is not None}
    for report in finished.values():
        on_report(report)
    jobs = [(name, directory, quick, seed) for name in STUDIES if name not in finished]
    progress(len(finished) / len(STUDIES))
    for report in _run_sequentially(jobs, progress) if workers <= 1 else _run_in_parallel(jobs, workers):
        finished[report.study] = report
        on_report(report)
        progress(len(finished) / len(STUDIES))
    reports = [finished[name] for name in STUDIES]
    pictures = [_main_picture(directory, report) for report in reports]
    write_whole(directory / "index.html", index_page(reports, pictures))
    return reports


def _check_packages() -> None:
    """Refuse, before any work is done, to run without the packages that draw figures and render pages."""
    check_figure_packages()
    check_extra("plot", "The page of a study", "jinja2")


Job = tuple[str, Path, bool, int | None]


def _run_sequentially(jobs: Sequence[Job], progress: Progress) -> Iterator[Report]:
    before = len(STUDIES) - len(jobs)
    for number, (name, directory, quick, seed) in enumerate(jobs, start=before):
        yield reproduce(name, directory, quick=quick, seed=seed, progress=_share(progress, number))


def _run_in_parallel(jobs: Sequence[Job], workers: int) -> Iterator[Report]:
    """Several studies at a time; interrupting this process ends all workers, and no study is written partially."""
    with get_context("spawn").Pool(workers, initializer=_initialize_worker) as pool:
        results = pool.imap_unordered(_reproduce, jobs)
        waiting = len(jobs)
        while waiting:
            try:
                report = results.next(timeout=_POLL_SECONDS)
            except ResultTimeoutError:
                continue  # returning to Python regularly lets pending signal handlers run
            waiting -= 1
            yield report


def _initialize_worker() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the parent; exit when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _reproduce(job: Job) -> Report:
    name, directory, quick, seed = job
    return reproduce(name, directory, quick=quick, seed=seed)


def _share(progress: Progress, number: int) -> Progress:
    return lambda fraction: progress((number + fraction) / len(STUDIES))


def _create_directory(out: str | Path) -> Path:
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"Cannot create the directory {directory}: {reason}.", path=str(directory)) from None
    return directory


def _contents(study: Study, outcome: Outcome, report: Report) -> dict[str, bytes]:
    """The files of a study by name."""
    contents = {report.table_file(name): _as_csv(table) for name, table in outcome.tables.items()}
    pictures: list[Picture] = []
    for figure in outcome.figures:
        stem = _stem(study.name, figure.name)
        light, dark = figure.draw(".svg", LIGHT), figure.draw(".svg", DARK)
        contents |= {
            f"{stem}.svg": light,
            f"{stem}-dark.svg": dark,
            f"{stem}.png": picture_of(light),
            f"{stem}-dark.png": picture_of(dark),
        }
        pictures.append(Picture(figure.description, light, dark))
    return contents | {report.page: study_page(study, outcome, pictures, report)}


def _stem(study: str, name: str) -> str:
    return f"{study}-{name}" if name else study


def _as_csv(table: ResultTable) -> bytes:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return output.getvalue().encode()


def _as_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _existing_report(directory: Path, name: str, quick: bool, seed: int | None) -> Report | None:
    """The report of an earlier run, if this version made it with the same settings and all its files exist."""
    try:
        report = Report.from_json(json.loads((directory / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = (report.quick, report.seed, report.version) == (quick, seed, shuffledp.__version__)
    return report if same and all((directory / file).is_file() for file in report.files) else None


def _main_picture(directory: Path, report: Report) -> Picture:
    light, dark = ((directory / f"{report.study}{end}.svg").read_bytes() for end in ("", "-dark"))
    return Picture(report.title, light, dark)
