"""Correlated noise with carriers: the guarantee by enumeration, errors by simulation, documents, bad parameters.

The enumeration does not use the library: shares from their formulas, roles one by one, divergences as sums.
"""

import copy
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError, ShuffledpError
from shuffledp.privacy.carriers import CarrierCurve, CarrierRoles, shortage
from shuffledp.privacy.clusters import ClusterCurve, PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs
from shuffledp.protocols.count.correlated_noise import CorrelatedNoiseCount
from shuffledp.protocols.histogram.correlated_noise import CorrelatedNoiseHistogram
from shuffledp.protocols.parts.correlated import NoiseOfCarriers
from shuffledp.protocols.parts.noise_shares import NoiseShares
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

ALPHA = 1e-6
LENGTH = 24
"""Messages of one sign per bin that are enumerated; the mass beyond is added to the divergence."""
CLUSTERS = ((1, 1, 3), (2, 2, 1))
EPSILONS = (0.0, 0.3, 1.0, 2.5)


def share_table(ratio, rate, sharers):
    """Pr[u "+1" and v "-1"] of one carrier's share in one bin."""
    shape = 1 / sharers
    single = [
        (1 - ratio) ** shape * ratio**k * math.prod((shape + i) / (i + 1) for i in range(k)) for k in range(LENGTH)
    ]
    pairs = np.zeros(LENGTH)
    total = sum((last - first + 1) * weight for first, last, weight in CLUSTERS)
    for count in range(LENGTH):  # how many clusters, then which sizes
        sizes = np.zeros(LENGTH)
        sizes[0] = 1.0
        for _ in range(count):
            longer = np.zeros(LENGTH)
            for first, last, weight in CLUSTERS:
                for size in range(first, last + 1):
                    longer[size:] += sizes[: LENGTH - size] * weight / total
            sizes = longer
        mean = rate / sharers
        pairs += sizes * math.exp(-mean) * mean**count / math.factorial(count)
    table = np.zeros((LENGTH, LENGTH))
    for both, plus, minus in itertools.product(range(LENGTH), repeat=3):
        if both + plus < LENGTH and both + minus < LENGTH:
            table[both + plus, both + minus] += pairs[both] * single[plus] * single[minus]
    return table


def together(one, other):
    """The sum of two independent pairs of numbers."""
    found = np.zeros((LENGTH, LENGTH))
    for u, v in itertools.product(range(LENGTH), repeat=2):
        found[u:, v:] += one[u, v] * other[: LENGTH - u, : LENGTH - v]
    return found


def moved(table, plus, minus):
    found = np.zeros((LENGTH + 1, LENGTH + 1))
    found[plus : LENGTH + plus, minus : LENGTH + minus] = table
    return found


def divergence(p, q, epsilon):
    """The hockey-stick divergence, with the mass that was cut off."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) + max(0.0, 1.0 - float(p.sum()))


def exact_delta(question, honest, probability, ratio, rate, sharers, epsilon):
    """The least delta against someone who sees the roles and all messages; others' own messages are constants."""
    share, total = share_table(ratio, rate, sharers), 0.0
    for roles in itertools.product((False, True), repeat=honest):
        weight = math.prod(probability if role else 1 - probability for role in roles)
        noise = np.zeros((LENGTH, LENGTH))
        noise[0, 0] = 1.0
        for _ in range(sum(roles)):
            noise = together(noise, share)
        if question == "count":
            worst = divergence(moved(noise, 1, 0), moved(noise, 0, 1), epsilon)
        else:  # a "+1" moves from one category to another
            with_message, without = moved(noise, 1, 0).ravel(), moved(noise, 0, 0).ravel()
            first, second = np.outer(with_message, without), np.outer(without, with_message)
            worst = divergence(first, second, epsilon)
        total += weight * worst
    return total


def claimed(question, users, honest, probability, ratio, rate, sharers):
    """The privacy curve that a protocol with these parameters claims."""
    flood, roles = PairClusters(Fraction(rate), CLUSTERS), CarrierRoles(Dyadic.of(probability), sharers)
    target = Target(users, 1.0, 0.9999, honest / users)
    kind = CorrelatedNoiseCount if question == "count" else CorrelatedNoiseHistogram
    domain = {} if question == "count" else {"domain_size": 2}
    return kind(target, Dyadic.of(ratio), flood, carriers=roles, **domain).guarantee.curve


