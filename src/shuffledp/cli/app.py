"""``shuffledp app``: the planner as a page in the browser, on this machine only."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from shuffledp.cli.options import JsonOption, integer
from shuffledp.cli.screen import print_json, say
from shuffledp.errors import ParameterError
from shuffledp.extras import check_extra


def app(
    port: Annotated[
        int, typer.Option("--port", parser=integer, metavar="N", help="Port on 127.0.0.1; 0 for any free one.")
    ] = 8350,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Plan in the browser: sliders, ranked protocols as they are calibrated, a preview of a release, costs.

    The page is for this machine only and stores nothing; Ctrl-C ends it.

    Example: shuffledp app --open
    """
    check_extra("collection", "The planner's page", "starlette", "uvicorn", "httptools", "jinja2", "prometheus_client")
    if not 0 <= port <= 65535:
        raise ParameterError(f"port must be from 0 to 65535, not {port}.")
    from shuffledp.app.server import serve_planner

    def started(url: str) -> None:
        if as_json:
            print_json({"url": url})
        else:
            say(f"The planner is at {url} until Ctrl-C.")
        if open_browser:
            webbrowser.open(url)

    serve_planner(port, started)
