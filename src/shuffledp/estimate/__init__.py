"""Estimates: the released statistics with their errors, intervals and guarantee."""

from shuffledp.estimate.estimate import Estimate, Floats, Intervals
from shuffledp.estimate.grouped import GroupedEstimate, TooFewUsers
from shuffledp.estimate.histogram import HistogramEstimate
from shuffledp.estimate.number import CountEstimate, SumEstimate
from shuffledp.estimate.quantiles import EstimatedNumber, QuantileEstimate
from shuffledp.estimate.strings import StringsEstimate

__all__ = [
    "CountEstimate",
    "Estimate",
    "EstimatedNumber",
    "Floats",
    "GroupedEstimate",
    "HistogramEstimate",
    "Intervals",
    "QuantileEstimate",
    "StringsEstimate",
    "SumEstimate",
    "TooFewUsers",
]
