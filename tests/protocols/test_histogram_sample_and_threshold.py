"""Sample and threshold: dishonest users, thresholds, exact errors of given counts, intervals, bad input."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.messages import MessageFormat, Tally
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic
from shuffledp.testing import ConformanceError, check_protocol
from shuffledp.testing.audit.experiment import neighbouring_pairs

SETTINGS = {"users": 20_000, "domain_size": 8, "epsilon": 1.0, "delta": 1e-6}
COUNTS = np.array([0, 20, 60, 80, 100, 140, 600, 19_000])


def tenth(**changes):
    return SampleAndThresholdHistogram.calibrate(**SETTINGS | {"sampling": 0.125} | changes)


@pytest.mark.parametrize(("sampling", "largest"), [(0.05, 8), (0.1, 11), (0.2, 19), (0.3, 35), (0.5, 210)])
def test_thresholds_are_at_most_those_of_the_specification(sampling, largest):
    """There they come from the bound for adding and removing a user; the divergence of both at once is smaller."""
    protocol = tenth(sampling=sampling, delta=1e-8)
    assert 0.2 * largest < protocol.threshold <= largest
    assert protocol.guarantee.delta_at(1.0) <= 1e-8


def test_users_send_their_value_without_a_coin():
    protocol = SampleAndThresholdHistogram(Target(5, 5.0, 0.9), Dyadic(1, 2), 2, 2)
    assert protocol.report_pmf(1) == {(0, 1): 1}
    messages = protocol.randomize_all(np.array([0, 1, 1, 0]))
    assert messages.values.tolist() == [0, 1, 1, 0]
    assert messages.offsets.tolist() == list(range(5))
    assert protocol.cost.messages_per_user == protocol.cost.max_messages_per_user == 1
    assert protocol.cost.bits_per_message == 1


def test_whoever_counts_samples_and_removes_small_counts():
    protocol = SampleAndThresholdHistogram(Target(5, 5.0, 0.9), Dyadic(1, 2), 3, 3)
    assert protocol.trusts_shuffler
    assert "the shuffler must sample the messages and remove small counts" in protocol.guarantee.theorem
    quarter = Fraction(1, 4)
    assert protocol.release_pmf(Tally(np.array([2, 4, 0]), 6)) == {
        (0, 0, 0): 1 - 4 * quarter**3 * (1 - quarter) - quarter**4,
        (0, 3, 0): 4 * quarter**3 * (1 - quarter),
        (0, 4, 0): quarter**4,
    }
    released = Tally(np.array([0, 3, 0]), 5, released=True)
    assert protocol.estimate(released).counts.tolist() == [0.0, 12.0, 0.0]
    with pytest.raises(ParameterError, match="already released"):
        protocol.release(released)
    with pytest.raises(ParameterError, match="release it first"):
        protocol.estimate(Tally(np.array([2, 3, 0]), 5))
    with pytest.raises(ParameterError, match="too many outcomes"):
        tenth().release_pmf(Tally(COUNTS, int(COUNTS.sum())))


# --- dishonest users ------------------------------------------------------------------------------------


def shown_masses(count, sampling, threshold):
    """The exact distribution of what is shown of a category that so many sent; 0 stands for withheld."""
    masses = [Fraction(0)] * (count + 1)
    for kept in range(count + 1):
        mass = math.comb(count, kept) * sampling**kept * (1 - sampling) ** (count - kept)
        masses[kept if kept >= threshold else 0] += mass
    return masses


def exact_delta(first, second, epsilon):
    """The divergence of two distributions given as dictionaries, in fractions."""
    growth = Fraction(math.exp(epsilon))
    return sum((max(mass - growth * second.get(seen, 0), Fraction(0)) for seen, mass in first.items()), Fraction(0))


def delta_if_users_sample(sampling, threshold, dishonest, epsilon):
    """What is proved wrong if users toss the coins: some number of dishonest ones send category 0 for certain.

    The target holds category 0 or another. Without other holders, it is shown with the target's coin if threshold - 1
    dishonest users sent it, and never without the target.
    """
    worst = Fraction(0)
    for sent in range(dishonest + 1):
        if sent >= threshold:
            with_target = {sent: 1 - sampling, sent + 1: sampling}
            without = {sent: Fraction(1)}
        else:
            shown = sampling if sent == threshold - 1 else Fraction(0)
            with_target = {0: 1 - shown, threshold: shown}
            without = {0: Fraction(1)}
        worst = max(worst, exact_delta(with_target, without, epsilon))
    return float(worst)


@pytest.mark.parametrize(
    ("settings", "dishonest", "sampling", "threshold", "claimed"),
    [
        ({"users": 1000, "epsilon": 1.0, "delta": 1e-6, "honest_fraction": 0.93}, 70, 0.569, 49, 8.7e-7),
        ({"users": 100_000, "epsilon": 0.33, "delta": 3e-7, "honest_fraction": 0.5}, 50_000, 0.253, None, 2.6e-7),
    ],
)
def test_coins_of_users_would_give_no_guarantee(settings, dishonest, sampling, threshold, claimed):
    """The numbers that were claimed, and the truth, had users tossed the coins themselves."""
    protocol = SampleAndThresholdHistogram.calibrate(domain_size=10, **settings)
    assert float(protocol.sampling) == pytest.approx(sampling, abs=5e-4)
    assert threshold is None or protocol.threshold == threshold
    assert protocol.guarantee.delta_at(settings["epsilon"]) == pytest.approx(claimed, rel=0.02)
    near = min(dishonest, protocol.threshold + 1)  # more may stay away
    truth = delta_if_users_sample(protocol.sampling.fraction, protocol.threshold, near, settings["epsilon"])
    assert truth == pytest.approx(sampling, abs=5e-4)


def test_the_attack_finds_nothing_if_the_counting_party_samples():
    """48 dishonest users send category 0, as in the attack on users' coins, which showed it in 1127 of 2000 rounds.

    Here the category is shown with probability ps^49 < 1e-11 if the target holds it, so 2000 rounds show it with a
    probability below 1e-7.
    """
    protocol = SampleAndThresholdHistogram.calibrate(
        users=1000, epsilon=1.0, delta=1e-6, domain_size=10, honest_fraction=0.93
    )
    assert protocol.threshold == 49
    with_target = np.array([49, 0, 951, *[0] * 7])
    assert not any(protocol.sample_tally(with_target).counts[0] for _ in range(2000))
    shown = float(sum(shown_masses(49, protocol.sampling.fraction, 49)[1:]))
    assert shown < 1e-11
    # every number of dishonest users in either of the two changed categories, exactly
    masses = [np.array(shown_masses(count, protocol.sampling.fraction, 49), dtype=float) for count in range(72)]
    padded = [np.append(each, np.zeros(72 - len(each))) for each in masses]
    worst = 0.0
    for first, second in product(range(71), repeat=2):
        if first + second <= 70:
            one = np.outer(padded[first + 1], padded[second])
            other = np.outer(padded[first], padded[second + 1])
            worst = max(worst, float(np.maximum(one - math.e * other, 0.0).sum()))
    assert 1e-12 < worst <= protocol.guarantee.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize(("users", "domain_size"), [(5, 2), (4, 3)])
@pytest.mark.parametrize(("sampling", "threshold"), [(Dyadic(1, 2), 2), (Dyadic(1, 1), 3), (Dyadic(7, 3), 2)])
def test_the_guarantee_holds_for_all_data_of_dishonest_users(users, domain_size, sampling, threshold):
    """Exactly, with one honest user: the others send whatever they like."""
    curve = SampleAndThreshold(sampling, threshold)
    terms = Target(users, 1.0, min(0.999, curve.delta_at(1.0)), honest_fraction=2 / users)
    protocol = SampleAndThresholdHistogram(terms, sampling, threshold, domain_size)
    assert protocol.guarantee.honest_users == 1
    claims = {epsilon: protocol.guarantee.delta_at(epsilon) for epsilon in (0.0, 0.2, 0.7, 1.0, 2.5)}
    for sent in combinations_with_replacement(range(domain_size), users - 1):
        released = []
        for target in range(domain_size):
            counts = np.bincount([target, *sent], minlength=domain_size)
            released.append(protocol.release_pmf(Tally(counts, users)))
        assert all(sum(each.values()) == 1 for each in released)
        for first, second in product(released, repeat=2):
            for epsilon, claimed in claims.items():
                assert float(exact_delta(first, second, epsilon)) <= claimed


class CoinsOfUsers(SampleAndThresholdHistogram):
    """The planted fault: users send a dummy unless their own coin says otherwise; honest ones are counted on."""

    @property
    def guarantee(self):
        return replace(super().guarantee, honest_users=self.target.honest_users)

    @property
    def message_format(self):
        return MessageFormat((self.domain_size + 1,))

    def report_pmf(self, value):
        taken = self.sampling.fraction
        return {
            tuple(int(place == sent) for place in range(self.domain_size + 1)): share
            for sent, share in ((value, taken), (self.domain_size, 1 - taken))
        }

    def tally(self, messages):
        counted = super().tally(messages)
        return Tally(counted.counts[:-1], counted.users, counted.secure)

    def release(self, tally, **_):
        return Tally(np.where(tally.counts >= self.threshold, tally.counts, 0), tally.users, released=True)

    def release_pmf(self, tally):
        return {tuple(self.release(tally).counts.tolist()): Fraction(1)}


@pytest.mark.parametrize("kind", [SampleAndThresholdHistogram, CoinsOfUsers])
@pytest.mark.parametrize("honest_fraction", [1.0, 0.5])
def test_the_conformance_kit_catches_coins_of_users(kind, honest_fraction):
    """It lets dishonest users send anything, so that only users' coins among dishonest users fail."""
    curve = SampleAndThreshold(Dyadic(1, 2), 3)
    protocol = kind(Target(4, 1.0, curve.delta_at(1.0), honest_fraction), Dyadic(1, 2), 3, 2)
    only = ["the guarantee holds exactly"]
    if kind is SampleAndThresholdHistogram or honest_fraction == 1:
        assert check_protocol(protocol, only=only)[0].passed
    else:
        with pytest.raises(ConformanceError, match=r"delta 0\.25"):
            check_protocol(protocol, only=only)


