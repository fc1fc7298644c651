"""Logs say what happened to the server, and nothing about who sent what."""

import io
import json
import logging
import warnings

import pytest

from shuffledp.collection.server import logs


@pytest.fixture
def lines():
    """What was logged, as JSON; the loggers are put back in the end."""
    names = ["", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "shuffledp.collection"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(list(each.handlers), each.level, each.propagate, list(each.filters)) for each in loggers]
    stream = io.StringIO()
    with warnings.catch_warnings():
        logs.configure_logs(stream)
        logs._seen.clear()
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for each, (handlers, level, propagate, filters) in zip(loggers, before, strict=True):
        each.handlers[:], each.propagate, each.filters[:] = handlers, propagate, filters
        each.setLevel(level)


def test_an_event(lines):
    logs.event("closed", task="ab", reports=3)
    logs.event("round-fails", level=logging.ERROR, reason="no room")
    first, second = lines()
    assert first.pop("time").endswith("Z")
    assert first == {"level": "info", "event": "closed", "task": "ab", "reports": 3}
    assert second["level"] == "error"


def test_libraries_are_cut_down_to_their_fixed_text(lines):
    logging.getLogger("uvicorn.error").warning("%s sent something bad", "203.0.113.7")
    logging.getLogger("uvicorn.access").error("%s GET", "203.0.113.7")
    logging.getLogger("asyncio").error("socket with raddr=203.0.113.7 failed")
    shown = lines()
    assert [each["event"] for each in shown] == ["library", "library"]
    assert shown[0]["text"] == "%s sent something bad"
    assert "203.0.113.7" not in json.dumps(shown)


def test_of_an_exception_only_its_kind_and_place(lines):
    try:
        raise ValueError("a payload")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    (line,) = lines()
    assert line["error"] == "ValueError"
    assert line["where"].startswith("test_logs.py:")
    assert "payload" not in json.dumps(line)


def test_one_line_for_many_bad_requests(lines):
    for _ in range(100):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert len(lines()) == 1


def test_a_warning_of_python_is_a_line_like_the_others(lines, capsys):
    """Once for each kind and place; its text stays out, since it may quote data."""
    warnings.simplefilter("always")
    for _ in range(3):
        warnings.warn("a payload", RuntimeWarning, stacklevel=1)
    warnings.warn("another", UserWarning, stacklevel=1)
    first, second = lines()
    assert first.pop("time")
    where = first.pop("where")
    assert where.startswith("test_logs.py:")
    assert first == {"level": "warning", "event": "library", "logger": "warnings", "warning": "RuntimeWarning"}
    assert second["warning"] == "UserWarning"
    assert capsys.readouterr().err == ""
