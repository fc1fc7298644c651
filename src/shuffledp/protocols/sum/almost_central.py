"""Sums with almost the error of the central model, and little more than one message per user in large rounds.

Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021). A number is rounded at random to a level x of 0 .. k and sent as the
message x + 1. In addition, all users together send geometric numbers of "+1" and "-1", whose difference is the noise of
the sum, and a negative binomial number of copies of each *atom*. An atom is a few numbers that add up to 0: its copies
hide which numbers were sent, and cancel in the sum. Every user draws a share of each, so that the number of a user's
messages does not depend on the value. In the paper the value 0 is not sent; here every user sends a message. Patents
may apply (US 12,072,987 B1).

Accounting: ``shuffledp.privacy.almost_central``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Interval
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.almost_central import (
    AlmostCentralCurve,
    GradedAlmostCentralCurve,
    almost_central_noise,
    expected_noise_messages,
)
from shuffledp.privacy.capping import Share, chance_of_more
from shuffledp.privacy.discrete_laplace import decay_of
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.parts.linear import LinearAnalysis
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.sum.levels import (
    RoundedNoise,
    check_levels,
    level_pmf,
    levels_for,
    rounding_variance,
    to_levels,
    worst_rounding_variance,
)
from shuffledp.protocols.sum.protocol import SumProtocol
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, negative_binomial, scattered_negative_binomial
from shuffledp.randomness.logarithmic import LEAST_COMPLEMENT_BITS

_MAX_LEVELS = 1000  # the accounting of more levels takes long
_OMITTED_MASS = 1e-5
_TOO_RARE = 1e-7  # less likely reports are not listed
_TABLE_ENTRIES = 1 << 10  # of the sampling table of one atom
_MAX_LISTED = 4

Part = tuple[tuple[int, ...], Fraction, Dyadic]
"""Messages that are sent together, and the shape and ratio of the number of copies of all honest users."""


@dataclass(frozen=True)
class AlmostCentralSum(SumProtocol):
    """A sum with nearly the central error, for very many users (Ghazi and others 2021); shuffled.

    Options of ``calibrate``:

    - ``levels``: number of steps to which a number is rounded; epsilon sqrt(users), at most 1000, unless given.
    - ``split``: part of epsilon for the noise of the sum; the rest is for the atoms that cancel.
    """

    name: ClassVar[str] = "almost-central"
    calibrations: ClassVar[tuple[str, ...]] = ("tight",)

    noise: AlmostCentralCurve | GradedAlmostCentralCurve
    """The number of levels, and the noise of all honest users."""
    domain: Interval

    def __post_init__(self) -> None:
        check_levels(self.levels, users=self.target.users)
        if not _can_be_drawn(self.noise):
            raise ParameterError(
                f"With {self.levels:,} levels the noise at epsilon = {self.target.epsilon:g} has shares too long "
                "to draw; use fewer levels.",
                levels=self.levels,
            )

    @classmethod
    def for_target(cls, target: Target, domain: Interval, *, levels: int | None = None, split: float = 0.9) -> Self:
        """The fewest messages that meet the target; ``split`` is the fraction of epsilon for the noise of the sum.

        By default there are epsilon sqrt(users) levels, at most 1000, and fewer if their noise cannot be drawn.
        """
        if target.calibration == "paper":
            raise ParameterError(
                "The paper's constants for almost-central are not supported: they need hundreds of times as many "
                "messages; use the tight calibration.",
                calibration=target.calibration,
            )
        if levels is not None:
            return cls(target, almost_central_noise(levels, target.epsilon, target.delta, split), domain)
        max_levels = min(math.ceil(target.epsilon * math.sqrt(target.users)), _MAX_LEVELS)
        while True:
            levels = levels_for(domain, min_levels=max_levels, max_levels=max_levels)
            noise = almost_central_noise(levels, target.epsilon, target.delta, split)
            if _can_be_drawn(noise) or max_levels < 2:
                return cls(target, noise, domain)
            max_levels = max_levels * 2 // 3

    @property
    def levels(self) -> int:
        """Numbers are rounded at random to one of levels + 1 points."""
        return self.noise.levels

    @property
    def document_version(self) -> int:
        """2 for noise that is graded, which earlier programs do not know."""
        return 2 if isinstance(self.noise, GradedAlmostCentralCurve) else 1

    @cached_property
    def guarantee(self) -> Guarantee:
        """Computed from the noise that is sampled."""
        theorem = "certified numerically: composition of the atoms' privacy losses (after Ghazi et al. 2021)"
        return self.target.guarantee(self.noise, theorem=theorem)

    @property
    def cost(self) -> Cost:
        """The real message, and a share of all noise messages."""
        noise = expected_noise_messages(self.noise) / self.target.honest_users
        return Cost(1 + noise, None, self.message_format.bits)

    @property
    def min_messages_per_user(self) -> int:
        """The real message."""
        return 1

    @property
    def draws_per_report(self) -> float:
        """The messages, and a table for each atom."""
        return super().draws_per_report + _TABLE_ENTRIES * len(self._parts)

    def chance_of_more_messages(self, messages: int) -> float:
        """Upper bound on the probability that a report has more than ``messages`` messages."""
        honest = self.target.honest_users
        shares = [Share(float(shape) / honest, float(ratio), len(members)) for members, shape, ratio in self._parts]
        return chance_of_more(shares, messages - 1)

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        """All noise messages: single "+1" and "-1", and the atoms."""
        remaining = [((sign,), Fraction(1), self.noise.ratio) for sign in (1, -1)]
        atoms = [(atom.members, shape, ratio) for atom, shape, ratio in self.noise.flooding]
        return (*remaining, *atoms)

    @cached_property
    def _lowest(self) -> int:
        """The least number that can be sent."""
        return min(min(members) for members, _, _ in self._parts)

    @property
    def message_format(self) -> MessageFormat:
        """A number from the lowest one to levels + 1, as its distance from the lowest."""
        return MessageFormat((self.levels + 2 - self._lowest,))

    def report_pmf(self, value: float) -> Pmf:
        """The real message with every number of copies of each part, except for a tail."""
        if self.levels > _MAX_LISTED:
            raise ParameterError(f"{self.levels:,} levels are too many to list; at most {_MAX_LISTED}.")
        codes = self.message_format.codes
        pmf: dict[tuple[int, ...], float] = {}
        for level, share in level_pmf(value, self.levels, self.domain).items():
            sent = [0] * codes
            sent[level + 1 - self._lowest] = 1
            pmf[tuple(sent)] = float(share)
        for members, shape, ratio in self._parts:
            added = np.zeros(codes, dtype=np.int64)
            np.add.at(added, np.array(members) - self._lowest, 1)
            extended: dict[tuple[int, ...], float] = {}
            for copies, mass in _copies_pmf(float(shape) / self.target.honest_users, ratio, len(self._parts)):
                for sent_before, before in pmf.items():
                    both = tuple((np.array(sent_before) + copies * added).tolist())
                    extended[both] = extended.get(both, 0.0) + before * mass
            pmf = {both: mass for both, mass in extended.items() if mass > _TOO_RARE}
        return pmf

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once; for each part, only the few users who send copies are drawn."""
        owned = to_levels(values, self.levels, self.domain, source)
        senders, sent = [np.arange(len(owned))], [owned + 1]
        for members, shape, ratio in self._parts:
            share = shape / self.target.honest_users
            noise_senders, copies = scattered_negative_binomial(share, ratio, len(owned), source)
            for member in members:
                senders.append(np.repeat(noise_senders, copies))
                sent.append(np.full(len(senders[-1]), member, dtype=np.int64))
        sender = np.concatenate(senders)
        codes = (np.concatenate(sent) - self._lowest).astype(self.message_format.dtype)
        order = np.argsort(sender, kind="stable")
        offsets = np.append(0, np.cumsum(np.bincount(sender, minlength=len(owned)))).astype(np.int64)
        return Messages(codes[order], len(owned), offsets, source.secure)

    def sample_tally(self, values: NDArray[np.float64], *, source: RandomSource = SYSTEM) -> Tally:
        """The total number of copies of each part is drawn at once."""
        owned = to_levels(values, self.levels, self.domain, source)
        counts = np.bincount(owned + 1 - self._lowest, minlength=self.message_format.codes).astype(np.int64)
        if len(owned):
            for members, shape, ratio in self._parts:
                total_shape = shape * len(owned) / self.target.honest_users
                np.add.at(counts, np.array(members) - self._lowest, negative_binomial(total_shape, ratio, 1, source)[0])
        return Tally(counts, len(owned), source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: one count per number."""
        if len(tally.counts) != self.message_format.codes:
            raise ParameterError(f"A tally counts {self.message_format.codes:,} numbers, not {len(tally.counts):,}.")

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The sum of all numbers, minus the 1 that every user adds to their level."""
        numbers = np.arange(len(tally.counts)) + self._lowest
        return np.array([int(tally.counts @ numbers) - tally.users])

    def analysis(self, users: int) -> LinearAnalysis:
        """The sum, in units of a level."""
        rounded = users if worst_rounding_variance(users, self.levels, self.domain) else 0
        return LinearAnalysis(offset=0.0, slope=self.levels, error=self._error(users, rounded), largest=users)

    def _error(self, users: int, rounded: int) -> RoundedNoise:
        shape = users / self.target.honest_users
        return RoundedNoise(decay_of(self.noise.ratio), self.levels, rounded, shape=shape)

    def variance(self, values: NDArray[np.float64]) -> float:
        """The noise of all users, and the rounding of these numbers; the atoms cancel."""
        return self._error(len(values), 0).noise_variance() + rounding_variance(values, self.levels, self.domain)


def _can_be_drawn(noise: AlmostCentralCurve | GradedAlmostCentralCurve) -> bool:
    """Whether the sampler supports every ratio of the noise."""
    ratios = [noise.ratio, *(ratio for _, _, ratio in noise.flooding)]
    return all(ratio.complement.fraction >= Fraction(1, 1 << LEAST_COMPLEMENT_BITS) for ratio in ratios)


def _copies_pmf(shape: float, ratio: Dyadic, parts: int) -> Iterator[tuple[int, float]]:
    """The distribution NB(shape, ratio), except for a tail; the tails of all parts together are at most 1e-5."""
    mass, remaining_mass, copies = float(ratio.complement) ** shape, 1.0, 0
    while remaining_mass > _OMITTED_MASS / parts:
        yield copies, mass
        remaining_mass -= mass
        mass *= float(ratio) * (copies + shape) / (copies + 1)
        copies += 1
