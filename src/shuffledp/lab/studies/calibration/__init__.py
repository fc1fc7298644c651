"""What the constants of theorems cost: noise, users and error, by the paper and by exact accounting."""

from shuffledp.lab.studies.calibration.study import STUDY

__all__ = ["STUDY"]
