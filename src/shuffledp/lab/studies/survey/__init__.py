"""The survey notes' table of private sums, corrected and measured: error and messages per user, row by row."""

from shuffledp.lab.studies.survey.study import STUDY

__all__ = ["STUDY"]
