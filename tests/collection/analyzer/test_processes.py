"""The analyzer as a process of its own: many messages on all cores, stopped in the middle, and what it logs."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from shuffledp.collection.server.directories import lock_directory

COMMAND = """
import sys
from shuffledp.cli import main
from shuffledp.collection.analyzer import counting
if __name__ == "__main__":
    counting._MIN_MESSAGES_FOR_PROCESSES = 1000  # further processes also for few messages
    counting._MIN_PIECE_MESSAGES = 200
    sys.exit(main._run(["serve", *sys.argv[1:]]))
"""
RESTRICT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, as MemoryDenyWriteExecute=yes of the systemd unit
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
RESTRICTED = [sys.executable, "-c", RESTRICT]
"""Runs Python so that no memory can become executable, in its child processes too; Linux 6.3 or newer."""
MESSAGES = 2400


class Process:
    """An analyzer and what it logs."""

    def __init__(self, config, **environment):
        command = [*RESTRICTED, "-c", COMMAND, "analyzer", "--config", str(config)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = self.wait_for("listening")["port"]

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def events(self):
        return [json.loads(line) for line in list(self.lines)]

    def wait_for(self, name):
        deadline = time.monotonic() + 60
        while True:
            for event in self.events():
                if event["event"] == name:
                    return event
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.01)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        status = self.process.wait(60)
        self._reader.join(60)
        self.process.stderr.close()
        return status


@pytest.fixture
def large(collection):
    task = collection.task("histogram/k-rr", maximum_users=MESSAGES)
    return collection.batch(task, collection.sealed(task, np.arange(MESSAGES) % 4), chunk_records=600)


def test_analyzers_of_this_file_run_without_executable_memory():
    mapping = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
    if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip("the kernel cannot restrict memory: Linux 6.3 or newer is needed")
    assert subprocess.run([sys.executable, "-c", mapping], capture_output=True, timeout=60).returncode == 0
    done = subprocess.run([*RESTRICTED, "-c", mapping], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip().endswith("PermissionError: [Errno 13] Permission denied")


def test_stopped_while_opening_and_started_again(collection, large, new_client):
    first = Process(collection.config())
    client = new_client(first.port)
    assert client.get("/readyz").status == 200
    client.deliver(large)
    deadline = time.monotonic() + 60
    while 'messages_total{result="counted"}' not in client.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert first.stop() == 0
    events = [event["event"] for event in first.events()]
    assert events[0] == "task"
    assert events[-1] == "stopped"
    second = Process(collection.config())
    client = new_client(second.port)
    client.wait(large)
    document = client.get(f"/v1/releases/{large.task.id.hex()}").json()
    assert document["reports"] == document["users"] == MESSAGES
    assert document["rejected"] == {}
    assert sum(document["counts"]) == pytest.approx(MESSAGES)
    assert second.stop(signal.SIGINT) == 0
    told = "".join(first.lines + second.lines)
    assert sum("released" in line for line in told.splitlines()) == 1
    for secret in (str(collection.folder), "127.0.0.1:", "bike", collection.analyzer.secret.hex()):
        assert secret not in told


def test_a_port_in_use_is_said_in_one_line(collection):
    command = [sys.executable, "-c", COMMAND, "analyzer", "--config", str(collection.config())]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*command, "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Cannot listen on 127.0.0.1 port")
    lock = lock_directory(collection.folder / "work")  # as a process that runs holds it
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lock.release()
    assert done.returncode == 1
    assert "error: Another process uses" in done.stderr
