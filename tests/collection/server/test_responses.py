"""Problem documents, bodies and metrics."""

import asyncio
import json
from contextlib import suppress

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from shuffledp.collection.server.bodies import DisconnectedError, TooLongError, declared_length, read_body
from shuffledp.collection.server.metrics import Metrics
from shuffledp.collection.server.responses import EXCEPTION_HANDLERS, PreparedResponse, json_response, problem


def call(app, method="GET", path="/", body=b""):
    """The status, headers and body that an application answers."""
    sent = []
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    async def run():
        with suppress(ZeroDivisionError):  # Starlette raises it again, for the server's log
            await app(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_a_problem():
    answer = problem(429, "over", "Too many.", detail="More.", retry_after=7, close=True, headers={"X-Y": "z"})
    status, headers, body = call(answer)
    assert status == 429
    assert headers[b"content-type"] == b"application/problem+json"
    assert (headers[b"retry-after"], headers[b"connection"], headers[b"x-y"]) == (b"7", b"close", b"z")
    assert int(headers[b"content-length"]) == len(body)
    assert json.loads(body) == {
        "type": "urn:shuffledp:problem:over", "title": "Too many.", "status": 429, "detail": "More.",
    }  # fmt: skip


def test_starlette_answers_with_problems_too():
    async def fail(_):
        raise ZeroDivisionError("a payload")

    async def fine(_):
        return json_response({"a": 1})

    routes = [Route("/fail", fail), Route("/fine", fine)]
    app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
    assert call(app, path="/fine")[2] == b'{"a": 1}\n'
    status, headers, body = call(app, path="/none")
    assert (status, json.loads(body)["type"]) == (404, "urn:shuffledp:problem:not-found")
    status, headers, body = call(app, "POST", "/fine")
    assert (status, headers[b"content-type"]) == (405, b"application/problem+json")
    status, _, body = call(app, path="/fail")
    assert status == 500
    assert b"payload" not in body


def test_an_empty_answer():
    assert call(PreparedResponse(201)) == (201, {b"content-length": b"0"}, b"")


def receiving(*messages):
    left = list(messages)

    async def receive():
        return left.pop(0)

    return receive, left


def piece(body: bytes, more: bool = True) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


def test_bodies():
    def read(*messages, most=10):
        receive, left = receiving(*messages)
        return asyncio.run(read_body(receive, max_bytes=most)), left

    assert read(piece(b"abc", more=False))[0] == b"abc"
    assert read(piece(b"a"), piece(b""), piece(b"bc", more=False))[0] == b"abc"
    assert read(piece(b"x" * 10, more=False))[0] == b"x" * 10
    with pytest.raises(TooLongError):
        read(piece(b"x" * 11, more=False))
    with pytest.raises(DisconnectedError):
        read(piece(b"x"), {"type": "http.disconnect"})
    receive, left = receiving(piece(b"x" * 6), piece(b"x" * 6), piece(b"never read"))
    with pytest.raises(TooLongError):
        asyncio.run(read_body(receive, max_bytes=10))
    assert len(left) == 1


@pytest.mark.parametrize(("value", "length"), [(b"12", 12), (b"x", None), (b"-1", None), (b"9" * 40, None)])
def test_the_declared_length(value, length):
    assert declared_length({"headers": [(b"host", b"x"), (b"content-length", value)]}) == length


def test_two_servers_in_one_process_have_their_own_metrics():
    for _ in range(2):
        metrics = Metrics("shuffler")
        metrics.counter("things", "Things", ["kind"]).labels("a").inc()
        assert b'shuffledp_shuffler_things_total{kind="a"} 1.0' in metrics.text()
        assert b"_created" not in metrics.text()
