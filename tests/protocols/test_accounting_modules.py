"""The docstring of each protocol's file names the modules that account for its privacy."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import shuffledp
from shuffledp.protocols.registry import PROTOCOLS, find_qualified

ROOT = Path(shuffledp.__file__).parent
NAMES = [f"{question}/{name}" for question, named in PROTOCOLS.items() for name in named]
DOMAINS: dict[str, dict[str, Any]] = {
    "count": {},
    "histogram": {"domain_size": 16},
    "sum": {"lower": 0, "upper": 3},
    "quantiles": {"lower": 0, "upper": 3, "bins": 16},
    "strings": {"alphabet": "a-z", "max_length": 10},
}


def named_modules(name: str) -> list[str]:
    """The modules after "Accounting:" in the docstring of the protocol's file."""
    docstring = sys.modules[find_qualified(name).__module__].__doc__ or ""
    paragraphs = re.findall(r"^Accounting: (.+)\.$", docstring, re.MULTILINE)
    assert len(paragraphs) == 1, f"{name} must have one line like: Accounting: ``shuffledp.privacy.balcer_cheu``."
    return re.findall(r"``(shuffledp\.privacy\.[\w.]+)``", paragraphs[0])


def modules_used(name: str) -> tuple[set[str], str]:
    """The modules of which a calibration and its guarantee call functions, and the one that defines the curve."""
    files: set[str] = set()

    def record(frame: FrameType, event: str, argument: object) -> None:
        files.add(frame.f_code.co_filename)

    # parameters of which no other test has results in a cache
    users = 47 if name == "count/pure-sum" else 4_003
    before = sys.getprofile()
    sys.setprofile(record)
    try:
        protocol = find_qualified(name).calibrate(
            users=users, epsilon=1.1875, delta=3e-5, **DOMAINS[name.partition("/")[0]]
        )
        curve = protocol.guarantee.curve
        curve.delta_at(1.25)
    finally:
        sys.setprofile(before)
    paths = [Path(file) for file in files]
    inside = [path.relative_to(ROOT.parent).with_suffix("") for path in paths if path.is_relative_to(ROOT)]
    return {".".join(path.parts).removesuffix(".__init__") for path in inside}, type(curve).__module__


def is_in(module: str, named: str) -> bool:
    return module == named or module.startswith(f"{named}.")


@pytest.mark.parametrize("name", NAMES)
def test_named_modules_account_for_the_protocol(name):
    named = named_modules(name)
    assert named
    for module in named:
        import_module(module)
    used, curve_module = modules_used(name)
    for module in named:
        assert any(is_in(each, module) for each in used), f"{name} does not use {module}"
    assert any(is_in(curve_module, module) for module in named), f"{name} has its curve from {curve_module}"
