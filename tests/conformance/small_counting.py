"""Small instances of every protocol for counts."""

from fractions import Fraction

from shuffledp import BalcerCheuCount
from shuffledp.privacy.carriers import CarrierRoles, shortage
from shuffledp.privacy.cheu import FlippedCount
from shuffledp.privacy.clusters import ClusterCurve, PairClusters
from shuffledp.privacy.correlated_noise import CorrelatedNoiseCurve, NegativeBinomialPairs
from shuffledp.privacy.pure_sum import PureSum, falling_weights
from shuffledp.privacy.shuffler_noise import ShufflerLaplaceCurve
from shuffledp.protocols.count.cheu import CheuCount
from shuffledp.protocols.count.correlated_noise import CorrelatedNoiseCount
from shuffledp.protocols.count.discrete_laplace import DiscreteLaplaceCount
from shuffledp.protocols.count.pure_sum import PureSumCount
from shuffledp.protocols.count.randomized_response import RandomizedResponse
from shuffledp.protocols.count.shuffler_laplace import ShufflerLaplaceCount
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic


def correlated(encoding: str, users: int, honest: int) -> CorrelatedNoiseCount:
    ratio, shape, flood = Dyadic.at_least(0.25), Fraction(2), Dyadic.at_least(0.25)
    curve = CorrelatedNoiseCurve(ratio, shape, flood, "signed" if encoding == "signed" else "count")
    terms = Target(users, 1.0, 1.0001 * curve.delta_at(1.0), honest / users)
    return CorrelatedNoiseCount(terms, ratio, NegativeBinomialPairs(shape, flood), encoding)


def clustered(encoding: str, users: int) -> CorrelatedNoiseCount:
    ratio, flood = Dyadic.at_least(0.25), PairClusters(Fraction(1), ((1, 1, 1), (2, 3, 2)))
    curve = ClusterCurve(ratio, flood, "signed" if encoding == "signed" else "count")
    return CorrelatedNoiseCount(Target(users, 1.0, 1.0001 * curve.delta_at(1.0)), ratio, flood, encoding)


def carried(users: int, honest: int) -> CorrelatedNoiseCount:
    ratio, flood = Dyadic.at_least(0.25), PairClusters(Fraction(1, 2), ((1, 1, 1), (2, 2, 2)))
    roles = CarrierRoles(Dyadic(3, 2), 2)
    delta = ClusterCurve(ratio, flood, "signed").delta_at(1.0) + shortage(honest, roles.carrier_probability, 2)
    return CorrelatedNoiseCount(Target(users, 1.0, 1.0001 * delta, honest / users), ratio, flood, carriers=roles)


def shuffler_laplace(users: int, ratio: float, shift: int) -> ShufflerLaplaceCount:
    curve = ShufflerLaplaceCurve(Dyadic.of(ratio), shift, coordinates=1)
    return ShufflerLaplaceCount(Target(users, 0.5, curve.delta_at(0.5)), curve.ratio, shift)


def instances() -> dict[str, object]:
    flip, mix, weights = Dyadic.at_least(0.2), Dyadic.at_least(0.4), falling_weights(3, 0.5)
    return {
        "count/balcer-cheu": BalcerCheuCount.with_noise(users=3, absence=0.3, delta=0.5),
        "count/cheu": CheuCount(Target(3, 0.5, 1.0001 * FlippedCount(3, flip).delta_at(0.5)), flip),
        "count/pure-sum": PureSumCount(
            Target(3, PureSum(3, weights, mix).certified_epsilon, 0.0), weights, mix, certified_users=3
        ),
        "count/correlated-noise": correlated("signed", 2, 2),
        "count/correlated-noise with more than its shares": correlated("signed", 3, 2),
        "count/correlated-noise in clusters": clustered("signed", 2),
        "count/correlated-noise with carriers": carried(3, 3),
        "count/correlated-noise with carriers and more than its shares": carried(4, 3),
        "count/randomized-response": RandomizedResponse.calibrate(users=3, epsilon=1, delta=1e-6),
        "count/shuffler-laplace": shuffler_laplace(3, 0.4, 3),
        "count/discrete-laplace": DiscreteLaplaceCount.calibrate(users=3, epsilon=1, delta=1e-6),
    }
