"""P^hist: the randomizer's whole table, two routes, Theorem 12, large domains, and misuse."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from shuffledp import BalcerCheuHistogram, Messages, Tally, permute
from shuffledp.errors import BelowMinimumError, ConditionError, DomainError, ParameterError, UnknownNameError
from shuffledp.protocols.flow import choose_route
from shuffledp.protocols.histogram.balcer_cheu import theorem_12_alpha
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

pytestmark = pytest.mark.kernels


def noisy(size: int, users: int = 4, absence: float = 0.25, *, padded: bool = False) -> BalcerCheuHistogram:
    """A protocol with much noise and few users, so that every outcome is seen."""
    protocol = BalcerCheuHistogram.with_noise(users=users, absence=absence, delta=0.95, domain_size=size)
    return replace(protocol, padded=padded)


def report_pmf(index: int, size: int, absence: float) -> dict[tuple[int, ...], float]:
    """Figure 2: z_j + 1[x = j] copies of j, as the vector of copies."""
    pmf = {}
    for noise in product((0, 1), repeat=size):
        copies = list(noise)
        copies[index] += 1
        pmf[tuple(copies)] = float(np.prod([1 - absence if z else absence for z in noise]))
    return pmf


def copies_of(messages: np.ndarray, size: int) -> tuple[int, ...]:
    return tuple(np.bincount(messages, minlength=size + 1)[:size].tolist())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_whole_table_of_the_randomizer(size, padded):
    """Every input, every output, by 2,000 and 8,000 reports; a last category left unrandomized must be rejected."""
    protocol = noisy(size, padded=padded)
    for index in range(size):
        pmf = report_pmf(index, size, 0.25)
        places = {report: place for place, report in enumerate(pmf)}
        literal, vectorised, faulty = (np.zeros(len(pmf)) for _ in range(3))
        for _ in range(2_000):
            literal[places[copies_of(protocol.randomize(index), size)]] += 1
        messages = protocol.randomize_all(np.full(8_000, index))
        assert messages.offsets is not None
        for start, stop in zip(messages.offsets[:-1], messages.offsets[1:], strict=True):
            report = copies_of(messages.values[start:stop], size)
            vectorised[places[report]] += 1
            faulty[places[(*report[:-1], 1 + (index == size - 1))]] += 1
        assert p_value(literal, list(pmf.values())) > ALPHA
        assert p_value(vectorised, list(pmf.values())) > ALPHA
        assert p_value(faulty, list(pmf.values())) < ALPHA
        assert same_distribution(literal, vectorised) > ALPHA


def test_the_number_of_messages_says_nothing_of_the_value():
    """The same distribution of lengths for every value; padded, one length."""
    protocol = noisy(5)
    lengths = [
        np.bincount(np.diff(protocol.randomize_all(np.full(100_000, index)).offsets), minlength=8) for index in range(5)
    ]
    distribution = np.concatenate(([0.0], stats.binom.pmf(np.arange(7), 5, 0.75)))
    for table in lengths:
        assert p_value(table, distribution) > ALPHA
    assert p_value(np.roll(lengths[0], -1), distribution) < ALPHA
    padded = noisy(5, padded=True)
    assert set(np.diff(padded.randomize_all(np.arange(5)).offsets).tolist()) == {6}
    assert {len(padded.randomize(index)) for index in range(5) for _ in range(50)} == {6}


@pytest.mark.parametrize("padded", [False, True])
def test_both_routes_have_the_closed_distribution(padded):
    """Each category's tally is its count plus users less Bin(users, absence), independently: 2,500 rounds each way."""
    protocol = noisy(2, users=3, padded=padded)
    values = np.array([0, 0, 1])
    by_messages, by_counts = np.zeros((8, 8)), np.zeros((8, 8))
    for _ in range(2_500):
        by_messages[tuple(protocol.tally(protocol.randomize_all(values).shuffled(permute)).counts)] += 1
        by_counts[tuple(protocol.sample_tally(np.array([2, 1])).counts)] += 1
    noise = [stats.binom.pmf(count + 3 - np.arange(8), 3, 0.25) for count in (2, 1)]
    pmf = np.outer(*noise)
    assert p_value(by_messages, pmf) > ALPHA
    assert p_value(by_counts, pmf) > ALPHA
    assert same_distribution(by_messages, by_counts) > ALPHA
    assert p_value(by_messages.T, pmf) < ALPHA


