"""What a device recomputes by the formulas of docs/collection/randomizers.md, against the vectors.

For so few users even those formulas that are not the library's own agree with it.
"""

import importlib.util
import json
import math
from pathlib import Path

import pytest


def beside(name):
    """A module of this directory."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


foreign, guarantees = beside("foreign_client"), beside("foreign_guarantees")
AUGMENTED, LOCAL, chance_of_more, delta, local_epsilon = (
    getattr(guarantees, name) for name in ("AUGMENTED", "LOCAL", "chance_of_more", "delta", "local_epsilon")
)

FOLDER = Path(__file__).parents[2] / "vectors"
RANDOMIZERS, CLUSTERS, TASKS, OF_AUGMENTED = (
    json.loads((FOLDER / f"{name}.json").read_bytes())
    for name in ("v1/randomizers", "v1/clusters", "v1/task", "v2/augmented")
)
CASES = [
    pytest.param(case, id=case["name"].replace(" ", "-"))
    for case in RANDOMIZERS["randomizers"] + CLUSTERS["randomizers"] + OF_AUGMENTED["randomizers"]
    if case["guarantee"]
]
TOLERANCE = float(RANDOMIZERS["tolerance"])


def agree(ours, theirs):
    """Within the tolerance of six digits."""
    return abs(ours - theirs) <= TOLERANCE * theirs + 1e-12


@pytest.mark.parametrize("case", CASES)
def test_a_randomizer(case):
    name, parameters = case["protocol"]["protocol"], foreign.read(case["protocol"]["parameters"])
    told = case["guarantee"]
    honest = foreign.honest(parameters, case["protocol"]["parameters"])
    assert told["honest_users"] == (1 if name in LOCAL | AUGMENTED else honest)
    local = local_epsilon(name, parameters)
    assert (local is None) == (told["local_epsilon"] is None)
    assert local is None or local == pytest.approx(float(told["local_epsilon"]), rel=TOLERANCE, abs=1e-12)
    for epsilon, expected in told["deltas"].items() if name != "sum/almost-central" else ():  # no formula
        found = delta(name, parameters, honest, float(epsilon))
        assert agree(found, float(expected)), (epsilon, found, expected)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in TASKS["good"]])
def test_a_task(case):
    """With the cap, where a report has one: more than `messages_per_report` - 1 messages of noise."""
    task = json.loads(case["content"])["task"]
    name, parameters = task["protocol"]["protocol"], foreign.read(task["protocol"]["parameters"])
    honest = foreign.honest(parameters, task["protocol"]["parameters"])
    epsilon = float(case["recomputed"]["epsilon"])
    assert epsilon == float(task["guarantee"]["epsilon"])
    found = delta(name, parameters, honest, epsilon)
    if name == "count/correlated-noise":
        staying = (2 / honest, float(parameters["ratio"]), 1)
        flood = (float(parameters["flood_shape"]) / honest, float(parameters["flood_ratio"]), 2)
        chance = chance_of_more(task["messages_per_report"] - 1, [staying, flood])
        found += (1 + math.exp(epsilon)) * task["maximum_users"] * chance
    assert agree(found, float(case["recomputed"]["delta"]))
    assert found <= float(task["guarantee"]["delta"])
    local = local_epsilon(name, parameters)
    assert (
        (local is None) == (task["guarantee"]["local_epsilon"] is None) == (case["recomputed"]["local_epsilon"] is None)
    )
    assert local is None or local == pytest.approx(float(task["guarantee"]["local_epsilon"]), rel=1e-9)
