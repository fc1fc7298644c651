"""Secure random bits and exact samplers; the seeded twin is for tests and studies only."""

from shuffledp.randomness.binomial import binomial
from shuffledp.randomness.dyadic import Dyadic
from shuffledp.randomness.samplers import (
    bernoulli,
    discrete_laplace,
    geometric,
    integers,
)
from shuffledp.randomness.source import (
    SYSTEM,
    InsecureSeededRandomness,
    RandomSource,
    SystemRandomness,
    draw_bytes,
    draw_words,
)

__all__ = [
    "SYSTEM",
    "Dyadic",
    "InsecureSeededRandomness",
    "RandomSource",
    "SystemRandomness",
    "bernoulli",
    "binomial",
    "discrete_laplace",
    "draw_bytes",
    "draw_words",
    "geometric",
    "integers",
]
