"""``shuffledp demo``: a whole collection on this machine, compared with the true counts."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from typer.core import TyperCommand

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

if TYPE_CHECKING:
    from shuffledp.collection.rehearsal import Rehearsal

_EPSILON = 1.0
_DELTA = 1e-6
_PAGE, _FIGURE = Path("shuffledp-demo.html"), Path("shuffledp-demo.png")
_MIN_DEVICES, _MAX_DEVICES = 1000, 25_000


def demo(
    devices: Annotated[
        int, typer.Option("--devices", parser=integer, metavar="N", help="Number of simulated devices.")
    ] = 4000,
    page: Annotated[
        str | None,
        typer.Option(
            "--page",
            metavar="[FILE]",
            show_default=str(_PAGE),
            help="Where to write the page that the analyzer publishes. Without FILE, a survey page on which you answer "
            "in your browser, and both servers keep running until Ctrl-C.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", show_default=str(_FIGURE), help="Where to draw the figure."),
    ] = None,
    chain: Annotated[bool, typer.Option("--chain", help="Two shufflers in a chain: one honest one is enough.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Collect how people commute from thousands of simulated devices, through a real shuffler and analyzer.

    Both servers run on this machine. The task is verified as a device does; then each simulated device randomizes and
    seals its answer and sends it over HTTP; the shuffler shuffles all messages; the analyzer opens them and publishes
    one estimate. With --page alone, the last report of the round is yours.

    Example: shuffledp demo --devices 2000 --plot commute.svg
    """
    need_packages()
    if not _MIN_DEVICES <= devices <= _MAX_DEVICES:
        raise ParameterError(f"The demo takes {_MIN_DEVICES:,} to {_MAX_DEVICES:,} devices, not {devices:,}.")
    if page == "":
        if plot is not None or as_json or chain:
            raise ParameterError("--page without FILE runs until Ctrl-C; it takes neither --plot, --chain nor --json.")
        _survey(devices)
    else:
        _collect(devices, Path(page) if page else _PAGE, plot or _FIGURE, as_json, hops=2 if chain else 1)


