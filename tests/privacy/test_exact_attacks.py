"""Attacks on accountants with sums of 60 digits: ordinary, extreme and random parameters.

A claim must never lie below the exact delta over a part of the outcomes, which is a lower bound, and where that part
has nearly all mass it must be within 1 %. Every part is built from its definition, without the package.
"""

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest

from shuffledp.errors import ShuffledpError
from shuffledp.privacy.carriers import CarrierCurve, shortage
from shuffledp.privacy.clusters import ClusterCurve, PairClusters
from shuffledp.privacy.conditioned_laplace import ConditionedLaplaceCurve
from shuffledp.privacy.shuffler_noise import SampledGeometric, ShufflerLaplaceCurve
from shuffledp.randomness import Dyadic

EPSILONS = (0.0, 0.05, 0.6, 1.7, 5.0)
TINY, NEARLY_ONE = Dyadic(1, 64), Dyadic((1 << 64) - 1, 64)
DIGITS = 60


def decimal(number):
    fraction = number.fraction if isinstance(number, Dyadic) else Fraction(number)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def divergence(p, q, epsilon):
    growth = Decimal(epsilon).exp()
    return sum((max(p[outcome] - growth * q.get(outcome, 0), 0) for outcome in p), Decimal(0))


def of_two(p, q, epsilon):
    """The divergence of (p, q) from (q, p): both changed categories."""
    growth = Decimal(epsilon).exp()
    return sum(
        (
            max(p.get(a, 0) * q.get(b, 0) - growth * q.get(a, 0) * p.get(b, 0), 0)
            for a, b in product({**p, **q}, repeat=2)
        ),
        Decimal(0),
    )


def clustered(curve, reach):
    """Pr[u, v] of the noise of one category below ``reach``: a Poisson number of every cluster, geometric noise."""
    flood, a = curve.flood, decimal(curve.ratio)
    rates = {(1, 0): decimal(flood.singles)} if flood.singles else {}
    total = sum((last - first + 1) * weight for first, last, weight in flood.clusters)
    for first, last, weight in flood.clusters:
        rates |= {(k, k): decimal(flood.cluster_rate * weight / total) for k in range(first, min(last, reach) + 1)}
    beyond = decimal(flood.cluster_rate + flood.singles) - sum(rates.values())
    table = {(0, 0): (-beyond).exp()}
    for (i, j), rate in rates.items():
        masses = [(-rate).exp()]
        for n in range(1, reach):
            masses.append(masses[-1] * rate / n)
        following = {}
        for (u, v), mass in table.items():
            for n, share in enumerate(masses):
                at = u + n * i, v + n * j
                if max(at) < reach:
                    following[at] = following.get(at, 0) + mass * share
        table = following
    geometric = [(1 - a) * a**k for k in range(reach)]
    result = {}
    for (u, v), mass in table.items():
        for plus, minus in product(range(reach - u), range(reach - v)):
            at = u + plus, v + minus
            result[at] = result.get(at, 0) + mass * geometric[plus] * geometric[minus]
    return result


def exact_clusters(curve, epsilon, reach):
    base = clustered(curve, reach)
    moved = {(u + 1, v): mass for (u, v), mass in base.items() if u + 1 < reach}
    if curve.view == "histogram":
        return of_two(moved, base, epsilon)
    other = {(u, v + 1): mass for (u, v), mass in base.items() if v + 1 < reach} if curve.view == "signed" else base
    inside = {at: mass for at, mass in other.items() if at in moved or at[0] == 0}
    return max(divergence(moved, other, epsilon), divergence(inside, moved, epsilon))


def random_flood(draw):
    ends = sorted(draw.sample(range(1, 7), 4))
    ranges = [(ends[0], ends[1], draw.choice((1, 3, 1 << 32))), (ends[2], ends[3], draw.randint(1, 9))]
    rate = Fraction(draw.choice((1, 7, 40, 10**6)), draw.choice((1, 13, 10**9)))
    singles = draw.choice((Fraction(0), Fraction(1, 1 << 60), Fraction(3, 7), Fraction(5)))
    return min(rate, Fraction(700)), tuple(ranges[: draw.randint(1, 2)]), singles


