"""P^zsum: the randomizer's whole table, two routes, Theorem 11, and misuse."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from shuffledp import BalcerCheuCount, Messages, Tally, permute
from shuffledp.errors import BelowMinimumError, ConditionError, DomainError, InfeasibleError, ParameterError
from shuffledp.protocols.count.balcer_cheu import theorem_11_alpha
from shuffledp.protocols.target import Target
from shuffledp.randomness import InsecureSeededRandomness
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

pytestmark = pytest.mark.kernels


def noisy(users: int = 4, absence: float = 0.25, *, padded: bool = True) -> BalcerCheuCount:
    """A protocol with much noise and few users, so that every outcome is seen."""
    protocol = BalcerCheuCount.with_noise(users=users, absence=absence, delta=0.9)
    return replace(protocol, padded=padded)


def report_pmf(index: int, absence: float, *, padded: bool) -> dict[tuple[int, ...], float]:
    """Figure 1: x + z copies of 1."""
    pmf = {}
    for noise, share in ((0, absence), (1, 1 - absence)):
        tokens = index + noise
        pmf[(1,) * tokens + ((0,) * (2 - tokens) if padded else ())] = share
    return pmf


def table_of(reports, distribution) -> list[int]:
    seen = [tuple(int(message) for message in report) for report in reports]
    assert set(seen) <= set(distribution)
    return [seen.count(report) for report in distribution]


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("index", [0, 1])
def test_the_whole_table_of_the_randomizer(index, padded):
    """Every input, every output; a noise probability off by five per cent must be rejected."""
    protocol = noisy(padded=padded)
    pmf = report_pmf(index, 0.25, padded=padded)
    literal = table_of((protocol.randomize(index) for _ in range(6_000)), pmf)
    assert p_value(literal, list(pmf.values())) > ALPHA
    size = 400_000
    messages = protocol.randomize_all(np.full(size, index))
    assert messages.offsets is not None
    lengths = np.diff(messages.offsets)
    ones = np.add.reduceat(np.append(messages.values.astype(int), 0), messages.offsets[:-1]) * (lengths > 0)
    assert set(messages.values.tolist()) <= ({0, 1} if padded else {1})
    assert (lengths == 2).all() if padded else (lengths == ones).all()
    vectorised = [int((ones == index + noise).sum()) for noise in (0, 1)]
    assert sum(vectorised) == size
    assert p_value(vectorised, [0.25, 0.75]) > ALPHA
    assert p_value(vectorised, [0.2375, 0.7625]) < ALPHA
    assert same_distribution(literal, vectorised) > ALPHA


def test_the_last_user_is_randomized_too():
    """A randomizer that forgets the last user shows in that user's own table."""
    protocol = noisy()
    tokens = [int(protocol.randomize_all(np.zeros(3, dtype=np.int64)).values[-2:].sum()) for _ in range(8_000)]
    table = np.bincount(tokens, minlength=2)
    assert p_value(table, [0.25, 0.75]) > ALPHA
    assert p_value([0, 8_000], [0.25, 0.75]) < ALPHA


@pytest.mark.parametrize("padded", [True, False])
def test_both_routes_have_the_closed_distribution(padded):
    """Tokens are the true count plus users less Bin(users, absence), by messages and by counts: 2,000 rounds each."""
    protocol = noisy(users=6, padded=padded)
    bits = np.array([1, 1, 0, 0, 0, 1])
    by_messages = np.zeros(20)
    by_counts = np.zeros(20)
    for _ in range(2_000):
        tally = protocol.tally(protocol.randomize_all(bits).shuffled(permute))
        by_messages[tally.counts[1]] += 1
        by_counts[protocol.sample_tally(np.array([3, 3])).counts[1]] += 1
    pmf = stats.binom.pmf(3 + 6 - np.arange(20), 6, 0.25)
    assert p_value(by_messages, pmf) > ALPHA
    assert p_value(by_counts, pmf) > ALPHA
    assert same_distribution(by_messages, by_counts) > ALPHA
    shifted = np.roll(pmf, 1)
    assert p_value(by_counts, shifted) < ALPHA


def test_padding_makes_every_report_the_same_size():
    protocol = noisy()
    assert {len(protocol.randomize(index)) for index in (0, 1) for _ in range(200)} == {2}
    tally = protocol.tally(protocol.randomize_all(np.array([0, 1, 1, 0])))
    assert tally.counts.sum() == 8
    assert protocol.sample_tally(np.array([2, 2])).counts.sum() == 8


def test_unpadded_reports_reveal_the_bit_which_is_why_padding_is_the_default():
    literal = noisy(padded=False)
    assert BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6).padded
    assert {len(literal.randomize(0)) for _ in range(200)} == {0, 1}
    assert {len(literal.randomize(1)) for _ in range(200)} == {1, 2}


