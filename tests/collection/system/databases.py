"""A PostgreSQL server that is crashed, in one of the ways in which servers end, and started again."""

import contextlib
import os
import pwd
import random
import shlex
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

_WAIT_SECONDS = 30.0


class Database:
    """The server of an address (with a place for the name of a database), whose data are in the folder of its socket.

    A crash loses what the server did not write to its log: its buffers are gone with its processes.
    """

    ways = ("postmaster", "immediate", "backend")

    def __init__(self, address: str):
        self._address = address
        self._data = Path(parse_qs(urlsplit(address).query)["host"][0])
        self._command = shlex.split((self._data / "postmaster.opts").read_text())
        self._process: subprocess.Popen | None = None
        with psycopg.connect(address.format("postgres"), autocommit=True) as connection:
            # what is not written at a commit is not written soon after it either
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_) -> None:
        if self._process is not None:  # else it is its maker's
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_WAIT_SECONDS)

    def new(self, name: str) -> str:
        """The address of a new database."""
        with psycopg.connect(self._address.format("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._address.format(name)

    def crash(self, way: str, pause: float) -> None:
        """End it without any order, wait for so long, and have it running again.

        Its first process is killed, or told to leave everything as it is; or one that serves a connection is killed,
        and the first ends all others.
        """
        if way == "backend":
            self._kill_a_backend()
        else:
            self._end(signal.SIGKILL if way == "postmaster" else signal.SIGQUIT)
            time.sleep(pause)
            self._start()

    def _kill_a_backend(self) -> None:
        with psycopg.connect(self._address.format("postgres")) as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
            pids = [pid for (pid,) in connection.execute(query)]
            os.kill(random.choice(pids), signal.SIGKILL)
            with contextlib.suppress(psycopg.OperationalError):
                while True:  # until this one is ended too
                    connection.execute("SELECT pg_sleep(0.01)")
        self._wait()

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_WAIT_SECONDS)
        else:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, number)
            os.waitpid(pid, 0)

    def _start(self) -> None:
        """Again and again, as long as processes of the one before are still there."""
        owner = pwd.getpwuid(self._data.stat().st_uid)
        settings = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            self._process = subprocess.Popen(
                self._command,
                cwd="/",
                env={"LC_ALL": "C"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **settings,
            )
            if self._wait():
                return
            assert time.monotonic() < deadline, "PostgreSQL did not start again"
            time.sleep(0.02)

    def _wait(self) -> bool:
        """Whether it can be used, once that is known."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while self._process is None or self._process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self._address.format("postgres")).close()
                return True
            assert time.monotonic() < deadline, "PostgreSQL did not recover"
            time.sleep(0.01)
        return False
