"""A count with correlated noise: nearly the error of the central model with little more than one message per user.

Ghazi, Kumar, Manurangsi and Pagh (2020), Algorithms 3 and 4; Ghazi, Kumar, Manurangsi, Pagh and Sinha (2021),
Lemma 9. In the paper a user with a 1 sends "+1" and a user with a 0 sends nothing, so that the number of messages
reveals the bit. Here every user sends one message, "+1" or "-1", unless the paper's ``unary`` encoding is chosen; the
error is nearly the same.

Accounting: ``shuffledp.privacy.correlated_noise`` and ``shuffledp.privacy.clusters``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import check_counts, check_index, check_indices
from shuffledp.errors import ParameterError
from shuffledp.messages import MessageFormat, Messages, Tally
from shuffledp.privacy.cluster_calibration import least_noise
from shuffledp.privacy.clusters import PairClusters
from shuffledp.privacy.correlated_noise import NegativeBinomialPairs, View, paper_flooding
from shuffledp.privacy.guarantee import Guarantee
from shuffledp.protocols.count.protocol import CountProtocol
from shuffledp.protocols.parts.linear import FixedNoise, LinearAnalysis
from shuffledp.protocols.parts.noise_shares import NoiseShares, curve_of, flat_flood, nested_flood
from shuffledp.protocols.parts.sparse import messages_of_cells
from shuffledp.protocols.protocol import Cost, Pmf
from shuffledp.protocols.target import Target
from shuffledp.randomness import SYSTEM, Dyadic, RandomSource

Encoding = Literal["signed", "unary"]

_OMITTED_MASS = 1e-5


@dataclass(frozen=True)
class CorrelatedNoiseCount(CountProtocol):
    """A count with nearly the central error, from about one message per user (Ghazi and others 2020); shuffled.

    Options of ``calibrate``:

    - ``split``: part of epsilon for the noise that changes the count; the rest is for the pairs that cancel.
    - ``encoding``: ``signed``, or ``unary`` as in the paper.
    """

    name: ClassVar[str] = "correlated-noise"

    ratio: Dyadic
    """Ratio of the geometric noise that remains: k messages have a probability proportional to ratio^k."""
    flood: NegativeBinomialPairs | PairClusters
    """The pairs that cancel: clusters, or with the constants of the paper a negative binomial number."""
    encoding: str = "signed"
    """``signed``: everybody sends "+1" or "-1". ``unary``: "+1" or nothing, as in the paper."""

    def __post_init__(self) -> None:
        if self.encoding not in ("signed", "unary"):
            raise ParameterError(f"The encoding must be signed or unary, not {self.encoding!r}.")
        if isinstance(self.flood, PairClusters) and self.flood.singles:
            raise ParameterError(f"A count has no singles; got a rate of {float(self.flood.singles):g}.")

    @classmethod
    def for_target(cls, target: Target, *, split: float = 0.9, encoding: Encoding = "signed") -> Self:
        """The least flooding that is (epsilon, delta)-private, with ``split`` of epsilon for the noise that remains.

        A larger split means less error and more messages.
        """
        view = _view(encoding)
        if target.calibration == "paper":
            ratio, shape, flood_ratio = paper_flooding(target.epsilon, target.delta, split, view)
            return cls(target, ratio, NegativeBinomialPairs(shape, flood_ratio), encoding)
        return cls(target, *least_noise(target.epsilon, target.delta, split, view), encoding)

    @classmethod
    def alternatives(cls, **settings: Any) -> Iterable[dict[str, Any]]:  # noqa: ARG003
        """Less error for more messages, and fewer messages for more error."""
        return ({"split": 0.97}, {"split": 0.6})

    @property
    def shares(self) -> NoiseShares:
        """The noise, in as many shares as there are honest users."""
        return NoiseShares(self.ratio, self.flood, self.target.honest_users)

    @property
    def document_version(self) -> int:
        """Version 2 has clusters of pairs."""
        return 2 if isinstance(self.flood, PairClusters) else 1

    @classmethod
    def document_of(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The parameters of the flood beside the others."""
        return flat_flood(fields)

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inverse of ``document_of``."""
        return nested_flood(document)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The privacy of one release, with the noise of the honest users alone."""
        curve = curve_of(self.ratio, self.flood, _view(self.encoding))
        return self.target.guarantee(curve, theorem="exact divergence of the noise")

    @property
    def cost(self) -> Cost:
        """One message (in the unary encoding only for a 1), and the shares of noise."""
        return Cost(1 + self.shares.mean_messages, None, 1)

    @property
    def min_messages_per_user(self) -> int:
        """The user's own sign; none for a 0 in the unary encoding."""
        return 1 if self.encoding == "signed" else 0

    @property
    def share_ratios(self) -> tuple[Dyadic, ...]:
        """The ratios of the noise that remains and of pairs in a negative binomial number."""
        return (self.ratio,) if isinstance(self.flood, PairClusters) else (self.ratio, self.flood.flood_ratio)

    def chance_of_more_messages(self, messages: int) -> float:
        """Upper bound on the probability that a report has more than ``messages`` messages."""
        return self.shares.chance_of_more(messages - 1, 1)

    @property
    def message_format(self) -> MessageFormat:
        """A sign: 0 for "+1", 1 for "-1"."""
        return MessageFormat((2,))

    def report_pmf(self, value: int) -> Pmf:
        """The user's own message and the noise, except for a tail of 1e-5."""
        bit = check_index(value, 2)
        own = (bit, 1 - bit) if self.encoding == "signed" else (bit, 0)
        return {(plus + own[0], minus + own[1]): mass for (plus, minus), mass in self.shares.pmf(_OMITTED_MASS).items()}

    def randomize_all(self, values: NDArray[Any], *, source: RandomSource = SYSTEM) -> Messages:
        """The randomizer on many users at once: only shares that are not zero are drawn."""
        bits = check_indices(values, 2)
        own = 2 * np.arange(len(bits), dtype=np.int64) + (1 - bits)
        own = own if self.encoding == "signed" else own[bits == 1]
        cells = np.concatenate((own, self.shares.draw(len(bits), source)))
        return messages_of_cells(cells, len(bits), self.message_format, source)

    def sample_tally(self, counts: NDArray[np.int64], *, source: RandomSource = SYSTEM) -> Tally:
        """The sums of all shares, which have the same kinds of distributions."""
        zeros, ones = check_counts(counts, 2).tolist()
        if zeros + ones == 0:
            return Tally.zero(2)
        plus, minus = self.shares.totals(zeros + ones, 1, source)
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
            error=FixedNoise(self.shares.remaining(users), step=1 / slope),
            largest=users,
        )


def _view(encoding: str) -> View:
    return "signed" if encoding == "signed" else "count"
