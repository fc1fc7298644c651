"""Unary encoding: its table, both published variants, both routes, and misuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shuffledp.errors import DomainError, ParameterError, UnknownNameError
from shuffledp.messages import Messages, Tally
from shuffledp.protocols.histogram import unary
from shuffledp.protocols.histogram.unary import UnaryEncoding
from shuffledp.protocols.parts import bit_rows
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing import check_protocol
from shuffledp.testing.statistics import ALPHA, p_value, same_distribution


def calibrated(users: int = 1000, size: int = 4, epsilon: float = 1.0, **options: object) -> UnaryEncoding:
    return UnaryEncoding.calibrate(users=users, epsilon=epsilon, delta=1e-6, domain_size=size, **options)


def noisy(size: int, users: int = 3) -> UnaryEncoding:
    return UnaryEncoding(Target(users, 2.0, 0.0), Dyadic(1, 1), Dyadic(1, 2), size)


def test_the_table_by_hand():
    """Own bit 1/2, other bit 1/4; the first category is the leading bit of the code."""
    pmf = noisy(2).report_pmf(0)
    by_code = {copies.index(1): mass for copies, mass in pmf.items()}
    assert by_code == {0: Fraction(3, 8), 1: Fraction(1, 8), 2: Fraction(3, 8), 3: Fraction(1, 8)}


def test_the_whole_table_of_the_randomizer():
    """Every value of three categories, every row of bits; a row for the neighbour is rejected."""
    protocol = noisy(3)
    tables = []
    for value in range(3):
        codes = protocol.message_format.code(protocol.randomize_all(np.full(30_000, value)).values)
        tables.append(np.bincount(codes, minlength=8))
    for value in range(3):
        pmf = {copies.index(1): float(mass) for copies, mass in protocol.report_pmf(value).items()}
        masses = [pmf[code] for code in range(8)]
        assert p_value(tables[value], masses) > ALPHA
        assert p_value(tables[value - 1], masses) < ALPHA


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("variant", unary.VARIANTS)
def test_probabilities_and_variance_are_the_published_ones(variant, epsilon):
    protocol = calibrated(epsilon=epsilon, variant=variant)
    root, factor = math.exp(epsilon / 2), math.exp(epsilon)
    own, other = (0.5, 1 / (factor + 1)) if variant == "optimised" else (root / (root + 1), 1 / (root + 1))
    assert float(protocol.own_one) == pytest.approx(own, rel=1e-12)
    assert float(protocol.other_one) == pytest.approx(other, rel=1e-10)
    assert epsilon * (1 - 1e-9) <= protocol.guarantee.local_epsilon <= epsilon
    published = 4 * factor / (factor - 1) ** 2 if variant == "optimised" else root / (root - 1) ** 2
    variance = float(protocol.analysis(1000).error.variance(np.array([0.0]))[0])
    assert variance == pytest.approx(1000 * published, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 6.0])
def test_the_symmetric_variant_is_offered_just_where_it_is_better(epsilon):
    for size in range(2, 40):  # with one category there is no error
        errors = {
            variant: calibrated(size=size, epsilon=epsilon, variant=variant)
            .expected_error(counts=np.full(size, 1000 / size))
            .rmse
            for variant in unary.VARIANTS
        }
        offered = list(UnaryEncoding.alternatives(users=9, epsilon=epsilon, delta=1e-6, domain_size=size))
        assert (offered == [{"variant": "symmetric"}]) == (errors["symmetric"] < errors["optimised"])


def test_a_single_category_conforms():
    checks = check_protocol(
        noisy(1), only={"randomize_all has its distribution", "the predicted error is the exact one"}
    )
    assert len(checks) == 2
    assert noisy(1).randomize(0).shape == (1,)


def test_routes_agree_and_swapped_probabilities_do_not():
    protocol = noisy(2)
    tables = np.zeros((3, 4, 4))
    for _ in range(1_200):
        tables[0][tuple(protocol.tally(protocol.randomize_all(np.array([0, 0, 1]))).counts)] += 1
        tables[1][tuple(protocol.sample_tally(np.array([2, 1])).counts)] += 1
        tables[2][tuple(protocol.sample_tally(np.array([0, 3])).counts)] += 1
    assert same_distribution(tables[0], tables[1]) > ALPHA
    assert same_distribution(tables[0], tables[2]) < ALPHA


def test_many_chunks_make_one_tally(monkeypatch):
    protocol = calibrated(users=500, size=7)
    messages = protocol.randomize_all(np.arange(500) % 7)
    whole = protocol.tally(messages)
    assert whole.counts.tolist() == messages.values.sum(axis=0).tolist()
    monkeypatch.setattr(bit_rows, "_CHUNK_BITS", 100)
    assert protocol.tally(messages) == whole


@pytest.mark.parametrize("variant", unary.VARIANTS)
def test_the_error_is_as_predicted(variant):
    """Squared errors of all categories over 20 rounds, which are independent; twice the variance is rejected."""
    protocol = calibrated(users=100_000, size=100, variant=variant)
    counts = np.full(100, 1000)
    errors = [protocol.estimate(protocol.sample_tally(counts)).counts - counts for _ in range(20)]
    total = float(np.sum(np.square(errors))) / protocol.expected_error(counts=counts).rmse ** 2
    assert min(stats.chi2.cdf(total, 2000), stats.chi2.sf(total, 2000)) > ALPHA
    assert stats.chi2.cdf(total / 2, 2000) < ALPHA


def test_what_is_refused():
    protocol = calibrated()
    with pytest.raises(UnknownNameError, match="optimised, symmetric"):
        calibrated(variant="best")
    with pytest.raises(DomainError):
        protocol.randomize_all(np.array([4]))
    with pytest.raises(DomainError, match="outside its bounds"):
        protocol.tally(Messages(np.array([[0, 2, 0, 0]]), 1))
    with pytest.raises(DomainError, match="4 parts"):
        protocol.tally(Messages(np.array([[0, 1, 0]]), 1))
    with pytest.raises(ParameterError, match="counts up to"):
        protocol.estimate(Tally(np.array([1001, 0, 0, 0]), 1000))
    with pytest.raises(ParameterError, match="too many to list"):
        calibrated(size=11).report_pmf(0)
    with pytest.raises(ParameterError, match="0 < other_one < own_one < 1"):
        UnaryEncoding(Target(3, 2.0, 0.0), Dyadic(1, 2), Dyadic(1, 1), 2)
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = UnaryEncoding(Target(3, 1.0, 0.0), Dyadic(1, 1), Dyadic(1, 2), 2).guarantee


def test_no_epsilon_claims_too_much():
    """Also where probabilities reach the last bit that can be sampled."""
    for epsilon in (1e-12, 1e-9, 40.0, 45.0, 300.0, 700.0):
        for variant in unary.VARIANTS:
            assert calibrated(epsilon=epsilon, variant=variant).guarantee.local_epsilon <= epsilon