FLOODS = [
    (Dyadic.of(0.3), (Fraction(5, 4), ((1, 2, 3),), Fraction(0))),
    (Dyadic.of(0.15), (Fraction(2), ((1, 1, 1), (3, 3, 2)), Fraction(0))),
    (Dyadic.of(0.2), (Fraction(1), ((1, 1, 1),), Fraction(1, 2))),
    (TINY, (Fraction(1, 1 << 64), ((1, 1, 1),), Fraction(0))),
    (NEARLY_ONE, (Fraction(3), ((1, 3, 1),), Fraction(0))),
    (TINY, (Fraction(700), ((1, 1, 1),), Fraction(0))),
    (Dyadic.of(0.5), (Fraction(1, 10**15), ((2, 9000, 1),), Fraction(0))),
    (Dyadic.of(0.25), (Fraction(1, 100), ((2, 2, 1),), Fraction(10**6))),
    (TINY, (Fraction(4), ((1, 2, 1),), Fraction(1, 1 << 64))),
]


@pytest.mark.parametrize("view", ["count", "signed", "histogram"])
def test_clusters(view):
    draw = random.Random()
    ratios = (TINY, Dyadic.of(1e-6), Dyadic.of(0.4), Dyadic.of(0.97))
    cases = [*FLOODS, *((draw.choice(ratios), random_flood(draw)) for _ in range(4))]
    compared = 0
    for ratio, (rate, ranges, singles) in cases:
        reach = 9 if view == "histogram" else 16
        try:
            curve = ClusterCurve(ratio, PairClusters(rate, ranges, singles), view)
            claims = {epsilon: curve.delta_at(epsilon) for epsilon in EPSILONS}
        except ShuffledpError:
            continue  # refused
        with localcontext(prec=DIGITS):
            for epsilon, claim in claims.items():
                exact = exact_clusters(curve, epsilon, reach)
                assert Decimal(claim) >= exact * (1 - Decimal("1e-15")), (ratio, rate, ranges, singles, epsilon)
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize("view", ["count", "signed", "histogram"])
def test_clusters_whose_outcomes_are_few_are_exact(view):
    curve = ClusterCurve(Dyadic.of(0.1), PairClusters(Fraction(3, 5), ((1, 1, 2), (2, 2, 1))), view)
    with localcontext(prec=DIGITS):
        for epsilon in (0.2, 0.9):
            exact = float(exact_clusters(curve, epsilon, 13))
            assert exact <= curve.delta_at(epsilon) <= 1.01 * exact


def truncated(ratio, shift, reach):
    q = decimal(ratio)
    total = (1 - q**shift) * q / (1 - q) + 1 / (1 - q)  # below the shift, and from it on
    return {k: q ** abs(k - shift) / total for k in range(reach)}


@pytest.mark.parametrize(
    ("ratio", "shift"),
    [
        (Dyadic.of(0.6), 4),
        (Dyadic.of(0.37), 11),
        (TINY, 1),
        (TINY, 3),
        (Dyadic(1, 2), 0),
        (Dyadic.of(1 - 2.0**-40), 2),
        (NEARLY_ONE, 5),
        (Dyadic.of(0.9), 40),
    ],
)
def test_dummies_of_the_shuffler(ratio, shift):
    reach = min(shift + 22, 60)
    with localcontext(prec=DIGITS):
        masses = truncated(ratio, shift, reach)
        q = {k: mass for k, mass in masses.items() if k < reach - 1}
        p = {k + 1: mass for k, mass in q.items()}
        try:
            curve = ShufflerLaplaceCurve(ratio, shift)
        except ShuffledpError:
            return  # refused
        for epsilon in (0.0, 0.3, 1.2, 4.0, 90.0):
            exact, claim = of_two(p, masses, epsilon), Decimal(curve.delta_at(epsilon))
            assert claim >= exact * (1 - Decimal("1e-15")), epsilon
            if float(ratio) < 0.5 and exact > Decimal("1e-12"):
                assert claim <= exact * Decimal("1.01"), epsilon


