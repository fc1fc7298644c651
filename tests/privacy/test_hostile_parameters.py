"""Extreme parameters of accountants: a finite bound that holds, or a ShuffledpError; never a NaN or another error."""

import ast
import math
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import shuffledp
from shuffledp.errors import ConditionError, ParameterError, ShuffledpError
from shuffledp.privacy.almost_central import AlmostCentralCurve
from shuffledp.privacy.amplification import (
    METHODS,
    RandomizedResponseCurve,
    Slots,
    bennett_delta,
    closed_form_delta,
    hoeffding_delta,
)
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram
from shuffledp.privacy.capping import CappedCurve, Share, chance_of_more
from shuffledp.privacy.cheu import FlippedCount, FlippedHistogram, FlippedSum
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve
from shuffledp.privacy.count_min import SketchRows
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.divergence import DiscretePair, as_delta, check_masses, positive_part
from shuffledp.privacy.fake_users import FakeRows
from shuffledp.privacy.guarantee import Guarantee, least_epsilon
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.pure_sum import PureSum, falling_weights
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.privacy.split_and_mix import SplitAndMixCurve
from shuffledp.privacy.stability import StabilityCurve
from shuffledp.randomness import Dyadic

EPSILONS = (0.0, 1e-300, 1e-12, 0.5, 5.0, 500.0, 700.0, 710.0, 1e6, math.inf)
DELTAS = (5e-324, 1e-300, 1e-12, 1e-6, 0.5, 1 - 2.0**-53, 1.0)
USERS = (1, 2, 3, 1000, 10**9, 10**15, 10**30)


class Undefined:
    """A curve of an accountant that divides zero by zero."""

    def delta_at(self, epsilon: float) -> float:
        return math.nan


def test_a_delta_that_is_no_number_is_an_error():
    assert max(0.0, math.nan) == 0.0  # why a clip alone is not enough
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ConditionError):
            as_delta(value)
        with pytest.raises(ConditionError):
            positive_part([0.5, value])
        with pytest.raises(ConditionError):
            check_masses(np.array([0.5, value]))
        with pytest.raises(ConditionError):
            DiscretePair(np.array([0.5, value]), np.array([0.5, 0.5]))
        with pytest.raises(ConditionError):
            DiscretePair(np.array([0.5, 0.5]), np.array([0.5, value]))
    assert (as_delta(-1e-20), as_delta(0.25), as_delta(1 + 1e-12)) == (0.0, 0.25, 1.0)


def test_masses_that_were_lost_are_an_error():
    check_masses(np.array([0.5, 0.25]), left_out=0.25)
    for masses in ([0.5, 0.25], [0.5, 0.75], [1.5, -0.5], []):
        with pytest.raises(ConditionError, match="masses sum to"):
            check_masses(np.array(masses))


def test_an_undefined_curve_proves_nothing():
    with pytest.raises(ConditionError):
        least_epsilon(Undefined(), 1e-6)
    with pytest.raises(ConditionError):
        CappedCurve(Undefined(), 10, 1e-9).delta_at(1.0)
    claimed = Guarantee(epsilon=1.0, delta=1e-6, users=10, honest_users=10, curve=Undefined(), theorem="none")
    with pytest.raises(ConditionError):
        claimed.delta_at(1.0)


@pytest.mark.parametrize("change", [{"epsilon": math.nan}, {"epsilon": -1.0}, {"delta": math.nan}, {"delta": 1.0}])
def test_a_guarantee_has_numbers(change):
    numbers = {"epsilon": 1.0, "delta": 1e-6} | change
    with pytest.raises(ParameterError):
        Guarantee(**numbers, users=10, honest_users=10, curve=PureCurve(1.0), theorem="none")


@pytest.mark.parametrize("curve_of", [BinomialCount, BinomialHistogram])
@pytest.mark.parametrize("probability", [Dyadic(1, 1100), Dyadic((1 << 1100) - 1, 1100), Dyadic(1, 1 << 16)])
def test_a_binomial_without_noise_is_refused(curve_of, probability):
    with pytest.raises(ParameterError):
        curve_of(Binomial(300, probability))


