"""``shuffledp app`` as a process: signals end it without a traceback, and nothing of it is left."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPT = """
import sys
from shuffledp.__main__ import main
def tell(event, arguments):
    if event == "import" and arguments[0] == "shuffledp.cli.main":
        print("Imports begin.", flush=True)
sys.addaudithook(tell)
main()
"""


@contextmanager
def started():
    """The process, in a group of its own: Ctrl-C in a terminal is for all processes of a group."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "app", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "Imports begin.\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process, number):
    """Send a signal to the group; standard output and error."""
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while left := _group(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    return out, err


def _group(leader):
    """The processes of a group, without those that have ended and that nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = path.read_text().rpartition(") ")
        except OSError:
            continue
        if int(fields.split()[2]) == leader and fields[0] not in "ZX":
            found.append(name)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_a_stream_is_open(number):
    with started() as process:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            connection.sendall(b"GET /api/plan?releases=90 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            received = b""
            while b"event: start" not in received:
                received += connection.recv(4096)
            assert ended(process, number) == ("", "")
            assert process.returncode == 0
            assert b"The planner has been stopped." in received + connection.makefile("rb").read()


def test_at_any_time():
    """Before it listens, one line says that it was interrupted; from then on it ends as it should."""
    for delay in (0, 0.1, 0.3, 1, 3):
        with started() as process:
            time.sleep(delay)
            out, err = ended(process, signal.SIGINT)
            if process.returncode == 0:
                assert (out.count("\n"), err) == (1, "")
            else:
                assert process.returncode == 130
                assert re.fullmatch(r"error: interrupted; [a-z ]+\.\n", err)
