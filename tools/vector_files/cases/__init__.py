"""Randomizer cases for every protocol of tasks, with parameters so small that the pmf of a report can be enumerated.

Nearly all of them are far too small to protect anybody. Where all users together draw negative binomial noise, shapes
and ratios are chosen such that every probability is a fraction. A few more are as in earnest, without distributions.
"""

from __future__ import annotations

from vector_files.cases.calibrated import CALIBRATED
from vector_files.cases.case import Case
from vector_files.cases.counts import COUNTS
from vector_files.cases.histograms import HISTOGRAMS
from vector_files.cases.quantiles import QUANTILES
from vector_files.cases.strings import STRINGS
from vector_files.cases.sums import SUMS

__all__ = ["CASES", "Case"]

CASES = (*COUNTS, *HISTOGRAMS, *SUMS, *CALIBRATED, *QUANTILES, *STRINGS)