def pmfs_of(rate: Dyadic) -> list:
    """Every family at an extreme rate of noise and at its complement; constructors may refuse."""
    users = 3
    families = [
        lambda p: BinomialCount(Binomial(users, p)),
        lambda p: BinomialHistogram(Binomial(users, p)),
        lambda p: FlippedCount(users, p),
        lambda p: FlippedSum(users, p, 3),
        lambda p: FlippedHistogram(users, p),
        lambda p: FakeRows(users, p),
        lambda p: SketchRows(users, p, 1),
        lambda p: SketchRows(users, p, 3),
        lambda p: DiscreteLaplaceCurve(p),
        lambda p: DiscreteLaplaceCurve(p, 3, 2),
        lambda p: RandomizedResponseCurve(users, p, 2),
        lambda p: RandomizedResponseCurve(users, p, 3),
        lambda p: Slots(1, p).curve(users, 2),
        lambda p: Slots(0, p).curve(10**9, 10**9),
        lambda p: SampleAndThreshold(p, 3),
        lambda p: StabilityCurve(p, 3),
        lambda p: CorrelatedNoiseCurve(p, Fraction(1, 1000), Dyadic(1, 1), "count"),
        lambda p: CorrelatedNoiseCurve(Dyadic(1, 1), Fraction(10**6), p, "signed"),
        lambda p: CorrelatedNoiseCurve(p, Fraction(1, 10**30), p, "histogram"),
        lambda p: SplitAndMixCurve(DiscreteLaplaceCurve(p, 10), 1000, 2**128, 19),
        lambda p: CappedCurve(PureCurve(1.0), 10, chance_of_more([Share(1e-30, float(p))], 1000)),
    ]
    found = []
    for family in families:
        for probability in (rate, rate.complement):
            try:
                found.append(family(probability))
            except ShuffledpError:
                continue
    return found


@pytest.mark.parametrize("bits", [1, 10, 64, 128, 256, 300, 1100, 64_000])
def test_every_distribution_at_every_epsilon(bits):
    """Non-increasing in epsilon, between 0 and 1; no warnings, which would be errors here."""
    for curve in pmfs_of(Dyadic(1, bits)):
        deltas = []
        for epsilon in EPSILONS:
            try:
                deltas.append(curve.delta_at(epsilon))
            except ShuffledpError:
                break
        assert all(0 <= delta <= 1 for delta in deltas), (curve, deltas)
        if isinstance(curve, CappedCurve):  # its bound rises again, as it may
            continue
        assert all(after <= before * (1 + 1e-6) + 1e-15 for before, after in pairwise(deltas)), curve


@pytest.mark.parametrize("bits", [64, 128])
def test_releases_that_hide_nothing_compose(bits):
    """The privacy loss is infinite: nothing to convolve, and no epsilon."""
    for curve in (BinomialCount(Binomial(300, Dyadic(1, bits))), SketchRows(3, Dyadic(1, bits), 3)):
        assert compose(curve, 2).delta_at(5.0) == 1.0
        assert least_epsilon(compose_all([curve, BinomialCount(Binomial(100, Dyadic(1, 1)))]), 1e-6) == math.inf


@pytest.mark.parametrize("bound", [hoeffding_delta, bennett_delta, closed_form_delta])
@pytest.mark.parametrize("local_epsilon", [0.0, 1e-300, 1e-12, 0.5, 30.0, 354.9, 500.0, 700.0, 710.0, 1e6, math.nan])
def test_bounds_for_any_randomizer_at_any_local_epsilon(bound, local_epsilon):
    for epsilon in EPSILONS:
        for users in USERS:
            try:
                assert 0 <= bound(epsilon, users, local_epsilon) <= 1
            except ShuffledpError:
                continue