def test_an_audit_counts_dishonest_users_as_data():
    protocol = tenth(honest_fraction=0.5)
    assert protocol.guarantee.honest_users == 1
    assert {len(pair.first) for pair in neighbouring_pairs(protocol, None)} == {20_000}
    assert "which sees every value" in protocol.guarantee.sentence()


def test_errors_of_given_counts_are_predicted():
    """Counts about the threshold's, where withholding matters most; six deviations of the mean square."""
    protocol = tenth()
    errors = np.array([protocol.estimate(protocol.sample_tally(COUNTS)).counts - COUNTS for _ in range(1500)])
    squares = np.mean(errors**2, axis=1)
    predicted = protocol.expected_error(counts=COUNTS).rmse ** 2
    assert abs(squares.mean() - predicted) < 6 * squares.std() / np.sqrt(len(errors))
    assert np.mean(np.abs(errors).max(axis=1) > protocol.expected_error().max_error) < 0.05


def test_intervals_hold_for_what_is_withheld_too():
    protocol = tenth()
    held = []
    for _ in range(150):
        low, high = protocol.estimate(protocol.sample_tally(COUNTS)).interval(0.9).T
        held.append((low <= COUNTS) & (high >= COUNTS))
    assert np.mean(held, axis=0).min() > 0.8


