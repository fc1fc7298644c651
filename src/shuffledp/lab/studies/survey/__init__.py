"""The study of a survey's table of private sums, corrected and measured: error and messages per user."""

from shuffledp.lab.studies.survey.study import STUDY

__all__ = ["STUDY"]