@pytest.mark.parametrize("name", METHODS)
def test_amplification_at_any_local_epsilon(name):
    for users in (1, 1000, 10**30):
        for local_epsilon in (0.0, 1e-12, 2.0, 500.0, 1e6):
            for delta in (5e-324, 1e-6, 0.5, 1.0) if users == 1000 else (1e-6,):
                try:
                    assert METHODS[name](users, local_epsilon, delta) <= local_epsilon
                except ShuffledpError:
                    continue


def exact_sum_delta(users: int, flip: Fraction, bits: int, growth: Fraction) -> Fraction:
    """The divergence of a target's ones from its zeros among flipped bits, worst over what the others hold."""

    def ones(trials: int, probability: Fraction) -> list[Fraction]:
        masses = [Fraction(1)]
        for _ in range(trials):
            masses = [
                (masses[k] if k < len(masses) else 0) * (1 - probability) + (masses[k - 1] if k else 0) * probability
                for k in range(len(masses) + 1)
            ]
        return masses

    def joined(first: list[Fraction], second: list[Fraction]) -> list[Fraction]:
        sums = [Fraction(0)] * (len(first) + len(second) - 1)
        for i, one in enumerate(first):
            for j, other in enumerate(second):
                sums[i + j] += one * other
        return sums

    others = (users - 1) * bits
    worst = Fraction(0)
    for held in range(others + 1):
        noise = joined(ones(held, 1 - flip), ones(others - held, flip))
        first, second = joined(noise, ones(bits, 1 - flip)), joined(noise, ones(bits, flip))
        for p, q in ((first, second), (second, first)):
            worst = max(worst, sum(max(a - growth * b, Fraction(0)) for a, b in zip(p, q, strict=True)))
    return worst


@pytest.mark.parametrize(("users", "bits"), [(2, 1), (9, 1), (3, 3)])
@pytest.mark.parametrize("flip_bits", [1, 3, 20, 64, 128])
def test_flipped_bits_at_extreme_rates(users, bits, flip_bits):
    """Products of rare flips underflow long before the sums do: exact fractions say what is true."""
    flip = Dyadic(1, flip_bits)
    for epsilon in (0.0, 5.0, 40.0):
        exact = exact_sum_delta(users, flip.fraction, bits, Fraction(math.exp(epsilon)) * (1 + Fraction(1, 1 << 50)))
        assert FlippedSum(users, flip, bits).delta_at(epsilon) >= exact


# --- no clip that hides a NaN -----------------------------------------------------------------------------------------

SOURCES = Path(shuffledp.__file__).parent
CLIPPED = {"nan_to_num", "nansum", "nanmax", "nanmin", "fmax", "fmin"}
ALLOWED = {
    ("privacy/divergence.py", "as_delta"),
    ("privacy/audit.py", "delta_at"),  # a lower bound from observations, checked where they are counted
    ("privacy/audit.py", "delta_lower"),
    ("privacy/capping.py", "_rough_chance"),  # min(0.0, ...) of finite logarithms
    ("privacy/cluster_calibration.py", "_searched"),  # a target to search at
    ("privacy/pure_sum_search.py", "_neighbours"),  # shapes to try
    ("privacy/pure_sum_search.py", "_reach"),  # a number of messages to try
    ("privacy/amplification/clones.py", "fewest_clones"),  # alpha, from a checked local epsilon
    ("privacy/amplification/clones.py", "revealed_clones_delta"),
    ("privacy/amplification/clones.py", "delta_at"),
    ("privacy/amplification/clones.py", "_two_types_delta"),
    ("privacy/amplification/privacy_blanket.py", "__init__"),
    ("privacy/amplification/privacy_blanket.py", "direct_points"),
    ("privacy/amplification/privacy_blanket.py", "_coupled"),
    ("privacy/amplification/privacy_blanket.py", "_pair_delta"),
    ("privacy/amplification/privacy_blanket.py", "_reach"),
    ("privacy/amplification/privacy_blanket.py", "_decoupled"),
    ("privacy/amplification/randomized_response.py", "clone_curves"),
    ("privacy/randomized_response_bounds.py", "sum_tail"),  # of a finite exponent
    ("privacy/stability.py", "directions"),  # a probability of a checked ratio
    ("privacy/almost_central/__init__.py", "_largest_step"),  # steps of searches
    ("privacy/amplification/randomized_response.py", "_descend"),
    ("privacy/incomplete_beta.py", "_small_of_one"),  # checked by whoever calls
    ("privacy/quick_composition.py", "_points"),  # distances between points, from checked deltas
}
"""Functions whose clipped numbers are no deltas, or are checked before."""


