"""Clustered pairs: against tables built by positive convolutions and by enumeration, calibration, conditions."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy import cluster_weights
from shuffledp.privacy.cluster_calibration import least_clusters, least_noise
from shuffledp.privacy.cluster_weights import fewest_messages
from shuffledp.privacy.clusters import ClusterCurve, PairClusters
from shuffledp.privacy.composition import compose
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs, least_flooding
from shuffledp.privacy.negative_binomial import NegativeBinomial
from shuffledp.randomness import Dyadic

VIEWS = ("count", "signed", "histogram")


def table_of(ratio: float, rates: dict[tuple[int, int], float], reach: int) -> np.ndarray:
    """Pr[U+ = u, U- = v] for u, v < reach: one Poisson number of clusters "i plus, j minus" after the other.

    Geometric noise is the clusters (k, 0) and (0, k) at the rates ratio^k / k. All terms are positive, and the corner
    of the table is exact.
    """
    clusters = dict(rates)
    for k in range(1, reach):
        for cluster in ((k, 0), (0, k)):
            clusters[cluster] = clusters.get(cluster, 0.0) + ratio**k / k
    table = np.zeros((reach, reach))
    table[0, 0] = 1.0
    for (plus, minus), rate in clusters.items():
        following = np.zeros_like(table)
        for number in range(reach // max(plus, minus) + 1):
            rows, columns = reach - number * plus, reach - number * minus
            if rows <= 0 or columns <= 0:
                break
            mass = math.exp(number * math.log(rate) - rate - math.lgamma(number + 1)) if rate else float(not number)
            if number > rate and mass < 1e-22:
                break
            following[number * plus :, number * minus :] += mass * table[:rows, :columns]
        table = following
    return table


def clusters_of(flood: PairClusters) -> dict[tuple[int, int], float]:
    rates = {(1, 0): float(flood.singles)} if flood.singles else {}
    total = sum((last - first + 1) * weight for first, last, weight in flood.clusters)
    for first, last, weight in flood.clusters:
        for size in range(first, last + 1):
            rates[size, size] = float(flood.cluster_rate) * weight / total
    return rates


def moved(table: np.ndarray, up: int, down: int) -> np.ndarray:
    result = np.zeros_like(table)
    result[up:, down:] = table[: len(table) - up, : len(table) - down]
    return result


def brute_force(curve: ClusterCurve, epsilon: float, reach: int) -> float:
    """The divergence over the corner of the table: never above the truth."""
    base = table_of(float(curve.ratio), clusters_of(curve.flood), reach)
    first, second = (moved(base, 1, 0), moved(base, 0, 1)) if curve.view == "signed" else (moved(base, 1, 0), base)
    growth = math.exp(epsilon)
    if curve.view != "histogram":
        return max(float(np.maximum(p - growth * q, 0).sum()) for p, q in ((first, second), (second, first)))
    p, q = first.ravel(), second.ravel()  # both categories: all outcomes of one, in the order of their ratio
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(p) - np.log(q)
    kept = np.flatnonzero((p > 0) | (q > 0))
    kept = kept[np.argsort(loss[kept])]
    p, q, loss = p[kept], q[kept], loss[kept]
    below = np.searchsorted(loss, loss - epsilon, side="left")
    sums_p, sums_q = np.append(0.0, np.cumsum(p)), np.append(0.0, np.cumsum(q))
    return float(np.sum(p * sums_q[below] - growth * q * sums_p[below]))


SMALL = [
    (0.4, PairClusters(Fraction(3), ((1, 2, 1),))),
    (0.2, PairClusters(Fraction(5, 2), ((1, 1, 3), (3, 4, 1)))),
    (0.6, PairClusters(Fraction(6), ((2, 3, 1), (5, 5, 4)))),
    (0.5, PairClusters(Fraction(1, 3), ((2, 2, 1),))),
]
WITH_SINGLES = [
    (0.4, PairClusters(Fraction(3), ((1, 2, 1),), Fraction(2))),
    (0.25, PairClusters(Fraction(5), ((2, 3, 2), (4, 4, 1)), Fraction(1, 2))),
    (0.6, PairClusters(Fraction(4), ((3, 3, 1),), Fraction(7))),
]


@pytest.mark.parametrize(("ratio", "flood"), SMALL)
@pytest.mark.parametrize("view", VIEWS)
def test_delta_equals_positive_convolutions(view, ratio, flood):
    curve = ClusterCurve(Dyadic.of(ratio), flood, view)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        exact, bound = brute_force(curve, epsilon, 150), curve.delta_at(epsilon)
        assert bound >= exact * (1 - 1e-12)
        assert bound == pytest.approx(exact, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize(("ratio", "flood"), WITH_SINGLES)
def test_delta_with_singles_equals_positive_convolutions(ratio, flood):
    curve = ClusterCurve(Dyadic.of(ratio), flood, "histogram")
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        exact, bound = brute_force(curve, epsilon, 150), curve.delta_at(epsilon)
        assert bound >= exact * (1 - 1e-12)
        assert bound == pytest.approx(exact, rel=1e-5, abs=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "delta", "split", "reach"), [(1.2, 1e-5, 0.85, 230), (1.6, 1e-7, 0.8, 200), (3.0, 1e-4, 0.9, 160)]
)
def test_calibrated_noise_equals_positive_convolutions(epsilon, delta, split, reach):
    """At targets and splits that no table prints; the accountant is never below, and within 1 %."""
    for ratio, flood in (least_clusters(epsilon, delta, split, "histogram"), fewest_messages(epsilon, delta, split)):
        curve = ClusterCurve(ratio, flood, "histogram")
        exact = brute_force(curve, epsilon, reach)
        assert exact * (1 - 1e-10) <= curve.delta_at(epsilon) <= 1.01 * exact


def test_an_enumeration_of_all_clusters():
    """Every number of clusters of each size and of every kind of noise, one by one, with scipy's distributions."""
    ratio, flood = 0.125, PairClusters(Fraction(1, 2), ((1, 2, 1),), Fraction(1, 4))
    seen: dict[tuple[int, int], float] = {}
    numbers = range(9)
    few = [float(stats.poisson.pmf(n, 0.25)) for n in numbers]
    geometric = [float(stats.geom.pmf(n + 1, 1 - ratio)) for n in numbers]
    for ones, twos, single, plus, minus in product(numbers, repeat=5):
        outcome = plus + single + ones + 2 * twos, minus + ones + 2 * twos
        mass = few[ones] * few[twos] * few[single] * geometric[plus] * geometric[minus]
        seen[outcome] = seen.get(outcome, 0.0) + mass
    gained = {(plus + 1, minus): mass for (plus, minus), mass in seen.items()}
    outcomes = sorted({*seen, *gained})
    p, q = (np.array([pmf.get(outcome, 0.0) for outcome in outcomes]) for pmf in (gained, seen))
    curve = ClusterCurve(Dyadic.of(ratio), flood, "histogram")
    for epsilon in (0.0, 0.7, 1.5):
        exact = float(np.maximum(np.outer(p, q) - math.exp(epsilon) * np.outer(q, p), 0).sum())
        assert curve.delta_at(epsilon) == pytest.approx(exact, rel=1e-5)
        assert curve.delta_at(epsilon) >= exact * (1 - 1e-7)  # the enumeration leaves out a mass of 1e-7