@pytest.mark.parametrize(
    ("question", "users", "honest", "probability", "sharers"),
    [
        ("count", 2, 2, 0.75, 1),
        ("count", 3, 3, 0.5, 2),
        ("count", 4, 3, 0.875, 3),
        ("histogram", 2, 2, 0.9375, 2),
        ("histogram", 4, 2, 0.625, 1),
    ],
)
def test_the_guarantee_by_enumeration(question, users, honest, probability, sharers):
    ratio, rate = 0.375, 1.5
    curve = claimed(question, users, honest, probability, ratio, rate, sharers)
    fewer = sum(math.comb(honest, k) * probability**k * (1 - probability) ** (honest - k) for k in range(sharers))
    for epsilon in EPSILONS:
        exact = exact_delta(question, honest, probability, ratio, rate, sharers, epsilon)
        assert exact <= curve.delta_at(epsilon) + 1e-9
        alone = exact_delta(question, sharers, 1.0, ratio, rate, sharers, epsilon)  # all planned carriers, no coin
        assert curve.delta_at(epsilon) == pytest.approx(min(1.0, alone + fewer), rel=1e-4)


def test_a_claim_without_the_shortage_would_be_wrong():
    """The planted fault: the noise of the planned carriers is accounted for as if there were always as many."""
    ratio, rate, probability = 0.625, 4, 0.875
    curve = claimed("count", 3, 3, probability, ratio, rate, 3)
    assert isinstance(curve, CarrierCurve)
    exact = exact_delta("count", 3, probability, ratio, rate, 3, 2.5)
    assert curve.curve.delta_at(2.5) < 0.9 * exact < exact <= curve.delta_at(2.5)


@pytest.mark.parametrize("question", ["count", "histogram"])
def test_measured_and_predicted_errors_agree(question):
    """Given the number of carriers, and over all numbers: variances of 4,000 estimates, level 1e-6 by Chebyshev."""
    domain = {} if question == "count" else {"domain_size": 2}
    protocol = sdp.find(question, "correlated-noise").calibrate(
        users=600, epsilon=1.0, delta=1e-4, carriers=0.25, **domain
    )
    counts, rounds = np.array([400, 200]), 4000
    estimator = "unbiased"
    analysis, truth = protocol.analysis(600), counts[1] if question == "count" else counts[0]
    observed = np.array([protocol.observed(protocol.sample_tally(counts))[0] for _ in range(rounds)])
    squares = (analysis.estimate(observed, estimator) - truth) ** 2
    predicted = protocol.expected_error(estimator=estimator).rmse ** 2
    spread = np.std(squares) / math.sqrt(rounds)
    assert abs(np.mean(squares) - predicted) < 6 * spread
    assert abs(np.mean(squares) - 1.3 * predicted) > 6 * spread  # 30 % more noise would be noticed
    few, many = protocol.given_carriers(100), protocol.given_carriers(200)
    assert many.expected_error().rmse == pytest.approx(math.sqrt(2) * few.expected_error().rmse)
    assert few.given_carriers(150).expected_error().rmse == pytest.approx(predicted**0.5, rel=1e-9) or domain
    assert protocol.expected_error().max_error >= protocol.given_carriers(150).expected_error().max_error


def test_tails_of_an_unknown_number_of_carriers():
    """At least those of the mixture, which is summed over all numbers of carriers."""
    shares = NoiseShares(Dyadic.of(0.625), PairClusters.uniform(2, 3, Fraction(4)), 5)
    noise = NoiseOfCarriers(shares, Dyadic.of(0.25), 30)
    masses = [math.comb(30, k) * 0.25**k * 0.75 ** (30 - k) for k in range(31)]
    for k in (1, 3, 8, 20, 45):
        mixture = sum(mass * float(shares.remaining(m).upper_tail(k)) for m, mass in enumerate(masses) if m)
        assert mixture <= noise.upper_tail(k) == noise.lower_tail(-k)
    variance = sum(mass * shares.remaining(m).variance for m, mass in enumerate(masses) if m)
    assert noise.variance == pytest.approx(variance, rel=1e-12)


