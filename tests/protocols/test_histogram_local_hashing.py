"""Local hashing: its table, the published error, exact collisions in the analyzer, and misuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.histogram.local_hashing import LocalHashing
from shuffledp.protocols.parts import hashed_reports
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing.statistics import ALPHA, p_value


def calibrated(users: int = 1000, size: int = 100, epsilon: float = 1.0, **options: object) -> LocalHashing:
    return LocalHashing.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain_size=size, **options)


def noisy(size: int = 2) -> LocalHashing:
    return LocalHashing(Target(2, 2.0, 0.0), Dyadic(1, 2), AffineHashes(3, 2), size)


def test_the_table_by_hand():
    """Six functions of a prime 3; the own bucket with 7/8."""
    pmf = {copies.index(1): mass for copies, mass in noisy().report_pmf(1).items()}
    for factor in (1, 2):
        for shift in range(3):
            for bucket in range(2):
                code = ((factor - 1) * 3 + shift) * 2 + bucket
                likely = (factor * 1 + shift) % 3 % 2 == bucket
                assert pmf[code] == Fraction(7 if likely else 1, 48)


def test_the_whole_table_of_the_randomizer():
    """Both values, all twelve messages; the other value's messages are rejected."""
    protocol = noisy()
    tables = [
        np.bincount(protocol.message_format.code(protocol.randomize_all(np.full(30_000, value)).values), minlength=12)
        for value in range(2)
    ]
    for value in range(2):
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(value).items()}
        masses = [pmf[code] for code in range(12)]
        assert p_value(tables[value], masses) > ALPHA
        assert p_value(tables[1 - value], masses) < ALPHA


@pytest.mark.parametrize(("epsilon", "buckets"), [(0.01, 2), (0.5, 3), (1.0, 4), (2.0, 8), (5.0, 100), (300.0, 100)])
def test_the_number_of_buckets(epsilon, buckets):
    """round(e^epsilon) + 1, but never more than categories."""
    assert calibrated(epsilon=epsilon).hashes == AffineHashes(101, buckets)
    assert calibrated(epsilon=1.0, buckets=10).hashes == AffineHashes(101, 10)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_error_is_close_to_the_published_one(epsilon):
    """Which is that of ideal hashes: with a large prime, the same to a thousandth."""
    protocol = calibrated(size=100_000, epsilon=epsilon)
    factor, buckets = math.exp(epsilon), protocol.hashes.buckets
    published = (factor + buckets - 1) ** 2 / ((buckets - 1) * (factor - 1) ** 2)
    variance = float(protocol.analysis(1000).error.variance(np.array([0.0]))[0])
    assert variance == pytest.approx(1000 * published, rel=1e-3)
    assert epsilon * (1 - 1e-9) <= protocol.guarantee.local_epsilon <= epsilon


def test_the_analyzer_knows_the_exact_collisions():
    """p* pc + (1 - p*)(1 - pc)/(g - 1), by enumeration of all functions; one over the buckets would be biased."""
    protocol = LocalHashing.calibrate(users=10, epsilon=1, delta=1e-6, domain_size=5, buckets=2)
    pmf = protocol.report_pmf(0)
    codes = np.array([copies.index(1) for copies in pmf])
    messages = protocol.message_format.message(codes)
    supports = np.stack([protocol.tally(Messages(message[None], 1)).counts for message in messages])
    exact = [float(sum(mass for mass, each in zip(pmf.values(), column, strict=True) if each)) for column in supports.T]
    analysis = protocol.analysis(1)
    assert exact[0] == pytest.approx(analysis.offset + analysis.slope, rel=1e-12)
    assert exact[1:] == pytest.approx([analysis.offset] * 4, rel=1e-12)
    collision = float(protocol.hashes.collision)
    assert analysis.offset == pytest.approx(exact[0] * collision + (1 - exact[0]) * (1 - collision), rel=1e-12)
    assert abs(analysis.offset - 1 / 2) > 0.02


def test_the_error_is_as_predicted():
    """Squared errors of one category over 150 rounds; a quarter of the variance is rejected."""
    protocol = calibrated(users=5_000)
    values = np.arange(5_000) % 100
    squares = [(protocol.run(values).counts[3] - 50) ** 2 for _ in range(150)]
    total = sum(squares) / protocol.expected_error(counts=np.full(100, 50)).rmse ** 2
    assert min(stats.chi2.cdf(total, 150), stats.chi2.sf(total, 150)) > ALPHA
    assert stats.chi2.cdf(total / 4, 150) < ALPHA


def test_many_chunks_make_one_tally(monkeypatch):
    protocol = calibrated(users=500)
    messages = protocol.randomize_all(np.arange(500) % 100)
    whole = protocol.tally(messages)
    monkeypatch.setattr(hashed_reports, "_CHUNK_MESSAGES", 7)
    assert protocol.tally(messages) == whole


def test_small_domains():
    for size in (1, 2, 3):
        protocol = calibrated(users=2, size=size, epsilon=10)
        assert protocol.run(np.array([0, size - 1])).counts.shape == (size,)


def test_what_is_refused():
    protocol = calibrated()
    with pytest.raises(DomainError):
        protocol.randomize_all(np.array([100]))
    with pytest.raises(DomainError, match="outside its bounds"):
        protocol.tally(Messages(np.array([[100, 0, 0]]), 1))
    with pytest.raises(ParameterError, match="2 <= buckets"):
        calibrated(buckets=1)
    with pytest.raises(ParameterError, match="categories need a prime"):
        LocalHashing(Target(2, 2.0, 0.0), Dyadic(1, 2), AffineHashes(3, 2), 4)
    with pytest.raises(ParameterError, match="too many to list"):
        protocol.report_pmf(0)
    with pytest.raises(ParameterError, match="counts up to"):
        protocol.estimate(Tally(np.full(100, 1001), 1000))
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = LocalHashing(Target(2, 1.0, 0.0), Dyadic(1, 2), AffineHashes(3, 2), 2).guarantee
