"""How private binomial noise is: against ball arithmetic, brute force and the printed tables."""

import json
import math
from fractions import Fraction
from itertools import pairwise, product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.binomial import Binomial
from shuffledp.privacy.binomial_noise import BinomialCount, BinomialHistogram, count_delta, shift_pair
from shuffledp.privacy.composition import compose
from shuffledp.privacy.divergence import MASS_TOLERANCE, DiscretePair
from shuffledp.randomness import Dyadic

REFERENCE = [
    dict(zip(("kind", "users", "numerator", "epsilon", "releases", "delta"), row, strict=True))
    for row in json.loads((Path(__file__).parent / "reference_deltas.json").read_text())
]
"""Deltas from ball arithmetic, good to twenty digits: q is numerator / 2^64."""


def reference(kind: str):
    return [row for row in REFERENCE if row["kind"] == kind]


def relative_excess(bound: float, row: dict) -> float:
    return float(Fraction(bound) / Fraction(row["delta"]) - 1)


def test_the_reference_is_large():
    assert len(reference("count")) > 300
    assert len(reference("histogram")) > 300


@pytest.mark.parametrize("users", sorted({row["users"] for row in reference("count")}))
def test_count_delta_is_the_truth_from_above(users):
    """From delta 1 to 1e-300, 1 to 10^12 users: never below, and above by rounding only."""
    for row in (row for row in reference("count") if row["users"] == users):
        bound = count_delta(Binomial(users, Dyadic(row["numerator"])), row["epsilon"])
        excess = relative_excess(bound, row)
        assert excess >= 0, row
        delta = float(row["delta"])
        assert excess < (1e-9 if users <= 10_000 and delta > 1e-40 else 1e-3), row


@pytest.mark.parametrize("users", sorted({row["users"] for row in reference("histogram")}))
def test_histogram_delta_is_the_truth_from_above(users):
    for row in (row for row in reference("histogram") if row["users"] == users):
        bound = BinomialHistogram(Binomial(users, Dyadic(row["numerator"]))).delta_at(row["epsilon"])
        excess = relative_excess(bound, row)
        assert excess >= 0, row
        assert excess < (1e-5 if float(row["delta"]) > 1e-20 else 1e-3), row


@pytest.mark.parametrize(
    ("kind", "curve"), [("count_releases", BinomialCount), ("histogram_releases", BinomialHistogram)]
)
def test_composed_delta_is_the_truth_from_above(kind, curve):
    for row in reference(kind):
        composed = compose(curve(Binomial(row["users"], Dyadic(row["numerator"]))), row["releases"])
        excess = relative_excess(composed.delta_at(row["epsilon"]), row)
        assert excess >= 0, row
        # for a count the bound also covers changing direction between releases
        assert excess < (0.1 if kind == "count_releases" else 2e-4) or float(row["delta"]) < 1e-9, row


@pytest.mark.parametrize(("users", "numerator", "releases"), [(2, 12, 2), (3, 8, 3), (4, 11, 2), (4, 3, 3), (6, 12, 2)])
def test_a_person_may_change_direction_between_releases(users, numerator, releases):
    """Every mixture of the two directions, exactly; the pure sequences alone fall short at (4, 11/24)."""
    rate = Dyadic.at_least(numerator / 24)
    curve = [comb(users, k) * rate.fraction**k * (1 - rate.fraction) ** (users - k) for k in range(users + 1)]
    up = [(p, q) for p, q in zip([*curve, Fraction(0)], [Fraction(0), *curve], strict=True)]
    down = [(q, p) for p, q in up]
    composed = compose(BinomialCount(Binomial(users, rate)), releases)
    for epsilon in (0.2, 0.45, 1.0, 2.0):
        growth = Fraction(math.exp(epsilon))
        exact = []
        for ups in range(releases + 1):
            pairs = [up] * ups + [down] * (releases - ups)
            total = Fraction(0)
            for outcome in product(*pairs):
                p, q = math.prod(each[0] for each in outcome), math.prod(each[1] for each in outcome)
                total += max(p - growth * q, Fraction(0))
            exact.append(total)
        assert Fraction(composed.delta_at(epsilon)) >= max(exact)
        if (users, numerator, epsilon) == (4, 11, 0.45):
            assert max(exact) > max(exact[0], exact[-1]) * Fraction(101, 100)


def test_a_planted_underestimate_would_be_caught():
    """One direction only falls below the truth; outcomes that are dropped are refused, or counted in full."""
    row = next(row for row in reference("count") if row["users"] == 2 and row["epsilon"] == 0.5)
    noise = Binomial(2, Dyadic(row["numerator"]))
    one_direction = min(shift_pair(noise).delta(0.5), shift_pair(noise).reversed.delta(0.5))
    assert one_direction < float(row["delta"])
    finite = [row for row in reference("histogram") if row["users"] == 17 and row["epsilon"] == 5.0]
    for row in finite:
        pair = shift_pair(Binomial(17, Dyadic(row["numerator"])))
        inside = (pair.p > 0) & (pair.q > 0)
        dropped = 1 - math.fsum(pair.p[inside])
        if dropped > MASS_TOLERANCE:
            with pytest.raises(ConditionError, match="masses sum to"):
                DiscretePair(pair.p[inside], pair.q[inside])
        else:
            counted = DiscretePair(pair.p[inside], pair.q[inside]).delta_with_reversed_twin(5.0)
            assert counted >= float(row["delta"]) * (1 - 1e-9)


