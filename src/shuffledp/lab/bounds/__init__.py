"""Bounds of the literature with explicit constants, each derived from the definitions.

- ``bernoulli_mean``: the fewest users for the mean of bits, in the local model and in any model;
- ``single_message``: the least error of a histogram and of a count when every user sends one shuffled message;
- ``hyperbolic``: tanh(epsilon / 2) against epsilon / sqrt(m), the constant of Corollary 24;
- ``theorem_11``: the exact probability that the error of Theorem 11 (ii) is exceeded.
"""
