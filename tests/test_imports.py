"""What is loaded when: a device that randomizes needs no SciPy, plotting or data-frame library."""

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from shuffledp.collection.wire.padding import is_unbounded, least_cap
from shuffledp.domain import Bins, Interval, Strings
from shuffledp.errors import ParameterError
from shuffledp.protocols.documents import to_document
from shuffledp.protocols.registry import PROTOCOLS

MAX_CPU_SECONDS = 0.75
"""To load the library takes a quarter of a second; a busy machine is no failure."""
HEAVY = ["scipy", "dp_accounting", "pandas", "pyarrow", "altair", "matplotlib", "typer", "rich", "mpmath"]


def loaded_after(code: str) -> tuple[list[str], float]:
    script = f"import sys, time; start = time.process_time()\n{code}\nspent = time.process_time() - start\n"
    script += f"import json; print(json.dumps([[m for m in {HEAVY!r} if m in sys.modules], spent]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout))


RANDOMIZE = """
import shuffledp
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
target, absence = Target(1000, 1.0, 1e-6), Dyadic.at_least(0.04)
assert len(shuffledp.BalcerCheuCount(target, absence).randomize(1)) == 2
assert len(shuffledp.BalcerCheuHistogram(target, absence, 10).randomize(3)) > 3
"""


def test_nearly_nothing_is_loaded_before_a_command_can_answer_a_signal():
    """Until then SIGTERM ends a server with the status of the signal, as it ends Python while it starts."""
    script = "import enum, signal, sys; before = set(sys.modules)\nfrom shuffledp.__main__ import main\n"
    script += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "shuffledp", "shuffledp.__main__", "shuffledp.exports"}


@pytest.mark.parametrize("code", ["import shuffledp", RANDOMIZE])
def test_randomizing_loads_little(code):
    heavy, _ = loaded_after(code)
    assert heavy == []


def test_a_command_loads_only_what_it_needs():
    heavy, _ = loaded_after("from shuffledp.cli.main import command_line; command_line()")
    assert heavy == ["typer", "rich"]
    other = "; import sys; assert 'shuffledp.cli.plan' not in sys.modules"
    loaded_after("from shuffledp.cli.main import command_line; command_line('keys')" + other)


def test_the_test_can_fail():
    heavy, _ = loaded_after("import scipy.special")
    assert heavy == ["scipy"]


def test_it_is_quick():
    """At least once in five; the benchmark measures it in earnest."""
    assert any(loaded_after(RANDOMIZE)[1] < MAX_CPU_SECONDS for _ in range(5))


CALIBRATE = """
import shuffledp, numpy
p = shuffledp.BalcerCheuHistogram.calibrate(users=1000, domain_size=3, epsilon=1, delta=1e-6)
estimate = p.run(numpy.zeros(1000, dtype=int))
"""


def test_running_a_protocol_draws_nothing_and_reads_nothing():
    assert loaded_after(CALIBRATE)[0] == []
    assert set(loaded_after(CALIBRATE + "estimate.interval()")[0]) <= {"scipy"}


def test_planning_a_sum_loads_little_of_opendp():
    """Its prelude imports scikit-learn and others where they are installed, which takes seconds."""
    target = "users=1000, lower=0, upper=1, epsilon=1, delta=1e-6"  # the one protocol of a sum that needs it
    plan = f"import shuffledp, sys; shuffledp.find('sum', 'laplace').calibrate({target})"
    loaded_after(f"{plan}\nassert 'opendp.measurements' in sys.modules and 'opendp.prelude' not in sys.modules")


def test_planning_quantiles_is_fast_and_loads_no_scipy():
    """It takes about a second of processor time; the composition of dp-accounting alone would load SciPy's signals."""
    plan = "import shuffledp; shuffledp.plan(shuffledp.Quantiles(10**6, 0, 120), epsilon=1, delta=1e-6)"
    loaded, seconds = loaded_after(plan)
    assert "scipy" not in loaded
    assert seconds < 10


@pytest.mark.parametrize("question", ["Count(1000)", "Histogram(1000, 20)", "Sum(1000)"])
def test_plans_of_one_release_load_no_scipy(question):
    """Its signals, statistics and optimizers take up to a second to import, a third of what a plan may take."""
    loaded, _ = loaded_after(f"import shuffledp; shuffledp.plan(shuffledp.{question}, epsilon=1, delta=1e-6)")
    assert "scipy" not in loaded


