"""Protocols by question and name."""

import re
from pathlib import Path

import pytest

import shuffledp
from shuffledp.errors import UnknownNameError
from shuffledp.protocols.registry import PROTOCOLS, find, find_qualified


def test_names_are_the_same_in_the_registry_and_in_the_file():
    root = Path(shuffledp.__file__).parent / "protocols"
    for question, named in PROTOCOLS.items():
        for name, kind in named.items():
            assert kind.name == name
            assert kind.question == question
            assert (root / question / f"{re.sub('-', '_', name)}.py").is_file()


def test_finding():
    assert find("count", "balcer-cheu") is find_qualified("count/balcer-cheu")
    for wrong in ("nothing", "count/nothing", "sum/balcer-cheu"):
        with pytest.raises(UnknownNameError):
            find_qualified(wrong)
    with pytest.raises(UnknownNameError, match="use count/balcer-cheu or histogram/balcer-cheu"):
        find_qualified("balcer-cheu")
