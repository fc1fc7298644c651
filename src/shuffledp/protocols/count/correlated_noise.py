"""A count with correlated noise: nearly the error of the central model with little more than one message per user.

Ghazi, Kumar, Manurangsi and Pagh (2020), Algorithms 3 and 4; Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021),
Lemma 9. In the paper a user with a 1 sends "+1" and a user with a 0 sends nothing, so that the number of messages
reveals the bit. Here every user sends one message, "+1" or "-1", unless the paper's ``unary`` encoding is chosen; the
error is nearly the same.

Accounting: ``shuffledp.privacy.correlated_noise`` and ``shuffledp.privacy.clusters``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Tally
from shuffledp.privacy.carriers import CarrierRoles
from shuffledp.privacy.cluster_calibration import least_noise
from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs, View, paper_flooding
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.correlated import CorrelatedNoiseProtocol, check_roles, roles_for
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.protocol import Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

Encoding = Literal["signed", "unary"]

_OMITTED_MASS = 1e-5


@dataclass(frozen=True)
class CorrelatedNoiseCount(CorrelatedNoiseProtocol, CountProtocol):
    """A count with nearly the central error, from about one message per user (Ghazi and others 2020); shuffled.

    Options of ``calibrate``:

    - ``split``: part of epsilon for the noise that changes the count; the rest is for the pairs that cancel.
    - ``encoding``: ``signed``, or ``unary`` as in the paper.
    - ``carriers``: the probability of being a carrier; by default all users add noise.
    """

    name: ClassVar[str] = "correlated-noise"

    ratio: Dyadic
    """Ratio of the geometric noise that remains: k messages have a probability proportional to ratio^k."""
    flood: NegativeBinomialPairs | PairClusters
    """The pairs that cancel: clusters, or with the constants of the paper a negative binomial number."""
    encoding: str = "signed"
    """``signed``: everybody sends "+1" or "-1". ``unary``: "+1" or nothing, as in the paper."""
    carriers: CarrierRoles | None = None
    """Who adds noise: users who are chosen by a coin; None for all."""

    def __post_init__(self) -> None:
        if self.encoding not in ("signed", "unary"):
            raise ParameterError(f"The encoding must be signed or unary, not {self.encoding!r}.")
        if isinstance(self.flood, PairClusters) and self.flood.singles:
            raise ParameterError(f"A count has no singles; got a rate of {float(self.flood.singles):g}.")
        check_roles(self.carriers, self.flood, self.target)
        if self.carriers is not None and self.encoding != "signed":
            raise ParameterError(f"With carriers the encoding must be signed, not {self.encoding}.")

    @classmethod
    def for_target(
        cls, target: Target, *, split: float = 0.9, encoding: Encoding = "signed", carriers: float | None = None
    ) -> Self:
        """The least flooding that is (epsilon, delta)-private, with ``split`` of epsilon for the noise that remains.

        A larger split means less error and more messages.
        """
        view = _view(encoding)
        roles, delta = roles_for(target, carriers)
        if target.calibration == "paper":
            ratio, shape, flood_ratio = paper_flooding(target.epsilon, delta, split, view)
            return cls(target, ratio, NegativeBinomialPairs(shape, flood_ratio), encoding, roles)
        return cls(target, *least_noise(target.epsilon, delta, split, view), encoding, roles)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Less error for more messages, and fewer messages for more error."""
        return ({"split": 0.97}, {"split": 0.6})

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        return self.noise_guarantee(theorem="exact divergence of the noise")

    @property
    def bins(self) -> int:
        """All noise is in one bin."""
        return 1

    @property
    def view(self) -> View:
        """The view in which the noise is accounted for, which depends on the encoding."""
        return _view(self.encoding)

    @property
    def min_messages_per_user(self) -> int:
        """The user's own sign; none for a 0 in the unary encoding."""
        return 1 if self.encoding == "signed" else 0

    @property
    def message_format(self) -> MessageFormat:
        """A sign: 0 for "+1", 1 for "-1"."""
        return MessageFormat((2,))

    def report_pmf(self, value: int) -> Pmf:
        """The user's own message and the noise, except for a tail of 1e-5."""
        bit = check_index(value, 2)
        own = (bit, 1 - bit) if self.encoding == "signed" else (bit, 0)
        noise = self.shares.pmf(_OMITTED_MASS)
        return self.mixed_pmf(own, {(plus + own[0], minus + own[1]): mass for (plus, minus), mass in noise.items()})

    def own_cells(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The sign of each user; in the unary encoding only of those who hold a 1."""
        bits = check_indices(values, 2)
        own: NDArray[np.int64] = 2 * np.arange(len(bits), dtype=np.int64) + (1 - bits)
        return own if self.encoding == "signed" else own[bits == 1]

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The sums of all shares, which have the same kinds of distributions."""
        zeros, ones = check_counts(counts, 2).tolist()
        if zeros + ones == 0:
            return Tally.zero(2)
        plus, minus = self.draw_totals(zeros + ones, source)
        own = (ones, zeros) if self.encoding == "signed" else (ones, 0)
        return Tally(np.concatenate((plus, minus)) + own, zeros + ones, source.secure)

    def check_tally(self, tally: Tally) -> None:
        """Check the tally: counts of two messages; in the signed encoding at least one message per user."""
        if len(tally.counts) != 2 or (self.encoding == "signed" and int(tally.counts.sum()) < tally.users):
            raise ParameterError(
                f"A tally of {tally.users:,} users needs the counts of two messages, and in the signed encoding at "
                "least one message per user."
            )

    def observed(self, tally: Tally) -> NDArray[Any]:
        """The number of "+1" minus the number of "-1"."""
        return tally.counts[:1] - tally.counts[1:]

    def analysis(self, users: int) -> LinearAnalysis:
        """The difference of the signs, which lies between -n and n in the signed encoding, where it is halved."""
        slope = 2.0 if self.encoding == "signed" else 1.0
        return LinearAnalysis(
            offset=-users * (slope - 1),
            slope=slope,
            error=FixedNoise(self.remaining(users), step=1 / slope),
            largest=users,
        )


def _view(encoding: str) -> View:
    return "signed" if encoding == "signed" else "count"
