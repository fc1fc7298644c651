"""A histogram with correlated noise: nearly the error of the central model from about one message each.

Ghazi, Kumar, Manurangsi and Pagh (2020), Algorithms 3 and 4 and Corollary 2; Ghazi, Kumar, Manurangsi, Pagh
and Sinha (2021), Lemma 9. Users send "+1" for their category, and for every category a share of
noise: a few "+1" and "-1" of their own, and pairs of both that cancel in the estimate and only flood
the analyzer. All shares together are geometric, so that the error is exactly discrete Laplace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Categories, check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.model import Cost, Law, MessageFormat, Messages, Tally
from shuffledp.privacy.correlated_noise import CorrelatedNoiseLaw, NegativeBinomial, least_flooding, paper_flooding
from shuffledp.privacy.discrete_laplace import DiscreteLaplace
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.histogram.discrete_laplace import SymmetricNoise
from shuffledp.protocols.kinds import HistogramProtocol
from shuffledp.protocols.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.sparse import check_cells, messages_of_cells
from shuffledp.protocols.terms import Terms
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource, negative_binomial, scattered_negative_binomial

__all__ = ["CorrelatedNoiseHistogram"]

_LEFT_OUT = 1e-5
_LARGEST_LISTED = 2_000_000
_TAIL_CUT = 1e-18


@dataclass(frozen=True)
class CorrelatedNoiseHistogram(HistogramProtocol):
    """The protocol with its public parameters."""

    name: ClassVar[str] = "correlated-noise"

    terms: Terms
    ratio: Dyadic
    """Of the geometric noise that stays: k messages have a probability proportional to ratio^k."""
    flood_shape: Fraction
    """Of the negative binomial number of pairs that cancel."""
    flood_ratio: Dyadic
    domain_size: int
    categories: Categories | None = None

    @classmethod
    def calibrate(
        cls,
        *,
        users: int,
        epsilon: float,
        delta: float,
        domain_size: int | None = None,
        categories: Categories | Iterable[str] | None = None,
        calibration: str = "tight",
        honest_fraction: float = 1.0,
        split: float = 0.9,
    ) -> Self:
        """The least flooding that is (epsilon, delta)-private overall.

        ``split`` is the part of epsilon for the noise that stays: more of it means less error and more messages.
        """
        size, named = cls.sizes(domain_size, categories)
        terms = Terms.of(
            users=users, epsilon=epsilon, delta=delta, honest_fraction=honest_fraction, calibration=calibration
        )
        choose = paper_flooding if calibration == "paper" else least_flooding
        return cls(terms, *choose(terms.epsilon, terms.delta, split, "histogram"), size, named)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Less error for more messages, and fewer messages for more error."""
        return ({"split": 0.96}, {"split": 0.8}, {"split": 0.6})

    @property
    def planned_shares(self) -> int:
        """The noise is whole as soon as so many users add their share; every further one adds to it."""
        return self.terms.honest_users

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        law = CorrelatedNoiseLaw(self.ratio, self.flood_shape, self.flood_ratio, "histogram")
        return self.terms.guarantee(law, theorem="exact divergence of the noise of both changed categories")

    @property
    def cost(self) -> Cost:
        """One message and the shares of noise, which do not depend on the category."""
        staying = self.ratio.fraction / self.ratio.complement.fraction
        flooding = self.flood_shape * self.flood_ratio.fraction / self.flood_ratio.complement.fraction
        noise = 2 * self.domain_size * (staying + flooding) / self.planned_shares
        return Cost(1 + float(noise), None, self.message_format.bits)

    @property
    def message_format(self) -> MessageFormat:
        """A category's index and a sign: 0 for "+1", 1 for "-1"."""
        return MessageFormat((self.domain_size,), flags=1)

    def report_law(self, value: int) -> Law:
        """The own "+1" and every category's noise, but for a tail of 1e-5; for little noise and few categories."""
        owned = check_index(value, self.domain_size)
        noise = self._noise_law(_LEFT_OUT / self.domain_size)
        if len(noise) ** self.domain_size > _LARGEST_LISTED:
            raise ParameterError(f"A report over {self.domain_size:,} categories has too many outcomes to list.")
        law: dict[tuple[int, ...], float] = {}
        for drawn in product(noise.items(), repeat=self.domain_size):
            copies = [count for signs, _ in drawn for count in signs]
            copies[2 * owned] += 1
            mass = 1.0
            for _, share in drawn:
                mass *= share
            law[tuple(copies)] = mass
        return law

    def _noise_law(self, left_out: float) -> dict[tuple[int, int], float]:
        """The numbers of "+1" and "-1" that a user adds to one category, without the least likely ones."""
        shares = self.planned_shares
        staying = _masses(NegativeBinomial(Fraction(1, shares), self.ratio), left_out / 100)
        flooding = _masses(NegativeBinomial(self.flood_shape / shares, self.flood_ratio), left_out / 100)
        table = np.zeros((len(staying) + len(flooding) - 1,) * 2)
        alone = np.outer(staying, staying)
        for pairs, mass in enumerate(flooding):
            table[pairs : pairs + len(staying), pairs : pairs + len(staying)] += mass * alone
        likeliest = np.argsort(-table, axis=None)
        kept = likeliest[: int(np.searchsorted(np.cumsum(table.ravel()[likeliest]), 1 - left_out / 2)) + 1]
        plus, minus = np.unravel_index(kept, table.shape)
        return dict(zip(zip(plus.tolist(), minus.tolist(), strict=True), table[plus, minus].tolist(), strict=True))

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: only shares that are not zero are drawn."""
        owned = check_indices(values, self.domain_size)
        check_cells(len(owned), self.message_format)
        places = len(owned) * self.domain_size
        sent = [2 * (np.arange(len(owned), dtype=np.int64) * self.domain_size + owned)]
        for sign in (0, 1):
            place, copies = scattered_negative_binomial(Fraction(1, self.planned_shares), self.ratio, places, source)
            sent.append(np.repeat(2 * place + sign, copies))
        place, copies = scattered_negative_binomial(
            self.flood_shape / self.planned_shares, self.flood_ratio, places, source
        )
        pairs = np.repeat(2 * place, copies)
        return messages_of_cells(np.concatenate((*sent, pairs, pairs + 1)), len(owned), self.message_format, source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The sums of all shares, which are negative binomial again."""
        true = check_counts(counts, self.domain_size)
        users = int(true.sum())
        if users == 0:
            return Tally.zero(2 * self.domain_size)
        share = Fraction(users, self.planned_shares)
        pairs = negative_binomial(share * self.flood_shape, self.flood_ratio, self.domain_size, source)
        plus = true + pairs + negative_binomial(share, self.ratio, self.domain_size, source)
        minus = pairs + negative_binomial(share, self.ratio, self.domain_size, source)
        return Tally(np.column_stack((plus, minus)).ravel(), users, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Everybody sent a "+1"."""
        if len(tally.counts) != 2 * self.domain_size:
            raise ParameterError(
                f"A tally of {len(tally.counts):,} kinds of message does not fit a domain of {self.domain_size:,}."
            )
        if int(tally.counts[::2].sum()) < tally.users:
            raise ParameterError(f"Messages are missing: {tally.users:,} users send that many or more.")

    def observed(self, tally: Tally) -> NDArray[Any]:
        """What is left when pairs cancel."""
        return tally.counts[::2] - tally.counts[1::2]

    def analysis(self, users: int) -> LinearAnalysis:
        """The noise that stays: discrete Laplace, or wider if more than the planned shares came."""
        share = Fraction(users, self.planned_shares)
        whole = DiscreteLaplace(self.ratio)
        return LinearAnalysis(
            offset=0.0,
            slope=1.0,
            error=FixedNoise(SymmetricNoise(whole if share == 1 else _Difference(NegativeBinomial(share, self.ratio)))),
            largest=users,
            numbers=self.domain_size,
        )


@dataclass(frozen=True)
class _Difference:
    """The law of the difference of two independent negative binomial numbers."""

    each: NegativeBinomial

    @property
    def variance(self) -> float:
        """Of both together."""
        return 2 * self.each.variance

    def upper_tail(self, k: int) -> float:
        """Pr[G1 >= G2 + k], from above."""
        if k <= 0:
            return 1.0 - self.upper_tail(1 - k)
        masses, tails, left_out = self._tables
        return float(masses[: max(0, len(tails) - k)] @ tails[k:]) + left_out

    @cached_property
    def _tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        _, masses, left_out = self.each.window(_TAIL_CUT)  # where it begins cancels in the difference
        return masses, np.cumsum(masses[::-1])[::-1], 2 * left_out


def _masses(law: NegativeBinomial, cut: float) -> NDArray[np.float64]:
    """The masses from 0 on, but for a tail."""
    first, masses, _ = law.window(cut)
    return np.concatenate((np.zeros(first), masses))
