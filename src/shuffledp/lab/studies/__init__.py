"""Each table, theorem or claim of the literature, measured: data, a figure, and one page that explains it."""

from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.reproduce import Report, reproduce, reproduce_all

__all__ = ["STUDIES", "Report", "find_study", "reproduce", "reproduce_all"]
