"""The study of published numbers: what papers and programs print, beside what the library computes."""

from shuffledp.lab.studies.published.study import STUDY

__all__ = ["STUDY"]
