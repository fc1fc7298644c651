"""SIGTERM at any moment of the start, life and end of a server: status 0, and the next start finds all in order."""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FEW, MANY = 2, 40
START_SECONDS = 2.0
"""About what a start takes; where a moment falls on this machine does not matter to the outcome."""
WAIT_SECONDS = 120.0


class Server:
    """A server as its users start it, with what it logs."""

    def __init__(self, here, role: str):
        self._log = here.directory / f"{role}.log"
        command = [sys.executable, "-m", "shuffledp", "serve", role, "--config", str(here.directory / "servers.toml")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def has_handler(self) -> bool:
        """Whether it has asked to be told of SIGTERM; before that, Python itself is being loaded."""
        assert self.process.poll() is None, self.told()
        caught = re.search(r"SigCgt:\s+([0-9a-f]+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def told(self) -> str:
        return self._log.read_text()

    def stop(self, times: int = 1) -> int:
        """Ask it to stop, perhaps more than once; its status."""
        for _ in range(times):
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        return self.process.wait(WAIT_SECONDS)


def until(condition) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_any_moment(new_round, role, moments):
    here = new_round()
    servers = []

    def start() -> Server:
        servers.append(Server(here, role))
        until(servers[-1].has_handler)
        return servers[-1]

    try:
        for moment in [0.0, *(random.uniform(0.0, START_SECONDS) for _ in range(moments - 1))]:
            server = start()
            time.sleep(moment)
            times = random.choice([1, 1, 20])
            assert server.stop(times) == 0, (moment, times, server.told())
            assert "rror" not in server.told()
        last = start()
        until(lambda: '"listening"' in last.told())
        assert last.stop(20) == 0, last.told()
        assert '"stopped"' in last.told()
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