def test_documents_have_version_3_and_others_are_unchanged():
    protocol = sdp.find("histogram", "correlated-noise").calibrate(
        users=3000, epsilon=1.0, delta=1e-5, domain_size=4, carriers=0.2
    )
    document = json.loads(json.dumps(sdp.to_document(protocol)))
    assert document["version"] == 3
    assert sdp.from_document(document) == protocol
    assert {"carrier_probability", "honest_carriers"} <= set(document["parameters"])
    assert protocol.parameters()["honest_carriers"] == protocol.carriers.honest_carriers
    plain = sdp.find("histogram", "correlated-noise").calibrate(users=3000, epsilon=1.0, delta=1e-5, domain_size=4)
    older = sdp.to_document(plain)
    assert older["version"] == 2
    assert not {"carriers", "carrier_probability", "honest_carriers"} & set(older["parameters"])
    for version in (1, 2, 4, 3.5):
        with pytest.raises(ParameterError, match="version"):
            sdp.from_document(document | {"version": version})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("carrier_probability", {"numerator": 0, "bits": 4}),
        ("carrier_probability", {"numerator": 16, "bits": 4}),
        ("carrier_probability", {"numerator": 1, "bits": 128}),
        ("carrier_probability", {"numerator": 1, "bits": 129}),
        ("carrier_probability", "nan"),
        ("carrier_probability", None),
        ("honest_carriers", 0),
        ("honest_carriers", -1),
        ("honest_carriers", 3001),
        ("honest_carriers", 1 << 100),
        ("honest_carriers", 700.5),
        ("honest_carriers", True),
        ("honest_carriers", None),
        ("carriers", None),
        ("singles", "1/2"),
    ],
)
def test_hostile_parameters_are_refused_in_one_line(name, value):
    """Also those that could be read: their guarantee does not hold."""
    protocol = sdp.find("histogram", "correlated-noise").calibrate(
        users=3000, epsilon=1.0, delta=1e-5, domain_size=4, carriers=0.2
    )
    document = copy.deepcopy(sdp.to_document(protocol))
    document["parameters"][name] = value
    with pytest.raises(ShuffledpError) as caught:
        _ = sdp.from_document(document).guarantee
    assert "\n" not in str(caught.value)
    if name == "carriers":
        return
    with pytest.raises(ShuffledpError):
        sdp.from_document({**document, "parameters": {k: v for k, v in document["parameters"].items() if k != name}})


def test_refusals():
    count, histogram = sdp.find("count", "correlated-noise"), sdp.find("histogram", "correlated-noise")
    settings = {"users": 500, "epsilon": 1.0, "delta": 1e-5}
    for probability in (0.0, 1.0, -0.1, math.nan, 2.0):
        with pytest.raises(ParameterError, match="carrier"):
            count.calibrate(**settings, carriers=probability)
    with pytest.raises(InfeasibleError, match="no carrier at all"):
        count.calibrate(**settings, carriers=1e-3)
    with pytest.raises(ParameterError, match="signed"):
        count.calibrate(**settings, carriers=0.5, encoding="unary")
    with pytest.raises(ParameterError, match="without singles"):
        histogram.calibrate(**settings, domain_size=3, carriers=0.5, weighted=True, split=0.655)
    with pytest.raises(ParameterError, match="clusters"):
        count.calibrate(**settings, carriers=0.5, calibration="paper")
    with pytest.raises(ParameterError, match="clusters"):
        CorrelatedNoiseCount(
            Target(9, 1.0, 0.5), Dyadic(1, 1), NegativeBinomialPairs(Fraction(1), Dyadic(1, 1)),
            carriers=CarrierRoles(Dyadic(1, 1), 3),
        )  # fmt: skip
    plain = count.calibrate(**settings)
    with pytest.raises(ParameterError, match="has no carriers"):
        plain.given_carriers(3)
    with pytest.raises(ParameterError, match="has no carriers"):
        plain.randomize_in_role(1, carrier=True)
    with pytest.raises(ParameterError, match="at least one carrier"):
        count.calibrate(**settings, carriers=0.5).given_carriers(0)
    with pytest.raises(ParameterError, match="not a probability"):
        CarrierCurve(ClusterCurve(Dyadic(1, 1), PairClusters.uniform(1, 1, Fraction(1)), "signed"), math.nan)


def test_roles_do_not_depend_on_values_and_others_send_one_message():
    protocol = sdp.find("histogram", "correlated-noise").calibrate(
        users=500, epsilon=1.0, delta=1e-4, domain_size=3, carriers=0.25
    )
    for value in range(3):
        assert protocol.randomize_in_role(value, carrier=False).tolist() == [[value, 0]]
    assert protocol.min_messages_per_user == 1
    assert shortage(500, Dyadic.of(0.25), protocol.carriers.honest_carriers) <= 1e-7
    assert protocol.guarantee.delta_at(1.0) <= 1e-4
    assert "carriers" in protocol.guarantee.theorem
