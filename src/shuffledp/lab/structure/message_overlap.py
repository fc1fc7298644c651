"""Pure privacy with several messages per user: how much two values' messages must have in common.

Ghazi and others (2020b), cited in section 1.2 of Balcer and Cheu (2020): if a shuffled protocol of m messages of l bits
is epsilon-private, replacing one value changes the distribution of that user's multiset of messages by at most
1 - 2^(-O_epsilon(m^2 l)) in statistical distance. Here with a constant, for k = 2^l messages and r = e^epsilon:

    overlap >= 1 / (2 r C(m + k - 1, m) (k^2 (1 + 2 r))^e),    e = (m^2 - s) / 2 <= m^2 (1 - 1/k) / 2,

where s is the least sum of squares of k counts that sum to m, and the overlap is 1 minus the distance, the sum of the
smaller of the two probabilities of each multiset. It is enough that the protocol is private for one number of users.

Proof. Let P, Q be the distributions of the multiset v, a vector of k counts that sum to m, on x and x'. Weighing every
message by a positive number z makes the generating functions p(z), q(z). If all users hold x, the shuffled messages
have p^n, after one replacement p^(n - 1) q; privacy compares all coefficients, so p(z) <= r q(z) and q(z) <= r p(z) for
all z > 0 and any n (``tilted_ratio``). Let e^(2 c) = k^2 (1 + 2 r), and let w be the multiset v at which the larger of
P(v) e^(c |v|^2) and Q(v) e^(c |v|^2) is largest; say that it is the former. With the weights z = e^(2 c w),
Q(v) z^(v - w) <= P(w) e^(-c |v - w|^2).
Multisets that differ from w in j messages are at most k^(2 j), with |v - w|^2 >= 2 j: all but w add up to at most
P(w) / (2 r). So P(w) <= r (Q(w) + P(w) / (2 r)), and Q(w) >= P(w) / (2 r). And P(w) is not small: the likeliest of the
C(m + k - 1, m) multisets has |v|^2 >= s, while |w|^2 <= m^2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.channels import Channel, Message, Value
from shuffledp.lab.structure.exact_ratios import Exact, check_ratio

_MAX_SEARCHED = 8
_TILTS = 121
_MAX_TILT = 14.0


def report_overlap(channel: Channel, first: Value, second: Value) -> Fraction:
    """1 minus the statistical distance between the multisets of messages on two values."""
    one, other = channel.preshuffled.pmf(first), channel.preshuffled.pmf(second)
    return sum((min(share, other.get(output, Fraction(0))) for output, share in one.items()), Fraction(0))


def tilted_ratio(channel: Channel, first: Value, second: Value, weights: Mapping[Message, Exact]) -> Fraction:
    """p(z) / q(z): the expected product of the messages' positive weights on one value, over that on the other.

    It is at most e^epsilon if the shuffled protocol is epsilon-private for some number of users. Where users send
    different numbers of messages, absent ones have the weight 1.
    """
    missing = [message for message in channel.messages if not Fraction(weights.get(message, 0)) > 0]
    if missing:
        raise ParameterError(f"Every message needs a positive weight; {missing[0]!r} has none.")

    def expected(value: Value) -> Fraction:
        return sum(
            (
                share * math.prod((Fraction(weights[message]) for message in output), start=Fraction(1))
                for output, share in channel.pmf(value).items()
            ),
            Fraction(0),
        )

    return expected(first) / expected(second)


def overlap_lower(ratio: Exact, messages: int, alphabet: int) -> Fraction:
    """The least overlap of two values' messages if e^epsilon of the shuffled protocol is ``ratio``.

    Every user sends exactly ``messages`` messages out of ``alphabet`` different ones.
    """
    r = check_ratio(ratio)
    if messages < 1 or alphabet < 1:
        raise ParameterError(f"There must be at least one message of at least one kind; got {messages}, {alphabet}.")
    multisets = math.comb(messages + alphabet - 1, messages)
    quotient, remainder = divmod(messages, alphabet)
    # the least sum of squares: counts that differ by at most 1
    squares = remainder * (quotient + 1) ** 2 + (alphabet - remainder) * quotient**2
    return 1 / (2 * r * multisets * (alphabet**2 * (1 + 2 * r)) ** ((messages**2 - squares) // 2))


def channel_overlap_lower(channel: Channel, ratio: Exact) -> Fraction:
    """``overlap_lower`` for the messages of a channel; absent messages count as one more kind."""
    varies = len({len(output) for output in channel.outputs}) > 1
    return overlap_lower(ratio, max(channel.max_messages, 1), max(len(channel.messages), 1) + varies)


@dataclass(frozen=True)
class LeastOverlap:
    """The least overlap that the necessary condition on generating functions allows, for m one-bit messages."""

    overlap: float
    first: tuple[float, ...]
    """The probabilities of 0 .. m ones on one value."""
    second: tuple[float, ...]


def least_overlap(messages: int, ratio: float) -> LeastOverlap:
    """The least overlap of two distributions on 0 .. m whose generating functions stay within ``ratio`` of each other.

    A linear program for each choice of where the first one is the smaller. The condition is imposed at finitely many
    weights, so the result is at most the least overlap, as a lower bound must be. No epsilon-private shuffled protocol
    of m one-bit messages has a smaller one, for any number of users.
    """
    import numpy as np
    from scipy.optimize import linprog

    if not 1 <= messages <= _MAX_SEARCHED or not 1 <= ratio < math.inf:
        raise ParameterError(f"messages must lie in 1 .. {_MAX_SEARCHED} and the ratio be at least 1, and finite.")
    kinds = messages + 1
    powers = np.exp(np.outer(np.linspace(-_MAX_TILT, _MAX_TILT, _TILTS), np.arange(kinds)))
    powers /= powers.max(axis=1, keepdims=True)
    powers = np.vstack([powers, np.eye(kinds)[[0, messages]]])  # weights that tend to 0 and to infinity
    conditions = np.vstack([np.hstack([-ratio * powers, powers]), np.hstack([powers, -ratio * powers])])
    sums = np.kron(np.eye(2), np.ones(kinds))
    best: LeastOverlap | None = None
    for smaller in product((True, False), repeat=messages):
        chosen = np.array((True, *smaller))  # the other half are mirror images
        solved = linprog(
            np.concatenate([chosen, ~chosen]).astype(float),
            A_ub=conditions,
            b_ub=np.zeros(len(conditions)),
            A_eq=sums,
            b_eq=np.ones(2),
            bounds=(0, 1),
        )
        if solved.fun is not None and solved.x is not None and (best is None or solved.fun < best.overlap):
            pmf = tuple(float(share) for share in solved.x)
            best = LeastOverlap(float(solved.fun), pmf[:kinds], pmf[kinds:])
    if best is None:
        raise ParameterError("No linear program was solved.", messages=messages, ratio=ratio)
    return best
