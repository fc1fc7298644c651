"""Hadamard response: its sets, its table, the published decoder and error, blocks, both routes, and misuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard

from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.histogram.hadamard_response import HadamardResponse, odd_parity, walsh_hadamard
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution


def calibrated(users: int = 1000, size: int = 20, epsilon: float = 1.0, **options: object) -> HadamardResponse:
    return HadamardResponse.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain_size=size, **options)


def published_sizes(size: int, epsilon: float) -> tuple[int, int]:
    """B and b of the paper."""
    most = min(math.exp(epsilon), 2 * size)
    blocks = 2 ** max(0, math.ceil(math.log2(most)) - 1)
    return blocks, 2 ** math.ceil(math.log2(size / blocks + 1))


def sets(protocol: HadamardResponse) -> list[np.ndarray]:
    """C_x from a Hadamard matrix that somebody else made."""
    matrix = hadamard(protocol.width)
    return [
        x // (protocol.width - 1) * protocol.width + np.flatnonzero(matrix[x % (protocol.width - 1) + 1] == 1)
        for x in range(protocol.domain_size)
    ]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.5, 5.0, 20.0])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 20, 50])
def test_sizes_and_table_are_the_published_ones(size, epsilon):
    """An output of the set with e/Z, any other with 1/Z."""
    protocol = calibrated(size=size, epsilon=epsilon)
    blocks, width = published_sizes(size, epsilon)
    assert (protocol.blocks, protocol.width) == (blocks, width)
    assert epsilon * (1 - 1e-6) <= protocol.guarantee.local_epsilon <= epsilon
    outputs, factor = blocks * width, math.exp(epsilon)
    total = width / 2 * factor + outputs - width / 2
    for x, own in enumerate(sets(protocol)):
        assert len(own) == width // 2
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(x).items()}
        expected = np.full(outputs, 1 / total)
        expected[own] *= factor
        assert [pmf[code] for code in range(outputs)] == pytest.approx(expected.tolist(), rel=1e-6)


def test_the_table_by_hand():
    """One category, two outputs: 3/4 + 1/8 and 1/8."""
    pmf = HadamardResponse(Target(2, 2.0, 0.0), Dyadic(1, 2), 1, 1).report_pmf(0)
    assert pmf == {(1, 0): Fraction(7, 8), (0, 1): Fraction(1, 8)}


@pytest.mark.parametrize(("blocks", "size"), [(1, 3), (2, 4), (4, 4)])
def test_the_whole_table_of_the_randomizer(blocks, size):
    """Every value, every output; another value's outputs are rejected."""
    protocol = HadamardResponse(Target(2, 5.0, 0.0), Dyadic(1, 2), blocks, size)
    outputs = protocol.message_format.codes
    tables = [np.bincount(protocol.randomize_all(np.full(30_000, x)).values, minlength=outputs) for x in range(size)]
    for x in range(size):
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(x).items()}
        masses = [pmf[code] for code in range(outputs)]
        assert p_value(tables[x], masses) > ALPHA
        assert p_value(tables[x - 1], masses) < ALPHA