@pytest.mark.parametrize(
    ("split", "first", "last", "rate", "delta"),
    [
        (0.9, 8, 18, "16.2", 9.844154e-07),
        (0.75, 3, 9, "15.7", 9.943870e-07),
        (0.82, 5, 11, "15.7", 9.806218e-07),
        (0.94, 11, 27, "17.4", 9.918758e-07),
    ],
)
def test_golden_deltas(split, first, last, rate, delta):
    flood = PairClusters.uniform(first, last, Fraction(rate))
    curve = ClusterCurve(Dyadic.of(math.exp(-split / 2)), flood, "histogram")
    assert curve.delta_at(1.0) == pytest.approx(delta, rel=1e-6)


def test_planted_underestimates_would_be_caught():
    """Without what is left out, with one direction only, or with a rate that is off by 1 %."""
    ratio, flood = SMALL[0]
    exact = brute_force(ClusterCurve(Dyadic.of(ratio), flood, "count"), 1.0, 90)
    (upward,), (downward,) = ClusterCurve(Dyadic.of(ratio), flood, "count").directions(1e-30)
    assert min(upward.delta(1.0), downward.delta(1.0)) < exact * (1 - 1e-6)
    more = flood.with_rate(flood.cluster_rate * Fraction(101, 100))
    for view in ("count", "histogram"):
        exact = brute_force(ClusterCurve(Dyadic.of(ratio), flood, view), 1.0, 90)
        assert ClusterCurve(Dyadic.of(ratio), more, view).delta_at(1.0) < exact * (1 - 1e-4)
    coarse = ClusterCurve(Dyadic.of(ratio), flood, "histogram")
    assert coarse.delta_with_cut(1.0, 1e-3) >= brute_force(coarse, 1.0, 90)


