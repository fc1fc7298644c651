"""The limit on open files against the number of connections, in processes that have such limits."""

import json
import resource
import subprocess
import sys

import pytest

CODE = """
import json, resource
from shuffledp.collection.server.running import possible_connections, reserve_connections
from shuffledp.collection.server.logs import configure_logs
configure_logs()
try:
    print(json.dumps([possible_connections({wanted}), reserve_connections({wanted})]))
except Exception as error:
    print(json.dumps(str(error)))
print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


def run(wanted: int, soft: int, hard: int) -> tuple[object, list[int], str]:
    """What a process with such limits finds possible, its limits after that, and its log."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(wanted=wanted)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )
    found, limits = map(json.loads, done.stdout.splitlines())
    return found, limits, done.stderr


def test_the_soft_limit_is_raised():
    assert run(1000, 256, 2000) == ([1000, 1000], [1320, 2000], "")


def test_it_is_never_lowered():
    assert run(10, 1900, 2000) == ([10, 10], [1900, 2000], "")


def test_fewer_connections_if_the_hard_limit_is_low():
    found, limits, log = run(4096, 256, 1024)
    assert found == [704, 704]
    assert limits == [1024, 1024]
    event = json.loads(log)
    assert {key: event[key] for key in ("event", "level", "wanted", "possible", "open_files")} == {
        "event": "connections-limited", "level": "warning", "wanted": 4096, "possible": 704, "open_files": 1024
    }  # fmt: skip


@pytest.mark.parametrize("hard", [100, 330])
def test_next_to_none_is_refused(hard):
    found, _, _ = run(4096, 64, hard)
    assert f"may have {hard} open files, and 4,096 connections need 4,416" in found
