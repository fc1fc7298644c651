"""Noise of clusters: tables against enumeration, delta against all pairs of outcomes, stored points, planted faults."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from shuffledp.lab.free_clusters import DELTA, EPSILON, FreeClusters, found_optima
from shuffledp.privacy.cluster_calibration import least_clusters
from shuffledp.privacy.discrete_laplace import DiscreteLaplace

OPTIMA = found_optima()
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


def test_the_default_table_leaves_out_almost_nothing():
    for point in (SMALL, OPTIMA[0], OPTIMA[4]):
        assert math.fsum(point.table(point.sufficient_length).ravel().tolist()) > 1 - 2e-10
    assert SMALL.certified_delta(1.0) == pytest.approx(SMALL.certified_delta(1.0, 60), rel=1e-6)
    assert SMALL.certified_delta(1.0, 12) > SMALL.certified_delta(1.0)


@pytest.mark.parametrize("point", OPTIMA, ids=lambda point: f"{point.messages:.0f}")
def test_stored_points_are_certified_and_less_noise_would_not_be(point):
    assert 0.99 * DELTA < point.certified_delta(EPSILON) <= DELTA
    less = FreeClusters(tuple((i, j, 0.97 * rate) for i, j, rate in point.rates))
    assert less.certified_delta(EPSILON) > 1.2 * DELTA


def test_stored_points_form_a_convex_decreasing_line_from_the_blanket_to_1_7_messages_per_user():
    messages, variances = ([getattr(point, name) for point in OPTIMA] for name in ("messages", "variance"))
    slopes = np.diff(variances) / np.diff(messages)
    assert messages[0] < 43 < 690 < messages[-1]
    assert (slopes < 0).all()
    assert (np.diff(slopes) > 0).all()


@pytest.mark.parametrize("split", [0.75, 0.82, 0.9, 0.94])
def test_stored_points_have_less_error_than_equally_likely_sizes_at_as_many_messages(split):
    ratio, flood = least_clusters(EPSILON, DELTA, split, "histogram")
    a = float(ratio)
    messages, variance = 2 * a / (1 - a) + 2 * flood.mean_pairs, DiscreteLaplace(ratio).variance
    line = np.interp(messages, [point.messages for point in OPTIMA], [point.variance for point in OPTIMA])
    assert line < 0.98 * variance


def test_points_of_other_searches_are_not_better():
    """Messages per category and error, up to 0.5 %: two earlier searches of the same problem."""
    for messages, error in ((41.93, 6.547), (77.83, 5.406), (106.2, 4.625), (226, 3.386), (413, 3.082), (556, 2.984)):
        line = np.interp(-(error**2), [-point.variance for point in OPTIMA], [point.messages for point in OPTIMA])
        assert line < 1.005 * messages
