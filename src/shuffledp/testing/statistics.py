"""Chi-square tests of complete distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 1e-7
"""The level of every statistical test: small enough for hundreds of unseeded tests."""


def p_value(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """The p-value of observed counts against a distribution over the same outcomes.

    It is 0 if an outcome of probability zero was observed. Outcomes that are expected fewer than ten
    times are pooled; if the pool is expected fewer than ten times, its exact binomial tail is used.
    """
    from scipy import stats

    counts = np.asarray(observed, dtype=np.float64).ravel()
    pmf = np.asarray(probabilities, dtype=np.float64).ravel()
    if counts[pmf == 0].any():
        return 0.0
    total = counts.sum()
    expected = pmf * total
    common, rare = expected >= 10, (expected < 10) & (pmf > 0)
    cells, expected_cells = counts[common], expected[common]
    tail = 1.0
    if expected[rare].sum() >= 10:
        cells, expected_cells = np.append(cells, counts[rare].sum()), np.append(expected_cells, expected[rare].sum())
    elif rare.any():
        tail = min(1.0, 2 * float(stats.binom.sf(counts[rare].sum() - 1, int(total), pmf[rare].sum())))
    if len(cells) < 2:
        return tail
    statistic = float(((cells - expected_cells) ** 2 / expected_cells).sum())
    return min(1.0, 2 * min(tail, float(stats.chi2.sf(statistic, len(cells) - 1))))


def same_distribution(first: ArrayLike, second: ArrayLike) -> float:
    """The p-value of two tables of counts having the same distribution."""
    from scipy import stats

    table = np.array([np.asarray(first).ravel(), np.asarray(second).ravel()], dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    common = table.sum(axis=0) >= 20
    if not common.all():
        table = np.column_stack((table[:, common], table[:, ~common].sum(axis=1)))
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table).pvalue)
