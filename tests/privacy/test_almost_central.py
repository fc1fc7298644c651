"""Sums by atoms: the decomposition, each loss against its exact distribution, and whole small rounds by enumeration."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.signal import fftconvolve, lfilter

from shuffledp.errors import ConditionError, InfeasibleError, ParameterError
from shuffledp.privacy.almost_central import (
    AlmostCentralCurve,
    GradedAlmostCentralCurve,
    almost_central_noise,
    atoms,
    atoms_of,
    expected_noise_messages,
    paper_almost_central_noise,
    replacements,
)
from shuffledp.privacy.almost_central.atoms import decomposition, graded_atoms, groups_of
from shuffledp.privacy.almost_central.losses import (
    NO_LOSS,
    Losses,
    deltas_of,
    from_deltas,
    negative_binomial_losses,
    tails,
    trimmed,
    worst_of,
)
from shuffledp.privacy.almost_central.pairs import PairLosses
from shuffledp.privacy.almost_central.smaller import SmallerNumber
from shuffledp.privacy.almost_central.sums import curves, range_of
from shuffledp.privacy.composition import compose
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve, least_ratio
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


def delta_of(losses: Losses, width: float, epsilon: float) -> float:
    at = (losses.first + np.arange(len(losses.masses))) * width
    return float((losses.masses * np.maximum(-np.expm1(epsilon - at), 0)).sum()) + losses.infinite


def test_the_worst_of_losses_is_above_each():
    width = 0.005
    candidates = [
        negative_binomial_losses(8, Dyadic.at_least(1 - 0.1 / reach), copies, width, 200)[side]
        for reach, copies, side in ((1, 1, 0), (1, 1, 1), (8, 5, 1))
    ]
    worst = worst_of(candidates, width)
    for epsilon in (-0.3, 0.0, 0.01, 0.05, 0.1, 0.3, 0.9):
        deltas = [delta_of(each, width, epsilon) for each in (worst, *candidates)]
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
    assert len(short.masses) < 0.99 * len(losses.masses)
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


FIRST_VERSION = AlmostCentralCurve(2, least_ratio(0.7, sensitivity=2), 9, 0.04, 0.9)
SMALL_SHAPE = GradedAlmostCentralCurve(4, Dyadic(8279825659322979, 53), 3, 0.017, 4, 8.3, 4.0)
"""Accounted for below the exact loss when the directions of the shifts of atoms were not distinguished."""


def log_masses(noise: NegativeBinomial, reach: int) -> np.ndarray:
    k = np.arange(reach)
    p = float(noise.ratio)
    return math.log(1 - p) * float(noise.shape) + np.cumsum(
        np.where(k, np.log(p * (k - 1 + float(noise.shape)) / np.maximum(k, 1)), 0.0)
    )


def losses_from_below(
    curve: AlmostCentralCurve | GradedAlmostCentralCurve, before: int, after: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The independent parts of the exact loss of one replacement: the numbers of copies can be read off what is seen.

    Masses and losses of each part; what is left out makes the loss smaller.
    """
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
    up, down = ends[after][1] - ends[before][1], ends[before][-1] - ends[after][-1]
    a, moved_by = float(curve.ratio), abs(up - down)
    reach = int(noise.mean + 14 * math.sqrt(noise.variance) + 40 / -math.log(a)) + 200
    pairs_of_numbers = lfilter([1.0], [1.0, -(a**2)], np.exp(log_masses(noise, reach)))
    at = np.arange(-moved_by, moved_by + 1)  # farther distances have the loss of the farthest of these
    mass = (1 - a) ** 2 * a ** np.abs(at) * np.where(np.abs(at) == moved_by, 1 / (1 - a), 1.0)
    distance, least = np.meshgrid(at, np.arange(reach - 2 * max(abs(up), abs(down)) - 1), indexing="ij")
    plus, minus = least + np.maximum(distance, 0), least + np.maximum(-distance, 0)
    moved = np.minimum(plus + up, minus + down)
    logs = np.log(pairs_of_numbers)
    staying = np.abs(distance + up - down) - np.abs(distance)
    loss = np.where(moved >= 0, logs[least] - logs[np.maximum(moved, 0)] - staying * math.log(a), np.inf)
    parts.append(((mass[:, None] * pairs_of_numbers[least]).ravel(), loss.ravel()))
    return parts


