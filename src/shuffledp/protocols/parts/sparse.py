"""Sparse reports: few messages out of many possible ones, drawn by cell and sorted by user.

A *cell* is a pair of a user and a possible message, as the number ``user * codes + code``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages
from shuffledp.randomness import Dyadic, RandomSource, bernoulli_indices


def scattered_bernoulli(probability: Dyadic, cells: int, source: RandomSource) -> NDArray[np.int64]:
    """Toss one coin per cell and return the cells with a 1, in increasing order.

    Time and memory are proportional to their number.
    """
    return bernoulli_indices(probability, cells, source)


def messages_of_cells(cells: NDArray[np.int64], users: int, form: MessageFormat, source: RandomSource) -> Messages:
    """The messages in the order of the users, and each user's in the order of their codes."""
    ordered = np.sort(cells, kind="stable")
    offsets = np.searchsorted(ordered, np.arange(users + 1, dtype=np.int64) * form.codes)
    values: NDArray[Any] = form.message(ordered % form.codes)
    return Messages(values.astype(form.dtype, copy=False), users, offsets.astype(np.int64), source.secure)


def check_cells(users: int, form: MessageFormat) -> None:
    """Reject a number of cells beyond 2^62."""
    if users * form.codes >= 1 << 62:
        raise ParameterError(
            f"{users:,} users with {form.codes:,} possible messages each are too many to draw; "
            "randomize them in several parts.",
            users=users,
        )
