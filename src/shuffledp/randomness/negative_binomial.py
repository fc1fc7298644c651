"""Exact sampling from negative binomial distributions, as an array or sparsely over very many cells."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.randomness.computable import NegativeLogarithm
from shuffledp.randomness.dyadic import Dyadic, Probability
from shuffledp.randomness.inversion import CdfBounds, InversionTable
from shuffledp.randomness.logarithmic import LEAST_COMPLEMENT_BITS, logarithmic
from shuffledp.randomness.poisson import poisson
from shuffledp.randomness.samplers import integers
from shuffledp.randomness.source import SYSTEM, RandomSource
from shuffledp.randomness.unimodal import unimodal_bounds

_LARGEST_VARIANCE = 1 << 20
_LEAST_LARGE_SHAPE = 16  # below it the geometric tail determines a table's length, so splitting saves nothing
_LEAST_TABLE_COMPLEMENT = Fraction(1, 1 << 10)  # for ratios closer to one the tail is too long for a table
_LARGEST_MEAN = 1 << 40
_CLUSTERS_AT_ONCE = 1 << 20


def negative_binomial(
    shape: Fraction, ratio: Probability, size: int, source: RandomSource = SYSTEM
) -> NDArray[np.int64]:
    """``size`` independent K with Pr[K = k] = C(k + shape - 1, k) (1 - ratio)^shape ratio^k exactly.

    The sum of n draws of shape s is one draw of shape n s; shape 1 is the geometric distribution. A ratio
    above 1 - 2^-10 is drawn cluster by cluster, at a cost of -shape ln(1 - ratio) clusters each.
    """
    ratio = Dyadic.of(ratio)
    shape = _check(shape, ratio)
    if size < 0:
        raise ParameterError(f"size must be at least 0; got {size}.", size=size)
    if ratio.numerator == 0 or size == 0:
        return np.zeros(size, dtype=np.int64)
    complement = ratio.complement.fraction
    if complement < _LEAST_TABLE_COMPLEMENT:
        return _draw_clusters(shape, ratio, size, source)
    largest_shape = max(_LARGEST_VARIANCE * complement**2 / ratio.fraction, Fraction(_LEAST_LARGE_SHAPE))
    parts = ceil(shape / largest_shape)
    table = _negative_binomial_table(shape / parts, ratio)
    out = np.zeros(size, dtype=np.int64)
    for _ in range(parts):
        table.add_to(out, source)
    return out


def scattered_negative_binomial(
    shape: Fraction, ratio: Probability, cells: int, source: RandomSource = SYSTEM
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One negative binomial draw for each of ``cells`` cells: the sorted indices of the nonzero cells and their values.

    Time and memory grow with the number of clusters, which is Poisson with mean
    -cells shape ln(1 - ratio), not with the number of cells: a negative binomial count is a Poisson
    number of clusters with independent logarithmic sizes, and independent Poisson counts of many cells
    are one Poisson count whose items are assigned to uniform cells.
    """
    ratio = Dyadic.of(ratio)
    shape = _check(shape, ratio)
    if not 0 <= cells < 1 << 63:
        raise ParameterError(f"The number of cells {cells} must lie between 0 and 2^63 - 1.", cells=cells)
    if cells == 0 or ratio.numerator == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    clusters = int(poisson(NegativeLogarithm(cells * shape, ratio), 1, source)[0])
    hit = integers(cells, clusters, source).view(np.int64)
    hit.sort()  # the sizes, drawn next, do not depend on the cells
    sizes = logarithmic(ratio, clusters, source)
    new = np.ones(clusters, dtype=np.bool_)
    np.not_equal(hit[1:], hit[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if len(starts) == clusters:
        return hit, sizes
    return hit[starts], np.add.reduceat(sizes, starts)


def _check(shape: Fraction, ratio: Dyadic) -> Fraction:
    if not isinstance(shape, int | Fraction) or shape <= 0:
        raise ParameterError(f"The shape {shape} must be a positive Fraction.", shape=shape)
    complement = ratio.complement.fraction
    if complement < Fraction(1, 1 << LEAST_COMPLEMENT_BITS):
        raise ParameterError(
            f"The ratio {ratio} of a negative binomial distribution must be at most 1 - 2^-{LEAST_COMPLEMENT_BITS}.",
            ratio=ratio,
        )
    if shape * ratio.fraction > _LARGEST_MEAN * complement:
        raise ParameterError(
            f"Shape {float(shape):.6g} and ratio {ratio} have a mean above 2^40; reduce one of them.",
            shape=shape,
            ratio=ratio,
        )
    return Fraction(shape)


def _draw_clusters(shape: Fraction, ratio: Dyadic, size: int, source: RandomSource) -> NDArray[np.int64]:
    """Sums of a Poisson number of logarithmic sizes, with bounded memory."""
    rate = NegativeLogarithm(shape, ratio)
    at_once = max(1, int(_CLUSTERS_AT_ONCE / max(Fraction(1), rate.between(8)[1])))
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, at_once):
        chunk = out[start : start + at_once]
        ends = np.cumsum(poisson(rate, len(chunk), source))
        sums = np.append(0, np.cumsum(logarithmic(ratio, int(ends[-1]), source)))
        chunk[:] = np.diff(sums[ends], prepend=0)
    return out


@lru_cache(maxsize=64)
def _negative_binomial_table(shape: Fraction, ratio: Dyadic) -> InversionTable:
    return InversionTable(lambda precision: _cdf_bounds(shape, ratio, precision))


def _cdf_bounds(shape: Fraction, ratio: Dyadic, precision: int) -> CdfBounds:
    """Bounds from Pr[k + 1] / Pr[k] = (k + shape) / (k + 1) ratio, which tends to the ratio.

    It decreases with k for a shape above one. For a shape below one it increases, but stays below the ratio.
    """
    top, bottom = shape.numerator, shape.denominator
    mode = 0
    if shape > 1:
        # the smallest k from which the probabilities do not increase: (k + shape) ratio <= k + 1
        mode = max(0, ceil((shape * ratio.fraction - 1) / ratio.complement.fraction))
    return unimodal_bounds(
        lambda k: ((top + bottom * k) * ratio.numerator, bottom * (k + 1) << ratio.bits),
        mode,
        precision,
        largest_later_ratio=ratio.fraction,
    )
