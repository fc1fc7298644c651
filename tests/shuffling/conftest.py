"""Tests of the shuffler run with the compiled kernels and with numpy, and count whole tables of permutations."""

import math
from itertools import permutations

import numpy as np
import pytest

from shuffledp.native import ACTIVE
from shuffledp.shuffling import external, grouping, permutation
from shuffledp.testing.statistics import p_value


@pytest.fixture(params=["native", "numpy"])
def path(request, monkeypatch) -> str:
    """Which of the two does the work."""
    if request.param == "native" and not ACTIVE:
        pytest.skip("the compiled kernels are not built")
    for module in (permutation, external, grouping):
        monkeypatch.setattr(module, "ACTIVE", request.param == "native")
    return request.param


def _permutation_table(shuffle, size: int, trials: int, dtype=np.uint8) -> np.ndarray:
    """How often each permutation of ``size`` items came out."""
    places = {order: place for place, order in enumerate(permutations(range(size)))}
    table = np.zeros(len(places))
    fresh = np.zeros(size, dtype=dtype)
    fresh.view(np.uint8).reshape(size, -1)[:] = np.arange(size, dtype=np.uint8)[:, None]
    for _ in range(trials):
        items = fresh.copy()
        shuffle(items)
        table[places[tuple(items.view(np.uint8)[:: items.itemsize].tolist())]] += 1
    return table


def _uniformity(shuffle, size: int, trials: int, dtype=np.uint8) -> float:
    """The p-value of so many permutations of ``size`` items, if all are equally likely."""
    orders = math.factorial(size)
    return p_value(_permutation_table(shuffle, size, trials, dtype), np.full(orders, 1 / orders))


@pytest.fixture(scope="session")
def uniformity():
    """From a way to shuffle, a number of items and one of trials to the p-value of the whole table."""
    return _uniformity
