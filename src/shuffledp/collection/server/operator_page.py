"""The operator's page of a server: its overview as HTML and JSON on loopback, for reading only.

It shows one party. A page about both would combine the views of shuffler and analyzer, who must not collude.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from shuffledp.collection.server.loopback import LoopbackPages, asset_routes, revalidated
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse
from shuffledp.display import percent
from shuffledp.errors import ShuffledpError
from shuffledp.pages.rendering import render_page

_TITLES = {"shuffler": "Shuffler", "analyzer": "Analyzer"}
_UNITS = ("B", "kB", "MB", "GB", "TB")
_OVER = ("delivered", "destroyed", "cancelled", "abandoned", "released", "refused")
"""States that never change again."""


class OperatorPage:
    """The application of the page: ``/operator``, and its JSON beside it."""

    def __init__(
        self, role: str, overview: Callable[[bool], Awaitable[dict[str, Any]]], *, release_url: str = ""
    ) -> None:
        self._role, self._overview, self._release_url = role, overview, release_url

    def app(self) -> ASGIApp:
        """The application, which answers only requests of this machine."""

        async def to_page(_: Request) -> RedirectResponse:
            return RedirectResponse("/operator")

        routes = [
            Route("/", to_page),
            Route("/operator", self._show_page),
            Route("/operator/v1/overview", self._show_overview),
            *asset_routes("/static", ("operator.js", "operator.css")),
        ]
        return LoopbackPages(Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS))

    async def _show_overview(self, request: Request) -> PreparedResponse:
        try:
            document = await self._overview(_is_exact(request))
        except (ShuffledpError, OSError, sqlite3.Error) as error:
            document = {"error": _reason(error)}
            return PreparedResponse(
                503, json.dumps(document).encode() + b"\n", ((b"content-type", b"application/json"),)
            )
        body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        return revalidated(request, body, "application/json", _tag(document))

    async def _show_page(self, request: Request) -> PreparedResponse:
        exact = _is_exact(request)
        try:
            view = view_of(await self._overview(exact), exact=exact, release_url=self._release_url)
        except (ShuffledpError, OSError, sqlite3.Error) as error:
            view = _failed_view(self._role, _reason(error))
        body = render_page("operator.html", **view)
        return revalidated(request, body, "text/html; charset=utf-8", _tag(view))


def _is_exact(request: Request) -> bool:
    return request.query_params.get("exact") == "true"


def _reason(error: Exception) -> str:
    if isinstance(error, ShuffledpError):
        return str(error)
    return f"The state of the server cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}."


def _tag(document: Mapping[str, Any]) -> str:
    """The ETag of a document: a hash of everything except the time."""
    content = {key: value for key, value in document.items() if key != "now"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def view_of(overview: Mapping[str, Any], *, exact: bool = False, release_url: str = "") -> dict[str, Any]:
    """The values of the page's template: sentences and numbers as people read them."""
    now = datetime.fromisoformat(overview["now"])
    names = {entry["task"]: entry["name"] for entry in overview["rounds"]}
    rounds = [_round_view(entry, now, release_url) for entry in overview["rounds"]]
    return {
        "title": _TITLES[overview["role"]],
        "role": overview["role"],
        "now": now.strftime("%H:%M:%S UTC"),
        "version": overview["version"],
        "exact": exact,
        "unreadable": False,
        "ready": overview["ready"],
        "summary": _summary(overview),
        "alerts": [
            alert | {"name": _shown_name(names.get(alert["task"]), alert["task"]) if alert["task"] else ""}
            for alert in overview["alerts"]
        ],
        "current": [entry for entry in rounds if not entry["over"]],
        "finished": [entry for entry in rounds if entry["over"]],
        "populations": [_population_view(entry, names) for entry in overview.get("populations", [])],
        "series": [_series_view(entry) for entry in overview["series"]],
        "answers": _answers(overview),
    }