def test_zero_stays_exactly_zero():
    """Theorem 11 (iii), which the other estimators do not promise."""
    protocol = BalcerCheuCount.calibrate(users=200, epsilon=1, delta=1e-6)
    nobody = np.zeros(200, dtype=np.int64)
    assert all(protocol.run(nobody).value == 0.0 for _ in range(300))
    assert any(protocol.run(nobody, estimator="unbiased").value != 0.0 for _ in range(50))


def test_one_token_beyond_the_users_is_enough_not_to_be_zero():
    """Whole numbers are compared: |y| = n is zero, |y| = n + 1 is not, for any n."""
    for users in (2**24 + 1, 10**15):
        protocol = BalcerCheuCount.with_noise(users=users, absence=1e-6, delta=1e-4)
        zero = protocol.estimate(Tally(np.array([users, users]), users))
        one = protocol.estimate(Tally(np.array([users - 1, users + 1]), users))
        assert zero.value == 0.0
        assert one.value > 0.0


@pytest.mark.parametrize("beta", [0.5, 0.05, pytest.param(1e-3, marks=pytest.mark.slow)])
def test_theorem_11_error_bound(beta):
    """Part (ii) by simulation at the paper's noise: far fewer failures than beta, for several counts."""
    users, epsilon, delta = 20_000, 1.0, 1e-6
    protocol = BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=delta, calibration="paper")
    alpha = theorem_11_alpha(users, epsilon, delta, beta)
    for ones in (0, 400, 725, 1500, 10_000):
        errors = np.array(
            [protocol.run(np.arange(users) < ones, route="counts").fraction - ones / users for _ in range(200)]
        )
        failures = int((np.abs(errors) > alpha).sum())
        assert stats.binom.sf(failures - 1, 200, beta) > ALPHA


def test_theorem_11_error_bound_can_fail():
    """At the tight noise of a far smaller target the same bound would be broken for mid counts."""
    alpha = theorem_11_alpha(20_000, 1.0, 1e-6, 0.05)
    protocol = BalcerCheuCount.calibrate(users=20_000, epsilon=0.05, delta=1e-6)
    errors = [protocol.run(np.arange(20_000) < 2000, route="counts").fraction - 0.1 for _ in range(100)]
    assert stats.binom.sf(int((np.abs(errors) > alpha).sum()) - 1, 100, 0.05) < ALPHA


def test_conditions_of_the_error_bound():
    with pytest.raises(ConditionError, match="delta\\^25"):
        theorem_11_alpha(20_000, 1.0, 1e-6, 1e-160)
    with pytest.raises(ConditionError):
        theorem_11_alpha(100, 1.0, 1e-6, 0.05)


def test_measured_error_matches_the_prediction():
    """Mean squared error over 1500 rounds against the exact one; half as much again must be rejected."""
    protocol = BalcerCheuCount.calibrate(users=5000, epsilon=1, delta=1e-6)
    for estimator, ones in (("threshold", 30), ("unbiased", 0), ("midpoint", 20), ("clipped", 5), ("threshold", 2500)):
        predicted = protocol.expected_error(estimator=estimator, counts=np.array([ones])).rmse
        counts = np.array([5000 - ones, ones])
        errors = np.array(
            [protocol.estimate(protocol.sample_tally(counts), estimator=estimator).value - ones for _ in range(1500)]
        )
        squares = errors**2
        spread = squares.std() / math.sqrt(len(squares))
        assert abs(squares.mean() - predicted**2) < 5.5 * spread
        assert abs(squares.mean() - 1.5 * predicted**2) > 5.5 * spread


def test_guarantee_and_cost():
    protocol = BalcerCheuCount.calibrate(users=10_000, epsilon=1, delta=1e-6)
    guarantee = protocol.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.users) == (1.0, 1e-6, 10_000)
    assert guarantee.local_epsilon == math.inf
    assert guarantee.delta_at(1.0) <= 1e-6
    assert protocol.cost.to_json() == {
        "messages_per_user": 2.0,
        "max_messages_per_user": 2,
        "bits_per_message": 1,
        "bytes_per_user": 0.25,
        "dummies_per_user": 0.0,
    }


def test_honest_fraction_is_calibrated_for():
    trusting = BalcerCheuCount.calibrate(users=10_000, epsilon=1, delta=1e-6)
    wary = BalcerCheuCount.calibrate(users=10_000, epsilon=1, delta=1e-6, honest_fraction=0.5)
    assert wary.guarantee.honest_users == 5000
    assert float(wary.absence) == pytest.approx(2 * float(trusting.absence), rel=0.01)
    half = BalcerCheuCount.with_noise(users=10_000, absence=trusting.absence, delta=1e-6, honest_fraction=0.5)
    assert half.guarantee.epsilon == pytest.approx(2.035, abs=1e-3)