class _OptionalValue(TyperCommand):
    """A command whose option --page may be given without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args, "-"][1:]
        pairs = [
            [arg, ""] if arg == "--page" and after.startswith("-") else [arg]
            for arg, after in zip(args, following, strict=True)
        ]
        parsed: list[str] = super().parse_args(ctx, [part for pair in pairs for part in pair])
        return parsed


demo.command_class = _OptionalValue  # type: ignore[attr-defined]


def _collect(devices: int, page: Path, plot: Path, as_json: bool, *, hops: int) -> None:
    """Run a round of simulated devices, and write its figure and its page."""
    from shuffledp.collection.device import Policy

    check_figure_path(plot)
    check_writable(page)
    answers = _answers(devices)
    truth = _truth(answers)
    with tempfile.TemporaryDirectory(prefix="shuffledp-demo-") as directory:
        started = time.monotonic()
        rehearsal = _rehearsal(Path(directory), devices, hops=hops)
        task = rehearsal.task.verify(rehearsal.author)
        Policy(max_epsilon=_EPSILON, max_delta=_DELTA).check(task)
        show = note if as_json else say
        show(
            f"{devices:,} devices each hold an answer: how did you get to work today? The signature of the task was "
            "verified and its guarantee recomputed, as every device does."
        )
        if hops > 1:
            show(
                "Two shufflers pass every message on: the first opens the outer seal of reports, the second a layer of "
                "each message. The analyzer, and one of them, cannot link messages to devices if the other is honest."
            )
        with waiting("Starting the shufflers and the analyzer"), rehearsal.servers():
            _report(rehearsal, answers)
            with waiting("The shuffler shuffles all messages, and the analyzer opens them"):
                release = rehearsal.release()
                content = rehearsal.published("/page")
        seconds = time.monotonic() - started
    show(
        f"{devices:,} reports of {task.messages_per_report} sealed messages of {task.sealed_size} bytes were stored, "
        f"shuffled and opened in {seconds:.0f} s; {release['messages']['rejected']:,} messages were rejected."
    )
    picture = bars(
        plot.suffix.lower(),
        names=release["categories"],
        values=np.array(release["counts"]),
        errors=np.array(release["standard_errors"]),
        intervals=np.array(release["intervals"]),
        withheld_below=release["withheld_below"],
        users=release["users"],
        truth=np.array(truth, dtype=np.float64),
        title=f"How {devices:,} people got to work, privately",
        value_title=f"users (of {devices:,})",
        caption=[
            "Bars: private estimate with its 95% interval. Triangles: the truth.",
            f"Differentially private in the shuffled model: epsilon = {_EPSILON:g}, delta = {_DELTA:g}.",
        ],
    )
    write_all({plot: picture, page: content})
    if as_json:
        print_json(release | {"truth": truth, "seconds": round(seconds, 3)})
    else:
        _show(release, _numbers(release), truth)
    show(f"Figure: {plot}. Published page: {page}")
    if not as_json:
        say(f"To answer such a question in your own browser: {_program()} demo --page")


def _survey(devices: int) -> None:
    """Let the person at this machine send the last report of a round, on a survey page, and show the release."""
    from shuffledp.collection.rehearsal import free_ports
    from shuffledp.collection.survey.serving import SiteServer
    from shuffledp.collection.survey.site import BuiltSite, Survey, write_site

    answers = _answers(devices)[: devices - 1]
    with tempfile.TemporaryDirectory(prefix="shuffledp-demo-") as directory, suppress(KeyboardInterrupt):
        (port,) = free_ports(1)
        rehearsal = _rehearsal(Path(directory), devices, origins=[f"http://127.0.0.1:{port}"])
        survey = Survey.verified(
            rehearsal.task.to_bytes(),
            author=rehearsal.author,
            server=rehearsal.shuffler_url,
            asker="The demo of shuffledp",
        )
        write_site(survey, Path(directory, "site"))
        site = BuiltSite.load(Path(directory, "site"))
        with ExitStack() as running:
            with waiting("Starting the shuffler and the analyzer"):
                running.enter_context(rehearsal.servers())
            _report(rehearsal, answers)
            origin = running.enter_context(SiteServer(site, port).running())
            say(
                f"{len(answers):,} simulated devices have answered how they got to work. One answer is missing for a "
                "release: yours."
            )
            say(f"Open {origin}/ in your browser. Ctrl-C ends the demo.")
            release = _wait_for_release(rehearsal)
            url = f"{rehearsal.analyzer_url}/v1/releases/{rehearsal.task.task.id.hex()}/page"
            site.publish(url)
            _show(release, _numbers(release), _truth(answers))
            say(f"The truth is that of the {len(answers):,} simulated devices; only you know your answer.")
            say(f"The release is published at {url} until Ctrl-C ends the demo.")
            while True:
                time.sleep(3600)
    say("The demo has ended. Nothing of it was kept.")


def _wait_for_release(rehearsal: Rehearsal) -> dict[str, Any]:
    from shuffledp.errors import UnreachableError

    while True:
        with suppress(UnreachableError):
            return rehearsal.release(seconds=60.0)


def _rehearsal(directory: Path, devices: int, *, origins: Sequence[str] = (), hops: int = 1) -> Rehearsal:
    """The parties of a round."""
    from shuffledp.collection.rehearsal import Rehearsal

    return Rehearsal.prepare(
        directory,
        kind=UniformBlanketHistogram,
        settings={"users": devices, "categories": Categories.of(COMMUTE_MODES)},
        epsilon=_EPSILON,
        delta=_DELTA,
        name="How people get to work",
        description="How did you get to work today?",
        origins=origins,
        version=2,
        hops=hops,
    )


def _program() -> str:
    """How this program was called, so that the printed command can be copied."""
    program = Path(sys.argv[0])
    if program.name == "shuffledp" and program.is_absolute() and program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return "shuffledp"


def _truth(answers: list[str]) -> list[int]:
    domain = Categories.of(COMMUTE_MODES)
    counts: list[int] = np.bincount(domain.encode_all(answers), minlength=len(domain)).tolist()
    return counts


def _numbers(release: dict[str, Any]) -> list[ShownNumber]:
    return show_counts(
        release["counts"],
        release["standard_errors"],
        release["intervals"],
        users=release["users"],
        withheld_below=release["withheld_below"],
    )


def _answers(devices: int) -> list[str]:
    from shuffledp.engines.files import FileTable

    answers: list[str] = []
    for (batch,) in FileTable(commute_path()).read(["mode"]):
        answers += [text for text in batch.to_pylist() if text is not None]
        if len(answers) >= devices:
            break
    return answers[:devices]


def _report(rehearsal: Rehearsal, answers: list[str]) -> None:
    from shuffledp.collection.device import Connection, Devices

    with progress_bar(f"{len(answers):,} devices report") as progress:
        summary = Devices(
            rehearsal.task.task,
            answers,
            connect=lambda: Connection(rehearsal.shuffler_url),
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
