"""Every state of the survey page, brought about by a scripted worker in place of the client."""

import json
import time
from dataclasses import dataclass, field

HOUR = 3_600_000
NOW = 1000 * int(time.time())
FACTS = {
    "name": "How people get to work",
    "description": "How did you get to work today?",
    "categories": ["Walk", "Bicycle", "Bus or tram", "Car"],
    "interval": None,
    "protocol": "histogram/correlated-noise",
    "epsilon": 1.0,
    "delta": 1e-6,
    "minimumUsers": 1000,
    "localEpsilon": None,
    "opens": NOW - HOUR,
    "closes": NOW + 48 * HOUR,
    "sizes": [{"messages": 1, "bytes": 151}, {"messages": 777, "bytes": 39_680}],
    "sentences": [
        "Your answer is put into a sealed envelope, together with 776 more envelopes.",
        "That you took part is not hidden.",
    ],
}
CHECKED = {"result": {"facts": FACTS, "state": "none", "note": ""}}


def checked(state="none", note="", **facts):
    return {"result": {"facts": FACTS | facts, "state": state, "note": note}}


SERIES = {"series": True}
"""Options of the cases that the page of a series shows."""
NUMBERS = {"numbers": True}
"""Options of those that a page needs the texts about numbers for."""


def turn(status, round_index=2, *, following=7, state="none"):
    """The facts of a series of weekly rounds, of which this one, numbered from 0, is open, the next or the last."""
    opens = NOW - HOUR if status in ("open", "skipped") else NOW + HOUR if status == "pause" else NOW - 72 * HOUR
    week = 168 * HOUR
    rounds = {
        "rounds": 52,
        "perDevice": 4,
        "firstOpens": opens - week * round_index,
        "period": 604_800,
        "open": 172_800,
    }
    now = {"status": status, "round": round_index, "next": following}
    return checked(state, opens=opens, closes=opens + 48 * HOUR, turn=now | rounds)


def refusal(reason, problem=""):
    return {"reason": reason, "problem": problem, "message": f"the server refused the report ({problem})"}


@dataclass(frozen=True)
class Case:
    """What the worker answers to each call (without an answer it hangs), what is done, and the resulting state."""

    state: str
    answers: dict = field(default_factory=dict)
    submit: bool = False
    choose: bool = False
    options: dict = field(default_factory=dict)
    result: str = ""
    """The address of the published result."""


SENT = {"check": CHECKED, "answer": {"result": {}}}
CASES = {
    "checking": Case("checking"),
    "question": Case("question", {"check": CHECKED}),
    "question-count": Case("question", {"check": checked(categories=None)}),
    "question-select": Case("question", {"check": checked(categories=[f"District {n}" for n in range(40)])}),
    "question-number": Case(
        "question",
        {"check": checked(categories=None, interval={"lower": 0, "upper": 120, "whole": True})},
        options=NUMBERS,
    ),
    "question-code": Case("question", {"check": CHECKED}, options={"tokens": True}),
    "question-long": Case(
        "question",
        {"check": checked(name="N" * 300, categories=["Donaudampfschifffahrt" * 9, "a b " * 50, "בא לעבודה ברגל"])},
    ),
    "error": Case("question", {"check": CHECKED}, submit=True),
    "error-number": Case(
        "question",
        {"check": checked(categories=None, interval={"lower": 0, "upper": 9, "whole": False})},
        submit=True,
        options=NUMBERS,
    ),
    "sealing": Case("sealing", {"check": CHECKED, "answer": {"done": 300, "total": 777}}, choose=True, submit=True),
    "waiting": Case("waiting", SENT | {"send": refusal("unreachable")}, choose=True, submit=True),
    "delivered": Case("delivered", {"check": checked("delivered")}),
    "delivered-published": Case("delivered", {"check": checked("delivered")}, result="https://analyzer.example/page"),
    "closed-published": Case("closed", {"check": checked(closes=NOW - 1)}, result="https://analyzer.example/page"),
    "delivered-kiosk": Case("delivered", {"check": checked("delivered")}, options={"kiosk": True}),
    "early": Case("closed", {"check": checked(opens=NOW + HOUR)}),
    "closed": Case("closed", {"check": checked(closes=NOW - 1)}),
    "closed-pending": Case("closed", {"check": checked("closed", "410 closed")}),
    "refused": Case("refused", {"check": checked("refused", "422 malformed")}),
    "refused-token": Case(
        "refused", {"check": checked("pending"), "send": refusal("refused", "token-spent")}, options={"tokens": True}
    ),
    "refused-now": Case("refused", {"check": checked("pending"), "send": refusal("refused", "origin-not-allowed")}),
    "untrusted": Case("untrusted", {"check": refusal("bad-guarantee")}),
    "unsupported": Case("unsupported", {"check": refusal("no-x25519")}),
    "unsupported-storage": Case("unsupported", {"check": refusal("no-storage")}),
    "broken": Case("broken", {"check": refusal("unloaded")}),
    "series-question": Case("question", {"check": turn("open")}, options=SERIES),
    "series-delivered": Case("delivered", {"check": turn("open", state="delivered")}, options=SERIES),
    "series-skipped": Case("closed", {"check": turn("skipped")}, options=SERIES),
    "series-pause": Case("closed", {"check": turn("pause")}, options=SERIES),
    "series-over": Case("closed", {"check": turn("over", 51, following=None)}, options=SERIES),
    "series-cancelled": Case("closed", {"check": turn("cancelled", 30, following=None)}, options=SERIES),
    "series-untrusted": Case("untrusted", {"check": refusal("bad-signature")}, options=SERIES),
    "fault-storage": Case("broken", {"check": checked("pending"), "send": refusal("no-storage")}),
    "fault": Case("broken", {"check": checked("pending"), "send": refusal("damaged")}),
}


def scripted_worker(case):
    return (
        f"const answers = {json.dumps(case.answers)};"
        "onmessage = ({ data: { id, call } }) => { if (answers[call]) postMessage({ id, ...answers[call] }); };"
    )


def bring_about(page, origin, case):
    """Open the page in a state; the scripted worker must be routed before."""
    if case.result:
        page.route("**/result.json", lambda route: route.fulfill(json={"url": case.result}))
    page.goto(origin)
    if case.submit:
        page.wait_for_selector("form")
        if case.choose:
            page.locator("input").first.check()
        page.locator("form button").click()
    page.wait_for_function("(state) => document.body.dataset.state === state", arg=case.state)
    if case.result:
        page.wait_for_selector(f"a[href='{case.result}']")
    if case.state == "waiting":
        page.wait_for_selector("button:not([hidden])")
