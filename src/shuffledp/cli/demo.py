"""``shuffledp demo``: a whole collection on this machine, compared with the true counts."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shuffledp.cli.options import JsonOption, integer
from shuffledp.cli.screen import note, print_json, print_table, progress_bar, say, waiting
from shuffledp.cli.serve import need_packages
from shuffledp.datasets import COMMUTE_MODES, commute_path
from shuffledp.display import ShownNumber, show_counts
from shuffledp.domain import Categories
from shuffledp.errors import ParameterError, RefusedError
from shuffledp.figures import bars, check_figure_path
from shuffledp.output import check_writable, write_all
from shuffledp.protocols.histogram.uniform_blanket import UniformBlanketHistogram

_EPSILON = 1.0
_DELTA = 1e-6
_PAGE, _FIGURE = Path("shuffledp-demo.html"), Path("shuffledp-demo.png")
_MIN_DEVICES, _MAX_DEVICES = 1000, 25_000


def demo(
    devices: Annotated[
        int, typer.Option("--devices", parser=integer, metavar="N", help="Number of simulated devices.")
    ] = 4000,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            show_default=str(_PAGE),
            help="Where to write the page that the analyzer publishes.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", show_default=str(_FIGURE), help="Where to draw the figure."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Collect how people commute from thousands of simulated devices, through a real shuffler and analyzer.

    Both servers run on this machine. The task is verified as a device does; then each simulated device randomizes and
    seals its answer and sends it over HTTP; the shuffler shuffles all messages; the analyzer opens them and publishes
    one estimate.

    Example: shuffledp demo --devices 2000 --plot commute.svg
    """
    from shuffledp.collection.device import Connection, Devices, Policy
    from shuffledp.collection.rehearsal import Rehearsal

    need_packages()
    page, plot = page or _PAGE, plot or _FIGURE
    check_figure_path(plot)
    check_writable(page)
    if not _MIN_DEVICES <= devices <= _MAX_DEVICES:
        raise ParameterError(f"The demo takes {_MIN_DEVICES:,} to {_MAX_DEVICES:,} devices, not {devices:,}.")
    domain = Categories.of(COMMUTE_MODES)
    answers = _answers(devices)
    truth = np.bincount(domain.encode_all(answers), minlength=len(domain))
    with tempfile.TemporaryDirectory(prefix="shuffledp-demo-") as directory:
        started = time.monotonic()
        rehearsal = Rehearsal.prepare(
            Path(directory),
            kind=UniformBlanketHistogram,
            settings={"users": devices, "categories": domain},
            epsilon=_EPSILON,
            delta=_DELTA,
            name="How people get to work",
            description="How did you get to work today?",
        )
        task = rehearsal.task.verify(rehearsal.author)
        Policy(max_epsilon=_EPSILON, max_delta=_DELTA).check(task)
        show = note if as_json else say
        show(
            f"{devices:,} devices each hold an answer: how did you get to work today? The signature of the task was "
            "verified and its guarantee recomputed, as every device does."
        )
        with waiting("Starting the shuffler and the analyzer"), rehearsal.servers():
            _report(rehearsal, Devices, Connection, answers)
            with waiting("The shuffler shuffles all messages, and the analyzer opens them"):
                release = rehearsal.release()
                content = rehearsal.published("/page")
        seconds = time.monotonic() - started
    show(
        f"{devices:,} reports of {task.messages_per_report} sealed messages of {task.sealed_size} bytes were stored, "
        f"shuffled and opened in {seconds:.0f} s; {release['messages']['rejected']:,} messages were rejected."
    )
    numbers = show_counts(
        release["counts"],
        release["standard_errors"],
        release["intervals"],
        users=release["users"],
        withheld_below=release["withheld_below"],
    )
    picture = bars(
        plot.suffix.lower(),
        names=release["categories"],
        values=np.array(release["counts"]),
        errors=np.array(release["standard_errors"]),
        intervals=np.array(release["intervals"]),
        withheld_below=release["withheld_below"],
        users=release["users"],
        truth=truth.astype(np.float64),
        title=f"How {devices:,} people got to work, privately",
        value_title=f"users (of {devices:,})",
        caption=[
            "Bars: private estimate with its 95% interval. Triangles: the truth.",
            f"Differentially private in the shuffled model: epsilon = {_EPSILON:g}, delta = {_DELTA:g}.",
        ],
    )
    write_all({plot: picture, page: content})
    if as_json:
        print_json(release | {"truth": truth.tolist(), "seconds": round(seconds, 3)})
    else:
        _show(release, numbers, truth.tolist())
    show(f"Figure: {plot}. Published page: {page}")


def _answers(devices: int) -> list[str]:
    from shuffledp.engines.files import FileTable

    answers: list[str] = []
    for (batch,) in FileTable(commute_path()).read(["mode"]):
        answers += [text for text in batch.to_pylist() if text is not None]
        if len(answers) >= devices:
            break
    return answers[:devices]


def _report(rehearsal: Any, devices: Any, connection: Any, answers: list[str]) -> None:
    with progress_bar(f"{len(answers):,} devices report") as progress:
        summary = devices(
            rehearsal.task.task,
            answers,
            connect=lambda: connection(rehearsal.shuffler_url),
            progress=progress,
        ).report()
    if summary.delivered < summary.devices:
        raise RefusedError(
            f"Only {summary.delivered:,} of {summary.devices:,} reports were accepted: {summary.refused}."
        )


def _show(release: dict[str, Any], numbers: list[ShownNumber], truth: list[int]) -> None:
    print_table(
        ["mode", "private estimate", "95% interval", "truth", "off by"],
        [
            [name, number.text, number.interval, f"{true:,}", f"{round(number.value) - true:+,}"]
            for name, number, true in zip(release["categories"], numbers, truth, strict=True)
        ],
    )
    guarantee = release["guarantee"]
    say(
        f"Epsilon is {guarantee['epsilon']:g} and delta {guarantee['delta']:g}, as long as "
        f"{guarantee['honest_users']:,} users follow the protocol and the shuffler does not collude with the analyzer."
    )