def _failed_view(role: str, reason: str) -> dict[str, Any]:
    """The page if the state cannot be read."""
    return {
        "title": _TITLES[role],
        "role": role,
        "now": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        "version": "",
        "exact": False,
        "unreadable": True,
        "ready": False,
        "summary": [],
        "alerts": [{"level": "act", "task": None, "name": "", "message": reason}],
        "current": [],
        "finished": [],
        "populations": [],
        "series": [],
        "answers": [],
    }


def _summary(overview: Mapping[str, Any]) -> list[str]:
    count = len(overview["rounds"])
    parts = [f"{count:,} round{'' if count == 1 else 's'}"]
    free = overview["store"]["free_bytes"]
    parts.append("reports in PostgreSQL" if free is None else f"{_bytes(free)} free on the disk")
    return parts


def _round_view(entry: Mapping[str, Any], now: datetime, release_url: str) -> dict[str, Any]:
    lines = _shuffler_lines(entry, now) if "batch" in entry else _analyzer_lines(entry)
    return {
        "name": _shown_name(entry["name"], entry["task"]),
        "task": entry["task"],
        "state": entry["state"],
        "over": entry["state"] in _OVER,
        "progress": _progress(entry),
        "lines": [line for line in (*lines, _predicted(entry)) if line],
        "error": entry["error"] or "",
        "release": f"{release_url}{entry['release']}" if release_url and entry.get("release") else "",
    }


def _shuffler_lines(entry: Mapping[str, Any], now: datetime) -> list[str]:
    lines = []
    if entry["state"] == "collecting" and entry["closes"] is not None:
        opens, closes = datetime.fromisoformat(entry["opens"]), datetime.fromisoformat(entry["closes"])
        if now < opens:
            lines.append(f"Opens in {_duration((opens - now).total_seconds())}.")
        elif now < closes:
            lines.append(f"Closes in {_duration((closes - now).total_seconds())}, on {closes:%Y-%m-%d at %H:%M} UTC.")
        else:
            lines.append(f"Its time ended on {closes:%Y-%m-%d at %H:%M} UTC.")
        if entry["hop"]:
            lines.append("The batch of the shuffler before it in the chain has not arrived yet.")
        if entry["projected_reports"] is not None and now < closes:
            lines.append(_pace(entry, (closes - now).total_seconds()))
    elif entry["state"] == "collecting":
        lines.append(f"{entry['reports']:,} reports; the task is missing.")
    else:
        lines.append(f"{entry['reports']:,} reports were accepted.")
    if entry.get("carriers") and entry["state"] in ("collecting", "closed"):
        lines.append(
            f"At least {entry['carriers']['minimum']:,} carriers are needed; they are counted with the shuffling."
        )
    if entry["batch"] is not None:
        lines.append(f"Its batch is not delivered yet: {entry['batch']}.".replace("..", "."))
    return lines


def _pace(entry: Mapping[str, Any], seconds: float) -> str:
    """The number of reports to expect, and how many an hour are needed."""
    missing, hours = entry["minimum_users"] - entry["reports"], seconds / 3600
    needed = ""
    if missing > 0:
        pace = (
            f"{missing / hours:,.{0 if missing > 10 * hours else 1}f} an hour" if hours >= 0.1 else f"{missing:,} more"
        )
        needed = f" {pace} are needed."
    return f"At the average pace it closes with about {entry['projected_reports']:,} reports.{needed}"


def _analyzer_lines(entry: Mapping[str, Any]) -> list[str]:
    lines = []
    if entry["population"]:
        lines.append(f"About {entry['population']}.")
    if entry["state"] == "waiting":
        lines.append("No batch has arrived yet.")
    elif entry["state"] == "receiving":
        lines.append(f"{entry['chunks'] - entry['missing']:,} of {entry['chunks']:,} chunks have arrived.")
    elif entry["state"] == "complete":
        opened = entry["opened"] or 0
        of = entry["messages"] or 0
        lines.append(f"{opened:,} of {of:,} messages are opened." if of else "All chunks have arrived.")
    if entry.get("carriers"):
        lines.append(f"{entry['carriers']:,} of {entry['reports']:,} reports are from carriers, who add the noise.")
    if entry["rejected"]:
        counts = ", ".join(f"{reason} {count:,}" for reason, count in entry["rejected"].items())
        lines.append(f"Rejected messages: {counts}.")
    if entry["reason"]:
        lines.append(entry["reason"])
    return lines