GOLDEN_COUNT = [(1.0, 10_000, 0.0034, 1.02416489415e-06), (0.5, 1000, 0.3, 1.41979211988e-13)]
GOLDEN_HISTOGRAM = [(1.0, 10_000, 0.0043, 9.40763049339e-07), (0.5, 1000, 0.3, 4.1959997229e-09)]


@pytest.mark.parametrize(("epsilon", "users", "rate", "delta"), GOLDEN_COUNT)
def test_golden_counts(epsilon, users, rate, delta):
    assert count_delta(Binomial(users, Dyadic.of(rate)), epsilon) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "users", "rate", "delta"), GOLDEN_HISTOGRAM)
def test_golden_histograms(epsilon, users, rate, delta):
    curve = BinomialHistogram(Binomial(users, Dyadic.of(rate)))
    assert curve.delta_at(epsilon) == pytest.approx(delta, rel=1e-8)


@settings(max_examples=150)
@given(
    users=st.integers(1, 25),
    numerator=st.integers(1, 4095),
    epsilon=st.one_of(st.floats(0, 4), st.sampled_from([0.0, 1e-12, 30.0, 699.0, 1e6])),
)
def test_count_delta_equals_brute_force(users, numerator, epsilon):
    """Any rate in (0, 1), both directions, against a sum of exact rationals."""
    rate = Fraction(numerator, 4096)
    curve = [comb(users, k) * rate**k * (1 - rate) ** (users - k) for k in range(users + 1)] + [Fraction(0)]
    growth = Fraction(math.exp(min(epsilon, 700)))
    shifted = [Fraction(0), *curve[:-1]]
    exact = max(
        sum(max(p - growth * q, Fraction(0)) for p, q in zip(first, second, strict=True))
        for first, second in ((curve, shifted), (shifted, curve))
    )
    bound = count_delta(Binomial(users, Dyadic(numerator, 12)), epsilon)
    assert bound == pytest.approx(float(exact), rel=1e-8, abs=1e-300)
    assert Fraction(bound) >= exact * (1 - Fraction(1, 10**15))


@settings(max_examples=60)
@given(users=st.integers(1, 9), numerator=st.integers(1, 255), epsilon=st.floats(0, 4))
def test_histogram_delta_equals_brute_force(users, numerator, epsilon):
    rate = Fraction(numerator, 256)
    curve = [comb(users, k) * rate**k * (1 - rate) ** (users - k) for k in range(users + 1)] + [Fraction(0)]
    shifted = [Fraction(0), *curve[:-1]]
    growth = Fraction(math.exp(epsilon))
    outcomes = product(range(users + 2), repeat=2)
    exact = sum(max(shifted[a] * curve[b] - growth * curve[a] * shifted[b], Fraction(0)) for a, b in outcomes)
    bound = BinomialHistogram(Binomial(users, Dyadic(numerator, 8))).delta_at(epsilon)
    assert Fraction(bound) >= exact
    assert bound == pytest.approx(float(exact), rel=1e-7, abs=1e-290)


def test_mirrored_rates_are_equally_private():
    for rate in (0.01, 0.3):
        for epsilon in (0.1, 1.0):
            first = count_delta(Binomial(50, Dyadic.of(rate)), epsilon)
            second = count_delta(Binomial(50, Dyadic.of(rate).complement), epsilon)
            assert first == pytest.approx(second, rel=1e-9)


def test_the_floor_is_that_nobody_left_a_token_out():
    noise = Binomial(1_000_000, Dyadic.at_least(13.82e-6))
    for curve in (BinomialCount(noise), BinomialHistogram(noise)):
        assert curve.delta_at(5.0) == pytest.approx(9.95e-7, rel=2e-3)
        assert curve.delta_at(700.0) >= float(noise.pmf(0)) * (1 - 1e-9)


def test_delta_falls_with_epsilon_and_users():
    previous = 1.0
    for epsilon in np.linspace(0, 3, 40):
        delta = count_delta(Binomial(500, Dyadic.of(0.1)), float(epsilon))
        assert delta <= previous
        previous = delta
    by_users = [count_delta(Binomial(users, Dyadic.of(0.1)), 0.5) for users in range(20, 200)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(by_users))


def test_blocks_of_outcomes_only_overestimate(monkeypatch):
    """The gathered outcomes of a wide distribution against keeping each one."""
    noise = Binomial(4_000_000, Dyadic(1, 2))
    exact = {epsilon: BinomialHistogram(noise).delta_at(epsilon) for epsilon in (1e-3, 4e-3, 8e-3)}
    monkeypatch.setattr("shuffledp.privacy.binomial_noise._POINTS_EXACT", 100)
    for epsilon, truth in exact.items():
        gathered = shift_pair(noise, cut=1e-30).delta_with_reversed_twin(epsilon)
        assert truth * (1 - 1e-8) <= gathered <= truth * (1 + 1e-4)


@pytest.mark.parametrize("curve", [BinomialCount, BinomialHistogram])
def test_negative_epsilon_is_refused(curve):
    with pytest.raises(ParameterError):
        curve(Binomial(10, Dyadic(1, 1))).delta_at(-0.1)


@pytest.mark.parametrize("users", [200_000, 800_000, 5_000_000])
def test_masses_that_are_rounded_up_are_no_error(users):
    """Gathered into blocks, the masses of wide noise sum to a millionth more than 1: calibration meets them."""
    noise = Binomial(users, Dyadic.at_least(0.5))
    assert 0 < BinomialHistogram(noise).delta_at(0.02) < 1
