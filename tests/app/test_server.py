"""The planner's page over HTTP: its stream is ``shuffledp plan --json``, and calculations end with their request."""

import asyncio
import html
import json
import re
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from shuffledp.app import planner as planner_module
from shuffledp.app.query import Query
from shuffledp.cli import main
from shuffledp.collection.task.task import padded_protocol
from shuffledp.planning import plan
from shuffledp.planning.question import Count
from shuffledp.protocols.registry import find

SMALL = {"question": "count", "users": "500", "delta": "1e-6"}
LIMITED = SMALL | {"max_messages": "1.5", "max_local_epsilon": "9"}
CASES = {
    "count": (SMALL, "plan count --users 500 --epsilon 1 --delta 1e-6"),
    "count with limits": (
        LIMITED,
        "plan count --users 500 --epsilon 1 --delta 1e-6 --max-messages 1.5 --max-local-epsilon 9",
    ),
    "quantiles": (
        {"question": "quantiles", "users": "900", "bins": "8", "delta": "1e-5", "honest_fraction": "0.8"},
        "plan quantiles --users 900 --lower 0 --upper 100 --bins 8 --epsilon 1 --delta 1e-5 --honest-fraction 0.8",
    ),
}
LONG_CASES = {
    "histogram": (
        {"users": "700", "domain_size": "4", "delta": "1e-6", "max_bytes": "2"},
        "plan histogram --users 700 --domain-size 4 --epsilon 1 --delta 1e-6 --max-bytes 2",
    ),
    "local mean": (
        {"question": "mean", "users": "600", "delta": "1e-6", "trust": "local", "whole": "on", "upper": "9"},
        "plan mean --users 600 --lower 0 --upper 9 --whole --epsilon 1 --delta 1e-6 --trust local",
    ),
    "two releases": (
        SMALL | {"releases": "2"},
        "plan count --users 500 --epsilon 1 --delta 1e-6 --releases 2",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG_CASES)
def test_the_stream_of_a_longer_plan(case, served, assembled, capsys):
    parameters, command = LONG_CASES[case]
    assert main._run([*command.split(), "--json"]) == 0
    assert assembled(served.events(**parameters)) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("case", CASES)
def test_the_stream_is_what_the_command_prints(case, served, assembled, capsys):
    parameters, command = CASES[case]
    assert main._run([*command.split(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    events = served.events(**parameters)
    assert assembled(events) == printed
    assert [name for name, _ in events][0 :: len(events) - 1] == ["start", "end"]
    again = served.events(**parameters)  # from the cache
    assert assembled(again) == printed


def test_a_stream_that_ranks_otherwise_would_be_noticed(served, assembled, capsys, monkeypatch):
    """The planted fault: the order of plans reversed."""
    ranking = planner_module._ranking
    monkeypatch.setattr(
        planner_module, "_ranking", lambda plans: ranking(plans) | {"plans": ranking(plans)["plans"][::-1]}
    )
    assert main._run(["plan", "count", "--users", "500", "--epsilon", "1", "--delta", "1e-6", "--json"]) == 0
    assert assembled(served.events(**SMALL)) != json.loads(capsys.readouterr().out)


def test_a_question_without_an_answer(served):
    events = served.events(max_bytes="0.001", **SMALL)
    (error,) = [data["error"] for name, data in events if name == "infeasible"]
    assert error.startswith("No protocol of the shuffled model meets the target.")
    status, page = served.get("/", max_bytes="0.001", show="all", **SMALL)
    assert status == 200
    assert error in html.unescape(page)


@pytest.mark.parametrize("path", ["/api/plan", "/api/preview", "/api/account", "/api/command"])
def test_bad_input_is_refused_in_one_line(served, path):
    status, body = served.get(path, users="many")
    assert status == 400
    assert json.loads(body) == {"error": "users must be an integer, not 'many'."}
    status, page = served.get("/", users="<b>many")
    assert status == 400
    assert "users must be an integer, not &#39;&lt;b&gt;many&#39;." in page


def test_a_request_that_ends_early_ends_its_calculations(served):
    """Thirty releases of a histogram take long; the next question is answered all the same."""
    before = served.workers.killed
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(
            b"GET /api/plan?users=40000&releases=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        assert b"event: start" in _receive(connection, b"event: start")
    _wait_until(lambda: served.workers.killed > before)
    assert [name for name, _ in served.events(**SMALL)][-1] == "end", "the processes were replaced"


def _receive(connection, until):
    received = b""
    while until not in received:
        part = connection.recv(1 << 12)
        assert part, received
        received += part
    return received


LONG = b"GET %s?users=40000&releases=90 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def test_two_users_at_once(serve):
    """A long question has the only process; a short one is answered before it has all protocols."""
    single = serve(workers=1)
    with socket.create_connection(("127.0.0.1", single.port)) as connection:
        connection.sendall(LONG % b"/api/plan")
        received = _receive(connection, b"event: start")
        assert [name for name, _ in single.events(**SMALL)][-1] == "end"
        connection.setblocking(False)
        with suppress(BlockingIOError):
            received += connection.recv(1 << 20)
        assert b"event: ranked" not in received


def test_a_stop_answers_all_requests(serve):
    """A stream, a page and JSON are in progress; one process computes, everything else waits for it."""
    single = serve(workers=1)
    with ExitStack() as stack:
        connections = []
        for path in (b"/api/plan", b"/api/account", b"/"):
            connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", single.port))))
            connections[-1].settimeout(60)
            connections[-1].sendall(
                (LONG % path).replace(b"releases", b"show=all&releases" if path == b"/" else b"releases")
            )
        _receive(connections[0], b"event: start")
        time.sleep(0.3)
        single.app.stop()
        stream, account, page = (connection.makefile("rb").read() for connection in connections)
    assert b'event: failed\ndata: {"error": "The planner has been stopped."}' in stream
    assert account.startswith(b"HTTP/1.1 503 ")
    assert account.endswith(b'{"error": "The planner has been stopped."}\n')
    assert page.startswith(b"HTTP/1.1 200 ")
    assert b"The planner has been stopped." in page


def test_what_takes_too_long_is_ended_with_one_line(serve):
    page = serve(workers=1, request_seconds=0.2)
    line = "This was not computed within 0.2 s; what was computed is kept, and asking again continues from there."
    for path in ("/api/account", "/api/command", "/api/preview"):
        status, body = page.get(path, users="40000", releases="90")
        assert status == 503
        assert json.loads(body)["error"].startswith(line)
        assert "shuffledp plan histogram --users 40000 --domain-size 12" in json.loads(body)["error"]
    status, body = page.get("/", users="40000", releases="90", show="all")
    assert status == 200
    assert line in body
    assert "protocols calibrated." in body
    _wait_until(lambda: page.workers.killed >= 4)
    assert [name for name, _ in page.events(**SMALL)][-1] == "end", "a stream has no such limit"


def _wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_page_that_is_not_waited_for_ends_its_calculations(served):
    before = served.workers.killed
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(b"GET /?users=50000&releases=30&show=all HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(0.5)
    _wait_until(lambda: served.workers.killed > before)
    assert [name for name, _ in served.events(**SMALL)][-1] == "end"


def test_the_cost_in_a_collection_is_that_of_a_task(served):
    costs = {data["id"]: data for name, data in served.events(**SMALL) if name == "collection"}
    for name in ("balcer-cheu", "cheu", "correlated-noise"):
        kind = find("count", name)
        protocol, messages = padded_protocol(kind, {"users": 500}, epsilon=1.0, delta=1e-6, maximum_users=5000)
        cost = costs[f"{name} (tight)"]
        assert cost["messages_per_report"] == messages
        assert cost["moved"] == pytest.approx(protocol.moved_by_report(messages))
        assert cost["bytes_per_report"] == 53 + messages * (49 + protocol.message_format.size)


def test_protocols_that_need_no_delta_are_collected_too(served):
    """A task states a delta above 0, also for these."""
    costs = {data["id"]: data for name, data in served.events(**SMALL) if name == "collection"}
    for name in ("randomized-response", "pure-sum"):
        assert "reason" not in costs[f"{name} (tight)"]
    commands = json.loads(served.get("/api/command", choice="randomized-response (tight)", **SMALL)[1])
    assert "--epsilon 1 --delta 1e-6 --protocol randomized-response" in commands["task"]


def test_the_account_and_the_commands(served):
    document = json.loads(served.get("/api/account", **SMALL)[1])
    best = plan(Count(500), epsilon=1.0, delta=1e-6)[0]
    assert document["curve"][0]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert document["curve"][-1]["releases"] == 12
    exact = best.protocol.guarantee.after(12, delta=1e-6).epsilon
    assert exact * (1 - 1e-9) <= document["curve"][-1]["epsilon"] <= 1.08 * exact
    commands = json.loads(served.get("/api/command", choice="cheu (tight)", **SMALL)[1])
    assert commands["plan"] == "shuffledp plan count --users 500 --epsilon 1 --delta 1e-6"
    assert "--protocol cheu --max-messages 100" in commands["task"]
    assert commands["python"].endswith('protocol = plans["cheu"].protocol')


def test_the_preview_is_near_the_invented_truth(served):
    """Ten errors off would be a fault; a correct release is that far off with probability below 1e-12."""
    errors = {each.protocol.name: each.expected for each in plan(Count(500), epsilon=1.0, delta=1e-6)}
    drawn = set()
    for draw in range(3):
        document = json.loads(served.get("/api/preview", choice="cheu (tight)", draw=draw, **SMALL)[1])
        ((row,),) = (document["rows"],)
        assert abs(float(row["estimate"]) - float(row["truth"])) <= 10 * errors["cheu"].rmse
        assert row["truth"] == "100"
        drawn.add(row["estimate"])
        again = json.loads(served.get("/api/preview", choice="cheu (tight)", draw=draw, **SMALL)[1])
        assert again == document, "the same draw is the same release"
    assert len(drawn) > 1 or errors["cheu"].rmse < 1


LONG_QUESTIONS = [pytest.param(question, marks=pytest.mark.slow) for question in ("histogram", "sum", "mean")]


@pytest.mark.parametrize("question", ["count", *LONG_QUESTIONS, "quantiles"])
def test_the_page_without_a_script(served, question):
    query = {"question": question, "users": "800", "domain_size": "4", "bins": "8", "delta": "1e-5"}
    status, page = served.get("/", show="all", **query)
    assert status == 200
    assert "protocols were calibrated." in page
    assert "<svg" in page.partition('id="preview"')[2], "a preview"
    assert f"shuffledp plan {question} --users 800" in page
    assert "\N{HORIZONTAL ELLIPSIS}" not in page, "everything is computed"
    assert re.search(r'name="choice" value="[^"]+" [^>]*checked', page)
    assert "style=" not in page
    assert page.count("<script") == 1


def test_few_previews_are_kept(monkeypatch):
    """They have charts: ten thousand would fill the memory."""
    monkeypatch.setattr(planner_module, "_CACHED_PREVIEWS", 3)
    drawn = []

    class Drawing:
        async def run(self, _, query, *names, group):
            assert group == query
            drawn.append(query.draw)
            return f"draw {query.draw} of {names}"

    async def look():
        planner, best = planner_module.Planner(Drawing()), plan(Count(500), epsilon=1.0, delta=1e-6)[0]
        queries = [Query(question="count", users=500, delta=1e-6, draw=draw) for draw in (0, 0, 1, 2, 3, 0)]
        return [await planner.preview(query, best) for query in queries]

    shown = asyncio.run(look())
    assert [text.split()[1] for text in shown] == ["0", "0", "1", "2", "3", "0"]
    assert drawn == [0, 1, 2, 3, 0]


def test_the_empty_page_computes_nothing(served):
    status, page = served.get("/", users="123457")
    assert status == 200
    assert "Choose a question and press Plan." in page
    status, page = served.get("/", users="123457", show="known")
    assert "0 of 20 protocols calibrated." in page


def test_only_this_machine_and_this_page(served):
    assert served.request("/", headers={"Host": "attacker.example"}).status == 421
    assert served.request("/api/plan", headers={"Origin": "https://attacker.example"}).status == 403
    assert served.request("/api/plan", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert served.request("/", method="POST").status == 405
    assert served.request("/api/plan", users="9" * 9000).status == 414
    assert served.request("/api/plan", **{f"p{number}": 1 for number in range(2000)}).status == 414
    policy = served.request("/").headers["content-security-policy"]
    assert "form-action 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", served.port), timeout=60)


def test_a_taken_port_and_a_wrong_one(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main._run(["app", "--port", str(port)]) == 1
        assert capsys.readouterr().err.startswith(f"error: Cannot listen on 127.0.0.1 port {port}: ")
    assert main._run(["app", "--port", "70000"]) == 2
    assert capsys.readouterr().err == "error: port must be from 0 to 65535, not 70000.\n"