@settings(max_examples=40, deadline=None)
@given(
    rate=st.fractions(Fraction(1, 100), Fraction(30), max_denominator=1000),
    ends=st.lists(st.integers(1, 40), min_size=2, max_size=6, unique=True),
    weights=st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
def test_masses_sum_to_one_and_have_the_moments_of_the_clusters(rate, ends, weights):
    ordered = sorted(ends)
    ranges = tuple(
        (a, b, w) for (a, b), w in zip(zip(ordered[::2], ordered[1::2], strict=False), weights, strict=False)
    )
    flood = PairClusters(rate, ranges)
    masses = flood.masses(flood.pairs_beyond(1e-18))
    n = np.arange(len(masses))
    assert math.fsum(masses) == pytest.approx(1, abs=1e-11)
    assert float(n @ masses) == pytest.approx(flood.mean_pairs, rel=1e-9)
    square = float(sum(size * size * part for size, part in flood.rates))
    assert float((n - flood.mean_pairs) ** 2 @ masses) == pytest.approx(square, rel=1e-9)


def test_what_is_left_out_is_bounded():
    flood = PairClusters(Fraction(12), ((2, 4, 1), (9, 9, 3)))
    masses = flood.masses(2000)
    for risk in (1e-3, 1e-6, 1e-12):
        beyond = flood.pairs_beyond(risk)
        assert masses[beyond:].sum() <= risk
        geometric = np.convolve(masses, 0.3 * 0.7 ** np.arange(600))
        assert geometric[flood.pairs_beyond(risk, 0.7) : 2000].sum() <= risk


def test_more_noise_hides_more():
    ratio, flood = SMALL[2]
    for view in VIEWS:
        rates = [Fraction(1), Fraction(3), Fraction(6), Fraction(20)]
        deltas = [ClusterCurve(Dyadic.of(ratio), flood.with_rate(rate), view).delta_at(0.8) for rate in rates]
        assert all(more <= less for less, more in pairwise(deltas))
        epsilons = [ClusterCurve(Dyadic.of(ratio), flood, view).delta_at(float(e)) for e in np.linspace(0, 4, 30)]
        assert all(later <= earlier * (1 + 1e-8) for earlier, later in pairwise(epsilons))


def test_its_pairs_compose():
    curve = ClusterCurve(Dyadic.of(0.6), SMALL[2][1], "histogram")
    composed = compose(curve, 2)
    assert curve.delta_at(1.0) < composed.delta_at(1.0)
    assert composed.delta_at(2.2) < 3 * curve.delta_at(1.1)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (0.1, 1e-12), (1.0, 1e-6), (10.0, 1e-12), (2.0, 1e-60)])
def test_the_fewest_pairs_meet_the_target_and_fewer_do_not(view, epsilon, delta):
    ratio, flood = least_clusters(epsilon, delta, 0.8, view)
    assert 0.98 * delta < ClusterCurve(ratio, flood, view).delta_at(epsilon) <= delta
    less = flood.with_rate(flood.cluster_rate * Fraction(99, 100))
    assert ClusterCurve(ratio, less, view).delta_at(epsilon) > delta
    same, shape, flood_ratio = least_flooding(epsilon, delta, 0.8, view)
    assert same == ratio
    # where single pairs are best, the negative binomial number is nearly Poisson too
    assert flood.mean_pairs < (1.005 if epsilon == 10.0 else 1) * NegativeBinomial(shape, flood_ratio).mean


def test_no_other_sizes_do_with_two_percent_fewer_pairs():
    ratio, flood = least_clusters(1.0, 1e-6, 0.9, "histogram")
    for first in range(4, 13):
        for last in range(first + 4, 24, 2):
            fewer = Fraction(round(0.98 * flood.mean_pairs / ((first + last) / 2) * 1000), 1000)
            assert ClusterCurve(ratio, PairClusters.uniform(first, last, fewer), "histogram").delta_at(1.0) > 1e-6


@pytest.mark.parametrize(("epsilon", "split"), [(1.0, 0.655), (1.0, 0.5), (2.0, 0.7), (0.5, 0.6)])
def test_weights_and_singles_save_messages_at_the_same_variance(epsilon, split):
    plain_ratio, plain = least_clusters(epsilon, 1e-6, split, "histogram")
    ratio, flood = fewest_messages(epsilon, 1e-6, split)

    def messages(a, clusters):
        return 2 * float(a) / (1 - float(a)) + 2 * clusters.mean_pairs + float(clusters.singles)

    def variance(a, clusters):
        return 2 * float(a) / (1 - float(a)) ** 2 + float(clusters.singles)

    assert messages(ratio, flood) < 0.97 * messages(plain_ratio, plain)
    assert variance(ratio, flood) == pytest.approx(variance(plain_ratio, plain), rel=1e-9)
    assert ClusterCurve(ratio, flood, "histogram").delta_at(epsilon) <= 1e-6


