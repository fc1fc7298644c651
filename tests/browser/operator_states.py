"""Every state of the operator's pages: overviews as servers make them, served by the application of the page."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import uvicorn

from shuffledp.collection.analyzer.overview import analyzer_alerts
from shuffledp.collection.server.operator_page import OperatorPage
from shuffledp.collection.server.running import listen
from shuffledp.collection.shuffler.operator import shuffler_alerts
from shuffledp.errors import DataError

NOW = datetime.now(UTC)
ERROR = {"rmse": 6.1, "max_error": 17.2, "confidence": 0.95}
RIGHT_TO_LEFT = "כיצד אתם מגיעים לעבודה"
LONG = "Donaudampfschifffahrtsgesellschaft" * 5


def shuffler_round(number, state, reports, **changes):
    return {
        "task": f"{number:064x}",
        "name": f"Commuting {number}",
        "opens": (NOW - timedelta(days=3)).isoformat(timespec="seconds"),
        "closes": (NOW + timedelta(days=2, hours=4)).isoformat(timespec="seconds"),
        "minimum_users": 1000,
        "maximum_users": 10_000,
        "record_size": 51,
        "messages_per_report": 777,
        "carriers": None,
        "hop": 0,
        "state": state,
        "reports": reports,
        "reached_minimum": reports >= 1000,
        "below_minimum": False,
        "projected_reports": 10 * reports // 5 if state == "collecting" else None,
        "predicted_error": {"users": max(reports, 1000)} | ERROR,
        "failures": 0,
        "error": None,
        "batch": None,
    } | changes


def analyzer_round(number, state, **changes):
    return {
        "task": f"{number:064x}",
        "name": f"Commuting {number}",
        "population": "residents of the city",
        "state": state,
        "reason": "",
        "closes": NOW.isoformat(timespec="seconds"),
        "chunks": 0,
        "missing": 0,
        "reports": None,
        "carriers": None,
        "predicted_error": None,
        "messages": None,
        "opened": None,
        "rejected": {},
        "failures": 0,
        "error": None,
        "release": None,
    } | changes


def population(name, spent, *, fits, after, following):
    return {"name": name, "epsilon": 3.0, "delta": 1e-5, "spent_epsilon": spent, "releases": 2} | {
        "next": following and f"{following:064x}",
        "after_next": after,
        "fits": fits,
    }


def series(number, **changes):
    return {
        "series": f"{number:064x}",
        "name": f"Commuting every week {number}",
        "population": "residents of the city",
        "author": "0123456789abcdef",
        "rounds": 52,
        "rounds_per_device": 12,
        "first_opens": NOW.isoformat(timespec="seconds"),
        "last_closes": (NOW + timedelta(days=364)).isoformat(timespec="seconds"),
        "round": 7,
        "task": f"{1:064x}",
        "cancelled_from": None,
        "missing_keys": 0,
        "unused_keys": 0,
    } | changes


SERIES = [series(1), series(2, round=None)]
SERIES_WITH_ALERTS = [series(1, missing_keys=44), series(2, name=LONG, cancelled_from=9, population=RIGHT_TO_LEFT)]


def shuffler(*rounds, ready=True, free=61e9, refused=(), answers=None, offset=0.0, series=()):
    document = {
        "key": "k",
        "store": {"kind": "sqlite", "free_bytes": free},
        "refused_tasks": list(refused),
        "rounds": list(rounds),
        "series": list(series),
        "answers": answers or {},
        "refusals": {"token-spent": 2, "full": 12_345} if answers else {},
        "rate": {"limit": None, "waiting": 0},
        "clock_offset_seconds": offset,
    }
    return whole("shuffler", document, shuffler_alerts, ready=ready)


def analyzer(*rounds, populations=(), ready=True, free=61e9, refused=(), series=()):
    document = {
        "keys": ["k"],
        "store": {"free_bytes": free},
        "refused_tasks": list(refused),
        "rounds": list(rounds),
        "series": list(series),
        "populations": list(populations),
    }
    return whole("analyzer", document, analyzer_alerts, ready=ready)


def whole(role, document, alerts, *, ready):
    head = {"role": role, "now": NOW.isoformat(timespec="seconds"), "version": "0.1.0", "ready": ready}
    return head | document | {"alerts": [alert.to_json() for alert in alerts(document)]}


REFUSED = f"tasks/{LONG}.json: the signature is not valid."
CASES = {
    "shuffler-empty": shuffler(),
    "shuffler-busy": shuffler(
        shuffler_round(1, "collecting", 820),
        shuffler_round(2, "collecting", 0, opens=(NOW + timedelta(hours=5)).isoformat(), projected_reports=None),
        shuffler_round(3, "shuffled", 1010, batch="waiting"),
        shuffler_round(4, "closed", 9_999, name=RIGHT_TO_LEFT),
        shuffler_round(9, "collecting", 0, hop=1, projected_reports=None),
        *(shuffler_round(number, "delivered", 2000, predicted_error=None) for number in range(5, 9)),
        answers={"201": 1_234_567, "200": 9},
        series=SERIES,
    ),
    "shuffler-alerts": shuffler(
        shuffler_round(1, "collecting", 120, projected_reports=240),
        shuffler_round(2, "collecting", 990, closes=NOW.isoformat(), below_minimum=True, projected_reports=990),
        shuffler_round(3, "shuffled", 1010, error="unknown-task", failures=9, batch="refused: unknown-task"),
        shuffler_round(4, "collecting", 40, name=None, closes=None, minimum_users=None, predicted_error=None),
        shuffler_round(5, "collecting", 4000, name=LONG),
        ready=False,
        free=4e8,
        refused=[REFUSED],
        answers={"201": 5, "500": 1},
        offset=-90.0,
        series=SERIES_WITH_ALERTS,
    ),
    "shuffler-unreadable": DataError("The store cannot be read: the disk is full."),
    "analyzer-empty": analyzer(),
    "analyzer-busy": analyzer(
        analyzer_round(1, "waiting"),
        analyzer_round(2, "receiving", chunks=40, missing=17, reports=1010, predicted_error={"users": 1010} | ERROR),
        analyzer_round(3, "complete", chunks=40, messages=101_010, opened=40_404, reports=1010),
        *(
            analyzer_round(number, "released", chunks=4, release=f"/v1/releases/{number:064x}")
            for number in range(4, 7)
        ),
        populations=[population("residents of the city", 1.02, fits=True, after=1.87, following=3)],
        series=SERIES,
    ),
    "analyzer-alerts": analyzer(
        analyzer_round(1, "complete", name=None, population=None, messages=900),
        analyzer_round(2, "refused", reason="It has 812 reports; the guarantee requires 1,000."),
        analyzer_round(3, "complete", messages=900, opened=900, rejected={"cannot-be-opened": 12, "duplicate": 1}),
        analyzer_round(4, "waiting", name=LONG, error="The ledger is locked by another process."),
        populations=[
            population("residents of the city", 2.9, fits=False, after=3.4, following=4),
            population(RIGHT_TO_LEFT, None, fits=False, after=None, following=2),
            population("visitors", 0.0, fits=None, after=None, following=None),
        ],
        free=1e8,
        refused=[REFUSED],
        series=SERIES_WITH_ALERTS,
    ),
    "analyzer-unreadable": DataError("The ledger cannot be read: permission denied."),
}


class OperatorPages:
    """The page of one role; what it shows can be changed while it is served."""

    def __init__(self, role):
        self.shown, self.asked = None, 0
        self._socket = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/operator"
        app = OperatorPage(role, self._overview, release_url="https://analyzer.example").app()
        self._server = uvicorn.Server(uvicorn.Config(app, ws="none", lifespan="off", log_config=None))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    async def _overview(self, _):
        self.asked += 1
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown

    @contextmanager
    def running(self):
        self._thread.start()
        try:
            while not self._server.started:
                assert self._thread.is_alive()
                threading.Event().wait(0.01)
            yield self
        finally:
            self._server.should_exit = True
            self._thread.join()
            self._socket.close()
