"""Bounds of the literature with explicit constants, each derived from the definitions.

- ``bernoulli_mean``: the minimum number of users for the mean of bits, in the local model and in any model;
- ``single_message``: the least error of a histogram and of a count when every user sends one shuffled message;
- ``hyperbolic``: tanh(epsilon / 2) compared with epsilon / sqrt(m), for the constant of Corollary 24;
- ``theorem_11``: the exact probability that the error of Theorem 11 (ii) is exceeded.
"""
