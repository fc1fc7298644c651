"""A chi-square test of a whole output table, and the level that all statistical tests use.

Statistical tests are unseeded: a level of one in ten million per test keeps chance failures away, and
each test says which planted fault it must reject at the same sample size.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

ALPHA = 1e-7


def p_value(observed, probabilities) -> float:
    """The p-value of observed counts against a law over the same outcomes.

    An outcome of probability zero that was seen gives 0. Outcomes that are expected fewer than ten
    times are pooled; what remains too rare after that counts by its exact binomial tail.
    """
    counts = np.asarray(observed, dtype=np.float64).ravel()
    law = np.asarray(probabilities, dtype=np.float64).ravel()
    assert counts.shape == law.shape
    assert abs(law.sum() - 1) < 1e-9
    if counts[law == 0].any():
        return 0.0
    total = counts.sum()
    expected = law * total
    rare = (expected < 10) & (law > 0)
    common = expected >= 10
    cells, hopes = list(counts[common]), list(expected[common])
    if expected[rare].sum() >= 10:
        cells.append(counts[rare].sum())
        hopes.append(expected[rare].sum())
        tail = 1.0
    else:
        share = law[rare].sum()
        tail = 1.0 if share == 0 else min(1.0, 2 * stats.binom.sf(counts[rare].sum() - 1, int(total), share))
    if len(cells) < 2:
        return float(tail)
    cells_array, hopes_array = np.array(cells), np.array(hopes)
    statistic = ((cells_array - hopes_array) ** 2 / hopes_array).sum()
    return float(min(1.0, 2 * min(tail, stats.chi2.sf(statistic, len(cells) - 1))))


def same_law(first, second) -> float:
    """The p-value of two tables of counts having the same law."""
    table = np.array([np.asarray(first).ravel(), np.asarray(second).ravel()], dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    often = table.sum(axis=0) >= 20
    if (~often).any():
        table = np.column_stack((table[:, often], table[:, ~often].sum(axis=1)))
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table).pvalue)
