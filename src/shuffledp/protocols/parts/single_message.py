"""Base of protocols with one message per user; the distribution of a report, listed by the codes of messages."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.messages import Messages
from shuffledp.protocols.protocol import Cost, Pmf, Protocol
from shuffledp.randomness import RandomSource

MAX_LISTED = 1 << 10


class SingleMessageProtocol(Protocol):
    """A protocol in which every report is one message."""

    @property
    def cost(self) -> Cost:
        """One message."""
        return Cost(1.0, 1, self.message_format.bits)


def one_message_each(values: NDArray[Any], source: RandomSource) -> Messages:
    """Reports of a single message, in the order of the users."""
    return Messages(values, len(values), np.arange(len(values) + 1, dtype=np.int64), source.secure)


def check_listed(codes: int, *, max_codes: int = MAX_LISTED) -> None:
    """Reject a message format with more codes than are worth listing."""
    if codes > max_codes:
        raise ParameterError(f"{codes:,} different messages are too many to list; at most {max_codes:,}.", codes=codes)


def single_message_pmf(probabilities: Sequence[Fraction], *, max_codes: int = MAX_LISTED) -> Pmf:
    """The distribution of a report of one message, as copies of each code, from the probability of each code."""
    codes = len(probabilities)
    check_listed(codes, max_codes=max_codes)
    return {
        tuple(int(other == code) for other in range(codes)): probability
        for code, probability in enumerate(probabilities)
        if probability
    }
