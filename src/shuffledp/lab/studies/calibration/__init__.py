"""The study of calibration: noise, users and error by the constants of theorems and by exact accounting."""

from shuffledp.lab.studies.calibration.study import STUDY

__all__ = ["STUDY"]
