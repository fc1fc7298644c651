"""Small shuffled histograms with much noise, for the conformance kit."""

from fractions import Fraction

from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.histogram.fake_users import FakeUsersHistogram
from shuffledp.protocols.histogram.hadamard_blanket import HadamardBlanketHistogram
from shuffledp.protocols.histogram.hashed_blanket import HashedBlanketHistogram
from shuffledp.protocols.histogram.shuffled_k_rr import ShuffledKRandomizedResponse
from shuffledp.protocols.histogram.solh import ShuffledLocalHashing
from shuffledp.protocols.histogram.uniform_blanket import UniformBlanketHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def slots(mean: float) -> Slots:
    whole = int(mean)
    return Slots(whole, Dyadic.at_least(Fraction(mean) - whole))


def instances() -> dict[str, object]:
    two, three, four = (Target(users, 0.5, 0.9) for users in (2, 3, 4))
    return {
        "histogram/shuffled-k-rr": ShuffledKRandomizedResponse(three, Dyadic.at_least(0.5), 3),
        "histogram/shuffled-k-rr of two": ShuffledKRandomizedResponse(four, Dyadic.at_least(0.3), 2),
        "histogram/shuffled-k-rr with a liar": ShuffledKRandomizedResponse(
            Target(4, 0.5, 0.95, honest_fraction=0.5), Dyadic.at_least(0.4), 2
        ),
        "histogram/solh": ShuffledLocalHashing(two, Dyadic.at_least(0.25), 2, 2),
        "histogram/solh of three": ShuffledLocalHashing(three, Dyadic.at_least(0.6), 2, 3),
        "histogram/uniform-blanket": UniformBlanketHistogram(three, slots(1.5), 2),
        "histogram/uniform-blanket of three": UniformBlanketHistogram(two, slots(2.25), 3),
        "histogram/uniform-blanket with few messages": UniformBlanketHistogram(four, slots(0.75), 2),
        "histogram/uniform-blanket of one": UniformBlanketHistogram(two, slots(0.5), 1),
        "histogram/hashed-blanket": HashedBlanketHistogram(two, slots(0.75), 2, 2),
        "histogram/hashed-blanket of three": HashedBlanketHistogram(two, slots(1.0), 2, 3),
        "histogram/hadamard-blanket": HadamardBlanketHistogram(two, slots(0.75), 2, 2),
        "histogram/hadamard-blanket of one vector": HadamardBlanketHistogram(three, slots(1.5), 1, 3),
        "histogram/fake-users": FakeUsersHistogram(three, Dyadic.at_least(0.25), 1, 2),
        "histogram/fake-users with two fakes": FakeUsersHistogram(two, Dyadic.at_least(0.3), 2, 2),
        "histogram/fake-users of one": FakeUsersHistogram(two, Dyadic(0), 1, 1),
    }
