"""Balcer and Cheu (2020), Claims 19 and 20: with several messages, a shuffled protocol can be far more private.

``r_infinity`` sends the bit and its opposite. In order they tell the bit; shuffled, even by the user alone, they
tell nothing.

``r_gap`` sends four bits: any on 0, but never exactly two ones on 1. Two ones of one user tell that the value is 0,
shuffled or not. Among the messages of two or more users every number of ones is possible for every data set, and so
the shuffled protocol has a finite epsilon. The exact e^epsilon of the uniform version is 5/2 for two users, 125/64 for
three and 8/5 from four users on, for ever:

- It never rises with the users, since one more user's messages are independent of the others'.
- It is at least 8/5: no ones at all can only be if nobody sends one. Then the others' factors cancel, and
  (1/10) / (1/16) is left; the same at four ones of everybody. These extreme counts see no crowd.
- It is 8/5 for four users, by enumeration.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

from shuffledp.errors import ParameterError
from shuffledp.lab.structure.channels import Channel, Output, Value, check_pmf
from shuffledp.lab.structure.growth import Exact

STRINGS: tuple[Output, ...] = tuple(product((0, 1), repeat=4))
"""The four-bit strings: what ``r_gap`` may send on 0."""

GAP: tuple[Output, ...] = tuple(bits for bits in STRINGS if bits.count(1) == 2)
"""Those with exactly two ones: what it never sends on 1."""


def r_infinity() -> Channel:
    """Claim 19: send x, then 1 - x. Epsilon is infinite, 0 if pre-shuffled, and 0 if shuffled."""
    return Channel.of({x: {(x, 1 - x): 1} for x in (0, 1)})


def r_gap(on_zero: Mapping[Output, Exact] | None = None, on_one: Mapping[Output, Exact] | None = None) -> Channel:
    """Claim 20: four bits, uniform on all strings on 0, and on those without exactly two ones on 1.

    Any distributions with just these supports will do: epsilon is infinite, also if pre-shuffled, and finite for two or
    more users if shuffled.
    """
    allowed = tuple(bits for bits in STRINGS if bits not in GAP)
    pmfs: dict[Value, dict[Output, Fraction]] = {}
    for value, given, support in ((0, on_zero, STRINGS), (1, on_one, allowed)):
        uniform = dict.fromkeys(support, Fraction(1, len(support)))
        pmfs[value] = check_pmf(uniform if given is None else given, f"the four bits on {value}")
        if set(pmfs[value]) != set(support):
            raise ParameterError(
                f"On {value} each of these {len(support)} strings must be possible and no other: {support}.",
                missing=sorted(set(support) - set(pmfs[value])),
                forbidden=sorted(set(pmfs[value]) - set(support), key=repr),
            )
    return Channel.of(pmfs)


def extreme_ratio(channel: Channel) -> Fraction:
    """What no number of users takes e^epsilon of ``r_gap`` below: the ratio at no ones, or at ones only."""
    shares = [[channel.probability(value, [(bit,) * 4]) for value in (0, 1)] for bit in (0, 1)]
    return max(max(pair) / min(pair) for pair in shares)
