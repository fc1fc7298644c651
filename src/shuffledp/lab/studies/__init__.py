"""Studies: measurements of tables, theorems and claims of the literature, each with data, figures and a page."""

from shuffledp.lab.studies.registry import STUDIES, find_study
from shuffledp.lab.studies.reproduce import Report, reproduce, reproduce_all

__all__ = ["STUDIES", "Report", "find_study", "reproduce", "reproduce_all"]
