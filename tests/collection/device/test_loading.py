"""What a device loads: no SciPy, no server, nothing that opens messages."""

import json
import subprocess
import sys

import pytest

import shuffledp.collection as collection

HEAVY = ["scipy", "dp_accounting", "pandas", "pyarrow", "altair", "typer", "rich", "starlette", "uvicorn", "httpx"]
SERVERS = [f"shuffledp.collection.{part}" for part in ("wire.opening", "analyzer", "shuffler", "server")]

DEVICE = """
import sys
from pathlib import Path
from shuffledp.collection import Client, Policy, State, VerifyingKey
folder, url = Path(sys.argv[1]), sys.argv[2]
author = VerifyingKey.load(folder / "author.pub")
client = Client((folder / "task.json").read_bytes(), author=author, state=folder / "device", policy=Policy())
client.report(sys.argv[3])
assert client.send(url) is State.DELIVERED
"""


def loaded_after(code: str, *arguments: object) -> set[str]:
    script = f"{code}\nimport json, sys; print(json.dumps([m for m in {HEAVY + SERVERS!r} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "name",
    [
        "histogram/balcer-cheu",
        pytest.param("histogram/uniform-blanket", marks=pytest.mark.slow),
        pytest.param("histogram/shuffled-k-rr", marks=pytest.mark.slow),
        "histogram/correlated-noise",
    ],
)
def test_a_device_loads_little(name, parties, server, tmp_path):
    """It verifies the signature, recomputes the guarantee, randomizes, seals and sends."""
    (tmp_path / "task.json").write_bytes(parties.task(name).signed(parties.author).to_bytes())
    parties.author.public.save(tmp_path / "author.pub")
    assert loaded_after(DEVICE, tmp_path, server.url, "bike") == set()
    assert len(server.bodies) == 1


def test_the_test_can_fail():
    opening = "shuffledp.collection.wire.opening"
    assert loaded_after(f"import scipy, {opening}") == {"scipy", opening}


def test_the_package_itself_loads_nothing():
    names = "[m for m in sys.modules if m.startswith('shuffledp.collection.')]"
    code = f"import sys, shuffledp.collection; assert not {names}, {names}"
    assert loaded_after(code) == set()


def test_public_names():
    for name in collection.__all__:
        assert getattr(collection, name).__doc__
    assert dir(collection) == collection.__all__ == sorted(collection.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = collection.nothing