USERS, EPSILON, DELTA = 10**6, 1.0, 1e-8
QUESTIONS: dict[str, dict[str, Any]] = {
    "count": {},
    "histogram": {"domain_size": 100},
    "sum": {"domain": Interval(0.0, 10.0)},
    "quantiles": {"domain": Bins(0.0, 10.0, 100)},
    "strings": {"domain": Strings("a-z", 24)},
}
CHECKED = [
    f"{question}/{name}"
    for question, named in PROTOCOLS.items()
    for name, kind in named.items()
    if kind.trust in ("shuffled", "local") and not kind.trusts_shuffler
]

LONGEST = "sum/almost-central"
"""Takes as long as all others together; devices have no tasks of it, since its reports would be too long."""

DEVICE = """
import json, sys, time
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
try:
    import scipy
except ImportError:
    pass
else:
    raise AssertionError("the hook does not work")
"""

WITH_SCIPY = """
import json, sys, time
import scipy.special
import shuffledp.privacy.incomplete_beta as special
special.betainc, special.betaincc = scipy.special.betainc, scipy.special.betaincc  # before anybody takes them
"""

CHECK = """
from shuffledp.collection.wire.padding import capped_guarantee
from shuffledp.protocols.documents import from_document
found = {}
for name, (document, cap) in json.load(sys.stdin).items():
    start = time.process_time()
    protocol = from_document(document)
    if cap is None:
        guarantee = protocol.guarantee
    else:
        guarantee = capped_guarantee(protocol, cap=cap, users=USERS, epsilon=EPSILON, delta=2 * DELTA)
    deltas = [guarantee.delta_at(EPSILON)]
    spent = time.process_time() - start
    assert len(protocol.randomize(0)) >= 1
    deltas += [guarantee.delta_at(epsilon) for epsilon in (0.0, EPSILON / 2, 2 * EPSILON)]
    found[name] = deltas, spent
assert ("scipy" in sys.modules) == WITH
print(json.dumps(found))
"""


@cache
def documents(longest: bool) -> str:
    """Every protocol for a collection as its document, and where reports are to be capped, at how many messages."""
    found: dict[str, Any] = {}
    for each in CHECKED:
        if (each == LONGEST) != longest:
            continue
        question, name = each.split("/")
        protocol = PROTOCOLS[question][name].calibrate(users=USERS, epsilon=EPSILON, delta=DELTA, **QUESTIONS[question])
        cap = None
        if is_unbounded(protocol):
            try:
                cap = least_cap(protocol, users=USERS, epsilon=EPSILON, delta=DELTA / 100)
            except ParameterError:  # reports would be too long
                cap = None
        found[each] = to_document(protocol), cap
    return json.dumps(found)


@cache
def checked_by(prelude: str, longest: bool) -> dict[str, tuple[list[float], float]]:
    settings = f"HEAVY, USERS, EPSILON, DELTA, WITH = {HEAVY!r}, {USERS}, {EPSILON}, {DELTA}, {prelude is WITH_SCIPY}"
    script = f"{settings}\n{prelude}\n{CHECK}"
    done = subprocess.run([sys.executable, "-c", script], input=documents(longest), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each == LONGEST else each for each in CHECKED]
)
def test_a_device_checks_the_guarantee_without_scipy(name):
    """The same numbers as with SciPy's functions, in little time."""
    deltas, spent = checked_by(DEVICE, name == LONGEST)[name]
    reference, _ = checked_by(WITH_SCIPY, name == LONGEST)[name]
    # sums by atoms come from Fourier transforms, for whose rounding that distribution adds 5e-13
    rounding = 1e-15 if name == LONGEST else 1e-300
    assert deltas == pytest.approx(reference, rel=1e-10, abs=rounding)
    assert deltas[0] <= DELTA * 1.011
    assert spent < 1 * 3  # a busy machine is no failure


def test_a_device_that_needs_scipy_is_noticed():
    broken = DEVICE + "import shuffledp.privacy.audit as a; a.proportion_bounds(1, 2, 0.1)"
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {HEAVY!r}\n{broken}"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "ImportError: scipy" in done.stderr