def test_an_empty_category_is_exactly_zero():
    protocol = BalcerCheuHistogram.calibrate(users=1000, domain_size=50, epsilon=1, delta=1e-6)
    values = np.arange(1000) % 5
    for _ in range(20):
        estimate = protocol.run(values)
        assert (estimate.counts[5:] == 0).all()
        assert (estimate.counts[:5] > 0).all()
    counts = np.zeros(50, dtype=np.int64)
    counts[0] = 1000
    many = [protocol.estimate(protocol.sample_tally(counts)).counts[1:] for _ in range(2000)]
    assert not np.any(many)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_theorem_12_error_bounds(simultaneous):
    """Parts (ii) and (iii) by simulation at the paper's noise."""
    users, size, beta = 100_000, 30, 0.1
    protocol = BalcerCheuHistogram.calibrate(users=users, domain_size=size, epsilon=1, delta=1e-6, calibration="paper")
    alpha = theorem_12_alpha(users, 0.5, 5e-7, beta, simultaneous=simultaneous)
    counts = np.zeros(size, dtype=np.int64)
    counts[:10] = [100, 1000, 2000, 3000, 4000, 5000, 10_000, 20_000, 24_900, 30_000]
    failures = trials = 0
    for _ in range(200):
        error = np.abs(protocol.estimate(protocol.sample_tally(counts)).counts - counts) / users
        failures += int(error.max() > alpha) if simultaneous else int((error > alpha).sum())
        trials += 1 if simultaneous else size
    assert stats.binom.sf(failures - 1, trials, beta) > ALPHA


def test_conditions_of_the_error_bounds():
    with pytest.raises(ConditionError):
        theorem_12_alpha(100_000, 0.5, 5e-7, 1e-153, simultaneous=True)
    with pytest.raises(ConditionError):
        theorem_12_alpha(100_000, 0.5, 5e-7, 1.5, simultaneous=True)
    assert theorem_12_alpha(100_000, 0.5, 5e-7, 1e-150) > 0


def test_the_overall_target_is_what_was_asked_for():
    """Both changed categories together, in either calibration."""
    for calibration in ("tight", "paper"):
        protocol = BalcerCheuHistogram.calibrate(
            users=50_000, domain_size=9, epsilon=0.8, delta=1e-7, calibration=calibration
        )
        assert protocol.guarantee.epsilon == 0.8
        assert protocol.guarantee.delta_at(0.8) <= 1e-7
    tight = BalcerCheuHistogram.calibrate(users=50_000, domain_size=9, epsilon=0.8, delta=1e-7)
    assert tight.guarantee.delta_at(0.8) > 0.999e-7


def test_measured_error_matches_the_prediction():
    """All categories, over 300 rounds, for every estimator; half as much again must be rejected."""
    protocol = BalcerCheuHistogram.calibrate(users=5000, domain_size=40, epsilon=1, delta=1e-6)
    counts = np.zeros(40, dtype=np.int64)
    counts[:8] = [10, 20, 30, 40, 60, 100, 740, 4000]
    for estimator in ("threshold", "unbiased", "clipped", "midpoint", "relaxed-threshold"):
        predicted = protocol.expected_error(estimator=estimator, counts=counts).rmse
        squares = np.array(
            [
                np.mean((protocol.estimate(protocol.sample_tally(counts), estimator=estimator).counts - counts) ** 2)
                for _ in range(300)
            ]
        )
        spread = squares.std() / np.sqrt(len(squares))
        assert abs(squares.mean() - predicted**2) < 5.5 * spread
        assert abs(squares.mean() - 1.5 * predicted**2) > 5.5 * spread


@pytest.mark.parametrize("size", [255, 256, 257, 65_535, 65_536])
@pytest.mark.parametrize("padded", [False, True])
def test_every_category_fits_its_message(size, padded):
    protocol = noisy(size, users=2, absence=0.5, padded=padded)
    messages = protocol.randomize_all(np.array([size - 1, size - 1]))
    tally = protocol.tally(messages)
    assert int(messages.values.max()) <= size
    assert tally.counts[-1] >= 2
    assert len(tally.counts) == size
    assert int(protocol.randomize(size - 1).max()) >= size - 1
    assert protocol.cost.bits_per_message == (size + padded - 1).bit_length()


