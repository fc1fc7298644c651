"""What is loaded when: a device that randomizes needs no SciPy, plotting or data-frame library."""

import json
import subprocess
import sys

import pytest

HEAVY = ["scipy", "dp_accounting", "pandas", "pyarrow", "altair", "matplotlib", "typer", "rich", "mpmath"]


def loaded_after(code: str) -> tuple[list[str], float]:
    script = f"import sys, time; start = time.perf_counter()\n{code}\nspent = time.perf_counter() - start\n"
    script += f"import json; print(json.dumps([[m for m in {HEAVY!r} if m in sys.modules], spent]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout))


RANDOMIZE = """
import shuffledp
from shuffledp.protocols.parts.token_noise import TokenNoise
from shuffledp.randomness import Dyadic
noise = TokenNoise(1000, Dyadic.at_least(0.04), 1.0, 1e-6)
assert len(shuffledp.BalcerCheuCount(noise).randomize(1)) == 2
assert len(shuffledp.BalcerCheuHistogram(noise, 10).randomize(3)) > 3
"""


@pytest.mark.parametrize("code", ["import shuffledp", RANDOMIZE])
def test_randomizing_loads_little(code):
    heavy, _ = loaded_after(code)
    assert heavy == []


def test_the_test_can_fail():
    heavy, _ = loaded_after("import scipy.special")
    assert heavy == ["scipy"]


def test_it_is_quick():
    """Best of five; the benchmark measures it in earnest."""
    assert min(loaded_after(RANDOMIZE)[1] for _ in range(5)) < 0.25 * 3  # a busy machine is no failure


def test_running_a_protocol_draws_nothing_and_reads_nothing():
    code = (
        RANDOMIZE
        + "p = shuffledp.BalcerCheuHistogram.calibrate(users=1000, domain_size=3, epsilon=1, delta=1e-6)\n"
        + "p.run(__import__('numpy').zeros(1000, dtype=int)).interval()\n"
    )
    assert loaded_after(code)[0] == ["scipy"]
