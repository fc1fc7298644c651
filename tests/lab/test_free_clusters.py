"""Free optimization of clusters: tables against enumeration, derivatives against differences, stored points, faults."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from shuffledp.lab.free_clusters import DELTA, EPSILON, FreeClusters, _Problem, found_optima, optimize
from shuffledp.privacy.cluster_calibration import least_clusters

SMALL = FreeClusters(((1, 0, 0.7), (0, 1, 0.4), (2, 1, 0.5), (2, 2, 0.9)))


def test_the_table_equals_an_enumeration_of_all_clusters():
    expected = np.zeros((6, 6))
    for numbers in product(range(12), repeat=len(SMALL.rates)):
        u, v = (sum(n * cluster[sign] for n, cluster in zip(numbers, SMALL.rates, strict=True)) for sign in (0, 1))
        if u < 6 and v < 6:
            masses = (stats.poisson.pmf(n, rate) for n, (_, _, rate) in zip(numbers, SMALL.rates, strict=True))
            expected[u, v] += math.prod(float(mass) for mass in masses)
    assert SMALL.table(6) == pytest.approx(expected, rel=1e-12)
    assert SMALL.messages == pytest.approx(0.7 + 0.4 + 1.5 + 3.6)
    assert SMALL.variance == pytest.approx(0.7 + 0.4 + 0.5)


def test_delta_equals_the_sum_over_all_outcomes_of_both_categories():
    table = SMALL.table(26)
    p, q = (np.zeros((27, 26)) for _ in range(2))
    p[1:], q[:-1] = table, table
    for epsilon in (0.3, 1.0, 2.0):
        exact = np.maximum(np.outer(p, q) - math.exp(epsilon) * np.outer(q, p), 0).sum()
        assert exact * (1 - 1e-12) <= SMALL.certified_delta(epsilon, 26) <= exact * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("largest", [3, 14])
def test_derivatives(largest):
    """With every rate free, and with the ratio of geometric noise."""
    problem = _Problem((1.0, 1e-3), 4.0, largest, 64)
    variables = np.full(len(problem.i) + problem.geometric, 0.3 if largest == 3 else 0.1)
    for function in (problem.cost, problem.log_delta):
        _, slopes = function(variables)
        for place in (0, 1, len(variables) // 2, len(variables) - 1):
            step = np.zeros(len(variables))
            step[place] = 1e-5
            difference = (function(variables + step)[0] - function(variables - step)[0]) / 2e-5
            assert slopes[place] == pytest.approx(difference, rel=1e-3, abs=1e-6)


def test_optimization_finds_fewer_messages_than_equally_likely_sizes():
    target, kappa = (2.0, 1e-3), 4.0
    ratio, flood = least_clusters(*target, 0.6, "histogram")
    a = float(ratio)
    start = 2 * a / (1 - a) + 2 * flood.mean_pairs + kappa * 2 * a / (1 - a) ** 2
    found = optimize(target, kappa, 4, 48, 0.6, iterations=40)
    assert found.messages + kappa * found.variance < 0.95 * start
    assert 0.98e-3 < found.certified_delta(2.0, 64) <= 1e-3


def test_stored_points_are_certified_and_less_noise_would_not_be():
    optima = found_optima()
    assert len(optima) >= 6
    assert [point.variance for point in optima] == sorted((point.variance for point in optima), reverse=True)
    for point in optima[:3]:
        assert point.certified_delta(EPSILON, 200) <= DELTA
        less = FreeClusters(tuple((i, j, 0.97 * rate) for i, j, rate in point.rates))
        assert less.certified_delta(EPSILON, 200) > DELTA
