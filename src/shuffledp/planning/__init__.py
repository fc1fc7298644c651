"""Planning: the protocols that answer a question within a target, ranked, with reasons."""

from shuffledp.planning.accuracy import fewest_users_for, least_epsilon_for
from shuffledp.planning.planner import Limits, Plan, Plans, Rejection, plan
from shuffledp.planning.question import Count, FrequentStrings, Histogram, Mean, Quantiles, Question, Sum
from shuffledp.planning.sample_size import ShareSampleSize, users_for_share

__all__ = [
    "Count",
    "FrequentStrings",
    "Histogram",
    "Limits",
    "Mean",
    "Plan",
    "Plans",
    "Quantiles",
    "Question",
    "Rejection",
    "ShareSampleSize",
    "Sum",
    "fewest_users_for",
    "least_epsilon_for",
    "plan",
    "users_for_share",
]
