"""Counterexamples for several messages per user: Claims 19 and 20 of Balcer and Cheu (2020).

``r_infinity`` sends the bit and then its complement. In order they reveal the bit; shuffled, even by the user alone,
they reveal nothing.

``r_gap`` sends four bits: any string if the value is 0, and any without exactly two ones if it is 1. Two ones of one
user reveal that the value is 0, whether the user shuffles them or not. Among the messages of two or more users every
number of ones is possible for every data set, so the shuffled protocol has a finite epsilon. The exact e^epsilon of the
uniform version is 5/2 for two users, 125/64 for three, and 8/5 for any larger number:

- It does not increase with the number of users, since one more user's messages are independent of the others.
- It is at least 8/5: there are no ones only if no user sends one. In the ratio of these probabilities the other users'
  factors cancel, which leaves (1/10) / (1/16); the same holds if all bits are ones.
- It is 8/5 for four users, by enumeration.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.channels import Channel, Output, Value, check_pmf
from shuffledp.lab.structure.exact_ratios import Exact

STRINGS: tuple[Output, ...] = tuple(product((0, 1), repeat=4))
"""All four-bit strings: the outputs of ``r_gap`` on 0."""

GAP: tuple[Output, ...] = tuple(bits for bits in STRINGS if bits.count(1) == 2)
"""The strings with exactly two ones, which ``r_gap`` never sends on 1."""


def r_infinity() -> Channel:
    """Claim 19: send x, then 1 - x. Epsilon is infinite, 0 if pre-shuffled, and 0 if shuffled."""
    return Channel.of({x: {(x, 1 - x): 1} for x in (0, 1)})


def r_gap(on_zero: Mapping[Output, Exact] | None = None, on_one: Mapping[Output, Exact] | None = None) -> Channel:
    """Claim 20: four bits; if the value is 0, a uniform string, and if it is 1, a uniform one without exactly two ones.

    Other distributions with the same supports have the same property: epsilon is infinite, also if each user shuffles
    their own messages, and finite if the messages of two or more users are shuffled.
    """
    allowed = tuple(bits for bits in STRINGS if bits not in GAP)
    pmfs: dict[Value, dict[Output, Fraction]] = {}
    for value, given, support in ((0, on_zero, STRINGS), (1, on_one, allowed)):
        uniform = dict.fromkeys(support, Fraction(1, len(support)))
        pmfs[value] = check_pmf(uniform if given is None else given, f"the four bits on {value}")
        if set(pmfs[value]) != set(support):
            raise ParameterError(
                f"On {value} each of these {len(support)} strings must have positive probability, and no other: "
                f"{support}.",
                missing=sorted(set(support) - set(pmfs[value])),
                forbidden=sorted(set(pmfs[value]) - set(support), key=repr),
            )
    return Channel.of(pmfs)


def extreme_ratio(channel: Channel) -> Fraction:
    """A lower bound on e^epsilon of ``r_gap`` for every number of users: the ratio at all zeros or at all ones."""
    shares = [[channel.probability(value, [(bit,) * 4]) for value in (0, 1)] for bit in (0, 1)]
    return max(max(pair) / min(pair) for pair in shares)
