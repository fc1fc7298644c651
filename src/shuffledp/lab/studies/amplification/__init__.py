"""The study of amplification by shuffling: published bounds compared with each other and with exact values."""

from shuffledp.lab.studies.amplification.study import STUDY

__all__ = ["STUDY"]
