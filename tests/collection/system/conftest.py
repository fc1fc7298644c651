"""The whole system under test: rounds with both servers as processes, a database, and schedules of their ends."""

import importlib.util
import itertools
import multiprocessing
import multiprocessing.forkserver
from pathlib import Path

import pytest

_NUMBERS = itertools.count()


def _module(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_HERE = Path(__file__).parent
_databases, _rounds, _schedules, _series_year = (
    _module(f"system_{each}", _HERE / f"{each}.py") for each in ("databases", "rounds", "schedules", "series_year")
)
postgres_server = _module(
    "store_fixtures", _HERE.parent / "shuffler" / "store" / "conftest.py"
).postgres_server  # one of its own


@pytest.fixture(scope="session", autouse=True)
def _loaded():
    """Servers are forked from a process that has loaded everything: a start takes no second."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_rounds.LOADED)


@pytest.fixture
def series_year():
    """A series on a simulated clock, and the composition of its rounds by definition."""
    _series_year.SERVER = _rounds._SERVER
    return _series_year


@pytest.fixture
def until():
    return _schedules.until


@pytest.fixture
def schedules():
    """What ends servers and starts them again, and what must hold after it."""
    return _schedules


@pytest.fixture(scope="session")
def database(postgres_server):
    """A PostgreSQL server that can be crashed."""
    with _databases.Database(postgres_server) as server:
        yield server


@pytest.fixture
def _begun(tmp_path):
    """Begin rounds, each in a folder of its own, whose servers end with the test."""
    rounds: list = []

    def begin(kind, **settings):
        folder = tmp_path / str(len(rounds))
        folder.mkdir()
        rounds.append(kind.begin(folder, **settings))
        return rounds[-1]

    yield begin
    for process in (process for here in rounds for process in here.processes):
        if process.is_alive():
            process.kill()
        process.join()
        process.close()


@pytest.fixture
def new_round(_begun):
    return lambda: _begun(_rounds.Round)


@pytest.fixture
def new_outer_round(_begun):
    return lambda: _begun(_rounds.OuterRound)


@pytest.fixture
def new_augmented_round(_begun):
    return lambda: _begun(_rounds.AugmentedRound)


@pytest.fixture
def new_chain_round(_begun):
    return lambda: _begun(_rounds.ChainRound)


@pytest.fixture
def new_hybrid_round(_begun):
    return lambda: _begun(_rounds.HybridChainRound)


@pytest.fixture
def new_carrier_round(_begun):
    return lambda: _begun(_rounds.CarrierRound)


@pytest.fixture
def new_trapped_round(_begun):
    return lambda: _begun(_rounds.TrappedRound)


@pytest.fixture
def new_augmented_chain_round(_begun):
    return lambda: _begun(_rounds.AugmentedChainRound)


@pytest.fixture
def new_shared_carrier_round(_begun, database):
    return lambda: _begun(_rounds.SharedCarrierRound, address=database.new(f"round_{next(_NUMBERS)}"))


@pytest.fixture
def new_enrolled_round(_begun):
    return lambda: _begun(_rounds.EnrolledRound)


@pytest.fixture
def new_shared_round(_begun, database):
    return lambda: _begun(_rounds.SharedRound, address=database.new(f"round_{next(_NUMBERS)}"))


@pytest.fixture
def new_role_round(_begun, database):
    return lambda: _begun(_rounds.RoleRound, address=database.new(f"round_{next(_NUMBERS)}"))