def delta_from_below(parts: list[tuple[np.ndarray, np.ndarray]], epsilon: float, width: float) -> float:
    """The delta of the sum of independent losses, each rounded down to a multiple of the width."""
    total, first, finite = np.ones(1), 0, 1.0
    for masses, loss in parts:
        kept = np.isfinite(loss) & (loss >= -2.0)  # left out, what hardly counts: from below
        cells = np.floor(np.minimum(loss[kept], 3.0) / width).astype(np.int64)
        low = int(cells.min())
        finite *= 1 - float(masses[np.isinf(loss)].sum())
        total, first = fftconvolve(total, np.bincount(cells - low, weights=masses[kept])), first + low
    at = (first + np.arange(len(total))) * width
    return float((total * np.maximum(-np.expm1(epsilon - at), 0)).sum()) + 1 - finite


def worst_replacement(curve, messages, epsilon):
    """The largest delta from below; only that of the worst pairs is precise."""
    rough = {}
    for before, after in permutations(sorted(messages), 2):
        parts = losses_from_below(curve, before, after)
        rough[before, after] = delta_from_below(parts, epsilon, 1e-3)
    worst = max(rough.values())
    return max(
        delta_from_below(losses_from_below(curve, *pair), epsilon, 1e-5)
        for pair, delta in rough.items()
        if delta > 0.8 * worst
    )


@pytest.mark.parametrize(
    ("levels", "epsilon", "delta", "split"),
    [
        (1, 1.0, 1e-4, 0.8),
        (2, 1.0, 1e-4, 0.8),
        (3, 1.0, 1e-6, 0.9),
        (5, 2.0, 1e-5, 0.6),
        pytest.param(9, 1.0, 1e-4, 0.8, marks=pytest.mark.slow),
        pytest.param(17, 1.0, 1e-4, 0.8, marks=pytest.mark.slow),
        pytest.param(17, 0.5, 1e-6, 0.9, marks=pytest.mark.slow),
    ],
)
def test_calibrated_noise_against_the_exact_loss(levels, epsilon, delta, split):
    """At parameters as they are used: between the loss of the worst of all replacements and 1.01 times that."""
    curve = almost_central_noise(levels, epsilon, delta, split)
    for at in (0.95 * epsilon, epsilon):
        exact = worst_replacement(curve, range(1, levels + 2), at)
        assert exact <= curve.delta_at(at) <= 1.01 * exact


def test_noise_of_the_first_version_against_the_exact_loss():
    for epsilon in (0.5, 0.9):
        exact = worst_replacement(FIRST_VERSION, {1, 2, 3}, epsilon)
        assert exact <= FIRST_VERSION.delta_at(epsilon) <= 1.01 * exact


def test_noise_of_a_small_shape_against_the_exact_loss():
    """Losses above 20 steps count as infinite; they have more mass than the noise of any calibration leaves there."""
    for epsilon in (0.5, 0.9):
        exact = worst_replacement(SMALL_SHAPE, range(1, 6), epsilon)
        assert exact <= SMALL_SHAPE.delta_at(epsilon) <= 1.5 * exact


@pytest.mark.parametrize("levels", [5, 33])
def test_bounds_of_groups_are_above_the_loss_of_each_pair(levels):
    noise = replace(SMALL_SHAPE, levels=levels, shape=6, ratio=least_ratio(0.7, sensitivity=levels)).noise
    width = noise.step / 6
    pairs = PairLosses(noise, width / 3)
    for bound in replacements.GroupLosses(noise, width).sums(groups_of(levels))[::7]:
        low, high = range_of([bound.losses])
        (coarse,) = np.concatenate(list(curves([bound.losses], (low, high), width)))
        fine = pairs.worst(bound.pairs, (3 * low, 3 * high))
        assert np.all(fine[::3] <= coarse * (1 + 1e-9) + 1e-8)
        assert np.all(fine <= replacements.interpolated(coarse, width / 3, 3) * (1 + 1e-9) + 1e-8)


