"""Reports of few messages out of very many possible ones: drawn, and put in the order of the users.

A *cell* is a user and a possible message of theirs: ``user * codes + code``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.model import MessageFormat, Messages
from shuffledp.randomness import Dyadic, RandomSource, bernoulli, binomial, integers

__all__ = ["check_cells", "messages_of_cells", "scattered_bernoulli"]

_FEW_CELLS = 1 << 12
_LARGEST_SPARSE = 1 / 64  # with more ones it is faster to toss every coin
_CHUNK_CELLS = 1 << 20
_HITS_PER_BLOCK = 1 << 12


def scattered_bernoulli(probability: Dyadic, cells: int, source: RandomSource) -> NDArray[np.int64]:
    """One coin for each cell; the cells whose coin shows 1, in increasing order.

    Time and memory grow with their number: it is binomial, and given it every set of so many
    cells is equally likely.
    """
    if probability.numerator == 0 or cells == 0:
        return np.zeros(0, dtype=np.int64)
    if cells <= _FEW_CELLS or float(probability) > _LARGEST_SPARSE:
        starts = range(0, cells, _CHUNK_CELLS)
        chunks = [bernoulli(probability, min(_CHUNK_CELLS, cells - start), source) for start in starts]
        return np.concatenate([np.flatnonzero(chunk) + start for chunk, start in zip(chunks, starts, strict=True)])
    return _some_of(cells, _number_of_hits(probability, cells, source), source)


def _number_of_hits(probability: Dyadic, cells: int, source: RandomSource) -> int:
    """Bin(cells, probability), as the sum over blocks of one size, whose table is short and kept."""
    block = 1 << max(0, int(_HITS_PER_BLOCK / float(probability))).bit_length()
    whole, rest = divmod(cells, block)
    hits = int(binomial(block, probability, whole, source).sum()) if whole else 0
    return hits + int(binomial(rest, probability, 1, source)[0])


def _some_of(cells: int, number: int, source: RandomSource) -> NDArray[np.int64]:
    """A uniform set of so many cells: draw them one after the other, and again where one was drawn before."""
    chosen = np.zeros(0, dtype=np.int64)
    while len(chosen) < number:
        more = integers(cells, number - len(chosen), source).view(np.int64)
        chosen = np.concatenate((chosen, more))
        chosen.sort(kind="stable")  # merges what is in order already; numpy's unique is many times slower
        new = np.ones(number, dtype=np.bool_)
        np.not_equal(chosen[1:], chosen[:-1], out=new[1:])
        chosen = chosen[new]
    return chosen


def messages_of_cells(cells: NDArray[np.int64], users: int, form: MessageFormat, source: RandomSource) -> Messages:
    """The messages in the order of the users, and each user's in the order of their codes."""
    ordered = np.sort(cells, kind="stable")
    offsets = np.searchsorted(ordered, np.arange(users + 1, dtype=np.int64) * form.codes)
    values: NDArray[Any] = form.message(ordered % form.codes)
    return Messages(values.astype(form.dtype, copy=False), users, offsets.astype(np.int64), source.secure)


def check_cells(users: int, form: MessageFormat) -> None:
    """Refuse more cells than can be numbered."""
    if users * form.codes >= 1 << 62:
        raise ParameterError(
            f"{users:,} users with {form.codes:,} possible messages each are too many to draw; "
            "randomize them in several parts.",
            users=users,
        )