@pytest.mark.parametrize(("epsilon", "delta", "split"), [(1.0, 1e-6, 0.655), (2.0, 1e-7, 0.5), (1.0, 1e-6, 0.9)])
def test_rounding_errors_do_not_change_optimized_clusters(monkeypatch, epsilon, delta, split):
    """Machines round differently: relative errors of 1e-12 in every derivative must not matter; those of 5 % do."""
    expected = fewest_messages(epsilon, delta, split)
    noise = np.random.default_rng()
    for name in ("_slopes_with_singles", "_slopes_without_singles"):
        original = getattr(cluster_weights, name)

        def disturbed(*arguments, original=original):
            return tuple(part * (1 + size * noise.uniform(-1, 1, np.shape(part))) for part in original(*arguments))

        monkeypatch.setattr(cluster_weights, name, disturbed)
    size = 1e-12
    assert fewest_messages.__wrapped__(epsilon, delta, split) == expected
    size = 0.05
    assert fewest_messages.__wrapped__(epsilon, delta, split) != expected


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((500,), 0), ((30, 50), 0), ((30, 50), 1), ((1,), 0)])
def test_discounted_sums_are_those_of_scipys_filter(shape, axis, first):
    """In every bit, since signed parameters follow from them; sums that start one step off are a fault."""
    values = np.random.default_rng().normal(size=shape)
    filtered = lfilter([1.0] if first == 0 else [0.0, 1.0], [1.0, -0.97], np.flip(values, axis), axis=axis)
    assert (cluster_weights._discounted(values, 0.97, axis, first) == np.flip(filtered, axis)).all()
    assert (cluster_weights._discounted(values, 0.97, axis, 1 - first) != np.flip(filtered, axis)).any()


@pytest.mark.parametrize(
    ("epsilon", "delta", "split"), [(1.0, 1e-6, 0.97), (0.5, 1e-6, 0.97), (1.0, 1e-3, 0.99), (0.7, 0.3, 0.2)]
)
def test_weights_at_splits_where_they_save_nothing(epsilon, delta, split):
    """Up to a hundred sizes, and rates out of range: the result is private or has equally likely sizes."""
    ratio, flood = fewest_messages(epsilon, delta, split)
    assert ClusterCurve(ratio, flood, "histogram").delta_at(epsilon) <= delta
    assert flood.mean_pairs <= least_clusters(epsilon, delta, split, "histogram")[1].mean_pairs


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("epsilon", "delta", "split"), [(0.3, 1e-24, 0.97), (0.6, 1e-100, 0.98)])
def test_sizes_scaled_from_an_easier_target_need_few_more_pairs(view, epsilon, delta, split):
    ratio, flood = least_clusters(epsilon, delta, split, view)
    assert 0.98 * delta < ClusterCurve(ratio, flood, view).delta_at(epsilon) <= delta
    _, shape, flood_ratio = least_flooding(epsilon, delta, split, view)
    assert flood.mean_pairs < 0.97 * NegativeBinomial(shape, flood_ratio).mean


def test_where_clusters_cannot_be_computed_pairs_are_negative_binomial():
    with pytest.raises(InfeasibleError):
        least_clusters(5e-4, 1e-6, 0.5, "count")
    _, flood = least_noise(5e-4, 1e-6, 0.5, "count")
    assert isinstance(flood, NegativeBinomialPairs)


def test_refusals():
    flood = PairClusters.uniform(2, 4, Fraction(3))
    with pytest.raises(ParameterError, match="view"):
        ClusterCurve(Dyadic.of(0.5), flood, "sum")
    with pytest.raises(ConditionError, match="Singles"):
        ClusterCurve(Dyadic.of(0.5), PairClusters(Fraction(3), ((2, 4, 1),), Fraction(1)), "signed")
    for ratio in (0.0, 1.0):
        with pytest.raises(ParameterError):
            ClusterCurve(Dyadic.of(ratio), flood, "count")
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ParameterError):
            ClusterCurve(Dyadic.of(0.5), flood, "count").delta_at(epsilon)
    for split in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError, match="split"):
            least_clusters(1.0, 1e-6, split, "count")