@pytest.mark.parametrize("width", [1, 2, 8, 64])
def test_the_fast_transform_is_the_matrix(width):
    rows = np.arange(3 * width).reshape(3, width) ** 2 % 17
    assert np.array_equal(walsh_hadamard(rows), rows @ hadamard(width))
    places = np.arange(width)
    assert np.array_equal(odd_parity(places[:, None] & places), hadamard(width) < 0)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_decoder_is_the_published_one(epsilon):
    """2 (2B - 1 + e) / (e - 1) times the outputs in the set less half of the block's."""
    protocol = calibrated(epsilon=epsilon)
    tally = protocol.sample_tally(np.arange(20) * 10)
    factor = math.exp(epsilon)
    scale = 2 * (2 * protocol.blocks - 1 + factor) / (factor - 1)
    blocks = tally.counts.reshape(protocol.blocks, protocol.width).sum(axis=1)
    estimates = [
        scale * (tally.counts[own].sum() - blocks[x // (protocol.width - 1)] / 2)
        for x, own in enumerate(sets(protocol))
    ]
    assert protocol.estimate(tally).counts == pytest.approx(np.array(estimates), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_a_single_block_has_the_published_error(epsilon):
    protocol = calibrated(epsilon=epsilon)
    factor = math.exp(epsilon)
    assert protocol.blocks == 1
    variance = float(protocol.analysis(1000).error.variance(np.array([0.0]))[0])
    assert variance == pytest.approx(1000 * ((factor + 1) / (factor - 1)) ** 2, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "blocks"), [(1.0, 1), (1.0, 2), (3.0, None)])
def test_the_exact_error_for_given_counts(epsilon, blocks):
    """From the variances of every user's contribution, by the table."""
    protocol = calibrated(epsilon=epsilon, blocks=blocks)
    counts = np.arange(20) ** 2 % 13 * 5
    counts[0] += 1000 - counts.sum()
    slope = float(protocol.blanket.complement)
    squared = np.zeros(20)
    for holder, users in enumerate(counts):
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(holder).items()}
        masses = np.array([pmf[code] for code in range(len(pmf))])
        for x in range(20):
            block = x // (protocol.width - 1) * protocol.width
            signs = np.zeros(len(masses))
            signs[block : block + protocol.width] = -1
            signs[sets(protocol)[x]] = 1
            squared[x] += users * (masses @ signs**2 - (masses @ signs) ** 2) / slope**2
    assert protocol.expected_error(counts=counts).rmse == pytest.approx(math.sqrt(squared.mean()), rel=1e-9)
    even = protocol.expected_error(counts=np.full(20, 50)).rmse
    assert protocol.expected_error().rmse == pytest.approx(even, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_error_is_as_predicted(epsilon):
    """Squared errors of one category over 200 rounds; three times the variance is rejected."""
    protocol = calibrated(users=20_000, epsilon=epsilon)
    counts = np.full(20, 1000)
    errors = np.array([protocol.estimate(protocol.sample_tally(counts)).counts - counts for _ in range(200)])
    predicted = protocol.expected_error(counts=counts).rmse ** 2
    total = float(np.sum(errors[:, 5] ** 2)) / predicted
    assert min(stats.chi2.cdf(total, 200), stats.chi2.sf(total, 200)) > ALPHA
    assert stats.chi2.cdf(total / 3, 200) < ALPHA


def test_intervals_of_many_blocks_hold_and_are_not_the_worst_ones():
    """With everybody in one block, or spread evenly: at most the risk is missed, at alpha = 1e-7."""
    protocol = calibrated(users=20_000, size=50, epsilon=5.0)
    assert protocol.blocks > 16
    for counts in (np.full(50, 400), np.eye(50, dtype=np.int64)[3] * 20_000):
        missed = 0
        for _ in range(20):
            low, high = protocol.estimate(protocol.sample_tally(counts)).interval(0.9).T
            missed += int(((counts < low) | (counts > high)).sum())
        assert stats.binom.sf(missed - 1, 1000, 0.1) > ALPHA
    estimate = protocol.estimate(protocol.sample_tally(np.full(50, 400)))
    predicted = protocol.expected_error(counts=np.full(50, 400)).rmse
    assert float(np.median(estimate.standard_errors)) == pytest.approx(predicted, rel=0.1)
    worst = protocol.analysis(20_000).intervals(protocol.observed(protocol.sample_tally(np.full(50, 400))))(0.9)
    assert np.median(np.diff(estimate.interval(0.9))) < 0.6 * np.median(np.diff(worst))


@pytest.mark.parametrize("blocks", [1, 2])
def test_routes_agree_and_other_counts_do_not(blocks):
    """Sixty users are more than the outputs of all sets, so that the fast route is taken."""
    protocol = HadamardResponse(Target(60, 3.0, 0.0), Dyadic(1, 2), blocks, 2)
    assert 2 * protocol.width // 2 < 60
    values = np.repeat([0, 1], [40, 20])
    tables = np.zeros((3, protocol.message_format.codes, 61))
    outputs = np.arange(protocol.message_format.codes)
    for _ in range(700):
        tables[0, outputs, protocol.tally(protocol.randomize_all(values)).counts] += 1
        tables[1, outputs, protocol.sample_tally(np.array([40, 20])).counts] += 1
        tables[2, outputs, protocol.sample_tally(np.array([20, 40])).counts] += 1
    assert all(same_distribution(tables[0, output], tables[1, output]) > ALPHA for output in outputs)
    assert any(same_distribution(tables[0, output], tables[2, output]) < ALPHA for output in outputs)


def test_half_of_the_blocks_is_an_alternative():
    settings = {"users": 9, "delta": 1e-6, "domain_size": 100}
    assert list(HadamardResponse.alternatives(epsilon=1.0, **settings)) == [{"blocks": 1}]
    assert list(HadamardResponse.alternatives(epsilon=0.5, **settings)) == []


def test_what_is_refused():
    protocol = calibrated()
    with pytest.raises(ParameterError, match="power of two"):
        calibrated(blocks=3)
    with pytest.raises(DomainError):
        protocol.randomize_all(np.array([20]))
    with pytest.raises(DomainError):
        protocol.tally(Messages(np.array([protocol.message_format.codes]), 1))
    with pytest.raises(ParameterError, match="sum to that number"):
        protocol.estimate(Tally(np.ones(protocol.message_format.codes, dtype=np.int64), 1000))
    with pytest.raises(ParameterError, match="too many to list"):
        calibrated(size=2000).report_pmf(0)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = HadamardResponse(Target(2, 1.0, 0.0), Dyadic(1, 2), 1, 3).guarantee
