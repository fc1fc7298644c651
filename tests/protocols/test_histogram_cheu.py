"""One noisy bit per category: its table, both forms, reference numbers, measured errors, bad input."""

from fractions import Fraction

import numpy as np
import pytest

from shuffledp.errors import ConditionError, DomainError, InfeasibleError, ParameterError, UnknownNameError
from shuffledp.messages import Tally
from shuffledp.privacy.cheu import FlippedHistogram
from shuffledp.protocols.histogram.cheu import CheuHistogram
from shuffledp.protocols.parts.sparse import scattered_bernoulli
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

QUARTER = Dyadic(1, 2)


def tiny(form, domain_size=2, users=3):
    delta = FlippedHistogram(users, QUARTER).delta_at(1.0)
    return CheuHistogram(Target(users, 1.0, delta), QUARTER, domain_size, form=form)


def test_the_table_of_a_report_by_hand():
    assert tiny("ones").report_pmf(0) == {
        (0, 0): Fraction(3, 16),  # the one is flipped, the zero is not
        (0, 1): Fraction(1, 16),
        (1, 0): Fraction(9, 16),
        (1, 1): Fraction(3, 16),
    }
    assert tiny("bits").report_pmf(1)[(1, 0, 0, 1)] == Fraction(9, 16)


@pytest.mark.parametrize(
    ("users", "domain_size", "fragmented"), [(10_000, 16, 1.07), (10_000, 1000, 5.94), (10**6, 1000, 1.05)]
)
def test_the_numbers_of_the_specification(users, domain_size, fragmented):
    """RMSE 7.07 at (1, 1e-6); the flips are those that are proven for all data, n f = 49.4 and 50.1."""
    protocol = CheuHistogram.calibrate(users=users, domain_size=domain_size, epsilon=1.0, delta=1e-6)
    assert protocol.expected_error().rmse == pytest.approx(7.07, abs=0.03)
    assert protocol.cost.messages_per_user == pytest.approx(fragmented, abs=0.02)
    assert 48.5 < float(protocol.flip) * users < 51
    assert protocol.guarantee.delta_at(1.0) <= 1e-6
    literal = CheuHistogram.calibrate(users=users, domain_size=domain_size, epsilon=1.0, delta=1e-6, form="bits")
    assert literal.cost.messages_per_user == domain_size == literal.cost.max_messages_per_user
    assert literal.cost.bits_per_message == protocol.cost.bits_per_message + 1


def test_the_flips_rest_on_honest_users():
    settings = {"users": 20_000, "domain_size": 4, "epsilon": 1.0, "delta": 1e-6}
    half, all_of_half = (
        CheuHistogram.calibrate(**settings, honest_fraction=0.5),
        CheuHistogram.calibrate(**settings | {"users": 10_000}),
    )
    assert half.flip == all_of_half.flip
    assert half.guarantee.honest_users == 10_000


def test_the_paper_needs_more():
    settings = {"users": 10**6, "domain_size": 4, "epsilon": 0.9, "delta": 1e-6}
    paper, tight = (CheuHistogram.calibrate(**settings, calibration=kind) for kind in ("paper", "tight"))
    assert float(paper.flip) > 10 * float(tight.flip)
    assert paper.guarantee.delta_at(0.9) < 1e-6
    with pytest.raises(ConditionError):
        CheuHistogram.calibrate(**settings | {"users": 100}, calibration="paper")


def test_predicted_and_measured_errors_agree():
    """40,000 errors by counts and 8,000 by messages: 5 % and 10 % are more than six deviations of their mean square."""
    users = 3_000
    protocol = CheuHistogram.calibrate(users=users, domain_size=40, epsilon=1.0, delta=1e-6)
    counts = np.bincount(np.arange(users) % 7 * 5, minlength=40)
    indices = np.repeat(np.arange(40), counts)
    fast = [protocol.estimate(protocol.sample_tally(counts)).counts - counts for _ in range(1000)]
    literal = [protocol.estimate(protocol.tally(protocol.randomize_all(indices))).counts - counts for _ in range(200)]
    predicted = protocol.expected_error().rmse ** 2
    assert np.mean(np.square(fast)) == pytest.approx(predicted, rel=0.05)
    assert np.mean(np.square(literal)) == pytest.approx(predicted, rel=0.1)
    assert abs(np.mean(fast)) < 0.2
    off = np.abs(np.array(fast)).max(axis=1) > protocol.expected_error().max_error
    assert off.mean() < 0.05


