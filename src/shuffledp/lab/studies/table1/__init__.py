"""The study of Table 1 of Balcer and Cheu (2020): the largest error of a histogram against the size of the domain."""

from shuffledp.lab.studies.table1.study import STUDY

__all__ = ["STUDY"]
