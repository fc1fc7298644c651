"""The published vectors of chains: layers open at their own hop, and nowhere else."""

import json
from pathlib import Path

import pytest

from shuffledp.collection.task.task import SignedTask
from shuffledp.collection.wire import layers
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.layers import LayerOpener, layer_info

FILE = json.loads((Path(__file__).parents[2] / "vectors" / "v2" / "chain.json").read_bytes())
TASK = SignedTask.from_bytes(FILE["content"].encode()).task


def opened(case):
    key = SealingKey(bytes.fromhex(FILE["round_keys"][case["hop"]]))
    opener = LayerOpener(key, case["hop"], TASK.id, TASK.record_size(case["hop"] - 1))
    return opener.open(bytes.fromhex(case["sealed"]))


def test_layers():
    assert [TASK.record_size(hop) for hop in range(3)] == FILE["record_sizes"]
    for case in FILE["layers"]:
        assert layer_info(case["hop"], TASK.id).hex() == case["info"]
        assert opened(case).hex() == case["content"]
        assert len(bytes.fromhex(case["content"])) == TASK.record_size(case["hop"])


@pytest.mark.parametrize("case", FILE["unopenable"], ids=lambda case: case["name"].replace(" ", "-"))
def test_layers_that_do_not_open(case):
    assert opened(case) is None


def test_a_context_without_the_index_is_seen(monkeypatch):
    monkeypatch.setattr(layers, "layer_info", lambda hop, task_id: layer_info(2, task_id))
    assert [case for case in FILE["unopenable"] if opened(case) is not None]