def test_a_claim_that_does_not_hold_is_refused():
    good = BalcerCheuCount.calibrate(users=10_000, epsilon=1, delta=1e-6)
    overstated = replace(good, target=Target(good.users, 0.9, 1e-6))
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = overstated.guarantee


def test_a_round_below_its_minimum_is_not_released():
    protocol = BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6)
    with pytest.raises(BelowMinimumError, match="812 reports; the guarantee requires 1,000"):
        protocol.run(np.zeros(812, dtype=np.int64))
    with pytest.raises(BelowMinimumError):
        protocol.estimate(Tally(np.array([999, 999]), 999))


def test_more_users_than_planned_are_fine():
    protocol = BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6)
    estimate = protocol.run(np.ones(1500, dtype=np.int64))
    assert estimate.users == 1500
    assert abs(estimate.value - 1500) < 60


@pytest.mark.parametrize("bits", [[0, 2], [-1, 0], ["yes", "no"], [0.5, 1.0]])
def test_values_that_are_no_bits_are_refused(bits):
    with pytest.raises(DomainError):
        noisy().run(bits * 4)


def test_messages_that_are_no_bits_are_refused():
    for values in (np.array([0, 1, 2], dtype=np.uint8), np.array([-1, 1]), np.array([0.5, 1.0])):
        with pytest.raises(DomainError):
            noisy().tally(Messages(values, 2))


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"), [(0, 1, 1e-6), (1, 1, 1e-6), (10, 0, 1e-6), (10, 1, 0.0), (10, 1, 1.0)]
)
def test_meaningless_parameters_are_refused(users, epsilon, delta):
    with pytest.raises(ParameterError):
        BalcerCheuCount.calibrate(users=users, epsilon=epsilon, delta=delta)


def test_too_few_users_say_how_many_are_needed():
    with pytest.raises(InfeasibleError, match="80 are needed"):
        BalcerCheuCount.calibrate(users=50, epsilon=1, delta=1e-6)
    with pytest.raises(ConditionError, match="1,451 users"):
        BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6, calibration="paper")


def test_a_seeded_run_repeats_and_carries_no_guarantee():
    protocol = BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6)
    first, second = (protocol.run(np.arange(1000) % 2, source=InsecureSeededRandomness(5)) for _ in range(2))
    assert first.value == second.value
    assert not first.secure
    assert first.to_json()["guarantee"] is None
    assert "NOT PRIVATE" in first.guarantee_sentence()


def test_a_seed_is_remembered_however_the_estimate_is_made():
    protocol = BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6)
    seeded = InsecureSeededRandomness(1)
    by_counts = protocol.sample_tally(np.array([500, 500]), source=seeded)
    by_messages = protocol.tally(
        protocol.randomize_all(np.zeros(1000, dtype=np.int64), source=seeded).shuffled(permute)
    )
    secure = protocol.sample_tally(np.array([500, 500]))
    for tally in (by_counts, by_messages, by_counts + secure, secure + by_messages):
        assert protocol.estimate(tally).to_json()["guarantee"] is None
    assert protocol.estimate(secure + secure).secure


@pytest.mark.parametrize(
    ("counts", "users"),
    [([0, 10**6], 1000), ([3, 10], 1000), ([1000, 1000, 0], 1000), ([2000], 1000), ([0, 2001], 1000)],
)
def test_tallies_that_cannot_be_are_refused(counts, users):
    protocol = BalcerCheuCount.calibrate(users=1000, epsilon=1, delta=1e-6)
    with pytest.raises(ParameterError):
        protocol.estimate(Tally(np.array(counts), users))


def test_numbers_that_are_no_bits_are_refused():
    protocol = noisy()
    for wrong in (np.array([0.5, 1.0]), np.array([0, 2]), np.array([[0, 1]])):
        with pytest.raises(DomainError):
            protocol.randomize_all(wrong)
    for wrong in (2, -1, 1.0):
        with pytest.raises(DomainError):
            protocol.randomize(wrong)
    for wrong in (np.array([5, -1]), np.array([1, 2, 3]), np.array([0.5, 0.5])):
        with pytest.raises(DomainError):
            protocol.sample_tally(wrong)


def test_tallies_add_up():
    protocol = noisy(users=2)
    first, second = Tally(np.array([1, 3]), 2), Tally(np.array([4, 2]), 3)
    total = first + second
    assert total == Tally(np.array([5, 5]), 5)
    assert total + Tally.zero(2) == total
    assert protocol.estimate(total).users == 5
    with pytest.raises(ParameterError):
        first + Tally.zero(3)
    with pytest.raises(ParameterError):
        Tally(np.array([-1]), 1)
    with pytest.raises(ParameterError):
        Tally(np.array([0.5]), 1)
