"""Exact divergences for tests, written without the package: binomials by scipy or by integers, then the definition."""

import math
from fractions import Fraction

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom


def flipped_count(users, flip, epsilon, ones):
    """One of ``users`` users changes a bit, ``ones`` of the others hold 1, and every bit is flipped."""
    others = users - 1
    noise = [window(ones, 1 - flip), window(others - ones, flip)]
    masses = np.convolve(noise[0], noise[1])
    before, here = np.append(0.0, masses), np.append(masses, 0.0)
    p, q = (1 - flip) * before + flip * here, flip * before + (1 - flip) * here
    return one_sided(p, q, epsilon), one_sided(q, p, epsilon)


def flipped_histogram(users, flip, epsilon, old, new):
    """One user moves from a category that ``old`` of the others hold to one that ``new`` of them hold."""
    tables = []
    for ones in (old, new):
        masses = np.convolve(window(ones, 1 - flip), window(users - 1 - ones, flip))
        before, here = np.append(0.0, masses), np.append(masses, 0.0)
        tables.append(((1 - flip) * before + flip * here, flip * before + (1 - flip) * here))
    (p, q), (other_p, other_q) = tables
    return float(np.maximum(np.outer(p, other_q) - math.exp(epsilon) * np.outer(q, other_p), 0.0).sum())


def window(trials, probability):
    """The masses of a binomial distribution around its mean; those left out are far below anything compared."""
    spread = 45 * math.sqrt(trials * min(probability, 1 - probability) + 1) + 150
    first, last = (
        max(0, math.floor(trials * probability - spread)),
        min(trials, math.ceil(trials * probability + spread)),
    )
    return binom.pmf(np.arange(first, last + 1), trials, probability)


def one_sided(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def blanket_lemma(users, blanket, values, epsilon):
    """Lemma 5.3 of Balle and others (2019) for randomized response, all terms positive, in logarithms.

    E[max(0, odds (A - e^epsilon B) - (e^epsilon - 1)(A + B + C))] / users, summed over A, B and C.
    """
    growth, odds = math.exp(epsilon), values * (1 - blanket) / blanket
    pair_rate = 2 * blanket / values
    other_rate = blanket * (values - 2) / values / (1 - pair_rate)
    most = math.ceil(users * pair_rate + 60 * math.sqrt(users * pair_rate) + 120)
    terms = []
    for both in range(min(users, most) + 1):
        first = np.arange(both + 1)
        height = odds * (first - growth * (both - first)) - (growth - 1) * both
        first, height = first[height > 0], height[height > 0]
        if len(first) == 0:
            continue
        log_pairs = binom.logpmf(both, users, pair_rate) + binom.logpmf(first, both, 0.5)
        others = users - both
        if other_rate == 0:
            terms.append(logsumexp(log_pairs + np.log(height)))
            continue
        mean = others * other_rate
        # below the mean; where height / gap reaches beyond it, the expectation is dominated by the numbers near it
        count = np.arange(0, min(others, math.ceil(mean + 60 * math.sqrt(mean) + 60)) + 1)
        log_mass = binom.logpmf(count, others, other_rate)
        for log_pair, top in zip(log_pairs.tolist(), height.tolist(), strict=True):
            left = top - (growth - 1) * count
            positive = left > 0
            if positive.any():
                terms.append(log_pair + logsumexp(log_mass[positive] + np.log(left[positive])))
    return math.exp(logsumexp(terms)) / users if terms else 0.0


def hashed_blanket(messages, buckets, collision, epsilon, sent=Fraction(1)):
    """A hashed value among uniform messages, each sent with a probability: every outcome, as exact fractions.

    A message agrees with the old value only, the new one only, both, or neither.
    """
    share = Fraction(1, buckets) * sent
    kinds = ((1 - collision) * share, (1 - collision) * share, collision * share)
    growth, total = Fraction(math.exp(epsilon)), Fraction(0)
    noise = {}
    for a in range(messages + 1):
        for b in range(messages + 1 - a):
            for c in range(messages + 1 - a - b):
                rest = messages - a - b - c
                ways = math.factorial(messages) // math.prod(math.factorial(x) for x in (a, b, c, rest))
                noise[a, b, c] = ways * math.prod(
                    rate**x for rate, x in zip((*kinds, 1 - sum(kinds)), (a, b, c, rest), strict=True)
                )
    for a in range(messages + 2):
        for b in range(messages + 2 - a):
            for c in range(messages + 2 - a - b):
                both = collision * noise.get((a, b, c - 1), 0)
                p = (1 - collision) * noise.get((a - 1, b, c), 0) + both
                q = (1 - collision) * noise.get((a, b - 1, c), 0) + both
                total += max(p - growth * q, Fraction(0))
    return total


def hashed_blanket_sum(messages, buckets, collision, epsilon):
    """The same for many messages, in floats: the likelihood is proportional to the number of messages that agree."""
    agree, growth, total = (2 - collision) / buckets, math.exp(epsilon), 0.0
    spread = 9 * math.sqrt(messages * agree)
    for hits in range(
        max(0, math.floor(messages * agree - spread)), min(messages, math.ceil(messages * agree + spread)) + 1
    ):
        both = np.arange(hits + 2)
        masses = binom.pmf(both, hits + 1, collision / (2 - collision))
        both, masses = both[masses > 1e-18], masses[masses > 1e-18]
        first = np.arange(hits + 2)[:, None]
        gain = np.maximum(0.0, first + both - growth * (hits + 1 - first))
        expected = (binom.pmf(first, hits + 1 - both, 0.5) * gain).sum(axis=0)
        total += binom.pmf(hits, messages, agree) * (2 - collision) / (hits + 1) * float(masses @ expected)
    return total
