"""Differential privacy in the shuffled model: plan, run and account for private counts and histograms."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shuffledp.domain import Categories
    from shuffledp.errors import ShuffledpError
    from shuffledp.estimate import CountEstimate, HistogramEstimate
    from shuffledp.model import Cost, Messages, Tally
    from shuffledp.planning import Count, Histogram, plan
    from shuffledp.privacy.guarantee import Guarantee
    from shuffledp.protocols.counting.balcer_cheu import BalcerCheuCount
    from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
    from shuffledp.shuffling import permute

__version__ = "0.1.0"

_HOMES = {
    "BalcerCheuCount": "shuffledp.protocols.counting.balcer_cheu",
    "BalcerCheuHistogram": "shuffledp.protocols.histogram.balcer_cheu",
    "Categories": "shuffledp.domain",
    "Cost": "shuffledp.model",
    "Count": "shuffledp.planning",
    "CountEstimate": "shuffledp.estimate",
    "Guarantee": "shuffledp.privacy.guarantee",
    "Histogram": "shuffledp.planning",
    "HistogramEstimate": "shuffledp.estimate",
    "Messages": "shuffledp.model",
    "ShuffledpError": "shuffledp.errors",
    "Tally": "shuffledp.model",
    "permute": "shuffledp.shuffling",
    "plan": "shuffledp.planning",
}

__all__ = [
    "BalcerCheuCount",
    "BalcerCheuHistogram",
    "Categories",
    "Cost",
    "Count",
    "CountEstimate",
    "Guarantee",
    "Histogram",
    "HistogramEstimate",
    "Messages",
    "ShuffledpError",
    "Tally",
    "__version__",
    "permute",
    "plan",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that a device which only randomizes loads little."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shuffledp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
