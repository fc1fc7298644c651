"""The study of bounds with explicit constants: means of bits, one shuffled message, and the constants of two proofs."""

from shuffledp.lab.studies.bounds.study import STUDY

__all__ = ["STUDY"]