def test_both_routes_agree():
    """By messages and by counts; five deviations of a mean over 400 rounds."""
    protocol = tenth()
    indices = np.repeat(np.arange(8), COUNTS)
    by_messages = np.array([protocol.run(indices, route="messages").counts[-2:] for _ in range(400)])
    deviation = np.sqrt(COUNTS[-2:] * 7 / 400)
    assert np.all(np.abs(by_messages.mean(axis=0) - COUNTS[-2:]) < 5 * deviation)


def test_the_sampling_is_chosen_for_a_typical_count():
    best = SampleAndThresholdHistogram.calibrate(**SETTINGS)
    typical = np.full(8, 2500)
    assert best.expected_error(counts=typical).rmse <= 1.05 * tenth().expected_error(counts=typical).rmse
    large = SampleAndThresholdHistogram.calibrate(**SETTINGS | {"domain_size": 10**7})
    assert large.expected_error().rmse > 5
    paper = SampleAndThresholdHistogram.calibrate(**SETTINGS, calibration="paper")
    assert paper.threshold == 17
    assert paper.guarantee.delta_at(1.0) < 1e-6


def test_bad_input():
    with pytest.raises(InfeasibleError, match="1 - e"):
        tenth(sampling=0.7)
    protocol = SampleAndThresholdHistogram(Target(5, 5.0, 0.9), Dyadic(1, 2), 3, 3)
    with pytest.raises(ParameterError, match="cannot come from"):
        protocol.estimate(Tally(np.array([3, 3, 0]), 5, released=True))
    with pytest.raises(ParameterError, match="below the threshold"):
        protocol.estimate(Tally(np.array([2, 3, 0]), 5, released=True))
    with pytest.raises(ParameterError, match="more than the claimed"):
        SampleAndThresholdHistogram(Target(5, 0.5, 1e-6), Dyadic(1, 2), 3, 3).guarantee  # noqa: B018
    assert tenth(users=2, domain_size=1).run([0, 0]).counts.tolist() == [2.0]  # public
