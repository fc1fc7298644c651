"""Tests of the shuffler run with the compiled kernels and with numpy."""

import pytest

from shuffledp.native import ACTIVE
from shuffledp.shuffling import external, permutation


@pytest.fixture(params=["native", "numpy"])
def path(request, monkeypatch) -> str:
    """Which of the two does the work."""
    if request.param == "native" and not ACTIVE:
        pytest.skip("the compiled kernels are not built")
    for module in (permutation, external):
        monkeypatch.setattr(module, "ACTIVE", request.param == "native")
    return request.param
