"""The internals of uvicorn and httptools that the servers subclass or read: a canary for their next versions.

uvicorn gives no promise about them, so ``pyproject.toml`` pins its minor version. To allow another one, let this test
pass with it, then the tests of connections, TLS, downloads and processes.
"""

import ast
import asyncio
import inspect
import textwrap
import tomllib
from importlib import metadata
from pathlib import Path

import httptools
import pytest
import uvicorn
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

OVERRIDDEN = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "resume_writing": ["self"],
    "on_message_begin": ["self"],
    "on_header": ["self", "name", "value"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "send_400_response": ["self", "msg"],
    "_start_asgi_task": ["self", "cycle", "app"],
}
"""Methods of HttpToolsProtocol that ``GuardedConnection`` overrides, with their parameters."""

READ = {"connections", "cycle", "flow", "headers", "loop", "parser", "pipeline", "transport", "url"}
"""Attributes of HttpToolsProtocol that ``GuardedConnection`` reads or sets."""

OF_A_CYCLE = {
    "body",
    "disconnected",
    "keep_alive",
    "message_event",
    "response_complete",
    "response_started",
    "scope",
}
"""Attributes of RequestResponseCycle that ``GuardedConnection`` reads or sets."""


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def assigned(function) -> set[str]:
    """The attributes of ``self`` that a method assigns."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def test_the_minor_version_of_uvicorn_is_pinned_and_installed():
    lines = map(Requirement, PROJECT["optional-dependencies"]["collection"])
    (pinned,) = [line.specifier for line in lines if line.name == "uvicorn"]
    installed = Version(metadata.version("uvicorn"))
    assert installed in pinned
    assert Version(f"{installed.major}.{installed.minor}.999") in pinned
    assert Version(f"{installed.major}.{installed.minor + 1}") not in pinned
    assert Version(f"{installed.major}.{installed.minor - 1}.999") not in pinned


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_methods_of_a_connection(name):
    assert parameters(getattr(httptools_impl.HttpToolsProtocol, name)) == OVERRIDDEN[name]


def test_attributes_of_a_connection():
    async def app(scope, receive, send):
        raise AssertionError

    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    loop = asyncio.new_event_loop()
    try:
        protocol = httptools_impl.HttpToolsProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        early = set(vars(protocol))
    finally:
        loop.close()
    late = assigned(httptools_impl.HttpToolsProtocol.on_message_begin)
    assert early | late >= READ


def test_attributes_of_a_request():
    assert assigned(httptools_impl.RequestResponseCycle.__init__) >= OF_A_CYCLE
    assert isinstance(httptools_impl.STATUS_LINE[503], bytes)


def test_flow_control():
    assert "write_paused" in assigned(FlowControl.__init__)
    assert parameters(FlowControl.resume_reading) == ["self"]


def test_the_server():
    assert parameters(uvicorn.Server.handle_exit) == ["self", "sig", "frame"]
    assert parameters(uvicorn.Server.capture_signals) == ["self"]
    assert parameters(uvicorn.Server.run) == ["self", "sockets"]
    assert "ssl" in assigned(uvicorn.Config.load)


def test_the_parser_tells_of_every_chunk():
    """httptools calls ``on_chunk_header`` of whatever it is given, if that has it."""
    chunks = []

    class Listener:
        def on_chunk_header(self):
            chunks.append(True)

    parser = httptools.HttpRequestParser(Listener())
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
    assert len(chunks) >= 2
    assert not parser.should_upgrade()
