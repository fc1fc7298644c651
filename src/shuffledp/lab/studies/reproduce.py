"""Run studies and write what they found: all files of a study, or none."""

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
from multiprocessing import TimeoutError as NotYetError
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import shuffledp
from shuffledp.errors import OutputError
from shuffledp.figures import DARK, LIGHT, check_figure_packages, picture_of
from shuffledp.lab.studies.checks import Check
from shuffledp.lab.studies.page import index_page, study_page
from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.study import Outcome, Progress, Settings, Study, Table
from shuffledp.output import write_all, write_whole
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness

_LOOK = 0.1  # seconds until an interrupt is seen, at most

Picture = tuple[str, bytes, bytes]
"""A description with the figure as SVG, in light and in dark."""


@dataclass(frozen=True)
class Report:
    """What a study found, in short, and which files hold it."""

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
        """Whether everything lies on the right side of its bound."""
        return all(check.holds for check in self.checks)

    @property
    def page(self) -> str:
        """The file to open first."""
        return f"{self.study}.html"

    def table_file(self, name: str) -> str:
        """The file of a table by its name."""
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
        """Back from the JSON form."""
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
    """Run one study, and write its page, figures and data to the folder ``out``, all or nothing."""
    check_figure_packages()
    folder = _folder(out)
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
    write_all({folder / name: content for name, content in contents.items()})
    return report


def reproduce_all(
    out: str | Path,
    *,
    quick: bool = False,
    seed: int | None = None,
    resume: bool = False,
    workers: int = 1,
    progress: Progress = lambda _: None,
    told: Callable[[Report], None] = lambda _: None,
) -> list[Report]:
    """Run every study, and write an index page over all of them at the end.

    ``resume`` keeps studies that are there already, made by this version in the same form. With several ``workers``,
    as many studies run at a time, each in a process of its own. ``told`` hears of each study as it is finished.
    """
    check_figure_packages()
    folder = _folder(out)
    kept = {name: _finished(folder, name, quick, seed) for name in STUDIES} if resume else {}
    finished = {name: report for name, report in kept.items() if report is not None}
    for report in finished.values():
        told(report)
    jobs = [(name, folder, quick, seed) for name in STUDIES if name not in finished]
    progress(len(finished) / len(STUDIES))
    for report in _one_by_one(jobs, progress) if workers <= 1 else _at_once(jobs, workers):
        finished[report.study] = report
        told(report)
        progress(len(finished) / len(STUDIES))
    reports = [finished[name] for name in STUDIES]
    pictures = [_main_picture(folder, report) for report in reports]
    write_whole(folder / "index.html", index_page(reports, pictures))
    return reports


Job = tuple[str, Path, bool, int | None]


def _one_by_one(jobs: Sequence[Job], progress: Progress) -> Iterator[Report]:
    before = len(STUDIES) - len(jobs)
    for place, (name, folder, quick, seed) in enumerate(jobs, start=before):
        yield reproduce(name, folder, quick=quick, seed=seed, progress=_share(progress, place))


def _at_once(jobs: Sequence[Job], workers: int) -> Iterator[Report]:
    """Several studies at a time; if this process is interrupted, so are they, with nothing half-written."""
    with get_context("spawn").Pool(workers, initializer=_begin_work) as pool:
        results = pool.imap_unordered(_reproduce, jobs)
        waiting = len(jobs)
        while waiting:
            try:
                report = results.next(timeout=_LOOK)
            except NotYetError:
                continue  # a signal that another thread was given is seen here
            waiting -= 1
            yield report


def _begin_work() -> None:
    """Ctrl-C reaches every process of a terminal; the one that started the others ends them, also by being killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _reproduce(job: Job) -> Report:
    name, folder, quick, seed = job
    return reproduce(name, folder, quick=quick, seed=seed)


def _share(progress: Progress, place: int) -> Progress:
    return lambda fraction: progress((place + fraction) / len(STUDIES))


def _folder(out: str | Path) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot make the folder {folder}: {error.strerror or error}.", path=str(folder)) from None
    return folder


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
        pictures.append((figure.description, light, dark))
    return contents | {report.page: study_page(study, outcome, pictures, report)}


def _stem(study: str, name: str) -> str:
    return f"{study}-{name}" if name else study


def _as_csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return text.getvalue().encode()


def _as_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _finished(folder: Path, name: str, quick: bool, seed: int | None) -> Report | None:
    """The report of a study that is there with all its files, made by this version in this form."""
    try:
        report = Report.from_json(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = (report.quick, report.seed, report.version) == (quick, seed, shuffledp.__version__)
    return report if same and all((folder / file).is_file() for file in report.files) else None


def _main_picture(folder: Path, report: Report) -> Picture:
    light, dark = ((folder / f"{report.study}{end}.svg").read_bytes() for end in ("", "-dark"))
    return report.title, light, dark
