"""Sampled curves: never below the curve or an independent composition, and close to the accountant of the ledger."""

import math

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy import sampled_curves
from shuffledp.privacy.composition import compose, compose_all
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.privacy.pure import PureCurve
from shuffledp.privacy.sampled_curves import POINTS, SampledCurve, SampledTotal

GRID = [index / 50 for index in range(POINTS)]
DELTA = 1e-6


def guarantee(name: str, epsilon: float = 1.0, delta: float = 1e-8):
    question, short = name.split("/")
    settings = {"domain_size": 12} if question == "histogram" else {}
    return sdp.find(question, short).calibrate(users=25_000, epsilon=epsilon, delta=delta, **settings).guarantee


def sampled(of) -> SampledCurve:
    return SampledCurve.of(of.curve, epsilon=of.epsilon, delta=of.delta)


def is_rounded_up(samples: np.ndarray, curve) -> bool:
    return all(float(sample) >= curve.delta_at(epsilon) for sample, epsilon in zip(samples, GRID, strict=True))


@pytest.mark.parametrize("name", ["histogram/uniform-blanket", "histogram/fake-users", "count/pure-sum"])
def test_samples_are_rounded_up(name):
    of = guarantee(name)
    samples = sampled(of).deltas
    assert samples.dtype == np.float32
    assert samples.nbytes == 604
    assert is_rounded_up(samples, of.curve)


def test_rounding_to_the_nearest_is_noticed(monkeypatch):
    """Planted: half of the samples would lie below the curve."""
    of = guarantee("histogram/fake-users")
    monkeypatch.setattr(sampled_curves, "_rounded_up", lambda values: values.astype(np.float32))
    assert not is_rounded_up(sampled(of).deltas, of.curve)


def exact_delta(epsilon: float, releases: int, total: float) -> float:
    """Randomized response repeated: every outcome has i times the truth and otherwise the lie, a closed form."""
    truth = 1 / (1 + math.exp(-epsilon))
    return math.fsum(
        math.comb(releases, i)
        * max(
            0.0,
            truth**i * (1 - truth) ** (releases - i) - math.exp(total) * truth ** (releases - i) * (1 - truth) ** i,
        )
        for i in range(releases + 1)
    )


@pytest.mark.parametrize("epsilon", [0.05, 0.33, 1.0, 2.99, 3.0])
@pytest.mark.parametrize("releases", [1, 2, 7, 30])
def test_totals_are_not_below_the_closed_form(epsilon, releases):
    one = SampledCurve.of(PureCurve(epsilon), epsilon=epsilon, delta=0.0)
    total = SampledTotal.of([one] * releases)
    for share in (0.0, 0.1, 0.3, 0.6, 0.9):
        truth = exact_delta(epsilon, releases, share * releases * epsilon)
        assert total.delta_at(share * releases * epsilon) >= truth * (1 - 1e-9)


def test_losses_that_are_too_small_are_noticed():
    """Planted: one cell less per release, as if chords were cut below the curve."""
    one = SampledCurve.of(PureCurve(1.0), epsilon=1.0, delta=0.0)
    total = SampledTotal.of([one] * 7)
    planted = SampledTotal(total.first - 7, total.masses, total.infinite, total.epsilon, total.delta)
    assert planted.delta_at(2.1) < exact_delta(1.0, 7, 2.1) < total.delta_at(2.1)


NAMES = [
    "histogram/uniform-blanket",
    "histogram/balcer-cheu",
    "histogram/fake-users",
    "histogram/k-rr",
    "histogram/correlated-noise",
    "count/correlated-noise",
    "count/pure-sum",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("releases", [4, 12, 52])
def test_a_device_counts_as_the_ledger_does(name, releases):
    """At (1, 1e-8) each: at most 2 % above the ledger, never below it."""
    of = guarantee(name)
    device = SampledTotal.of([sampled(of)] * releases).epsilon_at(DELTA)
    ledger = least_epsilon(compose(of.curve, releases), DELTA)
    assert 1 - 1e-6 <= device / ledger <= 1.02


def test_different_releases_compose():
    of = [guarantee("histogram/uniform-blanket"), guarantee("histogram/k-rr", 0.5), guarantee("histogram/balcer-cheu")]
    device = SampledTotal.of(map(sampled, of)).epsilon_at(DELTA)
    assert 1 - 1e-6 <= device / least_epsilon(compose_all([each.curve for each in of]), DELTA) <= 1.02


def test_a_total_is_not_above_basic_composition():
    assert SampledTotal.of().epsilon_at(0.0) == 0.0
    tenth = SampledCurve.of(PureCurve(0.1), epsilon=0.1, delta=0.0)
    total = SampledTotal.of([tenth] * 3)
    assert total.epsilon_at(0.0) == pytest.approx(0.3)
    assert total.is_within(0.3, 0.0)  # though 0.1 + 0.1 + 0.1 > 0.3
    assert not total.is_within(0.29, 0.0)


def test_an_epsilon_beyond_the_samples_is_added():
    large = SampledCurve.of(PureCurve(4.5), epsilon=4.5, delta=0.0)
    small = SampledCurve.of(PureCurve(0.5), epsilon=0.5, delta=0.0)
    total = SampledTotal.of([large, small, large])
    assert total.epsilon_at(DELTA) == pytest.approx(9.5)
    assert not total.is_within(9.4, DELTA)


def test_no_epsilon_holds_if_everything_may_be_revealed():
    revealing = SampledCurve(np.full(POINTS, 1e-5, dtype=np.float32), 1.0, 1e-5)
    assert SampledTotal.of([revealing]).epsilon_at(1e-6) == math.inf
    assert SampledTotal.of([revealing]).epsilon_at(1.1e-5) < 0.01


class Undefined:
    def delta_at(self, epsilon: float) -> float:
        return math.nan


def test_nonsense_is_refused():
    with pytest.raises(ConditionError):
        SampledCurve.of(Undefined(), epsilon=1.0, delta=1e-8)
    good = np.zeros(POINTS, dtype=np.float32)
    for wrong in (good[1:], good - 1, good + 2, good * np.float32(math.nan)):
        with pytest.raises(ParameterError):
            SampledCurve(wrong, 1.0, 1e-8)
    for epsilon, delta in ((math.inf, 0.0), (math.nan, 0.0), (-1.0, 0.0), (1.0, math.nan), (1.0, 2.0)):
        with pytest.raises(ParameterError):
            SampledCurve(good, epsilon, delta)