@pytest.mark.parametrize(("keep", "ratio"), [(0.4, 0.3), (2.0**-50, 0.5), (1 - 2.0**-50, 0.25), (0.7, 2.0**-50)])
def test_sampled_reports_with_dummies(keep, ratio):
    """One user among counts that are known: none or some messages of a category, one after the other."""
    curve = SampledGeometric(Dyadic.of(keep), Dyadic.of(ratio))
    with localcontext(prec=DIGITS):
        kept, q = decimal(Fraction(keep)), decimal(Fraction(ratio))
        without = {k: (1 - q) * q**k for k in range(60)}
        with_user = {k: (1 - kept) * without[k] + (kept * without[k - 1] if k else 0) for k in range(60)}
        losses = [(with_user[k] / without[k]).ln() for k in range(60)]
        assert Decimal(curve.pure_epsilon) >= max(losses) - min(losses)
        for epsilon in EPSILONS:
            few = {k: with_user[k] for k in range(25)}, {k: without[k] for k in range(25)}
            assert Decimal(curve.delta_at(epsilon)) >= of_two(*few, epsilon) * (1 - Decimal("1e-15"))


@pytest.mark.parametrize(("ratio", "categories"), [(0.5, 2), (0.3, 3), (0.8, 3), (0.2, 4), (2.0**-40, 3), (0.05, 5)])
def test_noise_of_a_known_total(ratio, categories):
    """All noise vectors of total 0 up to a bound; the first category gains a user, the second loses one."""
    reach = {2: 60, 3: 14, 4: 6, 5: 3}[categories]
    curve = ConditionedLaplaceCurve(Dyadic.of(ratio), categories)
    with localcontext(prec=DIGITS):
        q = decimal(Fraction(ratio))
        weights = {}
        for head in product(range(-reach, reach + 1), repeat=categories - 1):
            vector = (*head, -sum(head))
            weights[vector] = q ** sum(abs(entry) for entry in vector)
        total = sum(weights.values())
        outside = q ** (2 * reach) * 100 if ratio < 0.5 else None
        pmf = {vector: weight / total for vector, weight in weights.items()}
        moved = {(vector[0] + 1, vector[1] - 1, *vector[2:]): mass for vector, mass in pmf.items()}
        both = moved.keys() & pmf.keys()  # without the edge of the box
        for epsilon in (0.0, 0.2, 0.7, 1.5):
            growth = Decimal(epsilon).exp()
            exact = sum((max(moved[at] - growth * pmf[at], 0) for at in both), Decimal(0))
            claim = Decimal(curve.delta_at(epsilon))
            assert claim >= exact * (1 - (outside or Decimal("1e-3"))), epsilon
            if outside and exact > Decimal("1e-3"):
                assert claim <= exact * Decimal("1.01"), epsilon


@pytest.mark.parametrize("bits", [1, 20, 60])
def test_a_shortage_of_carriers(bits):
    for users in (1, 2, 7, 40):
        for probability in (Dyadic(1, bits), Dyadic((1 << bits) - 1, bits)):
            for least in {1, users // 2 or 1, users}:
                p = probability.fraction
                exact = sum(math.comb(users, k) * p**k * (1 - p) ** (users - k) for k in range(least))
                bound = shortage(users, probability, least)
                assert Fraction(bound) >= exact or 0 < bound < 1e-300  # the exact one is too small for a float
                assert bound <= 1.01 * float(exact) + 1e-300


def test_the_mixture_over_carriers_is_covered():
    """Honest carriers each add a share; the exact divergence of the messages together with the roles."""
    users, probability, least = 4, Dyadic.of(0.6), 2
    planned = PairClusters(Fraction(2), ((1, 1, 1),))
    curve = ClusterCurve(Dyadic.of(0.2), planned, "count")
    with localcontext(prec=DIGITS):
        for epsilon in (0.2, 0.9):
            p, exact = probability.fraction, Decimal(0)
            for carriers in range(users + 1):
                chance = decimal(math.comb(users, carriers) * p**carriers * (1 - p) ** (users - carriers))
                if carriers < least:
                    exact += chance  # at most: nothing is known of less noise
                elif carriers == least:
                    exact += chance * exact_clusters(curve, epsilon, 14)
            bound = CarrierCurve(curve, shortage(users, probability, least)).delta_at(epsilon)
            assert Decimal(bound) >= exact


def test_a_planted_underestimate_is_noticed():
    """A claim that is 1 % too small, or that forgets one of the two categories."""
    curve = ClusterCurve(Dyadic.of(0.1), PairClusters(Fraction(3, 5), ((1, 1, 2), (2, 2, 1))), "histogram")
    single = ClusterCurve(curve.ratio, curve.flood, "count")
    with localcontext(prec=DIGITS):
        exact = exact_clusters(curve, 0.2, 13)
        assert Decimal(0.99 * curve.delta_at(0.2)) < exact
        assert Decimal(single.delta_at(0.2)) < exact
