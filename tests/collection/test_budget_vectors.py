"""The published vectors of the device's budget: this implementation agrees with every case."""

import json
from pathlib import Path

import numpy as np
import pytest

from shuffledp.collection.device.budget import DeviceBudget
from shuffledp.collection.device.spending import Record, Spending
from shuffledp.collection.wire.keys import from_base64
from shuffledp.errors import DataError
from shuffledp.privacy.sampled_curves import POINTS, SampledCurve, SampledTotal

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "v2" / "budget.json").read_bytes())
CURVES = {
    curve["name"]: SampledCurve(
        np.frombuffer(from_base64(curve["samples"], 4 * POINTS), "<f4").astype(np.float32),
        float(curve["epsilon"]),
        float(curve["delta"]),
    )
    for curve in VECTORS["curves"]
}


def wrong_totals(lowered=0.0):
    """The totals that differ from the vectors, of curves that are lowered by a factor."""
    wrong = []
    for case in VECTORS["totals"]:
        curves = [CURVES[name] for name in case["curves"]]
        scaled = [SampledCurve(np.float32(c.deltas * (1 - lowered)), c.epsilon, c.delta) for c in curves]
        total = SampledTotal.of(scaled)
        found = {
            **{delta: total.epsilon_at(float(delta)) for delta in case["epsilons"]},
            **{epsilon: total.delta_at(float(epsilon)) for epsilon in case["deltas"]},
        }
        expected = {key: float(value) for key, value in (case["epsilons"] | case["deltas"]).items()}
        if found != pytest.approx(expected, rel=1e-9, abs=1e-13):
            wrong.append(case["curves"])
    return wrong


def test_totals():
    assert wrong_totals() == []
    assert len(wrong_totals(lowered=1e-6)) >= 4  # the fault: rounding down


def test_records_follow_from_each_other():
    record = VECTORS["charges"][0]["before"]
    for case in VECTORS["charges"]:
        assert case["before"] == record, case["name"]
        record = case.get("after", record)
        assert Record.from_bytes(record.encode()).to_bytes().decode() == record
        assert ("after" in case) != ("refused" in case)


@pytest.mark.parametrize("case", VECTORS["damaged"], ids=lambda case: case["name"].replace(" ", "-"))
def test_damaged_records(tmp_path, case):
    (tmp_path / "budget").write_text(case["content"])
    with pytest.raises(DataError, match="damaged"):
        Spending(tmp_path, DeviceBudget()).read()
