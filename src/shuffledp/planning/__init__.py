"""From a question and a target to protocols, ranked, with reasons."""

from shuffledp.planning.planner import Plan, Plans, Rejection, plan
from shuffledp.planning.question import Count, Histogram, Question

__all__ = ["Count", "Histogram", "Plan", "Plans", "Question", "Rejection", "plan"]
