"""Hadamard codewords: the table, the printed numbers, both ways to count, and the edges."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shuffledp.errors import ConditionError, ParameterError
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.histogram.hadamard_blanket import HadamardBlanketHistogram, count_even, kernel_sizes
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution

TARGET = {"epsilon": 1.0, "delta": 1e-6}


def plain_count(tuples: np.ndarray, size: int) -> list[int]:
    """The definition, one test at a time."""
    return [
        sum(all((int(a) & (x + 1)).bit_count() % 2 == 0 for a in each) for each in tuples.tolist()) for x in range(size)
    ]


def test_codewords_are_rows_of_a_hadamard_matrix():
    """Half of all vectors for each category, a quarter for any two."""
    vectors = np.arange(16)[:, None]
    rows = np.array([[count_even(vectors[[a]], 4, 15)[x] for a in range(16)] for x in range(15)])
    assert (rows @ rows.T == 4 + 4 * np.eye(15)).all()


@pytest.mark.parametrize(("size", "hashes"), [(1, 3), (2, 1), (3, 2), (5, 2), (12, 3), (100, 9), (300, 4)])
def test_the_elimination_counts_what_is_defined(size, hashes):
    """For uniform tuples, tuples of codewords, zeros and repetitions; and the messages stay as they were."""
    protocol = HadamardBlanketHistogram(Target(2, 1.0, 0.999), Slots(1, Dyadic(1, 1)), hashes, size)
    messages = protocol.randomize_all(np.arange(60) % size)
    tuples = messages.values.reshape(-1, hashes).copy()
    tuples[0] = 0
    tuples[1] = tuples[1, 0]
    before = tuples.copy()
    assert count_even(tuples, protocol.bits, size).tolist() == plain_count(tuples, size)
    assert (tuples == before).all()
    own = messages.values.reshape(-1, hashes)[messages.offsets[:-1]]
    for x, each in zip(np.arange(60) % size, own, strict=True):
        assert count_even(each[None], protocol.bits, size)[x] == 1


def test_the_table_of_a_report_by_hand():
    """Two categories, vectors of two bits: value 0 (vector 01) sends 00 or 10, and half of the users add any."""
    protocol = HadamardBlanketHistogram(Target(2, 1.0, 0.99), Slots(0, Dyadic(1, 1)), 1, 2)
    pmf = protocol.report_pmf(0)
    assert pmf[(1, 0, 0, 0)] == pmf[(0, 0, 1, 0)] == Fraction(1, 4)
    assert pmf[(2, 0, 0, 0)] == Fraction(1, 16)
    assert pmf[(1, 0, 1, 0)] == Fraction(2, 16)
    assert sum(pmf.values()) == 1


@pytest.mark.parametrize(("users", "messages", "rmse", "hashes"), [(10_000, 70.89, 6.58, 14), (10**6, 45.73, 6.60, 20)])
def test_the_printed_numbers(users, messages, rmse, hashes):
    protocol = HadamardBlanketHistogram.calibrate(users=users, domain_size=1000, **TARGET)
    assert protocol.hashes == hashes
    assert protocol.message_format.bits == hashes * 10
    assert protocol.cost.messages_per_user == pytest.approx(messages, abs=0.0101)
    assert protocol.expected_error().rmse == pytest.approx(rmse, abs=0.0051)
    assert protocol.guarantee.delta_at(1.0) <= 1e-6


def test_the_paper_constant():
    """36 ln(e/(eps delta))/eps^2 tuples, more where 2^hashes exceeds the users."""
    paper = HadamardBlanketHistogram.calibrate(users=1 << 14, domain_size=50, calibration="paper", **TARGET)
    assert paper.blanket.whole == math.ceil(36 * math.log(math.e * 1e6))
    with pytest.raises(ConditionError, match="epsilon <= 1"):
        HadamardBlanketHistogram.calibrate(users=1000, domain_size=50, calibration="paper", epsilon=2.0, delta=1e-6)


def test_kernels_have_the_exact_distribution():
    """All 2 x 3 matrices: how many have each dimension of the kernel."""
    pmf = Counter()
    for rows in product(range(8), repeat=2):
        pmf[sum((rows[0] & r).bit_count() % 2 == 0 == (rows[1] & r).bit_count() % 2 for r in range(8))] += 1
    exact = [pmf[1 << dimension] for dimension in range(4)]
    assert sum(exact) == 64
    sizes = kernel_sizes(200_000, 2, 3, SYSTEM)
    assert p_value(sizes, np.array(exact) / 64) > ALPHA
    assert p_value(sizes, np.array([*exact[:1], exact[1] - 2, exact[2] + 2, exact[3]]) / 64) < ALPHA


@pytest.mark.parametrize(("size", "hashes"), [(5, 2), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_both_routes_have_the_same_joint_distribution(size, hashes):
    """The whole tally as one outcome; leaving out tuples that agree with several categories is caught."""
    protocol = HadamardBlanketHistogram(Target(2, 1.0, 0.999), Slots(0, Dyadic(1, 1)), hashes, size)
    true = np.bincount([0, size - 1], minlength=size)
    literal, fast, faulty = Counter(), Counter(), Counter()
    for _ in range(1_500):
        literal[tuple(protocol.tally(protocol.randomize_all(np.array([0, size - 1]))).counts.tolist())] += 1
        drawn = tuple(protocol.sample_tally(true).counts.tolist())
        fast[drawn] += 1
        faulty[tuple(np.minimum(drawn, true + 1).tolist())] += 1
    keys = sorted(set(literal) | set(fast) | set(faulty))
    assert same_distribution([literal[key] for key in keys], [fast[key] for key in keys]) > ALPHA
    assert same_distribution([literal[key] for key in keys], [faulty[key] for key in keys]) < ALPHA


@pytest.mark.parametrize("size", [100, 3000])
def test_the_error_is_as_predicted(size):
    """Few hashes for many categories, too; the mean square of many errors to a third."""
    protocol = HadamardBlanketHistogram.calibrate(users=5_000, domain_size=size, hashes=8, **TARGET)
    true = np.zeros(size, dtype=np.int64)
    true[[0, size - 1]] = 2_000, 3_000
    predicted = protocol.expected_error(counts=true).rmse ** 2
    literal = protocol.tally(protocol.randomize_all(np.repeat([0, size - 1], [2_000, 3_000])))
    for tallies in ([literal], [protocol.sample_tally(true) for _ in range(5)]):
        squares = [np.mean((protocol.estimate(tally).counts - true) ** 2) for tally in tallies]
        assert np.mean(squares) / predicted == pytest.approx(1, abs=0.8 if size == 100 else 0.3)


def test_edges_and_bad_input():
    one = HadamardBlanketHistogram.calibrate(users=4, domain_size=1, **TARGET)
    assert one.guarantee.local_epsilon == 0
    assert one.run([0] * 4).counts.shape == (1,)
    two = HadamardBlanketHistogram.calibrate(users=2, domain_size=2, **TARGET)
    assert two.hashes == 1
    assert two.guarantee.delta_at(1.0) <= 1e-6
    for settings in HadamardBlanketHistogram.alternatives(users=10_000):
        less = HadamardBlanketHistogram.calibrate(users=10_000, domain_size=9, **TARGET, **settings)
        assert less.cost.messages_per_user < 12
    with pytest.raises(ParameterError, match="hashes"):
        HadamardBlanketHistogram.calibrate(users=100, domain_size=4, hashes=0, **TARGET)
    with pytest.raises(ParameterError, match="are not supported"):
        HadamardBlanketHistogram(Target(3, 1.0, 0.9), Slots(1, Dyadic(0)), 63, 4)
    with pytest.raises(ParameterError, match="too many to list"):
        HadamardBlanketHistogram.calibrate(users=1000, domain_size=100, **TARGET).report_pmf(0)
