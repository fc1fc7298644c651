"""Differential privacy in the shuffled model: plan, run and account for private counts, histograms and sums."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shuffledp.domain import Categories, Interval
    from shuffledp.errors import ShuffledpError
    from shuffledp.estimate import CountEstimate, HistogramEstimate, SumEstimate
    from shuffledp.messages import Messages
    from shuffledp.model import Cost, Tally
    from shuffledp.planning import Count, Histogram, Mean, Sum, fewest_users_for, least_epsilon_for, plan
    from shuffledp.privacy.guarantee import Guarantee
    from shuffledp.protocols.count.balcer_cheu import BalcerCheuCount
    from shuffledp.protocols.documents import from_document, to_document
    from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
    from shuffledp.protocols.registry import PROTOCOLS, find
    from shuffledp.shuffling import permute

__version__ = "0.1.0"

_HOMES = {
    "BalcerCheuCount": "shuffledp.protocols.count.balcer_cheu",
    "BalcerCheuHistogram": "shuffledp.protocols.histogram.balcer_cheu",
    "Categories": "shuffledp.domain",
    "Cost": "shuffledp.model",
    "Count": "shuffledp.planning",
    "CountEstimate": "shuffledp.estimate",
    "Guarantee": "shuffledp.privacy.guarantee",
    "Histogram": "shuffledp.planning",
    "HistogramEstimate": "shuffledp.estimate",
    "Interval": "shuffledp.domain",
    "Mean": "shuffledp.planning",
    "Messages": "shuffledp.messages",
    "PROTOCOLS": "shuffledp.protocols.registry",
    "ShuffledpError": "shuffledp.errors",
    "Sum": "shuffledp.planning",
    "SumEstimate": "shuffledp.estimate",
    "Tally": "shuffledp.model",
    "fewest_users_for": "shuffledp.planning",
    "find": "shuffledp.protocols.registry",
    "from_document": "shuffledp.protocols.documents",
    "least_epsilon_for": "shuffledp.planning",
    "permute": "shuffledp.shuffling",
    "plan": "shuffledp.planning",
    "to_document": "shuffledp.protocols.documents",
}

__all__ = [
    "PROTOCOLS",
    "BalcerCheuCount",
    "BalcerCheuHistogram",
    "Categories",
    "Cost",
    "Count",
    "CountEstimate",
    "Guarantee",
    "Histogram",
    "HistogramEstimate",
    "Interval",
    "Mean",
    "Messages",
    "ShuffledpError",
    "Sum",
    "SumEstimate",
    "Tally",
    "__version__",
    "fewest_users_for",
    "find",
    "from_document",
    "least_epsilon_for",
    "permute",
    "plan",
    "to_document",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a device which only randomizes loads little."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shuffledp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