def test_intervals_hold():
    users = 2_000
    protocol = CheuHistogram.calibrate(users=users, domain_size=3, epsilon=1.0, delta=1e-5)
    counts = np.array([1990, 10, 0])
    held = []
    for _ in range(150):
        low, high = protocol.estimate(protocol.sample_tally(counts)).interval(0.9).T
        held.append((low <= counts) & (counts <= high))
    assert np.mean(held, axis=0).min() > 0.8


@pytest.mark.parametrize("probability", [Dyadic(1, 9), Dyadic.at_least(0.2)])
def test_scattered_coins_are_independent_coins(probability):
    """Per cell and in total; the same test rejects a probability that is larger by a half. alpha = 1e-7."""
    cells, rounds = 20_000, 60
    hits = [scattered_bernoulli(probability, cells, SYSTEM) for _ in range(rounds)]
    assert all(np.all(np.diff(each) > 0) for each in hits)
    places = np.bincount(np.concatenate(hits) * 50 // cells, minlength=50)
    assert p_value(places, np.full(50, 1 / 50)) > ALPHA
    shown, tossed = sum(map(len, hits)), cells * rounds
    for share, right in ((float(probability), True), (1.5 * float(probability), False)):
        assert (p_value([shown, tossed - shown], [share, 1 - share]) > ALPHA) == right


def test_both_routes_have_one_distribution_where_coins_are_sparse():
    """Totals of ones of a large domain, by messages and by counts. alpha = 1e-7."""
    protocol = CheuHistogram(Target(50, 20.0, 0.5), Dyadic(1, 8), 500)
    counts = np.zeros(500, dtype=np.int64)
    counts[:2] = 30, 20
    tallies = [[], []]
    for _ in range(1000):
        tallies[0].append(protocol.sample_tally(counts).counts)
        tallies[1].append(protocol.tally(protocol.randomize_all(np.repeat([0, 1], [30, 20]))).counts)
    for columns in (slice(0, 1), slice(1, 2), slice(2, 500)):
        totals = [np.bincount([each[columns].sum() for each in route], minlength=200) for route in tallies]
        assert same_distribution(*totals) > ALPHA


def test_reports_are_in_order_and_a_million_messages_are_fast():
    protocol = CheuHistogram.calibrate(users=100_000, domain_size=100, epsilon=1.0, delta=1e-6)
    messages = protocol.randomize_all(np.arange(100_000) % 100)
    assert len(messages.offsets) == 100_001
    assert messages.offsets[-1] == len(messages)
    assert len(messages) == pytest.approx(100_000 * protocol.cost.messages_per_user, rel=0.01)
    sent_own = [
        index % 100 in messages.values[messages.offsets[index] : messages.offsets[index + 1]] for index in range(200)
    ]
    assert np.mean(sent_own) > 0.95


@pytest.mark.parametrize("domain_size", [1, 2])
def test_small_domains(domain_size):
    protocol = CheuHistogram.calibrate(users=1000, domain_size=domain_size, epsilon=1.0, delta=1e-6)
    assert len(protocol.run([0] * 1000).counts) == domain_size


def test_bad_input():
    with pytest.raises(InfeasibleError, match="too few"):
        CheuHistogram.calibrate(users=2, domain_size=2, epsilon=1e-4, delta=1e-9)
    with pytest.raises(UnknownNameError, match="form"):
        tiny("zeros")
    with pytest.raises(DomainError):
        tiny("ones").randomize(2)
    with pytest.raises(ParameterError, match="cannot come from"):
        tiny("ones").estimate(Tally(np.array([4, 0]), 3))
    with pytest.raises(ParameterError, match="too many outcomes"):
        tiny("ones", domain_size=13).report_pmf(0)
    with pytest.raises(ParameterError, match="more than the claimed"):
        CheuHistogram(Target(100, 0.1, 1e-9), QUARTER, 2).guarantee  # noqa: B018
