"""Sums by atoms: the decomposition, each loss against its exact distribution, and whole small rounds by enumeration."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.signal import fftconvolve

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.almost_central import (
    AlmostCentralCurve,
    GradedAlmostCentralCurve,
    almost_central_noise,
    atoms_of,
    expected_noise_messages,
    paper_almost_central_noise,
    replacements,
)
from shuffledp.privacy.almost_central.atoms import decomposition, graded_atoms, groups_of
from shuffledp.privacy.almost_central.losses import (
    deltas_of,
    from_deltas,
    negative_binomial_losses,
    tails,
    trimmed,
    worst_of,
)
from shuffledp.privacy.composition import compose
from shuffledp.privacy.discrete_laplace import least_ratio
from shuffledp.privacy.divergence import DiscretePair
from shuffledp.privacy.negative_binomial import NegativeBinomial, NegativeBinomialCurve
from shuffledp.randomness import Dyadic


@pytest.mark.parametrize("levels", [1, 2, 3, 7, 8, 30, 100])
@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_a_message_is_what_its_decomposition_says(levels, parts):
    atoms = {atom.members[0]: atom for atom in graded_atoms(levels, parts, 9.0, 4.0)}
    published = {atom.members[0]: atom for atom in atoms_of(levels)}
    assert all(sum(atom.members) == 0 for atom in (*atoms.values(), *published.values()))
    used = {1}
    for message in range(1, levels + 2):
        *depths, rest = decomposition(message, parts)
        total = {1: rest[1], -1: -rest[-1]}
        for depth, copies in enumerate(depths):
            assert len(copies) <= 2
            assert sum(copies.values()) <= parts**depth
            for leader, n in copies.items():
                used.add(leader)
                assert n <= atoms[leader].reach
                for member in atoms[leader].members:
                    total[member] = total.get(member, 0) + (n if leader > 0 else -n)
                if parts == 2:
                    assert sorted(atoms[leader].members) == sorted(published[leader].members)
                    assert n <= published[leader].reach
        assert {number: n for number, n in total.items() if n} == {message: 1}
        assert rest[1] + rest[-1] == message
        assert max(rest.values()) <= min(atoms[1].reach, published[1].reach if parts == 2 else math.inf)
    assert set(atoms) == used


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5, 30, 101, 1000])
def test_groups_cover_every_message_once(levels):
    groups = groups_of(levels)
    assert [message for first, last in groups for message in range(first, last + 1)] == list(range(1, levels + 2))
    assert groups[0] == (1, 1)
    assert groups[-1] == (levels + 1, levels + 1)


def test_factors_are_the_least_that_messages_allow():
    levels, slope, widest = 100, 9.0, 4.0
    for atom in graded_atoms(levels, 4, slope, widest)[1:]:
        allowed = [
            min(1 + slope * min(message - 1, levels + 1 - message) / levels, widest) * atom.reach / copies
            for message in range(1, levels + 2)
            for depth in list(decomposition(message, 4))[:-1]
            for leader, copies in depth.items()
            if leader == atom.members[0]
        ]
        assert 1 <= atom.factor <= min(min(allowed), widest)
    assert len({atom.factor for atom in graded_atoms(levels, 4, slope, widest)}) > 5


@pytest.mark.parametrize("shape", [2, 8, 15])
@pytest.mark.parametrize(("reach", "copies"), [(1, 1), (4, 3), (16, 16)])
def test_the_loss_of_one_move_is_the_truth_from_above(shape, reach, copies):
    step = 0.1
    ratio = Dyadic.at_least(1 - step / reach)
    width, cells = step / 20, 200
    exact = NegativeBinomialCurve(NegativeBinomial(Fraction(shape), ratio), copies).pair(copies, 1e-30)
    up, down = negative_binomial_losses(shape, ratio, copies, width, cells)
    for losses, pair in ((up, exact.reversed), (down, exact)):
        assert losses.masses.sum() + losses.infinite == pytest.approx(1, abs=1e-12)
        at = (losses.first + np.arange(len(losses.masses))) * width
        for epsilon in (0.0, 0.01, 0.05, 0.1, 0.3, 0.9):
            ours = float((losses.masses * np.maximum(-np.expm1(epsilon - at), 0)).sum()) + losses.infinite
            truth = pair.delta(epsilon)
            assert ours >= truth * (1 - 1e-8) - 1e-14
            assert ours <= truth * 1.02 + float(losses.infinite) + 1e-5


def test_the_worst_of_losses_is_above_each():
    width = 0.005
    candidates = [
        negative_binomial_losses(8, Dyadic.at_least(1 - 0.1 / reach), copies, width, 200)[side]
        for reach, copies, side in ((1, 1, 0), (1, 1, 1), (8, 5, 1))
    ]
    worst = worst_of(candidates, width)
    at = (worst.first + np.arange(len(worst.masses))) * width
    for epsilon in (-0.3, 0.0, 0.01, 0.05, 0.1, 0.3, 0.9):
        deltas = [
            float((each.masses * np.maximum(-np.expm1(epsilon - at), 0)).sum()) + each.infinite
            for each in (worst, *candidates)
        ]
        assert deltas[0] >= max(deltas[1:]) * (1 - 1e-10)
        assert deltas[0] <= max(deltas[1:]) * (1 + 1e-3)


def test_deltas_and_losses_are_inverse_to_each_other():
    masses = np.random.default_rng().dirichlet(np.ones(60), 3) * 0.999
    width = 0.02
    deltas = deltas_of(masses, width)
    losses = np.arange(60) * width
    for row, ours in zip(masses, deltas, strict=True):
        exact = [(row * np.maximum(-np.expm1(loss - losses), 0)).sum() for loss in losses]
        assert ours == pytest.approx(exact, rel=1e-12, abs=1e-15)
    largest = from_deltas(deltas.max(axis=0) + 0.001, -7, width)
    assert largest.first == -7
    assert deltas_of(largest.masses[None, :], width)[0][:-1] == pytest.approx(deltas.max(axis=0)[:-1], abs=1e-12)


def test_trimming_only_raises_deltas():
    losses, _ = negative_binomial_losses(8, Dyadic.at_least(0.9), 1, 0.005, 400)
    short = trimmed(losses)
    assert len(short.masses) < 0.8 * len(losses.masses)
    assert short.masses.sum() + short.infinite == pytest.approx(1, abs=1e-12)
    for edge in np.linspace(-1, 1, 41).tolist():
        deltas = [
            float((each.masses * np.maximum(-np.expm1(edge - width * 0.005), 0)).sum()) + each.infinite
            for each in (losses, short)
            for width in [each.first + np.arange(len(each.masses))]
        ]
        assert deltas[0] * (1 - 1e-12) <= deltas[1] <= deltas[0] + 1e-8


@pytest.mark.parametrize("shape", [2, 7, 30])
@pytest.mark.parametrize("ratio", [0.4, 0.8, 0.95, 0.9995])
def test_tails(shape, ratio):
    exact = Dyadic.of(ratio)
    k = np.array([0, 1, 5, 40, 300, 20_000, np.inf, -1])
    lower, upper = tails(shape, np.full(len(k), float(exact.complement)), k)
    with mpmath.workdps(40):
        for at, below, above in zip(k[:6], lower[:6], upper[:6], strict=True):
            p = mpmath.mpf(exact.numerator) / mpmath.mpf(2) ** exact.bits
            truth = mpmath.betainc(shape, int(at) + 1, 0, 1 - p, regularized=True)
            assert abs(below - truth) <= 1e-13 * truth
            assert abs(above - (1 - truth)) <= 1e-12 * (1 - truth) + 1e-38
    assert (lower[6], upper[6], lower[7], upper[7]) == (1, 0, 0, 1)


@pytest.mark.parametrize("shape", [99, 101, 800, 1000])
def test_tails_of_large_shapes_do_not_underflow(shape):
    complement = 0.05
    mean, deviation = shape * 19.0, math.sqrt(shape * 19 * 20)
    k = np.floor(mean + deviation * np.linspace(-8, 8, 33))
    lower, upper = tails(shape, np.full(len(k), complement), k)
    assert lower == pytest.approx(stats.nbinom.cdf(k, shape, complement), rel=1e-9)
    assert upper == pytest.approx(stats.nbinom.sf(k, shape, complement), rel=1e-9)


def series(shape: int, ratio: Dyadic, reach: int) -> np.ndarray:
    masses = [float(ratio.complement) ** shape]
    for k in range(reach):
        masses.append(masses[-1] * float(ratio) * (k + shape) / (k + 1))
    return np.array(masses)


def corner(curve: AlmostCentralCurve | GradedAlmostCentralCurve, message: int, caps: dict[int, int]) -> np.ndarray:
    """The exact distribution of the multiset of messages, as far as no number occurs more often than its cap."""
    numbers = sorted(caps)
    shape = tuple(caps[number] for number in numbers)
    table = np.zeros(shape)
    table[tuple(int(number == message) for number in numbers)] = 1.0
    noises = [((1,), 1, curve.ratio), ((-1,), 1, curve.ratio)]
    noises += [(atom.members, curve.shape, ratio) for atom, _, ratio in curve.flooding]
    for members, noise_shape, ratio in noises:
        direction = [members.count(number) for number in numbers]
        masses = series(noise_shape, ratio, max(shape))
        result = np.zeros_like(table)
        for copies, mass in enumerate(masses):
            shift = [copies * each for each in direction]
            if all(each < cap for each, cap in zip(shift, shape, strict=True)):
                target = tuple(slice(each, None) for each in shift)
                source = tuple(slice(0, cap - each) for each, cap in zip(shift, shape, strict=True))
                result[target] += mass * table[source]
        table = result
    return table


SMALL_ROUNDS = [
    (1, {1: 40, -1: 40, 2: 20}),
    (2, {1: 15, -1: 15, 2: 9, -2: 9, 3: 9}),
    (3, {1: 16, -1: 16, 2: 8, -2: 9, 3: 6, 4: 6}),
]


def of_both_versions(levels: int, shape: int, step: float) -> list[AlmostCentralCurve | GradedAlmostCentralCurve]:
    ratio = Dyadic.of(0.3)
    graded = GradedAlmostCentralCurve(levels, ratio, shape, step / 2, 3, 4.0, 1.9)
    return [AlmostCentralCurve(levels, ratio, shape, step, 4.0), graded]


@pytest.mark.parametrize(("levels", "caps"), SMALL_ROUNDS)
@pytest.mark.parametrize(("shape", "step"), [(2, 0.7), (3, 0.9)])
def test_all_messages_of_small_rounds(levels, caps, shape, step):
    """Enumeration of the multiset, from below, for every replacement: never above the claim."""
    for curve in of_both_versions(levels, shape, step):
        parts = sorted(member for atom, _, _ in curve.flooding for member in atom.members)
        assert set(parts) <= set(caps)
        tables = {message: corner(curve, message, caps) for message in range(1, levels + 2)}
        assert min(table.sum() for table in tables.values()) > 0.01
        for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0):
            exact = max(
                float(np.maximum(tables[i] - math.exp(epsilon) * tables[j], 0).sum())
                for i, j in permutations(tables, 2)
            )
            assert curve.delta_at(epsilon) >= exact


def log_masses(noise: NegativeBinomial, reach: int) -> np.ndarray:
    k = np.arange(reach)
    p = float(noise.ratio)
    return math.log(1 - p) * float(noise.shape) + np.cumsum(
        np.where(k, np.log(p * (k - 1 + float(noise.shape)) / np.maximum(k, 1)), 0.0)
    )


def losses_from_below(
    curve: AlmostCentralCurve | GradedAlmostCentralCurve, before: int, after: int, width: float
) -> tuple[np.ndarray, int, float]:
    """The exact loss of one replacement, rounded down: the numbers of copies can be read off what is seen."""
    copies: dict[int, int] = {}
    ends = {}
    for message, sign in ((after, 1), (before, -1)):
        *depths, ends[message] = decomposition(message, getattr(curve, "parts", 2))
        for depth in depths:
            for leader, n in depth.items():
                copies[leader] = copies.get(leader, 0) + sign * (n if leader > 0 else -n)
    parts = []
    for atom, shape, ratio in curve.flooding[1:]:
        if move := copies.get(atom.members[0], 0):
            noise = NegativeBinomial(shape, ratio)
            reach = int(noise.mean + 14 * math.sqrt(noise.variance)) + 60
            logs = log_masses(noise, reach + abs(move))
            at = np.arange(reach)
            loss = np.where(at + move >= 0, logs[at] - logs[np.maximum(at + move, 0)], np.inf)
            parts.append((np.exp(logs[:reach]), loss))
    _, shape, ratio = curve.flooding[0]
    noise = NegativeBinomial(shape, ratio)
    reach, a = int(noise.mean + 14 * math.sqrt(noise.variance)) + 200, float(curve.ratio)
    smaller = np.convolve(np.exp(log_masses(noise, reach)), a ** (2 * np.arange(600.0)))[:reach]
    up, down = ends[after][1] - ends[before][1], ends[before][-1] - ends[after][-1]
    distance, least = np.meshgrid(np.arange(-80, 81), np.arange(reach - 40), indexing="ij")
    plus, minus = least + np.maximum(distance, 0), least + np.maximum(-distance, 0)
    moved = np.minimum(plus + up, minus + down)
    log_smaller = np.log(smaller)
    staying = np.abs(distance + up - down) - np.abs(distance)
    loss = np.where(
        moved >= 0, log_smaller[least] - log_smaller[np.clip(moved, 0, reach - 1)] - staying * math.log(a), np.inf
    )
    parts.append((((1 - a) ** 2 * a ** np.abs(distance) * smaller[least]).ravel(), loss.ravel()))
    total, first, finite = np.ones(1), 0, 1.0
    for masses, loss in parts:
        cells = np.floor(np.clip(loss, -10, 3) / width).astype(np.int64)  # rounded down
        kept = np.isfinite(loss) & (cells >= -4000)  # left out, what hardly counts: from below
        low = int(cells[kept].min())
        part = np.bincount(cells[kept] - low, weights=masses[kept])
        finite *= 1 - float(masses[np.isinf(loss)].sum())
        total, first = fftconvolve(total, part), first + low
    return total, first, 1 - finite


def worst_replacement(curve, messages, epsilon):
    worst = 0.0
    for before, after in permutations(sorted(messages), 2):
        masses, first, infinite = losses_from_below(curve, before, after, 5e-4)
        at = (first + np.arange(len(masses))) * 5e-4
        worst = max(worst, float((masses * np.maximum(-np.expm1(epsilon - at), 0)).sum()) + infinite)
    return worst


@pytest.mark.parametrize(
    ("levels", "largest_ratio"),
    [(1, 1.3), (2, 1.5), pytest.param(5, 1.1, marks=pytest.mark.slow), pytest.param(17, 2.3, marks=pytest.mark.slow)],
)
def test_calibrated_noise_against_the_exact_loss(levels, largest_ratio):
    """At parameters as they are used: never below the loss of any replacement, and not far above the worst.

    The reference rounds losses down. Where the levels are many, only messages near the ends are compared.
    """
    curve = almost_central_noise(levels, 1.0, 1e-4, 0.8)
    near = {1, 2, 3, levels // 2 + 1, levels - 1, levels, levels + 1} & set(range(1, levels + 2))
    for epsilon, allowed in ((0.9, 4.0), (1.0, largest_ratio)):
        exact = worst_replacement(curve, near, epsilon)
        assert exact <= curve.delta_at(epsilon) <= allowed * exact


def test_noise_of_the_first_version_against_the_exact_loss():
    curve = AlmostCentralCurve(2, least_ratio(0.7, sensitivity=2), 9, 0.04, 0.9)
    exact = worst_replacement(curve, {1, 2, 3}, 0.9)
    assert exact <= curve.delta_at(0.9) <= 1.2 * exact


def test_documents_of_the_first_version_still_verify():
    """Noise that the previous accountant found for epsilon 1 and delta 1e-6 with a split of 0.9."""
    for levels, shape, step in (
        (1, 13, 0.034186484788657386),
        (2, 11, 0.028755078881379327),
        (10, 10, 0.02199108805300533),
        (100, 9, 0.01639917194888554),
    ):
        curve = AlmostCentralCurve(levels, least_ratio(0.9, sensitivity=levels), shape, step, 0.3)
        assert curve.delta_at(1.0) < 0.5e-6  # a factor of 2 to 10 was slack


def test_the_nearest_distance_of_groups_would_show(monkeypatch):
    """The planted fault: noise of the sum that is shifted by the least instead of the largest distance."""
    curve = GradedAlmostCentralCurve(2, Dyadic.of(0.6), 9, 0.04, 4, 7.0, 2.0)
    exact = worst_replacement(curve, {1, 2, 3}, 0.9)
    assert curve.delta_at(0.9) >= exact
    monkeypatch.setattr(replacements, "_distance", lambda before, after: min(1, abs(before.last - after.first)))
    assert replace(curve).delta_at(0.9) < exact


def test_a_forgotten_infinite_loss_would_be_caught():
    levels, caps = SMALL_ROUNDS[0]
    curve = AlmostCentralCurve(levels, Dyadic.of(0.01), 2, 0.9, 0.5)
    tables = [corner(curve, message, caps) for message in (1, 2)]
    exact = max(float(np.maximum(p - math.exp(7) * q, 0).sum()) for p, q in (tables, tables[::-1]))
    ((pair,),) = curve.directions(0.0)
    assert pair.delta(7.0) >= exact
    with pytest.raises(ConditionError, match="masses sum to"):
        DiscretePair(pair.p, pair.q)


@pytest.mark.parametrize(
    ("levels", "users", "most"),
    [(1, 10**4, 0.3), (100, 10**6, 0.41), pytest.param(1000, 10**8, 0.06, marks=pytest.mark.slow)],
)
def test_calibrated_noise_meets_the_target_with_few_messages(levels, users, most):
    curve = almost_central_noise(levels, 1.0, 1e-6, 0.9)
    assert 0.8e-6 < curve.delta_at(1.0) <= 1e-6
    assert expected_noise_messages(curve) / users < most
    assert curve.ratio == least_ratio(0.9, sensitivity=levels)


@pytest.mark.parametrize(("epsilon", "delta", "split"), [(0.2, 1e-6, 0.8), (5.0, 1e-4, 0.9), (1.0, 1e-9, 0.5)])
def test_other_targets(epsilon, delta, split):
    curve = almost_central_noise(20, epsilon, delta, split)
    assert 0.7 * delta < curve.delta_at(epsilon) <= delta
    more = replace(curve, step=curve.step * 1.1)
    assert more.delta_at(epsilon) > delta


def test_it_composes():
    curve = almost_central_noise(20, 1.0, 1e-6, 0.9)
    composed = compose(curve, 2)
    assert curve.delta_at(1.0) < composed.delta_at(1.0)
    assert composed.delta_at(2.0) <= 2.01 * curve.delta_at(1.0)


def test_delta_falls_with_epsilon():
    curve = almost_central_noise(20, 1.0, 1e-6, 0.9)
    deltas = [curve.delta_at(epsilon) for epsilon in np.linspace(0, 2, 40).tolist()]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(deltas))
    assert deltas[0] <= 1


@pytest.mark.parametrize("levels", [1, 2, 10, 100])
def test_the_constants_of_the_paper(levels):
    ratio, noise = paper_almost_central_noise(levels, 1.0, 1e-6, 0.9)
    assert ratio == least_ratio(0.9, sensitivity=levels)
    assert len(noise) == len(atoms_of(levels))
    tolerance = {atom.members[0]: -0.2 * 0.05 / math.log(float(flood_ratio)) / 2 for atom, _, flood_ratio in noise[1:]}
    for message in range(2, levels + 2):
        *depths, _ = decomposition(message)
        assert sum(n / tolerance[leader] for copies in depths for leader, n in copies.items()) <= 1 + 1e-9
    if levels == 100:
        messages = sum(len(atom.members) * float(shape) * float(p) / float(p.complement) for atom, shape, p in noise)
        assert 50 < messages / 10**6 < 300  # 257 are printed for atoms of both signs


def test_refusals():
    curve = AlmostCentralCurve(3, Dyadic.of(0.5), 4, 0.1, 1.0)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ParameterError):
            curve.delta_at(epsilon)
    for wrong in ({"levels": 0}, {"shape": 1}, {"step": 1.0}, {"spare": 0.0}):
        with pytest.raises(ParameterError):
            AlmostCentralCurve(**{"levels": 3, "ratio": Dyadic.of(0.5), "shape": 4, "step": 0.1, "spare": 1.0} | wrong)
    graded = {"levels": 3, "ratio": Dyadic.of(0.5), "shape": 4, "step": 0.2, "parts": 4, "slope": 9.0, "widest": 4.0}
    for wrong in ({"parts": 1}, {"parts": 17}, {"slope": -1.0}, {"slope": math.nan}, {"widest": 0.5}, {"widest": 5.0}):
        with pytest.raises(ParameterError):
            GradedAlmostCentralCurve(**graded | wrong)
    with pytest.raises(ParameterError):
        almost_central_noise(10, 1.0, 1e-6, 1.0)
    with pytest.raises(InfeasibleError):
        almost_central_noise(10, 1.0, 1e-12, 0.9)
    with pytest.raises(ConditionError):
        paper_almost_central_noise(10, 20.0, 1e-6, 0.9)
