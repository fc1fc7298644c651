"""Secure random bits and exact samplers; the seeded source is for tests and studies only."""

from shuffledp.randomness.binomial import binomial, binomials
from shuffledp.randomness.clusters import cluster_sizes, clusters_in_bins, scattered_clusters
from shuffledp.randomness.coins import bernoulli, bernoulli_bits, bernoulli_indices
from shuffledp.randomness.conditioned import conditioned_laplace
from shuffledp.randomness.dyadic import Dyadic
from shuffledp.randomness.logarithmic import logarithmic
from shuffledp.randomness.negative_binomial import negative_binomial, scattered_negative_binomial
from shuffledp.randomness.occupancy import uniform_counts
from shuffledp.randomness.poisson import poisson
from shuffledp.randomness.rounding import round_randomly, sum_rounded_randomly
from shuffledp.randomness.samplers import (
    discrete_laplace,
    geometric,
    integers,
)
from shuffledp.randomness.source import (
    SYSTEM,
    InsecureSeededRandomness,
    RandomSource,
    RepeatableRandomness,
    SystemRandomness,
    draw_bytes,
    draw_words,
)

__all__ = [
    "SYSTEM",
    "Dyadic",
    "InsecureSeededRandomness",
    "RandomSource",
    "RepeatableRandomness",
    "SystemRandomness",
    "bernoulli",
    "bernoulli_bits",
    "bernoulli_indices",
    "binomial",
    "binomials",
    "cluster_sizes",
    "clusters_in_bins",
    "conditioned_laplace",
    "discrete_laplace",
    "draw_bytes",
    "draw_words",
    "geometric",
    "integers",
    "logarithmic",
    "negative_binomial",
    "poisson",
    "round_randomly",
    "scattered_clusters",
    "scattered_negative_binomial",
    "sum_rounded_randomly",
    "uniform_counts",
]
