"""Distributions of reports of one message, listed by its code."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shuffledp.errors import ParameterError
from shuffledp.protocols.protocol import Pmf

MAX_LISTED = 1 << 10


def check_listed(codes: int, *, most: int = MAX_LISTED) -> None:
    """Reject a message format with more codes than are worth listing."""
    if codes > most:
        raise ParameterError(f"{codes:,} different messages are too many to list; at most {most:,}.", codes=codes)


def single_message_pmf(probabilities: Sequence[Fraction], *, most: int = MAX_LISTED) -> Pmf:
    """The distribution of a report of one message, as copies of each code, from the probability of each code."""
    codes = len(probabilities)
    check_listed(codes, most=most)
    return {
        tuple(int(other == code) for other in range(codes)): probability
        for code, probability in enumerate(probabilities)
        if probability
    }
