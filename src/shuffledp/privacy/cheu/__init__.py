"""Privacy accounting of ``cheu``: the number of ones among randomly flipped bits.

Users hold bits, and each bit is flipped with probability f. The analyzer sees the number of ones: of one bit per user
(a binary sum), of one labelled bit per category (a histogram), or of several unlabelled bits per user (a sum of bounded
numbers). The noise depends on the data: K ones among the N bits of the other users give Bin(N - K, f) - Bin(K, f). The
bounds hold for every K, by two facts:

* Less noise is worse. Revealing whether some bits were flipped can only increase the divergence, so for all K from K1
  to K2 the noise Bin(N - K2, f) - Bin(K1, f) gives a bound. A few such ranges of K, called cells, cover all K.
* The likelihood ratio increases with the number of ones (a sum of log-concave distributions), so the divergence is the
  largest Pr[U >= u] - e^epsilon Pr'[U >= u].
"""

from __future__ import annotations

from shuffledp.privacy.cheu.calibration import (
    least_count_flip,
    least_histogram_flip,
    least_sum_flip,
    paper_count_flip,
    paper_histogram_flip,
    paper_sum_flip,
)
from shuffledp.privacy.cheu.cells import LARGEST_FLIP
from shuffledp.privacy.cheu.histograms import FlippedHistogram
from shuffledp.privacy.cheu.sums import FlippedCount, FlippedSum

__all__ = [
    "LARGEST_FLIP",
    "FlippedCount",
    "FlippedHistogram",
    "FlippedSum",
    "least_count_flip",
    "least_histogram_flip",
    "least_sum_flip",
    "paper_count_flip",
    "paper_histogram_flip",
    "paper_sum_flip",
]
