"""Small trees over bins with much noise, for the conformance kit."""

from fractions import Fraction

from shuffledp.domain import Bins
from shuffledp.privacy.amplification import Slots
from shuffledp.privacy.quantile_trees import correlated_tree_curve
from shuffledp.protocols.quantiles.correlated_noise import CorrelatedNoiseQuantiles
from shuffledp.protocols.quantiles.discrete_laplace import DiscreteLaplaceQuantiles
from shuffledp.protocols.quantiles.uniform_blanket import UniformBlanketQuantiles
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def slots(mean: float) -> Slots:
    whole = int(mean)
    return Slots(whole, Dyadic.at_least(Fraction(mean) - whole))


def correlated_noise(bins: int, branching: tuple[int, ...], ratio: Dyadic, flood: Dyadic) -> CorrelatedNoiseQuantiles:
    """A claim of just what the noise gives."""
    noise = ratio, Fraction(1), flood
    delta = correlated_tree_curve(*noise, len(branching)).delta_at(1.0)
    return CorrelatedNoiseQuantiles(Target(2, 1.0, delta), Bins(0.0, 3.0, bins), branching, *noise)


def instances() -> dict[str, object]:
    two, three = (Target(users, 0.5, 0.95) for users in (2, 3))
    return {
        "quantiles/uniform-blanket": UniformBlanketQuantiles(
            two, Bins(0.0, 1.0, 3), (2, 2), (slots(0.75), slots(0.75))
        ),
        "quantiles/uniform-blanket of one level": UniformBlanketQuantiles(
            three, Bins(0.0, 1.0, 2), (2,), (slots(1.5),)
        ),
        "quantiles/correlated-noise": correlated_noise(2, (2,), Dyadic(1, 6), Dyadic(1, 6)),
        "quantiles/correlated-noise of two levels": correlated_noise(3, (2, 2), Dyadic(1, 11), Dyadic(1, 11)),
        "quantiles/discrete-laplace": DiscreteLaplaceQuantiles(
            Target(3, 4.0, 0.5), Bins(0.0, 4.0, 2), (2,), Dyadic.at_least(0.3)
        ),
        "quantiles/discrete-laplace of two levels": DiscreteLaplaceQuantiles(
            Target(2, 28.0, 0.5), Bins(0.0, 4.0, 3), (2, 2), Dyadic(1, 10)
        ),
    }
