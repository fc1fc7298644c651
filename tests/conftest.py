"""Settings of all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# before numpy is imported: its threads for small matrices use processor time while they wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# a busy machine is no failure
settings.register_profile("shuffledp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shuffledp")

SPREAD = ("tests/conformance/test_conformance.py", "docs/test_console_blocks.py", "docs/test_python_blocks.py")
"""Files whose tests share nothing: they fill up whichever worker is free, in the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker for the tests of one file: what they share, such as a whole study, is made once, not once a worker."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::", 1)[0]
            return nodeid if file in SPREAD else file

    return ByFile(config, log) if config.getvalue("dist") == "load" else None