def clips(path: Path) -> set[tuple[str, str]]:
    """Functions that take ``max`` with 0.0 or ``min`` with 1.0, which drop a NaN, or call what ignores NaNs."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            ends = {"max": 0.0, "min": 1.0}
            builtin = isinstance(call.func, ast.Name) and name in ends
            clipped = builtin and any(
                isinstance(each, ast.Constant) and isinstance(each.value, float) and each.value == ends[name]
                for each in call.args
            )
            if clipped or name in CLIPPED:
                found.add((path.relative_to(SOURCES).as_posix(), function.name))
    return found


def test_no_delta_is_clipped_by_hand():
    found = set().union(*(clips(path) for path in sorted((SOURCES / "privacy").rglob("*.py"))))
    assert found - ALLOWED == set()


def test_a_clip_by_hand_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCES", tmp_path)
    (tmp_path / "distribution.py").write_text("def delta_at(x):\n    return max(0.0, min(x, 1.0))\n")
    assert clips(tmp_path / "distribution.py") == {("distribution.py", "delta_at")}


# --- bounded work -----------------------------------------------------------------------------------------------------

MAX_SECONDS, MAX_MEGABYTES = 120, 1000
"""Of processor time and memory, for five of the most expensive accountants together; about 7 and 500 were seen."""

EXPENSIVE = """
import resource
from fractions import Fraction
from shuffledp.privacy.amplification import RandomizedResponseCurve
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve
from shuffledp.privacy.cheu import FlippedSum
from shuffledp.privacy.count_min import SketchRows
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.randomness import Dyadic

resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
near_one = Dyadic(1, 13).complement
for distribution in (
    FlippedSum(1 << 30, Dyadic(1, 40), 1 << 20),
    SketchRows(10**7, Dyadic(1, 53), 3),
    MORE
):
    assert 0 <= distribution.delta_at(0.001) <= distribution.delta_at(0.0) <= 1
# ru_maxrss would start at the memory of the process that started this one
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
""".replace("MAX_SECONDS", str(MAX_SECONDS))


MAX_EXPENSIVE = """
    CorrelatedNoiseCurve(near_one, Fraction(1), near_one, "histogram"),
    RandomizedResponseCurve(10**15, Dyadic(1, 1), 2),
    SampleAndThreshold(Dyadic(1, 10), 256),
"""


@pytest.mark.parametrize("more", ["", pytest.param(MAX_EXPENSIVE, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_most_expensive_parameters_take_bounded_time_and_memory(more):
    program = EXPENSIVE.replace("MORE", more)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) < MAX_MEGABYTES


@pytest.mark.parametrize(
    "construct",
    [
        lambda: CorrelatedNoiseCurve(Dyadic(1, 18).complement, Fraction(1), Dyadic(1, 1), "count"),
        lambda: PureSum(250, falling_weights(999, 0.05), Dyadic(1, 2)),
        lambda: AlmostCentralCurve(1, Dyadic(1, 1), 10**9, 0.5, 1.0),
        lambda: SampleAndThreshold(Dyadic(1, 40), 3),
        lambda: FlippedSum(10**15, Dyadic(1, 2), 1000),
        lambda: Binomial(1 << 53, Dyadic(1, 1)),
    ],
)
def test_what_takes_too_long_to_account_for_is_refused(construct):
    with pytest.raises(ShuffledpError):
        construct()
