"""The search over all clusters: derivatives against differences, delta against the certified one, a small problem."""

import json
import math

import numpy as np
import pytest

from shuffledp.lab import cluster_search
from shuffledp.lab.cluster_search import Family, Problem, search
from shuffledp.lab.free_clusters import FreeClusters, found_optima
from shuffledp.privacy.cluster_calibration import least_clusters

TARGET = 2.0, 1e-3
SMALL = Family(pairs=6, unequal=4, difference=2, singles=6, length=64)
FOUND = FreeClusters(((1, 0, 0.7), (2, 0, 0.3), (0, 1, 0.4), (0, 2, 0.2), (2, 1, 0.5), (2, 2, 0.9), (3, 3, 0.8)))


def test_the_clusters_of_a_family():
    expected = {(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)}
    expected |= {(i, j) for i in range(1, 5) for j in range(1, 5) if 0 < abs(i - j) <= 2}
    assert set(SMALL.clusters) == expected
    assert len(SMALL.clusters) == len(expected)


def test_derivatives():
    problem = Problem(TARGET, 4.0, SMALL)
    variables = problem.start_from(FOUND)
    variables[:2] = 0.5, 1.1
    variables[2:] = 0.05
    for function in (problem.cost, problem.log_delta):
        _, slopes = function(variables)
        for place in (0, 1, 2, len(variables) // 2, len(variables) - 1):
            step = np.zeros(len(variables))
            step[place] = 1e-5
            difference = (function(variables + step)[0] - function(variables - step)[0]) / 2e-5
            assert slopes[place] == pytest.approx(difference, rel=2e-3, abs=1e-6)


def test_delta_is_the_certified_one():
    """Also if there are many more "+1" than "-1"."""
    for found in (FOUND, FreeClusters(((1, 0, 40.0), (0, 1, 0.4), (0, 2, 0.1)))):
        problem = Problem((1.0, TARGET[1]), 4.0, SMALL)
        rates = {(i, j): rate for i, j, rate in found.rates}
        value, _ = problem._delta_of_rates(np.array([rates.get(cluster, 0.0) for cluster in _clusters(problem)]))
        assert 1e-6 < found.certified_delta(1.0) < 1
        assert TARGET[1] * math.exp(value) == pytest.approx(found.certified_delta(1.0), rel=1e-4)


def test_starts_have_the_rates_of_the_noise_they_start_from():
    problem = Problem(TARGET, 4.0, SMALL)
    rates = dict(zip(_clusters(problem), problem.rates(problem.start_from(FOUND)).tolist(), strict=True))
    for i, j, rate in FOUND.rates:
        assert rates[i, j] == pytest.approx(rate)
    ratio, flood = least_clusters(*TARGET, 0.6, "histogram")
    messages = float((problem.i + problem.j) @ problem.rates(problem.start(0.6)))
    assert messages == pytest.approx(2 * float(ratio) / float(ratio.complement) + 2 * flood.mean_pairs, rel=1e-3)


def test_larger_clusters_in_as_many_messages():
    """A stretch by 2 keeps the number of clusters and doubles their sizes."""
    even = FreeClusters(((1, 0, 0.5), (0, 1, 0.5), (10, 10, 1.0), (11, 11, 1.0), (12, 12, 1.0)))
    problem = Problem(TARGET, 4.0, Family(pairs=40, unequal=2, difference=1, singles=6, length=128))
    rates = problem.rates(problem.start_from(even, 2.0))
    pairs = problem.i == problem.j
    assert float(rates[pairs].sum()) == pytest.approx(3, rel=1e-2)
    assert float(rates[pairs] @ problem.i[pairs]) == pytest.approx(66, rel=1e-2)


def test_the_search_finds_fewer_messages_than_equally_likely_sizes():
    kappa = 4.0
    ratio, flood = least_clusters(*TARGET, 0.6, "histogram")
    a = float(ratio)
    start = 2 * a / (1 - a) + 2 * flood.mean_pairs + kappa * 2 * a / (1 - a) ** 2
    problem = Problem(TARGET, kappa, SMALL)
    found = search(problem, problem.start(0.6), iterations=120)
    assert found.messages + kappa * found.variance < 0.95 * start
    assert 0.999e-3 < found.certified_delta(2.0) <= 1e-3


def test_searching_again_keeps_what_is_better(tmp_path, monkeypatch):
    """With a search that finds nothing good, and with one that finds a better point for one kappa."""
    stored = found_optima()
    runs = ((100.0, 0.88, SMALL), (200.0, 0.9, SMALL))
    monkeypatch.setattr(cluster_search, "RUNS", runs)
    monkeypatch.setattr(cluster_search, "search", lambda problem, start: FreeClusters(((1, 0, 500.0),)))
    path = tmp_path / "points.json"
    cluster_search.regenerate(path)
    again = [tuple(tuple(entry) for entry in rates) for rates in json.loads(path.read_text())["points"]]
    assert again == [min(stored, key=lambda p, k=k: p.messages + k * p.variance).rates for k, _, _ in runs]
    better = FreeClusters(((1, 0, 1.0),))
    monkeypatch.setattr(cluster_search, "search", lambda problem, start: better)
    cluster_search.regenerate(path)
    assert json.loads(path.read_text())["points"] == [[[1, 0, 1.0]]] * 2


def _clusters(problem):
    return list(zip(problem.i.tolist(), problem.j.tolist(), strict=True))
