"""``shuffledp survey``: build a static site on which people answer a task or a series in browsers, and try it."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shuffledp.cli.options import (
    AuthorOption,
    HttpOptions,
    JsonOption,
    OptionalTaskOption,
    PolicyOptions,
    integer,
    takes_groups,
)
from shuffledp.cli.screen import note, note_warnings, plain, print_json, say
from shuffledp.cli.task_files import errors_in, read_task_bytes, read_verifying_key
from shuffledp.errors import ParameterError, RefusedError
from shuffledp.extras import check_extra

if TYPE_CHECKING:
    from shuffledp.collection.survey.site import BuiltSite
    from shuffledp.collection.task.task import Task
    from shuffledp.collection.transport.connection import Connection

survey_app = typer.Typer(
    help="Survey pages: build a static site for a task or a series, and try it.", no_args_is_help=True
)

SiteArgument = Annotated[Path, typer.Argument(metavar="SITE", help="A directory that `survey build` wrote.")]


class Language(StrEnum):
    """The language of the page; name, description and answers are those of the task."""

    EN = "en"
    DE = "de"


@dataclass(frozen=True, kw_only=True)
class PartyOptions:
    """Who asks, and where the page and the servers are."""

    server: Annotated[str, typer.Option("--server", metavar="URL", help="The shuffler: https://shuffler.example.")]
    asker: Annotated[str, typer.Option("--asker", metavar="NAME", help="Who asks, shown to people.")]
    analyzer: Annotated[
        str | None, typer.Option("--analyzer", metavar="URL", help="The analyzer, for the check of host names.")
    ] = None
    origin: Annotated[
        str | None,
        typer.Option("--origin", metavar="URL", help="Where the page will be served: https://survey.example."),
    ] = None


@survey_app.command("build")
@takes_groups
def build_survey(
    author: AuthorOption,
    parties: PartyOptions,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new directory for the site.")],
    policy: PolicyOptions,
    task: OptionalTaskOption = None,
    series: Annotated[
        Path | None,
        typer.Option("--series", metavar="FILE", help="Instead of --task: a signed series, asked in all its rounds."),
    ] = None,
    language: Annotated[
        Language, typer.Option("--language", metavar="LANGUAGE", help="Language of the page: en or de.")
    ] = Language.EN,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Reports need an enrolment token, which the link of each person has.")
    ] = False,
    kiosk: Annotated[
        bool, typer.Option("--kiosk", help="Several people answer on one device, one after the other.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build a static site that asks the question of a task or a series and sends sealed answers to the shuffler.

    The task is verified, and its id is written into the page, which accepts no other task. The page of a series finds
    the open round by the clock, and each browser takes part in the rounds that it draws. Serve the files from a host
    that neither the shuffler nor the analyzer controls, and list its origin in the settings of the shuffler.

    Example: shuffledp survey build --task task.json --author author.key.pub --server https://shuffler.example
    --asker "City statistics office" --out site
    """
    from shuffledp.collection.survey.site import NOT_SERVED, Survey, write_site
    from shuffledp.collection.task.authentic import authentic_task
    from shuffledp.collection.task.series import MAX_SERIES_BYTES, authentic_series
    from shuffledp.durable_files import read_limited

    check_extra("collection", "Building a page", "jinja2")
    path = series or task
    if path is None or (task is not None and series is not None):
        raise ParameterError("Give --task FILE, or --series FILE for the rounds of a series.")
    key = read_verifying_key(author)
    signed = read_task_bytes(path) if series is None else read_limited(path, MAX_SERIES_BYTES, "series")
    with errors_in(path):
        rounds = authentic_series(signed, key) if series is not None else None
        verified = authentic_task(signed, key) if rounds is None else rounds.task(0)
    survey = Survey(
        signed=signed,
        task=verified,
        series=rounds,
        author=key,
        server=parties.server,
        asker=parties.asker,
        analyzer=parties.analyzer or "",
        origin=parties.origin or "",
        language=language.value,
        tokens=tokens,
        kiosk=kiosk,
        policy=policy.policy(),
    )
    contents = write_site(survey, out)
    served = {name: hashlib.sha256(contents[name]).hexdigest() for name in contents if name != NOT_SERVED}
    warnings = survey.warnings()
    if as_json:
        print_json(
            {
                "task": survey.id.hex(),
                "out": str(out),
                "files": [
                    {"name": name, "bytes": len(contents[name]), "sha256": digest} for name, digest in served.items()
                ],
                "fingerprint": served["integrity.txt"],
                "warnings": warnings,
            }
        )
    else:
        size = sum(len(contents[name]) for name in served)
        say(f"The survey {plain(verified.name)} is in {out}: {len(served)} files of {size:,} bytes in all.")
        say(f"Publish its fingerprint, the SHA-256 of integrity.txt: {served['integrity.txt']}")
        say(f"Try it: shuffledp survey serve {out}")
    note_warnings(warnings)


