"""Accountants that used to waste noise: never below an exact value, and within one per cent of it.

The exact values are those of ``exact_references.py``, which does not use the package. A calibrated parameter is
compared with the one at which a single data set meets the target: what suffices for all data is at least that much.
"""

import importlib.util
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import shuffledp as sdp
import shuffledp.privacy.amplification.privacy_blanket as privacy_blanket
from shuffledp.privacy.amplification import BlanketCurve, RandomizedResponseCurve, Slots, least_blanket, least_slots
from shuffledp.privacy.cheu import FlippedHistogram, FlippedSum, least_count_flip, least_histogram_flip
from shuffledp.privacy.cheu.ratio_grid import RatioGrid
from shuffledp.protocols.parts.hashing import AffineHashes
from shuffledp.randomness import Dyadic

spec = importlib.util.spec_from_file_location("exact_references", Path(__file__).parent / "exact_references.py")
exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exact)


def worst_count(users, flip, epsilon):
    return max(max(exact.flipped_count(users, flip, epsilon, ones)) for ones in range((users - 1) // 2 + 1))


@pytest.mark.parametrize(("users", "flip", "epsilon"), list(product((203, 260), (0.04, 0.13, 0.31), (0.02, 0.4, 1.6))))
def test_two_values_are_flipped_bits(users, flip, epsilon):
    """All data of more than 200 users, by convolution; the planted fault compares with nobody else holding a 1."""
    truth = worst_count(users, flip, epsilon)
    bound = RandomizedResponseCurve(users, Dyadic.of(2 * flip), 2).delta_at(epsilon)
    assert truth * (1 - 1e-9) <= bound
    assert bound <= truth * 1.0101 or bound < 1e-250


def test_comparing_with_one_data_set_alone_would_show():
    """The planted fault: only K = (N - 1)/2 lies below the truth."""
    users, flip, epsilon = 260, 0.13, 0.4
    middle = max(exact.flipped_count(users, flip, epsilon, (users - 1) // 2))
    assert middle < worst_count(users, flip, epsilon) * 0.999


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [(777, 0.6, 1e-5), (20_000, 0.2, 1e-7), (300_000, 1.4, 1e-9), (50_000, 3.1, 1e-31), (100_000, 2.3, 1e-36)],
)
def test_count_and_two_values_need_what_one_data_set_needs(users, epsilon, delta):
    flip = float(least_count_flip(users, epsilon, delta))
    assert float(least_blanket(users, 2, epsilon, delta)) == 2 * flip

    def delta_of(point):  # everybody else holds the same value
        return max(exact.flipped_count(users, point, epsilon, users - 1))

    assert delta_of(flip) <= delta * (1 + 1e-9)
    assert delta_of(flip * 0.99) > delta


@pytest.mark.parametrize(
    ("users", "epsilon", "delta"),
    [(350, 0.8, 1e-4), (4_000, 0.35, 1e-6), (70_000, 1.7, 1e-9), (9_000, 4.2, 1e-11), (40_000, 2.7, 1e-31),
     (100_000, 2.3, 1e-33)],
)  # fmt: skip
def test_histogram_needs_what_one_data_set_needs(users, epsilon, delta):
    flip = float(least_histogram_flip(users, epsilon, delta))

    def delta_of(point):  # all others hold the old category
        return exact.flipped_histogram(users, point, epsilon, users - 1, 0)

    assert delta_of(flip) <= delta * (1 + 1e-9)
    assert delta_of(flip * 0.99) > delta


@pytest.mark.parametrize(("users", "flip", "epsilon"), list(product((9, 33), (0.06, 0.2, 0.45), (0.05, 0.7, 2.2))))
def test_histogram_over_all_data(users, flip, epsilon):
    flip = float(Dyadic.of(flip))
    pairs = [(old, new) for old in range(users) for new in range(users - old)]
    truth = max(exact.flipped_histogram(users, flip, epsilon, *pair) for pair in pairs)
    bound = FlippedHistogram(users, Dyadic.of(flip)).delta_at(epsilon)
    assert truth * (1 - 1e-9) <= bound <= truth * 1.0101 + 1e-290


def test_ratios_are_spread_and_never_gathered(monkeypatch):
    """The planted fault moves every mass to the nearest smaller ratio, and lies below the exact value."""
    users, flip, epsilon = 33, Dyadic.of(0.2), 0.7
    truth = exact.flipped_histogram(users, 0.2, epsilon, users - 1, 0)
    assert FlippedHistogram(users, flip).delta_at(epsilon) >= truth * (1 - 1e-9)

    def gathered(self, p, q):
        below = np.clip(np.searchsorted(self._ratios, p / q), 0, len(self._ratios) - 2)
        return below, q, np.zeros(len(q))

    monkeypatch.setattr(RatioGrid, "_split", gathered)
    assert FlippedHistogram(users, flip).delta_at(epsilon) < truth


@pytest.mark.parametrize(
    ("users", "values", "mean", "epsilon"),
    [(900, 5, 3.0, 4.0), (10_000, 12, 17.5, 5.0), (10_000, 12, 21.0, 5.0), (20_000, 3, 40.0, 5.5),
     (1_500, 40, 6.0, 2.0), (9_000, 4, 30.0, 4.5)],
)  # fmt: skip
def test_lemma_of_the_blanket_at_tiny_deltas(users, values, mean, epsilon):
    """``mean`` is the number of uniform reports on a value; deltas from 1e-4 to 1e-34."""
    blanket = Dyadic.at_least(mean * values / users)
    truth = exact.blanket_lemma(users, float(blanket), values, epsilon)
    bound = BlanketCurve(users, blanket, values).delta_at(epsilon)
    assert 0 < truth * (1 - 1e-9) <= bound <= truth * 1.001


def test_an_absolute_allowance_for_rounding_would_show(monkeypatch):
    """The planted fault is what the bound was before: rounding of the height, whatever its probability."""
    users, values, epsilon, blanket = 10_000, 12, 5.0, Dyadic.at_least(21.0 * 12 / 10_000)
    before = BlanketCurve(users, blanket, values).delta_at(epsilon)
    original = privacy_blanket._ResponseSums._above_others

    def with_allowance(self, height, pairs):
        return original(self, height, pairs) + 1e-14 * self.reward * self.growth * pairs

    monkeypatch.setattr(privacy_blanket._ResponseSums, "_above_others", with_allowance)
    assert BlanketCurve(users, blanket, values).delta_at(epsilon) > 100 * before


@pytest.mark.parametrize("delta", [1e-20, 1e-25, 1e-30])
def test_response_needs_what_the_lemma_needs(delta):
    users, values, epsilon = 8_000, 9, 5.0
    blanket = float(least_blanket(users, values, epsilon, delta))
    assert exact.blanket_lemma(users, blanket, values, epsilon) <= delta
    assert exact.blanket_lemma(users, blanket * 0.999, values, epsilon) > delta


def test_sums_of_several_bits_keep_their_bound():
    users, bits, flip, epsilon = 7, 3, 0.2, 0.5
    others = (users - 1) * bits
    truth = 0.0
    for ones in range(others + 1):
        p = np.convolve(exact.window(ones + bits, 1 - flip), exact.window(others - ones, flip))
        q = np.convolve(exact.window(ones, 1 - flip), exact.window(others - ones + bits, flip))
        truth = max(truth, exact.one_sided(p, q, epsilon))
    assert truth * (1 - 1e-9) <= FlippedSum(users, Dyadic.of(flip), bits).delta_at(epsilon) <= truth * 1.0101


HASHED = [(5, 2, 6, 0.5), (11, 3, 9, 1.0), (13, 5, 10, 0.2), (7, 3, 8, 2.0), (3, 2, 12, 0.1)]


@pytest.mark.parametrize(("domain_size", "buckets", "messages", "epsilon"), HASHED)
@pytest.mark.parametrize("sent", [Dyadic(1, 0), Dyadic(3, 2)])
def test_hashes_that_collide(domain_size, buckets, messages, epsilon, sent):
    """Every outcome of all messages, as fractions; a planted collision that is too likely lies below them."""
    collision = AffineHashes.for_domain(domain_size, buckets).collision
    slots = Slots(1, Dyadic(0)) if sent.bits == 0 else Slots(0, sent)
    truth = float(exact.hashed_blanket(messages, buckets, collision, epsilon, sent.fraction))
    bound = slots.hashed_curve(messages, buckets, collision).delta_at(epsilon)
    assert truth * (1 - 1e-12) <= bound <= truth * (1 + 1e-9)
    assert slots.hashed_curve(messages, buckets, collision * Fraction(6, 5)).delta_at(epsilon) < truth


@pytest.mark.parametrize("epsilon", [20.0, 36.0, 37.0, 40.0, 100.0, 599.0, 700.0])
def test_hashes_that_collide_at_large_epsilon(epsilon):
    """The probability that all messages have the value never rounds to 0, as it did from 37 on."""
    collision = AffineHashes.for_domain(5, 2).collision
    truth = float(exact.hashed_blanket(6, 2, collision, epsilon, Fraction(1)))
    bound = Slots(1, Dyadic(0)).hashed_curve(6, 2, collision).delta_at(epsilon)
    assert truth * (1 - 1e-12) <= bound <= truth * (1 + 1e-9)
    assert truth > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("messages", "buckets", "collision", "epsilon"), [(1_700, 3, Fraction(1, 3), 0.2), (4_000, 6, Fraction(1, 7), 0.3)]
)
def test_many_hashed_messages_in_blocks(messages, buckets, collision, epsilon):
    """Blocks of counts are bounds, and cost little: one per cent of noise is about 20 per cent of such a delta."""
    truth = exact.hashed_blanket_sum(messages, buckets, float(collision), epsilon)
    bound = Slots(1, Dyadic(0)).hashed_curve(messages, buckets, collision).delta_at(epsilon)
    assert truth * (1 - 1e-9) <= bound <= truth * 1.03


@pytest.mark.parametrize(
    ("users", "domain_size", "buckets", "epsilon", "delta"), [(400, 30, 5, 1.3, 1e-5), (900, 200, 12, 0.9, 1e-7)]
)
def test_hashed_messages_are_the_fewest(users, domain_size, buckets, epsilon, delta):
    """By exact sums at one per cent fewer messages; without collisions several per cent more would be sent."""
    collision = AffineHashes.for_domain(domain_size, buckets).collision
    slots = least_slots(users, buckets, epsilon, delta, collision=collision)
    assert slots.whole == 0
    for share, is_met in ((1.0, True), (0.99, False)):
        rate = slots.mean * share
        truth = exact.hashed_blanket_sum(users, buckets / rate, float(collision), epsilon)
        assert (truth <= delta) == is_met
    assert least_slots(users, buckets, epsilon, delta).mean > 1.05 * slots.mean


def test_hashed_messages_are_not_rounded_up_to_all_that_are_allowed():
    protocol = sdp.find("histogram", "hashed-blanket").calibrate(
        users=1_000, domain_size=1_000, epsilon=0.5, delta=1e-6
    )
    assert protocol.blanket.mean < 0.97
    many = sdp.find("histogram", "hashed-blanket").calibrate(users=10**5, domain_size=10**6, epsilon=1.0, delta=1e-6)
    assert many.blanket == Slots(1, Dyadic(0))  # where rounding costs nothing, everybody sends the same number


CALIBRATED_BEFORE = [
    ("count", 300, 0.05, 0.001, Dyadic(6710582105414209536, 64)),
    ("count", 300, 1.0, 0.001, Dyadic(686588508370870272, 64)),
    ("count", 30000, 0.3, 1e-06, Dyadic(124020603235488384, 64)),
    ("hist", 300, 0.3, 0.001, Dyadic(3451086152767065088, 64)),
    ("hist", 2000, 0.05, 1e-06, Dyadic(7278973142850571264, 64)),
    ("hist", 30000, 0.3, 0.001, Dyadic(71215782201389264, 64)),
    ("hist", 1000000, 0.3, 1e-06, Dyadic(7279501021693117, 64)),
    ("hist", 1000000, 5.0, 1e-12, Dyadic(566243393813694, 64)),
    ("sum5", 300, 0.05, 1e-06, Dyadic(8716411575247605760, 64)),
    ("sum5", 300, 0.05, 0.001, Dyadic(8061461967314337792, 64)),
    ("sum5", 2000, 0.3, 1e-06, Dyadic(3679164759847453696, 64)),
    ("sum5", 2000, 0.3, 0.001, Dyadic(1751532611233968128, 64)),
    ("sum5", 2000, 1.0, 0.001, Dyadic(330589137141286336, 64)),
    ("sum5", 2000, 5.0, 1e-06, Dyadic(83219270911210112, 64)),
    ("sum5", 30000, 0.05, 1e-06, Dyadic(4779212723063589888, 64)),
    ("sum5", 30000, 0.3, 1e-12, Dyadic(1168478102633362176, 64)),
    ("sum5", 30000, 0.3, 1e-06, Dyadic(499865230920970624, 64)),
    ("sum5", 30000, 2.5, 1e-06, Dyadic(14119738092270630, 64)),
]


@pytest.mark.parametrize(("kind", "users", "epsilon", "delta", "flip"), CALIBRATED_BEFORE)
def test_documents_of_before_still_verify(kind, users, epsilon, delta, flip):
    """Flip probabilities of the previous accountants, which were close to the least ones."""
    curves = {
        "hist": lambda: FlippedHistogram(users, flip),
        "count": lambda: FlippedSum(users, flip, 1),
        "sum5": lambda: FlippedSum(users, flip, 5),
    }
    assert curves[kind]().delta_at(epsilon) <= delta


@pytest.mark.parametrize(
    ("users", "domain_size", "buckets", "whole", "epsilon", "delta"),
    [(10**5, 10**6, 2344, 1, 1.0, 1e-6), (10**6, 10**9, 23_444, 1, 1.0, 1e-6), (10**6, 10**6, 378, 1, 0.1, 1e-6),
     (10**4, 10**4, 37, 10, 0.1, 1e-6)],
)  # fmt: skip
def test_hashed_documents_of_before_still_verify(users, domain_size, buckets, whole, epsilon, delta):
    collision = AffineHashes.for_domain(domain_size, buckets).collision
    assert Slots(whole, Dyadic(0)).hashed_curve(users, buckets, collision).delta_at(epsilon) <= delta
