"""Small trees of strings with much noise, for the conformance kit."""

from fractions import Fraction

from shuffledp.domain import Strings
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.strings.sample_and_threshold import SampleAndThresholdStrings
from shuffledp.protocols.strings.stability import StabilityStrings
from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def slots(mean: float) -> Slots:
    whole = int(mean)
    return Slots(whole, Dyadic.at_least(Fraction(mean) - whole))


def tree(users: int, buckets: int, levels: int, mean: float, *, tail: int = 0, delta: float = 0.95, seed: int = 3):
    """Strings "", "a" and "b"."""
    target = Target(users, 0.5, delta)
    return TreeBlanketStrings(target, Strings("ab", 1), slots(mean), buckets, levels, tail, 16, seed)


def instances() -> dict[str, object]:
    return {
        "strings/tree-blanket": tree(2, 2, 2, 1.0),
        "strings/tree-blanket of three buckets": tree(2, 3, 2, 0.75, tail=1),
        "strings/stability": StabilityStrings(Target(3, 4.0, 0.9), Strings("a", 1), Dyadic.at_least(0.3), 2),
        "strings/sample-and-threshold": SampleAndThresholdStrings(
            Target(3, 1.0, 0.9), Strings("a", 1), Dyadic.at_least(0.4), 2
        ),
    }
