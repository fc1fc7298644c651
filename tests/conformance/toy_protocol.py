"""The protocol that CONTRIBUTING.md shows: one file, and one line that registers it."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from shuffledp.domain import check_index, check_indices
from shuffledp.messages import MessageFormat
from shuffledp.privacy.cheu import FlippedCount, least_count_flip
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.linear import IndependentTerms, LinearAnalysis
from shuffledp.protocols.parts.single_message import SingleMessageProtocol, one_message_each
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, bernoulli


@dataclass(frozen=True)
class FlippedBit(SingleMessageProtocol, CountProtocol):
    """Send the bit, flipped with a small probability."""

    name: ClassVar[str] = "flipped-bit"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    flip: Dyadic

    @classmethod
    def for_target(cls, target: Target):
        return cls(target, least_count_flip(target.honest_users, target.epsilon, target.delta))

    @cached_property
    def guarantee(self):
        curve = FlippedCount(self.target.honest_users, self.flip)
        return self.target.guarantee(curve, theorem="bounded over all data", local_epsilon=curve.local_epsilon)

    @property
    def message_format(self):
        return MessageFormat((2,))

    def report_pmf(self, value):
        bit, flip = check_index(value, 2), self.flip.fraction
        sent = {0: (1, 0), 1: (0, 1)}  # copies of the messages 0 and 1
        return {sent[bit]: 1 - flip, sent[1 - bit]: flip}

    def randomize_all(self, values, *, source=SYSTEM):
        bits = check_indices(values, 2)
        flipped = bits ^ bernoulli(self.flip, len(bits), source)
        return one_message_each(flipped.astype(np.uint8), source)

    def observed(self, tally):
        return tally.counts[1:]

    def analysis(self, users):
        flip = float(self.flip)
        slope = 1 - 2 * flip
        return LinearAnalysis(
            offset=users * flip,
            slope=slope,
            error=IndependentTerms(users * flip * (1 - flip) / slope**2, 0.0, 1 / slope),
            largest=users,
        )