@survey_app.command("serve")
def serve_survey(
    site: SiteArgument,
    port: Annotated[
        int, typer.Option("--port", parser=integer, metavar="N", help="Port to listen on; 0 for any.")
    ] = 8360,
    as_json: JsonOption = False,
) -> None:
    """Serve a site on this machine alone, to try it, with the headers that a real host must send. Ctrl-C ends it.

    Example: shuffledp survey serve site
    """
    from shuffledp.collection.survey.serving import SiteServer
    from shuffledp.collection.survey.site import BuiltSite

    built = BuiltSite.load(site)
    with _stop_signals_held() as stops, SiteServer(built, port).running() as origin:
        if as_json:
            print_json({"task": built.id.hex(), "origin": origin})
        else:
            say(f"{origin}/ (Ctrl-C ends it)")
        note(f'the shuffler must allow this page: origins = ["{origin}"]')
        signal.sigwait(stops)
        note("ended.")


@contextmanager
def _stop_signals_held() -> Iterator[set[signal.Signals]]:
    """Block SIGINT and SIGTERM, so that they interrupt nothing; ``signal.sigwait`` receives them."""
    stops = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    try:
        yield stops
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@survey_app.command("publish")
@takes_groups
def publish_result(
    site: SiteArgument,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The analyzer: https://analyzer.example.")],
    http: HttpOptions,
    as_json: JsonOption = False,
) -> None:
    """Make the page link to the published result, once the analyzer has one; of a series, to that of the latest round.

    Example: shuffledp survey publish site --server https://analyzer.example
    """
    from shuffledp.collection.device import Connection
    from shuffledp.collection.device.release import FORMS
    from shuffledp.collection.survey.site import BuiltSite

    built = BuiltSite.load(site)
    with Connection(server, insecure_http=http.insecure_http, authorities=http.ca) as connection:
        task = _released(built, connection)
    url = f"{server.rstrip('/')}/v1/releases/{task.id.hex()}{FORMS['html']}"
    built.publish(url)
    if as_json:
        print_json({"task": task.id.hex(), "url": url, "file": str(site / "result.json")})
    else:
        say(f"The page links to {url}. Copy {site / 'result.json'} to its host.")


def _released(built: BuiltSite, connection: Connection) -> Task:
    """The task of the site, or of the latest round of its series, that has a release; RefusedError if there is none."""
    from shuffledp.collection.device.release import fetch_release

    if built.series is None:
        tasks, subject = [built.task], "this task"
    else:
        elapsed = (datetime.now(UTC) - built.task.opens) // timedelta(seconds=built.series.period)
        begun = range(min(elapsed, len(built.series.keys) - 1), -1, -1)
        tasks, subject = [built.series.task(index) for index in begun], "any round of this series"
    released = next((task for task in tasks if fetch_release(connection, task) is not None), None)
    if released is None:
        raise RefusedError(
            f"There is no release of {subject}, or not yet; its round closes at "
            f"{(tasks or [built.task])[0].closes:%Y-%m-%d %H:%M} UTC."
        )
    return released
