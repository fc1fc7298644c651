"""Tiny histograms for the conformance kit: flipped bits, correlated noise, thresholds, central noise, sketches."""

from fractions import Fraction

from shuffledp.privacy.carriers import CarrierCurve, CarrierRoles, shortage
from shuffledp.privacy.cheu import FlippedHistogram
from shuffledp.privacy.clusters import ClusterCurve, PairClusters
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve, NegativeBinomialPairs
from shuffledp.privacy.count_min import SketchRows
from shuffledp.privacy.discrete_laplace import DiscreteLaplaceCurve
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.privacy.shuffler_noise import SampledGeometric, ShufflerLaplaceCurve
from shuffledp.privacy.stability import StabilityCurve
from shuffledp.protocols.histogram.cheu import CheuHistogram
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.histogram.count_min import CountMinHistogram
from shuffledp.protocols.histogram.discrete_laplace import DiscreteLaplaceHistogram
from shuffledp.protocols.histogram.sample_and_threshold import SampleAndThresholdHistogram
from shuffledp.protocols.histogram.shuffler_geometric import ShufflerGeometricHistogram
from shuffledp.protocols.histogram.shuffler_laplace import ShufflerLaplaceHistogram
from shuffledp.protocols.histogram.stability import StabilityHistogram
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def terms_of(curve, users, *, epsilon=1.0, honest_fraction=1.0):
    """Target that claim just what the distribution gives at this epsilon."""
    return Target(users, epsilon, min(curve.delta_at(epsilon), 0.999), honest_fraction)


def cheu(users, domain_size, form):
    flip = Dyadic.of(0.3)
    return CheuHistogram(terms_of(FlippedHistogram(users, flip), users), flip, domain_size, form=form)


def correlated_noise(users, ratio, *, honest_fraction=1.0):
    shape, flood_ratio = Fraction(1), Dyadic(1, 6)
    curve = CorrelatedNoiseCurve(ratio, shape, flood_ratio, "histogram")
    flood = NegativeBinomialPairs(shape, flood_ratio)
    return CorrelatedNoiseHistogram(
        terms_of(curve, users, honest_fraction=honest_fraction), ratio, flood, domain_size=2
    )


def clustered_noise(users, ratio):
    flood = PairClusters(Fraction(1, 16), ((1, 1, 2), (3, 3, 1)), Fraction(1, 16))
    return CorrelatedNoiseHistogram(terms_of(ClusterCurve(ratio, flood, "histogram"), users), ratio, flood, 2)


def carried_noise(users, ratio):
    flood, roles = PairClusters(Fraction(1, 16), ((1, 1, 1),)), CarrierRoles(Dyadic(7, 3), 1)
    curve = CarrierCurve(ClusterCurve(ratio, flood, "histogram"), shortage(users, roles.carrier_probability, 1))
    return CorrelatedNoiseHistogram(terms_of(curve, users), ratio, flood, 2, carriers=roles)


def count_min(users, domain_size, hashes):
    gamma = Dyadic.of(0.3)
    distribution = SketchRows(users, gamma, len(hashes))
    return CountMinHistogram(terms_of(distribution, users), gamma, 2, hashes, domain_size)


def sample_and_threshold(users, threshold, sampling, domain_size):
    taken = Dyadic.of(sampling)
    distribution = SampleAndThreshold(taken, threshold)
    return SampleAndThresholdHistogram(terms_of(distribution, users), taken, threshold, domain_size)


def stability(users, ratio, threshold):
    noise = Dyadic.of(ratio)
    return StabilityHistogram(terms_of(StabilityCurve(noise, threshold), users, epsilon=3.0), noise, threshold, 2)


def shuffler_laplace(users, ratio, shift):
    noise = Dyadic.of(ratio)
    curve = ShufflerLaplaceCurve(noise, shift)
    return ShufflerLaplaceHistogram(terms_of(curve, users, epsilon=curve.largest_loss), noise, shift, 2)


def shuffler_geometric(users, keep, ratio):
    curve = SampledGeometric(Dyadic.of(keep), Dyadic.of(ratio))
    return ShufflerGeometricHistogram(Target(users, curve.pure_epsilon, 0.0), curve.keep, curve.ratio, 2)


def instances():
    """The protocols by question and name."""
    noise = Dyadic.of(0.4)
    pure = DiscreteLaplaceCurve(noise, coordinates=2).pure_epsilon
    return {
        "histogram/cheu": cheu(3, 2, "ones"),
        "histogram/cheu of three": cheu(3, 3, "ones"),
        "histogram/cheu with every bit": cheu(3, 2, "bits"),
        "histogram/count-min of three rows": count_min(2, 3, ((0, 0), (1, 1), (0, 1))),
        "histogram/count-min": count_min(3, 2, ((0, 1), (1, 2))),
        "histogram/correlated-noise": correlated_noise(2, Dyadic(1, 6)),
        "histogram/correlated-noise with more than its shares": correlated_noise(
            3, Dyadic(1, 7), honest_fraction=2 / 3
        ),
        "histogram/correlated-noise in clusters": clustered_noise(2, Dyadic(1, 6)),
        "histogram/correlated-noise with carriers": carried_noise(2, Dyadic(1, 6)),
        "histogram/sample-and-threshold": sample_and_threshold(4, 2, 0.4, 2),
        "histogram/sample-and-threshold of three": sample_and_threshold(4, 3, 0.7, 3),
        "histogram/discrete-laplace": DiscreteLaplaceHistogram(Target(3, pure, 0.0), noise, 2),
        "histogram/discrete-laplace of total 0": DiscreteLaplaceHistogram(
            Target(2, pure, 0.0), noise, 3, conditioned=True
        ),
        "histogram/shuffler-laplace": shuffler_laplace(3, 0.3, 2),
        "histogram/shuffler-geometric": shuffler_geometric(3, 0.5, 0.375),
        "histogram/stability": stability(3, 0.4, 2),
        "histogram/stability with a high threshold": stability(3, 0.3, 5),
    }
