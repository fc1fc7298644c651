"""Amplification by shuffling: the published bounds against each other, and against exact values."""

from shuffledp.lab.studies.amplification.study import STUDY

__all__ = ["STUDY"]