def _predicted(entry: Mapping[str, Any]) -> str:
    """The predicted error, in a sentence; nothing of the reports themselves is known before the release."""
    error = entry["predicted_error"]
    if error is None or entry["state"] in _OVER:
        return ""
    return (
        f"A release about {error['users']:,} users would have a typical error of {error['rmse']:,.3g} and errors of at "
        f"most {error['max_error']:,.3g} with {percent(error['confidence'])} confidence."
    )


def _progress(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """How far the present step is: value, maximum, and a label."""
    if entry["state"] == "collecting" and entry["minimum_users"] and not entry["hop"]:
        minimum, maximum = entry["minimum_users"], entry["maximum_users"]
        label = f"{entry['reports']:,} of {minimum:,} needed, at most {maximum:,}"
        return {"value": min(entry["reports"], minimum), "max": minimum, "label": label}
    if entry["state"] == "receiving" and entry["chunks"]:
        arrived = entry["chunks"] - entry["missing"]
        return {"value": arrived, "max": entry["chunks"], "label": f"{arrived:,} of {entry['chunks']:,} chunks"}
    if entry["state"] == "complete" and entry.get("messages"):
        opened, of = entry["opened"] or 0, entry["messages"]
        return {"value": min(opened, of), "max": of, "label": f"{opened / of:.0%} opened"}
    return None


def _population_view(entry: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    spent, budget = entry["spent_epsilon"], entry["epsilon"]
    shown = "no epsilon holds any more" if spent is None else f"{spent:.4g} of {budget:g}"
    releases = f"{entry['releases']:,} release{'' if entry['releases'] == 1 else 's'}"
    sentence = ""
    if entry["next"] is not None:
        after = "no epsilon would hold" if entry["after_next"] is None else f"{entry['after_next']:.4g} would be spent"
        verdict = "it fits" if entry["fits"] else "it does not fit and will be refused"
        sentence = (
            f"After the next release, {_shown_name(names.get(entry['next']), entry['next'])}, {after}: {verdict}."
        )
    return {
        "name": entry["name"],
        "label": f"{shown} (delta {entry['delta']:g}), {releases}",
        "value": budget if spent is None else min(spent, budget),
        "max": budget,
        "sentence": sentence,
        "fits": entry["fits"],
    }


def _series_view(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A series: its present round, how many rounds a device takes part in, and whether it was cancelled."""
    rounds, last = entry["rounds"], datetime.fromisoformat(entry["last_closes"])
    present = "No round is open now." if entry["round"] is None else f"Round {entry['round']} is open now."
    lines = [
        f"{present} {rounds:,} rounds, numbered from 0; the last one closes on {last:%Y-%m-%d at %H:%M} UTC.",
        f"About {entry['population']}; a device takes part in at most {entry['rounds_per_device']:,} rounds.",
    ]
    if entry["cancelled_from"] is not None:
        lines.append(f"Cancelled from round {entry['cancelled_from']} on.")
    return {"name": entry["name"], "series": entry["series"], "lines": lines}


def _answers(overview: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The number of requests since the start, by status and by problem."""
    return [(name, f"{count:,}") for kind in ("answers", "refusals") for name, count in overview.get(kind, {}).items()]


def _shown_name(name: str | None, task: str | None) -> str:
    return name or f"task {(task or '')[:16]} (file missing)"


def _duration(seconds: float) -> str:
    """Days and hours, hours and minutes, or minutes."""
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else "less than a minute"


def _bytes(number: float) -> str:
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"