def test_bounds_of_groups_alone_are_valid(monkeypatch):
    """They are what remains for pairs of messages that are too many."""
    monkeypatch.setattr(replacements, "_ENTRIES", 0)
    for curve in (replace(FIRST_VERSION), replace(SMALL_SHAPE)):
        exact = worst_replacement(curve, range(1, curve.levels + 2), 0.9)
        assert exact <= curve.delta_at(0.9) <= 2 * exact


def test_atoms_shifted_in_the_wrong_direction_would_show(monkeypatch):
    """The planted fault: atoms with a negative leading number are added to the message, as it was at first."""
    exact = worst_replacement(SMALL_SHAPE, range(1, 6), 0.5)
    monkeypatch.setattr(atoms, "signed", lambda leader, copies: copies)
    replacements._messages.cache_clear()
    assert replace(SMALL_SHAPE).delta_at(0.5) < 0.99 * exact
    monkeypatch.undo()
    replacements._messages.cache_clear()


def test_a_forgotten_shift_of_the_smaller_number_would_show(monkeypatch):
    exact = worst_replacement(FIRST_VERSION, {1, 2, 3}, 0.9)
    monkeypatch.setattr(SmallerNumber, "of", lambda self, copies: NO_LOSS)
    assert replace(FIRST_VERSION).delta_at(0.9) < 0.99 * exact


def test_shifts_in_the_wrong_order_would_show(monkeypatch):
    """The planted fault: the largest loss of the noise in the sum has the shift that belongs to the least."""
    curve = AlmostCentralCurve(3, least_ratio(0.7, sensitivity=3), 9, 0.04, 0.9)
    exact = worst_replacement(curve, range(1, 5), 0.9)
    assert exact <= replace(curve).delta_at(0.9) <= 1.01 * exact
    mixture = PairLosses._mixture
    monkeypatch.setattr(PairLosses, "_mixture", lambda self, start, moved: mixture(self, moved - start, moved))
    assert curve.delta_at(0.9) < 0.99 * exact


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
    monkeypatch.setattr(replacements, "_ENTRIES", 0)
    assert replace(curve).delta_at(0.9) >= exact
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


@pytest.mark.parametrize(
    "curve",
    [
        AlmostCentralCurve(5, Dyadic.of(0.01), 3, 1e-5, 0.1),
        AlmostCentralCurve(12, Dyadic.of(0.01), 2, 1e-6, 1e-9),
        GradedAlmostCentralCurve(18, Dyadic.of(0.1), 5, 1e-3, 8, 0.1, 1.35),
    ],
)
def test_large_losses_of_the_noise_in_the_sum(curve):
    """Rounding errors of small masses, times e^-loss of very negative losses, are not taken for a distribution."""
    least = DiscreteLaplaceCurve(curve.ratio, curve.levels)  # the delta of the sum alone
    for epsilon in (0.0, 1.0, 5.0, 10.0):
        assert least.delta_at(epsilon) * (1 - 1e-9) <= curve.delta_at(epsilon) <= 1
    assert compose(curve, 2).delta_at(1.0) >= curve.delta_at(1.0) * (1 - 1e-9)


def test_masses_of_the_smaller_number_that_underflow():
    curve = GradedAlmostCentralCurve(3, Dyadic.of(0.9), 100, 0.01619575684845169, 4, 1000.0, 1.0)
    for epsilon in (0.0, 0.1, 0.3):
        least = DiscreteLaplaceCurve(curve.ratio, curve.levels).delta_at(epsilon)  # of the sum alone
        assert least <= curve.delta_at(epsilon) <= least + 0.1


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