def test_a_billion_users_and_a_million_categories():
    protocol = BalcerCheuHistogram.calibrate(users=10**9, domain_size=10**6, epsilon=1, delta=1e-10)
    counts = np.full(10**6, 1000)
    estimate = protocol.estimate(protocol.sample_tally(counts), estimator="unbiased")
    errors = estimate.counts - counts
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(estimate.standard_errors[0], rel=0.01)


def test_names_come_back():
    protocol = BalcerCheuHistogram.calibrate(users=3000, categories=["bus", "bike", "car"], epsilon=1, delta=1e-6)
    estimate = protocol.run(["bus"] * 2000 + ["car"] * 1000)
    assert estimate.categories == ("bus", "bike", "car")
    assert estimate.counts[1] == 0
    frame = estimate.to_frame()
    numbers = ["count", "standard_error", "lower", "upper", "frequency"]
    assert list(frame.columns) == ["category", *numbers, "withheld", "secure"]
    assert frame["category"].tolist() == ["bus", "bike", "car"]
    assert estimate.to_table().num_rows == 3


def test_misuse_is_refused():
    protocol = BalcerCheuHistogram.calibrate(users=300, categories=["a", "b"], epsilon=1, delta=1e-6)
    with pytest.raises(DomainError, match="2 of 300 values"):
        protocol.run(["a"] * 298 + ["x", "y"])
    with pytest.raises(DomainError):
        protocol.randomize(2)
    with pytest.raises(DomainError):
        protocol.randomize_all(np.array([0, 2]))
    with pytest.raises(DomainError):
        protocol.sample_tally(np.array([1, 2, 3]))
    for values in (np.array([0, 7]), np.array([-1, 0]), np.array([0.9, 0.1])):
        with pytest.raises(DomainError):
            protocol.tally(Messages(values, 1))
    for counts in ([300, 300, 300], [600], [5, 5], [10**6, 0]):
        with pytest.raises(ParameterError):
            protocol.estimate(Tally(np.array(counts), 300))
    with pytest.raises(BelowMinimumError):
        protocol.run(["a"] * 10)
    with pytest.raises(UnknownNameError):
        protocol.run(["a"] * 300, estimator="best")
    with pytest.raises(UnknownNameError):
        protocol.run(["a"] * 300, route="fast")
    wide = BalcerCheuHistogram.calibrate(users=300, domain_size=10**8, epsilon=1, delta=1e-6)
    with pytest.raises(ParameterError, match="messages in memory"):
        choose_route(wide, 300, "messages")
    with pytest.raises(UnknownNameError):
        BalcerCheuHistogram.calibrate(users=300, domain_size=2, epsilon=1, delta=1e-6, calibration="loose")
    with pytest.raises(DomainError):
        BalcerCheuHistogram.calibrate(users=300, epsilon=1, delta=1e-6)
    with pytest.raises(DomainError):
        BalcerCheuHistogram.calibrate(users=300, domain_size=0, epsilon=1, delta=1e-6)
    with pytest.raises(DomainError):
        BalcerCheuHistogram.calibrate(users=300, domain_size=3, categories=["a", "b"], epsilon=1, delta=1e-6)
    with pytest.raises(DomainError, match="twice"):
        BalcerCheuHistogram.calibrate(users=300, categories=["a", "a"], epsilon=1, delta=1e-6)


def test_tallies_of_parts_make_the_whole():
    protocol = BalcerCheuHistogram.calibrate(users=1000, domain_size=4, epsilon=1, delta=1e-6)
    parts = [protocol.tally(protocol.randomize_all(np.full(500, index))) for index in (0, 3)]
    estimate = protocol.estimate(parts[0] + parts[1])
    assert estimate.users == 1000
    assert estimate.counts[1] == estimate.counts[2] == 0
    assert abs(estimate.counts[0] - 500) < 60


def test_a_tally_can_come_from_anywhere():
    protocol = BalcerCheuHistogram.calibrate(users=1000, domain_size=2, epsilon=1, delta=1e-6)
    estimate = protocol.estimate(Tally(np.array([1700, 1000]), 1000))
    assert estimate.counts.tolist() == [700 + 1000 * float(protocol.absence), 0.0]
